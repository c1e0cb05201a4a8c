"""Rows that come too late for a query as a stream: each once, the same as in plain Python, whatever is killed when."""

from __future__ import annotations

import random
from collections import Counter

import pytest

import transom as tm
from transom.errors import DefinitionError
from transom.model.time import ManualClock

PER_CUT, LENGTH = 20, 10
SLOW = random.Random(7)
ROWS = [(n, "ab"[n % 2], max(0, n - (SLOW.randrange(60) if SLOW.random() < 0.3 else 0))) for n in range(160)]
"""Number, zone and second of each row; many come late."""


class Killed(BaseException):
    pass


def late_rows(rows=ROWS):
    """Return the rows of which the window was closed when they came: the watermark is that of the cuts before."""
    found, newest = [], -1
    for start in range(0, len(rows), PER_CUT):
        cut = rows[start : start + PER_CUT]
        found += [row for row in cut if row[2] // LENGTH * LENGTH + LENGTH <= newest]
        newest = max([newest, *(row[2] for row in cut)])
    return found


def counts_of(rows, length=LENGTH):
    return Counter((row[2] // length * length, row[1]) for row in rows)


def application(spark, tmp_path, rows=ROWS):
    source = tm.sources.memory("n int, zone string, at long")
    source.add(rows)
    app = tm.App(spark, tmp_path / "checkpoint", clock=ManualClock(0), max_rows_per_cut=PER_CUT)
    stream = app.stream(source, event_time="timestamp_seconds(at)", watermark=tm.watermark(0, max_ahead=None))
    query = stream.group_by("zone").window(f"{LENGTH} seconds").agg(n=tm.count())
    return app, stream, query


def found_in(sink, name):
    return Counter({(int(r["window_start"].timestamp()), r["zone"]): r["n"] for r in sink.rows(name)})


def written(spark, path):
    return sorted(row.n for row in spark.read.parquet(str(path)).select("n").collect())


def with_late(app, query, sink, out):
    query.to(sink, "counts")
    late = query.late_rows(watermark="1 hour")
    late.group_by("zone").window(f"{LENGTH} seconds").agg(n=tm.count()).to(sink, "again")
    late.where("zone = 'b'").map(lambda df: df.withColumn("n", df.n * 10)).rows().to(tm.sinks.parquet(out), "kept")


def test_what_a_query_misses_is_in_windows_of_their_own(spark, tmp_path):
    late, sink = late_rows(), tm.sinks.memory()
    assert len(late) > 15
    app, _, query = application(spark, tmp_path)
    with_late(app, query, sink, tmp_path / "out")
    progress = app.run(once=True, close_all=True)
    assert found_in(sink, "again") == counts_of(late)
    assert found_in(sink, "counts") + found_in(sink, "again") == counts_of(ROWS)
    assert written(spark, tmp_path / "out") == sorted(10 * n for n, zone, _ in late if zone == "b")
    assert {query.name: query.late_rows for query in progress.queries} == {"counts": len(late), "again": 0, "kept": 0}
    assert not list((tmp_path / "checkpoint" / "sources" / "counts.late").glob("*"))
    letters = {stream.name: stream.dead_letters for stream in progress.streams}
    assert letters == {"stream1": {"late": len(late)}, "counts.late": {}}


MORE = [("job done", 3), ("committed", 6), ("cut logged", 9), ("windows closed", 9), ("before snapshot", 1)]


@pytest.mark.parametrize(
    ("step", "number"), [("committed", 3), *(pytest.param(*each, marks=pytest.mark.slow) for each in MORE)]
)
def test_a_kill_at_any_step(spark, tmp_path, step, number):
    steps, sink = [], tm.sinks.json(tmp_path / "again")

    def kill(name):
        steps.append(name)
        if steps.count(step) == number:
            raise Killed

    def make():
        app, _, query = application(spark, tmp_path)
        late = query.late_rows(watermark="1 hour")
        late.group_by("zone").window(f"{LENGTH} seconds").agg(n=tm.count()).to(sink, "again")
        late.rows().to(tm.sinks.parquet(tmp_path / "out"), "kept")
        return app

    app = make()
    app._on_step = kill
    with pytest.raises(Killed):
        app.run(once=True)
    make().run(once=True, close_all=True)
    rows = spark.read.json(str(tmp_path / "again")).selectExpr(
        "unix_seconds(timestamp(window_start)) AS s", "zone", "n"
    )
    found = [((row.s, row.zone), row.n) for row in rows.collect()]
    assert len(dict(found)) == len(found)
    assert Counter(dict(found)) == counts_of(late_rows())
    assert written(spark, tmp_path / "out") == sorted(n for n, *_ in late_rows())


@pytest.mark.slow
@pytest.mark.parametrize("number", [3, 5])
def test_what_waits_when_a_run_is_stopped_is_in_the_snapshot(spark, tmp_path, number):
    sink, kept = tm.sinks.memory(), tmp_path / "checkpoint" / "sources" / "counts.late"

    def make():
        app, _, query = application(spark, tmp_path)
        with_late(app, query, sink, tmp_path / "out")
        return app

    app, pieces = make(), [0]

    def stop(step):
        if step == "committed":
            pieces.append(len(list(kept.iterdir())) if kept.is_dir() else 0)
            if len(pieces) > number and pieces[-1] > pieces[-2]:  # some that nobody can have read
                app.stop()

    app._on_step = stop
    app.run(once=True)
    assert list(kept.iterdir())
    make().run(once=True, close_all=True)
    assert not list(kept.iterdir())
    assert found_in(sink, "again") == counts_of(late_rows())
    assert written(spark, tmp_path / "out") == sorted(10 * n for n, zone, _ in late_rows() if zone == "b")


@pytest.mark.slow
def test_what_is_late_there_too_is_counted(spark, tmp_path):
    """Without a delay of its own, only longer windows than the query's take late rows."""
    app, _, query = application(spark, tmp_path)
    sink = tm.sinks.memory()
    late = query.late_rows()
    late.group_by("zone").window(f"{LENGTH} seconds").agg(n=tm.count()).to(sink, "none")
    late.group_by("zone").window("1 hour").agg(n=tm.count()).to(sink, "hours")
    progress = app.run(once=True, close_all=True)
    assert found_in(sink, "none") == {}
    assert found_in(sink, "hours") == counts_of(late_rows(), 3600)
    (none,) = (query for query in progress.queries if query.name == "none")
    assert none.late_rows == len(late_rows())


@pytest.mark.slow
def test_a_stream_that_comes_later_takes_what_is_late_from_then_on(spark, tmp_path):
    sink = tm.sinks.memory()
    app, _, query = application(spark, tmp_path, ROWS[:80])
    query.to(sink, "counts")
    app.run(once=True)
    app, _, query = application(spark, tmp_path, ROWS)
    with_late(app, query, sink, tmp_path / "out")
    app.run(once=True, close_all=True)
    newest = max(at for *_, at in ROWS[:80])
    later = [row for row in late_rows() if row[0] >= 80]
    assert written(spark, tmp_path / "out") == sorted(10 * n for n, zone, _ in later if zone == "b")
    whole = {key: n for key, n in counts_of(later).items() if key[0] >= newest}
    assert whole
    assert found_in(sink, "again") == whole


@pytest.mark.slow
def test_what_cannot_be(spark, tmp_path):
    app, _, query = application(spark, tmp_path)
    query.to(tm.sinks.memory(), "counts")
    late = query.late_rows(watermark="1 hour")
    assert query.late_rows(watermark="60 minutes") is late
    with pytest.raises(DefinitionError, match="have the watermark 1 h"):
        query.late_rows()
    with pytest.raises(DefinitionError, match="negative"):
        query.late_rows(watermark="-1 hour")
    late.rows().to(tm.sinks.parquet(tmp_path / "out"), "kept")
    refused = []

    def remove(step):
        if step == "committed" and not refused:
            refused.append(app.remove("counts"))

    app._on_step = remove
    app.run(once=True)
    with pytest.raises(DefinitionError, match="are read by kept"):
        refused[0].wait()
