"""Queries over the results of queries: each level equals plain Spark batch over the level below."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from exact_helpers import SECOND, Bench, PiecewiseSource
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from oracle import WATERMARK, BatchQuery, differences, expected, logged_rows
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

import transom as tm
from transom.app import App
from transom.errors import DefinitionError
from transom.model.time import MIN_TIME
from transom.model.window import WindowSpec
from transom.sinks.memory import MemorySink

SCHEMA = "user string, area string, x bigint, at timestamp"
STEPS = ["cut logged", "windows closed", "job done", "partials written", "committed", "delivered", "delivery logged"]
SNAPSHOTS = ["before snapshot", "after snapshot"]


def big(df: DataFrame) -> DataFrame:
    return df.where("n > 1")


@dataclass(frozen=True)
class Level:
    """A query, on the stream or on the results of another one."""

    parent: str | None
    keys: tuple[str, ...]
    windows: tuple[WindowSpec, ...]
    mapped: bool = False
    sink: bool = True
    early: bool = False
    lateness: int = 0
    """Seconds."""

    def rows(self, df: DataFrame) -> DataFrame:
        return big(df) if self.mapped else df

    def aggregates(self) -> Mapping[str, Any]:
        if self.parent is None:
            return {"n": tm.count(), "s": tm.sum("x"), "hi": tm.max("x"), "m": tm.avg("x")}
        return {"n": tm.sum("n"), "s": tm.sum("s"), "hi": tm.max("hi"), "m": tm.avg("m"), "w": tm.count()}

    def updates(self) -> dict[str, Any]:
        return {"early": "100 ms" if self.early else None, "lateness": f"{self.lateness} seconds"}

    def batch(self) -> BatchQuery:
        texts = ["sum(n)", "sum(s)", "max(hi)", "avg(m)", "count(*)"]
        if self.parent is None:
            texts = ["count(*)", "sum(x)", "max(x)", "avg(x)"]
        values = dict(zip(self.aggregates(), map(F.expr, texts), strict=True))
        return BatchQuery(self.windows, {key: F.col(key) for key in self.keys}, values, self.rows)


def define(app: App, sink: MemorySink, source: PiecewiseSource, levels: Mapping[str, Level]) -> None:
    stream = app.stream(source, event_time="at", watermark=tm.watermark("3 seconds", max_ahead=None))
    made: dict[str, Any] = {}
    for name, level in levels.items():
        rows = stream if level.parent is None else made[level.parent].results()
        rows = rows.map(big) if level.mapped else rows
        made[name] = rows.group_by(*level.keys).window(*level.windows, **level.updates()).agg(**level.aggregates())
        if level.sink:
            made[name].to(sink, name)
        else:
            made[name].results(name)


def check(spark: SparkSession, bench: Bench, rows: pa.Table, levels: Mapping[str, Level]) -> None:
    """Compare the sink with plain Spark, level by level."""
    wanted: dict[str, pa.Table] = {}
    for name, level in levels.items():
        if level.parent is None:
            time, late = "at", pc.subtract(rows.column(WATERMARK), level.lateness * SECOND)
            table = rows.drop_columns([WATERMARK]).append_column(WATERMARK, late).combine_chunks()
        else:
            below = wanted[level.parent]
            moments = pa.array([end - 1 for end in below.column("window_end").to_pylist()], pa.timestamp("us", "UTC"))
            table = below.drop_columns(["window_start", "window_end"]).append_column("t", moments)
            table = table.append_column(WATERMARK, pa.array([MIN_TIME] * len(below), pa.int64())).combine_chunks()
            time = "t"
        schema = from_arrow_schema(table.drop_columns([WATERMARK]).schema)
        wanted |= expected(spark, schema, table, time, {name: level.batch()})
        if level.sink:
            actual = bench.sink.latest(name)
            if actual is not None and "revision" in actual.column_names:
                actual = actual.drop_columns(["revision"])
            assert differences(actual, wanted[name], len(level.keys), ("m",)) == [], name


def seconds(length: int, slide: int | None = None, offset: int = 0) -> WindowSpec:
    return WindowSpec(length * SECOND, (slide or length) * SECOND, offset * SECOND)


LEVELS = {
    "fine": Level(None, ("area", "user"), (seconds(2),), early=True, lateness=3),
    "plain": Level(None, ("area",), (seconds(6, 2),)),
    "middle": Level("fine", ("area",), (seconds(6), seconds(4, 2)), mapped=True, sink=False),
    "sibling": Level("fine", ("user",), (seconds(10, 5, 1),)),
    "day": Level("middle", (), (seconds(20),)),
    "top": Level("day", (), (seconds(60),)),
}
MOMENTS = st.integers(0, 40 * SECOND)
ROWS = st.tuples(
    st.sampled_from(["u", "v", None]), st.sampled_from(["a", "b"]), st.one_of(st.none(), st.integers(-9, 9)), MOMENTS
)


@st.composite
def window_specs(draw: st.DrawFn) -> WindowSpec:
    length = draw(st.sampled_from([1, 2, 3, 7, 10]))
    return seconds(length, draw(st.sampled_from([length, max(1, length // 2)])), draw(st.sampled_from([0, 0, 1])))


@st.composite
def level_sets(draw: st.DrawFn) -> Mapping[str, Level]:
    levels: dict[str, Level] = {}
    columns = ("user", "area")
    for i in range(draw(st.integers(2, 5))):
        parent = None if not i else draw(st.sampled_from([None, *levels, *levels]))
        names = columns if parent is None else levels[parent].keys
        levels[f"q{i}"] = Level(
            parent,
            tuple(name for name in names if draw(st.booleans())),
            tuple(draw(st.lists(window_specs(), min_size=1, max_size=2, unique=True))),
            parent is not None and draw(st.booleans()),
            early=draw(st.sampled_from([False, False, True])),
            lateness=draw(st.sampled_from([0, 0, 1, 5])),
        )
    read = {level.parent for level in levels.values()}
    return {name: replace(level, sink=name not in read or draw(st.booleans())) for name, level in levels.items()}


@dataclass(frozen=True)
class Example:
    """Rows and crash of each run; only the last one closes all windows."""

    levels: Mapping[str, Level]
    runs: Sequence[tuple[Sequence[tuple[Any, ...]], tuple[str, int] | None]]
    pieces: Sequence[int]
    snapshots: bool


EXAMPLES = st.builds(
    Example,
    level_sets(),
    st.lists(
        st.tuples(
            st.lists(ROWS, min_size=3, max_size=30),
            st.one_of(st.none(), st.tuples(st.sampled_from(STEPS + SNAPSHOTS), st.integers(0, 5))),
        ),
        min_size=1,
        max_size=3,
    ),
    st.lists(st.integers(3, 15), min_size=1, max_size=3),
    st.booleans(),
)


def run(spark: SparkSession, example: Example) -> None:
    source = PiecewiseSource(SCHEMA, example.pieces)

    def make(app: App, sink: MemorySink) -> None:
        if example.snapshots:
            app.settings = replace(app.settings, snapshot_bytes=1)
        define(app, sink, source, example.levels)

    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(spark, Path(directory), make)
        rows: list[tuple[Any, ...]] = []
        for added, crash in example.runs:
            source.add(added)
            rows += added
            bench.run(close_all=False, crash_at=crash)
        progress = bench.run()
        assert progress is not None
        assert [q.late_rows for q in progress.queries if q.stream != "stream1" and q.late_rows] == []
        check(spark, bench, logged_rows(source._from_python(rows), bench.cuts_of()), example.levels)


@settings(
    max_examples=2,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(EXAMPLES)
def test_each_level_equals_plain_spark_batch_over_the_level_below(interpreted: SparkSession, example: Example) -> None:
    run(interpreted, example)


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(EXAMPLES)
def test_each_level_equals_plain_spark_batch_at_length(interpreted: SparkSession, example: Example) -> None:
    run(interpreted, example)


def sample_rows(count: int = 60) -> list[tuple[Any, ...]]:
    """Rows in disorder, some of them late for the first level."""
    return [
        ("uv"[i % 2], "ab"[i // 2 % 2], i, (i * 700_000 - (8 * SECOND if i % 11 == 10 else 0))) for i in range(count)
    ]


@pytest.mark.parametrize("snapshots", [pytest.param(False, marks=pytest.mark.slow), True])
def test_killed_at_every_step(interpreted: SparkSession, tmp_path: Path, snapshots: bool) -> None:
    """One checkpoint is killed at each step in turn, in runs that always find a little more to do."""
    steps = STEPS + SNAPSHOTS if snapshots else STEPS
    source = PiecewiseSource(SCHEMA, [4])
    rows = sample_rows(len(steps) * 8)

    def make(app: App, sink: MemorySink) -> None:
        app.settings = replace(app.settings, snapshot_bytes=1 if snapshots else 1 << 20)
        define(app, sink, source, LEVELS)

    bench = Bench(interpreted, tmp_path, make)
    killed = 0
    for number, step in enumerate(steps):
        source.add(rows[number * 8 : number * 8 + 8])
        killed += bench.run(close_all=False, crash_at=(step, 2)) is None
    assert killed >= len(steps) - 1
    progress = bench.run()
    assert progress is not None
    check(interpreted, bench, logged_rows(source._from_python(rows), bench.cuts_of()), LEVELS)


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


@pytest.mark.parametrize("crash", [None, ("committed", 4)])
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
    streams = {s["name"]: [q["name"] for q in s["queries"]] for s in app.explain()["streams"]}
    assert streams == {
        "stream1": ["fine", "plain"],
        "fine.results": ["sibling", "middle"],
        "middle.results": ["day"],
        "day.results": ["top"],
    }


def test_sessions_into_days(spark: SparkSession, tmp_path: Path) -> None:
    """Sessions of each user, then how many ended on each day of a zone, and their longest."""
    source = PiecewiseSource(SCHEMA, [5])
    hour = 3_600 * SECOND
    starts = [h * hour + user * 7 * SECOND for h in (0, 3, 9, 21, 22, 30, 47, 50) for user in range(2)]
    rows = [("uv"[i % 2], "a", 1, start + step * 60 * SECOND) for i, start in enumerate(starts) for step in range(3)]
    source.add(rows)

    def make(app: App, sink: MemorySink) -> None:
        stream = app.stream(source, event_time="at", watermark=tm.watermark("5 minutes", max_ahead=None))
        sessions = stream.group_by("user").window(tm.session("10 minutes")).agg(n=tm.count())
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
