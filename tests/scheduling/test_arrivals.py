"""What is expected of the next sweeping watermark, against simulation and numerical integration."""

from __future__ import annotations

import itertools
import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import trapezoid

from transom.scheduling.arrivals import (
    ENOUGH,
    Arrival,
    DelayMoments,
    LagHistory,
    expected_arrivals,
    inverse_mills,
    shortest_span,
)

SECOND = 1_000_000


def history(lags: np.ndarray, **options: bool) -> LagHistory:
    found = LagHistory(**options)
    for lag in lags:
        found.seen(int(lag), DelayMoments())
    return found


@pytest.mark.parametrize("after", [-4.0, -1.0, 0.0, 0.7, 2.0, 6.0])
def test_the_expected_arrival_is_the_mean_of_the_truncated_normal(after):
    x = np.linspace(after, 12, 400_001)
    density = np.exp(-x * x / 2)
    mean = float(trapezoid(x * density, x) / trapezoid(density, x))
    assert Arrival(5_000.0, 100.0).expected(int(5_000 + 100 * after)) == pytest.approx(5_000 + 100 * mean, rel=1e-6)


def test_klinks_overdue_query_stays_urgent():
    """The example of the reading notes: mean 3000, sigma 300, cost 500, the printed loop gives 0 at 3700."""
    arrival = Arrival(3_000.0, 300.0)
    assert arrival.slack(3_700, 3_700, 0, 500) == pytest.approx(-398, abs=1)
    slacks = [arrival.slack(t, t, 0, 500) for t in range(2_000, 40_000, 100)]
    assert all(a > b for a, b in itertools.pairwise(slacks)), "time passes, slack shrinks"
    assert slacks[-1] == pytest.approx(-500, abs=10)


def test_an_overdue_watermark_in_the_unread_backlog_stays_urgent():
    arrival = Arrival(3_000.0, 300.0)
    assert arrival.slack(60_000, newest_read=2_000, limit=0, cost=500) < -57_000
    assert arrival.slack(60_000, newest_read=None, limit=10_000, cost=500) == 3_000 + 10_000 - 60_000 - 500


@given(st.floats(-30, 1e9))
def test_the_inverse_mills_ratio_is_smooth_and_above_its_bounds(a):
    value = inverse_mills(a)
    assert math.isfinite(value)
    assert value >= max(0.0, a)
    assert inverse_mills(a + 1e-3) >= value - 1e-6 * max(1.0, abs(a))


def test_no_spread_means_the_mean_or_what_is_read():
    assert Arrival(10.0, 0.0).expected(5) == 10.0
    assert Arrival(10.0, 0.0).expected(50) == 50.0


@given(st.lists(st.integers(-1_000, 1_000), min_size=1, max_size=60), st.floats(0.01, 0.99))
def test_the_shortest_span_holds_enough_and_none_is_shorter(values, level):
    array = np.array(values, dtype=np.float64)
    low, high = shortest_span(array, level)
    inside = int(((array >= low) & (array <= high)).sum())
    need = min(len(values), math.ceil(level * (len(values) + 1) + 0.7 * math.sqrt(len(values) * level * (1 - level))))
    assert inside >= need
    for a in values:
        for b in values:
            if b - a < high - low:
                assert ((array >= a) & (array <= b)).sum() < need


def test_a_cold_start_uses_the_records_delays_and_injected_watermarks_always_do():
    delays = DelayMoments(2, 30.0, 50.0)  # 10 and 20
    assert LagHistory().arrival(100) is None
    assert LagHistory().interval(100, 0.95) is None
    cold = LagHistory().arrival(100, delays)
    assert cold == Arrival(115.0, 5.0)
    derived, injected = LagHistory(), LagHistory(injected=True)
    for each in (derived, injected):
        for lag in (1, 3):
            each.seen(lag, delays)
    assert derived.arrival(100) == Arrival(102.0, pytest.approx(math.sqrt(2)))
    assert injected.arrival(100) == Arrival(115.0, 5.0)
    low, high = injected.interval(100, 0.95)
    assert (low + high) / 2 == pytest.approx(115)
    assert high - low == pytest.approx(2 * 1.95996 * 5, rel=1e-4)


@pytest.mark.parametrize("confidence", [0.95, 0.9])
@pytest.mark.parametrize("law", ["uniform", "exponential", "drifting"])
def test_intervals_hold_what_they_promise(law, confidence):
    random = np.random.default_rng(7)
    count = 4_000
    lags = {
        "uniform": lambda: random.uniform(0, SECOND, count),
        "exponential": lambda: random.exponential(SECOND, count),
        "drifting": lambda: random.uniform(0, SECOND, count) * np.linspace(1, 20, count),
    }[law]()
    past, hits, checked = LagHistory(), 0, 0
    for number, lag in enumerate(lags.astype(int).tolist()):
        span = past.interval(0, confidence)
        if span is not None and number > 400:
            checked += 1
            hits += span[0] <= lag <= span[1]
        past.seen(lag, DelayMoments())
    assert hits / checked == pytest.approx(confidence, abs=0.02)


def test_few_lags_are_not_trusted():
    few = history(np.arange(ENOUGH - 1) % 2, injected=False)
    low, high = few.interval(0, 0.5)
    assert (low, high) != (0.0, 0.0)
    assert low < 0.5 < high
    with pytest.raises(ValueError, match="confidence"):
        few.interval(0, 1.0)


@given(
    st.lists(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), min_size=1, max_size=6),
    st.sampled_from([0.0, 1e14]),
)
def test_moments_add_up_also_far_from_zero(parts: list[list[float]], far: float) -> None:
    whole = np.concatenate([np.array(part) for part in parts])
    moments = sum((DelayMoments.of(np.array(part) + far) for part in parts), DelayMoments())
    assert moments.records == len(whole)
    assert moments.mean == pytest.approx(whole.mean() + far, abs=0.1)
    assert math.sqrt(moments.variance) == pytest.approx(whole.std(), abs=1.0)


def test_moments_of_records_count_from_where_the_watermark_is() -> None:
    history = LagHistory(behind=1_000)
    arrival = history.arrival(0, DelayMoments.of(np.array([10.0, 20.0])))
    assert arrival is not None
    assert (arrival.mean, arrival.sigma) == (1_015.0, 5.0)


def test_many_expectations_at_once_are_those_of_each():
    mean, sigma, after = np.array([10.0, 3e6, 5e6]), np.array([1e5, 2e5, 1e3]), np.array([0.0, 9e6, 5e6])
    each = [Arrival(*pair).expected(int(t)) for *pair, t in zip(mean, sigma, after, strict=True)]
    assert expected_arrivals(mean, sigma, after) == pytest.approx(each, rel=1e-5)


@given(st.lists(st.integers(-(10**15), 10**15), min_size=2, max_size=30), st.integers(2, 12), st.booleans())
def test_an_arrival_has_the_moments_of_the_lags_that_are_remembered(lags, epochs, restored):
    found = LagHistory(epochs)
    for lag in lags:
        found.seen(lag, DelayMoments())
    if restored:
        before, found = found, LagHistory(epochs)
        found.seen(7, DelayMoments())
        found.restore(before.to_json())
    arrival = found.arrival(0)
    kept = lags[-epochs:]
    assert arrival.mean == pytest.approx(statistics.fmean(kept))
    assert arrival.sigma == pytest.approx(statistics.stdev(kept))
