"""Keys as small integers: each distinct key of a component gets a dense id, so that merging is array arithmetic."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.windows.aggregates.base import Slots
from transom.windows.aggregates.widening import widened

MANY, FEW = 16_384, 0.1
"""Where there are many values, and of rows at most so many times as many, values are looked up by their hashes."""
_NULL = -0x5E3779B97F4A7C15
"""What stands for the hash of null: what has the same one is compared in any case."""
_LONG = 1_024
_FACTORS = np.cumprod(np.full(_LONG, 0x9E3779B97F4A7C15, np.uint64))
"""What the letter at each place of a text counts; those of longer texts again from the first one on."""


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
        if known >= MANY and len(column) <= FEW * known and _is_hashed(column.type):
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
        self._add_hashes(_hashes_of(self.values.slice(len(self._hashes))))
        encoded = pc.dictionary_encode(column, null_encoding="encode")
        asked, known = encoded.dictionary, len(self.values)
        hashes = _hashes_of(asked)
        at = np.minimum(np.searchsorted(self._hashes, hashes), known - 1)
        there = self._hashes[at] == hashes
        if not self.values.take(pa.array(self._places[at[there]])).equals(asked.filter(pa.array(there))):
            return None
        fresh = hashes[~there]
        if len(np.unique(fresh)) < len(fresh):
            return None
        numbers = self._places[at]
        if len(fresh):
            numbers[~there] = np.arange(known, known + len(fresh))
            self.values = pa.concat_arrays([self.values, asked.filter(pa.array(~there))])
            self._add_hashes(fresh)
        found: Slots = numbers[encoded.indices.to_numpy(zero_copy_only=False)]
        return found

    def _add_hashes(self, hashes: Slots) -> None:
        """Keep the hashes of the values that have none yet, in order."""
        if len(hashes):
            order = np.argsort(hashes, kind="stable")
            at = np.searchsorted(self._hashes, hashes[order], side="right")
            self._places = np.insert(self._places, at, len(self._hashes) + order)
            self._hashes = np.insert(self._hashes, at, hashes[order])


def _is_hashed(kind: pa.DataType) -> bool:
    """Tell whether equal values of a type have equal bytes, of which hashes are made."""
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_signed_integer(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_timestamp(kind)
    )


def _hashes_of(values: pa.Array) -> Slots:
    """Return a number for each value: one for equal values, and hardly ever the same one for others."""
    if values.null_count:
        found: Slots = np.full(len(values), _NULL)
        found[values.is_valid().to_numpy(zero_copy_only=False)] = _hashes_of(values.drop_null())
        return found
    if pa.types.is_string(values.type):
        return _of_texts(values)
    whole = values.cast(pa.int32()) if pa.types.is_date32(values.type) else values
    return np.asarray(whole.cast(pa.int64()).to_numpy())


def _of_texts(texts: pa.StringArray) -> Slots:
    """Return the sum of each text's letters times the factors of their places, modulo 2^64.

    All texts are added up together: a hash that is made text by text, or length by length, took half of the time of
    sites whose keys are words.
    """
    if not len(texts):
        return np.empty(0, np.int64)
    edges = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    letters = np.frombuffer(texts.buffers()[2] or b"", np.uint8)[edges[0] : edges[-1]]
    ends = edges - edges[0]
    places = np.arange(len(letters), dtype=np.int32) - np.repeat(ends[:-1], np.diff(ends))
    sums = np.zeros(len(letters) + 1, np.uint64)
    np.cumsum((letters + np.uint64(1)) * _FACTORS[places & (_LONG - 1)], out=sums[1:])
    found: Slots = np.diff(sums[ends]).view(np.int64)
    return found


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
