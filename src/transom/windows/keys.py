"""Keys as small integers: each distinct key of a component gets a dense id, so that merging is array arithmetic."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from transom.windows.aggregates.base import Slots
from transom.windows.aggregates.widening import widened

MANY, FEW = 2_048, 0.25
"""Where there are many values, and of rows at most so many times as many, values are looked up by their hashes."""
_NULL = -0x5E3779B97F4A7C15
"""What stands for the hash of null: what has the same one is compared in any case."""
_LETTERS = 1 << 16
"""Of texts that are hashed together, and of those that are hashed as a whole."""
_FACTOR = 0x9E3779B97F4A7C15
"""Its powers are what a text's letters count, each by its place; modulo 2^64, as all of these numbers."""
_POWERS, _INVERSE = (
    np.cumprod(np.append(np.uint64(1), np.full(_LETTERS, factor, np.uint64)))
    for factor in (_FACTOR, pow(_FACTOR, -1, 1 << 64))
)


class _Values:
    """Distinct values of one column, numbered in the order of their first appearance; null is a value.

    Arrow numbers all values anew each time. That is fast where rows are as many as values, but not where a few rows
    meet a hundred thousand values: then they are looked up among the hashes of these, which are kept in order.
    """

    def __init__(self, values: pa.Array) -> None:
        self.values = values
        self._hashes = self._places = np.empty(0, np.int64)
        """Of the first of them, in order; and the number of the value that each is of. Never changed, but replaced."""

    @property
    def nbytes(self) -> int:
        """Bytes of the values and their hashes."""
        return int(self.values.nbytes + self._hashes.nbytes + self._places.nbytes)

    def intern(self, column: pa.Array) -> Slots:
        """Return the number of each value, adding those not seen before.

        O(distinct + rows), and where there are many: O(rows log distinct), but for what is copied when some are added.
        """
        known = len(self.values)
        if known >= MANY and len(column) <= FEW * known and is_hashed(column.type):
            looked_up = self._look_up(column)
            if looked_up is not None:
                return looked_up
        both = pa.concat_arrays([self.values, column]) if known else column
        encoded = pc.dictionary_encode(both, null_encoding="encode")
        codes: Slots = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)[known:]
        if len(encoded.dictionary) > known:
            self.values = encoded.dictionary
        return codes

    def _look_up(self, column: pa.Array) -> Slots | None:
        """Do as `intern`; None, with nothing done, where different values have one hash."""
        self._add_hashes(value_hashes(self.values.slice(len(self._hashes))))
        known, hashes = len(self.values), value_hashes(column)
        at = np.minimum(np.searchsorted(self._hashes, hashes), known - 1)
        found, values = self._places[at], self.values
        rows = np.flatnonzero(self._hashes[at] != hashes)
        fresh, first, which = np.unique(hashes[rows], return_index=True, return_inverse=True)
        if len(rows):
            order = np.argsort(first)
            found[rows] = known + np.argsort(order)[which]
            values, fresh = pa.concat_arrays([values, column.take(pa.array(rows[first[order]]))]), fresh[order]
        if not values.take(pa.array(found)).equals(column):
            return None
        self.values = values
        self._add_hashes(fresh)
        return found

    def _add_hashes(self, hashes: Slots) -> None:
        """Keep the hashes of the values that have none yet, in order."""
        if not len(hashes):
            return
        known, order = len(self._hashes), np.argsort(hashes)
        at = np.searchsorted(self._hashes, hashes[order]) + np.arange(len(order))
        others = np.ones(known + len(order), bool)
        others[at] = False
        both = self._hashes, self._places
        self._hashes, self._places = merged = np.empty(len(others), np.int64), np.empty(len(others), np.int64)
        for each, before, new in zip(merged, both, (hashes[order], known + order), strict=True):
            each[others], each[at] = before, new


def is_hashed(kind: pa.DataType) -> bool:
    """Tell whether equal values of a type have equal bytes, of which hashes are made."""
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_signed_integer(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_timestamp(kind)
    )


def value_hashes(values: pa.Array) -> Slots:
    """Return a number for each value: one for equal values, and hardly ever the same one for others."""
    if values.null_count:
        found: Slots = np.full(len(values), _NULL)
        found[values.is_valid().to_numpy(zero_copy_only=False)] = value_hashes(values.drop_null())
        return found
    if pa.types.is_string(values.type):
        return _of_texts(values)
    whole = values.cast(pa.int32()) if pa.types.is_date32(values.type) else values
    return np.asarray(whole.cast(pa.int64()).to_numpy())


