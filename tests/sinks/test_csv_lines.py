from __future__ import annotations

import csv
import io
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.sinks.csv_lines import header, header_of, write_csv


def text(table: pa.Table) -> str:
    buffer = io.BytesIO()
    write_csv(table, buffer)
    return buffer.getvalue().decode()


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.int64(), [1, -(2**63), None], ["1", "-9223372036854775808", ""]),
        (pa.bool_(), [True, False, None], ["true", "false", ""]),
        (pa.float64(), [1.5, math.nan, math.inf, -math.inf, None], ["1.5", "NaN", "Infinity", "-Infinity", ""]),
        (pa.decimal128(20, 2), [Decimal("123456789012345678.90"), None], ["123456789012345678.90", ""]),
        (pa.string(), ["a b", " a", "", "x,y", 'say "x"', None], ["a b", '" a"', '""', '"x,y"', '"say ""x"""', ""]),
        (pa.dictionary(pa.int8(), pa.string()), ["x", None], ["x", ""]),
        (pa.date32(), [date(2026, 1, 2), None], ["2026-01-02", ""]),
        (pa.timestamp("us", "UTC"), [datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), None], ["2026-01-02T03:04:05Z", ""]),
        (pa.binary(), [b"\x00\xff", None], ["AP8=", ""]),
        (pa.list_(pa.int64()), [[1, 2], [], None], ['"[1,2]"', "[]", ""]),
        (pa.struct([("a", pa.string())]), [{"a": "x"}, None], ['"{""a"":""x""}"', ""]),
        (pa.duration("us"), [timedelta(seconds=1)], ["1000000"]),
        (pa.null(), [None], [""]),
    ],
)  # fmt: skip
def test_types(kind: pa.DataType, values: list[object], expected: list[str]) -> None:
    table = pa.table({"n": list(range(len(values))), "x": pa.array(values, kind, from_pandas=False)})
    assert text(table).splitlines() == ["n,x", *(f"{n},{field}" for n, field in enumerate(expected))]


@given(st.lists(st.tuples(st.text(), st.text()), max_size=20))
def test_any_text_is_read_as_it_was_written(rows: list[tuple[str, str]]) -> None:
    columns = [pa.array([row[i] for row in rows], pa.string()) for i in (0, 1)]
    found = csv.reader(io.StringIO(text(pa.table(columns, ["a", "b"])), newline=""), strict=True)
    assert [tuple(row) for row in found] == [("a", "b"), *rows]


def test_the_first_line_is_found_whatever_the_names() -> None:
    names = ['a "quoted"\nname', "x,y", ""]
    rows = io.BytesIO(header(names) + b"1,2,3\n")
    assert header_of(rows) == header(names)
    assert rows.read() == b"1,2,3\n"
