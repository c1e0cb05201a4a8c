"""What a plan is good for: the value of each column, so that a plan's value is the sum over its columns.

Values are not negative. A flow that is left out costs more than all others together could gain by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from transom.errors import DefinitionError, did_you_mean
from transom.widearea.flows import Floats
from transom.widearea.problem import TICKS, Column, Problem, Shape

Objective: TypeAlias = Literal["latency", "frequencies", "goodput", "proportional", "max_min"]
"""Flows within their limits, then short latencies; departures per second; bytes per second at the destinations (the
paper's); the sum of logarithms of frequencies; the longest interval as short as possible, then frequencies."""
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)

BESIDE = 0.1
"""What all of a flow's latency counts beside being within its limit: the number within comes first."""
RELATIVE_MOST = 2.0
"""Latencies above so many limits are all alike."""


class Offer(NamedTuple):
    """The value of a flow by interval, for ways whose delay is not more than a bound."""

    values: Floats
    """By interval; minus infinity where it is not allowed."""
    slope: float
    """What a second of delay takes from the value."""
    delays: Floats
    """Seconds that the way may take, by interval; infinite if it does not matter."""


@dataclass(frozen=True, eq=False)
class Worth:
    """The values of an objective over a problem."""

    problem: Problem
    objective: Objective
    longest: int = int(TICKS[-1])
    """Ticks that no interval exceeds; what `max_min` makes shorter."""

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            remedy = did_you_mean(self.objective, OBJECTIVES, f"Objectives are {', '.join(OBJECTIVES)}.")
            raise DefinitionError(f"There is no objective {self.objective!r}.", remedy)

    def offers(self, flow: int) -> list[Offer]:
        """Return what a flow is worth by interval; of `latency`, within its limit and late.

        The slopes count the mean delay of the sources where the value counts the largest, so that an offer is never
        less than the value of a column: bounds from offers are valid.
        """
        shape = self.problem.shapes[flow]
        spec, free = shape.flow, np.full(len(TICKS), np.inf)
        values = np.full(len(TICKS), -np.inf)
        allowed = [at for at in shape.allowed if TICKS[at] <= self.longest]
        if self.objective == "latency":
            base = self._relative(shape, 0.0)
            room = self._room(shape)
            slope = BESIDE * spec.weight / (RELATIVE_MOST * spec.limit)
            late = values.copy()
            late[allowed] = spec.weight * BESIDE * (1 - base[allowed] / RELATIVE_MOST)
            inside = [at for at in allowed if room[at] >= 0]
            values[inside] = late[inside] + spec.weight
            return [Offer(values, slope, room), Offer(late, 0.0, free)]
        values[allowed] = self._by_interval(shape)[allowed]
        return [Offer(values, 0.0, free)]

    def value(self, column: Column) -> float:
        """Return what a column is worth."""
        shape = self.problem.shapes[column.flow]
        if self.objective != "latency":
            return float(self._by_interval(shape)[column.at])
        spec, delay = shape.flow, self.delay(column)
        late = spec.weight * BESIDE * (1 - float(self._relative(shape, delay)[column.at]) / RELATIVE_MOST)
        within = delay <= self._room(shape)[column.at]
        return late + (spec.weight if within else 0.0)

    def value_of(self, flow: int, latency: float) -> float:
        """Return what a latency of a flow is worth to `latency`, seconds, with all waiting."""
        spec = self.problem.flows[flow]
        late = BESIDE * (1 - min(latency / spec.limit, RELATIVE_MOST) / RELATIVE_MOST)
        return spec.weight * (late + (latency <= spec.limit))

    def delay(self, column: Column) -> float:
        """Return the seconds of the slowest way, without waiting behind others."""
        shape, at = self.problem.shapes[column.flow], column.at
        rates, slowest = self.problem.speed, 0.0
        for head, mask in shape.groups(column.parents).items():
            first = [
                shape.size(1 << bit)[at] / rates[source, head] + shape.flow.merging
                for bit, source in enumerate(shape.sources)
                if mask >> bit & 1 and source != head
            ]
            last = shape.size(mask)[at] / rates[head, shape.destination] + shape.flow.merging
            slowest = max(slowest, max(first, default=0.0) + last)
        return float(slowest)

    def spread(self) -> float:
        """Return more than any flows together can gain when another one is left out."""
        every = (offer.values for flow in range(len(self.problem.flows)) for offer in self.offers(flow))
        return 1.0 + sum(float(values[np.isfinite(values)].max(initial=0.0)) for values in every)

    def gains(self, new: Sequence[Column], old: Sequence[Column]) -> float:
        """Return by which share new columns are better; of latency, first in what is within the limits."""
        if self.objective != "latency":
            if self.objective == "max_min":
                slowest = [max((TICKS[column.at] for column in columns), default=0.0) for columns in (new, old)]
                if slowest[0] != slowest[1]:
                    return float(slowest[1] / slowest[0] - 1)
            return self._share(*(sum(map(self.value, columns)) for columns in (new, old)))
        within = [sum(self._within(column) for column in columns) for columns in (new, old)]
        if within[0] != within[1]:
            return self._share(*within)
        took = [sum(self._relative_of(column) for column in columns) for columns in (new, old)]
        return self._share(took[1], took[0])

    @staticmethod
    def _share(new: float, old: float) -> float:
        return new / old - 1 if old > 0 else (np.inf if new > 0 else 0.0)

    def _within(self, column: Column) -> float:
        weight = self.problem.flows[column.flow].weight
        return weight if self.value(column) >= weight else 0.0

    def _relative_of(self, column: Column) -> float:
        shape = self.problem.shapes[column.flow]
        return shape.flow.weight * float(self._relative(shape, self.delay(column))[column.at])

    @staticmethod
    def _room(shape: Shape) -> Floats:
        """Return the seconds of delay with which a flow is just within its limit, by interval."""
        found: Floats = shape.flow.limit - TICKS * shape.tick - shape.flow.job
        return found

    @staticmethod
    def _relative(shape: Shape, delay: float) -> Floats:
        """Return latencies over the limit by interval, not more than `RELATIVE_MOST`."""
        found: Floats = np.minimum((TICKS * shape.tick + shape.flow.job + delay) / shape.flow.limit, RELATIVE_MOST)
        return found

    def _by_interval(self, shape: Shape) -> Floats:
        seconds, weight = TICKS * shape.tick, shape.flow.weight
        if self.objective == "goodput":
            found: Floats = weight * shape.rate(shape.everything)
        elif self.objective == "proportional":
            found = weight * np.log(TICKS[-1] / TICKS)
        else:
            found = weight / seconds
        return found
