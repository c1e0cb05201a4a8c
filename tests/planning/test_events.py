"""Streams that share cores, event by event: what is known of them by thought, and where the closed form is right."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from tests.planning.profiles import profile, stream, tuning

from transom.model.phases import Phase
from transom.model.tuning import StreamTuning, Tuning
from transom.planning.events import Run, applies, checked
from transom.planning.model import Machine, Model, Prediction
from transom.planning.profile import Equipment, PhaseCost, Profile, StreamProfile

cluster = partial(Machine, shared=False)
MAP, PLAN, COMMIT = 0.3, 0.35, 0.01
CORES = 6


def like(plan: float = PLAN, task: float = MAP, parts: int = CORES, **values) -> StreamProfile:
    """Return a stream whose cuts have as many tasks as there are cores, each of one length."""
    costs = {Phase.PLAN: PhaseCost(plan), Phase.MAP: PhaseCost(task), Phase.COMMIT: PhaseCost(COMMIT)}
    return StreamProfile(costs, parts=parts, **values)


def both(one: StreamProfile, other: StreamProfile, slots: int = 2, cores: int = CORES) -> tuple[Prediction, Prediction]:
    """Return what the closed form says of two streams, and what comes event by event."""
    known, rates = Profile("", Equipment(1), {"a": one, "b": other}), {"a": 1_000.0, "b": 1_000.0}
    settings = Tuning(slots, dict.fromkeys(rates, StreamTuning(0, None, 1, 1)))
    said = Model(known, cluster(cores), settings, rates).predict()
    return said, checked(known, cluster(cores), settings, rates, said)


def test_streams_that_take_turns_hold_up_neither() -> None:
    """While one has all cores the other is planned; whoever comes too early waits once, and never again."""
    said, seen = both(like(), like())
    for name in ("a", "b"):
        assert seen.streams[name].cycle == pytest.approx(PLAN + MAP + COMMIT, rel=0.02)
        assert said.streams[name].cycle > 1.05 * seen.streams[name].cycle
        # Rows wait for half of a cut, and then for the next one.
        assert seen.streams[name].record.mean == pytest.approx(1.5 * (PLAN + MAP + COMMIT), rel=0.02)


@pytest.mark.parametrize(
    ("piece", "load", "trigger"), [(0.05, 0.6, 3.0), (0.25, 0.8, 3.0), (1.0, 0.3, 1.5), (1.0, 0.6, 3.0)]
)
def test_a_stream_whose_windows_end_more_often_than_its_trigger_says(piece: float, load: float, trigger: float) -> None:
    """Cuts that complete windows follow each other at once, if something came meanwhile."""
    costs = {Phase.PLAN: PhaseCost(0.06, 0.0, 0.02), Phase.MAP: PhaseCost(0.01, load / 2_000, 0.02)}
    known = Profile("", Equipment(1), {"a": StreamProfile(costs, piece=piece, regular=0.0, closing=1.0)})
    settings = Tuning(1, {"a": StreamTuning(round(1e6 * trigger), None, 1_000_000, 1)})
    said = Model(known, cluster(1), settings, {"a": 2_000.0}).predict().streams["a"].record.mean
    chance = np.random.default_rng(0)
    runs = [Run(known, cluster(1), settings, {"a": 2_000.0}, chance).play(20, 320)["a"] for _ in range(2)]
    cuts = np.concatenate(runs)
    assert said == pytest.approx(np.average(cuts[:, 1], weights=cuts[:, 0]), rel=0.12)


def test_streams_that_cannot_take_turns_wait_for_each_other() -> None:
    """The cores are always busy: a cycle is the tasks of both."""
    _, seen = both(like(plan=0.1), like(plan=0.1))
    for name in ("a", "b"):
        assert seen.streams[name].cycle == pytest.approx(2 * MAP, rel=0.02)
        waited = sum(seen.streams[name].phases[phase].mean for phase in (Phase.LAUNCH, Phase.MAP))
        assert waited == pytest.approx(2 * MAP - 0.1 - COMMIT, rel=0.05)


def test_tasks_that_wait_begin_when_those_of_the_other_end() -> None:
    """Of four tasks on the six cores two wait, for the rest of what the other has, and not for a whole task."""
    _, seen = both(like(plan=0.1, parts=4), like(plan=0.1, parts=4))
    for one in seen.streams.values():
        assert MAP <= one.phases[Phase.MAP].mean < 1.7 * MAP
        assert one.cycle >= 8 * MAP / CORES


def test_streams_with_one_slot_have_it_in_turn() -> None:
    _, seen = both(like(), like(), slots=1)
    job = PLAN + MAP
    for one in seen.streams.values():
        assert one.cycle == pytest.approx(2 * (job + COMMIT), rel=0.03)
        assert one.phases[Phase.SLOT].mean > 0.3 * job


@pytest.mark.parametrize("piece", [0.0, 0.25])
@pytest.mark.parametrize("trigger", [0.05, 2.0])
def test_streams_that_have_cores_enough_are_as_the_closed_form_says(piece: float, trigger: float) -> None:
    values = {"piece": piece, "regular": 0.0, "closing": 20.0}
    known = profile(a=stream(**values), b=stream(row=2e-5, **values))
    rates, settings = {"a": 20_000.0, "b": 10_000.0}, tuning(known, trigger, rows_per_task=7_000)
    said = Model(known, cluster(64), settings, rates).predict()
    seen = checked(known, cluster(64), settings, rates, said)
    for name in rates:
        assert seen.streams[name].result.mean == pytest.approx(said.streams[name].result.mean, rel=0.06)
        assert seen.streams[name].cycle == pytest.approx(said.streams[name].cycle, rel=0.06)
        phases = seen.streams[name].phases
        assert sum(each.mean for each in phases.values()) == pytest.approx(seen.streams[name].result.mean, rel=1e-6)
        for phase in (Phase.PLAN, Phase.LAUNCH, Phase.MAP, Phase.EXCHANGE, Phase.COLLECT):
            assert phases[phase].mean == pytest.approx(said.streams[name].phases[phase].mean, rel=0.1, abs=1e-3)


def test_the_same_numbers_give_the_same_prediction() -> None:
    assert both(like(task=0.2), like()) == both(like(task=0.2), like())


def test_what_is_not_played_stays_as_it_was_said() -> None:
    one, two = profile(), profile(a=stream(), b=stream())
    chain = profile(a=stream(), b=stream(after="a"))
    assert not applies(one, cluster(4))
    assert not applies(two, Machine(4, shared=True))
    assert not applies(chain, cluster(4))
    assert applies(two, cluster(4))
    rates = {"a": 1e9, "b": 1e9}
    said = Model(two, cluster(4), tuning(two), rates).predict()
    assert not said.keeps_up
    assert checked(two, cluster(4), tuning(two), rates, said) is said


def test_rows_that_come_at_random_and_unevenly_are_as_many() -> None:
    one = like(piece=0.05, regular=1.0, uneven=0.3)
    known, rates = Profile("", Equipment(1), {"a": one, "b": replace(one, regular=0.0)}), {"a": 500.0, "b": 500.0}
    settings = Tuning(2, dict.fromkeys(rates, StreamTuning(0, None, 1, 1)))
    cuts = Run(known, cluster(CORES), settings, rates, np.random.default_rng(1)).play(0.0, 400.0)
    for name in rates:
        assert cuts[name][:, 0].sum() * 0.05 == pytest.approx(400, rel=0.05)
