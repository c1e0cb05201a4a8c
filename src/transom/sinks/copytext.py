"""Columns of results as PostgreSQL's COPY reads them from CSV, and the types that they have there."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from transom.errors import SinkError
from transom.sinks.json_lines import encoded
from transom.sinks.values import beyond_python, moment_text

_FIRST = -210_866_803_200_000_000
"""The 24th of November 4714 BC, PostgreSQL's first day, in microseconds since the epoch."""
_LAST_DATE = 2_145_042_905
"""PostgreSQL's last date, the 2nd of June 5874898, in days since the epoch."""
_NUL_IN_JSON = r"(^|[^\\])(\\\\)*\\u0000"
_DAY = 86_400_000_000
_TYPES = [
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int8, "smallint"),
    (pa.types.is_uint8, "smallint"),
    (pa.types.is_int16, "smallint"),
    (pa.types.is_uint16, "integer"),
    (pa.types.is_int32, "integer"),
    (pa.types.is_uint64, "numeric(20)"),
    (pa.types.is_integer, "bigint"),
    (pa.types.is_float64, "double precision"),
    (pa.types.is_floating, "real"),
    (pa.types.is_duration, "bigint"),
    (pa.types.is_date, "date"),
    (pa.types.is_time, "time"),
    (pa.types.is_nested, "jsonb"),
]


def column_type(kind: pa.DataType) -> str:
    """Return PostgreSQL's type for the values of a column.

    >>> column_type(pa.decimal128(20, 2)), column_type(pa.list_(pa.int64()))
    ('numeric(20, 2)', 'jsonb')
    """
    if pa.types.is_dictionary(kind):
        return column_type(kind.value_type)
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "timestamptz"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return "bytea"
    return next((name for fits, name in _TYPES if fits(kind)), "text")


def copied(table: pa.Table, query: str) -> pa.Table:
    """Return results whose text as CSV is what COPY takes.

    Raises:
        SinkError: There is a value that PostgreSQL does not have; names query and column.
    """
    columns = [
        _column(column.combine_chunks(), f"{query}: {name}")
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]
    return pa.table(columns, names=table.column_names)


def _column(column: pa.Array, what: str) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _column(column.dictionary_decode(), what)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _without_nul(column, what)
    if pa.types.is_nested(kind):
        return _without_nul(encoded(column), what, _NUL_IN_JSON)
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        return _times(column, what)
    if column_type(kind) == "bytea":
        return pa.array([None if value is None else "\\x" + value.hex() for value in column.to_pylist()], pa.string())
    return column


def _without_nul(texts: pa.Array, what: str, nul: str = "\x00") -> pa.Array:
    if pc.any(pc.match_substring_regex(texts, nul)).as_py():
        raise SinkError(
            f"{what} has a text with the character NUL, which PostgreSQL does not have.",
            "Take it out in map(), or send the results to another sink.",
        )
    return texts


def _times(column: pa.Array, what: str) -> pa.Array:
    """Return times as they are, or as texts where some are beyond the years 1 to 9999.

    Raises:
        SinkError: One is before the first day of PostgreSQL; no time of Transom is after the last.
    """
    if len(column) == column.null_count or not beyond_python(column):
        return column
    is_date = pa.types.is_date32(column.type)
    numbers = column.cast(pa.int32() if is_date else pa.timestamp("us", column.type.tz)).cast(pa.int64())
    distinct = numbers.dictionary_encode()
    texts = []
    for number in distinct.dictionary.to_pylist():
        micros = number * _DAY if is_date else number
        if micros < _FIRST or (is_date and number > _LAST_DATE):
            raise SinkError(
                f"{what} has {'a date' if is_date else 'a time'} in the year "
                f"{moment_text(micros).rpartition('-')[0].rpartition('-')[0]}, which is beyond those of PostgreSQL "
                "(4714 BC to 294276).",
                "Leave out such rows in where() or map(), or send the results to another sink.",
            )
        texts.append(_text(micros, is_date, bool(is_date or column.type.tz)))
    return pa.array(texts, pa.string()).take(distinct.indices)


def _text(micros: int, is_date: bool, zoned: bool) -> str:
    """Return a time as PostgreSQL reads it: years before 1 are BC, and there is no year 0."""
    text = moment_text(micros)
    date, _, clock = text.partition("T")
    year, month, day = date.rsplit("-", 2)
    before = int(year) <= 0
    date = f"{1 - int(year):04}-{month}-{day}" if before else date
    rest = "" if is_date else f" {clock}{'+00' if zoned else ''}"
    return f"{date}{rest}{' BC' if before else ''}"
