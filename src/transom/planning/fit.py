"""From the measured phases of cuts to what they cost: a line for each phase, over its unit.

Slopes are those of `model.slopes`, which a quarter of wild points does not move; the fixed part is such that the mean
is kept, as plans are made of means. The time of tasks on the clock becomes the work of one core as the model has it:
tasks beside each other, and the slowest of them counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from transom.errors import DefinitionError
from transom.model.phases import CutPhases, Phase
from transom.model.slopes import line
from transom.model.tuning import StreamTuning
from transom.planning.cuts import AT_ONCE, Cutting, clock, units
from transom.planning.moments import Moments, Residuals
from transom.planning.orders import slowest_of
from transom.planning.phases import CUT, TASKS, UNITS
from transom.planning.profile import KeyCurve, PhaseCost, StreamProfile

LEAST = 16
"""Cuts that must be measured."""
WIDE = 2.0
"""The largest of them must have so many times the rows of the smallest."""
ROUNDS = 12
"""Steps in which cost and spread of tasks settle."""
LONGER = "Give a longer time, such as --for 5m, or a source that has more rows."


@dataclass(frozen=True)
class Nature:
    """What the job itself says of a stream."""

    closing: float = 1.0
    """Seconds from one closing of windows to the next."""
    windows: float = 1.0
    """Windows that complete in this time, over all queries."""
    look: float = 0.05
    """Seconds between two looks at its source."""
    limit: float | None = None
    """The tightest limit of its queries, seconds."""
    after: str | None = None
    """The stream whose results it reads."""


@dataclass(frozen=True)
class _Point:
    """What a phase of a cut took."""

    seconds: float
    units: float
    """What the phase costs by."""
    tasks: int = 1
    """Tasks that shared the work, where it is one of tasks."""


def fit(name: str, cuts: Sequence[CutPhases], cores: int, nature: Nature) -> StreamProfile:
    """Return the profile of a stream.

    Args:
        name: Of the stream, for errors.
        cuts: Its cuts, without those that were slow as all was new.
        cores: That ran their tasks.
        nature: What the job says.

    Raises:
        DefinitionError: They say too little.
    """
    read = [cut for cut in cuts if cut.rows and cut.stages]
    if len(read) < LEAST:
        raise DefinitionError(f"profile: of {name!r} {len(read)} cuts were measured, and {LEAST} are needed.", LONGER)
    least, most = min(cut.rows for cut in read), max(cut.rows for cut in read)
    if most < WIDE * least:
        raise DefinitionError(
            f"profile: the cuts of {name!r} all have about {most:,} rows, so what a row costs cannot be told.",
            "Give a source that can be read in smaller parts, such as more and smaller files.",
        )
    windows, results = sum(cut.windows for cut in cuts), sum(cut.results for cut in cuts)
    if not windows:
        raise DefinitionError(f"profile: no window of {name!r} was completed, so what that takes is unknown.", LONGER)
    keys = _curve(read)
    per_closing, widest = results / windows * nature.windows, max(_tasks(cut) for cut in read)
    profile = StreamProfile(
        costs=_costs(cuts, read, keys, cores, nature),
        keys=keys,
        closing=nature.closing,
        merged=per_closing,
        results=per_closing,
        parts=widest if widest < cores else 0,
        limit=nature.limit,
        after=nature.after,
        cuts=len(read),
        most_rows=most,
    )
    return replace(profile, residuals=_residuals(profile, read, cores))


def _costs(
    cuts: Sequence[CutPhases], read: Sequence[CutPhases], keys: KeyCurve, cores: int, nature: Nature
) -> dict[Phase, PhaseCost]:
    def measured(cut: CutPhases, phase: Phase) -> _Point:
        # Rows that are merged are not counted: they are taken to be as many as results.
        of = units(cut.rows, _tasks(cut), _behind(cut), keys, cut.results, cut.results)
        tasks = _behind(cut) if phase is Phase.EXCHANGE else _tasks(cut)
        return _Point(cut.seconds[phase], of[UNITS[phase]] if phase in UNITS else 0.0, tasks)

    # A row comes at any moment between two looks.
    costs = {Phase.LOOK: PhaseCost(nature.look / 2, 0.0, 1 / 3)}
    for phase in (*CUT, Phase.CLOSE, Phase.CONSOLIDATE, Phase.DELIVER):
        points = [measured(cut, phase) for cut in (read if phase in CUT else cuts) if phase in cut.seconds]
        if phase is Phase.EXCHANGE:
            points = [point for point in points if point.tasks]
        if points:
            costs[phase] = _of_tasks(points, cores) if phase in TASKS else _line(points)
    return costs


def _line(points: Sequence[_Point]) -> PhaseCost:
    """Return the line through points; `scv` from what they are off it."""
    of, seconds = np.array([point.units for point in points]), np.array([point.seconds for point in points])
    odd = len(points) % 2
    _, slope = line(of[odd:], seconds[odd:])
    each = float(slope)
    fixed = max(0.0, float(np.mean(seconds - each * of)))
    expected = np.maximum(fixed + each * of, 1e-9)
    return PhaseCost(fixed, each, float(np.mean(((seconds - expected) / expected) ** 2)) if fixed + each else 0.0)


def _of_tasks(points: Sequence[_Point], cores: int) -> PhaseCost:
    """Return the cost of a phase in which tasks run: of each task, and of each unit, on one core."""
    cost = PhaseCost()
    for _ in range(ROUNDS):
        spread = math.sqrt(cost.scv)
        works = [point.seconds / clock(point.tasks, cores, spread) for point in points]
        single = [
            _Point(work / point.tasks, point.units / point.tasks) for work, point in zip(works, points, strict=True)
        ]
        found = _line(single)
        off = [
            (point.seconds - mean * point.tasks * clock(point.tasks, cores, spread)) ** 2
            / (mean**2 * slowest_of(point.tasks).variance)
            for point, mean in zip(points, (max(1e-9, found.mean(one.units)) for one in single), strict=True)
        ]
        cost = replace(found, scv=float(np.mean(off)))
    return cost


def _curve(cuts: Sequence[CutPhases]) -> KeyCurve:
    """Return how many rows of partials so many rows make: the means of cuts that differ by less than 2 in their rows.

    Where cuts make more partials than they have rows, as with several aggregations, each row is one.
    """
    bins: dict[int, list[tuple[int, int]]] = {}
    for cut in cuts:
        bins.setdefault(int(math.log2(cut.rows)), []).append((cut.rows, cut.partials))
    points: list[tuple[float, float]] = []
    most = 1.0
    for at in sorted(bins):
        rows, partials = np.mean(bins[at], axis=0)
        most = max(most, min(float(rows), float(partials)))
        points.append((float(rows), most))
    return KeyCurve(tuple(points))


def _residuals(profile: StreamProfile, cuts: Sequence[CutPhases], cores: int) -> Residuals:
    """Return by how many deviations cuts, from plan to commit, were off what these costs say."""
    found = []
    for cut in cuts:
        tuning = StreamTuning(0, None, -(-cut.rows // _tasks(cut)), _behind(cut) or None)
        expected = Cutting(profile, tuning, cores, cores).of(cut.rows)
        time: Moments = sum((expected.phase(phase) for phase in CUT), AT_ONCE)
        if time.variance > 0:
            found.append((sum(cut.seconds.get(phase, 0.0) for phase in CUT) - time.mean) / time.sigma)
    return Residuals(tuple(found))


def _tasks(cut: CutPhases) -> int:
    """Return the tasks that read the rows of a cut; 1 where Spark was not asked."""
    return max(1, cut.tasks or 1)


def _behind(cut: CutPhases) -> int:
    """Return the tasks behind the exchange; none in a cut of one task."""
    return 0 if _tasks(cut) == 1 else max((stage.tasks for stage in cut.stages[1:]), default=0)
