"""How many executors there should be: enough, not more, and not another number with each change of the rates."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from transom.planning.fleet import AHEAD, SPARE, Fleet, Ratio, wanted

NEVER = math.inf


def doing(work: float, fixed: float = 0.2) -> Ratio:
    """Return the ratios of work for so many executors; fixed is the part that no executors make shorter."""

    def ratio(executors: int, times: float) -> float:
        free = 1 - times * work / executors
        return fixed + 0.1 / free if free > 0 else NEVER

    return ratio


def keeps(ratio: Ratio, executors: int, times: float = 1.0) -> bool:
    return ratio(executors, times) <= 1


@pytest.mark.parametrize(
    ("asked", "work", "fixed", "expected"),
    [
        (2, 1.0, 0.2, 2),  # kept
        (2, 1.9, 0.2, 3),  # not kept; and so that a rate that rises by a quarter is
        (2, 4.0, 0.2, 6),
        (2, 6.9, 0.2, 8),  # the most keep it, but not with more rates
        (2, 20.0, 0.2, 8),  # nothing keeps up
        (8, 4.0, 0.2, 7),  # and so that a rate that rises by half is
        (8, 0.5, 0.2, 2),  # fewer would do, but so many there were
        (3, 2.2, 0.2, 3),  # two would not do it with a quarter more
        (8, 1.0, 2.0, 8),  # nothing is given back while limits are not kept
        (2, 1.5, 2.0, 4),  # no number keeps the limit: four do about as well as eight
        (9, 9.0, 0.2, 8),  # more were asked for than there may be now
    ],
)
def test_numbers(asked: int, work: float, fixed: float, expected: int) -> None:
    assert wanted(Fleet(asked, 2, 8, 1), doing(work, fixed)) == expected


def test_more_than_may_be_asked_for_stay_if_they_were_there() -> None:
    for work in (0.1, 4.0, 50.0):
        assert wanted(Fleet(5, 5, 2, 1), doing(work)) == 5


def test_none_are_given_back_too_soon() -> None:
    assert wanted(Fleet(8, 2, 8, 1, gives_back=False), doing(0.5)) == 8
    assert wanted(Fleet(2, 2, 8, 1, gives_back=False), doing(4.0)) == 6


fleets = st.builds(
    lambda least, more, asked: Fleet(least + min(asked, more), least, least + more, 1),
    st.integers(1, 20),
    st.integers(0, 100),
    st.integers(0, 100),
)


@example(Fleet(asked=1, least=1, most=5, cores=1), 1.0, 0.875)  # five keep it now, but not at rates that rise
@example(Fleet(asked=6, least=1, most=60, cores=1), 1.0, 0.86)  # and hardly better than six do
@given(fleets, st.floats(0, 150), st.floats(0, 2))
def test_enough_and_no_more(fleet: Fleet, work: float, fixed: float) -> None:
    ratio = doing(work, fixed)
    found = wanted(fleet, ratio)
    assert fleet.least <= found <= fleet.most
    if any(keeps(ratio, number) for number in range(fleet.least, fleet.most + 1)):
        assert keeps(ratio, found)
    if found > fleet.asked:
        assert not keeps(ratio, fleet.asked)
        if found > fleet.asked + 1 and keeps(ratio, fleet.most):
            assert not keeps(ratio, found - 1, AHEAD)
    if found < min(fleet.asked, fleet.most):
        assert keeps(ratio, found, SPARE)
        assert found == fleet.least or not keeps(ratio, found - 1, SPARE)


@given(fleets, st.floats(0, 150), st.floats(0, 2))
def test_at_the_same_rates_nothing_changes_again(fleet: Fleet, work: float, fixed: float) -> None:
    ratio = doing(work, fixed)
    found = wanted(fleet, ratio)
    assert wanted(Fleet(found, fleet.least, fleet.most, 1), ratio) == found


@given(fleets, st.floats(0.5, 60), st.integers(0, 100))
def test_executors_do_not_come_and_go_with_rates_that_move_by_a_tenth(fleet: Fleet, work: float, seed: int) -> None:
    chance, asked, changes = random.Random(seed), min(fleet.asked, fleet.most), list[int]()
    for _ in range(60):
        found = wanted(Fleet(asked, fleet.least, fleet.most, 1), doing(work * chance.uniform(0.9, 1.1)))
        changes += [found - asked] if found != asked else []
        asked = found
    assert all(change < 0 for change in changes[1:]), "more come at once, if at all, and none are asked for again"


@given(st.integers(1, 1_000), st.floats(0, 2_000))
def test_few_ratios_are_asked_for(most: int, work: float) -> None:
    asked = []
    inner = doing(work)

    def ratio(executors: int, times: float) -> float:
        asked.append(executors)
        return inner(executors, times)

    wanted(Fleet(1, 1, most, 1), ratio)
    assert len(asked) <= 4 * math.log2(most + 1) + 6
