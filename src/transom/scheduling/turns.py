"""Whose micro-batch runs next, among streaming queries that each decide for themselves what is in a micro-batch.

What a query tells after each micro-batch (its progress) is all that is known: when it began, its rows, the largest
event time, the watermark in force. The watermark of a micro-batch follows from the rows before it, so that the one
after a sweeping watermark emits the window.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from transom.model.calendar import CalendarSpec
from transom.model.time import MICROS_PER_SECOND, MIN_TIME, Micros
from transom.model.window import WindowSpec
from transom.scheduling.arrivals import DelayMoments, LagHistory
from transom.scheduling.costs import CostHistory
from transom.scheduling.policies import Policy, StreamView

EPOCHS_AT_ONCE = 8
"""Of more windows that a watermark completes at once only the first are learned from."""
RATE_OVER: Micros = 5 * MICROS_PER_SECOND
"""Time constant of the arrival rate."""


@dataclass(frozen=True)
class Batch:
    """A micro-batch that has ended, as its progress tells; times in microseconds."""

    started: Micros
    rows: int
    newest: Micros | None = None
    """Largest event time of its rows; None without rows."""
    watermark: Micros | None = None
    """In force; None before the first one."""


class Turn:
    """One query at the gate. Changed by `progressed`, `waits` and `ran` only.

    Args:
        name: Its name.
        window: The window whose results should be there in time; None when there is none.
        limit: Latency limit, microseconds.
    """

    def __init__(self, name: str, window: WindowSpec | CalendarSpec | None, limit: Micros) -> None:
        self.name, self.window, self.limit = name, window, limit
        self.lags = LagHistory()
        self.costs = CostHistory()
        self._last: Batch | None = None
        self._newest: Micros = MIN_TIME
        self._emitted: Micros = MIN_TIME
        """The watermark of the last micro-batch: windows up to it are emitted."""
        self._delay: Micros | None = None
        """How far the watermark is behind the largest event time; seen, not told."""
        self._known_at: Micros = 0
        """When the micro-batch that moved the newest watermark began."""
        self._rate = 0.0
        self._waiting_since: Micros = 0
        self._ran_at: Micros = 0

    def progressed(self, batch: Batch) -> None:
        """Take in the micro-batch that ended before the one that waits; the same one again does nothing."""
        last = self._last
        if last is not None and batch.started <= last.started:
            return
        if batch.watermark is not None:
            if self._newest > MIN_TIME:
                behind = self._newest - batch.watermark
                self._delay = behind if self._delay is None else min(self._delay, behind)
            if last is not None and self._emitted > MIN_TIME:
                self._learn(self._emitted, batch.watermark, last.started)
            self._emitted = max(self._emitted, batch.watermark)
        if batch.newest is not None and batch.newest > self._newest:
            self._newest, self._known_at = batch.newest, batch.started
        if last is not None:
            passed = batch.started - last.started
            share = 1 - math.exp(-passed / RATE_OVER)
            self._rate += share * (batch.rows / passed - self._rate)
        self._last = batch

    def _learn(self, before: Micros, watermark: Micros, arrived: Micros) -> None:
        if self.window is None:
            return
        end = self.window.first_end(before)
        for _ in range(EPOCHS_AT_ONCE):
            if end > watermark:
                return
            self.lags.seen(arrived - end, DelayMoments())
            end = self.window.first_end(end)

    def waits(self, now: Micros) -> None:
        """Note that its next micro-batch waits from now on."""
        self._waiting_since = now

    def ran(self, started: Micros, took: Micros) -> None:
        """Note that a micro-batch ran; how many rows it had, the next progress will tell.

        Args:
            started: When it was let through.
            took: Its duration.
        """
        self.costs.ran(self._rows(), max(1, took) / MICROS_PER_SECOND)
        self._ran_at = started

    def _rows(self) -> float:
        """Return about how many rows the waiting micro-batch has: what came between the last one and it."""
        return 0.0 if self._last is None else self._rate * max(0, self._waiting_since - self._last.started)

    def expected(self, now: Micros) -> float:
        """Return when the sweeping watermark of the next window is expected, or known to have been read."""
        if self.window is None:
            return float(self._waiting_since)
        if self._emitted <= MIN_TIME or self._last is None:
            return float(now)
        end = self.window.first_end(self._emitted)
        if self._delay is not None and self._newest - self._delay >= end:
            return float(self._known_at)
        arrival = self.lags.arrival(end)
        return float(now) if arrival is None else arrival.expected(self._last.started)

    def view(self, now: Micros) -> StreamView:
        """Return the query as a policy sees it.

        What waits does not grow by waiting, so that nothing is gained by holding it back shortly before its watermark:
        `run` is 0.
        """
        costs = self.costs.costs
        fixed, row = MICROS_PER_SECOND * float(costs.fixed), MICROS_PER_SECOND * float(costs.row)
        expected = self.expected(now)
        cost = fixed + row * self._rows()
        total = cost + row * self._rate * max(0.0, expected - now)
        end = MIN_TIME if self.window is None or self._emitted <= MIN_TIME else self.window.first_end(self._emitted)
        return StreamView(
            name=self.name,
            waiting_since=self._waiting_since,
            ran_at=self._ran_at,
            cost=cost,
            fixed=fixed,
            total=total,
            slack=expected + self.limit - now - total,
            expected=expected,
            limit=float(self.limit),
            deadline=end,
            rate=1 / max(row, 1e-6),
        )


def next_turns(waiting: Mapping[str, Turn], running: int, slots: int, policy: Policy, now: Micros) -> list[str]:
    """Return the names of those that may run now, in order; what is better held back is not among them.

    Args:
        waiting: The queries whose micro-batches wait, by name.
        running: How many run.
        slots: How many may run at once.
        policy: Which goes first.
        now: Wall time.
    """
    free = len(waiting) if policy.at_once else slots - running
    return policy([turn.view(now) for turn in waiting.values()], now)[:free] if free > 0 and waiting else []
