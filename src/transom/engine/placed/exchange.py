"""Bytes from executor to executor over Spark's own exchange: files of datasets, and key groups that move."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from transom.engine.placed.files import PlacedFile, Writer
from transom.engine.placed.mapped import open_bytes
from transom.engine.placed.placed import Tasks

MOST_MOVED = 256 << 20
"""Bytes that are moved in one job: what a Python worker holds at once, at most."""
Taken = TypeVar("Taken")


def exchange(
    givers: Tasks,
    give: Callable[[int], Iterable[tuple[int, int, bytes]]],
    takers: Tasks,
    take: Callable[[int, dict[int, bytes]], Taken],
) -> list[Taken]:
    """Bring bytes from tasks to tasks; one job with one exchange, of RDDs: to plan one of DataFrames takes longer.

    Each giver has exactly one element for each taker. So a partition of the exchange has as many as there are givers,
    and is zipped with as many that are located, which takes its task there.

    Args:
        givers: The tasks that have them.
        give: Gives, for the number of a giver, the number of a taker, a number for the piece, and the piece.
        takers: The tasks that get them.
        take: Takes, for the number of a taker, its pieces by number; what it returns comes back, by taker.
    """
    from pyspark import RDD
    from pyspark.serializers import PairDeserializer

    count = len(takers)

    def send(giver: int) -> Iterable[tuple[int, dict[int, bytes]]]:
        pieces: dict[int, dict[int, bytes]] = {taker: {} for taker in range(count)}
        for taker, number, piece in give(giver):
            pieces[taker][number] = piece
        return pieces.items()

    def receive(pairs: Iterable[tuple[tuple[int, dict[int, bytes]], int]]) -> Iterator[Taken]:
        come = list(pairs)
        taker = come[0][1]
        yield take(taker, {number: piece for (_, pieces), _ in come for number, piece in pieces.items()})

    context: Any = takers.spark.sparkContext
    sent: Any = givers.rdd.flatMap(send).partitionBy(count, lambda taker: taker)
    copies = context._jsc.parallelize(list(range(len(givers))), 1)
    located = takers.rdd._jrdd.cartesian(copies).keys()
    pair: Any = PairDeserializer
    pairs: Any = RDD(sent._jrdd.zip(located), context, pair(sent._jrdd_deserializer, takers.rdd._jrdd_deserializer))
    taken: list[Taken] = pairs.mapPartitions(receive).collect()
    return taken


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
    writer = Writer(tasks.application, name)

    def give(source: int) -> Iterator[tuple[int, int, bytes]]:
        for target, number, path in given[source]:
            with open_bytes(path) as file:
                yield target, number, file.read()

    def take(_: int, pieces: dict[int, bytes]) -> dict[int, PlacedFile]:
        return {number: writer.write(piece, f"{number}") for number, piece in pieces.items()}

    taken = exchange(Tasks(tasks.spark, sources), give, there, take)
    for files_at, home in zip(taken, targets, strict=True):
        for number, file in files_at.items():
            yield number, replace(file, executor=home)
