"""What the model says of waits is what the real loop does in virtual time, with the real policy."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest
from pyspark.sql import SparkSession
from tests.engine.test_phases import Watched

from transom.model.phases import Phase
from transom.model.tuning import StreamTuning, Tuning
from transom.planning.model import Machine, Model, StreamLatency
from transom.planning.profile import Equipment, PhaseCost, Profile, StreamProfile
from transom.simulation.virtual import JobCosts

LOOK = 0.02
"""Seconds between two looks at a source, as `Watched` sets them."""


def predicted(streams: int, every: float, trigger: float, job: float, slots: int) -> StreamLatency:
    costs = {Phase.LOOK: PhaseCost(LOOK / 2, 0.0, 1 / 3), Phase.PLAN: PhaseCost(job)}
    one = StreamProfile(costs, piece=every, regular=0.0)
    known = Profile("", Equipment(streams, shared=False), {f"s{number}": one for number in range(streams)})
    tuning = Tuning(slots, dict.fromkeys(known.streams, StreamTuning(round(1e6 * trigger))))
    machine = Machine(streams, shared=False)
    return Model(known, machine, tuning, dict.fromkeys(known.streams, 2 / every)).predict().streams["s0"]


@pytest.mark.parametrize(
    ("every", "trigger", "job"),
    [
        (0.43, 0.1, 0.13),  # it is at rest when rows come
        (0.073, 0.3, 0.13),  # the trigger
        (0.073, 0.1, 0.53),  # its own cut
        (0.073, 0.6, 0.27),
    ],
)
@pytest.mark.usefixtures("compiled_once")
def test_a_stream_alone_waits_as_long_as_foretold(
    spark: SparkSession, tmp_path: Path, every: float, trigger: float, job: float
) -> None:
    costs = {"s0": JobCosts(fixed=round(1e6 * job), row=0.0)}
    cuts = Watched(spark, tmp_path, round(1e6 * every), costs, trigger=round(1e6 * trigger)).run()["s0"][2:]
    waited = fmean(cut.seconds.get(Phase.LOOK, 0.0) + cut.seconds.get(Phase.TURN, 0.0) for cut in cuts)
    said = predicted(1, every, trigger, job, 2)
    assert said.phases[Phase.LOOK].mean + said.phases[Phase.TURN].mean == pytest.approx(waited, rel=0.1, abs=every / 2)
    assert said.rows == pytest.approx(fmean(cut.rows for cut in cuts), rel=0.1)


@pytest.mark.usefixtures("compiled_once")
def test_streams_wait_for_each_others_slots_as_long_as_foretold(spark: SparkSession, tmp_path: Path) -> None:
    costs = {f"s{number}": JobCosts(fixed=200_000 + 10_000 * number, row=0.0, cores=4) for number in range(3)}
    found = Watched(spark, tmp_path, 73_000, costs, slots=1, trigger=50_000).run()
    waited = fmean(cut.seconds.get(Phase.SLOT, 0.0) for cuts in found.values() for cut in cuts[2:])
    said = predicted(3, 0.073, 0.05, 0.21, 1)
    assert said.phases[Phase.SLOT].mean == pytest.approx(waited, rel=0.25)
    rows = fmean(cut.rows for cuts in found.values() for cut in cuts[2:])
    assert said.rows == pytest.approx(rows, rel=0.15)
