"""Hundreds of small micro-batches: checkpoint, panes and keys stay as small as the open windows."""

from __future__ import annotations

import os
from dataclasses import replace

import pyarrow as pa
import pytest

import transom as tm
from transom.engine.execution.onspark import SparkJob
from transom.engine.loop.metrics import Metrics
from transom.engine.partials.tables import PANE
from transom.engine.spark.cutstats import CutStats
from transom.engine.spark.jobs import CutPartials
from transom.engine.streams.cuts import CutOutcome, LoggedCut
from transom.model.time import ManualClock

NOON = 1_700_000_000_000_000
CUTS = 600


@pytest.mark.slow
def test_nothing_grows(spark, tmp_path, monkeypatch):
    """The job runs once; the partials of later cuts are those of the first, with later panes and other keys."""
    run, first = SparkJob.partials, []

    def shifted(job, compiled):
        if not first:
            first.append(run(job, compiled))
        by = (job.cut.number - 1) * 1_000_000
        tables = []
        for table in first[0].tables:
            columns = {name: table.column(name) for name in table.column_names}
            columns[PANE] = pa.array([t + by for t in columns[PANE].to_pylist()], pa.int64())
            if "key" in columns:
                columns["key"] = pa.array([f"{key}-{job.cut.number}" for key in columns["key"].to_pylist()])
            tables.append(pa.table(columns))
        stats = first[0].stats
        return CutPartials(tuple(tables), replace(stats, newest=tuple(t + by for t in stats.newest)))

    monkeypatch.setattr(SparkJob, "partials", shifted)
    rows = tm.sources.memory("key string, at long")
    for second in range(CUTS):
        rows.add([(f"k{i}", second) for i in range(10)])
    app = tm.App(spark, tmp_path / "checkpoint", clock=ManualClock(NOON), max_rows_per_cut=10, snapshot_bytes=50_000)
    stream = app.stream(rows, event_time="timestamp_seconds(at)", watermark=tm.watermark(0, max_ahead=None))
    results = tm.sinks.memory()
    sliding = stream.group_by("key").window("1 second", tm.sliding("10 seconds", every="5 seconds"))
    sliding.agg(n=tm.count(), at=tm.collect_list("at", limit=100)).to(results, "sliding")
    stream.window("5 seconds").agg(n=tm.count()).to(results, "all")

    sizes = {"bytes": [], "files": [], "partials": [], "keys": [], "panes": []}

    def on_step(step):
        if step != "committed":
            return
        files = [os.path.join(d, name) for d, _, names in os.walk(tmp_path / "checkpoint") for name in names]
        stores = [entry.store for entry in app._loop.streams["stream1"].state.stores]
        sizes["bytes"].append(sum(os.path.getsize(file) for file in files))
        sizes["files"].append(len(files))
        sizes["partials"].append(sum(len(store.here) for store in stores))
        sizes["panes"].append(max(len(store.starts) for store in stores))
        sizes["keys"].append(max(len(store.here.keys) for store in stores))

    app._on_step = on_step
    progress = app.run(once=True, close_all=True)
    assert progress.streams[0].cuts >= CUTS
    assert len(results.rows("all")) == CUTS // 5
    assert sum(row["n"] for row in results.rows("sliding")) == 10 * CUTS * 3
    for name, values in sizes.items():
        third = len(values) // 3
        teeth = 1.25 if name == "bytes" else 1.05  # from snapshot to snapshot it is a saw whose teeth are not all alike
        assert max(values[2 * third :]) <= teeth * max(values[:third]), (name, max(values[:third]), max(values))
    assert max(sizes["panes"]) <= 11
    assert max(sizes["partials"]) <= 120
    assert max(sizes["bytes"]) < 250_000


def test_what_is_measured_does_not_grow_when_nobody_looks():
    """Nor with the queries that come and go."""
    metrics = Metrics(0, {})
    for second in range(10_000):
        cut = LoggedCut(second, 0, 1, 1, 0, 0, None, 0)
        late = {f"q{second}": 1}
        metrics.committed("s", CutOutcome(cut, stats=CutStats(rows=1), late=late), second * 1_000_000, 0)
        metrics.keep({f"q{second}"})
    assert len(metrics._streams["s"].recent) <= 11
    assert list(metrics._queries) == ["q9999"]


@pytest.mark.usefixtures("in_memory")
@pytest.mark.parametrize("tier", ["driver", "cluster"])
def test_no_snapshot_is_due_of_what_the_last_one_has(spark, tmp_path, tier):
    """A log is not empty when it begins: what it has then asked for the next snapshot, at each turn of the loop."""
    rows = tm.sources.memory("key string, at long")
    rows.add([(f"k{i % 3}", i) for i in range(40)])
    settings = {"max_rows_per_cut": 10, "snapshot_bytes": 1, "tier": tier}
    app = tm.App(spark, tmp_path / "checkpoint", clock=ManualClock(NOON), **settings)
    stream = app.stream(rows, event_time="timestamp_seconds(at)", watermark=tm.watermark(0, max_ahead=None))
    stream.group_by("key").window("5 seconds").agg(n=tm.count()).to(tm.sinks.memory(), "q")
    due = []

    def on_step(step):
        if step == "after snapshot" and app._loop is not None:
            due.append(app._loop.snapshots.due)

    app._on_step = on_step
    app.run(once=True)
    assert due
    assert not any(due)
