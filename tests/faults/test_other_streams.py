"""A query that left and comes back on a stream that numbers its micro-batches from elsewhere: its results stay."""

from __future__ import annotations

import pytest
from faults_app import Killed

import transom as tm
from transom.model.time import ManualClock

pytestmark = pytest.mark.usefixtures("in_memory")

NOON = 1_700_000_000_000_000


def run(spark, tmp_path, rows, on=None, kill_at=None):
    """Run to the end of streams of some rows each; the query q is on one of them."""
    app = tm.App(spark, tmp_path / "checkpoint", clock=ManualClock(NOON), max_rows_per_cut=10)
    for name, (first, last) in rows.items():
        source = tm.sources.memory("at long")
        source.add([(at,) for at in range(first, last)])
        stream = app.stream(source, event_time="timestamp_seconds(at)", watermark=tm.watermark(0), name=name)
        counts = stream.window("10 seconds").agg(n=tm.count())
        if name == on:
            counts.to([tm.sinks.parquet(tmp_path / "out"), tm.sinks.sqlite(tmp_path / "out.db")], "q")
        if name != "a":
            counts.to(tm.sinks.memory(), f"other on {name}")

    def kill(step):
        if step == kill_at:
            raise Killed

    app._on_step = kill
    app.run(once=True, close_all=True)


def windows(spark, tmp_path):
    return sorted(row.window_start.second for row in spark.read.parquet(str(tmp_path / "out")).collect())


@pytest.mark.parametrize("kill_at", [None, "change logged"])
def test_a_query_that_comes_back_on_another_stream(spark, tmp_path, kill_at):
    run(spark, tmp_path, {"a": (0, 30), "b": (0, 10)}, on="a")
    assert windows(spark, tmp_path) == [0, 10, 20]
    run(spark, tmp_path, {"b": (0, 10)})
    rows = {"b": (0, 50)}
    if kill_at:
        with pytest.raises(Killed):
            run(spark, tmp_path, rows, on="b", kill_at=kill_at)
    run(spark, tmp_path, rows, on="b")
    assert windows(spark, tmp_path) == [0, 10, 10, 20, 20, 30, 40]  # those of one stream, and those of the other
    run(spark, tmp_path, rows, on="b")
    assert windows(spark, tmp_path) == [0, 10, 10, 20, 20, 30, 40]


def test_a_stream_that_was_away_reads_anew_beside_what_is_there(spark, tmp_path):
    """Where a stream had come to is forgotten without it, but not which results its query has."""
    run(spark, tmp_path, {"a": (0, 30), "b": (0, 10)}, on="a")
    copies = tmp_path / "checkpoint" / "lookups"
    for name in "ab":
        (copies / name).mkdir(parents=True)
        (copies / name / "old.tables").touch()
    run(spark, tmp_path, {"b": (0, 20)})
    left = {
        each.name: sorted(path.name for path in each.iterdir()) for each in copies.parent.iterdir() if each.is_dir()
    }
    assert (left["lookups"], left["files"]) == (["b"], ["b"]), "nothing of the other's state is needed any more"
    assert list((copies / "b").iterdir()) == []
    assert "a" in left["dead-letters"]
    run(spark, tmp_path, {"a": (100, 120), "b": (0, 20)}, on="a")
    assert windows(spark, tmp_path) == [0, 10, 20, 40, 50]
