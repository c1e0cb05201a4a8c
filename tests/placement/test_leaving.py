"""Executors that are given back: who goes, in which steps, and who stays after all."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.placement.leaving import PATIENCE, QUIET, Executor, Leaver, next_step

SECOND = 1_000_000
THREE = [Executor("0", groups=2), Executor("1", groups=2), Executor("2", groups=2)]


@pytest.mark.parametrize(
    ("there", "wanted", "go"),
    [
        (THREE, None, []),
        (THREE, 3, []),
        (THREE, 5, []),
        (THREE, 2, ["2"]),  # the last that came
        (THREE, 1, ["2", "1"]),
        ([*THREE, Executor("10", groups=2)], 3, ["10"]),
        ([Executor("0"), *THREE[1:]], 2, ["0"]),  # nothing has to move
        ([*THREE[:2], Executor("2", groups=2, going=True)], 2, []),  # it goes anyhow
        ([*THREE[:2], Executor("2", groups=2, going=True)], 1, ["1"]),
        ([Executor("pod-7"), Executor("pod-8")], 1, ["pod-7"]),
    ],
)
def test_who_goes(there: list[Executor], wanted: int | None, go: list[str]) -> None:
    step = next_step(there, {}, wanted, 7)
    assert list(step.leaving) == go
    assert step.end == ()


def test_groups_move_first_then_tasks_end_and_then_it_is_ended() -> None:
    step = next_step(THREE, {}, 2, 0)
    assert (list(step.leaving), step.close, step.end) == (["2"], (), ())
    step = next_step(THREE, step.leaving, 2, SECOND)
    assert (step.close, step.end) == ((), ())
    empty = [*THREE[:2], Executor("2", tasks=1)]
    step = next_step(empty, step.leaving, 2, 2 * SECOND)
    assert (step.close, step.end) == (("2",), ())
    for second in range(3, 9):  # its tasks run on
        step = next_step(empty, step.leaving, 2, second * SECOND)
        assert (step.close, step.end) == ((), ())
    quiet = [*THREE[:2], Executor("2", going=True)]
    for second in range(QUIET - 1):
        step = next_step(quiet, step.leaving, 2, (9 + second) * SECOND)
        assert step.end == ()
    step = next_step(quiet, step.leaving, 2, 12 * SECOND)
    assert step.end == ("2",)
    assert not next_step(THREE[:2], step.leaving, 2, 13 * SECOND).leaving


def test_nothing_is_waited_for_longer_than_a_minute() -> None:
    step = next_step(THREE, {}, 2, 0)
    assert next_step(THREE, step.leaving, 2, PATIENCE - 1).close == ()
    step = next_step(THREE, step.leaving, 2, PATIENCE)
    assert step.close == ("2",)
    busy = [*THREE[:2], Executor("2", tasks=1)]
    assert next_step(busy, step.leaving, 2, 2 * PATIENCE - 1).end == ()
    assert next_step(busy, step.leaving, 2, 2 * PATIENCE).end == ("2",)


def test_who_still_gets_tasks_stays_after_all_when_more_are_wanted_again() -> None:
    leaving = {"1": Leaver(0), "2": Leaver(0, closed=0)}
    assert list(next_step(THREE, leaving, 3, SECOND).leaving) == ["2"]
    leaving = {"1": Leaver(0), "2": Leaver(0)}
    there = [THREE[0], Executor("1", groups=1), Executor("2", groups=2)]
    assert list(next_step(there, leaving, 2, SECOND).leaving) == ["1"]
    assert list(next_step(there, leaving, 9, SECOND).leaving) == []


@given(st.integers(1, 8), st.lists(st.integers(1, 8), min_size=1, max_size=6), st.integers(0, 1_000))
def test_in_the_end_there_are_as_many_as_are_wanted_and_none_goes_too_many(
    count: int, wishes: list[int], seed: int
) -> None:
    chance, leaving, closed = random.Random(seed), {}, set[str]()
    groups, came, now = {str(number): chance.randrange(3) for number in range(count)}, count, 0
    least = min([count, *wishes])
    for wanted in [*wishes, *wishes[-1:] * 400]:
        for id in leaving.keys() & groups.keys():
            groups[id] = max(0, groups[id] - 1)
        there = [
            Executor(id, 0 if id in closed and chance.random() < 0.7 else 1, held, id in closed)
            for id, held in groups.items()
        ]
        step = next_step(there, leaving, wanted, now)
        leaving, now = step.leaving, now + SECOND
        assert all(not groups[id] for id in step.close)
        assert closed.issuperset(step.end)
        closed.update(step.close)
        for id in step.end:
            del groups[id]
        while len(groups) < wanted:  # Spark gives as many as are asked for, those that go among them
            groups[str(came)] = 0
            came += 1
        assert len(groups) >= least
    assert len(groups) == wishes[-1]
