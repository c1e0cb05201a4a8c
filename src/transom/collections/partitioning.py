"""The partition of a row: by the hash of its keys, or by their order, with the heaviest keys spread.

Groups of partitions can be split as far as single partitions, and no partition is smaller than its heaviest key. A key
too heavy for one task is therefore salted (Stark leaves such keys alone): its rows are spread over several partitions
by the hash of the whole row, so that computing them again gives the same. What is made of them by partition has to be
merged.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from transom.collections.keyvalues import key_value, literal, plain_value
from transom.engine.placed.placed import partition_of
from transom.engine.spark.columns import quoted
from transom.errors import DefinitionError
from transom.model.arguments import shown, whole_number

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SLICES = 8
"""Keys in a partition that is too large are spread in slices of this part of what it should have. Not less: in a Zipf
distribution the keys after the first weigh more than the first, and are neighbours where there is a crowd."""
_HASHLESS = ("map", "variant")

Key = tuple[Any, ...]
"""One value for each key column."""


@dataclass(frozen=True)
class Partitioning:
    """The rule that assigns rows to partitions; the same for all datasets of a namespace but for its salted keys."""

    keys: tuple[str, ...]
    partitions: int
    bounds: tuple[Any, ...] | None = None
    """First key of each partition but the first, ascending. None: partitions by hash."""
    salts: Mapping[Key, int] = field(default_factory=dict)
    """Over how many partitions the rows of heavy keys are spread."""

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            DefinitionError: One cannot be.
        """
        if not self.keys:
            raise DefinitionError("keys is empty.", "Name the columns by which the datasets are partitioned.")
        whole_number(self.partitions, "partitions")
        if self.bounds is None:
            return
        if len(self.keys) != 1:
            raise DefinitionError(f"There are bounds for {len(self.keys)} keys.", "Give one key, as a Z-order key.")
        if len(self.bounds) != self.partitions - 1:
            raise DefinitionError(
                f"There are {len(self.bounds)} bounds.", f"Give {self.partitions - 1}: one less than partitions."
            )
        try:
            ascending = all(a < b for a, b in pairwise(self.bounds))
        except TypeError as error:
            raise DefinitionError(f"bounds cannot be compared: {error}.", "Give values of the key's type.") from None
        if not ascending:
            raise DefinitionError("The bounds are not ascending.", "Sort them, each once.")

    def check(self, kinds: Sequence[pa.DataType]) -> None:
        """Make sure that the bounds are values of the key, given the Arrow types of the keys.

        Raises:
            DefinitionError: One is not: Spark would put rows elsewhere than where `between` looks for them.
        """
        for place, bound in enumerate(self.bounds or ()):
            if isinstance(bound, float) and not bound.is_integer() and pa.types.is_integer(kinds[0]):
                raise DefinitionError(f"bounds[{place}] is {shown(bound)}, and the key is {kinds[0]}.", "Round it.")
            key_value(bound, kinds[0], f"bounds[{place}]")

    def of(self, frame: DataFrame) -> Column:
        """Return the partition of each row, an integer column; NULL is in the last partition of ordered keys.

        By hash it is Spark's own Murmur3 modulo the number of partitions.
        """
        from pyspark.sql import functions as F

        keys, kinds = [F.col(quoted(key)) for key in self.keys], dict(frame.dtypes)
        if self.bounds is None:
            base = partition_of(keys, self.partitions)
        else:
            base = _ordered(keys[0], [literal(bound, kinds[self.keys[0]]) for bound in self.bounds], 0)
        if not self.salts:
            return base
        row = F.xxhash64(*[F.col(quoted(name)) for name, kind in kinds.items() if not kind.startswith(_HASHLESS)])
        chosen: Any = F
        for key, spread in self.salts.items():
            same = F.lit(True)
            for name, column, value in zip(self.keys, keys, key, strict=True):
                same = same & column.eqNullSafe(literal(value, kinds[name]))
            step = self.partitions // spread
            chosen = chosen.when(same, (F.pmod(row, F.lit(spread)) * step).cast("int"))
        return F.pmod(base + chosen.otherwise(0), F.lit(self.partitions))

    def between(self, first: Any, last: Any) -> frozenset[int] | None:
        """Return the partitions with the keys in [first, last); None for all of them, where keys have no order."""
        if self.bounds is None:
            return None
        if not first < last:
            return frozenset()
        found = set(range(bisect_right(self.bounds, first), bisect_left(self.bounds, last) + 1))
        for (key, *_), spread in self.salts.items():
            if key is not None and first <= key < last:
                base, step = bisect_right(self.bounds, key), self.partitions // spread
                found.update((base + place * step) % self.partitions for place in range(spread))
        return frozenset(found)

    def salted(self, heavy: Mapping[Key, int], most: int) -> Partitioning:
        """Return the partitioning that spreads keys also of these sizes; itself if it does so already.

        Args:
            heavy: Bytes by key.
            most: Bytes of such a key that a partition has at most, as far as there are partitions.
        """
        salts = {
            tuple(map(plain_value, key)): min(self.partitions, math.ceil(size / max(most, 1)))
            for key, size in heavy.items()
        }
        more = {key: spread for key, spread in salts.items() if spread > self.salts.get(key, 1)}
        return replace(self, salts={**self.salts, **more}) if more else self


def heavy_keys(table: pa.Table, keys: Sequence[str], size: int, most: int) -> dict[Key, int]:
    """Return the keys whose rows are more than so many bytes, with their bytes: their share of the rows' size.

    Args:
        table: The rows of a partition.
        keys: Key columns.
        size: Of the table, bytes.
        most: Bytes.
    """
    counts = table.group_by(list(keys), use_threads=False).aggregate([([], "count_all")])
    found = counts.filter(pc.field("count_all") > most * table.num_rows / size)
    values = [found[name].to_pylist() for name in keys]
    return {
        key: size * count // table.num_rows
        for *rest, count in zip(*values, found["count_all"].to_pylist(), strict=True)
        for key in [tuple(rest)]
    }


def _ordered(key: Column, bounds: Sequence[Column], first: int) -> Column:
    """Return the number of bounds at or below the key, plus `first`: a search tree, so O(log bounds) a row."""
    from pyspark.sql import functions as F

    if not bounds:
        return F.lit(first)
    middle = len(bounds) // 2
    below = _ordered(key, bounds[:middle], first)
    above = _ordered(key, bounds[middle + 1 :], first + middle + 1)
    return F.when(key < bounds[middle], below).otherwise(above)
