"""What sinks and views make of values that Python or a terminal does not have."""

from __future__ import annotations

import io
import json
import math
import sqlite3
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.sinks.base import WindowResults
from transom.sinks.databases import SqliteSink, sqlite
from transom.sinks.inmemory import memory
from transom.sinks.json_lines import write_json_lines
from transom.sinks.owner import Claim, Owner
from transom.sinks.printing import format_results
from transom.sinks.values import moment_text, python_values

UTC = pa.timestamp("us", "UTC")
DAY = 86_400_000_000
TIMES = {
    9_092_000_000_000_000_000: "290084-01-04T11:33:20",
    3_093_527_980_800_000_000: "100000-01-01T00:00:00",
    253_402_300_800_000_000: "10000-01-01T00:00:00",
    253_402_300_799_999_999: "9999-12-31T23:59:59.999999",
    0: "1970-01-01T00:00:00",
    -62_135_596_800_000_000: "0001-01-01T00:00:00",
    -62_135_596_800_000_001: "0000-12-31T23:59:59.999999",
    -62_324_985_600_000_000: "-0005-01-01T00:00:00",
}


def opened(path: Path) -> SqliteSink:
    sink = sqlite(path)
    sink.open("q")
    sink.claim(Claim(Owner("c1", "q", "/checkpoint")))
    return sink


@pytest.mark.parametrize("micros", TIMES)
def test_times_of_all_years_are_stored_alike(tmp_path: Path, micros: int) -> None:
    date = pa.array([micros // DAY], pa.date32())
    nested = pa.array([[{"t": micros}]], pa.list_(pa.struct([("t", UTC)])))
    table = pa.table({"window_end": pa.array([micros], UTC), "d": date, "n": nested})
    results = WindowResults("q", 0, table, ("window_end",))
    text = TIMES[micros]
    day = text.partition("T")[0]

    file = io.BytesIO()
    write_json_lines(table, file)
    assert json.loads(file.getvalue()) == {"window_end": text + "Z", "d": day, "n": [{"t": text + "Z"}]}

    sink = opened(tmp_path / "r.db")
    sink.write(results)
    sink.close()
    with closing(sqlite3.connect(tmp_path / "r.db")) as database:
        assert database.execute("SELECT window_end, d, n FROM q").fetchone() == (
            text + "Z",
            day,
            json.dumps([{"t": text + "Z"}]),
        )

    assert day in format_results(results, 20)
    kept = memory()
    kept.write(results)
    (row,) = kept.rows("q")
    known = row["window_end"]
    assert (known.replace(tzinfo=None).isoformat() + "Z" if isinstance(known, datetime) else known) == text + "Z"


@given(st.datetimes())
def test_own_calendar_is_that_of_python(moment: datetime) -> None:
    micros = (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)  # noqa: DTZ001
    assert moment_text(micros) == moment.isoformat()


def test_nested_values_in_sqlite(tmp_path: Path) -> None:
    kind = pa.struct([("b", pa.binary()), ("f", pa.list_(pa.float64()))])
    table = pa.table({"s": pa.array([{"b": b"\xff", "f": [math.nan, -math.inf, 1.5]}], kind)})
    sink = opened(tmp_path / "r.db")
    sink.write(WindowResults("q", 0, table, ()))
    sink.close()
    with closing(sqlite3.connect(tmp_path / "r.db")) as database:
        (stored,) = database.execute("SELECT s FROM q").fetchone()
    assert json.loads(stored) == {"b": "/w==", "f": ["NaN", "-Infinity", 1.5]}


def test_texts_that_are_none(tmp_path: Path) -> None:
    column = pa.array([b"a\xff", None, b"b"], pa.binary()).view(pa.string())
    assert python_values(column) == ["a\ufffd", None, "b"]
    assert python_values(pa.array([[1]], pa.list_(pa.int8()))) == [[1]]


def test_what_a_terminal_would_obey_is_escaped_and_wide_characters_line_up() -> None:
    table = pa.table({"k": ["a\x1b[2J\nb", "日本", "xy"], "n": [1, 2, 3]})
    lines = format_results(WindowResults("q", 0, table, ()), 20).splitlines()
    assert lines[1:] == [
        "  k            n",
        "  a\\x1b[2J\\nb  1",
        "  日本         2",
        "  xy           3",
    ]
