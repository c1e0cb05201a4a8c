"""Results that are computed: what rows, revisions, chains and failures of `having` and `select` are."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from exact_helpers import SECOND, Bench, PiecewiseSource

import transom as tm
from transom.api.app import App
from transom.engine.spark import shaping
from transom.sinks.inmemory import MemorySink

SCHEMA = "k string, x bigint, at timestamp"
ROWS = [("a", 1, 1), ("b", 0, 2), ("a", 4, 3), ("a", 6, 21), ("c", 2**62, 22), ("c", 2**62 - 1, 22)]


def bench_of(spark: Any, directory: Path, define: Any, **more: Any) -> Bench:
    source = PiecewiseSource(SCHEMA, (2, 1, 3))
    source.add([(k, x, second * SECOND) for k, x, second in ROWS])

    def both(app: App, sink: MemorySink) -> None:
        define(app.stream(source, event_time="at"), sink)

    return Bench(spark, directory, both, **more)


def agg(stream: Any, *windows: Any, **updates: Any) -> Any:
    windowed = stream.group_by("k").window(*(windows or ("10 seconds",)), **updates)
    return windowed.agg(n=tm.count(), s=tm.sum("x"))


def everything(stream: Any, sink: MemorySink) -> None:
    agg(stream).having("n > 1").select("k", "window_end", mean="round(s / n, 1)").to(sink, "means")
    agg(stream).having("n > 9").to(sink, "none")
    agg(stream).select(k="k", worse="1 / s").to(sink, "fails")
    agg(stream).having("100 div (s - 5) > 0").to(sink, "fails, too")
    chosen = agg(stream).select("k", until="window_end", since="window_start", day="date(window_end)", s="-s")
    chosen.results("chosen").group_by("k").window("30 seconds").agg(low=tm.min("s"), day=tm.max("day")).to(
        sink, "chain"
    )
    late = agg(stream, lateness="1 hour").select("window_start", "window_end", "k", twice="n * 2")
    late.to(sink, "revised")
    agg(stream).fill("zero").having("n = 0 OR k = 'c'").rename(number="n").to(sink, "filled")
    agg(stream, "10 seconds", tm.session_window("2 seconds")).select(
        "k", took="window_end - window_start", ends="window_end"
    ).to(sink, "sessions")
    nested = {"many": "array(window_start)", "day": "cast(window_end AS timestamp_ntz)", "n": "cast(n AS float)"}
    agg(stream).select("k", **nested).to(sink, "nested")


def test_results_are_what_spark_computes(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shaping, "FEW", 1)  # single rows come back one by one, others as Arrow
    bench = bench_of(spark, tmp_path, everything)
    bench.run(crash_at=("windows closed", 1))
    progress = bench.run()
    assert bench.rows("means") == [("a", 10 * SECOND, 2.5), ("c", 30 * SECOND, round((2**63 - 1) / 2, 1))]
    assert bench.rows("none") == []
    assert bench.sink.to_table("none") is None
    queries = {query.name: query for query in progress.queries}
    assert [query.name for query in queries.values() if query.failure] == ["fails", "fails, too"]
    assert all("Division by zero" in str(queries[name].failure) for name in ("fails", "fails, too"))
    assert bench.rows("chain") == [
        (0, 30 * SECOND, "a", -6, date(1970, 1, 1)),
        (0, 30 * SECOND, "b", 0, date(1970, 1, 1)),
        (0, 30 * SECOND, "c", -(2**63) + 1, date(1970, 1, 1)),
    ]
    assert bench.sink.to_table("filled").column_names == ["window_start", "window_end", "k", "number", "s"]
    filled = bench.rows("filled")
    assert (20 * SECOND, 30 * SECOND, "c", 2, 2**63 - 1) in filled
    assert (10 * SECOND, 20 * SECOND, "a", 0, 0) in filled
    assert all(k == "c" or number == 0 for _, _, k, number, _ in filled)
    assert [row[-2:] for row in bench.rows("revised") if row[2] == "a"] == [(4, 0), (2, 0)]
    assert ("c", timedelta(seconds=2), 24 * SECOND) in bench.rows("sessions")
    nested = {(row[0], row[2]): row for row in bench.rows("nested")}
    assert nested["c", 30 * SECOND][3] == 2.0
    assert len(nested) == 4


def test_what_results_cannot_be_is_said_before_a_run(spark: Any, tmp_path: Path) -> None:
    for number, (define, says) in enumerate(
        [
            (lambda query: query.having("trips > 1"), "having trips > 1.*Did you mean"),
            (lambda query: query.having("n + 1"), "having n .*is not a boolean"),
            (lambda query: query.select(a="sum(n)"), "does not include a GROUP BY"),
            (lambda query: query.select(a="row_number() OVER (ORDER BY n)"), "window function does not"),
            (lambda query: query.select(a="explode(array(n))"), "does not give one value"),
            (lambda query: query.select(a="rand()"), "not deterministic"),
            (lambda query: query.having("window_end < now()"), "the time at which it runs"),
            (lambda query: query.select(a="n +"), "Syntax error"),
        ]
    ):
        bench = bench_of(
            spark, tmp_path / str(number), lambda stream, sink, define=define: define(agg(stream)).to(sink, "q")
        )
        with pytest.raises(tm.DefinitionError, match=f"(?s)query 'q': .*{says}"):
            bench.run()


def test_columns_of_spark_are_taken(spark: Any, tmp_path: Path, in_memory: None) -> None:
    from pyspark.sql import functions as F

    def define(stream: Any, sink: MemorySink) -> None:
        agg(stream).having(F.col("n") > 1).select("k", half=F.col("s") / 2).to(sink, "q")

    bench = bench_of(spark, tmp_path, define)
    bench.run()
    assert bench.rows("q") == [("a", 2.5), ("c", float(2**62))]
    assert bench.sink.to_table("q").schema.field("half").type == pa.float64()
