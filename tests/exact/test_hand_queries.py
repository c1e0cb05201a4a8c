"""Queries that come, go, change or fail: the others' results stay what they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from exact_helpers import SECOND, Bench, PiecewiseSource
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import transom as tm
from transom.api.app import App, Stream
from transom.errors import JobChangedError
from transom.sinks.inmemory import MemorySink

SCHEMA = "k string, text string, x bigint, at timestamp"
ROWS = [("a", "1", 1, 1), ("b", "2", 2, 2), ("a", "no", 2**63 - 1, 3), ("b", "4", 4, 21), ("a", "5", 2**62, 22)]
GOOD = [
    (0, 10 * SECOND, "a", 2),
    (0, 10 * SECOND, "b", 1),
    (20 * SECOND, 30 * SECOND, "a", 1),
    (20 * SECOND, 30 * SECOND, "b", 1),
]


def rows() -> list[tuple[Any, ...]]:
    return [(k, text, x, second * SECOND) for k, text, x, second in ROWS]


def good(stream: Stream, sink: MemorySink, name: str = "good") -> None:
    stream.group_by("k").window("10 seconds").agg(n=tm.count()).to(sink, name)


def cast_fails(stream: Stream, sink: MemorySink, directory: Path) -> None:
    stream.group_by("k").window("10 seconds").agg(s=tm.sum("cast(text as int)")).to(sink, "bad")


def sum_overflows_between_cuts(stream: Stream, sink: MemorySink, directory: Path) -> None:
    stream.group_by("k").window("10 seconds").agg(s=tm.sum("x")).to(sink, "bad")


def function_raises(stream: Stream, sink: MemorySink, directory: Path) -> None:
    strict = F.udf(int, "long", useArrow=False)
    stream.map(lambda df: df.withColumn("y", strict("text"))).window("10 seconds").agg(s=tm.sum("y")).to(sink, "bad")


def column_goes_missing(stream: Stream, sink: MemorySink, directory: Path) -> None:
    """The table that the query joins loses a column while the application runs."""

    def joined(df: DataFrame) -> DataFrame:
        names = df.sparkSession.read.parquet(str(directory / "names")).select("k", "name")
        return df.join(names, "k", "left")

    stream.map(joined).group_by("name").window("10 seconds").agg(n=tm.count()).to(sink, "bad")


@pytest.mark.parametrize(
    "bad",
    [
        *(pytest.param(each, marks=pytest.mark.slow) for each in (cast_fails, column_goes_missing)),
        sum_overflows_between_cuts,
        function_raises,
    ],
    ids=lambda f: f.__name__,
)
def test_a_query_that_fails_leaves_the_others_alone(spark, tmp_path, bad: Callable[..., None]):
    source = PiecewiseSource(SCHEMA, (1,))
    source.add(rows())
    names = tmp_path / "names"
    names.mkdir()
    pq.write_table(pa.table({"k": ["a"], "name": ["A"]}), names / "1.parquet")

    def define(app: App, sink: MemorySink) -> None:
        stream = app.stream(source, event_time="at")
        good(stream, sink)
        bad(stream, sink, tmp_path)
        stream.map(lambda df: df.where("k = 'a'")).window("30 seconds").agg(n=tm.count()).to(sink, "other")

    bench = Bench(spark, tmp_path, define)

    def lose(step: str) -> None:
        if step == "committed":
            pq.write_table(pa.table({"k": ["a"], "other": ["A"]}), names / "1.parquet")

    progress = bench.run(on_step=lose)
    assert bench.rows("good") == GOOD
    assert bench.rows("other") == [(0, 30 * SECOND, 3)]
    assert bench.rows("bad") == []
    assert progress is not None
    failures = {query.name: query.failure for query in progress.queries}
    assert failures["bad"]
    assert failures["good"] is failures["other"] is None


def test_added_and_removed_queries_on_an_old_checkpoint(spark, tmp_path):
    """A new query has the panes of others; else its first window begins after all rows that were read without it."""
    source = PiecewiseSource(SCHEMA)
    queries = ["kept", "removed"]

    def define(app: App, sink: MemorySink) -> None:
        stream = app.stream(source, event_time="at", watermark="1 minute")
        for name in queries:
            good(stream, sink, name)
        if "added" in queries:
            stream.group_by("k").window("10 seconds").agg(low=tm.min("x")).to(sink, "new aggregate")

    bench = Bench(spark, tmp_path, define)
    source.add(rows())
    bench.run(close_all=False)
    queries[:] = ["added", "kept"]
    source.add([("a", "", 0, 25 * SECOND), ("c", "", 0, 31 * SECOND)])
    bench.run()
    last = (30 * SECOND, 40 * SECOND, "c", 1)
    assert bench.rows("kept") == [*GOOD[:2], (20 * SECOND, 30 * SECOND, "a", 2), GOOD[3], last]
    assert bench.rows("removed") == []
    assert bench.rows("added") == bench.rows("kept")
    assert bench.rows("new aggregate") == [(*last[:3], 0)]


def test_a_changed_query_is_refused_with_the_difference(spark, tmp_path):
    source = PiecewiseSource(SCHEMA)
    source.add(rows())
    length = ["10 seconds"]

    def define(app: App, sink: MemorySink) -> None:
        app.stream(source, event_time="at").group_by("k").window(*length).agg(n=tm.count()).to(sink, "q")

    bench = Bench(spark, tmp_path, define)
    bench.run(close_all=False)
    before = bench.rows("q")
    length[:] = ["20 seconds"]
    with pytest.raises(JobChangedError) as refused:
        bench.run()
    text = str(refused.value)
    assert "'q'" in text
    assert '-windows: ["10 seconds"]' in text
    assert '+windows: ["20 seconds"]' in text
    length[:] = ["10 seconds"]
    assert bench.rows("q") == before
    bench.run()
    assert bench.rows("q") == GOOD
