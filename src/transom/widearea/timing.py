"""When flows leave, so that bursts keep apart, and how long partials then take.

All departures repeat after 120 ticks. Phases are given one by one, the largest parcels first, each where its links
have the least to do. The prediction then plays two periods through: on each link parcels go in the order in which they
are ready, those with the least slack first, each behind what is still under way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import ceil

import numpy as np

from transom.widearea.flows import Floats
from transom.widearea.problem import Column, Problem
from transom.widearea.topology import INTERVALS, PERIOD


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


def latencies(problem: Problem, columns: Sequence[Column], phase: Mapping[int, int]) -> dict[int, float]:
    """Return the seconds of each flow at its quantile, from the oldest row of an interval until all of it is merged.

    O(parcels of two periods); what is left of the first one counts as waiting in the second.
    """
    tick, rate = problem.topology.tick, problem.speed.ravel()
    slack = [problem.flows[column.flow].limit - INTERVALS[column.at] * tick for column in columns]
    waiting: dict[tuple[int, int, int], int] = {}
    latest: dict[tuple[int, int, int], float] = {}
    parcels: list[tuple[float, float, int, int, int, int]] = []
    for number, column in enumerate(columns):
        shape = problem.shapes[column.flow]
        groups = shape.groups(column.parents)
        for at in range(phase[column.flow], 2 * PERIOD, INTERVALS[column.at]):
            ready = at * tick + shape.flow.job
            for head, mask in groups.items():
                parts = [bit for bit, source in enumerate(shape.sources) if mask >> bit & 1 and source != head]
                waiting[number, at, head] = len(parts)
                parcels += [(ready, slack[number], number, at, shape.sources[bit], head) for bit in parts]
                if not parts:
                    parcels.append((ready, slack[number], number, at, head, shape.destination))
    heapify(parcels)
    free: dict[int, float] = {}
    took: dict[int, dict[int, float]] = {column.flow: {} for column in columns}
    while parcels:  # by the time at which they are ready, so that each link is served in order
        ready, _, number, at, source, target = heappop(parcels)
        column, link = columns[number], source * problem.sites + target
        shape = problem.shapes[column.flow]
        last = target == shape.destination
        mask = shape.groups(column.parents)[source] if last else 1 << shape.sources.index(source)
        free[link] = max(ready, free.get(link, 0.0)) + float(shape.size(mask)[column.at]) / rate[link]
        merged = free[link] + shape.flow.merging
        if not last:
            key = (number, at, target)
            waiting[key] -= 1
            latest[key] = max(merged, latest.get(key, 0.0))
            if not waiting[key]:
                heappush(parcels, (latest[key], slack[number], number, at, target, shape.destination))
        elif at >= PERIOD:
            took[column.flow][at] = max(took[column.flow].get(at, 0.0), merged - at * tick)
    found = {}
    for column in columns:
        ordered = sorted(took[column.flow].values())
        rank = ceil(problem.flows[column.flow].quantile * len(ordered)) - 1
        found[column.flow] = INTERVALS[column.at] * tick + ordered[max(rank, 0)]
    return found
