from __future__ import annotations

import io
import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from transom.sinks.json_lines import write_json_lines

UTC = UTC


def lines(table: pa.Table) -> list[str]:
    buffer = io.BytesIO()
    write_json_lines(table, buffer)
    return buffer.getvalue().decode().splitlines()


def column(values: list[object], kind: pa.DataType) -> list[str]:
    prefix = len('{"x":')
    return [line[prefix:-1] for line in lines(pa.table({"x": pa.array(values, kind, from_pandas=False)}))]


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.int64(), [1, -(2**63), None], ["1", "-9223372036854775808", "null"]),
        (pa.bool_(), [True, False, None], ["true", "false", "null"]),
        (pa.float64(), [1.5, 1e300, None], ["1.5", "1e+300", "null"]),
        (pa.float64(), [math.nan, math.inf, -math.inf, None], ['"NaN"', '"Infinity"', '"-Infinity"', "null"]),
        (pa.decimal128(20, 2), [Decimal("123456789012345678.90"), None], ["123456789012345678.90", "null"]),
        (pa.string(), ["a", "ü", "", None], ['"a"', '"ü"', '""', "null"]),
        (
            pa.string(),
            ['q"', "b\\", "n\n", "\x01", None],
            ['"q\\""', '"b\\\\"', '"n\\n"', '"\\u0001"', "null"],
        ),
        (pa.date32(), [date(2026, 1, 2), None], ['"2026-01-02"', "null"]),
        (pa.binary(), [b"\x00\xff", None], ['"AP8="', "null"]),
        (pa.list_(pa.float64()), [[1.0, math.nan, None], [], None], ['[1.0,"NaN",null]', "[]", "null"]),
        (pa.list_(pa.decimal128(30, 10)), [[Decimal("0.1234567891")]], ["[0.1234567891]"]),
        (pa.struct([("a", pa.int8()), ("b", pa.string())]), [{"a": 1, "b": "x"}], ['{"a":1,"b":"x"}']),
        (pa.map_(pa.string(), pa.int8()), [[("k", 1)], []], ['{"k":1}', "{}"]),
        (pa.null(), [None], ["null"]),
        (pa.dictionary(pa.int8(), pa.string()), ["x", None], ['"x"', "null"]),
        (pa.duration("us"), [timedelta(seconds=1)], ["1000000"]),
    ],
)
def test_types(kind: pa.DataType, values: list[object], expected: list[str]) -> None:
    assert column(values, kind) == expected


def test_times_are_iso_in_utc_with_fractions_only_where_there_are_some() -> None:
    whole = [datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), None, datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)]
    assert column(whole, pa.timestamp("us", "UTC")) == [
        '"2026-01-02T03:04:05Z"',
        "null",
        '"1969-12-31T23:59:59Z"',
    ]
    fraction = [datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)]
    assert column(fraction, pa.timestamp("us", "UTC")) == ['"2026-01-02T03:04:05.000006Z"']
    local = [datetime(2026, 1, 2, 3, 4, 5)]  # noqa: DTZ001
    assert column(local, pa.timestamp("us")) == ['"2026-01-02T03:04:05"']
    assert column(fraction, pa.timestamp("us", "+02:00")) == ['"2026-01-02T03:04:05.000006Z"']


def test_every_row_is_an_object_and_slices_and_names_survive() -> None:
    table = pa.table({'na"me': list(range(250_000)), "b": ["x"] * 250_000}).slice(3, 200_001)
    rows = [json.loads(line) for line in lines(table)]
    assert rows == [{'na"me': i, "b": "x"} for i in range(3, 200_004)]
    assert lines(table.slice(0, 0)) == []


def test_duckdb_and_pandas_read_it(tmp_path: Path) -> None:
    import pandas as pd

    duckdb = pytest.importorskip("duckdb")
    edge = datetime(2026, 1, 1, tzinfo=UTC)
    table = pa.table(
        {
            "window_end": pa.array([edge, edge], pa.timestamp("us", "UTC")),
            "key": ["a", 'b"'],
            "value": [1.25, None],
        }
    )
    with open(tmp_path / "x.json", "wb") as file:
        write_json_lines(table, file)
    found = duckdb.sql(f"SELECT key, value FROM read_json('{tmp_path}/x.json')").fetchall()
    assert found == [("a", 1.25), ('b"', None)]
    frame = pd.read_json(tmp_path / "x.json", lines=True, convert_dates=["window_end"])
    assert frame["window_end"][0] == pd.Timestamp(edge)
