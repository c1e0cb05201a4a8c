"""Values and keys that have gone wrong somewhere before, each on its own."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from exact_helpers import SECOND, Bench, PiecewiseSource
from pyspark.sql import SparkSession

import transom as tm
from transom.api.app import App
from transom.errors import QueryFailedError
from transom.sinks.inmemory import MemorySink
from transom.windows.aggregates.base import Aggregate

W = (0, 10 * SECOND)


def run(
    spark: SparkSession,
    directory: Path,
    kind: str,
    values: list[Any],
    aggregates: dict[str, Aggregate],
    *,
    key: str | None = None,
    pieces: tuple[int, ...] = (1,),
) -> Bench:
    """Aggregate values of one type at 0 s, 1 ms, 2 ms, ... in one window of 10 s, one value per cut by default."""
    source = PiecewiseSource(f"x {kind}, at timestamp", pieces)
    source.add([(value, i * 1000) for i, value in enumerate(values)])

    def define(app: App, sink: MemorySink) -> None:
        stream = app.stream(source, event_time="at", watermark="1 minute")
        rows = stream.group_by() if key is None else stream.group_by(key)
        rows.window("10 seconds").agg(**aggregates).to(sink, "q")

    bench = Bench(spark, directory, define)
    bench.run()
    return bench


def ansi(spark: SparkSession, on: bool) -> SparkSession:
    session = spark.newSession()
    session.conf.set("spark.sql.ansi.enabled", str(on).lower())
    return session


LARGE = 2**63 - 1


@pytest.mark.parametrize("pieces", [(2,), (1,)], ids=["in one partial", "between partials"])
def test_sum_overflow_wraps_without_ansi(spark, tmp_path, pieces):
    bench = run(ansi(spark, False), tmp_path, "bigint", [LARGE, 2], {"s": tm.sum("x")}, pieces=pieces)
    assert bench.rows("q") == [(*W, -(2**63) + 1)]


@pytest.mark.parametrize("pieces", [(2,), (1,)], ids=["in one partial", "between partials"])
def test_sum_overflow_fails_the_query_with_ansi(spark, tmp_path, pieces):
    with pytest.raises(QueryFailedError, match=r"overflow|does not fit"):
        run(ansi(spark, True), tmp_path, "bigint", [LARGE, 2], {"s": tm.sum("x")}, pieces=pieces)


def test_a_sum_that_returns_into_range_does_not_fail_with_ansi(spark, tmp_path):
    bench = run(ansi(spark, True), tmp_path, "bigint", [LARGE, 2, -2], {"s": tm.sum("x")})
    assert bench.rows("q") == [(*W, LARGE)]


NINES = Decimal(10**38 - 1)


def test_decimal_overflow_in_one_of_two_partials_is_null_without_ansi(spark, tmp_path):
    aggregates = {"s": tm.sum("x"), "a": tm.avg("x"), "n": tm.count("x")}
    bench = run(ansi(spark, False), tmp_path, "decimal(38,0)", [NINES, NINES, Decimal(1)], aggregates, pieces=(2, 1))
    assert bench.rows("q") == [(*W, None, None, 3)]


def test_decimal_overflow_in_one_of_two_partials_fails_the_query_with_ansi(spark, tmp_path):
    with pytest.raises(QueryFailedError):
        run(ansi(spark, True), tmp_path, "decimal(38,0)", [NINES, NINES, Decimal(1)], {"s": tm.sum("x")}, pieces=(2, 1))


@pytest.mark.parametrize("pieces", [(3,), (1,)], ids=["one cut", "three cuts"])
def test_avg_with_an_infinity_is_infinite(spark, tmp_path, pieces):
    aggregates = {"a": tm.avg("x"), "s": tm.sum("x"), "v": tm.var_pop("x")}
    bench = run(spark, tmp_path, "double", [math.inf, 1.0, 1.0], aggregates, pieces=pieces)
    ((_, _, mean, total, spread),) = bench.rows("q")
    assert (mean, total) == (math.inf, math.inf)
    assert math.isnan(spread)


def test_the_text_nan_is_no_nan_and_no_null(spark, tmp_path):
    texts = ["NaN", "nan", None, "null", "NaN"]
    bench = run(spark, tmp_path, "string", texts, {"n": tm.count()}, key="x", pieces=(2,))
    assert bench.rows("q") == sorted([(*W, "NaN", 2), (*W, "nan", 1), (*W, None, 1), (*W, "null", 1)], key=repr)


def test_nan_keys_are_one_key_and_so_are_zeros(spark, tmp_path):
    numbers = [math.nan, 0.0, -0.0, math.nan, math.inf, -math.inf, None]
    bench = run(spark, tmp_path, "double", numbers, {"n": tm.count()}, key="x", pieces=(1, 1, 1, 4))
    found = {repr(row[2]): row[3] for row in bench.rows("q")}
    assert found == {"nan": 2, "0.0": 2, "inf": 1, "-inf": 1, "None": 1}


@pytest.mark.parametrize("keys", [1, 10_000])
def test_many_keys_and_one(spark, tmp_path, keys):
    source = PiecewiseSource("k bigint, x bigint, at timestamp", (15_000,))
    source.add([(i % keys, i, i) for i in range(30_000)])

    def define(app: App, sink: MemorySink) -> None:
        stream = app.stream(source, event_time="at", watermark="1 minute")
        stream.group_by("k").window("1 second").agg(n=tm.count(), s=tm.sum("x"), m=tm.max("x")).to(sink, "q")

    bench = Bench(spark, tmp_path, define)
    bench.run()
    rows = {row[2]: row[3:] for row in bench.rows("q")}
    wanted = {}
    for k in range(keys):
        mine = range(k, 30_000, keys)
        wanted[k] = (len(mine), sum(mine), mine[-1])
    assert rows == wanted


def test_timestamps_as_keys_and_values(spark, tmp_path):
    source = PiecewiseSource("k timestamp, at timestamp", (1,))
    source.add([(7, 0), (7, 1000), (None, 2000)])

    def define(app: App, sink: MemorySink) -> None:
        stream = app.stream(source, event_time="at", watermark="1 minute")
        stream.group_by("k").window("10 seconds").agg(newest=tm.max("at")).to(sink, "q")

    bench = Bench(spark, tmp_path, define)
    bench.run()
    assert bench.rows("q") == [(*W, 7, 1000), (*W, None, 2000)]
