"""The slowest of several: exact sums, samples, and no jump where the formula changes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.errors import DefinitionError
from transom.planning.moments import NEVER, NORMAL, Moments, Residuals, cantelli, mixed
from transom.planning.orders import EXACT, _by_extremes, _by_quadrature, slowest, slowest_of


def test_small_numbers_are_the_closed_forms():
    root = math.sqrt(math.pi)
    assert slowest_of(2).mean == pytest.approx(1 / root, abs=1e-12)
    assert slowest_of(2).variance == pytest.approx(1 - 1 / math.pi, abs=1e-12)
    assert slowest_of(3).mean == pytest.approx(1.5 / root, abs=1e-12)
    assert slowest_of(4).mean == pytest.approx(1.0293753730)


@pytest.mark.parametrize("count", [5, 40, 64])
def test_the_slowest_is_that_of_samples(count: int):
    found = np.random.default_rng(1).normal(2.0, 0.5, (20_000, count)).max(axis=1)
    said = slowest(Moments(2.0, 0.25), count)
    assert said.mean == pytest.approx(found.mean(), abs=0.01)
    assert said.variance == pytest.approx(found.var(), rel=0.05)


@pytest.mark.parametrize("count", [EXACT + 1, 200, 1_000, 20_000])
def test_extremes_are_near_what_is_exact(count: int):
    exact, said = _by_quadrature(count), _by_extremes(count)
    assert said.mean == pytest.approx(exact.mean, rel=0.007)
    assert said.variance == pytest.approx(exact.variance, rel=0.12)


@given(st.integers(1, 5_000))
def test_the_more_there_are_the_slower_the_slowest(count: int):
    assert slowest_of(count).mean < slowest_of(count + 2).mean or count in (EXACT - 1, EXACT)


def test_one_time_is_its_own_slowest():
    assert slowest(Moments(1.5, 0.3), 1).mean == pytest.approx(1.5)
    assert slowest(Moments(1.5, 0.3), 1).variance == pytest.approx(0.3)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=20), st.floats(0.5, 0.999))
def test_no_distribution_exceeds_the_bound_of_cantelli(values: list[float], share: float):
    seen = Moments(float(np.mean(values)), float(np.var(values)))
    assert np.mean(np.array(values) <= cantelli(seen, share) + 1e-9) >= share - 1e-9


def test_quantiles_go_from_the_bound_to_the_normal_to_what_was_seen():
    time, residuals = Moments(2.0, 1.0), tuple(np.random.default_rng(2).exponential(1.0, 500) - 1.0)
    assert Residuals().quantile(time, 0.99) == pytest.approx(2 + math.sqrt(99))
    assert Residuals(residuals[:50]).quantile(time, 0.99) == pytest.approx(2 + NORMAL.inv_cdf(0.99))
    assert Residuals(residuals).quantile(time, 0.99) == pytest.approx(2 + np.quantile(residuals, 0.99))
    assert [Residuals(residuals[:count]).form for count in (0, 1, 500)] == ["Cantelli", "normal", "measured"]
    for share in (0.0, 1.0, math.nan):
        with pytest.raises(DefinitionError, match="share"):
            Residuals().quantile(time, share)


def test_a_mixture_has_the_spread_within_and_between():
    assert mixed([(2, Moments(0.0, 1.0)), (2, Moments(2.0, 1.0))]) == Moments(1.0, 2.0)
    assert mixed([(3, Moments(0.0, 1.0)), (1, Moments(4.0, 5.0))]) == Moments(1.0, 5.0)
    assert mixed([(3, Moments(0.0, 1.0)), (1, NEVER)]) == NEVER


def test_a_time_of_equal_chances_has_the_moments_of_samples():
    assert Moments.spread(6.0) == Moments(3.0, 3.0)
    assert Moments(2.0, 9.0).sigma == 3.0
    assert Moments(2.0, 9.0).square == 13.0
