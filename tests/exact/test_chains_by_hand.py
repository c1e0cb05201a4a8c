"""Queries over the results of queries, case by case: what closes when, what is late, what fails, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from exact_helpers import SECOND, Bench, PiecewiseSource
from levels import LEVELS, SCHEMA, Level, define, seconds
from oracle import WATERMARK, logged_rows
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import transom as tm
from transom.api.app import App
from transom.errors import DefinitionError
from transom.sinks.inmemory import MemorySink

pytestmark = pytest.mark.usefixtures("compiled_once")


def test_watermarks_without_rows_cost_no_job(spark: SparkSession, tmp_path: Path) -> None:
    source = PiecewiseSource(SCHEMA, [1])
    source.add([("u", "a", i, i * SECOND) for i in range(20)])
    levels = {"ten": Level(None, (), (seconds(10),)), "top": Level("ten", (), (seconds(20),))}
    bench = Bench(spark, tmp_path, lambda app, sink: define(app, sink, source, levels))
    progress = bench.run()
    assert progress is not None
    assert [(stream.name, stream.cuts) for stream in progress.streams] == [("stream1", 20), ("ten.results", 2)]
    assert bench.rows("top") == [(0, 20 * SECOND, 20, 190, 19, 9.5, 2)]


def test_a_window_of_a_level_closes_as_soon_as_the_level_below_is_final(spark: SparkSession, tmp_path: Path) -> None:
    source = PiecewiseSource(SCHEMA, [1])
    levels = {"ten": Level(None, (), (seconds(10),)), "top": Level("ten", (), (seconds(20),))}
    bench = Bench(spark, tmp_path, lambda app, sink: define(app, sink, source, levels))
    source.add([("u", "a", 1, 5 * SECOND), ("u", "a", 1, 22 * SECOND)])
    bench.run(close_all=False)
    assert bench.rows("top") == []
    source.add([("u", "a", 1, 23 * SECOND)])
    bench.run(close_all=False)
    assert [row[:3] for row in bench.rows("top")] == [(0, 20 * SECOND, 1)]


def test_results_of_a_window_that_was_closed_at_the_end_are_late(spark: SparkSession, tmp_path: Path) -> None:
    source = PiecewiseSource(SCHEMA, [100])
    levels = {"ten": Level(None, (), (seconds(10),)), "top": Level("ten", (), (seconds(60),))}
    bench = Bench(spark, tmp_path, lambda app, sink: define(app, sink, source, levels))
    source.add([("u", "a", 1, 5 * SECOND)])
    bench.run()
    source.add([("u", "a", 1, 25 * SECOND)])
    progress = bench.run()
    assert progress is not None
    assert {q.name: q.late_rows for q in progress.queries} == {"ten": 0, "top": 1}
    assert [row[:3] for row in bench.rows("top")] == [(0, 60 * SECOND, 1)]
    assert [letter["reason"] for letter in bench.letters("ten.results")] == ["late"]


def failing(app: App, sink: MemorySink, source: PiecewiseSource) -> None:
    stream = app.stream(source, event_time="at", watermark=tm.watermark("3 seconds", max_ahead=None))
    good = stream.group_by("user").window("2 seconds").agg(n=tm.count())
    good.to(sink, "good")
    bad = stream.group_by("user").window("2 seconds").agg(n=tm.sum("1 / (x - 20)"))
    bad.results("bad").window("10 seconds").agg(n=tm.sum("n")).to(sink, "of bad")
    good.results().window("10 seconds").agg(n=tm.sum("1 / (n - 2)")).to(sink, "bad child")
    good.results().window("10 seconds").agg(n=tm.sum("n")).to(sink, "of good")


@pytest.mark.parametrize("crash", [pytest.param(None, marks=pytest.mark.slow), ("committed", 4)])
def test_failures_go_down_and_not_up(spark: SparkSession, tmp_path: Path, crash: tuple[str, int] | None) -> None:
    source = PiecewiseSource(SCHEMA, [4])
    source.add([("u", "a", i, i * SECOND) for i in range(30)])
    bench = Bench(spark, tmp_path, lambda app, sink: failing(app, sink, source))
    if crash is not None:
        assert bench.run(crash_at=crash) is None
    progress = bench.run()
    assert progress is not None
    failures = {query.name: query.failure for query in progress.queries}
    assert failures["good"] is None
    assert failures["of good"] is None
    assert "zero" in str(failures["bad child"]).lower()
    assert "zero" in str(failures["bad"]).lower()
    assert failures["of bad"] == "it reads the results of bad, which failed"
    assert bench.rows("of good") == [(i * 10 * SECOND, (i + 1) * 10 * SECOND, 10) for i in range(3)]


def test_a_query_that_is_chained_later_has_whole_windows_only(spark: SparkSession, tmp_path: Path) -> None:
    source = PiecewiseSource(SCHEMA, [5])
    levels = {"ten": Level(None, (), (seconds(10),))}
    bench = Bench(spark, tmp_path, lambda app, sink: define(app, sink, source, levels))
    source.add([("u", "a", 1, i * SECOND) for i in range(30)])
    bench.run(close_all=False)
    levels["top"] = Level("ten", (), (seconds(20),))
    bench.run(close_all=False, crash_at=("windows closed", 0))
    source.add([("u", "a", 1, i * SECOND) for i in range(30, 90)])
    bench.run(close_all=False, crash_at=("windows closed", 8))
    bench.run()
    assert [row[:3] for row in bench.rows("top")] == [
        (40 * SECOND, 60 * SECOND, 20),
        (60 * SECOND, 80 * SECOND, 20),
        (80 * SECOND, 100 * SECOND, 10),
    ]


def test_both_added_later(spark: SparkSession, tmp_path: Path) -> None:
    source = PiecewiseSource(SCHEMA, [5])
    levels = {"other": Level(None, (), (seconds(3),))}
    bench = Bench(spark, tmp_path, lambda app, sink: define(app, sink, source, levels))
    source.add([("u", "a", 1, i * SECOND) for i in range(25)])
    bench.run(close_all=False)
    levels["ten"] = Level(None, (), (seconds(10),))
    levels["top"] = Level("ten", (), (seconds(20, 10),))
    source.add([("u", "a", 1, i * SECOND) for i in range(25, 70)])
    bench.run()
    assert [row[:3] for row in bench.rows("ten")] == [
        (start * SECOND, (start + 10) * SECOND, 10) for start in (30, 40, 50, 60)
    ]
    assert [row[:3] for row in bench.rows("top")] == [
        (30 * SECOND, 50 * SECOND, 20),
        (40 * SECOND, 60 * SECOND, 20),
        (50 * SECOND, 70 * SECOND, 20),
        (60 * SECOND, 80 * SECOND, 10),
    ]


AGGREGATES = {
    "n": tm.count(),
    "total": tm.sum("x"),
    "decimals": tm.sum("cast(x as decimal(20,4))"),
    "mean": tm.avg("x"),
    "low": tm.min("user"),
    "when": tm.max("at"),
    "day": tm.min("to_date(at)"),
    "bytes": tm.max("encode(user, 'utf-8')"),
    "first": tm.first("user"),
    "last": tm.last("x"),
    "spread": tm.stddev("x"),
    "users": tm.collect_set("user"),
    "list": tm.collect_list("x", 3),
    "any": tm.any("x > 3"),
    "kinds": tm.approx_count_distinct("user"),
    "median": tm.quantile("x", 0.5),
    "top": tm.top_k("user", 2),
}


@pytest.mark.parametrize("fill", [False, True])
def test_results_of_any_aggregate_are_rows(spark: SparkSession, tmp_path: Path, fill: bool) -> None:
    """The columns are known before the first result; the list of all rows below must be what the sink got."""
    source = PiecewiseSource(SCHEMA, [4])
    source.add([("uv"[i % 2], "a", i, i * SECOND) for i in range(0, 40, 3)])
    names = [*AGGREGATES, "user", "window_start", "window_end"]
    row = "to_json(struct(" + ", ".join(names) + "))"

    def make(app: App, sink: MemorySink) -> None:
        stream = app.stream(source, event_time="at", watermark=tm.watermark(0, max_ahead=None))
        query = stream.group_by("user").window("10 seconds").agg(**AGGREGATES)
        query = query.fill("zero") if fill else query
        query.to(sink, "q")
        query.results().group_by(end="window_end").window("10 seconds").agg(rows=tm.collect_list(row)).to(sink, "rows")

    bench = Bench(spark, tmp_path, make)
    bench.run()
    table = bench.sink.to_table("q")
    assert table is not None
    seen = spark.createDataFrame(table.combine_chunks()).selectExpr(row).toArrow().column(0).to_pylist()
    passed = [text for result in bench.sink.rows("rows") for text in result["rows"]]
    assert sorted(passed) == sorted(seen)
    assert len(passed) >= 8


def test_definitions_that_cannot_work(spark: SparkSession, tmp_path: Path) -> None:
    source = PiecewiseSource(SCHEMA)
    app = App(spark, tmp_path / "checkpoint")
    query = app.stream(source, event_time="at").group_by("user").window("2 seconds").agg(n=tm.count())
    query.results()
    with pytest.raises(DefinitionError, match="no query"):
        app.explain()
    query.results().window("4 seconds").agg(x=tm.sum("nothing")).to(MemorySink(), "wrong")
    with pytest.raises(DefinitionError, match=r"'wrong'.*nothing.*window_start, window_end, user, n"):
        app.explain()


def test_a_query_is_named_once(spark: SparkSession, tmp_path: Path) -> None:
    app = App(spark, tmp_path / "checkpoint")
    query = app.stream(PiecewiseSource(SCHEMA), event_time="at").window("2 seconds").agg(n=tm.count())
    query.results("a").window("4 seconds").agg(n=tm.sum("n")).to(MemorySink(), "top")
    query.to(MemorySink(), "b")
    with pytest.raises(DefinitionError, match=r"'b' in to\(\) and 'a' in results"):
        app.explain()


def test_explain_shows_the_chain(spark: SparkSession, tmp_path: Path) -> None:
    app = App(spark, tmp_path / "checkpoint")
    define(app, MemorySink(), PiecewiseSource(SCHEMA), LEVELS)
    streams = {s["name"]: [q["name"] for q in s["queries"]] for s in app.explain().streams}
    assert streams == {
        "stream1": ["fine", "plain"],
        "fine.results": ["sibling", "middle"],
        "middle.results": ["day"],
        "day.results": ["top"],
    }


@pytest.mark.slow
def test_sessions_into_days(spark: SparkSession, tmp_path: Path) -> None:
    """Sessions of each user, then how many ended on each day of a zone, and their longest."""
    source = PiecewiseSource(SCHEMA, [5])
    hour = 3_600 * SECOND
    starts = [h * hour + user * 7 * SECOND for h in (0, 3, 9, 21, 22, 30, 47, 50) for user in range(2)]
    rows = [("uv"[i % 2], "a", 1, start + step * 60 * SECOND) for i, start in enumerate(starts) for step in range(3)]
    source.add(rows)

    def make(app: App, sink: MemorySink) -> None:
        stream = app.stream(source, event_time="at", watermark=tm.watermark("5 minutes", max_ahead=None))
        sessions = stream.group_by("user").window(tm.session_window("10 minutes")).agg(n=tm.count())
        long = sessions.results("sessions").map(
            lambda df: df.withColumn("s", F.expr("unix_seconds(window_end) - unix_seconds(window_start)"))
        )
        days = long.window(tm.calendar("day", zone="Asia/Tokyo"))
        days.agg(sessions=tm.count(), rows=tm.sum("n"), longest=tm.max("s")).to(sink, "days")

    bench = Bench(spark, tmp_path, make)
    bench.run(close_all=False, crash_at=("windows closed", 6))
    bench.run()
    frame = spark.createDataFrame(logged_rows(source._from_python(rows), bench.cuts_of()).drop_columns([WATERMARK]))
    sessions = frame.groupBy("user", F.session_window("at", "10 minutes").alias("w")).agg(F.count("*").alias("n"))
    local = F.from_utc_timestamp(F.expr("w.end - interval 1 microsecond"), "Asia/Tokyo")
    length = F.expr("unix_seconds(w.end) - unix_seconds(w.start)")
    days = sessions.groupBy(F.date_trunc("day", local).alias("day")).agg(F.count("*"), F.sum("n"), F.max(length))
    wanted = [tuple(row)[1:] for row in days.orderBy("day").collect()]
    assert [row[2:] for row in sorted(bench.rows("days"))] == wanted
    assert sum(sessions for sessions, _, _ in wanted) == 16
