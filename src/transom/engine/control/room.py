"""What a stream can read until some time, beside the other streams, and when its rows are due."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np

from transom.engine.control.estimates import StreamEstimate
from transom.engine.control.runs import RunEstimate
from transom.engine.control.waiting import Delays, Waiting
from transom.engine.partials.results import Span
from transom.engine.streams.arriving import ALL_ROWS
from transom.model.time import Micros
from transom.model.window import WindowSpec
from transom.scheduling.inflow import Inflow
from transom.scheduling.limits import ENOUGH
from transom.scheduling.shedding import Due
from transom.windows.query import LatencyTarget

AIM = 0.9
"""Results are made by this part of their limit; sinks have the rest."""
PART = 0.5
"""A run, and the wait for its slot, take at most this part of the limit: a watermark that comes as one begins waits for
it, and for the next."""
MANY = 8
"""Of so many pieces one is small: time is left for the one that brings the watermark."""
SHORTEST = 0.25
"""A run does at least so much work for its rows as for itself; as much where a limit is out of reach."""
LEAST = 0.5
"""Others come first, but leave a stream so much of an even part."""
LAGS = 2
"""Watermarks that tell when the next ones come."""


@dataclass(frozen=True)
class Others:
    """The other streams, which share the slots."""

    free: float = 1.0
    """Part of a core that they leave."""
    wait: float = 0.0
    """Microseconds that a run waits for a slot."""

    @classmethod
    def of(cls, name: str, estimates: Mapping[str, StreamEstimate], slots: int) -> Others:
        """Return what streams leave to the one of a name, which runs in turn with them if there are too few slots."""
        others = [each for other, each in estimates.items() if other != name]
        if not others:
            return cls()
        fixed, row, _, rate, period = np.array([each.pace() for each in others]).T
        left = slots - float((rate * row + fixed / period).sum())
        free = min(1.0, max(LEAST * slots / (len(others) + 1), left))
        wait = (
            sum(max(each.runs.last.longest, each.runs.fixed) for each in others) / slots
            if len(others) >= slots
            else 0.0
        )
        return cls(free, wait)


@dataclass(frozen=True)
class Room:
    """The time that a stream has for its rows; all times are microseconds."""

    runs: RunEstimate
    others: Others
    targets: Sequence[LatencyTarget]
    """Of its queries."""

    @cached_property
    def limit(self) -> Micros:
        """The least limit."""
        return min(target.limit for target in self.targets)

    @property
    def keep(self) -> float:
        """The largest share that must be read."""
        return max(target.keep or 0.0 for target in self.targets)

    @cached_property
    def _costs(self) -> tuple[float, float]:
        """Of a job without rows, and of a row."""
        return self.runs.last.costs(self.runs.fixed, self.runs.row)

    def slow(self, runs: float = 1.0) -> float:
        """Return by how many times so many runs one after the other may be longer than is expected."""
        return self.runs.last.slowness(*self._costs, max(target.quantile for target in self.targets), runs)

    @cached_property
    def most(self) -> int:
        """Rows of the longest run; while costs are not known runs are shorter, so that they soon are."""
        longest, (fixed, row) = PART * self.limit / (1 if self.runs.is_known else ENOUGH), self._costs
        left = max(longest - self.others.wait, longest / 2) / self.slow() - fixed
        least = fixed * (SHORTEST if self.helps and self.runs.is_known else 1.0)
        return max(1, min(self.runs.last.tried, int(max(left, least) / row) if row > 0 else ALL_ROWS))

    @property
    def helps(self) -> bool:
        """Whether less to read means results in time."""
        return self.slow() * self._closing < self.limit

    @property
    def _closing(self) -> float:
        return self._costs[0] + self.runs.partial * self.runs.partials

    def in_time(self, rows: int, since: Micros) -> bool:
        """Tell whether all that waits can be read within the limit of the oldest.

        Args:
            rows: That wait.
            since: For how long the oldest has waited.
        """
        runs = self.slow() * (self._closing + self._costs[1] * rows)
        return since + self.others.wait + runs <= AIM * self.limit

    def until(self, time: float, waiting: float, most: int) -> float:
        """Return the rows that can be read in some time; below 0 if there is none.

        Args:
            time: The time.
            waiting: Rows; they need several runs if they are more than one takes.
            most: Rows of a run.
        """
        fixed, row = self._costs
        each = row + (fixed / most if waiting > most else 0.0)
        if each <= 0:
            return math.inf
        slow = self.slow(time / (PART * self.limit))
        return ((time - self.others.wait) * self.others.free / slow - self._closing) / each


def dues_of(
    estimate: StreamEstimate,
    waiting: Sequence[Waiting],
    room: Room,
    most: int,
    delays: Delays,
    inflow: Inflow,
    now: Micros,
    wall: Micros,
) -> tuple[list[int], list[Due]]:
    """Return when each piece is due, as an index, and what can be read until then.

    Rows are read in order, so that those before a watermark are due with the windows that it completes, though their
    own may be later ones: where watermarks stay behind the rows, two times follow for those of one window.

    Args:
        estimate: What is known of the stream.
        waiting: The pieces, at least one.
        room: The time that it has.
        most: Rows of a run.
        delays: Of its rows.
        inflow: The rows that came.
        now: Monotonic time.
        wall: Wall time.
    """
    stream, behind = estimate.stream, estimate.stream.definition.policy.delay
    closed, lag = stream.state.closed, delays.lag(behind)
    at: list[int] = []
    found: list[tuple[float, Micros, Micros, Micros]] = []
    for piece in waiting:
        time, first, end = _due(estimate, max(piece.happened - behind, closed), delays, now)
        until = end + behind
        if behind:
            _, first, end = _due(estimate, max(piece.happened, closed), delays, now)
        group = (time, first, end, min(until, end))
        if not found or group[-1] > found[-1][-1]:
            found.append(group)
        at.append(len(found) - 1)
    times = list(accumulate((time for time, *_ in reversed(found)), min))[::-1]
    come = [0.0, *(inflow.expected(math.floor(until + lag - wall)) for *_, until in found)]
    coming = [max(0.0, later - sooner) for sooner, later in pairwise(come)]
    rows = sum(coming) + sum(piece.rows for piece in waiting)
    watermark = max(piece.rows for piece in waiting) if len(waiting) >= MANY else 0
    dues: list[Due] = []
    known: Span | None = None
    for time, (_, first, end, _), more in zip(times, found, coming, strict=True):
        before = stream.state.shares.of((first, end)) if known != (first, end) else (0.0, 0.0)
        known = (first, end)
        dues.append(Due(room.until(time - wall, rows, most) - watermark, *before, more))
    return at, dues


def _due(estimate: StreamEstimate, moment: Micros, delays: Delays, now: Micros) -> tuple[float, Micros, Micros]:
    """Return when the rows of a moment are due, wall time, and the window that they are due for."""
    found = []
    for query in estimate.stream.state.running():
        if query.target is not None and query.sheds:
            for window in query.pane_windows:
                end = window.first_end(moment)
                first = end - window.length if isinstance(window, WindowSpec) else window.late_before(moment)
                found.append((_arrival(estimate, end, delays, now) + AIM * query.target.limit, first, end))
    return min(found)


def _arrival(estimate: StreamEstimate, end: Micros, delays: Delays, now: Micros) -> float:
    """Return when the watermark that reaches `end` is expected; by the delays of rows until those before tell it."""
    expected, policy = estimate.expected(end, now), estimate.stream.definition.policy
    if len(estimate.watermarks.lags) >= LAGS or policy.from_source or not delays.steady:
        return expected
    return max(expected, end + policy.delay + delays.least)
