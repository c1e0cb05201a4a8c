"""Jobs with phases in virtual time: tasks share the cores, and what is measured of them is what they cost."""

from __future__ import annotations

import math
import random
from pathlib import Path
from statistics import fmean

import pytest
from benchmarks.plan import Numbers
from benchmarks.replan import recovered
from benchmarks.simulated_plans import NOON, Truth, _Arrivals, play, random_truth
from pyspark.sql import SparkSession

from transom.engine.control.phases import PhaseRecorder
from transom.engine.loop.planner import decide
from transom.model.phases import CutPhases, Phase
from transom.model.tuning import StreamTuning, Tuning
from transom.planning.events import checked
from transom.planning.fleet import Fleet
from transom.planning.goals import Goal
from transom.planning.model import Machine, Model
from transom.planning.profile import Equipment, PhaseCost, Profile, StreamProfile

COSTS = {
    Phase.PLAN: PhaseCost(0.05),
    Phase.LAUNCH: PhaseCost(0.01, 0.002),
    Phase.MAP: PhaseCost(0.02, 0.0005),
    Phase.EXCHANGE: PhaseCost(0.03),
    Phase.COLLECT: PhaseCost(0.01),
    Phase.COMMIT: PhaseCost(0.008),
    Phase.CONSOLIDATE: PhaseCost(0.004),
}


def seen(spark: SparkSession, directory: Path, streams: int, cores: int) -> tuple[list[CutPhases], float]:
    one = StreamProfile(COSTS, piece=1.0, closing=2.0)
    names = [f"s{number}" for number in range(streams)]
    truth = Truth(
        Profile("", Equipment(cores, False), dict.fromkeys(names, one)),
        dict.fromkeys(names, 400.0),
        dict.fromkeys(names, 3.0),
    )
    cuts: list[CutPhases] = []

    def prepare(app):
        app._phases = lambda: PhaseRecorder(cuts.append, every=1)

    tuning = Tuning(streams, dict.fromkeys(names, StreamTuning(50_000, None, 100, 2)))
    played = play(spark, directory / "checkpoint", truth, cores, 20.0, tuning, prepare=prepare)
    return [cut for cut in cuts if cut.rows], played.mean("s0")


@pytest.mark.usefixtures("compiled_once")
def test_phases_take_what_they_cost(spark: SparkSession, tmp_path: Path) -> None:
    """400 rows in four tasks on two cores: two waves of 70 ms; then two tasks of 30 ms beside each other."""
    cuts, latency = seen(spark, tmp_path, 1, 2)
    assert len(cuts) >= 18
    expected = {"plan": 0.05, "launch": 0.022, "map": 0.14, "exchange": 0.03, "collect": 0.01}
    for cut in cuts:
        assert cut.tasks == 4
        assert {str(phase): cut.seconds[phase] for phase in Phase if str(phase) in expected} == pytest.approx(
            expected, abs=1e-4
        )
        assert cut.seconds[Phase.COMMIT] == pytest.approx(0.008, abs=1e-4)
    # A row is seen at once, as the grid of looks is that of arrivals; then all phases, commit and consolidation.
    assert latency == pytest.approx(0.252 + 0.008 + 0.004, abs=0.051)


@pytest.mark.usefixtures("compiled_once")
def test_the_job_that_was_there_first_has_the_cores_first(spark: SparkSession, tmp_path: Path) -> None:
    """As in a pool of Spark's: the other job waits for both waves of the first one, 140 ms, which counts as launch.

    Then it has a core; the other one has the exchange of the first one to do, one task after the other, for 60 ms.
    """
    cuts, _ = seen(spark, tmp_path, 2, 2)
    found = {
        name: {
            (round(cut.seconds[Phase.LAUNCH], 3), round(cut.seconds[Phase.MAP], 3))
            for cut in cuts
            if cut.stream == name
        }
        for name in ("s0", "s1")
    }
    assert found == {"s0": {(0.022, 0.14)}, "s1": {(0.158, 0.2)}}


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_once")
def test_streams_that_share_cores_are_in_the_real_loop_as_they_are_event_by_event(
    spark: SparkSession, tmp_path: Path
) -> None:
    """They take turns on 44 cores: by the closed form the second has to wait for half as long again."""
    chance = random.Random(96)
    truth = random_truth(chance, chance.choice((1, 2, 4)), 40)
    tuning = Tuning(2, {"s0": StreamTuning(100_000, None, 33, 4), "s1": StreamTuning(50_000, None, 30, 4)})
    said = Model(truth.profile, Machine(44, False), tuning, truth.rates).predict()
    seen = checked(truth.profile, Machine(44, False), tuning, truth.rates, said)
    runs = [
        play(spark, tmp_path / str(seed), truth, 44, 60.0, tuning, seed, phases=random.Random(seed))
        for seed in range(3)
    ]
    for name in truth.rates:
        real = fmean(run.mean(name) for run in runs)
        assert seen.streams[name].result.mean == pytest.approx(real, rel=0.05)
    assert said.streams["s1"].result.mean > 1.2 * seen.streams["s1"].result.mean


