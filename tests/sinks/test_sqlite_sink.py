from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from transom.errors import SinkError
from transom.sinks.base import WindowResults
from transom.sinks.databases import SqliteSink, sqlite
from transom.sinks.owner import Claim, Owner

KEYS = ("window_start", "window_end", "k")


def moment(second: int) -> datetime:
    return datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)


def results(cut: int, *rows: tuple[int, str | None, float, int], query: str = "q") -> WindowResults:
    kind = pa.timestamp("us", "UTC")
    columns = {
        "window_start": pa.array([moment(start) for start, *_ in rows], kind),
        "window_end": pa.array([moment(start + 10) for start, *_ in rows], kind),
        "k": pa.array([k for _, k, _, _ in rows], pa.string()),
        "a b": pa.array([x for _, _, x, _ in rows], pa.float64()),
        "revision": pa.array([r for *_, r in rows], pa.int64()),
    }
    return WindowResults(query, cut, pa.table(columns), KEYS)


def opened(path, query: str = "q", table: str | None = None) -> SqliteSink:
    sink = sqlite(path, table)
    sink.open(query)
    sink.claim(Claim(Owner("c1", query, "/checkpoint")))
    return sink


def held(path, table: str = "q") -> list[tuple]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute(f'SELECT k, "a b", revision FROM "{table}" ORDER BY window_start, k').fetchall()


def test_a_correction_replaces_its_row_null_keys_included(tmp_path):
    path = tmp_path / "new" / "r.db"
    sink = opened(path)
    sink.write(results(1, (0, "a", 1.0, 0), (0, None, 2.0, 0), (10, "a", 3.0, 0)))
    sink.write(results(2, (0, "a", 5.0, 1), (0, None, math.nan, 1)))
    assert held(path) == [(None, "NaN", 1), ("a", 5.0, 1), ("a", 3.0, 0)]
    sink.close()


def test_the_same_cut_again_changes_nothing(tmp_path):
    path = tmp_path / "r.db"
    sink = opened(path)
    sink.write(results(1, (0, "a", 1.0, 0)))
    sink.write(results(2, (0, "a", 2.0, 1)))
    sink.write(results(1, (0, "a", 1.0, 0)))
    assert held(path) == [("a", 2.0, 1)]
    sink.close()
    again = opened(path)
    again.recover("q", 3)
    again.write(results(3, (0, "a", 9.0, 2)))
    again.close()
    assert held(path) == [("a", 9.0, 2)]


def test_a_failure_leaves_nothing_behind(tmp_path):
    path = tmp_path / "r.db"
    sink = opened(path)
    sink.write(results(1, (0, "a", 1.0, 0)))
    other = pa.table({"window_start": [moment(0)], "window_end": [moment(10)], "k": ["a"], "revision": [1], "new": [1]})
    with pytest.raises(sqlite3.OperationalError, match="no column named new"):
        sink.write(WindowResults("q", 2, other, KEYS))
    assert held(path) == [("a", 1.0, 0)]
    sink.write(results(2, (0, "a", 2.0, 1)))
    assert held(path) == [("a", 2.0, 1)]
    sink.close()


def test_values_of_all_types(tmp_path):
    table = pa.table(
        {
            "t": pa.array([1_767_268_800_000_000], pa.timestamp("us")),
            "d": pa.array([Decimal("1.50")], pa.decimal128(5, 2)),
            "l": pa.array([[1, None]]),
            "s": pa.array([{"x": Decimal("2.5")}], pa.struct([("x", pa.decimal128(3, 1))])),
            "b": pa.array([b"\x00"]),
            "y": pa.array([True]),
            "n": pa.array([None], pa.int32()),
        }
    )
    path = tmp_path / "r.db"
    with closing(opened(path)) as sink:
        sink.write(WindowResults("q", 0, table, ()))
    with closing(sqlite3.connect(path)) as database:
        row = database.execute("SELECT * FROM q").fetchone()
    assert row == ("2026-01-01T12:00:00", "1.50", "[1, null]", '{"x": "2.5"}', b"\x00", 1, None)


def test_queries_share_a_database_but_no_table(tmp_path):
    path = tmp_path / "r.db"
    with closing(opened(path, "q")), closing(opened(path, "other")) as other, closing(sqlite(path, "q")) as third:
        other.write(results(1, (0, "a", 1.0, 0), query="other"))
        assert held(path, "other") == [("a", 1.0, 0)]
        third.open("third")
        with pytest.raises(SinkError, match="belongs to the query 'q'"):
            third.claim(Claim(Owner("c1", "third", "/checkpoint")))


def test_names_that_sqlite_takes_for_one_are_one_table(tmp_path):
    path = tmp_path / "r.db"
    with closing(opened(path, "fares")) as sink, closing(sqlite(path)) as other:
        other.open("Fares")
        with pytest.raises(SinkError, match="belongs to the query 'fares'"):
            other.claim(Claim(Owner("c1", "Fares", "/checkpoint")))
        sink.write(results(1, (0, "a", 1.0, 0), query="fares"))
    with closing(opened(path, "fares", "FARES")) as sink:
        sink.write(results(1, (0, "a", 1.0, 0), query="fares"))
        sink.write(results(2, (0, "b", 2.0, 0), query="fares"))
    assert held(path, "fares") == [("a", 1.0, 0), ("b", 2.0, 0)]


def test_a_commit_that_readers_hold_up_is_tried_again(tmp_path):
    """Without a write-ahead log, as on file systems that have none."""
    path = tmp_path / "r.db"
    with closing(opened(path)) as sink, closing(sqlite3.connect(path, isolation_level=None)) as reader:
        sink._database.execute("PRAGMA journal_mode = DELETE")
        sink._database.execute("PRAGMA busy_timeout = 0")
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM sqlite_master").fetchall()
        for _ in range(2):
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                sink.write(results(1, (0, "a", 1.0, 0)))
        reader.execute("COMMIT")
        sink.write(results(1, (0, "a", 1.0, 0)))
    assert held(path) == [("a", 1.0, 0)]


def test_results_that_are_not_of_the_checkpoint_as_it_is_are_refused(tmp_path):
    sink = opened(tmp_path / "r.db")
    sink.write(results(5, (0, "a", 1.0, 0)))
    with pytest.raises(SinkError, match="up to cut 5, but the checkpoint continues with cut 5"):
        sink.recover("q", 5)
    sink.recover("q", 6)
    sink.close()


def test_a_file_that_is_no_database_is_named(tmp_path):
    path = tmp_path / "r.db"
    path.write_text("this is no database, it is a text " * 40)
    with pytest.raises(SinkError, match=r"r\.db cannot be used"):
        opened(path)


@pytest.mark.parametrize(("table", "whose"), [("Transom_Results", "Transom's"), ("sqlite_x", "SQLite's")])
def test_names_that_are_taken(tmp_path, table, whose):
    for query, given in (("q", table), (table, None)):
        with pytest.raises(SinkError, match=f"would be {whose} own"):
            sqlite(tmp_path / "r.db", given).open(query)
    sink = opened(tmp_path / "r.db", table="main.q")
    sink.write(results(1, (0, "a", 1.0, 0)))
    sink.close()
    with closing(sqlite3.connect(tmp_path / "r.db")) as database:
        assert database.execute('SELECT count(*) FROM "main.q"').fetchone() == (1,)
