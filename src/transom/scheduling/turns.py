"""Turns of the micro-batches of streaming queries that Spark drives itself: what is known of each, and the slots.

Spark has fixed what a micro-batch reads by the time that it can be held back, and what the batch will read is known
only when it is done. So everything here is learned from batches that are done, and a held batch is judged by the rate
of its rows and by the time since the batch before.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from transom.errors import DefinitionError
from transom.model.calendar import CalendarSpec
from transom.model.time import MICROS_PER_SECOND, MIN_TIME, Micros
from transom.model.window import WindowSpec
from transom.scheduling.costs import CYCLE, CostHistory
from transom.scheduling.policies import Policy, StreamView, rank_of

BATCHES = 8
"""Batches with rows whose watermarks are remembered."""
ENOUGH = 3
"""With fewer nothing is foretold."""
UNSTEADY = 0.5
"""Watermarks whose lags spread by more than this share of the time that they took foretell nothing: old data is read
faster than it happened, or the source comes and goes. A watermark that is not foretold is taken to be there, so that
its query is never held for it."""
RATE_WEIGHT = 0.3
"""Of the newest batch in the rate of rows."""


@dataclass(frozen=True)
class BatchDone:
    """A finished micro-batch, as Spark reports it in `StreamingQueryProgress`."""

    batch: int
    triggered: Micros
    """Wall time when Spark asked the source what there is."""
    rows: int
    """Rows read."""
    newest: Micros | None = None
    """Largest event time among them; None without rows or without a watermark."""
    watermark: Micros | None = None
    """In force during the batch: windows that end here or before are out; None as long as there is none."""
    results: int = 0
    """Rows that left the state, which are the results of windows."""

    @classmethod
    def of(cls, progress: Mapping[str, Any]) -> BatchDone:
        """Return what a progress in the form of Spark's JSON tells.

        Raises:
            KeyError: It lacks a field that Spark always gives.
            ValueError: A time is not ISO 8601.
        """
        times = progress.get("eventTime", {})
        watermark = _moment(times["watermark"]) if "watermark" in times else 0
        return cls(
            batch=progress["batchId"],
            triggered=_moment(progress["timestamp"]),
            rows=progress["numInputRows"],
            newest=_moment(times["max"]) if "max" in times else None,
            watermark=watermark if watermark > 0 else None,
            results=sum(operator.get("numRowsRemoved", 0) for operator in progress.get("stateOperators", ())),
        )


def _moment(text: str) -> Micros:
    seconds = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return round(seconds.timestamp() * 1_000) * 1_000


class SeenWatermarks:
    """The watermarks of one query's batches, from which the next one is foretold.

    Args:
        window: The windows of its results; None for a query without, or with sessions.
    """

    def __init__(self, window: WindowSpec | CalendarSpec | None) -> None:
        self.window = window
        self._newest: Micros = MIN_TIME
        """Largest event time."""
        self._delay: Micros | None = None
        """By how much a watermark is behind the largest event time."""
        self._emitted: Micros = MIN_TIME
        """Windows that end here or before are out."""
        self._swept: Micros = MIN_TIME
        """The watermark that the rows of finished batches make; the next batch has it."""
        self._swept_at: Micros = 0
        """Wall time when it was found."""
        self._seen: deque[tuple[Micros, Micros]] = deque(maxlen=BATCHES)
        """When watermarks were found, and their lags: how far they were behind that."""

    def take(self, done: BatchDone) -> bool:
        """Take in a finished batch; return whether its watermark was a new one, so that windows may have come out."""
        moved = done.watermark is not None and done.watermark > self._emitted
        if done.watermark is not None:
            if self._newest > MIN_TIME:
                delay = max(0, self._newest - done.watermark)
                self._delay = delay if self._delay is None else min(self._delay, delay)
            self._emitted = max(self._emitted, done.watermark)
        if done.newest is not None:
            self._newest = max(self._newest, done.newest)
            self._sweep(done)
        return moved

    def _sweep(self, done: BatchDone) -> None:
        """Note the watermark that a batch brought."""
        before = self._swept
        if self._delay is None:
            return
        self._swept = max(before, self._newest - self._delay)
        if self._swept > before:
            self._swept_at = done.triggered
            self._seen.append((done.triggered, done.triggered - self._swept))

    def next_end(self) -> Micros | None:
        """Return the end of the next window; None where that is not known."""
        return None if self.window is None or self._emitted <= MIN_TIME else self.window.first_end(self._emitted)

    def expected(self, arrived: Micros, ahead: Micros) -> float:
        """Return when the watermark that completes the next window has come, or when it may come; monotonic time.

        It is not before the window's end and the least lag of past watermarks; how much later depends on how the source
        portions its rows, which a progress does not tell. Too early costs a batch, too late delays a result. Where
        nothing can be foretold, and where it may be there already, it is the arrival of the held batch.

        Args:
            arrived: When the held batch arrived.
            ahead: By how much the wall clock was ahead of the monotonic one then.
        """
        end = self.next_end()
        if end is None:
            return float(arrived)
        if end <= self._swept:
            return float(self._swept_at - ahead)
        lags = [lag for _, lag in self._seen]
        if len(lags) < ENOUGH or max(lags) - min(lags) > UNSTEADY * (self._seen[-1][0] - self._seen[0][0]):
            return float(arrived)
        return float(max(end + min(lags) - ahead, arrived))


class QueryEstimate:
    """The estimate of one query, learned from its batches, and its view for a policy.

    Args:
        window: The windows of its results; None for a query without, or with sessions.
        limit: Latency limit of its results, microseconds.
    """

    def __init__(self, window: WindowSpec | CalendarSpec | None, limit: Micros) -> None:
        self.limit = limit
        self.watermarks = SeenWatermarks(window)
        self.costs = CostHistory()
        self.rate = 0.0
        """Rows that come per microsecond."""
        self._last: BatchDone | None = None
        self._took: tuple[int, Micros] | None = None
        """The batch that ran last, and for how long."""
        self._arrived: Micros = 0
        self._ahead: Micros = 0
        """By how much the wall clock, which Spark's progress goes by, was ahead of the monotonic one then."""
        self._started: Micros = 0
        self._results = self._rows = 1.0
        self._held = False

    # ---- what happens

    def arrived(self, done: BatchDone | None, now: Micros, ahead: Micros = 0) -> None:
        """Take in that the next batch is ready to run.

        Args:
            done: The batch before; None when nothing is known of it.
            now: Monotonic time.
            ahead: By how much the wall clock is ahead of it.
        """
        self._arrived, self._ahead = now, ahead
        before = self._last
        if done is None or (before is not None and done.batch <= before.batch):
            return
        if self._took is not None and self._took[0] == done.batch and done.rows:
            self.costs.ran(float(done.rows), self._took[1] / MICROS_PER_SECOND)
        if before is not None and done.triggered > before.triggered:
            share = RATE_WEIGHT if self.rate else 1.0
            self.rate += share * (done.rows / (done.triggered - before.triggered) - self.rate)
        self._results, self._rows = 0.9 * self._results + done.results, 0.9 * self._rows + done.rows
        if self.watermarks.take(done):
            self._held = False
        self._last = done

    def started(self, now: Micros) -> None:
        """Note that the batch runs."""
        self._started = now
        self._held = True

    def finished(self, batch: int, now: Micros) -> None:
        """Note that the batch has run; how many rows it had is known when the next one is ready."""
        self._took = batch, max(1, now - self._started)

    # ---- what is known

    def expected(self) -> float:
        """Return when the watermark of the next window has come, or when it may come; monotonic time."""
        return self.watermarks.expected(self._arrived, self._ahead)

    def view(self, name: str, now: Micros) -> StreamView:
        """Return the query as a policy sees it.

        The batch that is held has the rows since the batch before; the watermark that the next window waits for is
        among them or comes with the batch after it, which costs a job of its own.
        """
        costs = self.costs.costs
        fixed, row = MICROS_PER_SECOND * float(costs.fixed), MICROS_PER_SECOND * float(costs.row)
        since = self._arrived if self._last is None else self._last.triggered - self._ahead
        expected = self.expected()
        run = fixed + row * self.rate * max(0, self._arrived - since)
        ahead = max(0.0, expected - self._arrived)
        total = run + (fixed + row * self.rate * ahead if ahead > 0 else 0.0)
        return StreamView(
            name=name,
            waiting_since=self._arrived,
            ran_at=self._started,
            cost=run,
            run=run,
            fixed=fixed,
            total=total,
            slack=expected + self.limit - now - total,
            expected=expected,
            limit=float(self.limit),
            deadline=self.watermarks.next_end() or 0,
            rate=min(1.0, self._results / self._rows) / max(row, 1e-6),
            held=self._held,
            cycle=CYCLE * fixed,
            rank=rank_of(name),
        )


