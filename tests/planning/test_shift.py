"""Costs that change are found by the times of cuts, since when, and of which phase; noise and wild cuts are not."""

from __future__ import annotations

import random

import pytest

from transom.model.phases import OF_A_JOB, CutPhases, Phase, StageTasks
from transom.model.tuning import StreamTuning
from transom.planning.cuts import Cutting
from transom.planning.fit import LEAST
from transom.planning.phases import TASKS
from transom.planning.profile import PhaseCost, StreamProfile
from transom.planning.shift import Change, Shift

CORES = 2
NOISE = 0.02
RAN = 0.9
"""Seconds for which tasks run in executors, for each of the clock."""


def costs(row: float = 3e-4, plan: float = 0.06, exchange: float = 0.02, noise: float = NOISE) -> StreamProfile:
    found = {
        Phase.PLAN: PhaseCost(plan, 0.0, noise),
        Phase.LAUNCH: PhaseCost(0.01, 0.003, noise),
        Phase.MAP: PhaseCost(0.02, row, noise, RAN),
        Phase.EXCHANGE: PhaseCost(exchange, 0.0, noise, RAN),
        Phase.COLLECT: PhaseCost(0.01, 0.0, noise),
        Phase.COMMIT: PhaseCost(0.01),
    }
    return StreamProfile(found)


def cut(
    number: int,
    known: StreamProfile,
    tuning: StreamTuning,
    rows: int,
    asked: bool,
    times: float = 1.0,
    cores: float = CORES,
) -> CutPhases:
    """Return a cut that takes so many times what a profile says with so many cores."""
    of = Cutting(known, tuning, CORES, cores).of(rows)
    seconds = {phase: times * of.mean(phase) for phase in OF_A_JOB}
    ran = {phase: times * RAN * of.work(phase) for phase in TASKS}
    stages = (StageTasks(of.tasks, seconds[Phase.MAP], 0.0, ran[Phase.MAP], 1.0, rows),)
    if of.behind:
        stages += (StageTasks(of.behind, seconds[Phase.EXCHANGE], 0.0, ran[Phase.EXCHANGE], 1.0),)
    seen = {**(seconds if asked else {}), Phase.COMMIT: times * of.mean(Phase.COMMIT)}
    tasks = of.tasks if asked else None
    return CutPhases("s", number, rows, seen, sum(seconds.values()), tasks, stages=stages if asked else ())


class Watched:
    """A stream whose cuts are watched; Spark is asked about each eighth, and about each where that is wanted."""

    def __init__(self, known: StreamProfile, tuning: StreamTuning | None = None, asked: bool = True) -> None:
        self.tuning = tuning or StreamTuning()
        self.shift = Shift(known, self.tuning, CORES, CORES, 2_000.0)
        self.number, self.asked = 0, asked

    def see(self, now: StreamProfile, rows: int = 600, times: float = 1.0, cores: float = CORES) -> Change | None:
        self.number += 1
        asked = self.asked and (self.shift.asks or self.number % 8 == 1)
        self.shift.take(cut(self.number, now, self.tuning, rows, asked, times, cores))
        return self.shift.found()

    def until_found(self, now: StreamProfile, most: int, rows: int = 600) -> Change:
        for _ in range(most):
            if change := self.see(now, rows):
                return change
        raise AssertionError(f"nothing was found in {most} cuts")


@pytest.mark.parametrize("row, most", [(6e-4, 6), (3e-3, 4), (4.5e-4, 12), (1.2e-4, 6)])
def test_a_row_that_costs_something_else_is_found_within_few_cuts(row: float, most: int) -> None:
    watched = Watched(costs())
    assert not any(watched.see(costs()) for _ in range(50))
    change = watched.until_found(costs(row), most)
    assert change.since == 51
    assert change.profile.cost(Phase.MAP).each == pytest.approx(row, rel=0.2)
    for phase in (Phase.PLAN, Phase.LAUNCH, Phase.COLLECT, Phase.COMMIT):
        assert change.profile.cost(phase) == costs().cost(phase)


def test_a_fixed_part_that_is_another_one_leaves_what_a_row_costs() -> None:
    change = Watched(costs()).until_found(costs(plan=0.3), 8)
    assert change.profile.cost(Phase.PLAN).fixed == pytest.approx(0.3)
    assert change.profile.cost(Phase.MAP) == costs().cost(Phase.MAP)


def test_a_phase_that_was_never_seen_is_taken_in() -> None:
    divided = StreamTuning(rows_per_task=300)
    change = Watched(costs(exchange=0.0), divided).until_found(costs(exchange=0.2), 8)
    assert change.profile.cost(Phase.EXCHANGE).fixed == pytest.approx(0.2, rel=0.2)
    assert change.profile.cost(Phase.MAP) == costs().cost(Phase.MAP)


def test_what_is_a_fifth_off_is_found_within_twenty_cuts_and_a_twentieth_never() -> None:
    watched = Watched(costs())
    assert not any(watched.see(costs(), times=1.05) for _ in range(300))
    assert any(watched.see(costs(), times=1.21) for _ in range(20))


