"""Transcripts of applications that plan as they run: how soon limits are kept again, how often settings change."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.engine.planned_world import LIMIT, World, always, at, profile

from transom.planning.model import Machine, Model

CHANGE = 120.0
"""Seconds, in the virtual time of the transcripts."""
AGAIN = 60.0
"""Seconds in which limits are kept again."""


def kept_again(world: World) -> bool:
    return world.kept(CHANGE + AGAIN)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("asked", [True, False])
def test_a_row_that_costs_twice_as_much_is_planned_for(monkeypatch: Any, seed: int, asked: bool) -> None:
    world = World(monkeypatch, profile(2), row=at(CHANGE, 3e-4, 6e-4), seed=seed, asked=asked).run(CHANGE)
    as_they_were = Model(profile(2, row=6e-4), Machine(2, shared=False), world.tuner.tuning, {"s": 2_000.0}).predict()
    assert as_they_were.streams["s"].result.mean > LIMIT  # as one core does not do it
    world.run(180)
    assert kept_again(world)
    changes = world.changes(CHANGE)
    assert 1 <= len(changes) <= 2
    assert changes[0][1].startswith("as cuts of s take ")
    assert not world.changes(0)[: -len(changes)]
    learned = world.digests.known().profile.streams["s"]
    if asked:
        assert learned.costs["map"].each == pytest.approx(6e-4, rel=0.1)  # type: ignore[index]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_row_that_costs_half_is_found_and_settings_do_not_flap(monkeypatch: Any, seed: int) -> None:
    world = World(monkeypatch, profile(2, row=6e-4), row=at(CHANGE, 6e-4, 3e-4), seed=seed).run(300)
    assert world.kept(30)
    assert len(world.changes(CHANGE)) <= 2
    assert world.digests.known().profile.streams["s"].costs["map"].each == pytest.approx(3e-4, rel=0.15)  # type: ignore[index]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_rate_that_rises_by_half_is_planned_for_once(monkeypatch: Any, seed: int) -> None:
    world = World(monkeypatch, profile(2), rate=at(CHANGE, 2_000, 3_000), seed=seed).run(300)
    assert kept_again(world)
    assert len(world.changes(CHANGE)) == 1
    assert world.planner.drift.moved({"s": 3_000.0}) is None
    assert world.planner.drift.moved({"s": 2_550.0}) is None  # it was planned for nearly all of it


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_cores_that_go_are_planned_for_and_no_cost_of_rows_is_taken_for_it(monkeypatch: Any, seed: int) -> None:
    known = profile(4, row=6e-4)
    world = World(monkeypatch, known, row=always(6e-4), cores=at(CHANGE, 4, 2), seed=seed).run(300)
    assert kept_again(world)
    assert len(world.changes(CHANGE)) <= 2
    assert world.planner.drift.reason({"s": 2_000.0}, world.clock.monotonic() + 90_000_000, 4) == (
        "there are 4 cores, and 2 were planned for"
    )
    assert world.digests.known().profile.streams["s"].costs["map"].each == pytest.approx(6e-4, rel=0.15)  # type: ignore[index]


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("moment", [30, 75, CHANGE])
def test_cores_that_are_soon_back_change_nothing_and_costs_are_watched_as_before(
    monkeypatch: Any, seed: int, moment: float
) -> None:
    """As when an executor is lost, and another one takes its place."""

    def cores(second: float) -> float:
        return 2 if moment <= second < moment + 8 else 4

    world = World(monkeypatch, profile(4, row=8e-4), row=at(200, 8e-4, 1.6e-3), cores=cores, seed=seed).run(199)
    assert not world.changes(20)
    assert world.digests.known().profile.streams["s"].costs["map"].each == pytest.approx(8e-4, rel=0.15)  # type: ignore[index]
    world.run(40)  # a cut takes three seconds now
    assert world.digests.known().profile.streams["s"].costs["map"].each == pytest.approx(1.6e-3, rel=0.2)  # type: ignore[index]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_overload_that_comes_and_goes_is_told_and_leaves_settings_right(monkeypatch: Any, seed: int) -> None:
    world = World(monkeypatch, profile(2), rate=lambda second: 9_000 if 120 <= second < 150 else 2_000.0, seed=seed)
    world.run(420)
    assert [note.split(" rows/s")[0].split(" ")[0] for note in world.notes] == ["s", "All"]
    assert "cannot keep its limit" in world.notes[0]
    assert len(world.changes(CHANGE)) <= 3
    assert world.kept(300)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("noise", [0.01, 0.1])
def test_nothing_changes_while_nothing_is_new(monkeypatch: Any, seed: int, noise: float) -> None:
    def rate(second: float) -> float:
        return 2_000 * (1 + random.Random(second).uniform(-0.1, 0.1))

    world = World(monkeypatch, profile(2, noise=noise), rate=rate, noise=noise, seed=seed).run(660)
    assert len(world.changes(60)) <= 1  # of ten minutes


def growing(monkeypatch: Any, seed: int, row: Any = 3e-5, **values: Any) -> World:
    """Return an application on two executors of a core that may ask for eight; 20,000 rows/s keep 0.6 cores busy."""
    now = row if callable(row) else always(row)
    return World(monkeypatch, profile(2, row=now(0)), row=now, seed=seed, most=8, **values)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_executors_come_when_the_rate_needs_them_and_go_when_it_does_not(monkeypatch: Any, seed: int) -> None:
    def rate(second: float) -> float:
        return 90_000.0 if CHANGE <= second < 480 else 20_000.0

    world = growing(monkeypatch, seed, rate=rate).run(CHANGE)
    assert world.cluster.asked == []
    world.run(350)
    asked = world.cluster.asked[-1]
    assert 4 <= asked <= 6  # as 2.7 cores have to do all the time
    assert len(world.cluster.alive) == asked
    world.run(630)
    assert world.cluster.asked == [*sorted(world.cluster.asked[:-1]), 2]
    assert len(world.cluster.asked) <= 3
    assert world.cluster.alive == ["0", "1"]
    assert world.kept(CHANGE + 4 * AGAIN)
    assert world.cluster.closed == world.cluster.ended


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_executors_come_when_rows_cost_more(monkeypatch: Any, seed: int) -> None:
    world = growing(monkeypatch, seed, row=at(CHANGE, 3e-5, 1.2e-4), rate=always(20_000)).run(450)
    assert 1 <= len(world.cluster.asked) <= 3
    assert world.cluster.asked == sorted(world.cluster.asked)
    assert 3 <= len(world.cluster.alive) <= 6
    assert world.kept(CHANGE + 3 * AGAIN)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_executors_that_do_not_come_are_not_planned_with(monkeypatch: Any, seed: int) -> None:
    world = growing(monkeypatch, seed, rate=at(CHANGE, 20_000, 90_000), room=3).run(400)
    assert len(world.cluster.alive) == 3
    asked = world.cluster.asked[0]
    said = f"{asked} executors were asked for; for a minute there have been 3."
    assert any(note.startswith(said) for note in world.notes)
    world.run(max(0, world.tuner.changes[-1][0] + 1.5 * AGAIN - world.second))
    basis = world.planner.drift._basis
    assert basis is not None
    assert basis.cores == 3


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_executors_do_not_come_and_go_with_noise(monkeypatch: Any, seed: int) -> None:
    chance = random.Random(seed)

    def noisy(mean: float) -> Any:
        return lambda second: mean * chance.uniform(0.9, 1.1) if second else mean

    world = growing(monkeypatch, seed, row=noisy(6e-5), rate=noisy(30_000)).run(900)
    assert 1 <= len(world.cluster.asked) <= 2
    assert world.kept(AGAIN)
