"""Columns whose type changed between two runs: what goes on exactly with states and keys of the former type."""

from __future__ import annotations

import json
import re

import pyarrow as pa

from transom.errors import JobChangedError

_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
"""Integer types, the narrower first, with the decimal digits of their values."""
_INTEGERS = tuple(_DIGITS)
_NAMES = {
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.date32(): "date",
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
REMEDY = (
    "Cast the column to its former type, in the source or in map; give the query a new name (it starts afresh); or "
    "start with a new checkpoint."
)


def type_name(kind: pa.DataType) -> str:
    """Return the name that Spark has for an Arrow type, whatever may be null in it.

    >>> type_name(pa.list_(pa.field("element", pa.int16(), nullable=False)))
    'array<smallint>'
    """
    if kind in _NAMES:
        return _NAMES[kind]
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    if pa.types.is_map(kind):
        return f"map<{type_name(kind.key_type)},{type_name(kind.item_type)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{type_name(field.type)}' for field in kind)}>"
    return str(kind)


def widens(old: str, new: str) -> bool:
    """Tell whether every value of one type is exactly one of another, in the same order.

    >>> widens("smallint", "bigint"), widens("bigint", "int"), widens("int", "double"), widens("bigint", "double")
    (True, False, True, False)
    >>> widens("int", "decimal(12,2)"), widens("int", "decimal(11,2)"), widens("decimal(5,2)", "decimal(7,3)")
    (True, False, True)
    """
    if old == new:
        return True
    if old.startswith("array<") and new.startswith("array<"):
        return widens(old[6:-1], new[6:-1])
    if old in _DIGITS and new in _DIGITS:
        return _INTEGERS.index(old) < _INTEGERS.index(new)
    if new in ("float", "double"):
        return old in ("tinyint", "smallint", *(("int", "float") if new == "double" else ()))
    before, after = _DECIMAL.fullmatch(old), _DECIMAL.fullmatch(new)
    if after is None or (before is None and old not in _DIGITS):
        return False
    digits, scale = (int(before[1]), int(before[2])) if before else (_DIGITS[old], 0)
    return int(after[2]) >= scale and int(after[1]) - int(after[2]) >= digits - scale


def goes_on(key: str, old: str, new: str) -> bool:
    """Tell whether states of a primitive stay right when the type of an input becomes another.

    Args:
        key: The primitive's `Primitive.key`.
        old: The former type, as `type_name` gives it.
        new: The type now.
    """
    kind = key.split('"')[1]
    if kind == "where.1":
        return goes_on(json.loads(key)[2], old, new)
    numbers = [bool(_DECIMAL.fullmatch(name)) or name in (*_INTEGERS, "float", "double") for name in (old, new)]
    if old == new or kind == "count.1":
        return True
    if kind in ("kll.1", "moments.1", "moments4.1", "pairs.1"):  # of values as doubles
        return all(numbers)
    if kind == "hll.1":  # of hashes, which are others for a bigint
        return {old, new} <= {"tinyint", "smallint", "int"}
    if kind == "frequent.1":  # of texts
        return {old, new} <= set(_INTEGERS)
    if kind == "mean.1":  # of doubles, unless they are decimals
        return widens(old, new) and old.startswith("decimal") == new.startswith("decimal")
    if kind == "sum.1":  # of bigint, double or decimal
        return widens(old, new) and (old in _DIGITS) <= (new not in ("float", "double"))
    return widens(old, new)


def widened(column: pa.Array, kind: pa.DataType, what: str) -> pa.Array:
    """Return a column that was stored as one of the type that it has now.

    Decimals of the same scale stay what they are: their values are the same.

    Args:
        column: What was stored.
        kind: The type now.
        what: What the column is, in words.

    Raises:
        JobChangedError: Values of the former type are not exactly values of this one.
    """
    if column.type == kind:
        return column
    old, new = type_name(column.type), type_name(kind)
    if old == new or (
        pa.types.is_decimal(column.type) and pa.types.is_decimal(kind) and _same_scale(column.type, kind)
    ):
        return column
    if not widens(old, new):
        raise JobChangedError(f"The checkpoint holds {what} as {old}; now it is {new}.", REMEDY)
    return column.cast(kind)


def _same_scale(one: pa.DataType, other: pa.DataType) -> bool:
    return bool(one.scale == other.scale and one.precision <= other.precision)
