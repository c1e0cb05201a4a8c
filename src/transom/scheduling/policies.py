"""Policies that choose the stream that runs next: pure functions over what is known of the streams.

A policy gives every stream a number, and the stream with the least runs first. The numbers are computed for all streams
at once, with any leading axes, so that the same code decides in the engine and in many simulated engines at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple, TypeAlias
from zlib import crc32

import numpy as np
import numpy.typing as npt

from transom.errors import DefinitionError, did_you_mean
from transom.model.time import MICROS_PER_SECOND, Micros

Floats = npt.NDArray[np.float64]

LONGEST_WAIT: Micros = 30 * MICROS_PER_SECOND
"""A stream that has waited longer goes before all others, whatever the policy."""
_AHEAD = 1e16
"""More microseconds than lie between any two priorities."""


class StreamView(NamedTuple):
    """A stream that has work, as a policy sees it; hundreds are made every second."""

    name: str
    waiting_since: Micros
    """Since when it has had work that was not started: the arrival of its oldest unread row. Times are monotonic."""
    ran_at: Micros = 0
    """Start of its last run."""
    trigger: float = 0.0
    """Least time between the starts of two runs, microseconds."""
    cost: float = 0.0
    """Expected time to run all that waits, with consolidation; microseconds."""
    run: float = 0.0
    """Expected time of the next run, which takes no more of it than fits into a cycle; at most `cost`."""
    fixed: float = 0.0
    """Part of that which a run costs without rows."""
    total: float = 0.0
    """Expected time to run all that will wait when the sweeping watermark has come; at least `cost`."""
    slack: float = 0.0
    """Expected time to spare until a window's result is late; microseconds, negative when overdue."""
    expected: float = 0.0
    """Expected or known arrival of the sweeping watermark that completes the next window."""
    limit: float = 0.0
    """Latency limit of the next window, microseconds; contained in `slack`."""
    deadline: Micros = 0
    """End of the next window, event time."""
    rate: float = 0.0
    """Rows of results per second of processing: selectivity / seconds per row."""
    freed: float = 0.0
    """Rows or bytes of memory that a run eliminates; see `eliminated`."""
    held: bool = False
    """Whether it was chosen before and has not completed a window since."""
    due: float = 0.0
    """Windows whose sweeping watermark should have come: results that a run of all that waits brings."""
    period: float = 0.0
    """Time between two sweeping watermarks, microseconds."""
    cycle: float = 0.0
    """Length of a cycle, microseconds, the same for all."""
    load: float = 0.0
    """Offered work over capacity, as far as it was measured, the same for all; see `costs.offered`."""
    rank: float = 0.0
    """Place among equal streams, always the same: from -1, the last, to 1; see `rank_of`."""

    def grown(self, cost: float) -> StreamView:
        """Return the stream when all that waits costs so much, and nothing else has happened."""
        more = cost - self.cost
        run = min(cost, max(self.fixed, self.cycle))
        return self._replace(cost=cost, run=run, total=self.total + more, slack=self.slack - more)


@dataclass(frozen=True)
class Columns:
    """The same of many streams: arrays of shape (..., streams), or scalars where all are equal."""

    waiting_since: Floats
    ran_at: Floats
    trigger: Floats
    cost: Floats
    run: Floats
    fixed: Floats
    total: Floats
    slack: Floats
    expected: Floats
    limit: Floats
    deadline: Floats
    rate: Floats
    freed: Floats
    held: npt.NDArray[np.bool_]
    due: Floats
    period: Floats
    cycle: Floats
    load: Floats
    rank: Floats

    def part(self, start: int, stop: int) -> Columns:
        """Return some entries of the first axis."""
        return Columns(*(getattr(self, name)[start:stop] for name in _COLUMNS))

    @classmethod
    def of(cls, views: Sequence[StreamView]) -> Columns:
        """Return views as columns."""
        columns = list(np.array([view[1:] for view in views], np.float64).T)
        columns[_HELD] = columns[_HELD] != 0
        return cls(*columns)


