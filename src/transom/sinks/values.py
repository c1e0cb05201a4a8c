"""Values of results as Python has them, and as text where Python has none: times beyond the years 1 to 9999."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_DAY = 86_400_000_000
_FIRST, _END = -62_135_596_800_000_000, 253_402_300_800_000_000
"""The years that Python's datetime has, in microseconds since the epoch."""
_UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}


def python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return the values of a column; a time or date that Python does not have as ISO 8601 text, at any depth.

    >>> python_values(pa.array([0, 10**18], pa.timestamp("us")))[1]
    '33658-09-27T01:46:40'
    """
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except (OverflowError, ValueError):  # UnicodeDecodeError is a ValueError
        return [_value(value) for value in column]


def _value(value: pa.Scalar) -> Any:
    if not value.is_valid:
        return None
    kind = value.type
    if pa.types.is_struct(kind):
        return {field.name: _value(value[field.name]) for field in kind}
    if pa.types.is_map(kind):
        entries = value.values
        keys, items = entries.field(0), entries.field(1)
        return [(_value(key), _value(item)) for key, item in zip(keys, items, strict=True)]
    if pa.types.is_nested(kind):
        return [_value(part) for part in value.values]
    if pa.types.is_dictionary(kind):
        return _value(value.dictionary[value.index.as_py()])
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        if pa.types.is_timestamp(kind):
            micros = value.value // 1_000 if kind.unit == "ns" else value.value * _UNITS[kind.unit]
            return moment_text(micros) + ("Z" if kind.tz else "")
        if pa.types.is_date32(kind):
            return moment_text(value.value * _DAY)[:-9]
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return value.as_buffer().to_pybytes().decode(errors="replace")
        raise


def beyond_python(column: pa.Array) -> bool:
    """Tell whether a column of times or of dates (date32) has one that Python does not have."""
    kind = column.type
    is_date = pa.types.is_date32(kind)
    unit = _DAY if is_date else _UNITS.get(kind.unit, 1)
    span = pc.min_max(column.cast(pa.int32() if is_date else pa.int64()))
    least, most = span["min"].as_py(), span["max"].as_py()
    return least is not None and (least * unit < _FIRST or most * unit >= _END)


def moment_text(micros: int) -> str:
    """Return a time in UTC as ISO 8601 text, of any year: those after 9999 have more digits, those before 0 a sign.

    >>> moment_text(0), moment_text(-62_167_219_200_000_001)
    ('1970-01-01T00:00:00', '-0001-12-31T23:59:59.999999')
    """
    days, rest = divmod(micros, _DAY)
    # Years from March on, in eras of 400 years.
    era, day = divmod(days + 719_468, 146_097)
    of_era = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    of_year = day - (365 * of_era + of_era // 4 - of_era // 100)
    index = (5 * of_year + 2) // 153
    month = index + 3 if index < 10 else index - 9
    year = of_era + era * 400 + (month <= 2)
    seconds, fraction = divmod(rest, 1_000_000)
    date = f"{'-' if year < 0 else ''}{abs(year):04}-{month:02}-{of_year - (153 * index + 2) // 5 + 1:02}"
    clock = f"{seconds // 3_600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{date}T{clock}" + (f".{fraction:06}" if fraction else "")
