"""What a plan is good for: the value of each column, so that a plan's value is the sum over its columns.

Values are not negative. A flow that is left out costs more than all others together could gain by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from transom.errors import DefinitionError, did_you_mean
from transom.widearea.flows import Floats, Flow
from transom.widearea.problem import TICKS, Column, Problem, Shape

Objective: TypeAlias = Literal["latency", "frequencies", "goodput", "proportional", "max_min"]
"""Flows within their limits, then short latencies; departures per second; bytes per second at the destinations (the
paper's); the sum of logarithms of frequencies; the longest interval as short as possible, then frequencies."""
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)

BESIDE = 0.1
"""What all of a flow's latency counts beside being within its limit: the number within comes first."""
SLOPE, BEND = 0.5, 1.5
"""Of that, each target that a latency lasts takes so much, until it has lasted so many; then less and less, but never
nothing: where limits cannot be kept the shorter latency is still the better one."""


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

    @property
    def differs(self) -> float:
        """The part of what flows are worth in which good plans differ: gaps are shares of that.

        Beside the limits that all of them keep the lengths of latencies are little: within 1 % of all flows are worth,
        a flow could leave every 12 ticks where there is room for it at each.
        """
        return BESIDE / (1 + BESIDE) if self.objective == "latency" else 1.0

    def offers(self, flow: int) -> list[Offer]:
        """Return what a flow is worth by interval; of `latency`, within its limit, late, and far beyond its target.

        The slopes count the mean delay of the sources where the value counts the largest, so that an offer is never
        less than the value of a column: bounds from offers are valid.
        """
        shape = self.problem.shapes[flow]
        spec, free = shape.flow, np.full(len(TICKS), np.inf)
        values = np.full(len(TICKS), -np.inf)
        allowed = [at for at in shape.allowed if TICKS[at] <= self.longest]
        if self.objective == "latency":
            base, weight = self._relative(shape, 0.0), BESIDE * spec.weight
            room, straight = self._room(shape, spec.limit), self._room(shape, BEND * shape.target)
            inside, late, beyond = values.copy(), values.copy(), values.copy()
            beyond[allowed] = weight * _beside(np.maximum(base, BEND))[allowed]
            at = [each for each in allowed if straight[each] >= 0]
            late[at] = weight * _beside(base)[at]
            within = [each for each in at if room[each] >= 0]
            inside[within] = late[within] + spec.weight
            slope = weight * SLOPE / shape.target
            return [Offer(inside, slope, room), Offer(late, slope, straight), Offer(beyond, 0.0, free)]
        values[allowed] = self._by_interval(shape)[allowed]
        return [Offer(values, 0.0, free)]

    def value(self, column: Column) -> float:
        """Return what a column is worth."""
        shape = self.problem.shapes[column.flow]
        if self.objective != "latency":
            return float(self._by_interval(shape)[column.at])
        spec, delay = shape.flow, self.delay(column)
        within = delay <= self._room(shape, spec.limit)[column.at]
        return self._worth(spec, float(self._relative(shape, delay)[column.at]), bool(within))

    def value_of(self, flow: int, latency: float) -> float:
        """Return what a latency of a flow is worth to `latency`, seconds, with all waiting; the less the longer."""
        spec = self.problem.flows[flow]
        return self._worth(spec, latency / self.problem.shapes[flow].target, latency <= spec.limit)

    @staticmethod
    def _worth(flow: Flow, relative: float, within: bool) -> float:
        return flow.weight * (BESIDE * float(_beside(np.float64(relative))) + within)

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
        """Return by which share new columns are better than old ones of the same flows; not of `latency`.

        Of `proportional`, whose value has no zero, by which frequencies are larger in the geometric mean.
        """
        if self.objective == "max_min":
            slowest = [max((TICKS[column.at] for column in columns), default=0.0) for columns in (new, old)]
            if slowest[0] != slowest[1]:
                return float(slowest[1] / slowest[0] - 1)
        values = [sum(map(self.value, columns)) for columns in (new, old)]
        if self.objective == "proportional":
            weights = sum(self.problem.flows[column.flow].weight for column in new)
            return float(np.expm1((values[0] - values[1]) / weights)) if weights else 0.0
        return self._share(*values)

    @staticmethod
    def _share(new: float, old: float) -> float:
        return new / old - 1 if old > 0 else (np.inf if new > 0 else 0.0)

    @staticmethod
    def _room(shape: Shape, latency: float) -> Floats:
        """Return the seconds of delay with which a flow just takes so long, by interval."""
        found: Floats = latency - TICKS * shape.tick - shape.flow.job
        return found

    @staticmethod
    def _relative(shape: Shape, delay: float) -> Floats:
        """Return latencies in targets, by interval."""
        found: Floats = (TICKS * shape.tick + shape.flow.job + delay) / shape.target
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


def _beside(relative: Floats | np.float64) -> Floats:
    """Return what is left of 1 when a latency has lasted so many targets: always less, and never nothing."""
    left = 1 - SLOPE * BEND
    beyond = left**2 / (left + SLOPE * (np.maximum(relative, BEND) - BEND))
    return np.where(relative <= BEND, 1 - SLOPE * relative, beyond)
