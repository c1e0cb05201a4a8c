"""Ways that are better once flows wait for one another: what else is on a link at that tick no column knows.

A solver takes columns by what their parcels take alone. Here one flow after another gets another way with the same
interval, if the latencies that are then predicted, with waiting, are worth more: flows within their limits first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from transom.widearea.objectives import Worth
from transom.widearea.problem import Column, Shape
from transom.widearea.timing import phases, timings
from transom.widearea.topology import INTERVALS, PERIOD

WORK = 2_000_000
"""Parcels whose ways are reckoned, in all predictions together: some seconds."""
LEAST_GAIN = 1e-6


def refined(worth: Worth, columns: Sequence[Column], old: Sequence[Column], kept: Mapping[int, int]) -> list[Column]:
    """Return columns with the same intervals, whose predicted latencies are worth more or as much.

    Args:
        worth: Of the objective `latency`.
        columns: What a solver found; no link carries more than it can, and so it stays.
        old: Those of the last plan, from which a search begins, too, where intervals are the same.
        kept: Phases that stay, by flow.
    """
    problem, flows = worth.problem, {column.flow: column.at for column in columns}
    parcels = sum(2 * PERIOD / INTERVALS[at] * (1 + len(problem.shapes[flow].sources)) for flow, at in flows.items())
    tries = int(WORK / parcels / 2) if parcels else 0
    begins = [sorted(columns)]
    if {column.flow: column.at for column in old} == flows and problem.fits_all(old):
        begins.append(sorted(old))
    found = [_climbed(worth, begin, kept, tries) for begin in begins] if tries else [(0.0, begins[0])]
    return max(found, key=lambda each: each[0])[1]


def _climbed(worth: Worth, begin: list[Column], kept: Mapping[int, int], tries: int) -> tuple[float, list[Column]]:
    """Return the best columns that changes of one flow at a time lead to, and what they are worth."""
    problem, best, better = worth.problem, begin, True
    room, most = problem.capacity.ravel(), _value(worth, begin, kept)
    while better and tries > 0:
        better = False
        for place, column in enumerate(best):
            use = problem.use(best).ravel()
            links, rates = problem.load(column)
            use[list(links)] -= rates
            for parents in _ways(problem.shapes[column.flow], problem.sites):
                trial = column._replace(parents=parents)
                if tries <= 0 or trial == best[place] or not problem.fits(problem.load(trial), room - use):
                    continue
                tries -= 1
                tried = [*best[:place], trial, *best[place + 1 :]]
                value = _value(worth, tried, kept)
                if value > most + LEAST_GAIN:
                    best, most, better = tried, value, True
    return most, best


def _ways(shape: Shape, sites: int) -> list[tuple[int, ...]]:
    """Return where each source sends, straight and by each site that merges all of them."""
    relays = [relay for relay in range(sites) if relay != shape.destination]
    by = [tuple(shape.destination if source == relay else relay for source in shape.sources) for relay in relays]
    return [(shape.destination,) * len(shape.sources), *by]


def _value(worth: Worth, columns: Sequence[Column], kept: Mapping[int, int]) -> float:
    """Return what the predicted latencies are worth."""
    found = timings(worth.problem, columns, phases(worth.problem, columns, kept))
    return sum(worth.value_of(flow, timing.latency) for flow, timing in found.items())
