"""Joins of two streams, case by case: when windows are joined, what is kept, what fails, what is refused."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from exact_helpers import SECOND, Bench, PiecewiseSource
from joined import LEFT, RIGHT, Join, define, define_rows, join_of
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import transom as tm
from transom.api.app import App
from transom.engine.spark.rowfiles import Whole
from transom.errors import CheckpointCorruptError, DefinitionError
from transom.sinks.inmemory import MemorySink

pytestmark = pytest.mark.usefixtures("compiled_once")


def small(spark: SparkSession, tmp_path: Path, how: str = "inner", pieces: Sequence[int] = (1,)) -> Any:
    sources = PiecewiseSource(LEFT, pieces), PiecewiseSource(RIGHT, pieces)
    join = Join(tm.tumbling("10 seconds"), how)
    return Bench(spark, tmp_path, lambda app, sink: define_rows(join_of(app, *sources, join), sink, join)), *sources


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


@pytest.mark.slow
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


def test_a_side_with_longer_windows_does_not_keep_the_other_from_ending(spark: SparkSession, tmp_path: Path) -> None:
    """At the end the left side is closed up to a minute, the right one up to where its last row is."""
    left, right = PiecewiseSource(LEFT), PiecewiseSource(RIGHT)

    def both(app: App, sink: MemorySink) -> None:
        one, two = app.stream(left, event_time="at"), app.stream(right, event_time="t")
        one.window("1 minute").agg(n=tm.count()).to(sink, "longer")
        joined = app.join(one, two.map(lambda df: df.select("K", "y", "_event_micros")), on=["k"], window="5 seconds")
        joined.window("20 seconds").agg(n=tm.count()).to(sink, "joined")

    left.add([("a", 1, 2 * SECOND)])
    right.add([("a", 7, 3 * SECOND)])
    bench = Bench(spark, tmp_path, both)
    bench.run()
    assert bench.rows("joined") == [(0, 20 * SECOND, 1)]


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_results_are_joined_with_rows_and_joined_again(spark: SparkSession, tmp_path: Path) -> None:
    """Chains and joins of any shape: how many rows each minute has against each of its rows, twice."""
    source = PiecewiseSource(LEFT, [7])
    source.add([("ab"[i % 2], i, i * SECOND) for i in range(40)])

    def make(app: App, sink: MemorySink) -> None:
        rows = app.stream(source, event_time="at", watermark=tm.watermark(0, max_ahead=None), name="rows")
        counts = rows.group_by("k").window("5 seconds").agg(n=tm.count()).results("counts")
        counts = counts.map(lambda df: df.select("k", "n", "_event_micros"))
        first = app.join(rows.where("x < 35"), counts, on="k", window="10 seconds", how="left_outer", name="first")
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
        ({"on": "k", "how": "cross"}, "how='cross' cannot be had here"),
        ({"on": "k", "between": ("0 seconds", "1 hour")}, "it needs one of window and between"),
        ({"on": "k", "window": None}, "it needs one of window and between"),
        ({"on": "k", "window": None, "between": "1 hour"}, "between='1 hour' is no pair of durations"),
        ({"on": "k", "window": None, "between": ("1 hour", "0 seconds")}, "between 1 hour and 0 seconds is nothing"),
        ({"on": "k", "event_time": "middle"}, "event_time='middle' cannot be had .* 'window' or 'left' or 'right'"),
        ({"on": "k", "event_time": "right", "how": "semi"}, "event_time='right' cannot be had for a left_semi join"),
        ({"on": "k", "window": tm.session_window("1 minute")}, "depends on the rows"),
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
    streams = {s["name"]: (s["source"], [q["name"] for q in s["queries"]]) for s in app.explain().streams}
    assert streams["left"][1] == ["join1.left"]
    assert streams["join1"] == ("left join of left and right on k within 10 seconds", ["rows", "totals"])


def test_explain_shows_the_bounds_of_a_join(spark: SparkSession, tmp_path: Path) -> None:
    app, sources = App(spark, tmp_path / "checkpoint"), (PiecewiseSource(LEFT), PiecewiseSource(RIGHT))
    define(app, MemorySink(), *sources, Join(None, "full", between=(-5 * SECOND, 7_200 * SECOND), time="right"))
    (joined,) = (stream["source"] for stream in app.explain().streams if stream["name"] == "join1")
    assert joined == (
        "full join of left and right on k, right 5 seconds before to 2 hours after left, event time of the right side"
    )


def test_a_row_without_a_match_comes_when_the_bound_has_passed(spark: SparkSession, tmp_path: Path) -> None:
    """A pair comes as soon as both watermarks have passed its later row; what is left over waits for the bound."""
    left, right = PiecewiseSource(LEFT, [1]), PiecewiseSource(RIGHT, [1])
    join = Join(None, "left", between=(0, 20 * SECOND))
    bench = Bench(spark, tmp_path, lambda app, sink: define_rows(join_of(app, left, right, join), sink, join))
    left.add([("a", 1, 5 * SECOND), ("b", 2, 6 * SECOND), ("c", 3, 16 * SECOND)])
    right.add([("a", 7, 8 * SECOND), ("c", 9, 16 * SECOND)])
    bench.run(close_all=False)
    assert files_of(bench) == {"left": 3, "right": 2}
    assert texts(bench) == []  # the joined rows are there, and are held back as an older one may come until 26
    right.add([("b", 8, 30 * SECOND + 1)])
    left.add([("d", 4, 60 * SECOND)])
    bench.run(close_all=False)
    assert texts(bench) == ['{"e":5000000,"k":"a","x":1,"y":7}', '{"e":6000000,"k":"b","x":2}']
    bench.run()
    assert len(texts(bench)) == 4
    assert {'{"e":16000000,"k":"c","x":3,"y":9}', '{"e":60000000,"k":"d","x":4}'} < set(texts(bench))
    assert files_of(bench) == {"left": 0, "right": 0}


def files_of(bench: Bench) -> dict[str, int]:
    """The pieces of rows that each side of the join keeps."""
    return {side: len(list(bench.checkpoint.glob(f"sources/join1/{side}/*"))) for side in ("left", "right")}


@pytest.mark.parametrize(
    ("damage", "snapshot"),
    [
        ("flip", True),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in (("cut", False), ("remove", True), ("older", True))),
        ("remove all", False),
    ],
)
def test_rows_that_are_not_those_that_were_kept(
    spark: SparkSession, tmp_path: Path, damage: str, snapshot: bool
) -> None:
    bench, left, right = small(spark, tmp_path)
    left.add([("a", 1, 5 * SECOND), ("a", 2, 6 * SECOND)])
    right.add([("a", 7, 6 * SECOND)])
    bench.run(close_all=False, crash_at=None if snapshot else ("committed", 2))
    older, newer = sorted(bench.checkpoint.glob("sources/join1/left/*"))
    (file,) = newer.glob("*/*")
    data = file.read_bytes()
    if damage == "flip":
        file.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    elif damage == "cut":
        file.write_bytes(data[:-100])
    elif damage == "older":
        (other,) = older.glob("*/*")
        file.write_bytes(other.read_bytes())
    else:
        file.unlink()
        if damage == "remove all":
            shutil.rmtree(newer)
    with pytest.raises(CheckpointCorruptError, match=str(file)):
        bench.run()
    if damage == "flip":
        file.write_bytes(data)
        bench.run()
        assert len(texts(bench)) == 2


def test_a_page_that_is_damaged_after_it_was_checked(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, left, right = small(spark, tmp_path)
    left.add([("a", 1, 5 * SECOND), ("a", 2, 6 * SECOND)])
    right.add([("a", 7, 6 * SECOND)])
    checked, whole_ones = Whole.paths, {}

    def damaged(whole: Whole, pieces: Any) -> Any:
        paths = checked(whole, pieces)
        data = whole_ones[paths[0]] = paths[0].read_bytes()
        column = pq.ParquetFile(paths[0]).metadata.row_group(0).column(1)
        last = (column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size - 1
        paths[0].write_bytes(data[:last] + bytes([data[last] ^ 1]) + data[last + 1 :])
        return paths

    monkeypatch.setattr(Whole, "paths", damaged)
    with pytest.raises(CheckpointCorruptError, match=r"join1.* is not the one that the log tells of"):
        bench.run()
    assert texts(bench) == []
    monkeypatch.undo()
    for path, data in whole_ones.items():
        path.write_bytes(data)
    bench.run()
    assert len(texts(bench)) == 2
