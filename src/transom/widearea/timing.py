"""When flows leave, so that bursts keep apart, and how long partials then take.

All departures repeat after 120 ticks. Phases are given one by one, the largest parcels first, each where its links
have the least to do. The prediction then plays two periods through: on each link parcels go in the order in which they
are ready, of those that are ready at once as sites send them: those with the least slack first (the tightest limit),
then those that leave more often, then the smaller ones; each behind what is still under way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transom.widearea.flows import Floats
from transom.widearea.problem import Column, Problem
from transom.widearea.topology import INTERVALS, PERIOD

ROUNDS = 3
"""Times that the links are gone over for a prediction."""


class Timing(NamedTuple):
    """What is predicted of a flow, seconds."""

    latency: float
    """At its quantile, from the oldest row of an interval until all of it is merged."""
    gather: float
    """At most, from a departure until all that a relay merges has come there; 0 where none does."""


def phases(problem: Problem, columns: Sequence[Column], kept: Mapping[int, int]) -> dict[int, int]:
    """Return the phase of each flow, by its number.

    Args:
        problem: Flows and links.
        columns: The way of each flow.
        kept: Phases that stay.
    """
    burst = np.zeros((problem.sites**2, PERIOD))
    seconds = problem.topology.tick * np.array(INTERVALS)
    rate = problem.speed.ravel()
    found: dict[int, int] = {}

    def parts(column: Column) -> tuple[list[int], Floats]:
        links, rates = problem.load(column)
        return list(links), np.array(rates) * seconds[column.at] / rate[list(links)]

    for column in sorted(columns, key=lambda each: (each.flow not in kept, -float(parts(each)[1].max()), each.flow)):
        ticks = INTERVALS[column.at]
        links, busy = parts(column)
        at = burst[links].reshape(len(links), PERIOD // ticks, ticks).sum(axis=1)
        phase = kept.get(column.flow, int((busy @ at).argmin()))
        found[column.flow] = phase
        burst[np.ix_(links, range(phase, PERIOD, ticks))] += busy[:, None]
    return found


def timings(problem: Problem, columns: Sequence[Column], phase: Mapping[int, int]) -> dict[int, Timing]:
    """Return what each flow takes, by its number.

    What a relay sends is ready when the last of its parts has come, which depends on what it sends itself: so the links
    are gone over a few times. O(parcels of two periods); what is left of the first one counts as waiting in the second.
    """
    tick, rate = problem.topology.tick, problem.speed.ravel()
    parcels = _Parcels()
    for number, column in enumerate(columns):
        shape, ticks = problem.shapes[column.flow], INTERVALS[column.at]
        leaves = np.arange(phase[column.flow], 2 * PERIOD, ticks)
        for head, mask in shape.groups(column.parents).items():
            parts = [bit for bit, source in enumerate(shape.sources) if mask >> bit & 1 and source != head]
            way, size = head * problem.sites + shape.destination, float(shape.size(mask)[column.at])
            whole = parcels.add(number, leaves, way, size / rate[way], -1)
            for bit in parts:
                way, size = shape.sources[bit] * problem.sites + head, float(shape.size(1 << bit)[column.at])
                parcels.add(number, leaves, way, size / rate[way], whole)
    if not columns:
        return {}
    flows = [problem.flows[column.flow] for column in columns]
    job, merging = (np.array([getattr(f, key) for f in flows]) for key in ("job", "merging"))
    kinds = sorted({(f.limit, column.at) for f, column in zip(flows, columns, strict=True)})
    rank = np.array([kinds.index((f.limit, column.at)) for f, column in zip(flows, columns, strict=True)])
    of, at, link, seconds, into = (np.concatenate(each) for each in zip(*parcels.parts, strict=True))
    begin: Floats = at * tick + job[of]
    ready, relayed = begin.copy(), into >= 0
    for _ in range(ROUNDS):
        merged = _through(link, ready, rank[of], seconds) + merging[of]
        ready = begin.copy()
        np.maximum.at(ready, into[relayed], merged[relayed])
    took: Floats = merged - at * tick
    gathered, whole_of = np.zeros(len(columns)), into[relayed & (at >= PERIOD)]
    np.maximum.at(gathered, of[whole_of], ready[whole_of] - at[whole_of] * tick)
    found = {}
    ended, departure = np.zeros((len(columns), 2 * PERIOD)), at.astype(np.intp)
    np.maximum.at(ended, (of[~relayed], departure[~relayed]), took[~relayed])
    for number, column in enumerate(columns):
        ordered = np.sort(ended[number, PERIOD:][ended[number, PERIOD:] > 0])
        last = ceil(flows[number].quantile * len(ordered)) - 1
        latency = INTERVALS[column.at] * tick + float(ordered[max(last, 0)])
        found[column.flow] = Timing(latency, float(gathered[number]))
    return found


class _Parcels:
    """Parcels as arrays: column, tick, link, seconds on it, and the number of the parcel that they become a part of."""

    def __init__(self) -> None:
        self.parts: list[tuple[NDArray[Any], ...]] = []
        self.count = 0

    def add(self, column: int, at: NDArray[np.intp], link: int, seconds: float, whole: int) -> int:
        """Add one for each tick; return the number of the first."""
        ones, first = np.ones(len(at), dtype=np.intp), self.count
        into = -ones if whole < 0 else whole + np.arange(len(at))
        self.parts.append((column * ones, at, link * ones, seconds * np.ones(len(at)), into))
        self.count += len(at)
        return first


def _through(link: NDArray[np.intp], ready: Floats, rank: NDArray[np.intp], seconds: Floats) -> Floats:
    """Return when parcels are through their links, which serve what is ready first, then by rank, the smaller first.

    The end of each is what it and those before it take since the moment at which the link was last idle.
    """
    order = np.lexsort((seconds, rank, ready, link))
    links, begun, takes = link[order], ready[order], seconds[order]
    total = np.cumsum(takes)
    first = np.flatnonzero(np.append(True, links[1:] != links[:-1]))
    lengths = np.diff(np.append(first, len(links)))
    total -= np.repeat(total[first] - takes[first], lengths)  # of each link by itself
    apart = np.repeat(np.arange(len(first)) * (float(begun.max()) + float(total.max()) + 1.0), lengths)
    idle = np.maximum.accumulate(begun - (total - takes) + apart) - apart
    found = np.empty_like(ready)
    found[order] = idle + total
    return found
