"""What a cut is divided into and costs: numbers that are found by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.planning.profiles import costs_of_streams, stream

from transom.model.phases import Phase
from transom.model.tuning import StreamTuning
from transom.planning.cuts import Cutting, units
from transom.planning.keys import KeyCurve
from transom.planning.orders import slowest_of
from transom.planning.phases import CUT
from transom.planning.profile import PhaseCost, StreamProfile
from transom.planning.waves import clock, last, wider

ROOT = KeyCurve(((100.0, 10.0), (10_000.0, 100.0)))
"""As many keys as the root of the rows."""


def test_units_are_those_of_a_cut_with_and_without_an_exchange():
    found = units(10_000, 4, 3, ROOT, 70.0, 50.0)
    assert found == {"rows": 10_000, "tasks": 7, "shuffled": 200, "partials": 100, "merged": 70.0, "results": 50.0}
    assert units(10_000, 1, 0, ROOT, 70.0, 50.0)["shuffled"] == 0
    assert units(10_000, 4, 0, ROOT, 70.0, 50.0)["partials"] == 200, "without an exchange each task has its own"


@pytest.mark.parametrize(
    ("tasks", "cores", "even"),
    [(4, 8.0, 0.25), (4, 2.0, 0.5), (4, 3.0, 0.5), (4, 3.5, 0.375), (4, 0.5, 2.0), (1, 0.5, 2.0)],
)
def test_the_clock_is_that_of_as_many_cores_as_can_work(tasks: int, cores: float, even: float):
    assert clock(tasks, cores, 0.0) == pytest.approx(even)


def test_the_clock_is_that_of_the_slowest_task_where_each_has_a_core():
    normal = slowest_of(4)
    assert clock(4, 8.0, 0.3) == pytest.approx((1 + 0.3 * normal.mean + 0.03 * (normal.square - 1)) / 4)
    assert clock(4, 0.5, 0.3) == clock(4, 0.5, 0.0), "one after the other, it does not matter which is the slowest"


@pytest.mark.parametrize("scv", [0.005, 0.02, 0.1, 0.3, 0.6])
@pytest.mark.parametrize(
    ("tasks", "cores"), [(4, 4), (5, 4), (7, 4), (8, 4), (18, 4), (16, 16), (17, 16), (43, 16), (70, 16), (90, 40)]
)
def test_steps_of_waves_are_blurred_where_tasks_differ(tasks: int, cores: int, scv: float):
    """Each core that is free takes the next task."""
    lengths = np.random.default_rng(6).gamma(1 / scv, scv, (2_000, tasks))
    free, runs = np.zeros((len(lengths), cores)), np.arange(len(lengths))
    for number in range(tasks):
        free[runs, free.argmin(axis=1)] += lengths[:, number]
    mean = free.max(axis=1).mean()
    assert tasks * clock(tasks, cores, math.sqrt(scv)) == pytest.approx(mean, rel=0.06)


@pytest.mark.parametrize("scv", [0.02, 0.1, 0.3, 0.6])
@pytest.mark.parametrize("tasks", [4, 8, 32])
def test_the_slowest_of_tasks_that_differ_varies_more_than_of_normal_times(tasks: int, scv: float):
    longest = np.random.default_rng(3).gamma(1 / scv, scv, (20_000, tasks)).max(axis=1)
    assert math.sqrt(scv) * wider(tasks, math.sqrt(scv)) == pytest.approx(longest.std(), rel=0.08)


@given(st.integers(1, 200), st.integers(1, 64), st.floats(0, 1e6))
def test_tasks_take_no_longer_than_one_after_the_other(tasks: int, cores: int, spread: float):
    assert clock(tasks, cores, spread) <= 1 + 1e-9


@pytest.mark.parametrize("spread", [0.0, 0.01, 0.02, 0.1, 0.3, 0.4, 0.7, 1.0])
def test_a_core_more_makes_nothing_later(spread: float):
    later = [(tasks, cores) for tasks in range(2, 129) for cores in range(1, min(tasks, 64)) if (
        last(tasks, cores + 1, spread) > last(tasks, cores, spread) + 1e-9
    )]  # fmt: skip
    assert not later, "with one wave less, times seemed to be up to 5 % longer"


@given(st.integers(1, 200), st.integers(1, 64), st.floats(0, 1))
def test_no_more_cores_than_work_are_used_and_none_rests_while_there_is_some(tasks: int, cores: int, spread: float):
    taken = tasks * clock(tasks, cores, spread)
    assert taken >= max(1.0, tasks / cores) - 1e-9
    slowest = cores * clock(cores, cores, spread)
    assert taken <= max(1.0, tasks / cores + 1) + slowest - 1 + 1e-9


def test_cuts_have_whole_pieces_of_what_arrives_together():
    """At 1,000 rows a second, and pieces of 0.1 s, a cut with 250 rows on average has 200 or 300."""
    cutting = Cutting(stream(piece=0.1), StreamTuning(0, None, 200, 3), 8, 8, 1_000.0)
    assert cutting.sizes(250.0) == [
        (pytest.approx(0.5), pytest.approx(200.0)),
        (pytest.approx(0.5), pytest.approx(300)),
    ]
    assert cutting.sizes(300.0) == [(1.0, 300.0)]
    assert cutting.sizes(60.0) == [(1.0, 60.0)]
    one, two = (cutting.seconds(rows) for rows in (200.0, 300.0))
    assert cutting.average(250.0) == pytest.approx((one + two) / 2)
    assert cutting.average(220.0) == pytest.approx(0.8 * one + 0.2 * two)
    assert two - one > 0.01, "another task, and an exchange"
    flowing = Cutting(stream(), StreamTuning(0, None, 200, 3), 8, 8, 1_000.0)
    assert flowing.sizes(250.0) == [(1.0, 250.0)]
    assert flowing.average(250.0) == flowing.seconds(250.0)


@pytest.mark.parametrize(
    ("rows", "rows_per_task", "parts", "tasks"),
    [
        (50_000, None, 0, 1),
        (50_001, None, 0, 8),
        (50_001, None, 3, 3),
        (10_000, 1_000, 0, 10),
        (10_000, 1_000, 3, 3),
        (2_000.5, 1_000, 0, 3),
    ],
)
def test_tasks_are_bounded_by_the_settings_and_the_source(rows, rows_per_task, parts, tasks):
    tuning = StreamTuning(0, None, rows_per_task)
    cut = Cutting(stream(parts=parts), tuning, 8, 8).of(rows)
    assert cut.tasks == tasks
    assert cut.behind == (8 if tasks > 1 else 0)


def test_what_each_phase_costs_by():
    known = StreamProfile(dict.fromkeys(Phase, PhaseCost(0.0, 1.0)), keys=ROOT, merged=70.0, results=50.0)
    cut = Cutting(known, StreamTuning(0, None, 2_500, 3), 8, 8).of(10_000)
    found = {phase: cut.work(phase) for phase in Phase if cut.work(phase)}
    assert found == {
        Phase.LAUNCH: 7,
        Phase.MAP: 10_000,
        Phase.EXCHANGE: pytest.approx(200),
        Phase.COLLECT: pytest.approx(100),
        Phase.COMMIT: pytest.approx(100),
        Phase.CONSOLIDATE: 70,
        Phase.DELIVER: 50,
    }


def test_work_and_time_of_phases():
    costs = {
        Phase.PLAN: PhaseCost(0.5, 0.0, 0.04),
        Phase.MAP: PhaseCost(0.1, 1e-4, 0.09),
        Phase.EXCHANGE: PhaseCost(0.2, 0.01, 0.09),
        Phase.COMMIT: PhaseCost(0.1, 0.001, 0.04),
    }
    cutting = Cutting(StreamProfile(costs, keys=ROOT), StreamTuning(0, None, 2_500, 2), 4, 0.5)
    cut = cutting.of(10_000)
    assert cut.work(Phase.MAP) == pytest.approx(4 * 0.1 + 1.0)
    assert cut.work(Phase.EXCHANGE) == pytest.approx(2 * 0.2 + 200 * 0.01)
    assert cut.work(Phase.COMMIT) == pytest.approx(0.2)
    assert cut.phase(Phase.COMMIT).sigma == pytest.approx(0.2 * 0.2)
    assert cut.phase(Phase.MAP).mean == pytest.approx(1.4 * clock(4, 0.5, 0.3))
    assert cut.phase(Phase.MAP).sigma == pytest.approx(
        0.3 * 1.4 / 4 / 0.5 * slowest_of(4).sigma * (1 + 2 * 0.3 / 3 * slowest_of(4).mean)
    )
    assert cut.job().mean == pytest.approx(cutting.seconds(10_000) - 0.2)


def test_rows_of_partials_are_those_of_each_pane_that_a_cut_reaches_into():
    known = StreamProfile({}, keys=ROOT, pane=1.0)
    assert known.partials(0.0).keys(10_000) == 100
    at_a_hundred = known.partials(100.0)  # 10,000 rows are 100 seconds
    assert at_a_hundred.keys(10_000) == pytest.approx(101 * math.sqrt(10_000 / 101))
    assert known.partials(1e9).keys(10_000) == pytest.approx(100, rel=1e-3)


def test_map_may_make_more_rows_of_partials_than_there_are_rows():
    known = StreamProfile({}, keys=ROOT, fanout=12.0)
    assert known.partials(0.0).keys(1.0) == pytest.approx(math.sqrt(12))


def test_results_grow_with_the_keys_of_a_window_or_with_the_rows():
    known = StreamProfile({}, keys=ROOT, span=10.0, closing=2.0, rows=200.0, merged=64.0, results=32.0)
    faster = known.at(400.0)  # four times the rate: twice the keys
    assert (faster.results, faster.merged, faster.rows) == pytest.approx((64.0, 128.0, 800.0))
    assert known.at(100.0).results == pytest.approx(32.0)
    flowing = StreamProfile({}, closing=0.05, rows=1.0, flowing=True, results=0.25)
    assert flowing.at(400.0).results == pytest.approx(5.0)
    assert StreamProfile({}, results=32.0).at(400.0).results == 32.0


def test_a_cut_longer_than_the_time_between_closings_brings_several_together():
    known = StreamProfile(dict.fromkeys(Phase, PhaseCost(0.0, 1.0)), results=50.0, merged=70.0)
    cutting = Cutting(known, StreamTuning(), 2, 2)
    cutting.closings = 3.0
    assert cutting.of(10).work(Phase.DELIVER) == 150
    assert cutting.of(10).work(Phase.CONSOLIDATE) == 210


@given(costs_of_streams, st.floats(1, 1e6), st.sampled_from([None, 100, 20_000]), st.floats(0.2, 8), st.floats(0, 1e5))
def test_the_time_of_a_cut_is_that_of_its_phases(one, rows, rows_per_task, free, rate):
    cutting = Cutting(one, StreamTuning(0, None, rows_per_task, 3), 8, free, rate)
    assert cutting.seconds(rows) == pytest.approx(sum(cutting.of(rows).mean(phase) for phase in CUT))


def test_all_tasks_of_a_phase_together_have_as_many_cores_as_there_are() -> None:
    of = StreamProfile({Phase.MAP: PhaseCost(0.1, 1e-4, 0.09)})
    few, many = (Cutting(of, StreamTuning(0, None, rows), 4, 4.0).of(10_000) for rows in (5_000, 1_000))
    assert few.together(Phase.MAP) == pytest.approx((2 * 0.1 + 1.0) / 2)
    assert many.together(Phase.MAP) == pytest.approx((10 * 0.1 + 1.0) / 4)
    assert Cutting(of, StreamTuning(0, None, 20_000), 4, 4.0).of(10_000).together(Phase.EXCHANGE) == 0
