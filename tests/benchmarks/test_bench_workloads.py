"""The workloads: Transom gives what plain Spark gives on the same events; the moments of watermarks are right."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from benchmarks.workloads import WORKLOADS
from benchmarks.workloads.base import LONGEST_DELAY, SECOND, moments
from pyspark.sql import SparkSession

import transom as tm

SMALL = 0.02


def times(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows with window edges as microseconds, in order."""
    edges = {
        name: table[name].cast(pa.timestamp("us", "UTC")).cast(pa.int64()) for name in ("window_start", "window_end")
    }
    rest = {name: table[name] for name in table.column_names if name not in edges}
    rows = pa.table({**edges, **rest}).to_pylist()
    return sorted(rows, key=lambda row: [str(value) for value in row.values()])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "delay"), [*((name, "uniform") for name in WORKLOADS), ("nyt", "zipf")])
def test_transom_gives_what_batch_gives(spark: SparkSession, tmp_path: Path, name: str, delay: str) -> None:
    workload = WORKLOADS[name]
    feeds = workload.events(seed=1, seconds=14, scale=SMALL, delay=delay, burst=0.3)
    assert len(feeds) == workload.inputs
    sources = []
    for feed in feeds:
        source = tm.sources.memory(f"{workload.schema}, at bigint")
        for start in range(0, len(feed.rows), 400):
            source.add(feed.rows.slice(start, 400))
        sources.append(source)
    app, sink = tm.App(spark, tmp_path, max_rows_per_cut=4_000), tm.sinks.memory()
    workload.define(app, sources, "q", sink, shift=SECOND // 3)
    app.run(once=True, close_all=True)
    frames = [spark.createDataFrame(feed.rows) for feed in feeds]
    expected = times(workload.plain(frames, shift=SECOND // 3).toArrow())
    assert len(expected) > 50
    assert times(cast(pa.Table, sink.to_table("q"))) == expected


@pytest.mark.parametrize("name", WORKLOADS)
def test_events_follow_from_the_seed_and_arrive_in_order(name: str) -> None:
    workload = WORKLOADS[name]
    once, again = (workload.events(3, 2.0, SMALL) for _ in range(2))
    other = workload.events(4, 2.0, SMALL)
    for one, two, three in zip(once, again, other, strict=True):
        assert one.rows.equals(two.rows)
        assert not one.rows.equals(three.rows)
        assert (np.diff(one.arrival) >= 0).all()
        delays = one.arrival - one.rows.column("at").to_numpy()
        assert delays.min() >= 0
        assert delays.max() <= LONGEST_DELAY
        assert abs(len(one.rows) - 2 * SMALL * workload.rate) <= 1


def test_sweeping_watermark_is_the_first_row_far_enough_behind() -> None:
    feed = WORKLOADS["ysb"].events(1, 6.0, 0.01)[0]
    at = feed.rows.column("at").to_pylist()
    first = next(i for i, moment in enumerate(at) if moment >= 3 * SECOND + LONGEST_DELAY)
    assert feed.sweeping(3 * SECOND) == feed.arrival[first]
    assert feed.sweeping(6 * SECOND) is None


def test_bursts_keep_the_mean_rate() -> None:
    at = moments(np.random.default_rng(1), 2_000, 50, 0.5)
    counts = np.histogram(at, bins=np.arange(0, 2_000 * SECOND + 1, 5 * SECOND))[0]
    assert abs(counts.mean() / 250 - 1) < 0.1
    assert 0.35 < counts.std() / counts.mean() < 0.65
    assert (np.diff(at) >= 0).all()


@pytest.mark.slow
def test_there_are_accidents_and_tolls(spark: SparkSession) -> None:
    workload = WORKLOADS["lrb"]
    frames = [spark.createDataFrame(feed.rows) for feed in workload.events(2, 9)]
    found = workload.plain(frames).selectExpr("count_if(toll > 0) AS tolls", "count_if(standing > 0) AS stands").first()
    assert found is not None
    assert found.stands > 0
    assert found.tolls > 0
