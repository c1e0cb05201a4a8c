"""What wakes the loop: some things at once, others when more may have come."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any

import pytest

from transom.engine.loop.wakeups import GATHER, Wakeups
from transom.model.time import ManualClock, Micros

SOON, NOW = False, True
SECOND = 1_000_000


class Clock(ManualClock):
    """Time that passes while it is waited for events, as it does on a machine."""

    def wait(self, until: Micros, wake: Callable[[Micros], bool]) -> None:
        if until > self.monotonic():
            wake(until - self.monotonic())


class Events:
    """Events that come at given times."""

    def __init__(self, clock: Clock, events: list[tuple[Micros, bool]]) -> None:
        self.clock, self.events = clock, events

    def empty(self) -> bool:
        return not self.events or self.events[0][0] > self.clock.monotonic()

    def get(self, timeout: float) -> bool:
        end = self.clock.monotonic() + round(timeout * SECOND)
        if not self.events or self.events[0][0] > end:
            self.clock.advance(end - self.clock.monotonic())
            raise queue.Empty
        at, event = self.events.pop(0)
        self.clock.advance(max(0, at - self.clock.monotonic()))
        return event


def played(*events: tuple[Micros, bool]) -> Micros:
    """Return for how long the loop waits whose last turn began now; it knows whether that was for a message."""
    clock = Clock()
    woken, left = Wakeups(clock), list(events)
    vars(woken)["_events"] = Events(clock, left)
    at_once = woken.wait(SECOND, busy=False)
    assert at_once is any(event is NOW for _, event in events[: len(events) - len(left)])
    return clock.monotonic()


def test_it_waits_until_the_next_look() -> None:
    assert played() == SECOND


@pytest.mark.parametrize("at", [0, GATHER // 4, SECOND // 2])
def test_a_job_that_is_done_ends_it_at_once(at: Micros) -> None:
    assert played((at, NOW)) == at
    assert played((at // 2, SOON), (at, NOW)) == min(at, max(at // 2, GATHER))


def test_messages_are_gathered_from_one_turn_to_the_next() -> None:
    assert played((GATHER // 4, SOON)) == GATHER
    assert played(*[(GATHER // 9 * number, SOON) for number in range(9)]) == GATHER
    assert played((SECOND // 2, SOON)) == SECOND // 2  # the last turn was long ago


@pytest.mark.parametrize(("wake", "passes"), [(Wakeups.wake, 0), (Wakeups.wake_soon, GATHER)])
def test_what_came_before_is_seen_to_by_a_clock_that_is_played_as_well(wake: Any, passes: Micros) -> None:
    clock = ManualClock()
    woken = Wakeups(clock)
    wake(woken)
    assert woken.wait(SECOND, busy=False) is not bool(passes)
    assert clock.monotonic() == passes
    assert not woken.wait(SECOND, busy=False)
    assert clock.monotonic() == passes + SECOND
