"""States of sketches as functions of rows: of lists of structs, one for each group of rows.

Each merges with what Spark's functions make of other rows. A value travels to tasks with what it needs only.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from datasketches import frequent_strings_sketch, hll_sketch, kll_doubles_sketch, tgt_hll_type

from transom.windows.aggregates.hashes import xxhash64

RowsFunction: TypeAlias = "Callable[[pa.ListArray], pa.Array]"
"""From lists of rows to a state for each list."""
NULLS_BYTES = 8
"""After a sketch of frequent items Spark writes how many nulls it saw, a big-endian bigint."""


@dataclass(frozen=True)
class HllOf:
    """Makes sketches of the hashes of different values; in their order, on which estimates depend in Spark, too."""

    lg_k: int

    def __call__(self, lists: pa.ListArray) -> pa.Array:
        """Return the sketch of each list of values that are not null."""
        hashes = xxhash64(lists.flatten().field(0))
        return pa.array([self._sketch(some) for some in _parts(lists, hashes)], pa.binary())

    def _sketch(self, hashes: Any) -> bytes:
        sketch = hll_sketch(self.lg_k, tgt_hll_type.HLL_8)
        for each in pa.array(hashes).unique().tolist():
            sketch.update(each)
        return bytes(sketch.serialize_compact())


@dataclass(frozen=True)
class KllOf:
    """Makes sketches of numbers as doubles, without NaN."""

    k: int

    def __call__(self, lists: pa.ListArray) -> pa.Array:
        """Return the sketch of each list of numbers that are not null."""
        numbers = lists.flatten().field(0).cast(pa.float64(), safe=False).to_numpy()
        return pa.array([self._sketch(some) for some in _parts(lists, numbers)], pa.binary())

    def _sketch(self, numbers: Any) -> bytes:
        sketch = kll_doubles_sketch(self.k)
        sketch.update(numbers[~np.isnan(numbers)])
        return bytes(sketch.serialize())


@dataclass(frozen=True)
class FrequentOf:
    """Makes sketches of the most frequent values as texts, each of a weight if rows have one.

    Args:
        size: The binary logarithm of the hash map.
    """

    size: int

    def __call__(self, lists: pa.ListArray) -> pa.Array:
        """Return the sketch of each list of values, and of their weights, and the weight of the nulls; null of none."""
        return pa.array([self._sketch(rows.flatten()) for rows in _parts(lists, lists.flatten())], pa.binary())

    def _sketch(self, columns: list[pa.Array]) -> bytes | None:
        if not len(columns[0]):
            return None
        weights = columns[1] if len(columns) > 1 else pa.repeat(1, len(columns[0]))
        table = pa.table({"x": columns[0].cast(pa.string()), "w": weights.cast(pa.int64())})
        sums = table.group_by("x", use_threads=False).aggregate([("w", "sum")]).to_pydict()
        sketch, nulls = frequent_strings_sketch(self.size), 0
        for item, weight in zip(sums["x"], sums["w_sum"], strict=True):
            if item is None:
                nulls = weight
            else:
                sketch.update(item, weight)
        return bytes(sketch.serialize()) + nulls.to_bytes(NULLS_BYTES, "big")


def _parts(lists: pa.ListArray, values: Any) -> Iterator[Any]:
    """Yield the values of each list."""
    edges = lists.offsets.to_numpy() - lists.offsets[0].as_py()
    return (values[start:end] for start, end in itertools.pairwise(edges.tolist()))
