"""Tables that rows are looked up in: which of their rows have the keys of a row, as Spark's joins find them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds


@dataclass(frozen=True)
class KeyedRows:
    """The rows of a table by the values of some of its columns, of which null is found only if asked."""

    rows: pa.Table
    """In the order of their keys."""
    values: tuple[pa.Array, ...]
    """The different values of each key."""
    keys: pa.Array
    """What combinations of values there are, as numbers in ascending order."""
    starts: npt.NDArray[np.int64]
    """The first row of each key, and the number of all rows."""

    @classmethod
    def of(cls, table: pa.Table, names: Sequence[str], null_safe: Collection[str] = ()) -> KeyedRows:
        """Return the rows of a table by some columns, whose values are equal when Arrow says so (no floats).

        Args:
            table: The table.
            names: Of the columns.
            null_safe: Those of them in which null equals null.
        """
        for name in set(names).difference(null_safe):
            table = table.filter(pc.is_valid(table.column(name)))
        columns = [_whole(table, name) for name in names]
        values = tuple(column.unique() for column in columns)
        numbers = np.asarray(_numbers(columns, values).to_numpy(zero_copy_only=False), np.int64)
        order = np.argsort(numbers, kind="stable")
        keys, starts = np.unique(numbers[order], return_index=True)
        edges = np.append(starts, len(numbers)).astype(np.int64)
        return cls(table.take(pa.array(order)), values, pa.array(keys), edges)

    def find(self, values: Sequence[pa.Array]) -> pa.Array:
        """Return for each row the number of its key; null for one that is not there."""
        return pc.index_in(_numbers(values, self.values), self.keys)

    def column(self, name: str) -> pa.Array:
        """Return a column of the rows."""
        return _whole(self.rows, name)

    def pairs(self, found: pa.Array, also_without: bool) -> tuple[pa.Array | None, pa.Array]:
        """Return the pairs that a join makes: numbers of rows, and those of rows of the table, in the rows' order.

        Args:
            found: The key of each row.
            also_without: Whether a row that finds none makes a pair, with null.

        Returns:
            None for the numbers of rows where each of them makes one pair.
        """
        if len(self.keys) == len(self.rows):
            if also_without or not found.null_count:
                return None, found
            return pc.indices_nonzero(found.is_valid()), found.drop_null()
        known = found.is_valid().to_numpy(zero_copy_only=False)
        key = found.fill_null(0).to_numpy(zero_copy_only=False)
        made = np.where(known, np.append(np.diff(self.starts), 0)[key], int(also_without))
        ours = np.repeat(np.arange(len(found)), made)
        place = np.arange(len(ours)) - np.repeat(np.cumsum(made) - made, made)
        return pa.array(ours), pa.array(self.starts[key[ours]] + place, mask=~known[ours])


def is_key(kind: pa.DataType) -> bool:
    """Tell whether values of a type are equal for Arrow when they are for Spark; of floats they are not."""
    known = (kinds.is_integer, kinds.is_string, kinds.is_boolean, kinds.is_date32, kinds.is_timestamp)
    return any(each(kind) for each in known)


def _whole(table: pa.Table, name: str) -> pa.Array:
    """Return a column of a table in one piece."""
    found = table.column(name)
    return pa.concat_arrays(found.chunks) if found.num_chunks else pa.array([], found.type)


def _numbers(columns: Sequence[pa.Array], values: Sequence[pa.Array]) -> pa.Array:
    """Return combinations of values as numbers; null where one is null or not among the known ones."""
    found = None
    for column, known in zip(columns, values, strict=True):
        place = pc.index_in(column.cast(known.type), value_set=known).cast(pa.int64())
        found = place if found is None else pc.add(pc.multiply(found, len(known)), place)
    return found