def windows_due(expected: float, period: float, now: float) -> float:
    """Return how many windows are due when the sweeping watermark of the first of them should come at `expected`."""
    if expected > now:
        return 0.0
    return 1.0 + (math.floor((now - expected) / period) if period > 0 else 0.0)


def rank_of(name: str) -> float:
    """Return a number from -1 to 1 for a stream, always the same: a hash of its name.

    >>> -1 <= rank_of("orders") == rank_of("orders") <= 1
    True
    """
    return crc32(name.encode()) / 0x7FFFFFFF - 1


_COLUMNS = tuple(one.name for one in fields(Columns))
_HELD = _COLUMNS.index("held")

Priority: TypeAlias = "Callable[[Columns, float], Floats]"
"""The streams and the time in microseconds give an array of shape (..., streams): the least runs first, and what
is infinite is better not run now."""


@dataclass(frozen=True)
class Policy:
    """A rule for which stream runs next; called with views, it returns their names in order."""

    name: str
    priority: Priority
    at_once: bool = False
    """Whether all streams with work run at once, in FAIR pools, instead of as many as there are slots."""

    def __call__(self, streams: Sequence[StreamView], now: Micros) -> list[str]:
        """Return the names of the streams to run, in order; ties by name. O(n log n)."""
        if not streams:
            return []
        views = sorted(streams, key=lambda view: view.name)
        priorities = (self.priority(Columns.of(views), now) + np.zeros(len(views))).tolist()
        order = sorted(range(len(views)), key=priorities.__getitem__)
        return [views[place].name for place in order if priorities[place] < math.inf]


EARLIEST, LATEST = 2.0, 0.5
"""A run before its watermark starts at most so many times the expected work ahead, at least so many times its own."""
WORTHWHILE = 2.0
"""A run before its watermark goes behind all others unless it takes so many times the fixed cost of a job."""
AGAIN = 3.0
"""Work that needs further runs before its watermark counts so many times more: each of them waits for a core again."""
KEPT = 2.0
"""A result that can still keep its limit goes before others that are late by so many times the limit."""
KEPT_AT_MOST = 0.3
"""And by at most so much of a cycle: three jobs without rows,"""
KEPT_OVERLOADED = 2.0
"""or by this when there is more work than can be done, and some results must be late in any case."""
OVERLOADED = (0.95, 1.05)
"""Between these loads the one becomes the other."""
SPREAD = 0.25
"""By so much more or less, always the same for a stream, so that above a load of 1 the same streams stay in time."""


def _klink(streams: Columns, now: float) -> Floats:
    """Least expected slack, no run that only costs a job, and limits kept where they can be.

    Departures from Algorithm 1 (docs/decisions/0014). A run is a Spark job here, with a fixed cost and without
    preemption: while the watermark has not come, it only pays if it shortens the run after it, so not so early that
    most rows are yet to come, not so late that the watermark has to wait for it or for the trigger, not for few rows. A
    stream that would not gain is left alone even if a core idles. And a latency limit is no time to spare: streams go
    by how late their next result will be, but one that can still keep its limit, by its newest window if several are
    due, goes first. When not all can, those that missed it wait until their next window is due as well, and one job
    serves both.
    """
    ahead = streams.expected - now
    come = ahead <= 0
    large = streams.run >= WORTHWHILE * streams.fixed
    late = streams.total - ahead + np.where(~come & large, AGAIN * (streams.cost - streams.run), 0.0)
    latest = np.maximum(LATEST * streams.run, streams.trigger)
    earliest = np.maximum(EARLIEST * streams.total, late + ahead) + latest - LATEST * streams.run
    pays = (ahead <= earliest) & (ahead >= latest)
    newest = late - np.maximum(0.0, streams.due - 1) * streams.period
    overloaded = np.minimum(1.0, np.maximum(0.0, (streams.load - OVERLOADED[0]) / (OVERLOADED[1] - OVERLOADED[0])))
    most = (KEPT_AT_MOST + (KEPT_OVERLOADED - KEPT_AT_MOST) * overloaded) * streams.cycle
    head_start = np.minimum(KEPT * streams.limit, most) * (1 + SPREAD * streams.rank)
    first = late + np.where(come & (newest <= streams.limit), head_start, 0.0)
    return np.where(come, -first, np.where(pays, np.where(large, 0.0, _AHEAD) - first, np.inf))


