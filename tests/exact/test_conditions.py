"""Queries that see different rows of one branch share a pass, and each sees just its own rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from exact_helpers import SECOND, Bench, PiecewiseSource
from oracle import BatchQuery, differences, expected, logged_rows
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import transom as tm
from transom.api.app import App, Stream
from transom.errors import DefinitionError, JobChangedError
from transom.model.window import WindowSpec
from transom.sinks.inmemory import MemorySink

pytestmark = pytest.mark.usefixtures("compiled_once")

SCHEMA = "k string, area string, x bigint, text string, at timestamp"
TEN = WindowSpec(10 * SECOND, 10 * SECOND, 0)
SLIDING = WindowSpec(20 * SECOND, 5 * SECOND, 0)


def rows(count: int = 60) -> list[tuple[Any, ...]]:
    return [
        ("abc"[i % 3], "pq"[i % 2], None if i % 11 == 0 else i % 7 - 2, str(i % 5), (i * 37 % 60) * SECOND)
        for i in range(count)
    ]


def double(df: DataFrame) -> DataFrame:
    return df.withColumn("x", F.col("x") * 2)


# Transom's rows, keys, and plain Spark's rows and keys.
CASES: dict[str, tuple[Callable[[Any], Any], dict[str, str], Callable[[DataFrame], DataFrame], WindowSpec]] = {
    "all": (lambda s: s, {"k": "k"}, lambda df: df, TEN),
    "text": (lambda s: s.where("x > 0"), {"k": "k"}, lambda df: df.where("x > 0"), TEN),
    "column": (lambda s: s.where(F.col("x") <= 1), {"k": "k"}, lambda df: df.where("x <= 1"), TEN),
    "nothing": (lambda s: s.where("x > 100"), {"k": "k"}, lambda df: df.where("x > 100"), TEN),
    "two": (
        lambda s: s.where("x != 0").where("6 div x > 1 OR x < 0"),
        {"k": "k"},
        lambda df: df.where("x != 0").where("6 div x > 1 OR x < 0"),
        SLIDING,
    ),
    "mixed": (
        lambda s: s.where("x IS NOT NULL").where(F.col("k") == "a"),
        {"k": "k"},
        lambda df: df.where("x IS NOT NULL AND k = 'a'"),
        TEN,
    ),
    "before map": (
        lambda s: s.where("x > 1").map(double).where("x < 8"),
        {"k": "k"},
        lambda df: double(df.where("x > 1")).where("x < 8"),
        TEN,
    ),
    "coarser": (lambda s: s.where("x > 0"), {}, lambda df: df.where("x > 0"), SLIDING),
    "finer": (lambda s: s.where("x < 2"), {"area": "area", "k": "k"}, lambda df: df.where("x < 2"), TEN),
    "key fails elsewhere": (
        lambda s: s.where("x != 0"),
        {"d": "12 div x"},
        lambda df: df.where("x != 0"),
        TEN,
    ),
}
AGGREGATES = {
    "n": (tm.count(), "count(*)"),
    "xs": (tm.count("x"), "count(x)"),
    "total": (tm.sum("x"), "sum(x)"),
    "last": (tm.last("x"), "max(struct(at, x)).x"),
    "texts": (tm.collect_set("text", 3), "slice(sort_array(collect_set(text)), 1, 3)"),
}
DIVIDED = {"q": (tm.sum("12 div x"), "sum(12 div x)")}
"""Fails for rows that other queries see."""


def aggregates(name: str) -> dict[str, Any]:
    return AGGREGATES | (DIVIDED if name in ("two", "key fails elsewhere") else {})


@pytest.fixture(scope="module")
def plain(interpreted: SparkSession) -> Callable[[pa.Table], dict[str, pa.Table]]:
    """What plain Spark gives for records with the watermarks in force; a job for those that differ only."""
    known: list[tuple[pa.Table, dict[str, pa.Table]]] = []
    batches = {
        name: BatchQuery(
            (window,),
            {key: F.expr(text) for key, text in keys.items()},
            {column: F.expr(text) for column, (_, text) in aggregates(name).items()},
            select,
        )
        for name, (_, keys, select, window) in CASES.items()
    }

    def results(table: pa.Table) -> dict[str, pa.Table]:
        for before, found in known:
            if before.equals(table):
                return found
        known.append((table, expected(interpreted, PiecewiseSource(SCHEMA).schema, table, "at", batches)))
        return known[-1][1]

    return results


@pytest.mark.parametrize("share", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_each_query_sees_its_rows(interpreted, tmp_path, plain, share: bool):
    source = PiecewiseSource(SCHEMA, (17, 20))

    def define(app: App, sink: MemorySink) -> None:
        stream = app.stream(source, event_time="at", watermark="5 seconds")
        for name, (select, keys, _, window) in CASES.items():
            made = {column: aggregate for column, (aggregate, _) in aggregates(name).items()}
            grouped = select(stream).group_by(**keys)
            grouped.window(tm.sliding(window.length, every=window.slide)).agg(**made).to(sink, name)

    bench = Bench(interpreted, tmp_path, define, share=share)
    parts = [component["key_sets"] for component in bench.app().explain().streams[0]["components"]]
    source.add(rows(40))
    bench.run(close_all=False, crash_at=("committed", 1))
    source.add(rows()[40:])
    progress = bench.run()
    wanted = plain(logged_rows(source._from_python(rows()), bench.cuts_of()))
    for name, (_, keys, _, _) in CASES.items():
        assert differences(bench.sink.to_table(name), wanted[name], len(keys)) == [], name
    assert bench.sink.to_table("nothing") is None
    assert progress is not None
    assert all(query.failure is None for query in progress.queries)
    assert len(parts) < len(CASES) if share else all(len(key_sets) == 1 for key_sets in parts)


def test_late_rows_are_those_that_the_query_would_have_seen(spark, tmp_path):
    source = PiecewiseSource(SCHEMA, (3,))
    source.add([("a", "p", 1, "", 0), ("a", "p", 1, "", 30 * SECOND), ("a", "p", 1, "", 31 * SECOND)])
    source.add([("a", "p", 1, "", SECOND), ("a", "p", -1, "", 2 * SECOND), ("b", "p", None, "", 3 * SECOND)])

    def define(app: App, sink: MemorySink) -> None:
        stream = app.stream(source, event_time="at")
        for name, rows_seen in {"all": stream, "up": stream.where("x > 0"), "b": stream.where("k = 'b'")}.items():
            rows_seen.group_by("k").window("10 seconds").agg(n=tm.count()).to(sink, name)

    bench = Bench(spark, tmp_path, define)
    progress = bench.run()
    assert progress is not None
    assert {query.name: query.late_rows for query in progress.queries} == {"all": 3, "up": 1, "b": 1}
    late = [(letter["event_time"] // SECOND, letter["queries"]) for letter in bench.letters()]
    assert sorted(late) == [(1, ["all", "up"]), (2, ["all"]), (3, ["all", "b"])]


def good(stream: Stream, sink: MemorySink) -> None:
    stream.where("x > 0").group_by("k").window("10 seconds").agg(n=tm.count()).to(sink, "good")


def test_a_condition_that_cannot_work_is_refused_by_the_name_of_its_query(spark, tmp_path):
    app = App(spark, tmp_path / "checkpoint")
    stream, sink = app.stream(PiecewiseSource(SCHEMA), event_time="at"), MemorySink()
    good(stream, sink)
    stream.where("fare > 0").group_by("k").window("10 seconds").agg(n=tm.count()).to(sink, "bad")
    with pytest.raises(DefinitionError, match=r"query 'bad'.*fare"):
        app.explain()
    with pytest.raises(DefinitionError, match="where"):
        stream.where("  ")


def test_a_condition_that_fails_takes_its_query_out(spark, tmp_path):
    source = PiecewiseSource(SCHEMA)
    source.add([("a", "p", 1, "1", 0), ("a", "p", 2, "no", SECOND)])

    def define(app: App, sink: MemorySink) -> None:
        stream = app.stream(source, event_time="at")
        good(stream, sink)
        stream.where("int(text) > 0").group_by("k").window("10 seconds").agg(n=tm.count()).to(sink, "bad")

    bench = Bench(spark, tmp_path, define)
    progress = bench.run()
    assert progress is not None
    assert [bool(query.failure) for query in progress.queries] == [False, True]
    assert bench.rows("good") == [(0, 10 * SECOND, "a", 2)]


def test_what_fails_only_when_queries_share_is_computed_apart(spark, tmp_path):
    """Spark calls a Python function for rows that the condition around it excludes."""
    source = PiecewiseSource(SCHEMA, (2,))
    source.add([("a", "p", 1, "1", 0), ("a", "p", -1, "no", SECOND), ("a", "p", 3, "3", 2 * SECOND)])
    strict = F.udf(int, "long", useArrow=False)("text")

    def define(app: App, sink: MemorySink) -> None:
        stream = app.stream(source, event_time="at")
        stream.where("x > 0").group_by("k").window("10 seconds").agg(s=tm.sum(strict)).to(sink, "strict")
        stream.where("x < 0").group_by("k").window("10 seconds").agg(n=tm.count()).to(sink, "other")

    bench = Bench(spark, tmp_path, define)
    progress = bench.run()
    assert progress is not None
    assert [query.failure for query in progress.queries] == [None, None]
    assert bench.rows("strict") == [(0, 10 * SECOND, "a", 4)]
    assert bench.rows("other") == [(0, 10 * SECOND, "a", 1)]


def test_a_changed_condition_is_refused(spark, tmp_path):
    source, condition = PiecewiseSource(SCHEMA), ["x > 0"]
    source.add(rows(5))

    def define(app: App, sink: MemorySink) -> None:
        stream = app.stream(source, event_time="at").where(condition[0])
        stream.group_by("k").window("10 seconds").agg(n=tm.count()).to(sink, "q")

    bench = Bench(spark, tmp_path, define)
    bench.run()
    condition[0] = "x > 1"
    with pytest.raises(JobChangedError, match="where: x > 1"):
        bench.run()


def test_conditions_are_one_if_they_surely_mean_the_same(spark, tmp_path):
    """Texts that are equal, and Columns without functions; literals of one text can have two types."""
    stream = App(spark, tmp_path / "checkpoint").stream(PiecewiseSource(SCHEMA), event_time="at")
    even = F.udf(lambda x: x % 2 == 0, "boolean")
    (same, other), (one, again), (int_, long), (called, anew) = [
        [stream.where(condition).condition for condition in pair]
        for pair in [
            (F.col("x") > 0, F.col("x") > 0),
            ("x > 0", "x > 0"),
            (F.col("x") > F.lit(1), F.col("x") > F.lit(1.0).cast("int")),
            (even("x"), even("x")),
        ]
    ]
    assert same == other
    assert one == again
    assert int_ != long
    assert called != anew
    assert called.text == anew.text == "Column<'<lambda>(x)'>"
