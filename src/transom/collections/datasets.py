"""Datasets of collections: what each is made from, and where its partitions are."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from transom.collections.partitioning import Partitioning
from transom.engine.placed.files import PlacedFile, file_name
from transom.placement.locality import ExecutorId

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Function: TypeAlias = Callable[[list[pa.Table]], pa.Table]
"""Makes a partition of a dataset from the corresponding partitions of others; the same every time."""

_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Recipe:
    """The function that makes a dataset from others, partition by partition, without an exchange."""

    parents: tuple[Dataset, ...]
    function: Function
    """From one table for each parent."""
    schema: pa.Schema | None = None
    """Columns of its collection; None if this is the first dataset there."""


@dataclass(eq=False)
class Dataset:
    """One dataset of a collection: how it is computed, and where its partitions are."""

    label: Any
    frame: DataFrame | None = None
    """The rows that it is computed from, again if need be: the same every time. None for one that is derived."""
    recipe: Recipe | None = None
    """Its derivation; None for one with a frame or a checkpoint."""
    kind: str = ""
    """Name of its collection."""
    made_from: tuple[str, ...] = ()
    """Names of its parents, which it keeps when it is checkpointed."""
    files: list[PlacedFile] = field(default_factory=list)
    """One for each partition; empty while it is evicted."""
    copies: Mapping[tuple[int, ExecutorId], PlacedFile] = field(default_factory=dict)
    """More files of some partitions, at other executors. Every change is a new mapping: who reads it needs no lock."""
    checkpoint: list[str] = field(default_factory=list)
    """Paths or URIs of its checkpointed partitions, one each; empty if it has no checkpoint."""
    used: int = 0
    """Number of the last action that read it."""
    partitioning: Partitioning | None = None
    """The partitioning of its rows, from its first computation on."""
    delay: float = 0.0
    """Longest task that made it from its parents, seconds; with a frame: the whole exchange."""
    started: float = 0.0
    """Time of the job beyond that, seconds."""
    number: int = field(default_factory=lambda: next(_NUMBERS))
    """In order of creation: parents come before children."""

    @property
    def name(self) -> str:
        """Unique in the application, for people and files."""
        return f"{file_name(self.kind)}-{self.number}"

    @property
    def parents(self) -> tuple[Dataset, ...]:
        """Datasets that it would be made from, if it were lost now."""
        return () if self.recipe is None else self.recipe.parents

    @property
    def bytes(self) -> int:
        """Bytes of its files, copies included."""
        return sum(file.bytes for file in (*self.files, *self.copies.values()))

    @property
    def rows(self) -> int:
        """Rows of its files."""
        return sum(file.rows for file in self.files)

    def with_copy(self, partition: int, executor: ExecutorId, file: PlacedFile) -> None:
        """Take in a copy of a partition at an executor."""
        self.copies = {**self.copies, (partition, executor): file}

    def without_copy(self, partition: int, executor: ExecutorId) -> PlacedFile | None:
        """Take out the copy of a partition at an executor; None if there is none."""
        found = self.copies.get((partition, executor))
        if found is not None:
            self.copies = {key: file for key, file in self.copies.items() if key != (partition, executor)}
        return found

    def lacks(self, partition: int, alive: Collection[str]) -> bool:
        """Return whether a partition is evicted, or was at an executor that is gone."""
        return not self.files or self.files[partition].executor not in alive

    def truncate(self, checkpoint: Sequence[str]) -> None:
        """Note that it can be read from a checkpoint; what it was made from may be forgotten."""
        self.checkpoint, self.recipe = list(checkpoint), None


def with_ancestors(datasets: Sequence[Dataset]) -> list[Dataset]:
    """Return some datasets and all that they would be made from, in order of creation."""
    found: dict[int, Dataset] = {}
    todo = list(datasets)
    while todo:
        dataset = todo.pop()
        if dataset.number not in found:
            found[dataset.number] = dataset
            todo += dataset.parents
    return [found[number] for number in sorted(found)]
