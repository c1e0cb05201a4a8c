"""Event times that cannot be computed: a dead letter each, whatever the expression and the mode."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from exact_helpers import SECOND, Bench, PiecewiseSource
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

import transom as tm
from transom.api.app import App
from transom.errors import QueryFailedError
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


class Broken:
    """An application with a stream whose event time a function of the user's computes, which raises until mended."""

    def __init__(self, spark: SparkSession, tmp_path: Path, pandas: bool, others: bool) -> None:
        self.mended = False
        bad, good = PiecewiseSource("at long", [2]), PiecewiseSource("at timestamp", [2])
        bad.add([(1,), (11,), (12,), (-1,), (31,)])
        good.add([(datetime.fromtimestamp(at, UTC),) for at in (1, 11, 31)])

        def define(app: App, sink: MemorySink) -> None:
            watermark = tm.watermark(0, max_ahead=None)
            seen = app.stream(bad, name="bad", event_time=self._time(pandas), watermark=watermark)
            first = seen.window("10 seconds").agg(n=tm.count())
            first.to(sink, "q")
            first.results().window("20 seconds").agg(n=tm.sum("n")).to(sink, "of_q")
            if others:
                stream = app.stream(good, name="good", event_time="at", watermark=watermark)
                stream.window("10 seconds").agg(n=tm.count()).to(sink, "other")

        self.bench = Bench(spark, tmp_path, define)

    def _time(self, pandas: bool) -> Column:
        mended = self.mended

        def moment(at):
            if at < 0 and not mended:
                raise ValueError(f"{at} is no time")
            return datetime.fromtimestamp(at, UTC) if at >= 0 else None

        if not pandas:
            return F.udf(moment, "timestamp")("at")

        def moments(at: pd.Series) -> pd.Series:
            return at.map(moment)

        return F.pandas_udf(moments, "timestamp")("at")


@pytest.mark.parametrize("pandas", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_function_that_raises_halts_its_stream_until_it_is_mended(spark: Any, tmp_path: Path, pandas: bool) -> None:
    broken = Broken(spark, tmp_path, pandas, others=True)
    progress = broken.bench.run(close_all=False)
    assert progress is not None
    failures = {query.name: query.failure for query in progress.queries}
    assert "'bad' cannot be computed: ValueError: -1 is no time" in str(failures["q"])
    assert "moment" in str(failures["q"])
    assert str(failures["of_q"]).startswith("no rows come from 'bad' in this run: The event time")
    assert failures["other"] is None
    bench = broken.bench
    assert bench.rows("other") == [(0, 10 * SECOND, 1), (10 * SECOND, 20 * SECOND, 1)]
    assert bench.rows("q") == [(0, 10 * SECOND, 1)]
    assert bench.rows("of_q") == []
    broken.mended = True
    progress = bench.run()
    assert progress is not None
    assert [query.failure for query in progress.queries] == [None] * 3
    assert bench.rows("q") == [(0, 10 * SECOND, 1), (10 * SECOND, 20 * SECOND, 2), (30 * SECOND, 40 * SECOND, 1)]
    assert bench.rows("of_q") == [(0, 20 * SECOND, 3), (20 * SECOND, 40 * SECOND, 1)]
    assert [letter["record"] for letter in bench.letters("bad")] == ['{"at":-1}']


@pytest.mark.slow
def test_a_run_of_which_every_stream_is_halted_ends_with_the_reason(spark: Any, tmp_path: Path) -> None:
    broken = Broken(spark, tmp_path, pandas=False, others=False)
    for once in (True, False):
        with pytest.raises(
            QueryFailedError, match=r"stream 'bad' cannot be computed.*-1 is no time.*correct the function"
        ):
            broken.bench.app().run(once=once)
