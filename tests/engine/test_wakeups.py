"""What wakes the loop: some things at once, others when more may have come."""

from __future__ import annotations

from typing import Any

import pytest

from transom.engine.loop import wakeups
from transom.engine.loop.wakeups import GATHER, Wakeups
from transom.model.time import ManualClock

SOON, NOW = False, True


class Played(Wakeups):
    """Events that come at given seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, events: list[tuple[float, bool]]) -> None:
        self.second, self.events = 0.0, events
        monkeypatch.setattr(wakeups.time, "monotonic", lambda: self.second)
        super().__init__(ManualClock())

    def _next(self, timeout: float) -> bool | None:
        if not self.events or self.events[0][0] > self.second + timeout:
            self.second += timeout
            return None
        at, event = self.events.pop(0)
        self.second = max(self.second, at)
        return event


def played(monkeypatch: pytest.MonkeyPatch, *events: tuple[float, bool]) -> float:
    """Return for how long the loop waits whose last turn began now; it knows whether that was for a message."""
    woken = Played(monkeypatch, list(events))
    at_once = woken.wait(1_000_000, busy=True)
    assert at_once is any(event is NOW for _, event in events[: len(events) - len(woken.events)])
    return woken.second


def test_it_waits_until_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    assert played(monkeypatch) == 1


@pytest.mark.parametrize("at", [0.0, GATHER / 4, 0.5])
def test_a_job_that_is_done_ends_it_at_once(monkeypatch: pytest.MonkeyPatch, at: float) -> None:
    assert played(monkeypatch, (at, NOW)) == at
    assert played(monkeypatch, (at / 2, SOON), (at, NOW)) == pytest.approx(min(at, max(at / 2, GATHER)))


def test_messages_are_gathered_from_one_turn_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    assert played(monkeypatch, (GATHER / 4, SOON)) == GATHER
    assert played(monkeypatch, *[(GATHER / 9 * number, SOON) for number in range(9)]) == GATHER
    assert played(monkeypatch, (0.5, SOON)) == 0.5  # the last turn was long ago


@pytest.mark.parametrize("wake", [Wakeups.wake, Wakeups.wake_soon])
def test_what_came_before_is_seen_to_and_time_that_is_played_does_not_pass(wake: Any) -> None:
    clock = ManualClock()
    woken = Wakeups(clock)
    wake(woken)
    woken.wait(1_000_000, busy=False)
    assert clock.monotonic() == 0
    woken.wait(1_000_000, busy=False)
    assert clock.monotonic() == 1_000_000
