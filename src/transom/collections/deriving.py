"""Partitions that tasks make from corresponding partitions: for a new dataset, and for what was lost of old ones.

A task gets a program for each of its partitions: files and checkpoints to read, functions to apply, results to keep.
However long the chain from what is there to what is wanted, it is one task, as Spark pipelines narrow dependencies.
"""

from __future__ import annotations

import pickle
import re
import uuid
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import FileSystem

from transom.collections.datasets import Dataset, Function
from transom.collections.keyvalues import plain_table
from transom.engine.placed.files import PlacedFile, keep
from transom.engine.placed.mapped import open_bytes, open_table
from transom.engine.placed.plain import plain, plain_schema
from transom.errors import CheckpointCorruptError, DefinitionError
from transom.model.time import MICROS_PER_SECOND, SystemClock
from transom.placement.locality import ExecutorId

_COPY = re.compile(r"\.(\d+)-([0-9a-f]{8})\.arrow$")
"""End of the name of a checkpoint's file: its bytes, and their checksum."""


@dataclass(frozen=True)
class Step:
    """One partition of one dataset: read from a file, or made from steps before it."""

    path: str | None = None
    function: Function | None = None
    parents: tuple[int, ...] = ()
    """Places of steps before it in the program."""
    schema: pa.Schema | None = None
    """Of what the function gives, if it is known."""
    stem: str | None = None
    """Begins the name of the file in which it is kept; None if it is not."""


@dataclass(frozen=True)
class Made:
    """The outcome of a step."""

    seconds: float
    file: PlacedFile | None = None
    schema: pa.Schema | None = None
    wrong: tuple[str, str] | None = None
    """Why it is refused, and a remedy; then it is not kept."""


@dataclass(frozen=True)
class Gap:
    """The missing partitions of some datasets, and what it takes to make them."""

    wanted: frozenset[Dataset]
    missing: Mapping[int, tuple[Dataset, ...]]
    """By partition: datasets without it, parents first."""
    away: tuple[tuple[Dataset, int], ...]
    """Partitions of parents that are there, but not where the task will be."""

    @classmethod
    def of(cls, wanted: Sequence[Dataset], homes: Sequence[ExecutorId | None], alive: Collection[ExecutorId]) -> Gap:
        """Return the gap, back to the nearest datasets that are there, checkpointed, or have a frame.

        O(partitions x ancestors).
        """
        missing: dict[int, tuple[Dataset, ...]] = {}
        away: dict[tuple[int, int], tuple[Dataset, int]] = {}
        for partition, home in enumerate(homes):
            found: dict[int, Dataset] = {}
            todo = [dataset for dataset in wanted if dataset.lacks(partition, alive)]
            while todo:
                dataset = todo.pop()
                if dataset.number in found:
                    continue
                found[dataset.number] = dataset
                for parent in dataset.parents:
                    if parent.lacks(partition, alive):
                        todo.append(parent)
                    elif parent.files[partition].executor != home:
                        away[parent.number, partition] = parent, partition
            if found:
                missing[partition] = tuple(found[number] for number in sorted(found))
        return cls(frozenset(wanted), missing, tuple(away.values()))

    def exchanged(self) -> dict[Dataset, list[int]]:
        """Return the partitions that only an exchange of a dataset's rows gives."""
        found: dict[Dataset, list[int]] = {}
        for partition, datasets in self.missing.items():
            for dataset in datasets:
                if dataset.frame is not None:
                    found.setdefault(dataset, []).append(partition)
        return found

    def keeps(self, dataset: Dataset) -> bool:
        """Return whether its missing partitions are kept: it was asked for, or is there but for them."""
        return dataset in self.wanted or bool(dataset.files)

    def program(
        self, partition: int, fresh: Mapping[tuple[Dataset, int], PlacedFile]
    ) -> tuple[list[Step], dict[int, Dataset]]:
        """Return how a partition's missing datasets are made, and which step gives which dataset.

        Args:
            partition: One that is missing.
            fresh: What was exchanged for it.
        """
        steps: list[Step] = []
        places: dict[Dataset, int] = {}
        kept: dict[int, Dataset] = {}
        for dataset in self.missing[partition]:
            if dataset.frame is not None:
                continue
            for parent in dataset.parents:
                if parent not in places:  # there, or exchanged just now
                    file = fresh.get((parent, partition)) or parent.files[partition]
                    places[parent] = len(steps)
                    steps.append(Step(path=file.path))
            stem = dataset.name if self.keeps(dataset) else None
            if stem is not None:
                kept[len(steps)] = dataset
            places[dataset] = len(steps)
            if dataset.recipe is None:
                steps.append(Step(path=dataset.checkpoint[partition], stem=stem))
            else:
                parents = tuple(places[parent] for parent in dataset.recipe.parents)
                recipe = dataset.recipe
                steps.append(Step(function=recipe.function, parents=parents, schema=recipe.schema, stem=stem))
        return steps, kept


def executing(
    programs: Sequence[Mapping[int, Sequence[Step]]], application: str, keys: tuple[str, ...], check: bool
) -> Callable[[int], bytes]:
    """Return what a task does: the programs of its partitions; gives a pickled `Made` for each step by partition.

    Args:
        programs: For each task, by partition.
        application: Id of the Spark application.
        keys: Those that rows may not change.
        check: Whether to look for that; what functions give was checked when they were first applied.
    """

    def run(task: int) -> bytes:
        return pickle.dumps(
            {number: _execute(each, number, application, keys, check) for number, each in programs[task].items()}
        )

    return run


