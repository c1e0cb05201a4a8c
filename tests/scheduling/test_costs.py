"""Costs learned online: right, with outliers, under drift, and when there is little to see."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.errors import DefinitionError
from transom.model.slopes import line
from transom.scheduling.costs import LONGEST_CYCLE, RUNS, CostHistory, RunCosts, cycle_seconds, offered

FIXED, ROW = 0.1, 3e-5


def learned(rows: np.ndarray, seconds: np.ndarray) -> CostHistory:
    history = CostHistory()
    for each in zip(rows, seconds, strict=True):
        history.ran(*each)
    return history


def test_a_line_is_found_exactly_and_through_wild_points():
    rows = np.arange(1, 33) * 1_000.0
    seconds = FIXED + ROW * rows
    assert line(rows, seconds) == (pytest.approx(FIXED), pytest.approx(ROW))
    wild = seconds.copy()
    wild[[3, 9, 20, 30]] *= 5
    fixed, slope = line(rows, wild)
    assert fixed == pytest.approx(FIXED, rel=0.35)
    assert slope == pytest.approx(ROW, rel=0.1)
    least_squares = np.polyfit(rows, wild, 1)[0]
    assert abs(slope - ROW) < abs(least_squares - ROW) / 3


def test_lines_of_many_streams_are_those_of_each():
    random = np.random.default_rng(5)
    rows, seconds = random.uniform(10, 1e5, (7, 3, 16)), random.uniform(0.1, 5, (7, 3, 16))
    fixed, slope = line(rows, seconds)
    for place in np.ndindex(7, 3):
        assert line(rows[place], seconds[place]) == (pytest.approx(fixed[place]), pytest.approx(slope[place]))


def test_neither_part_is_negative():
    rows = np.arange(1.0, 9.0)
    assert line(rows, 1.0 - 0.1 * rows)[1] == 0
    fixed, slope = line(rows, rows - 0.9)
    assert fixed >= 0
    assert slope >= 0


@pytest.mark.parametrize("seed", range(3))
def test_jit_and_garbage_collection_do_not_mislead(seed):
    random = np.random.default_rng(seed)
    rows = random.uniform(1e3, 1e5, 60)
    seconds = (FIXED + ROW * rows) * random.lognormal(0, 0.05, 60)
    seconds[:4] *= [8, 5, 3, 2]
    seconds[random.integers(4, 60, 5)] *= 4
    costs = learned(rows, seconds).costs
    assert costs.run(np.float64(5e4)) == pytest.approx(FIXED + ROW * 5e4, rel=0.1)
    assert costs.row == pytest.approx(ROW, rel=0.15)


def test_what_is_believed_follows_the_first_runs():
    """A stream that runs once in 10 s must not be taken for a cheap one for minutes."""
    costs = learned(np.array([20_000.0, 25_000.0, 15_000.0]), FIXED + 40 * 5e-6 * np.array([2e4, 2.5e4, 1.5e4])).costs
    assert costs.run(np.float64(5e4)) == pytest.approx(FIXED + 40 * 5e-6 * 5e4, rel=0.15)


def test_costs_that_drift_are_followed():
    random = np.random.default_rng(1)
    rows = random.uniform(1e3, 1e5, 100)
    row = np.where(np.arange(100) < 50, ROW, 3 * ROW)
    costs = learned(rows, FIXED + row * rows).costs
    assert costs.run(np.float64(5e4)) == pytest.approx(FIXED + 3 * ROW * 5e4, rel=0.05)


def test_runs_of_one_size_change_the_level_and_keep_the_slope():
    random = np.random.default_rng(2)
    rows = np.concatenate([random.uniform(1e3, 1e5, RUNS), np.full(2 * RUNS, 33_000.0)])
    costs = learned(rows, FIXED + ROW * rows).costs
    assert costs.row == pytest.approx(ROW, rel=0.05)
    assert costs.fixed == pytest.approx(FIXED, rel=0.2)


def test_consolidation_is_learned_apart():
    history = CostHistory((2,))
    for place in range(RUNS):
        history.merged(np.array([100.0]), np.array([100 * 2e-6 * (50 if place % 8 == 0 else 1)]), (np.array([1]),))
    assert history.costs.partial[1] == pytest.approx(2e-6)
    assert history.costs.partial[0] == pytest.approx(1e-6)
    assert history.costs.run(np.zeros(2), 1_000.0)[1] == pytest.approx(history.costs.fixed[1] + 2e-3)


def test_what_fits_into_a_cycle():
    costs = RunCosts(np.array([0.1, 2.0, 0.1]), np.array([1e-5, 1e-5, 0.0]), np.zeros(3))
    fitting = costs.fitting(1.1)
    assert fitting.tolist() == [pytest.approx(1e5, abs=1), 1.0, np.inf]
    assert costs.job(np.full(3, fitting[0]))[0] <= 1.1 + 1e-9


def test_what_cannot_be_is_refused():
    with pytest.raises(DefinitionError, match="fixed"):
        CostHistory(fixed=0)
    with pytest.raises(DefinitionError, match="even"):
        CostHistory(runs=7)


@given(st.floats(0.01, 1.0), st.floats(0.0, 0.97))
def test_full_runs_leave_room_for_all_rows(fixed, busy):
    cycle = float(cycle_seconds(np.array(fixed), np.array(busy)))
    assert cycle == LONGEST_CYCLE or fixed / cycle <= (1 - busy) / 2 + 1e-9
    assert cycle >= min(LONGEST_CYCLE, 10 * fixed)
    assert cycle_seconds(np.array(fixed), np.array(1.2)) == LONGEST_CYCLE


def test_the_offered_work_is_all_rows_and_a_job_for_each_window() -> None:
    costs = RunCosts(np.array([0.1, 0.2]), np.array([1e-5, 2e-5]), np.zeros(2))
    load = offered(costs, np.array([10_000.0, 20_000.0]), np.array([1.0, np.inf]), cores=2)
    assert float(load) == pytest.approx((0.1 + 0.1 + 0.4) / 2)
