"""Bytes from executor to executor over Spark's own exchange: files of datasets, and key groups that move."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from transom.engine.spark.placed import PAYLOAD, PlacedFile, Tasks, Writer, at_tasks, payload_row

MOST_MOVED = 256 << 20
"""Bytes that are moved in one job: what a Python worker holds at once, at most."""
TARGET = "_target"
Arrived = TypeVar("Arrived")
Taken = TypeVar("Taken")


def exchange(
    givers: Tasks,
    give: Callable[[int], Iterable[tuple[int, int, bytes]]],
    takers: Tasks,
    arrive: Callable[[int, bytes], Arrived],
    take: Callable[[int, dict[int, Arrived]], Taken],
) -> list[Taken]:
    """Bring bytes from tasks to tasks; one job with one exchange.

    Args:
        givers: The tasks that have them.
        give: Gives, for the number of a giver, the number of a taker, a number for the piece, and the piece.
        takers: The tasks that get them.
        arrive: Makes of the number of a piece, and the piece, what `take` gets, in another process at the same place:
            better something small.
        take: Takes, for the number of a taker, its pieces by number; what it returns comes back, by taker.
    """
    from pyspark.sql import functions as F

    schema = pa.schema([(TARGET, pa.int32()), ("_number", pa.int32()), (PAYLOAD, pa.binary())])

    def read(giver: int) -> Iterator[pa.RecordBatch]:
        for taker, number, piece in give(giver):
            columns = [pa.array([taker], pa.int32()), pa.array([number], pa.int32()), pa.array([piece], pa.binary())]
            yield pa.record_batch(columns, schema=schema)

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield payload_row(
            {
                number: arrive(number, piece)
                for batch in batches
                for number, piece in zip(batch["_number"].to_pylist(), batch[PAYLOAD].to_pylist(), strict=True)
            }
        )

    sent = givers.frame(read, f"{TARGET} int, _number int, {PAYLOAD} binary")
    packed = sent.repartitionById(len(takers), F.col(TARGET)).mapInArrow(pack, f"{PAYLOAD} binary")
    return at_tasks(packed, takers, lambda payload, taker: take(taker, pickle.loads(payload)))


def move(files: Sequence[PlacedFile], tasks: Tasks, name: str) -> list[PlacedFile]:
    """Copy partitions to other executors; the old files stay.

    One task for each executor that gives and each that takes, however many files: a few jobs if they are large.

    Args:
        files: The partitions, at executors that are alive.
        tasks: Where each of them goes.
        name: Begins the names of the new files.
    """
    moved: dict[int, PlacedFile] = {}
    numbers: list[int] = []
    size = 0
    for number, file in enumerate(files):
        if numbers and size + file.bytes > MOST_MOVED:
            moved.update(_moved(files, numbers, tasks, name))
            numbers, size = [], 0
        numbers.append(number)
        size += file.bytes
    if numbers:
        moved.update(_moved(files, numbers, tasks, name))
    return [moved[number] for number in range(len(files))]


def _moved(
    files: Sequence[PlacedFile], numbers: Sequence[int], tasks: Tasks, name: str
) -> Iterator[tuple[int, PlacedFile]]:
    sources = sorted({files[number].executor for number in numbers})
    targets = sorted({tasks.homes[number] for number in numbers})
    given: list[list[tuple[int, int, str]]] = [[] for _ in sources]
    for number in numbers:
        target = targets.index(tasks.homes[number])
        given[sources.index(files[number].executor)].append((target, number, files[number].path))
    there = Tasks(tasks.spark, targets)
    writer = Writer(tasks, name)

    def give(source: int) -> Iterator[tuple[int, int, bytes]]:
        for target, number, path in given[source]:
            yield target, number, Path(path).read_bytes()

    def write(number: int, piece: bytes) -> PlacedFile:
        return writer.write(piece, f"{number}")

    def take(_: int, pieces: dict[int, PlacedFile]) -> dict[int, PlacedFile]:
        return {number: file.seen() for number, file in pieces.items()}

    taken = exchange(Tasks(tasks.spark, sources), give, there, write, take)
    for files_at, home in zip(taken, targets, strict=True):
        for number, file in files_at.items():
            yield number, replace(file, executor=home)
