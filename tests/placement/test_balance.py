"""Flux: variance falls with each move, what is even stays, and what is found comes near the best."""

from __future__ import annotations

from itertools import product
from math import ceil
from statistics import pvariance

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.errors import DefinitionError
from transom.placement.balance import Flux, MeasuredLoads
from transom.placement.locality import Assignment

LOADS = st.lists(st.just(0.0) | st.floats(1e-3, 1e6), min_size=1, max_size=24)
EXECUTORS = ("a", "b", "c", "d")


def applied(assignment, moves) -> Assignment:
    return assignment.moved({move.group: move.target for move in moves})


@given(LOADS, st.data())
def test_each_move_lowers_the_variance_and_says_where_from(loads, data) -> None:
    homes = tuple(data.draw(st.lists(st.sampled_from(EXECUTORS), min_size=len(loads), max_size=len(loads))))
    assignment = Assignment(homes)
    moves = Flux(1.0, 100).moves(assignment, loads, EXECUTORS)
    assert len({move.group for move in moves}) == len(moves)
    for move in moves:
        before = pvariance(assignment.loads(loads, EXECUTORS).values())
        assert assignment.homes[move.group] == move.source
        assert move.load == loads[move.group]
        assignment = applied(assignment, [move])
        assert pvariance(assignment.loads(loads, EXECUTORS).values()) < before


@given(LOADS, st.floats(1, 3))
def test_within_the_tolerance_nothing_moves_and_moving_ends(loads, tolerance) -> None:
    assignment = Assignment(("a",) * len(loads))
    flux = Flux(tolerance, 3)
    for _ in range(200):
        moves = flux.moves(assignment, loads, EXECUTORS)
        assert len(moves) <= 3
        if not moves:
            break
        assignment = applied(assignment, moves)
    else:
        pytest.fail("groups move for ever")
    totals = assignment.loads(loads, EXECUTORS).values()
    largest = max(totals) / (sum(totals) / 4) if sum(totals) else 1.0
    assert not Flux(largest * 1.0001).moves(assignment, loads, EXECUTORS)


@given(st.lists(st.integers(1, 9), min_size=2, max_size=8))
def test_two_executors_come_near_the_best_division(loads) -> None:
    assignment = Assignment(("a",) * len(loads))
    while moves := Flux(1.0, 50).moves(assignment, loads, ("a", "b")):
        assignment = applied(assignment, moves)
    best = min(
        max(
            sum(v for v, s in zip(loads, sides, strict=True) if s),
            sum(loads) - sum(v for v, s in zip(loads, sides, strict=True) if s),
        )
        for sides in product((False, True), repeat=len(loads))
    )
    # No single move helps: the two loads differ by less than the smallest group on the larger side.
    assert max(assignment.loads(loads, ("a", "b")).values()) <= max(best + max(loads) / 2, 4 / 3 * best)


def test_the_first_gives_to_the_last_and_the_second_to_the_second_last() -> None:
    assignment = Assignment(("a", "a", "b", "b", "c", "d"))
    moves = Flux(1.0, 2).moves(assignment, [6, 5, 4, 3, 2, 0], EXECUTORS)
    assert [(m.group, m.source, m.target) for m in moves] == [(0, "a", "d"), (3, "b", "c")]


def test_a_move_that_would_exchange_two_loads_is_not_made_where_a_better_one_is() -> None:
    assignment = Assignment(("a", "a", "a", "b"))
    assert [m.group for m in Flux().moves(assignment, [9, 5, 2, 6], ("a", "b"))] == [1]


@pytest.mark.parametrize("executors", [2, 7, 40])
@pytest.mark.parametrize("groups", [10, 320, 1_000])
def test_groups_that_are_all_on_one_executor_spread_however_many_there_are(executors, groups) -> None:
    assignment, loads = Assignment(("0",) * groups), [1.0] * groups
    names = [str(number) for number in range(executors)]
    found = applied(assignment, Flux(most_moves=groups).moves(assignment, loads, names)).loads(loads, names)
    assert max(found.values()) <= max(ceil(groups / executors), 1.15 * groups / executors)


def test_an_overloaded_executor_with_one_large_group_keeps_it() -> None:
    assert not Flux().moves(Assignment(("a", "a", "b")), [1000, 1, 0.5], ("a", "b"))


def test_pinned_groups_stay_and_busy_executors_get_nothing() -> None:
    assignment = Assignment(("a", "a", "b"))
    assert not Flux().moves(assignment, [5, 5, 0], ("a", "b"), pinned={0, 1})
    assert not Flux().moves(assignment, [5, 5, 0], ("a", "b"), busy={"b": 10})


def test_a_new_executor_gets_its_share() -> None:
    assignment = Assignment(("a", "b") * 6)
    later = applied(assignment, Flux(1.0, 12).moves(assignment, [1] * 12, ("a", "b", "new")))
    assert sorted(later.loads([1] * 12).values()) == [4, 4, 4]


def test_first_measurement_counts_fully_and_old_ones_fade_by_half() -> None:
    loads = MeasuredLoads.none(2, half_life=10).after([20, 0], 10)
    assert loads.rates == pytest.approx((2, 0))
    later = loads.after([0, 0], 10)
    # Weights 1/4 for the older, 1/2 for the newer measurement.
    assert later.rates == pytest.approx((2 / 3, 0))


@given(st.floats(0.01, 100), st.integers(1, 20), st.floats(0, 1e6))
def test_a_steady_load_is_measured_as_it_is(seconds, times, rate) -> None:
    loads = MeasuredLoads.none(1)
    for _ in range(times):
        loads = loads.after([rate * seconds], seconds)
    assert loads.rates[0] == pytest.approx(rate)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Flux(0.9),
        lambda: Flux(most_moves=0),
        lambda: Flux().moves(Assignment(("a",)), [1, 2], ("a",)),
        lambda: Flux().moves(Assignment(("a",)), [float("nan")], ("a",)),
        lambda: MeasuredLoads.none(0),
        lambda: MeasuredLoads.none(2).after([1], 1),
        lambda: MeasuredLoads.none(1).after([1], 0),
    ],
)
def test_what_makes_no_sense_is_refused(wrong) -> None:
    with pytest.raises(DefinitionError):
        wrong()
