"""The standing property: whatever the rows, windows, cuts and restarts, each window equals plain Spark batch."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from exact_helpers import SECOND, Bench, PiecewiseSource, examples, few_examples, without_dates
from hypothesis import given
from hypothesis import strategies as st
from oracle import BatchQuery, differences, expected, logged_rows
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import transom as tm
from transom.api.app import App
from transom.model.window import WindowSpec
from transom.sinks.inmemory import MemorySink
from transom.windows.aggregates.base import Aggregate

pytestmark = pytest.mark.usefixtures("compiled_once")

SCHEMA = """`the key` string, `a.b` decimal(12,3), dbl double, big bigint, Mixed string,
            `n n` int, `x.y` double, dec decimal(20,4), word string, at timestamp"""

TEXTS = st.sampled_from([None, "", "a", "A", "é", "e\u0301", "\U0001f600", "NaN", "null", "ä ö", "\x00"])
DOUBLES = st.sampled_from([None, 0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1.5, -2.25, 5e-324, 1e300])
NUMBERS = st.one_of(st.none(), st.integers(-1000, 1000).map(lambda n: n / 7), st.sampled_from([0.0, -0.0]))
TIMES = st.one_of(
    st.integers(-20, 40).map(lambda s: s * SECOND),
    st.integers(-20 * SECOND, 40 * SECOND),
    st.integers(-20, 40).map(lambda s: s * SECOND),
    st.tuples(st.integers(-20, 40), st.sampled_from([-1, 1, 500_000, 333_333])).map(lambda t: t[0] * SECOND + t[1]),
)
ROWS = st.tuples(
    TEXTS,
    st.sampled_from([None, Decimal("0.000"), Decimal("1.500"), Decimal("-999999999.999")]),
    DOUBLES,
    st.sampled_from([None, 0, -1, 2**63 - 1, -(2**63)]),
    st.sampled_from(["x", "X", None]),
    st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)),
    NUMBERS,
    st.one_of(st.none(), st.integers(-(10**20) + 1, 10**20 - 1).map(lambda n: Decimal(n).scaleb(-4))),
    st.sampled_from([None, "", "b", "B", "ß", "zz"]),
    TIMES,
)


@st.composite
def window_specs(draw: st.DrawFn) -> WindowSpec:
    length = draw(st.sampled_from([1, 2, 3, 7, 10, 30]))
    slide = draw(st.sampled_from([length, length, max(1, length // 2), max(1, length - 1), max(1, length // 3)]))
    offset = draw(st.sampled_from([0, 0, 1, 500_000, SECOND, -1_234_567, 100 * SECOND + 17]))
    return WindowSpec(length * SECOND, slide * SECOND, offset)


# How keys are written in a query, and the SQL of the same in plain Spark.
KEYS = {
    "the key": ("the key", "`the key`"),
    "a.b": ("a.b", "`a.b`"),
    "dbl": ("dbl", "dbl"),
    "big": ("big", "big"),
    "Mixed": ("Mixed", "Mixed"),
    "mixed": ("mixed", "mixed"),
    "up per": ("upper(Mixed)", "upper(Mixed)"),
    "even": ("`n n` % 2 = 0", "`n n` % 2 = 0"),
}


def top(x: str) -> str:
    """Items with their counts, the most frequent first, then by item, null last."""
    before = "case when a.count != b.count then sign(b.count - a.count) when a.item is null then 1"
    before += " when b.item is null then -1 when a.item < b.item then -1 else 1 end"
    return f"slice(array_sort(approx_top_k({x}, 100, 10000), (a, b) -> int({before})), 1, 3)"


def known(by: str, x: str) -> str:
    """What is chosen by another value, where that is known."""
    return f"CASE WHEN {by} IS NOT NULL THEN named_struct('by', {by}, 'x', {x}) END"


def newest(x: str, order: str, limit: int) -> str:
    rows = f"collect_list(named_struct('o', {order}, 'x', {x})) FILTER (WHERE {x} IS NOT NULL)"
    return f"transform(slice(sort_array({rows}, false), 1, {limit}), e -> e.x)"


AGGREGATES: dict[str, tuple[Callable[[], Aggregate], str]] = {
    "rows": (lambda: tm.count(), "count(*)"),
    "n": (lambda: tm.count("n n"), "count(`n n`)"),
    "total": (lambda: tm.sum("n n"), "sum(`n n`)"),
    "mean int": (lambda: tm.avg("n n"), "avg(`n n`)"),
    "float.sum": (lambda: tm.sum("x.y"), "sum(`x.y`)"),
    "mean": (lambda: tm.avg("x.y"), "avg(`x.y`)"),
    "wild mean": (lambda: tm.avg("dbl"), "avg(dbl)"),
    "decimals": (lambda: tm.sum("dec"), "sum(dec)"),
    "mean decimal": (lambda: tm.avg("dec"), "avg(dec)"),
    "low": (lambda: tm.min("dbl"), "min(dbl)"),
    "high": (lambda: tm.max("dbl"), "max(dbl)"),
    "max long": (lambda: tm.max("big"), "max(big)"),
    "min word": (lambda: tm.min("word"), "min(word)"),
    "max dec": (lambda: tm.max("dec"), "max(dec)"),
    "newest": (lambda: tm.max("at"), "max(at)"),
    "first word": (lambda: tm.first("word"), "min(struct(at, word)).word"),
    "last": (lambda: tm.last("n n"), "max(struct(at, `n n`)).`n n`"),
    "spread": (lambda: tm.stddev("x.y"), "stddev(`x.y`)"),
    "words": (lambda: tm.collect_set("word", 3), "slice(sort_array(collect_set(word)), 1, 3)"),
    "list": (lambda: tm.collect_list("n n", 4), "slice(sort_array(collect_list(`n n`)), 1, 4)"),
    "any": (lambda: tm.any("`n n` > 0"), "any(`n n` > 0)"),
    "kinds": (lambda: tm.approx_count_distinct("word"), "size(collect_set(word))"),
    "median": (lambda: tm.quantile("n n", 0.5), "double(percentile_approx(`n n`, 0.5))"),
    "top": (lambda: tm.top_k("word", 3), top("word")),
    "positive": (lambda: tm.count_if("`n n` > 0"), "count_if(`n n` > 0)"),
    "unknown": (lambda: tm.count().where("word is null"), "count(*) FILTER (WHERE word IS NULL)"),
    "shares": (lambda: tm.sum("1000 div `n n`").where("`n n` != 0"), "sum(1000 div `n n`) FILTER (WHERE `n n` != 0)"),
    "best": (lambda: tm.max_by("word", "n n"), f"max({known('`n n`', 'word')}).x"),
    "worst": (lambda: tm.min_by("dec", "dbl").where("big > 0"), f"min({known('dbl', 'dec')}) FILTER (WHERE big > 0).x"),
    "last known": (
        lambda: tm.last("word", ignore_nulls=True),
        "max(struct(at, word)) FILTER (WHERE word >= '').word",
    ),
    "last words": (lambda: tm.collect_list("word", 3, order_by="at desc"), newest("word", "at", 3)),
    "xor": (lambda: tm.bit_xor("big"), "bit_xor(big)"),
    "different": (lambda: tm.count_distinct("word", at_most=99), "bigint(size(collect_set(word)))"),
}
CLOSE = ("mean int", "float.sum", "mean", "wild mean", "spread")


def positive(df: DataFrame) -> DataFrame:
    return df.where("`n n` > 0")


def renamed(df: DataFrame) -> DataFrame:
    return df.withColumn("word", F.expr("coalesce(word, Mixed, 'none')")).where("big is not null or dbl is not null")


# SQL, the same in a query and in plain Spark; the last one must be evaluated in order.
CONDITIONS = (None, "`n n` > 0", "Mixed = 'x'", "word is null", "`n n` != 0 AND 1000 div `n n` < 7")

MAPS: tuple[Callable[[DataFrame], DataFrame] | None, ...] = (None, positive, renamed)


Made = list[tuple[str, Any]]
"""Steps from aggregates to results: their names, and a condition or expressions by name."""


def made(shape: Sequence[str], keys: Sequence[str], aggregates: Sequence[str], updates: bool) -> Made:
    """Return the steps of a query in SQL; window and keys stay the first columns."""
    start, end = "window_start", "window_end"
    found: Made = []
    for word in shape:
        kept = {start: start, end: end, **{key: f"`{key}`" for key in keys}}
        values = {name: f"`{name}`" for name in aggregates}
        if word == "having" and not updates:
            found.append((word, f"`{aggregates[0]}` IS NOT NULL OR unix_micros({start}) % 3000000 = 0"))
        elif word == "rename":
            renamed = {start: "since", end: "until"}.get
            found.append(("select", {renamed(name, name): value for name, value in (kept | values).items()}))
            start, end = renamed(start, start), renamed(end, end)
        elif word == "select":
            new = {
                "is there": f"`{aggregates[-1]}` IS NOT NULL",
                "took": f"round((unix_micros({end}) - unix_micros({start})) / 7D, 3)",
                "day": f"CAST({end} AS DATE)",
                "next": f"{end} + INTERVAL '1' DAY",
                "many": f"array({start}, NULL)" if "top" in aggregates else "NULLIF('a', 'a')",
            }
            new.update(
                {f"{name} once more": f"try_divide(`{name}`, 3)" for name in ("rows", "n") if name in aggregates}
            )
            found.append(("select", kept | values | new))
            aggregates = [*aggregates, *new]
    return found


@dataclass(frozen=True)
class Drawn:
    """A query of an example, by names."""

    keys: tuple[str, ...]
    windows: tuple[WindowSpec, ...]
    aggregates: tuple[str, ...]
    rows: int
    condition: str | None
    early: str | None
    lateness: int
    shape: tuple[str, ...] = ()

    @property
    def made(self) -> Made:
        return made(self.shape, self.keys, list(self.aggregates), self.updates)

    @property
    def updates(self) -> bool:
        return self.early is not None or self.lateness > 0

    def add(self, stream: Any, sink: MemorySink, name: str) -> Any:
        function = MAPS[self.rows]
        rows = stream if function is None else stream.map(function)
        rows = rows if self.condition is None else rows.where(self.condition)
        grouped = rows.group_by(**{key: KEYS[key][0] for key in self.keys}) if self.keys else rows.group_by()
        windowed = grouped.window(*self.windows, early=self.early, lateness=self.lateness)
        query = windowed.agg(**{a: AGGREGATES[a][0]() for a in self.aggregates})
        for word, what in self.made:
            query = query.having(what) if word == "having" else query.select(**what)
        query.to(sink, name)
        return query

    def batch(self) -> BatchQuery:
        return BatchQuery(
            self.windows,
            {key: F.expr(KEYS[key][1]) for key in self.keys},
            {a: F.expr(AGGREGATES[a][1]) for a in self.aggregates},
            self.batch_rows,
            self.lateness,
            self.batch_steps,
        )

    def batch_steps(self, df: DataFrame) -> DataFrame:
        for word, what in self.made:
            columns = [] if word == "having" else [F.expr(sql).alias(name) for name, sql in what.items()]
            df = df.where(what) if word == "having" else df.select(*columns)
        return df

    def batch_rows(self, df: DataFrame) -> DataFrame:
        function = MAPS[self.rows]
        df = df if function is None else function(df)
        return df if self.condition is None else df.where(self.condition)


CUMULATIONS = st.sampled_from(
    [(), (), (), tm.cumulate("9 seconds", "3 seconds").windows, tm.cumulate("2 s", "500 ms", offset="700 ms").windows]
)
WINDOWS = st.tuples(st.lists(window_specs(), min_size=1, max_size=3), CUMULATIONS)
QUERIES = st.builds(
    Drawn,
    st.lists(st.sampled_from(sorted(KEYS)), max_size=3, unique_by=str.lower).map(tuple),
    WINDOWS.map(lambda both: tuple(dict.fromkeys([*both[0], *both[1]]))),
    st.lists(st.sampled_from(sorted(AGGREGATES)), min_size=1, max_size=6, unique=True).map(tuple),
    st.sampled_from([0, 0, 0, 1, 2]),
    st.sampled_from([None, *CONDITIONS]),
    st.sampled_from([None, None, None, "2 seconds"]),
    st.sampled_from([0, 0, 0, 3 * SECOND, 1_500_000]),
    st.lists(st.sampled_from(["having", "rename", "select"]), max_size=3).map(tuple),
)
STEPS = st.sampled_from(
    ["cut logged", "windows closed", "job done", "partials written", "committed", "delivered", "delivery logged"]
)


@dataclass(frozen=True)
class Run:
    """One life of the application: what is added before it, and whether and where it crashes."""

    adds: tuple[tuple[int, tuple[Any, ...]], ...]
    """Source partition and rows."""
    crash_at: tuple[str, int] | None
    close_all: bool


@dataclass(frozen=True)
class Example:
    """What Hypothesis draws."""

    queries: tuple[Drawn, ...]
    runs: tuple[Run, ...]
    pieces: tuple[int, ...]
    delay: int
    partitions: int

    @property
    def chained(self) -> bool:
        """Whether the chained query sees all: one that is forced to close windows early misses later results."""
        return not any(run.close_all for run in self.runs)


RUNS = st.builds(
    Run,
    st.lists(
        st.tuples(st.integers(0, 1), st.lists(ROWS, min_size=3, max_size=20).map(tuple)), min_size=1, max_size=2
    ).map(tuple),
    st.one_of(st.none(), st.tuples(STEPS, st.integers(0, 2))),
    st.booleans().map(lambda often: not often),
)
EXAMPLES = st.builds(
    Example,
    st.lists(QUERIES, min_size=1, max_size=4).map(tuple),
    st.lists(RUNS, min_size=1, max_size=3).map(tuple),
    st.lists(st.integers(6, 30), min_size=1, max_size=3).map(tuple),
    st.sampled_from([0, 2 * SECOND, 10 * SECOND]),
    st.sampled_from([1, 1, 2]),
)


"""A failure is stored, not made smaller, which takes minutes; the long test does that."""


CHAINED = WindowSpec(7 * SECOND, 3 * SECOND, 0)
"""Windows of the query that counts the results of the first one."""


def run_example(
    spark: SparkSession,
    example: Example,
    share: bool,
    change: Callable[[int], dict[str, Any]] = lambda run: {},
    on_step: Callable[[Bench, str], None] = lambda bench, step: None,
) -> tuple[Bench, pa.Table]:
    """Return what an application did, and the records that it read with the watermarks in force.

    Args:
        spark: The session.
        example: What to run.
        share: Whether queries share partials.
        change: Further settings of each run.
        on_step: Called at each step.
    """
    source = PiecewiseSource(SCHEMA, example.pieces, example.partitions)

    def define(app: App, sink: MemorySink) -> None:
        policy = tm.watermark(example.delay, max_ahead=None)
        stream = app.stream(source, event_time="at", watermark=policy)
        queries = [query.add(stream, sink, f"q{i}") for i, query in enumerate(example.queries)]
        queries[0].results().window(CHAINED).agg(n=tm.count()).to(sink, "chained")

    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(spark, Path(directory), define, share=share)
        rows: list[tuple[Any, ...]] = []

        def tick(step: str) -> None:
            on_step(bench, step)
            if step == "committed":
                bench.clock.advance(SECOND)

        for number, run in enumerate(example.runs):
            bench.settings.update(change(number))
            for partition, added in run.adds:
                source.add(added, partition % example.partitions)
                rows += added
            bench.run(run.close_all, run.crash_at, tick)
        bench.run(on_step=tick)
        return bench, logged_rows(source._from_python(rows), bench.cuts_of())


def counted(results: pa.Table) -> Counter[tuple[int, int, int]]:
    """Return what the chained query must give for the results of the first one."""
    found: Counter[tuple[int, int]] = Counter()
    for end in results.column(1).to_pylist():
        start = CHAINED.last_start(end - 1)
        while start + CHAINED.length > end - 1:
            found[start, start + CHAINED.length] += 1
            start -= CHAINED.slide
    return Counter((*span, n) for span, n in found.items())


def check(spark: SparkSession, example: Example) -> None:
    batches = {f"q{i}": query.batch() for i, query in enumerate(example.queries)}
    schema = PiecewiseSource(SCHEMA).schema
    results: dict[bool, dict[str, pa.Table]] = {}
    read: dict[bool, pa.Table] = {}
    for share in (True, False):
        bench, read[share] = run_example(spark, example, share)
        if share or read[True] != read[False]:
            wanted = expected(spark, schema, read[share], "at", batches)
        results[share] = {}
        for i, query in enumerate(example.queries):
            actual = bench.sink.latest(f"q{i}")
            if actual is not None and query.updates:
                actual = actual.drop_columns(["revision"])
            assert differences(actual, wanted[f"q{i}"], len(query.keys), CLOSE) == [], (share, query)
            results[share][f"q{i}"] = actual
        if example.chained:
            assert Counter(bench.rows("chained")) == counted(wanted["q0"]), share
    if read[True] == read[False]:
        for i, query in enumerate(example.queries):
            both = [results[share][f"q{i}"] for share in (True, False)]
            assert (both[0] is None) == (both[1] is None)
            if both[0] is not None:
                assert differences(both[0], without_dates(both[1]), len(query.keys), CLOSE) == [], query


@few_examples(2)
@given(EXAMPLES)
def test_each_window_equals_plain_spark_batch(interpreted: SparkSession, example: Example) -> None:
    check(interpreted, example)


@pytest.mark.slow
@examples(50)
@given(EXAMPLES)
def test_each_window_equals_plain_spark_batch_at_length(interpreted: SparkSession, example: Example) -> None:
    check(interpreted, example)
