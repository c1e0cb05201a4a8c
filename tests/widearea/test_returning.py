"""How long receipts take on their way back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.widearea.made import S

from transom.widearea.links import LinkOut, Receipt
from transom.widearea.returning import KEPT, MOST_BACK, Returning

HOUR = 3_600 * S


@given(st.integers(-HOUR, HOUR), st.lists(st.integers(0, 3 * S), min_size=1, max_size=50))
def test_the_fastest_receipt_tells_how_far_the_clock_is_ahead(apart: int, delays: list[int]) -> None:
    found = Returning()
    for number, delay in enumerate(delays):
        found.came(number * S // 10 + apart, number * S // 10 + delay)
    assert found.ahead == apart - min(delays)
    assert 0 <= found.back <= MOST_BACK


def test_a_way_back_that_is_full_for_a_minute_is_known_to_be_full() -> None:
    found, now = Returning(), 0
    found.came(0, 20_000)
    while now < KEPT:
        now += S // 10
        found.came(now, now + 200_000)
    assert found.ahead == -20_000
    assert found.back == pytest.approx(180_000, abs=10)
    while now < 4 * KEPT:  # a clock may go wrong, and be set
        now += S // 10
        found.came(now - S, now + 20_000)
    assert (found.ahead, found.back) == (-S - 20_000, pytest.approx(0, abs=10))


def test_what_has_left_a_link_is_not_waited_for() -> None:
    """The other direction is full, and receipts wait for a quarter of a second: the link would else rest meanwhile."""
    link, now, delay = LinkOut(100_000.0), 0, 20_000
    for number in range(100):
        link.queue(bytes(5_000), 0)
        for frame in link.frames(now):
            at = now + 50_000
            link.receipt(Receipt(frame.number, frame.offset + len(frame.payload), at, at), at + delay)
        now += 100_000
        delay = 20_000 if number < 5 else 270_000
    assert link.pace == 100_000.0
    assert link.window == pytest.approx(2 * 25_000, rel=0.01)
