"""Event times that cannot be computed: a dead letter each, whatever the expression and the mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from exact_helpers import SECOND, Bench, PiecewiseSource
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

import transom as tm
from transom.api.app import App
from transom.sinks.inmemory import MemorySink


def bench_of(spark: SparkSession, tmp_path: Path, event_time: str | Column, **options: Any) -> Bench:
    source = PiecewiseSource("at string, millis bigint, n int")
    source.add([("1970-01-01 00:00:01", 1_000, 1), ("soon", 2**62, 2), (None, None, 3)])

    def define(app: App, sink: MemorySink) -> None:
        stream = app.stream(source, event_time=event_time, watermark=tm.watermark(0, max_ahead=None))
        rows = stream.map(options["map"]) if "map" in options else stream
        rows.window("10 seconds").agg(n=tm.count()).to(sink, "q")

    return Bench(spark, tmp_path, define)


EXPRESSIONS = [
    "to_timestamp(at)",
    "CAST(at AS timestamp)",
    "to_timestamp_ntz(at)",
    "to_date(at)",
    "CASE WHEN to_timestamp(at) > timestamp'1971-01-01' THEN null ELSE to_timestamp(at) END",
    "timestamp_millis(millis)",
]


@pytest.mark.parametrize("event_time", EXPRESSIONS)
@pytest.mark.parametrize("as_column", [False, True])
def test_what_raises_is_a_dead_letter(spark: Any, tmp_path: Path, event_time: str, as_column: bool) -> None:
    bench = bench_of(spark, tmp_path, F.expr(event_time) if as_column else event_time)
    bench.run()
    assert bench.rows("q") == [(0, 10 * SECOND, 1)]
    assert [letter["reason"] for letter in bench.letters()] == ["null event time"] * 2


def test_a_map_that_drops_it_computes_it_again(spark: Any, tmp_path: Path) -> None:
    bench = bench_of(spark, tmp_path, "to_timestamp(at)", map=lambda df: df.select("at"))
    bench.run()
    assert bench.rows("q") == [(0, 10 * SECOND, 1)]
    assert len(bench.letters()) == 2
