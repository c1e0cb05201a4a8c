"""The search for the highest rate."""

from __future__ import annotations

import math

import pytest
from benchmarks.rates import Search, Trial
from hypothesis import given
from hypothesis import strategies as st


def tried(search: Search, kept: float) -> list[Trial]:
    """Search where rates up to one are kept, and return what was tried."""
    trials: list[Trial] = []
    while (rate := search.next(trials)) is not None:
        trials.append(Trial(rate, rate / kept * search.limit))
        assert len(trials) < 100
    return trials


@pytest.mark.parametrize(
    ("first", "kept", "rates", "best"),
    [
        (1.0, 5.0, [1, 2, 4, 8, math.sqrt(32), math.sqrt(4 * math.sqrt(32))], math.sqrt(4 * math.sqrt(32))),
        (4.0, 1.0, [4, 2, 1, math.sqrt(2), math.sqrt(math.sqrt(2))], 1),
        (1.0, 0.1, [1, 0.5, 0.25], None),  # least
        (1.0, 99.0, [1, 2, 4, 8, 16], 16),  # most
        (8.0, 8.0, [8, 16, math.sqrt(128), math.sqrt(8 * math.sqrt(128))], 8),
    ],
)
def test_which_rates_are_tried(first: float, kept: float, rates: list[float], best: float | None) -> None:
    search = Search(limit=0.8, first=first, ratio=1.25, least=0.25, most=20.0)
    trials = tried(search, kept)
    assert [trial.rate for trial in trials] == pytest.approx(rates)
    found = search.best(trials)
    assert (found and found.rate) == (best if best is None else pytest.approx(best))


@given(st.floats(0.25, 20), st.floats(0.3, 15), st.floats(1.01, 3))
def test_the_highest_rate_is_found_up_to_the_ratio(first: float, kept: float, ratio: float) -> None:
    search = Search(1.0, first, ratio, least=0.01, most=1e6)
    trials = tried(search, kept)
    best = search.best(trials)
    assert best is not None
    assert best.rate <= kept * 1.000001
    assert kept / ratio <= best.rate * 1.000001
    assert len(trials) <= abs(math.log2(kept / first)) + 3 + max(0.0, math.log2(1 / math.log2(ratio)))


def test_a_rate_that_never_ends_is_not_kept() -> None:
    search = Search(1.0, 1.0, 2.0, least=0.5)
    assert search.next([Trial(1.0, math.inf)]) == 0.5
    assert search.next([Trial(1.0, math.inf), Trial(0.5, math.inf)]) is None
    assert search.best([Trial(1.0, math.inf)]) is None


@pytest.mark.parametrize("wrong", [{"first": 0.1}, {"first": 9.0}, {"ratio": 1.0}, {"least": 0.0}])
def test_values_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="least <= first <= most"):
        Search(**{"limit": 1.0, "first": 1.0, "ratio": 2.0, "least": 0.5, "most": 8.0, **wrong})
