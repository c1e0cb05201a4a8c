"""Arrow columns as numpy values that can be compared and merged, and Spark's order of values.

Fixed-width numbers, booleans, dates and timestamps are numpy arrays of their own width. Decimals are Python
integers (unscaled, so sums are exact beyond 38 digits). Everything else is Python objects.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

Values: TypeAlias = "np.ndarray[Any, Any]"
Mask: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"
_NUMBERS = {pa.type_for_alias(name).id for name in ("int8", "int16", "int32", "int64", "float", "double")}


def storage_dtype(kind: pa.DataType) -> np.dtype[Any]:
    """Return the numpy type that holds values of an Arrow type; object where numpy has none."""
    if pa.types.is_boolean(kind):
        return np.dtype(np.bool_)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        dtype: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return dtype
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return np.dtype(np.int32)
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return np.dtype(np.int64)
    return np.dtype(object)


def no_values(slots: int, kind: pa.DataType) -> Values:
    """Return a writable column of an Arrow type's nulls, each zero or None."""
    dtype = storage_dtype(kind)
    return np.empty(slots, dtype=object) if dtype.hasobject else np.zeros(slots, dtype=dtype)


def valid_of(column: pa.Array) -> Mask:
    """Return which rows of a column are not null."""
    if column.null_count == 0:
        return np.ones(len(column), dtype=np.bool_)
    mask: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    return mask


def numbers_of(column: pa.Array) -> Values:
    """Return the values of a column as `to_values` does, where nobody asks which are null."""
    if column.null_count == 0 and column.type.id in _NUMBERS:
        return np.array(column.to_numpy())
    return to_values(column)[0]


def to_values(column: pa.Array) -> tuple[Values, Mask]:
    """Return a column's values (writable) and which rows are not null; a null's value is zero or None."""
    if column.null_count == 0 and column.type.id in _NUMBERS:  # the same, with less around it
        return np.array(column.to_numpy()), np.ones(len(column), np.bool_)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind, valid = column.type, valid_of(column)
    dtype = storage_dtype(kind)
    if not dtype.hasobject:
        if pa.types.is_temporal(kind):
            column = column.view(pa.int32() if dtype == np.int32 else pa.int64())
        if column.null_count:
            column = column.fill_null(False if pa.types.is_boolean(kind) else 0)
        return np.array(column.to_numpy(zero_copy_only=False), dtype=dtype), valid
    if pa.types.is_decimal128(kind):
        values = _unscaled(column)
        values[~valid] = None
        return values, valid
    values = np.empty(len(column), dtype=object)
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind):
        values[:] = column.to_numpy(zero_copy_only=False)
    else:
        for row, value in enumerate(column.to_pylist()):
            values[row] = value
    return values, valid


def from_values(values: Values, valid: Mask, kind: pa.DataType) -> pa.Array:
    """Return an Arrow column from what `to_values` returned; rows that are not valid become null."""
    nulls = None if valid.all() else ~valid
    if not values.dtype.hasobject:
        if nulls is None and kind.id in _NUMBERS:  # the same, with less around it
            return pa.array(values, kind)
        if pa.types.is_temporal(kind):
            storage = pa.int32() if values.dtype == np.int32 else pa.int64()
            return pa.array(values, type=storage, mask=nulls).view(kind)
        return pa.array(values, type=kind, mask=nulls)
    if pa.types.is_decimal128(kind):
        return _decimals(values, valid, kind)
    items = values.tolist()
    if nulls is not None:
        items = [item if good else None for item, good in zip(items, valid, strict=True)]
    return pa.array(items, type=kind)


def fits(unscaled: int, kind: pa.DataType) -> bool:
    """Tell whether an unscaled integer has no more digits than a decimal type."""
    return bool(abs(unscaled) < 10**kind.precision)


def fitting(values: Values, kind: pa.DataType) -> Mask:
    """Return where unscaled integers fit in a decimal type; None, an overflow, does not."""
    return np.fromiter((value is not None and fits(value, kind) for value in values), np.bool_, len(values))


def less(left: Values, right: Values) -> Mask:
    """Return where `left` precedes `right` in Spark's order: NaN is largest, text is byte-wise; no nulls."""
    if left.dtype.kind == "f":
        return (left < right) | (np.isnan(right) & ~np.isnan(left))
    if not left.dtype.hasobject:
        return np.asarray(left < right, dtype=np.bool_)
    if _plain(left):
        return np.asarray(left < right, dtype=np.bool_)
    pairs = zip(left, right, strict=True)
    return np.fromiter((order_key(a) < order_key(b) for a, b in pairs), dtype=np.bool_, count=len(left))


def same(left: Values, right: Values) -> Mask:
    """Return where two arrays hold equal values in Spark's order; no nulls."""
    if not left.dtype.hasobject:
        return ~(less(left, right) | less(right, left))
    pairs = zip(left, right, strict=True)
    return np.fromiter((order_key(a) == order_key(b) for a, b in pairs), dtype=np.bool_, count=len(left))


def sort(values: Values) -> Values:
    """Return a sorted copy in Spark's order (`sort_array`); nulls are not allowed."""
    if not values.dtype.hasobject or _plain(values):
        return np.sort(values, kind="stable")
    result = np.empty(len(values), dtype=object)
    for row, value in enumerate(sorted(values, key=order_key)):
        result[row] = value
    return result


def distinct(ordered: Values) -> Values:
    """Return sorted values without repetitions; NaN equals NaN and -0.0 equals 0.0, as in Spark."""
    if len(ordered) < 2:
        return ordered
    keep = np.ones(len(ordered), dtype=np.bool_)
    keep[1:] = ~same(ordered[1:], ordered[:-1])
    return ordered[keep]


def order_key(value: Any) -> Any:
    """Return a Python key that sorts values of one Spark type in Spark's order: nulls first, NaN last."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (2,) if value != value else (1, value)
    if isinstance(value, dict):
        return (1, tuple(order_key(item) for item in value.values()))
    if isinstance(value, (list, tuple)):
        return (1, tuple(order_key(item) for item in value))
    return (1, value)


def _plain(values: Values) -> bool:
    """Tell whether Python's order is Spark's; the values are of one Spark type and not null."""
    return len(values) > 0 and isinstance(values[0], (str, int, bytes))


def _unscaled(column: pa.Array) -> Values:
    """Return decimal128 values as unscaled Python integers; what stands in a null's place is undefined."""
    if len(column) == 0:
        return np.empty(0, dtype=object)
    words = np.frombuffer(column.buffers()[1], dtype="<i8", count=2 * len(column), offset=16 * column.offset)
    low, high = words[0::2], words[1::2]
    values: Values = low.astype(object)
    wide = high != (low >> 63)
    if wide.any():
        values[wide] = (high[wide].astype(object) << 64) + low[wide].view("<u8").astype(object)
    return values


def _decimals(values: Values, valid: Mask, kind: pa.DataType) -> pa.Array:
    words = np.zeros(2 * len(values), dtype="<i8")
    for row in np.flatnonzero(valid):
        value = values[row]
        low = value & 0xFFFFFFFFFFFFFFFF
        words[2 * row] = low - (1 << 64) if low >> 63 else low
        words[2 * row + 1] = value >> 64
    bits = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    return pa.Array.from_buffers(kind, len(values), [bits, pa.py_buffer(words.tobytes())])
