"""A dataset of a collection: how it is computed, and where its partitions are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from transom.engine.spark.partitioning import Partitioning
from transom.engine.spark.placed import PlacedFile
from transom.placement.locality import ExecutorId

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(eq=False)
class Dataset:
    """One dataset of a collection: how it is computed, and where its partitions are."""

    label: Any
    frame: DataFrame
    """What it is computed from, again if need be: the same rows every time."""
    files: list[PlacedFile] = field(default_factory=list)
    """One for each partition; empty while it is evicted."""
    copies: dict[tuple[int, ExecutorId], PlacedFile] = field(default_factory=dict)
    """More files of some partitions, at other executors."""
    used: int = 0
    """Number of the last action that read it."""
    partitioning: Partitioning | None = None
    """How its rows became partitions, from its first computation on."""

    @property
    def bytes(self) -> int:
        """Bytes of its files, copies included."""
        return sum(file.bytes for file in (*self.files, *self.copies.values()))

    @property
    def rows(self) -> int:
        """Rows of its files."""
        return sum(file.rows for file in self.files)