def _of_texts(texts: pa.StringArray) -> Slots:
    """Return for each text, none of them null, the sum of its letters, each times the factor of its place.

    All letters are added up in one go, as if they were one text; what comes out for each text is then divided by the
    factor of its beginning.
    """
    if not len(texts):
        return np.empty(0, np.int64)
    edges = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    letters = np.frombuffer(texts.buffers()[2] or b"", np.uint8)[edges[0] : edges[-1]]
    if len(letters) <= _LETTERS:
        return _sums(letters, edges - edges[0]).view(np.int64)
    if len(texts) > 1:
        half = len(texts) // 2
        return np.concatenate([_of_texts(part) for part in (texts.slice(0, half), texts.slice(half))])
    pieces = np.append(np.arange(0, len(letters), _LETTERS), len(letters))
    sums = [int(_sums(letters[start:end], np.array([0, end - start]))[0]) for start, end in pairwise(pieces)]
    return np.array([hash(tuple(sums))])


def _sums(letters: NDArray[np.uint8], edges: Slots) -> NDArray[np.uint64]:
    """Return the sums of texts that begin and end at these edges."""
    sums = np.zeros(len(letters) + 1, np.uint64)
    np.cumsum((letters + np.uint64(1)) * _POWERS[: len(letters)], out=sums[1:])
    at = sums[edges]
    return np.asarray((at[1:] - at[:-1]) * _INVERSE[edges[:-1]], np.uint64)


class KeyIndex:
    """Dense ids for rows of key columns.

    Columns are interned one by one and combined pairwise, (id so far, next column) packed into 64 bits, so that any
    number and type of key columns costs one hash table per column over integers and its distinct values. Spark has
    already made equal keys identical (NaN, -0.0), so that equality of bits is equality of keys.

    Args:
        schema: Names and types of the key columns; none for a global aggregate, which has the single id 0.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._columns = [_Values(pa.array([], field.type)) for field in schema]
        self._pairs = [_Values(pa.array([], pa.int64())) for _ in range(max(0, len(schema) - 1))]
        self._codes: list[Any] = [np.empty(0, np.int64) for _ in schema]
        self._size = 0 if len(schema) else 1

    def __len__(self) -> int:
        return self._size

    @property
    def nbytes(self) -> int:
        """Bytes of the distinct values and of the numbers that stand for them."""
        values = sum(values.nbytes for values in (*self._columns, *self._pairs))
        return int(values + sum(codes.nbytes for codes in self._codes))

    def copy(self) -> KeyIndex:
        """Return an index with the same keys, to which others can be added; O(columns)."""
        made = copy.copy(self)
        made._columns, made._pairs = ([copy.copy(each) for each in some] for some in (self._columns, self._pairs))
        made._codes = list(self._codes)
        return made

    def intern(self, keys: pa.Table) -> Slots:
        """Return the id of each row, adding keys not seen before.

        Args:
            keys: Columns of `schema`, in its order; n rows.
        """
        rows = keys.num_rows
        if not self._columns:
            return np.zeros(rows, np.int64)
        codes = [
            values.intern(as_key(keys.column(i), field))
            for i, (values, field) in enumerate(zip(self._columns, self.schema, strict=True))
        ]
        ids = codes[0]
        for pair, code in zip(self._pairs, codes[1:], strict=True):
            ids = pair.intern(pa.array((ids << np.int64(32)) | code))
        last = self._size - 1  # new ids rise by one in the order of the rows: where the highest so far does
        at = np.flatnonzero(np.diff(np.maximum.accumulate(np.maximum(ids, last)), prepend=last))
        if len(at):
            self._codes = [np.concatenate([old, code[at]]) for old, code in zip(self._codes, codes, strict=True)]
            self._size += len(at)
        return ids

    def take(self, ids: Slots) -> list[pa.Array]:
        """Return the key columns of some ids, each of len(ids) values."""
        return [
            values.values.take(pa.array(codes[ids])) for values, codes in zip(self._columns, self._codes, strict=True)
        ]

    def table(self) -> pa.Table:
        """Return all keys in the order of their ids."""
        return pa.Table.from_arrays(self.take(np.arange(self._size)), schema=self.schema)


def as_key(column: pa.ChunkedArray | pa.Array, field: pa.Field) -> pa.Array:
    """Return a column of keys, in one piece and of the type that it has now.

    Raises:
        JobChangedError: Its values are not exactly values of that type.
    """
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], field.type)
    return array if array.type == field.type else widened(array, field.type, f"the key {field.name}").cast(field.type)