def _execute(program: Sequence[Step], number: int, application: str, keys: tuple[str, ...], check: bool) -> list[Made]:
    clock = SystemClock()
    tables: list[pa.Table] = []
    found: list[Made] = []
    for step in program:
        begun = clock.monotonic()
        if step.function is None:
            table = open_anywhere(step.path or "")
        else:
            parents = [tables[place] for place in step.parents]
            table = step.function(parents)
            if isinstance(table, pa.Table):
                table = plain_table(table, keys)
            paused = clock.monotonic()
            if check and (wrong := _wrong(table, parents, step.schema, keys)):
                return [*found, Made(0.0, wrong=wrong)]
            begun += clock.monotonic() - paused
            table = plain(table)
        file = None if step.stem is None else keep(table, application, f"{step.stem}-{number}")
        tables.append(table)
        found.append(Made((clock.monotonic() - begun) / MICROS_PER_SECOND, file, table.schema))
    return found


def open_anywhere(path: str) -> pa.Table:
    """Return a partition from an executor's file, without copying it, or from a checkpoint; for tasks.

    Raises:
        CheckpointCorruptError: The file of the checkpoint is missing, or not what was written.
    """
    said = _COPY.search(path)
    if said is None:
        return open_table(path)
    system, place = FileSystem.from_uri(path)
    try:
        with system.open_input_stream(place) as source:
            data = source.read()
    except FileNotFoundError:
        data = b""
    if (len(data), zlib.crc32(data)) != (int(said[1]), int(said[2], 16)):
        raise CheckpointCorruptError(
            f"The checkpoint {path} of a derived dataset is missing or damaged.",
            "Make the dataset again from the DataFrames that it comes from.",
        )
    return pa.ipc.open_file(pa.py_buffer(data)).read_all()


def copying(
    sources: Sequence[Sequence[str]], targets: Sequence[str], numbers: Sequence[Sequence[int]]
) -> Callable[[int], bytes]:
    """Return what a task does: copy its partitions of some datasets to where nobody else writes.

    It gives for each dataset, pickled, the paths by partition, and the microseconds.

    Args:
        sources: Files of each dataset, by partition.
        targets: For each dataset what the names of its copies begin with: a path or URI.
        numbers: Partitions of each task.
    """

    def run(task: int) -> bytes:
        clock, found = SystemClock(), []
        for paths, target in zip(sources, targets, strict=True):
            begun = clock.monotonic()
            copies = {number: _copied(paths[number], f"{target}-{number}") for number in numbers[task]}
            found.append((copies, clock.monotonic() - begun))
        return pickle.dumps(found)

    return run


def _copied(path: str, target: str) -> str:
    """Copy a file; the name of the copy, which the driver notes, says what is in it (`_COPY`)."""
    with open_bytes(path) as source:
        crc = 0
        while block := source.read(1 << 20):
            crc = zlib.crc32(block, crc)
        target = f"{target}-{uuid.uuid4().hex[:8]}.{source.tell()}-{crc:08x}.arrow"
        source.seek(0)
        system, place = FileSystem.from_uri(target)
        with system.open_output_stream(place) as sink:
            while block := source.read(1 << 20):
                sink.write(block)
    return target


def _wrong(
    table: object, parents: Sequence[pa.Table], schema: pa.Schema | None, keys: Sequence[str]
) -> tuple[str, str] | None:
    """Return what is wrong with what a function gave, and the remedy."""
    if not isinstance(table, pa.Table):
        return f"The function gave {type(table).__name__}, not a table.", "Return a pyarrow.Table."
    given = described(table.schema)
    if schema is not None and not alike(table.schema, schema):
        remedy = "Select and cast the same columns in the same order."
        return f"The function gave the columns {given}; the collection has {described(schema)}.", remedy
    if lost := [key for key in keys if key not in table.schema.names]:
        return f"The function gave the columns {given}, without the key {lost[0]}.", "Keep the keys of the rows."
    if (stray := strayed(table, parents, keys)) is None:
        return None
    return (
        f"The function gave rows with the key {stray}, which no row that it was given has.",
        "Keep the keys of the rows: other keys belong to other partitions. To change keys, `add` a DataFrame.",
    )


def strayed(table: pa.Table, parents: Sequence[pa.Table], keys: Sequence[str]) -> tuple[object, ...] | None:
    """Return a key of a table that no parent has; None if there is none. NULL is a key like others. O(rows)."""
    columns = list(keys)
    marked = [
        plain(each.select(columns)).append_column("_made", pa.repeat(pa.scalar(number, pa.int8()), len(each)))
        for number, each in [*((0, parent) for parent in parents), (1, table)]
    ]
    if not all(alike(each.schema, marked[0].schema) for each in marked):  # then even equal values are elsewhere
        return tuple(str(table.schema.field(key).type) for key in columns)
    together = pa.concat_tables(marked)
    first = together.group_by(columns, use_threads=False).aggregate([("_made", "min")])
    stray = first.filter(pc.field("_made_min") == 1).slice(0, 1).select(columns).to_pylist()
    return tuple(stray[0].values()) if stray else None


def alike(one: pa.Schema, other: pa.Schema) -> bool:
    """Return whether two schemas have the same names and types in the same order."""
    return bool(plain_schema(one).equals(plain_schema(other)))


def described(schema: pa.Schema) -> str:
    """Return names and types, for people."""
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def common_schema(made: Sequence[Made]) -> pa.Schema:
    """Return the columns that all partitions of a new dataset have.

    Raises:
        DefinitionError: A partition was refused, or two have different columns.
    """
    for each in made:
        if each.wrong is not None:
            raise DefinitionError(*each.wrong)
    schemas = [each.schema for each in made]
    for schema in schemas[1:]:
        if not alike(schema, schemas[0]):
            raise DefinitionError(
                f"The function gave {described(schemas[0])} for one partition, {described(schema)} for another.",
                "Cast the columns, also of empty tables.",
            )
    return schemas[0]
