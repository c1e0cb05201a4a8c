"""The cost model of split and direct, on both sides of the crossover."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.errors import DefinitionError
from transom.model.window import sliding, tumbling
from transom.windows.splitting import GAIN, SECOND, Decision, Form, Load, UnitCosts, choose, cpu, latency, load_of

COSTS = UnitCosts(row=1e-6, merge=1e-7, moved=0.5)
LOAD = Load(
    period=600 * SECOND,
    rows=600_000,
    cut_rows=1_000,
    overlap=10,
    panes=60,
    windows=60,
    keys=100,
    window_keys=100,
    inputs=300,
    moves=2,
)
MANY_KEYS = replace(LOAD, keys=10_000, window_keys=100_000, overlap=2, windows=20, inputs=5_000)
"""Nearly every row has a key of its own."""


def test_the_terms_are_those_of_section_5_1_1():
    alone = replace(LOAD, inputs=0, windows=0)
    assert cpu(Form.SPLIT, alone, COSTS) == pytest.approx(600_000 * 1e-6 + 60 * 1e-7 * 100 + 2 * 1e-7)
    assert cpu(Form.DIRECT, alone, COSTS) == pytest.approx(600_000 * 10 * 1e-6 + 2 * 1e-7 * 60)
    assert latency(Form.DIRECT, replace(alone, cut_rows=0), COSTS) == 2 * 0.5
    assert latency(Form.SPLIT, replace(alone, cut_rows=0), COSTS) == 0


def test_the_terms_that_are_added():
    none = replace(LOAD, rows=0, panes=0, moves=0, cut_rows=0)
    assert cpu(Form.SPLIT, none, COSTS) == pytest.approx(300 * 100 * 1e-7)
    assert cpu(Form.DIRECT, none, COSTS) == pytest.approx(60 * 100 * 1e-7)
    assert latency(Form.SPLIT, none, COSTS) == pytest.approx(300 / 60 * 100 * 1e-7)
    assert latency(Form.DIRECT, replace(none, cut_rows=500), COSTS) == pytest.approx(500 * 10 * 1e-6)


@pytest.mark.parametrize("current", Form)
@pytest.mark.parametrize(
    ("load", "costs", "expected"),
    [
        (LOAD, COSTS, Form.SPLIT),
        (MANY_KEYS, COSTS, Form.DIRECT),
        (MANY_KEYS, replace(COSTS, row=1e-4), Form.SPLIT),
        (LOAD, replace(COSTS, merge=1e-2), Form.DIRECT),
    ],
)
def test_both_sides_of_the_crossover(load, costs, expected, current):
    assert choose(load, costs, None, current) is expected


@given(st.floats(0, 1e4), st.floats(0, 1e4))
def test_there_is_one_crossover_in_the_number_of_keys(one, other):
    few, many = sorted((one, other))
    chosen = [choose(replace(LOAD, keys=n, window_keys=n), COSTS, None, Form.SPLIT, gain=0) for n in (few, many)]
    assert chosen != [Form.DIRECT, Form.SPLIT]


@given(st.floats(1e-9, 1e-3), st.floats(1e-9, 1e-3), st.floats(1, 1e5), st.sampled_from(Form))
def test_a_form_is_only_left_for_one_that_saves_enough(row, merge, keys, current):
    load, costs = replace(LOAD, keys=keys, window_keys=keys), UnitCosts(row, merge)
    chosen = choose(load, costs, None, current)
    if chosen is not current:
        assert cpu(chosen, load, costs) < (1 - GAIN) * cpu(current, load, costs)
    assert choose(load, costs, None, chosen) is chosen


def test_the_bound_comes_before_the_cost():
    slow = latency(Form.SPLIT, MANY_KEYS, COSTS)
    fast = latency(Form.DIRECT, replace(MANY_KEYS, moves=0), COSTS)
    assert fast < slow
    dear = replace(MANY_KEYS, moves=0, overlap=40, cut_rows=10)
    assert choose(dear, COSTS, None, Form.SPLIT) is Form.SPLIT
    for current in Form:
        assert choose(dear, COSTS, slow / 2, current) is Form.DIRECT
        assert choose(replace(dear, moves=5), COSTS, 1.0, current) is Form.SPLIT
        assert choose(dear, COSTS, 0.0, current) is Form.DIRECT, "neither keeps it: the faster one"


def test_it_is_reviewed_once_per_longest_window():
    first = Decision().review(1_000, MANY_KEYS, COSTS)
    assert first == Decision(Form.DIRECT, 1_000)
    assert first.review(1_000 + MANY_KEYS.period - 1, LOAD, COSTS) is first
    assert first.review(1_000 + MANY_KEYS.period, LOAD, COSTS) == Decision(Form.SPLIT, 1_000 + LOAD.period)


def test_noise_does_not_make_it_flap():
    even = replace(LOAD, keys=100, window_keys=100)
    low, high = 1e-9, 1.0
    for _ in range(60):
        middle = (low * high) ** 0.5
        costs = replace(COSTS, merge=middle)
        low, high = (middle, high) if cpu(Form.SPLIT, even, costs) < cpu(Form.DIRECT, even, costs) else (low, middle)
    for current in Form:
        for noise in (0.95, 1.05):
            assert choose(even, replace(COSTS, merge=low * noise), None, current) is current


def test_the_load_of_windows():
    four = [tumbling(f"{minutes} minutes") for minutes in (5, 10, 15, 20)]
    load = load_of(four, rows_per_second=10, cut_rows=50, keys=7, window_keys=9)
    assert (load.period, load.rows, load.overlap, load.panes) == (1_200 * SECOND, 12_000, 4, 4)
    assert load.windows == pytest.approx(4 + 2 + 20 / 15 + 1)
    assert load_of([sliding("5 seconds", "3 seconds")], 1, 1, 1, 1).panes == 3, "from 0, 2 and 3"
    hour = load_of([sliding("1 hour", "1 second")], 1, 1, 1, 1)
    assert hour.inputs_per_close == 24, "twice log2 3600"
    assert load_of([sliding("1 hour", "1 second")], 1, 1, 1, 1, inputs=7_200).inputs_per_close == 2


@pytest.mark.parametrize(
    "make",
    [
        lambda: UnitCosts(-1, 1),
        lambda: UnitCosts(1, float("nan")),
        lambda: replace(LOAD, keys=-1),
        lambda: load_of([], 1, 1, 1, 1),
        lambda: load_of([tumbling("1 second")], -1, 1, 1, 1),
    ],
)
def test_what_cannot_be_is_refused(make):
    with pytest.raises(DefinitionError):
        make()
