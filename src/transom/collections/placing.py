"""New datasets: their rows become partitions, as those of all datasets of a namespace do, each at its home."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from transom.collections.datasets import Dataset
from transom.collections.homes import Homes
from transom.collections.keyvalues import key_types
from transom.collections.partitioning import SLICES, Key, Partitioning, heavy_keys
from transom.engine.placed import placed
from transom.engine.placed.files import PlacedFile
from transom.engine.placed.mapped import open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Placing:
    """Places datasets by one partitioning, in which keys that turn out to be heavy are salted.

    Args:
        homes: Where the partitions belong.
        partitioning: Of the first dataset.
        most: Bytes of a partition with a heavy key in it; 0 for no look at keys.
    """

    def __init__(self, homes: Homes, partitioning: Partitioning, most: int) -> None:
        self.partitioning = partitioning
        """Of the next dataset."""
        self._homes, self._most = homes, most
        self._key_types: tuple[str, ...] | None = None
        """Of the first dataset; the hash of a number depends on its type."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns whose hash, or order, gives a row's partition."""
        return self.partitioning.keys

    def check_keys(self, frame: DataFrame, schema: pa.Schema) -> None:
        """Make sure that a dataset, which has these columns, can be partitioned like the others.

        Raises:
            DefinitionError: A key is missing, or has another type.
        """
        key_types(frame, self.keys, self._key_types, self._homes.name)
        self.partitioning.check([schema.field(key).type for key in self.keys])

    def placed(self, frame: DataFrame) -> None:
        """Note that the rows of a frame are a dataset: from now on the keys have its types."""
        self._key_types = key_types(frame, self.keys, self._key_types, self._homes.name)

    def place(self, dataset: Dataset) -> None:
        """Place a new dataset, and again what salts it needs; what an earlier try left is left behind.

        One job with one exchange; again, once, if a key is found that is too large for a task.
        """
        homes = self._homes
        homes.look()
        homes.leave(dataset)
        begun = homes.seconds()
        dataset.partitioning = self.partitioning
        dataset.files = self._files(dataset.frame)
        dataset.delay = homes.seconds() - begun
        if heavy := self._heavy(dataset):
            salted = self.partitioning.salted(heavy, self._most // SLICES)
            if salted is not self.partitioning:
                homes.leave(dataset)
                dataset.partitioning = self.partitioning = salted
                dataset.files = self._files(dataset.frame)

    def _files(self, frame: Any) -> list[PlacedFile]:
        homes = self._homes
        return placed.place(frame, self.partitioning.of(frame), homes.tasks_by_partition(), homes.name)

    def _heavy(self, dataset: Dataset) -> dict[Key, int]:
        """Return bytes of the keys that make a partition too large; a job only if there is such a partition."""
        most, keys = self._most, self.keys
        large = [number for number, file in enumerate(dataset.files) if file.bytes > most]
        if most < SLICES or not large:
            return {}
        paths, sizes = [each.path for each in dataset.files], [each.bytes for each in dataset.files]

        def find(number: int) -> bytes:
            return pickle.dumps(heavy_keys(open_table(paths[number]), keys, sizes[number], most // SLICES))

        found: dict[Key, int] = {}
        for answer in self._homes.tasks_by_partition().run(find, large):
            found.update(pickle.loads(answer))
        return found
