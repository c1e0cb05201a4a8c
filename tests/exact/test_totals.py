"""Totals of all rows so far are, at each moment, a batch job over all rows before it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from exact_helpers import SECOND, Bench, PiecewiseSource
from pyspark.sql import functions as F
from tests.small_jobs import NoSession, small_job

import transom as tm
from transom.api.app import App
from transom.errors import JobFileError
from transom.jobs.building import check_job
from transom.jobs.jobfile import parse_job
from transom.sinks.inmemory import MemorySink

ROWS = [
    *[("a", 5, 1), ("b", None, 2), ("b", 1, 12), (None, 3, 13), ("a", 7, 31)],
    *[("a", 9, 55), ("late", 1, 3), (None, 4, 64), ("c", 2, 95), ("a", -1, 121)],
]
SCHEMA = "k string, x int, at timestamp"


@pytest.mark.parametrize("settings", [{}, pytest.param({"tier": "cluster", "key_groups": 2}, marks=pytest.mark.slow)])
def test_totals_are_those_of_batch_jobs(spark: Any, tmp_path: Path, settings: dict[str, Any]) -> None:
    """Cuts of two rows and one, crashes, snapshots after each cut, a stop; `few` has one key too many in the end."""
    source = PiecewiseSource(SCHEMA, (2, 1, 2))
    source.add([(k, x, at * SECOND) for k, x, at in ROWS])
    of = {"n": tm.count(), "s": tm.sum("x"), "m": tm.max("x"), "v": tm.avg("x"), "d": tm.collect_set("x")}

    def define(app: App, sink: MemorySink) -> None:
        stream = app.stream(source, event_time="at", watermark=tm.watermark("1 second", max_ahead=None))
        stream.group_by("k").window(tm.unbounded("10 seconds", keys=4)).agg(**of).to(sink, "keys")
        stream.group_by("k").window("10 seconds").agg(n=tm.count()).to(sink, "windows")
        stream.window(tm.unbounded("10 seconds")).agg(n=tm.count(), s=tm.sum("x")).having("s > 5").to(sink, "all")
        stream.group_by("k").window(tm.unbounded("10 seconds", keys=3)).agg(n=tm.count()).to(sink, "few")

    bench = Bench(spark, tmp_path, define, snapshot_bytes=1, **settings)
    bench.run(close_all=False, crash_at=("windows closed", 2))
    bench.run(close_all=False, crash_at=("delivered", 1))
    bench.run(close_all=False)
    source.add([("b", 8, 150 * SECOND)])
    progress = bench.run()

    rows = [row for row in ROWS if row[0] != "late"] + [("b", 8, 150)]
    frame = spark.createDataFrame(rows, "k string, x int, second int")
    ends = spark.range(10, 161, 10).withColumnRenamed("id", "end")
    aggregates = [F.count("*"), F.sum("x"), F.max("x"), F.avg("x"), F.sort_array(F.collect_set("x"))]
    before = frame.join(ends, F.expr("second < end"))
    wanted = {(end, k): tuple(values) for end, k, *values in before.groupBy("end", "k").agg(*aggregates).collect()}
    found = {
        (row["window_end"] // SECOND, row["k"]): (row["n"], row["s"], row["m"], row["v"], sorted(row["d"]))
        for row in named(bench, "keys")
    }
    assert found == wanted
    assert len(bench.rows("keys")) == len(wanted)
    whole = before.groupBy("end").agg(F.count("*").alias("n"), F.sum("x").alias("s")).where("s > 5").collect()
    assert sorted((row["window_end"] // SECOND, row["n"], row["s"]) for row in named(bench, "all")) == sorted(
        map(tuple, whole)
    )
    assert {row["window_end"] // SECOND for row in named(bench, "few")} == set(range(10, 91, 10))
    assert progress is not None
    failures = {query.name: query.failure for query in progress.queries if query.failure}
    assert list(failures) == ["few"]
    assert "unbounded: there are more than keys=3 keys" in str(failures["few"])


def named(bench: Bench, query: str) -> list[dict[str, Any]]:
    """Return the results of a query, times as microseconds."""
    table = bench.sink.to_table(query)
    assert table is not None
    return [dict(zip(table.column_names, row, strict=True)) for row in bench.rows(query)]


def windowed(*windows: Any, keys: tuple[str, ...] = ("k",), **more: Any) -> Any:
    app = tm.App(cast("Any", NoSession()), checkpoint="ckpt")
    stream = app.stream(tm.sources.files("in/*.json", schema=SCHEMA), event_time="at")
    return stream.group_by(*keys).window(*windows, **more)


MINUTE = tm.unbounded("1 minute", keys=9)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: windowed(tm.unbounded("1 minute")),
            "unbounded: a total for each key is kept for ever, and keys does not say how many there may be. "
            'Write for example tm.unbounded("1 minute", keys=10_000), or use windows that end.',
        ),
        (
            lambda: windowed(MINUTE, "1 hour"),
            "window: what unbounded returns never ends, and goes with no other window, nor with a join. "
            "Give it alone, in a query of its own: window(tm.unbounded(...)).",
        ),
        (
            lambda: windowed(MINUTE, lateness="1 hour"),
            "unbounded: it does not go with early results or lateness: each correction would change all later totals. "
            "Leave them out: every says how often there are results; a watermark that waits longer makes fewer late.",
        ),
        (
            lambda: windowed(MINUTE).agg(n=tm.count()).fill("zero"),
            "fill: totals have no gaps: each key has a result at each multiple of every. Leave out fill.",
        ),
        (
            lambda: windowed(MINUTE).agg(n=tm.count()).within("1 second", on_overload="shed"),
            'within: a row that is left out would lack in all later totals. Leave out on_overload="shed".',
        ),
        (lambda: tm.unbounded(0), "unbounded: every is 0 seconds. The shortest step is 1 ms."),
        (
            lambda: tm.unbounded("1 minute", keys=0),
            "unbounded: keys is 0. Give how many keys there may be at most.",
        ),
    ],
)
def test_mistakes_are_named(make: Any, says: str) -> None:
    with pytest.raises(tm.DefinitionError) as caught:
        make()
    assert str(caught.value).startswith(says)


TOTALS = """
name = "totals"
group_by = ["k"]
aggregates = ["count(*) as n"]
sink = {parquet = "out"}
windows = """


def test_jobs_say_the_same() -> None:
    check_job(parse_job(small_job(TOTALS + '[{unbounded = "1 minute", keys = 10}]', SCHEMA)))
    for windows, says in {
        '[{unbounded = "1 minute"}]': "unbounded: a total for each key is kept",
        '[{unbounded = "1 minute", keys = "10"}]': "keys = '10' is not a whole number",
        '[{unbounded = "1 minute", keys = 10}, "1 hour"]': "goes with no other window",
    }.items():
        with pytest.raises(JobFileError, match=rf"\[\[query\]\] 'totals'.*{says}"):
            check_job(parse_job(small_job(TOTALS + windows, SCHEMA)))