def test_without_phases_all_of_them_follow() -> None:
    watched = Watched(costs(), asked=False)
    change = watched.until_found(costs(6e-4), 8)
    assert change.profile.cost(Phase.MAP).each == pytest.approx(3e-4 * change.ratio)
    assert change.profile.cost(Phase.PLAN).fixed == pytest.approx(0.06 * change.ratio)


def test_what_no_phase_explains_is_shared_by_all_of_them_and_not_found_again() -> None:
    """The tasks of these cuts have an exchange, while one task is all that the model has for them."""
    divided = StreamTuning(rows_per_task=300)
    watched = Watched(costs(exchange=0.0))

    def see(number: int) -> Change | None:
        watched.shift.take(cut(number, costs(exchange=0.5), divided, 600, True))
        return watched.shift.found()

    change = next(found for number in range(1, 9) if (found := see(number)))
    watched.shift = watched.shift.after(change)
    assert not any(see(number) for number in range(9, 200))


def test_a_phase_that_takes_no_time_any_more_is_mended() -> None:
    """Of each cut other phases are missing: the medians of all are nothing, and what is expected must not be."""
    shift = Shift(costs(noise=0.0), StreamTuning(), CORES, CORES, 2_000.0)
    phases = (Phase.PLAN, Phase.MAP, Phase.LAUNCH)
    for number in range(12):
        took = {phase: 0.05 if phase is phases[number % 3] else 0.0 for phase in OF_A_JOB}
        stages = (StageTasks(1, 1, 0, took[Phase.MAP], 1),)
        shift.take(CutPhases("s", number, 600, {**took, Phase.COMMIT: 0.0}, 0.05, 1, stages))
        if change := shift.found():
            break
    assert change is not None
    assert Cutting(change.profile, StreamTuning(), CORES, CORES).seconds(600) == pytest.approx(0.05, rel=0.15)


@pytest.mark.parametrize("cores", [1, 1.4])
def test_cores_that_are_missing_are_no_cost_of_rows_while_they_are_nor_when_they_are_back(cores: float) -> None:
    watched = Watched(costs(), StreamTuning(rows_per_task=100))
    for _ in range(3):
        assert not any(watched.see(costs(), cores=cores) for _ in range(20))
        assert not watched.shift.asks
        assert not any(watched.see(costs()) for _ in range(20))
    assert not watched.shift.asks


def test_a_row_that_costs_something_else_is_found_while_cores_are_missing() -> None:
    watched = Watched(costs(), StreamTuning(rows_per_task=100))
    assert not any(watched.see(costs(), cores=1) for _ in range(20))
    change = next(found for _ in range(8) if (found := watched.see(costs(6e-4), cores=1)))
    assert change.profile.cost(Phase.MAP).each == pytest.approx(6e-4, rel=0.25)
    assert change.profile.cost(Phase.EXCHANGE) == costs().cost(Phase.EXCHANGE)
    watched.shift = watched.shift.after(change)
    assert not any(watched.see(costs(6e-4), cores=1) for _ in range(20))


def test_a_fixed_part_is_found_while_cores_are_missing() -> None:
    watched = Watched(costs(), StreamTuning(rows_per_task=100))
    change = next(found for _ in range(8) if (found := watched.see(costs(plan=0.5), cores=1)))
    assert change.profile.cost(Phase.PLAN).fixed == pytest.approx(0.5)
    assert change.profile.cost(Phase.MAP) == costs().cost(Phase.MAP)


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.1, 0.3])
def test_noise_is_no_change(noise: float) -> None:
    found, chance = 0, random.Random(1)
    for _ in range(4):
        watched = Watched(costs(noise=noise))
        # Map is most of a cut, and its noise therefore most of the cut's.
        for _ in range(250):
            times = chance.gammavariate(1 / noise, noise) if noise else 1.0
            found += watched.see(costs(noise=noise), rows=3_000, times=times) is not None
    assert found == 0


def test_single_wild_cuts_are_no_change() -> None:
    watched = Watched(costs())
    assert not any(watched.see(costs(), times=10.0 if number % 12 == 5 else 1.0) for number in range(240))


def test_after_a_change_spark_is_asked_until_costs_are_known_and_nothing_more_is_found() -> None:
    watched = Watched(costs())
    assert not watched.shift.asks
    change = watched.until_found(costs(6e-4), 8)
    watched.shift = watched.shift.after(change)
    for _ in range(LEAST):
        assert watched.shift.asks
        assert watched.see(costs(6e-4)) is None
    assert not watched.shift.asks


def test_cuts_without_a_job_say_nothing() -> None:
    watched = Watched(costs())
    for number in range(20):
        watched.shift.take(CutPhases("s", number, 0, {Phase.COMMIT: 9.0}))
        watched.shift.take(CutPhases("s", number, 500, {}))
    assert watched.shift.found() is None
