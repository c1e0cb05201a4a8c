"""Keys without rows go on with their last results: against Spark batch, window after window, in either tier."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from exact_helpers import SECOND, Bench, PiecewiseSource
from pyspark.sql import functions as F

import transom as tm
from transom.api.app import App
from transom.sinks.inmemory import MemorySink

SCHEMA = "k string, x int, at timestamp"
ROWS = [
    *[("a", 5, 1), ("b", None, 2), ("b", 1, 12), ("c", 3, 13), ("a", 7, 31)],
    *[("a", 9, 55), ("late", 1, 3), (None, 4, 64), ("c", 2, 150), ("a", 1, 300), ("a", 2, 301), ("d", 2, 333)],
]
LIMITS = {"short": 30, "long": 3_600}


def wanted(batch: dict[tuple[int, int], dict[Any, tuple[Any, ...]]], every: int, most: int | None) -> list[Any]:
    """Return windows after each other: a key goes on with what it had, or zeros, for so many seconds."""
    found, last = [], {}
    (start, end), (final, _) = min(batch), max(batch)
    while start <= final:
        mine = batch.get((start, end), {})
        last |= {key: (end, values) for key, values in mine.items()}
        for key, (before, values) in last.items():
            zeros = (0, 0, None, None)
            if most is None or end <= before + most * SECOND:
                found.append((start, end, key, *(zeros if most is None and key not in mine else values)))
        start, end = start + every, end + every
    return sorted(found, key=repr)


@pytest.mark.parametrize("settings", [{}, pytest.param({"tier": "cluster", "key_groups": 2}, marks=pytest.mark.slow)])
def test_filled_windows_are_those_of_a_batch_job(spark: Any, tmp_path: Path, settings: dict[str, Any]) -> None:
    """Cuts of two rows and one, a crash after windows closed, snapshots, a stop; rows that only a condition sees."""
    source = PiecewiseSource(SCHEMA, (2, 1, 2))
    source.add([(k, x, at * SECOND) for k, x, at in ROWS])
    aggregates: dict[str, Any] = {"n": tm.count(), "s": tm.sum("x"), "m": tm.max("x"), "l": tm.collect_list("x")}

    def define(app: App, sink: MemorySink) -> None:
        stream = app.stream(source, event_time="at", watermark=tm.watermark("1 second", max_ahead=None))
        grouped = stream.group_by("k").window(tm.sliding("20 seconds", every="10 seconds"))
        for limit, most in LIMITS.items():
            grouped.agg(**aggregates).fill("previous", for_at_most=f"{most} seconds").to(sink, limit)
        grouped.agg(**aggregates).fill("zero").to(sink, "zero")
        some = stream.where("k = 'b'").group_by("k").window("10 seconds").agg(n=tm.count())
        some.fill("previous", for_at_most="1 hour").having("k = 'b'").to(sink, "alone")

    bench = Bench(spark, tmp_path, define, snapshot_bytes=1, **settings)
    bench.run(close_all=False, crash_at=("windows closed", 2))
    bench.run(close_all=False, crash_at=("delivered", 1))
    bench.run(close_all=False)
    source.add([("d", 8, 400 * SECOND)])
    bench.run()

    rows = [row for row in ROWS if row[0] != "late"] + [("d", 8, 400)]
    frame = spark.createDataFrame(rows, "k string, x int, second int").selectExpr(
        "k", "x", "timestamp_seconds(second) at"
    )
    of = [F.count("*"), F.sum("x"), F.max("x"), F.sort_array(F.collect_list("x"))]
    batch: dict[tuple[int, int], dict[Any, tuple[Any, ...]]] = {}
    grouped = frame.groupBy(F.window("at", "20 seconds", "10 seconds").alias("w"), "k").agg(*of)
    for start, end, _, key, *values in grouped.select(F.unix_micros("w.start"), F.unix_micros("w.end"), "*").collect():
        batch.setdefault((start, end), {})[key] = tuple(values)
    for limit, most in {**LIMITS, "zero": None}.items():
        found = [(*row[:-1], sorted(row[-1] or [])) for row in bench.rows(limit)]
        expected = [(*row[:-1], row[-1] or []) for row in wanted(batch, 10 * SECOND, most)]
        assert sorted(found, key=repr) == sorted(expected, key=repr), limit
    # Rows of other keys move the watermark, and so the windows of a key that is looked at alone.
    alone = sorted((start // SECOND, n) for start, _, _, n in bench.rows("alone"))
    assert alone == [(second, 1) for second in range(0, 10 * len(alone), 10)]
    assert len(alone) > 30
