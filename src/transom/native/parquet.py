"""Rows of Parquet files, of those of which it is certain what Spark's reader makes of them.

Both read what the format says. They differ in what is damaged, in what is outside the format or new in it, and in types
that are read as others, times before 1900 among them, which Spark may move from one calendar to the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as kinds

from transom.native.footers import Group, check_pages, groups_of
from transom.native.values import UncertainError

ROWS = 1 << 16
"""Rows of a batch."""
_1900 = -25_566
"""The day after which dates and times are the same in all calendars that Spark knows, wherever it is."""
_DAY = 86_400_000_000
_SIMPLE = {
    ("BOOLEAN", "None"): pa.bool_(),
    ("INT32", "None"): pa.int32(),
    ("INT64", "None"): pa.int64(),
    ("FLOAT", "None"): pa.float32(),
    ("DOUBLE", "None"): pa.float64(),
    ("BYTE_ARRAY", "None"): pa.binary(),
    ("BYTE_ARRAY", "String"): pa.string(),
    ("INT32", "Date"): pa.date32(),
}
_WHOLE = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
_UNITS = {"milliseconds": "ms", "microseconds": "us"}


def is_read(kind: pa.DataType) -> bool:
    """Tell whether columns of a type are read here; others are Spark's."""
    moment = kinds.is_timestamp(kind) and kind.unit == "us" and kind.tz is not None
    return bool(moment or kind in _SIMPLE.values() or kinds.is_signed_integer(kind) or kinds.is_decimal128(kind))


@dataclass(frozen=True)
class ParquetReader:
    """Reads Parquet files as Spark's reader does, with all declared columns checked, or not at all.

    Args:
        schema: The declared columns; what else a file has is not read.

    Raises:
        ValueError: A column's type is none of those that are read.
    """

    schema: pa.Schema

    def __post_init__(self) -> None:
        unknown = [str(field) for field in self.schema if not is_read(field.type)]
        if unknown:
            raise ValueError(f"not read without Spark: {', '.join(unknown)}")

    def read(self, path: str, start: int = 0, end: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the row groups that begin in a range of bytes of a file, in their order.

        Raises:
            UncertainError: Spark may make something else of the file.
            OSError: It cannot be read.
        """
        try:
            with open(path, "rb", buffering=0) as opened:
                groups = groups_of(opened.fileno())
                with pq.ParquetFile(opened, pre_buffer=False, page_checksum_verification=True) as file:
                    self._check_types(file)
                    mine = [
                        number
                        for number, group in enumerate(groups)
                        if group.rows and start <= group.start and (end is None or group.start < end)
                    ]
                    for number in mine:
                        self._check_pages(opened.fileno(), groups[number])
                    if mine:
                        yield from self._rows(file, mine, sum(groups[number].rows for number in mine))
        except (pa.ArrowException, ValueError, LookupError, OverflowError) as error:
            raise UncertainError(str(error)) from error

    def _check_types(self, file: pq.ParquetFile) -> None:
        """See that all declared columns are there, once, and of types that are read as they are declared."""
        columns = [file.schema.column(place) for place in range(len(file.schema))]
        names = [column.path.partition(".")[0].lower() for column in columns]
        for field in self.schema:
            places = [place for place, name in enumerate(names) if name == field.name.lower()]
            if len(places) != 1 or columns[places[0]].path != field.name:
                raise UncertainError(f"the column {field.name}, which is missing, nested, or there more than once")
            column = columns[places[0]]
            written = _written_as(column)
            if written is None or column.max_repetition_level or not _becomes(written, field.type):
                raise UncertainError(f"the type of the column {field.name}")

    def _check_pages(self, file: int, group: Group) -> None:
        """See that the declared columns of a row group are whole."""
        for chunk in group.chunks:
            if chunk.name in self.schema.names:
                check_pages(file, chunk, group.rows)

    def _rows(self, file: pq.ParquetFile, numbers: Sequence[int], rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some row groups, together: many small ones would cost as much as large ones."""
        count = 0
        for batch in file.iter_batches(ROWS, numbers, self.schema.names, use_threads=False):
            count += batch.num_rows
            columns = [_certain(batch.column(field.name), field.type) for field in self.schema]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)
        if count != rows:
            raise UncertainError("the number of rows")


def _written_as(column: Any) -> pa.DataType | None:
    """Return the type that a file says a column has; None for one that only Spark reads."""
    logical = json.loads(column.logical_type.to_json())
    name = logical["Type"]
    if name == "Int" and logical["isSigned"]:
        return _WHOLE[logical["bitWidth"]]
    if name == "Timestamp" and logical["isAdjustedToUTC"] and logical["timeUnit"] in _UNITS:
        return pa.timestamp(_UNITS[logical["timeUnit"]], "UTC")
    if name == "Decimal" and logical["precision"] <= 38:
        return pa.decimal128(logical["precision"], logical["scale"])
    return _SIMPLE.get((column.physical_type, name))


def _becomes(written: pa.DataType, wanted: pa.DataType) -> bool:
    """Tell whether Spark reads all values of a type as those of another one."""
    if kinds.is_signed_integer(written) and kinds.is_signed_integer(wanted):
        return bool(written.bit_width <= wanted.bit_width)
    if kinds.is_timestamp(written) and kinds.is_timestamp(wanted):
        return True
    return bool(written == wanted or (kinds.is_float32(written) and kinds.is_float64(wanted)))


def _certain(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column with its declared type.

    Raises:
        UncertainError: Spark may make something else of a value.
        pyarrow.ArrowInvalid: A value is damaged, or out of range.
    """
    if kinds.is_dictionary(column.type):
        column = column.dictionary_decode()
    if isinstance(column.type, pa.BaseExtensionType) or kinds.is_duration(column.type):
        raise UncertainError(f"values of the type {column.type}")
    column = column if column.type == kind else column.cast(kind)
    if kinds.is_string(kind) or kinds.is_decimal(kind):
        column.validate(full=True)
    if kinds.is_date32(kind):
        _check_calendar(column.cast(pa.int32()), _1900)
    if kinds.is_timestamp(kind):
        _check_calendar(column.cast(pa.int64()), _1900 * _DAY)
    return column


def _check_calendar(numbers: pa.Array, first: int) -> None:
    least = pc.min(numbers).as_py()
    if least is not None and least < first:
        raise UncertainError("times before 1900")