class Turns:
    """The queries that run and those that wait; changed by one thread at a time.

    Args:
        policy: The order of those who wait.
        slots: How many run at once, if the policy does not run all at once.

    Raises:
        DefinitionError: There is no slot.
    """

    def __init__(self, policy: Policy, slots: int) -> None:
        if slots < 1:
            raise DefinitionError(f"gate: slots is {slots}.", "Give at least 1.")
        self._policy = policy
        self._slots: float = math.inf if policy.at_once else slots
        self._waiting: dict[str, QueryEstimate] = {}
        self._running: set[str] = set()

    @property
    def pending(self) -> bool:
        """Whether somebody waits who could run: time alone may then bring a turn."""
        return bool(self._waiting) and len(self._running) < self._slots

    def runs(self, name: str) -> bool:
        """Tell whether it is this query's turn."""
        return name in self._running

    def arrived(self, name: str, estimate: QueryEstimate) -> None:
        """Let a query wait for its turn."""
        self._waiting[name] = estimate

    def left(self, name: str) -> None:
        """Forget a query that runs no more, or that waits no more; its slot is free."""
        self._waiting.pop(name, None)
        self._running.discard(name)

    def next(self, now: Micros) -> list[str]:
        """Give turns as far as slots are free; return whose they are. O(n log n) in the waiting.

        Args:
            now: Monotonic time.
        """
        if not self.pending:
            return []
        views = [estimate.view(name, now) for name, estimate in self._waiting.items()]
        room = len(self._waiting) if math.isinf(self._slots) else int(self._slots) - len(self._running)
        chosen = self._policy(views, now)[:room]
        for name in chosen:
            self._waiting.pop(name).started(now)
            self._running.add(name)
        return chosen
