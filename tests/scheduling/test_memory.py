"""The memory mode: entered at its share, left when half is free or its time is over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.errors import DefinitionError
from transom.scheduling.memory import MemoryMode

S = 1_000_000


def test_entered_at_the_share_and_left_when_half_is_free():
    mode = MemoryMode(enter=0.8).observed(0.79, 0)
    assert not mode.active
    mode = mode.observed(0.9, 1 * S)
    assert mode.active
    assert mode.observed(0.46, 2 * S).active
    mode = mode.observed(0.45, 2 * S)
    assert not mode.active
    assert mode.observed(0.8, 2 * S).active


def test_left_after_its_time_and_not_entered_at_once():
    mode = MemoryMode(enter=0.8).observed(0.95, 0)
    assert mode.observed(0.95, 3 * S - 1).active
    mode = mode.observed(0.95, 3 * S)
    assert not mode.active
    assert not mode.observed(0.95, 6 * S - 1).active
    assert mode.observed(0.95, 6 * S).active


@given(st.lists(st.tuples(st.floats(0, 1.5), st.integers(0, S)), max_size=60))
def test_it_never_stays_longer_than_its_time_and_never_starts_below_its_share(steps):
    mode, now, entered = MemoryMode(enter=0.7), 0, 0
    for share, passed in steps:
        now += passed
        was, mode = mode, mode.observed(share, now)
        if mode.active and not was.active:
            assert share >= 0.7
            entered = now
        if mode.active:
            assert now < entered + mode.longest
            assert share > mode.used / 2 or now == entered


@pytest.mark.parametrize("wrong", [{"enter": 0}, {"enter": 1.1}, {"longest": 0}])
def test_what_cannot_be_is_refused(wrong):
    with pytest.raises(DefinitionError, match=next(iter(wrong))):
        MemoryMode(**wrong)
