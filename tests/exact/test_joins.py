"""Joins of two streams: the rows of each window are those of a Spark batch join of what was in time for it."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from exact_helpers import SECOND, Bench, PiecewiseSource
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from oracle import WATERMARK, logged_rows
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructType

import transom as tm
from transom.app import App
from transom.errors import DefinitionError
from transom.model.window import WindowSpec, session
from transom.sinks.memory import MemorySink

LEFT = "k string, x bigint, at timestamp"
RIGHT = "K string, y bigint, t timestamp"
TEXT = "to_json(struct(unix_micros(window_start) as s, unix_micros(window_end) as e, k, x, y))"
STEPS = ["cut logged", "windows closed", "job done", "partials written", "committed", "delivered", "delivery logged"]
SNAPSHOTS = ["before snapshot", "after snapshot"]


@dataclass(frozen=True)
class Join:
    """What is joined and how."""

    window: Any
    how: str
    itself: bool = False


def renamed(df: DataFrame) -> DataFrame:
    return df.where("x > 0").select(F.col("k").alias("K"), F.col("x").alias("y"), "_event_micros")


def left_rows(df: DataFrame) -> DataFrame:
    return df.where("x < 8").select("k", "x", "at")


def define(app: App, sink: MemorySink, left: PiecewiseSource, right: PiecewiseSource, join: Join) -> None:
    watermark = tm.watermark("3 seconds", max_ahead=None)
    one = app.stream(left, event_time="at", watermark=watermark, name="left")
    if join.itself:
        other = one.map(renamed)
    else:
        two = app.stream(right, event_time="t", watermark=watermark, name="right")
        other = two.map(lambda df: df.select("K", "y", "_event_micros"))
    joined = app.join(one.map(left_rows), other, on=["k"], window=join.window, how=join.how)
    joined.group_by(end="window_end").window("1 second").agg(rows=tm.collect_list(TEXT)).to(sink, "rows")
    totals = joined.group_by("k").window("20 seconds").agg(n=tm.count(), y=tm.sum("y"))
    totals.results("totals").window("40 seconds").agg(n=tm.sum("n"), y=tm.sum("y")).to(sink, "chained")


def in_windows(rows: DataFrame, time: str, window: Any) -> DataFrame:
    """Return the rows once for each of their windows that they are in time for."""
    if isinstance(window, WindowSpec):
        found: Column = F.window(time, *(f"{m} microseconds" for m in (window.length, window.slide, window.offset)))
        rows = rows.withColumn("w", found).withColumn("s", F.expr("w.start")).withColumn("e", F.expr("w.end"))
    else:
        day = F.date_trunc("day", F.from_utc_timestamp(time, window.zone))
        rows = rows.withColumn("s", F.to_utc_timestamp(day, window.zone))
        rows = rows.withColumn("e", F.to_utc_timestamp(day + F.expr("interval 1 day"), window.zone))
    return rows.where(F.unix_micros("e") > F.col(WATERMARK)).drop("w", time, WATERMARK)


def frame(spark: SparkSession, source: PiecewiseSource, rows: Sequence[Any], cuts: Sequence[Any]) -> DataFrame:
    schema = StructType([*source.schema.fields]).add(WATERMARK, LongType())
    return spark.createDataFrame(logged_rows(source._from_python(list(rows)), cuts), schema).coalesce(1)


def batch_join(one: DataFrame, other: DataFrame, join: Join) -> DataFrame:
    right = in_windows(other, "t", join.window).withColumnsRenamed({"s": "rs", "e": "re", "K": "rk"})
    left = in_windows(one.where("x < 8"), "at", join.window)
    joined = left.join(right, F.expr("s = rs and e = re and k = rk"), join.how)
    return joined.select(F.col("s").alias("window_start"), F.col("e").alias("window_end"), "k", "x", "y")


def check(spark: SparkSession, bench: Bench, join: Join, sources: Sequence[PiecewiseSource], rows: Any) -> int:
    """Compare the joined rows, and what is computed from them; return how many there are."""
    one = frame(spark, sources[0], rows[0], bench.cuts_of("left"))
    if join.itself:
        other = one.where("x > 0").selectExpr("k as K", "x as y", "at as t", WATERMARK)
    else:
        other = frame(spark, sources[1], rows[1], bench.cuts_of("right"))
    wanted = batch_join(one, other, join).localCheckpoint()
    texts = Counter(wanted.selectExpr(TEXT).toArrow().column(0).to_pylist())
    assert Counter(text for row in bench.sink.rows("rows") for text in row["rows"]) == texts
    moment = F.window(F.timestamp_micros(F.unix_micros("window_end") - 1), "40 seconds")
    totals = wanted.groupBy(moment.alias("w")).agg(F.count("*").alias("n"), F.sum("y").alias("y"))
    table = totals.select(F.unix_micros("w.start"), F.unix_micros("w.end"), "n", "y").toArrow()
    assert bench.rows("chained") == sorted(zip(*(c.to_pylist() for c in table.columns), strict=True), key=repr)
    return sum(texts.values())


MOMENTS = st.integers(0, 60 * SECOND)
KEYS = st.sampled_from(["a", "b", "c", None])
ROWS = st.lists(st.tuples(KEYS, st.integers(-3, 9), MOMENTS), max_size=20)
WINDOWS = st.sampled_from(
    [tm.tumbling("10 seconds"), tm.sliding("10 seconds", "4 seconds"), tm.tumbling("7 seconds", offset="2 seconds")]
)
JOINS = st.builds(
    Join,
    st.one_of(WINDOWS, st.just(tm.calendar("day", zone="Asia/Kolkata"))),
    st.sampled_from(["inner", "left"]),
    st.sampled_from([False, False, True]),
)


@dataclass(frozen=True)
class Example:
    """Rows of both sides and the crash of each run; only the last one closes all windows."""

    join: Join
    runs: Sequence[tuple[Any, Any, tuple[str, int] | None]]
    pieces: Sequence[int]
    snapshots: bool


CRASHES = st.one_of(st.none(), st.tuples(st.sampled_from(STEPS + SNAPSHOTS), st.integers(0, 5)))
EXAMPLES = st.builds(
    Example,
    JOINS,
    st.lists(st.tuples(ROWS, ROWS, CRASHES), min_size=1, max_size=3),
    st.lists(st.integers(3, 15), min_size=1, max_size=3),
    st.booleans(),
)


def run(spark: SparkSession, example: Example) -> None:
    sources = PiecewiseSource(LEFT, example.pieces), PiecewiseSource(RIGHT, [5])

    def make(app: App, sink: MemorySink) -> None:
        if example.snapshots:
            app.settings = replace(app.settings, snapshot_bytes=1)
        define(app, sink, *sources, example.join)

    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(spark, Path(directory), make)
        rows: tuple[list[Any], list[Any]] = ([], [])
        for left, right, crash in example.runs:
            for source, held, added in zip(sources, rows, (left, right), strict=True):
                source.add(added)
                held += added
            bench.run(close_all=False, crash_at=crash)
        progress = bench.run()
        assert progress is not None
        assert [q.failure for q in progress.queries if q.failure] == []
        assert [q.late_rows for q in progress.queries if q.stream not in ("left", "right") and q.late_rows] == []
        check(spark, bench, example.join, sources, rows)
        assert list(bench.checkpoint.glob("sources/join1/*/*")) == []


@settings(
    max_examples=2,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(EXAMPLES)
def test_each_window_equals_a_batch_join(interpreted: SparkSession, example: Example) -> None:
    run(interpreted, example)


@pytest.mark.slow
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(EXAMPLES)
def test_each_window_equals_a_batch_join_at_length(interpreted: SparkSession, example: Example) -> None:
    run(interpreted, example)


def sample(count: int, step: int, late: int) -> list[tuple[Any, ...]]:
    """Rows over some windows, some of them late."""
    return [
        (["a", "b", "c", None][i % 4], i % 10 - 1, i * step * SECOND // 10 - (late * SECOND if i % 9 == 8 else 0))
        for i in range(count)
    ]


@pytest.mark.parametrize("snapshots", [pytest.param(False, marks=pytest.mark.slow), True])
def test_killed_at_every_step(interpreted: SparkSession, tmp_path: Path, snapshots: bool) -> None:
    """One checkpoint is killed at each step in turn, in runs that always find a little more to do."""
    join = Join(tm.sliding("6 seconds", "3 seconds"), "left")
    steps = STEPS + SNAPSHOTS if snapshots else STEPS
    sources = PiecewiseSource(LEFT, [6]), PiecewiseSource(RIGHT, [5])
    rows = sample(len(steps) * 8, 10, 15), sample(len(steps) * 8, 10, 4)

    def make(app: App, sink: MemorySink) -> None:
        app.settings = replace(app.settings, snapshot_bytes=1 if snapshots else 1 << 20)
        define(app, sink, *sources, join)

    bench = Bench(interpreted, tmp_path, make)
    killed = 0
    for number, step in enumerate(steps):
        for source, added in zip(sources, rows, strict=True):
            source.add(added[number * 8 : number * 8 + 8])
        killed += bench.run(close_all=False, crash_at=(step, 2 + number % 2)) is None
    assert killed >= len(steps) - 1
    progress = bench.run()
    assert progress is not None
    assert {q.name: q.late_rows > 0 for q in progress.queries} | {"join1.left": True} == {
        **dict.fromkeys(["join1.right", "rows", "totals", "chained"], False),
        "join1.left": True,
    }
    assert check(interpreted, bench, join, sources, rows) > 50
    assert list(bench.checkpoint.glob("sources/join1/*/*")) == []


def small(spark: SparkSession, tmp_path: Path, how: str = "inner", pieces: Sequence[int] = (1,)) -> Any:
    sources = PiecewiseSource(LEFT, pieces), PiecewiseSource(RIGHT, pieces)
    join = Join(tm.tumbling("10 seconds"), how)
    return Bench(spark, tmp_path, lambda app, sink: define(app, sink, *sources, join)), *sources


def texts(bench: Bench) -> list[str]:
    return sorted(text for row in bench.sink.rows("rows") for text in row["rows"])


def test_a_window_is_joined_when_both_watermarks_have_passed_it(spark: SparkSession, tmp_path: Path) -> None:
    bench, left, right = small(spark, tmp_path)
    left.add([("a", 1, 5 * SECOND), ("a", 2, 40 * SECOND)])
    right.add([("a", 7, 6 * SECOND), ("a", 8, 12 * SECOND)])
    bench.run(close_all=False)
    assert texts(bench) == []
    right.add([("a", 9, 13 * SECOND)])
    bench.run(close_all=False)
    assert texts(bench) == ['{"s":0,"e":10000000,"k":"a","x":1,"y":7}']


def test_a_silent_side_holds_the_windows_until_the_end(spark: SparkSession, tmp_path: Path) -> None:
    bench, left, right = small(spark, tmp_path, "left")
    left.add([("a", 1, 5 * SECOND), ("a", 2, 40 * SECOND)])
    bench.run(close_all=False)
    assert texts(bench) == []
    bench.run()
    assert texts(bench) == ['{"s":0,"e":10000000,"k":"a","x":1}', '{"s":40000000,"e":50000000,"k":"a","x":2}']
    right.add([("a", 1, 45 * SECOND), ("a", 3, 65 * SECOND)])
    left.add([("a", 4, 66 * SECOND)])
    progress = bench.run()
    assert progress is not None
    assert [q.late_rows for q in progress.queries if q.name == "join1.right"] == [1]
    assert texts(bench)[2:] == ['{"s":60000000,"e":70000000,"k":"a","x":4,"y":3}']


def test_windows_that_match_nothing_cost_no_job_and_leave_no_file(spark: SparkSession, tmp_path: Path) -> None:
    bench, left, right = small(spark, tmp_path, pieces=[2])
    left.add([("a", i, i * 10 * SECOND) for i in range(6)])
    right.add([("a", 1, SECOND), ("b", 2, 52 * SECOND), ("b", 2, 90 * SECOND)])
    progress = bench.run()
    assert progress is not None
    assert [(s.name, s.cuts) for s in progress.streams][2] == ("join1", 2)
    assert texts(bench) == ['{"s":0,"e":10000000,"k":"a","x":0,"y":1}']
    assert list(bench.checkpoint.glob("sources/join1/*/*")) == []


def test_rows_of_a_cut_that_was_not_committed_are_replaced(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, left, right = small(spark, tmp_path, pieces=[10])
    left.add([("a", i, i * SECOND) for i in range(6)])
    right.add([("a", 1, SECOND)])
    assert bench.run(crash_at=("job done", 0)) is None
    (kept,) = bench.checkpoint.glob("sources/join1/left/*")
    (kept / "part-left-behind.parquet").write_bytes(b"nonsense")
    (kept.parent / "000000000099").mkdir()
    bench.run()
    assert len(texts(bench)) == 6
    assert list(bench.checkpoint.glob("sources/join1/*/*")) == []


def test_a_side_that_fails_ends_the_join_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    left, right = PiecewiseSource(LEFT, [2]), PiecewiseSource(RIGHT, [2])

    def make(app: App, sink: MemorySink) -> None:
        one = app.stream(left, event_time="at", watermark=tm.watermark(0, max_ahead=None))
        two = app.stream(right, event_time="t", watermark=tm.watermark(0, max_ahead=None))
        one.window("10 seconds").agg(n=tm.count()).to(sink, "good")
        bad = one.map(lambda df: df.withColumn("bad", F.expr("1 / (x - 3)")))
        joined = app.join(bad, two.map(lambda df: df.drop("t")), on="k", window="10 seconds", name="pairs")
        joined.window("10 seconds").agg(n=tm.count()).to(sink, "of bad")

    left.add([("a", i, i * SECOND) for i in range(6)])
    right.add([("a", i, i * SECOND) for i in range(6)])
    bench = Bench(spark, tmp_path, make)
    progress = bench.run()
    assert progress is not None
    failures = {query.name: query.failure for query in progress.queries}
    assert failures["good"] is None
    assert "zero" in str(failures["pairs.left"]).lower()
    assert failures["of bad"] == "it reads the rows of pairs.left, which failed"
    assert bench.rows("good") == [(0, 10 * SECOND, 6)]


def test_the_rows_of_a_cut_are_read_once(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: Counter[str] = Counter()
    source_read = PiecewiseSource.read

    def counted(self: PiecewiseSource, *args: Any) -> DataFrame:
        read[self.schema.names[1]] += 1
        return source_read(self, *args)

    monkeypatch.setattr(PiecewiseSource, "read", counted)
    bench, left, right = small(spark, tmp_path, pieces=[10])
    left.add([("a", i, i * SECOND) for i in range(6)])
    right.add([("a", 1, SECOND)])
    bench.run()
    assert read == {"x": 1, "y": 1}


def test_a_join_that_is_added_later_has_whole_windows_only(spark: SparkSession, tmp_path: Path) -> None:
    """Panes of the same rows are there, from a query that ran before; the rows themselves are not."""
    left, right = PiecewiseSource(LEFT, [5]), PiecewiseSource(RIGHT, [5])
    joins: list[str] = []

    def make(app: App, sink: MemorySink) -> None:
        one = app.stream(left, event_time="at", watermark=tm.watermark(0, max_ahead=None))
        two = app.stream(right, event_time="t", watermark=tm.watermark(0, max_ahead=None))
        one.window("10 seconds").agg(rows=tm.count()).to(sink, "before")
        two.window("10 seconds").agg(rows=tm.count()).to(sink, "before too")
        for name in joins:
            joined = app.join(one, two.map(lambda df: df.drop("t")), on="k", window="10 seconds", name=name)
            joined.group_by("k").window("10 seconds").agg(n=tm.count()).to(sink, "pairs")

    bench = Bench(spark, tmp_path, make)
    for source in (left, right):
        source.add([("a", i, i * SECOND) for i in range(25)])
    bench.run(close_all=False)
    joins.append("j")
    for source, until in ((left, 40), (right, 50)):
        source.add([("a", i, i * SECOND) for i in range(25, until)])
    bench.run(close_all=False, crash_at=("committed", 3))
    left.add([("a", i, i * SECOND) for i in range(40, 50)])
    bench.run()
    assert bench.rows("before") == [(i * 10 * SECOND, (i + 1) * 10 * SECOND, 10) for i in range(5)]
    assert bench.rows("pairs") == [(i * 10 * SECOND, (i + 1) * 10 * SECOND, "a", 100) for i in (3, 4)]


def test_results_are_joined_with_rows_and_joined_again(spark: SparkSession, tmp_path: Path) -> None:
    """Chains and joins of any shape: how many rows each minute has against each of its rows, twice."""
    source = PiecewiseSource(LEFT, [7])
    source.add([("ab"[i % 2], i, i * SECOND) for i in range(40)])

    def make(app: App, sink: MemorySink) -> None:
        rows = app.stream(source, event_time="at", watermark=tm.watermark(0, max_ahead=None), name="rows")
        counts = rows.group_by("k").window("5 seconds").agg(n=tm.count()).results("counts")
        counts = counts.map(lambda df: df.select("k", "n", "_event_micros"))
        first = app.join(rows.where("x < 35"), counts, on="k", window="10 seconds", how="left", name="first")
        again = first.map(lambda df: df.select("k", F.col("n").alias("m"), "_event_micros"))
        second = app.join(again, counts, on="k", window="20 seconds", name="second")
        second.group_by("k").window("20 seconds").agg(pairs=tm.count(), n=tm.sum("n * m")).to(sink, "q")

    bench = Bench(spark, tmp_path, make)
    bench.run(close_all=False, crash_at=("job done", 9))
    progress = bench.run()
    assert progress is not None
    assert [query.failure for query in progress.queries] == [None] * len(progress.queries)
    wanted = []
    for start in (0, 20):
        for key in "ab":
            fives = [sum("ab"[i % 2] == key for i in range(at, at + 5)) for at in range(start, start + 20, 5)]
            pairs = [
                (m, n)
                for ten in (0, 1)
                for i in range(start + ten * 10, start + ten * 10 + 10)
                if "ab"[i % 2] == key and i < 35
                for m in fives[ten * 2 : ten * 2 + 2]
                for n in fives
            ]
            window = (start * SECOND, (start + 20) * SECOND, key)
            wanted.append((*window, len(pairs), sum(m * n for m, n in pairs)))
    assert bench.rows("q") == wanted


def two(app: App) -> tuple[Any, Any]:
    left = app.stream(PiecewiseSource(LEFT), event_time="at", name="left")
    return left, app.stream(PiecewiseSource("k bigint, X bigint, t timestamp"), event_time="t", name="right")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"on": "z"}, "left side has no column 'z'.*k, x, at"),
        ({"on": "at"}, "right side has no column 'at'"),
        ({"on": "k"}, "two columns 'x'.*map"),
        ({"on": []}, "names no columns"),
        ({"on": "k", "how": "outer"}, "how='outer' is unknown"),
        ({"on": "k", "window": session("1 minute")}, "depends on the rows"),
    ],
)
def test_joins_that_cannot_work(spark: SparkSession, tmp_path: Path, arguments: Any, message: str) -> None:
    app = App(spark, tmp_path / "checkpoint")
    left, right = two(app)

    def plan() -> None:
        joined = app.join(left, right, **{"window": "10 seconds", **arguments})
        joined.window("10 seconds").agg(n=tm.count()).to(MemorySink(), "q")
        app.explain()

    with pytest.raises(DefinitionError, match=message):
        plan()


def test_explain_shows_the_join(spark: SparkSession, tmp_path: Path) -> None:
    app = App(spark, tmp_path / "checkpoint")
    define(app, MemorySink(), PiecewiseSource(LEFT), PiecewiseSource(RIGHT), Join(tm.tumbling("10 seconds"), "left"))
    streams = {s["name"]: (s["source"], [q["name"] for q in s["queries"]]) for s in app.explain()["streams"]}
    assert streams["left"][1] == ["join1.left"]
    assert streams["join1"] == ("left join of left and right on k within 10 seconds", ["rows", "totals"])
