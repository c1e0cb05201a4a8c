"""What the last runs and arrivals tell: at once of larger runs, and of rows to come no more than came."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.scheduling.inflow import NOW, REMEMBERED, Inflow
from transom.scheduling.limits import ENOUGH
from transom.scheduling.recent import FIRST_ROWS, GROWTH, LATELY, MOST_SLOW, RecentRuns

SECOND = 1_000_000


def runs(*each: tuple[int, int], unknown: int = ENOUGH) -> RecentRuns:
    found = RecentRuns()
    for _ in range(unknown):
        found.ran(1, 1, 99 * SECOND)
    for rows, took in each:
        found.ran(rows, rows, took)
    return found


def test_the_first_runs_tell_nothing() -> None:
    assert runs().costs(100.0, 1.0) == (100.0, 1.0)
    assert runs().slowness(100.0, 1.0, 0.9) == 1.0
    assert runs(*[(100, 900)] * (ENOUGH - 1)).slowness(100.0, 1.0, 0.9) == 1.0
    assert runs(*[(100, 900)] * ENOUGH).slowness(100.0, 1.0, 0.9) == MOST_SLOW


@pytest.mark.parametrize("took, costs", [(1_240, (100.0, 1.0)), (1_260, (100.0, 1.16)), (810, (100.0, 1.0))])
def test_costs_are_those_of_the_line_while_the_last_runs_agree(took: int, costs: tuple[float, float]) -> None:
    assert runs((900, took * 1_000 // 1_000)).costs(100.0, 1.0) == pytest.approx(costs, rel=0.12)
    agrees = 800 <= took <= 1_250
    assert (runs((900, took)).costs(100.0, 1.0) == (100.0, 1.0)) == agrees


def test_one_large_run_says_what_a_row_costs() -> None:
    """The line is through small ones, and takes rows for free."""
    small = [(20, 120)] * 7
    assert runs(*small, (1_000, 5_100)).costs(120.0, 0.0) == (120.0, pytest.approx(4.98))


def test_a_wild_run_among_others_says_nothing() -> None:
    usual = [(1_000, 1_100)] * (LATELY - 1)
    assert runs(*usual, (1_000, 9_000)).costs(100.0, 1.0) == (100.0, 1.0)


def test_cheaper_runs_are_cheaper_in_all() -> None:
    assert runs((1_000, 550)).costs(100.0, 1.0) == (50.0, 0.5)


def test_what_is_long_ago_does_not_count() -> None:
    assert runs((1_000_000, 9_000_000), *[(100, 200)] * LATELY).costs(100.0, 1.0) == (100.0, 1.0)


def test_the_longest_of_the_last_few() -> None:
    assert RecentRuns().longest == 0
    assert runs((1, 900), *[(1, 5)] * (LATELY - 1)).longest == 900
    assert runs((1, 900), *[(1, 5)] * LATELY).longest == 5


def test_runs_grow_step_by_step() -> None:
    assert RecentRuns().tried == FIRST_ROWS
    assert runs((10, 1)).tried == FIRST_ROWS
    assert runs((1_000, 1)).tried == GROWTH * 1_000


def test_slowness_counts_runs_by_their_length() -> None:
    """Short ones that were twice as long are a small part of the time."""
    long, short = [(10_000, 10_100)] * 8, [(10, 220)] * 8
    assert runs(*long, *short).slowness(100.0, 1.0, 0.9) == pytest.approx(1.0, abs=0.02)
    assert runs(*long, *short).slowness(100.0, 1.0, 0.9999) == pytest.approx(2.0)


def test_differences_of_many_runs_add_up_by_their_squares() -> None:
    known = runs(*[(900, 1_000)] * 12, *[(900, 1_600)] * 4)
    assert known.slowness(100.0, 1.0, 0.9) == pytest.approx(1.6)
    assert known.slowness(100.0, 1.0, 0.9, 0.1) == pytest.approx(1.6)
    assert known.slowness(100.0, 1.0, 0.9, 9) == pytest.approx(1.15 + 0.45 / 3)
    assert runs(*[(900, 500)] * 16).slowness(100.0, 1.0, 0.9) == 1.0


def inflow(*each: tuple[int, int]) -> Inflow:
    found = Inflow()
    for moment, rows in each:
        found.came(moment, rows)
    return found


def test_nothing_is_foretold_of_what_is_not_known() -> None:
    assert inflow().expected(SECOND) == 0
    assert inflow((0, 10)).expected(SECOND) == 0
    assert inflow((0, 10), (SECOND, 20)).expected(0) == 0
    assert inflow((0, 10), (SECOND, 20)).expected(-SECOND) == 0
    assert inflow((0, 10), (SECOND, 20)).expected(3 * SECOND) == pytest.approx(30)


def test_rows_that_come_in_files_are_no_bursts() -> None:
    found = inflow(*((5 * SECOND * number, 1_000 * number) for number in range(10)))
    for over in (1, SECOND, 4 * SECOND, 12 * SECOND, 60 * SECOND):
        assert found.expected(over) == pytest.approx(over * 200 / SECOND)


def test_a_burst_says_little_of_a_long_time_and_the_past_little_of_what_comes_now() -> None:
    second = [(number * SECOND, 100 * number) for number in range(101)]
    burst = [((100 + number) * SECOND, 10_000 + 5_000 * number) for number in range(1, 5)]
    assert inflow(*second, *burst).expected(2 * SECOND) == pytest.approx(10_000)
    assert inflow(*second, *burst).expected(40 * SECOND) == pytest.approx(20_000 + 3_600)
    over = [((104 + number) * SECOND, 30_000 + 100 * number) for number in range(1, 4)]
    assert inflow(*second, *burst, *over).expected(40 * SECOND) == pytest.approx(4_000)


def test_what_is_older_or_no_more_than_known_is_nothing() -> None:
    found = inflow((0, 0), (SECOND, 10), (SECOND // 2, 50), (2 * SECOND, 10), (2 * SECOND, 20), (2 * SECOND, 30))
    assert found.expected(SECOND) == pytest.approx(15)


@given(st.lists(st.tuples(st.integers(1, SECOND), st.integers(1, 1_000)), min_size=2, max_size=600))
def test_an_even_flow_is_foretold_however_many_moments_there_were(steps: list[tuple[int, int]]) -> None:
    found, at = Inflow(), 0
    for step, _ in steps:
        at += step
        found.came(at, at)
    assert len(found._at) <= REMEMBERED
    for over in (1, NOW, 10 * NOW, 1_000 * NOW):
        assert found.expected(over) == pytest.approx(over)


def test_that_nothing_came_since_is_only_seen_when_something_comes() -> None:
    assert inflow((0, 0), (SECOND, 10), (9 * SECOND, 10)).expected(SECOND) == pytest.approx(10)


def test_a_short_time_is_not_judged_by_less_than_what_comes_now() -> None:
    found = inflow((0, 0), (SECOND, 190), (2 * SECOND, 200))
    assert found.expected(SECOND) == pytest.approx(100)


def test_the_newest_moments_are_all_remembered() -> None:
    found = Inflow()
    for number in range(1, 1_000):
        found.came(number, number)
        newest = range(max(1, number - REMEMBERED // 4), number + 1)
        assert found._at[-len(newest) :] == list(newest)
    assert len(found._at) <= REMEMBERED
    assert found._at[0] < 500, "some of the old ones, too"


def test_what_came_in_the_last_two_seconds_is_what_comes_now() -> None:
    found = Inflow()
    for second, rows in enumerate([0, 0, 900, 1_000, 1_100]):
        found.came((second + 1) * SECOND, rows + second)
    assert found.expected(SECOND) == pytest.approx(101), "not 201 or more, as over three or four seconds"
    assert found.expected(4 * SECOND) == pytest.approx(4 * 101)


def test_of_more_moments_than_are_remembered_every_second_old_one_is_forgotten() -> None:
    found = Inflow()
    for second in range(1, REMEMBERED + 1):
        found.came(second * SECOND, second)
    assert found._at == [second * SECOND for second in range(1, 129)]
    found.came(129 * SECOND, 129)
    kept = [*range(1, 65, 2), *range(65, 130)]
    assert (found._at, found._rows) == ([second * SECOND for second in kept], kept)
