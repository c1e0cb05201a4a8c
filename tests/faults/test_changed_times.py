"""Another expression of the event time is taken where no window can have rows of both, and refused elsewhere."""

from __future__ import annotations

import pytest
from faults_app import Killed, at_step

import transom as tm
from transom.errors import JobChangedError
from transom.model.time import ManualClock

NOON = 1_700_000_000_000_000
FORMER, NEW = "to_timestamp(at)", "coalesce(try_to_timestamp(at), timestamp'2024-01-01 00:00:59')"


def moment(second):
    return f"2024-01-01 00:00:{second:02}"


def build(spark, root, rows, sink, event_time, **options):
    made = tm.App(spark, root / "checkpoint", clock=ManualClock(NOON), **options)
    stream = made.stream(rows, event_time=event_time, watermark=tm.watermark(0, max_ahead=None), name="rows")
    kept = stream.map(lambda df: df.where("v > 0")).where("v < 100")
    kept.window("10 seconds", tm.session_window("2 seconds")).agg(n=tm.count(), v=tm.sum("v")).to(sink, "q")
    return made


def counted(sink):
    return sorted((row["window_start"].second, row["window_end"].second, row["n"], row["v"]) for row in sink.rows("q"))


@pytest.mark.parametrize("snapshot_bytes", [pytest.param(1, marks=pytest.mark.slow), 1 << 20], ids=["snapshots", "log"])
def test_another_event_time_is_taken_when_all_windows_are_closed(spark, tmp_path, snapshot_bytes):
    rows, sink = tm.sources.memory("at string, v long"), tm.sinks.memory()
    rows.add([(moment(1), 1), (moment(2), 2)])
    build(spark, tmp_path, rows, sink, FORMER, snapshot_bytes=snapshot_bytes).run(once=True, close_all=True)
    rows.add([(moment(31), 3), ("no time", 4)])
    killed = build(spark, tmp_path, rows, sink, NEW, snapshot_bytes=snapshot_bytes)
    killed._on_step = at_step("cut logged", 1, lambda: (_ for _ in ()).throw(Killed()))
    with pytest.raises(Killed):
        killed.run(once=True)
    build(spark, tmp_path, rows, sink, NEW, snapshot_bytes=snapshot_bytes).run(once=True)
    build(spark, tmp_path, rows, sink, NEW, snapshot_bytes=snapshot_bytes).run(once=True, close_all=True)
    assert counted(sink) == [(0, 10, 2, 3), (1, 4, 2, 3), (30, 40, 1, 3), (31, 33, 1, 3), (50, 0, 1, 4), (59, 1, 1, 4)]


def test_open_windows_refuse_another_event_time_and_lose_nothing(spark, tmp_path):
    rows, sink = tm.sources.memory("at string, v long"), tm.sinks.memory()
    rows.add([(moment(1), 1), (moment(2), 2)])
    build(spark, tmp_path, rows, sink, FORMER).run(once=True)
    with pytest.raises(JobChangedError, match=r"event time of stream 'rows'.*'q'.*open windows") as refused:
        build(spark, tmp_path, rows, sink, NEW).run(once=True)
    assert "--close-all" in refused.value.remedy
    build(spark, tmp_path, rows, sink, FORMER).run(once=True, close_all=True)
    build(spark, tmp_path, rows, sink, NEW).run(once=True, close_all=True)
    assert counted(sink) == [(0, 10, 2, 3), (1, 4, 2, 3)]
