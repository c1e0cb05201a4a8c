"""What the job of a cut tells of its rows beside the partials: their delays, and that a restart knows them."""

from __future__ import annotations

from pathlib import Path

import pytest
from exact_helpers import NOON, SECOND, PiecewiseSource
from pyspark.sql import SparkSession

import transom as tm
from transom.checkpoint.store import Checkpoint
from transom.model.time import ManualClock
from transom.scheduling.arrivals import DelayMoments, LagHistory


@pytest.mark.parametrize(
    ("branches", "needed"),
    [pytest.param(1, True, marks=pytest.mark.slow), (2, True), pytest.param(1, None, marks=pytest.mark.slow)],
)
def test_delays_of_the_rows_that_queries_see_are_summed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, branches: int, needed: bool | None
) -> None:
    """Of all cuts as long as they are needed; a derived watermark needs those of the cold start only."""
    if needed:
        monkeypatch.setattr(LagHistory, "needs_delays", needed)
    clock = ManualClock(NOON)
    source = PiecewiseSource("t timestamp, k int", (40,))
    source.open(spark, tmp_path, clock)
    for second in range(1, 121):
        clock.advance(SECOND)
        delay = second % 3 * SECOND
        source.add([((NOON + second * SECOND - delay), second % 5)])
        source.add([(None, 0), (NOON + 10**6 * SECOND, 0)])  # without a time, and far ahead
    app = tm.App(spark, tmp_path / "checkpoint", clock=clock)
    stream = app.stream(source, event_time="t", watermark=tm.watermark("2 seconds", max_ahead="1 minute"), name="s")
    for number in range(branches):
        rows = stream.map(lambda frame, n=number: frame.where(f"k != {n}"))
        rows.group_by("k").window("10 seconds").agg(n=tm.count()).to(tm.sinks.memory(), f"q{number}")
    app.run(once=True)
    with Checkpoint.open(tmp_path / "checkpoint", clock) as checkpoint:
        assert checkpoint.snapshot is not None
        learned = checkpoint.snapshot.state["learned"]["s"]
    records, total, _ = (sum(each) for each in zip(*learned["delays"], strict=True))
    assert len(learned["lags"]) >= 9
    assert (80 < records <= 120) if needed else (0 < records <= 80)
    assert total / records == pytest.approx(SECOND, rel=0.05)
    moments = sum((DelayMoments(*each) for each in learned["delays"]), DelayMoments())
    assert moments.variance == pytest.approx(2 / 3 * SECOND**2, rel=0.1)
