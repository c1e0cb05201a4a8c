"""Arrow tables as JSON lines, column by column instead of value by value."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc

from transom.sinks.values import beyond_python, python_values

_BATCH = 100_000
_ESCAPED = r'["\\\x00-\x1f]'


def write_json_lines(table: pa.Table, file: IO[bytes]) -> None:
    """Write each row as a JSON object on its own line; every column is there, null where it has no value.

    Takes about 5 ms for 10,000 rows of six flat columns; lists, structs and maps go through Python.
    """
    for batch in table.to_batches(max_chunksize=_BATCH):
        if batch.num_rows:
            file.write(_lines(batch))


def _lines(batch: pa.RecordBatch) -> memoryview:
    pieces: list[Any] = []
    lead = "{"
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        pieces += [f"{lead}{_quote(name)}:", pc.fill_null(encoded(column), "null")]
        lead = ","
    return joined([*pieces, "}\n" if pieces else "{}\n"])


def joined(pieces: Sequence[Any]) -> memoryview:
    """Return columns of text, and texts that are the same in each row, joined row by row."""
    texts = pc.binary_join_element_wise(*[_large(piece) for piece in pieces], pa.scalar("", pa.large_string()))
    offsets = memoryview(texts.buffers()[1]).cast("q")
    start, end = offsets[texts.offset], offsets[texts.offset + len(texts)]
    return memoryview(texts.buffers()[2])[start:end]


def _large(piece: Any) -> Any:
    if isinstance(piece, str):
        return pa.scalar(piece, pa.large_string())
    return piece.cast(pa.large_string())


def encoded(column: pa.Array) -> pa.Array:
    """Return the JSON text of each value; null where there is none."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return encoded(column.dictionary_decode())
    if pa.types.is_null(kind):
        return pa.nulls(len(column), pa.string())
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.string())
    if pa.types.is_floating(kind):
        return _floats(column)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        if not pc.any(pc.match_substring_regex(column, _ESCAPED)).as_py():
            return _in_quotes(column)
    elif pa.types.is_date32(kind) and not beyond_python(column):
        return _in_quotes(column.cast(pa.string()))
    elif pa.types.is_timestamp(kind) and (kind.tz is None or kind.tz == "UTC"):
        # Windows share their edges, and formatting a time takes a microsecond.
        distinct = column.dictionary_encode()
        if not beyond_python(distinct.dictionary):
            return _in_quotes(_times(distinct.dictionary)).take(distinct.indices)
    texts = [None if value is None else _dumps(value, kind) for value in python_values(column)]
    return pa.array(texts, pa.string())


def _in_quotes(texts: pa.Array) -> pa.Array:
    quote = pa.scalar('"', texts.type)
    return pc.binary_join_element_wise(quote, texts, quote, pa.scalar("", texts.type))


def _floats(column: pa.Array) -> pa.Array:
    texts = column.cast(pa.string())
    if pc.all(pc.is_finite(column)).as_py() in (True, None):
        return texts
    words = pc.case_when(
        pc.make_struct(pc.is_nan(column), pc.equal(column, math.inf), pc.equal(column, -math.inf)),
        '"NaN"',
        '"Infinity"',
        '"-Infinity"',
        texts,
    )
    return pc.if_else(pc.is_null(column), pa.scalar(None, pa.string()), words)


def _times(column: pa.Array) -> pa.Array:
    """Return ISO 8601 texts; fractions of a second only when a time of the column has one."""
    zone = "Z" if column.type.tz else ""
    seconds = pc.floor_temporal(column, unit="second")
    if pc.all(pc.equal(seconds, column)).as_py() in (True, None):
        column = column.cast(pa.timestamp("s", column.type.tz))
    return pc.strftime(column, format=f"%Y-%m-%dT%H:%M:%S{zone}")


def _dumps(value: Any, kind: pa.DataType) -> str:
    """Return the JSON text of a value of any type."""
    if value is None:
        return "null"
    if pa.types.is_struct(kind):
        fields = (f"{_quote(field.name)}:{_dumps(value[field.name], field.type)}" for field in kind)
        return "{" + ",".join(fields) + "}"
    if pa.types.is_map(kind):
        items = (f"{_quote(_key(key))}:{_dumps(item, kind.item_type)}" for key, item in value)
        return "{" + ",".join(items) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_dumps(item, kind.value_type) for item in value) + "]"
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, Decimal)):
        return str(value)
    if isinstance(value, timedelta):
        return str(value // timedelta(microseconds=1))
    return _quote(_key(value))


def _key(value: Any) -> str:
    """Return a value that JSON has no type for as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