@pytest.mark.slow
@pytest.mark.parametrize(("load", "trigger"), [(0.3, 1.5), (0.6, 3.0), (0.8, 3.0)])
@pytest.mark.usefixtures("compiled_once")
def test_cuts_that_complete_windows_follow_each_other_in_the_real_loop_as_foretold(
    spark: SparkSession, tmp_path: Path, load: float, trigger: float
) -> None:
    """Windows end every second, so that the cut behind a trigger begins a run of cuts, the first of which are long."""
    costs = {Phase.PLAN: PhaseCost(0.06, 0.0, 0.02), Phase.MAP: PhaseCost(0.01, load / 2_000.0, 0.02)}
    one = StreamProfile({**costs, Phase.COMMIT: PhaseCost(0.01)}, merged=0.0, results=0.0, piece=0.1, regular=0.0)
    truth = Truth(Profile("", Equipment(1, False), {"s": one}), {"s": 2_000.0}, {"s": 6.0})
    tuning = Tuning(1, {"s": StreamTuning(round(1e6 * trigger), None, 1_000_000, 1)})
    said = Model(truth.profile, Machine(1, False), tuning, truth.rates).predict().streams["s"].result.mean
    runs = [
        play(spark, tmp_path / str(seed), truth, 1, 60.0, tuning, seed, phases=random.Random(seed)) for seed in range(2)
    ]
    assert said == pytest.approx(fmean(run.mean("s") for run in runs), rel=0.16)


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_once")
def test_a_running_application_needs_no_more_executors_than_the_real_loop(spark: SparkSession, tmp_path: Path) -> None:
    """By the closed form two streams that have all cores in turn would be a quarter beyond their limit."""
    costs = {Phase.PLAN: PhaseCost(0.35), Phase.MAP: PhaseCost(0.0, 1.35e-4), Phase.COMMIT: PhaseCost(0.01)}
    one, names = StreamProfile(costs, merged=0.0, results=0.0, piece=0.05, regular=0.0, cuts=64), ("a", "b")
    truth = Truth(
        Profile("", Equipment(6, False), dict.fromkeys(names, one)),
        dict.fromkeys(names, 20_000.0),
        dict.fromkeys(names, 2.0),
    )
    now = Tuning(2, dict.fromkeys(names, StreamTuning(1_600_000)))
    goal, fleet = Goal(truth.rates, truth.limits, None), Fleet(6, 2, 12, 1, False)
    choice = decide(truth.profile, goal, now, now, (), 50_000, fleet).choice
    assert choice.tuning.executors == 6
    played = play(spark, tmp_path, truth, 6, 40.0, choice.tuning, phases=random.Random(1))
    for name in names:
        assert played.mean(name) == pytest.approx(choice.latencies[name], rel=0.15)
        assert played.mean(name) < 0.9 * 2.0


@pytest.mark.parametrize(
    ("behind", "end", "arrived"), [(0, 1.0, 1.03), (0, 1.03, 1.03), (0.4, 0.61, 1.03), (9, -9.0, 0.03)]
)
def test_a_window_is_completed_by_the_first_piece_with_a_row_at_its_end(
    behind: float, end: float, arrived: float
) -> None:
    of = _Arrivals(round(1e5), NOON + round(3e4), round(1e6 * behind))
    assert of.completing(NOON + round(1e6 * end)) == NOON + round(1e6 * arrived)


def test_numbers_are_right_to_within_one() -> None:
    assert Numbers(3, 4).right
    assert Numbers(None, None).right
    assert not Numbers(3, 5).right
    assert Numbers(40, None).right, "it may be one more"
    assert not Numbers(38, None).right


def test_random_jobs_are_the_same_again() -> None:
    assert random_truth(random.Random(3), 2, 40) == random_truth(random.Random(3), 2, 40)


@pytest.mark.parametrize(
    ("late", "newest", "seconds"),
    [
        ([], 299.0, 0.0),
        ([130.0, 160.5], 299.0, 40.5),
        ([130.0, 298.5], 299.0, math.inf),
        ([130.0, 160.5], 160.5, math.inf),
    ],
)
def test_results_that_are_missing_at_the_end_are_late(late: list[float], newest: float, seconds: float) -> None:
    assert recovered(late, newest) == seconds
