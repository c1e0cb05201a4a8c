"""When flows leave, so that bursts keep apart, and how long partials then take.

All departures repeat after 120 ticks. Phases are given one by one, the largest parcels first, each where its links
have the least to do. The prediction then plays two periods through: on each link parcels go in the order in which they
are ready, those with the least slack first, each behind what is still under way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    first: list[tuple[float, float, int, int, int, float]] = []
    for column in columns:
        shape, ticks = problem.shapes[column.flow], INTERVALS[column.at]
        slack = shape.flow.limit - ticks * tick
        leaves = [departure for departure in range(2 * PERIOD) if departure % ticks == phase[column.flow]]
        for bit, (source, parent) in enumerate(zip(shape.sources, column.parents, strict=True)):
            if parent != shape.destination:
                link, size = source * problem.sites + parent, float(shape.size(1 << bit)[column.at])
                first += [(at * tick + shape.flow.job, slack, column.flow, at, link, size) for at in leaves]
    done: dict[tuple[int, int, int], float] = {}
    free: dict[int, float] = {}
    for ready, _, flow, at, link, size in sorted(first):
        free[link] = max(ready, free.get(link, 0.0)) + size / rate[link]
        head = link % problem.sites
        merged = free[link] + problem.shapes[flow].flow.merging
        done[flow, at, head] = max(done.get((flow, at, head), 0.0), merged)
    second: list[tuple[float, float, int, int, int, float]] = []
    for column in columns:
        shape, ticks = problem.shapes[column.flow], INTERVALS[column.at]
        for head, mask in shape.groups(column.parents).items():
            link, size = head * problem.sites + shape.destination, float(shape.size(mask)[column.at])
            for at in range(phase[column.flow], 2 * PERIOD, ticks):
                ready = max(at * tick + shape.flow.job, done.get((column.flow, at, head), 0.0))
                second.append((ready, shape.flow.limit - ticks * tick, column.flow, at, link, size))
    took: dict[int, dict[int, float]] = {column.flow: {} for column in columns}
    for ready, _, flow, at, link, size in sorted(second):
        free[link] = max(ready, free.get(link, 0.0)) + size / rate[link]
        if at >= PERIOD:
            end = free[link] + problem.shapes[flow].flow.merging - at * tick
            took[flow][at] = max(took[flow].get(at, 0.0), end)
    found = {}
    for column in columns:
        ordered = sorted(took[column.flow].values())
        rank = ceil(problem.flows[column.flow].quantile * len(ordered)) - 1
        found[column.flow] = INTERVALS[column.at] * tick + ordered[max(rank, 0)]
    return found
