"""Machines and jobs that are larger than what can be measured here: what bounds them, by measured costs.

Costs of many queries follow from those of two numbers of them, by straight lines through both. What machines do with
them, the planner tells (`transom.planning`). There is one stream, whose next cut begins when the one before is
committed: so what bounds is the phase of a cut that takes most of its time at the largest rate within the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from transom.model.phases import OF_WINDOWS, Phase
from transom.planning.cuts import units
from transom.planning.goals import Choice, Goal
from transom.planning.keys import KeyCurve
from transom.planning.model import Machine
from transom.planning.phases import CUT, UNITS, WORDS
from transom.planning.profile import PhaseCost, Profile, StreamProfile
from transom.planning.search import Search

CORES = 4
"""Of an executor."""
OF_RESULTS = ("partials", "merged", "results")
"""The units that are as many as queries make of the rows."""


@dataclass(frozen=True)
class Reach:
    """The most that a number of executors does within a limit."""

    executors: int
    rate: float
    """Rows per second; 0 where no rate is within it."""
    phases: Mapping[Phase, float]
    """Seconds that each phase of a cut takes then, and of a closing; empty without a rate."""
    loads: Mapping[str, float]
    """Shares of the time in which each thing is busy."""

    @property
    def bound(self) -> str:
        """The phase that takes longest, in words; empty without a rate."""
        return WORDS[max(self.phases, key=lambda phase: self.phases[phase])] if self.phases else ""


def many(less: Profile, more: Profile, counts: tuple[int, int], count: int) -> Profile:
    """Return the profile of a job with so many queries.

    Args:
        less: Of a job with fewer queries of the same kind.
        more: Of one with more of them.
        counts: How many these have.
        count: How many to expect the costs of.
    """
    further = (count - counts[1]) / (counts[1] - counts[0])
    streams = {name: _stream(less.streams[name], stream, further) for name, stream in more.streams.items()}
    return Profile("", more.equipment, streams)


def _stream(less: StreamProfile, more: StreamProfile, further: float) -> StreamProfile:
    def on(one: float, other: float) -> float:
        return max(0.0, other + further * (other - one))

    def cost(phase: Phase, known: PhaseCost) -> PhaseCost:
        if UNITS.get(phase) in OF_RESULTS:
            return _by_rows(phase, less, more)
        before = less.cost(phase)
        return PhaseCost(on(before.fixed, known.fixed), on(before.each, known.each), known.scv)

    costs = {phase: cost(phase, known) for phase, known in more.costs.items()}
    fanout = max(1.0, on(less.fanout, more.fanout))
    return replace(
        more,
        costs=costs,
        keys=_curve(less, more, on, fanout),
        fanout=fanout,
        merged=on(less.merged, more.merged),
        results=on(less.results, more.results),
    )


def _by_rows(phase: Phase, less: StreamProfile, more: StreamProfile) -> PhaseCost:
    """Return what a phase costs by rows of partials or results: as much more as it took where there were more queries.

    Cuts of one job differ too little in these for a line through them; those of two jobs do not.
    """
    rows = min(less.most_rows, more.most_rows) / 4
    (before, first), (after, second) = (
        (each.cost(phase).mean(unit), unit)
        for each in (less, more)
        for unit in [units(rows, 1, 0, each.partials(0.0), each.merged, each.results)[UNITS[phase]]]
    )
    slope = max(0.0, after - before) / (second - first) if second > first else 0.0
    return PhaseCost(max(0.0, before - slope * first), slope, more.cost(phase).scv)


def _curve(less: StreamProfile, more: StreamProfile, on: Callable[[float, float], float], fanout: float) -> KeyCurve:
    """Return the rows of partials over the rows, each times `fanout`."""
    points: list[tuple[float, float]] = []
    for rows, keys in more.keys.points:
        each = rows / more.fanout
        before = points[-1][1] if points else 1.0
        expected = max(before, on(less.keys.keys(less.fanout * each), keys))
        points.append((fanout * each, min(expected, fanout * each)))
    return KeyCurve(tuple(points))


def reaches(profile: Profile, executors: tuple[int, ...], limit: float, stated: float) -> Iterator[Reach]:
    """Yield the most that each number of executors does.

    Args:
        profile: Of a job with one stream.
        executors: How many there are, in order.
        limit: Seconds for a mean result.
        stated: Rows per second from which the search begins.
    """
    (name,) = profile.streams
    goal = Goal({name: stated}, {name: limit}, None)
    for number in executors:
        search = Search(profile, Machine(CORES * number, shared=False))
        factor, choice = search.largest(goal, 0.0, 1.0)
        yield _reach(number, stated * factor, choice, name)


def _reach(executors: int, rate: float, choice: Choice | None, name: str) -> Reach:
    if choice is None:
        return Reach(executors, 0.0, {}, {})
    phases = choice.prediction.streams[name].phases
    taken = {phase: phases[phase].mean for phase in (*CUT, *OF_WINDOWS) if phase in phases}
    return Reach(executors, rate, taken, choice.prediction.loads)


def second_driver(found: Sequence[Reach], halves: Sequence[Reach]) -> int | None:
    """Return the fewest executors that do a tenth more rows with two drivers, each with half of both.

    Args:
        found: With one driver.
        halves: Of each of these, half of the executors with half of the queries, which read all rows, too.
    """
    return next((all.executors for all, half in zip(found, halves, strict=True) if half.rate > 1.1 * all.rate), None)