klink = Policy("klink", _klink)
least_slack = Policy("least_slack", lambda streams, now: streams.slack)
"""Klink as printed: Algorithm 1 with the corrections of its slack, and nothing else."""
first_come_first_served = Policy("fcfs", lambda streams, now: streams.waiting_since)
"""The oldest unread row first."""
round_robin = Policy("round_robin", lambda streams, now: streams.ran_at)
"""The stream first whose last run is longest ago."""
highest_rate = Policy("highest_rate", lambda streams, now: -streams.rate)
"""The most rows of results per second of work first (Sharaf et al. 2008)."""
streambox = Policy("streambox", lambda streams, now: streams.deadline - _AHEAD * streams.held)
"""The closest end of a window first, then the same stream until it has completed the window (Miao et al. 2017)."""
fair = Policy("fair", lambda streams, now: streams.ran_at, at_once=True)
"""All at once, each with its share of the cores: Spark's FAIR pools, and the engine's own way in the paper."""

POLICIES = {
    policy.name: policy
    for policy in (klink, first_come_first_served, round_robin, highest_rate, streambox, fair, least_slack)
}
"""By the name that the setting has."""


def policy_named(name: str, longest: Micros = LONGEST_WAIT) -> Policy:
    """Return a policy by its name, such that no stream waits without end; see `bounded`.

    Raises:
        DefinitionError: There is none of this name.
    """
    if name not in POLICIES:
        known = f"Policies are {', '.join(POLICIES)}."
        raise DefinitionError(f"policy: there is no {name!r}.", did_you_mean(name, POLICIES, known))
    return bounded(POLICIES[name], longest)


def bounded(policy: Policy, longest: Micros = LONGEST_WAIT) -> Policy:
    """Return the policy with streams that have waited longer than `longest` put first, the longest waiting foremost.

    A stream waits from the later of its oldest unread row and its last start. With n streams of which each has one job
    at a time, jobs of at most J and s slots, none waits longer than longest + ceil(n / s) * J: once overdue, only the
    streams that are overdue for longer go before it, each of them once.

    Raises:
        DefinitionError: The time is not positive.
    """
    if longest <= 0:
        raise DefinitionError(f"policy: longest wait is {longest}.", "Give more than 0 microseconds.")

    def priority(streams: Columns, now: float) -> Floats:
        since = np.maximum(streams.waiting_since, streams.ran_at)
        return np.where(now - since > longest, since - 10 * _AHEAD, policy.priority(streams, now))

    return replace(policy, priority=priority)


def freeing(streams: Columns, now: float) -> Floats:
    """Return the priorities while memory is short: what frees most first, among equals the least slack."""
    return np.asarray(-np.floor(streams.freed) + np.arctan(streams.slack / MICROS_PER_SECOND) / np.pi)


def eliminated(queued: Floats, kept: Floats, cost: Floats, budget: float) -> float:
    """Return how many rows a run takes out of memory: Klink's p_k at its best k, corrected.

    Printed is sz (1 - prod S); rows queued before operator j only pass the operators from j on, so that
    p_k = sum over j <= k of queue_j (1 - prod_{i=j..k} S_i), limited to what fits into the cycle, rows nearest to
    operator k first.

    Args:
        queued: Rows before each operator of the pipeline, in order.
        kept: Selectivity of each operator.
        cost: Seconds per row of each operator.
        budget: Seconds of the cycle.
    """
    best = 0.0
    for last in range(len(queued)):
        left, freed = budget, 0.0
        through, seconds = 1.0, 0.0
        for start in range(last, -1, -1):
            seconds = cost[start] + kept[start] * seconds
            through *= kept[start]
            rows = min(queued[start], left / seconds) if seconds > 0 else queued[start]
            left -= rows * seconds
            freed += rows * (1 - through)
        best = max(best, freed)
    return float(best)
