"""Cuts that complete windows are followed at once: how long there is between two, against a simulation cut by cut."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.planning.gaps import gaps


def simulated(trigger: float, fixed: float, slope: float, closing: float, count: int = 20_000) -> np.ndarray:
    """Lengths between two starts, where a cut takes so long and so much of what came; with a little noise."""
    chance, lengths = random.Random(1), [trigger]
    now, end = 0.0, chance.uniform(0, closing)
    for _ in range(count):
        now += lengths[-1]
        taken = (fixed + slope * lengths[-1]) * chance.gauss(1, 0.05)
        lengths.append(taken if end <= now else max(trigger, taken))
        end += closing * max(0, np.floor((now - end) / closing) + 1)
    return np.array(lengths)


FIXED = 0.08
TRIGGERS = [(0.2, 1.0), (0.8, 1.0), (1.5, 1.0), (3.0, 1.0), (1.0, 0.25), (0.5, 9.0)]


@pytest.mark.parametrize(
    ("trigger", "closing", "slope"),
    [(*each, slope) for each in TRIGGERS for slope in (0.0, 0.3, 0.6, 0.8) if FIXED + slope * each[0] < each[0]],
)
def test_lengths_are_those_of_a_simulation(slope: float, trigger: float, closing: float) -> None:
    seen = simulated(trigger, FIXED, slope, closing)
    found = np.array(gaps(trigger, FIXED, FIXED + slope * trigger, closing) or [(1.0, FIXED / (1 - slope))])
    mean, square = (found[:, 0] * found[:, 1]).sum(), (found[:, 0] * found[:, 1] ** 2).sum()
    assert mean == pytest.approx(seen.mean(), rel=0.06)
    assert square / mean == pytest.approx((seen**2).mean() / seen.mean(), rel=0.08)


@given(st.floats(0.01, 10), st.floats(0.01, 0.99), st.floats(0.01, 1.0), st.floats(0.01, 100))
def test_lengths_are_between_the_shortest_cut_and_the_trigger(
    trigger: float, part: float, fixed: float, closing: float
) -> None:
    first = part * trigger
    found = gaps(trigger, fixed * first, first, closing)
    if not found:
        assert first >= closing
        return
    lengths = [length for _, length in found]
    assert sum(share for share, _ in found) == pytest.approx(1)
    assert lengths[0] == trigger
    assert lengths[-1] >= fixed * first * (1 - 1e-9)
    assert sorted(lengths, reverse=True) == lengths


def test_a_cut_of_hardly_anything_that_takes_longer_than_one_with_rows_counts_as_this() -> None:
    """As with another number of tasks."""
    assert gaps(1.0, 3.0, 0.5, 2.0) == gaps(1.0, 0.5, 0.5, 2.0)
