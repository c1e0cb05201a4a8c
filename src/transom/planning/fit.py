"""From the measured phases of cuts to what they cost: a line for each phase, over its unit.

Slopes are those of `model.slopes`, which a quarter of wild points does not move; the fixed part is such that the mean
is kept, as plans are made of means. The time of tasks on the clock becomes the work of one core as the model has it:
tasks beside each other, and the slowest of them counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from transom.errors import DefinitionError
from transom.model.phases import CutPhases, Phase, StageTasks
from transom.model.slopes import Floats, line, median
from transom.model.tuning import StreamTuning
from transom.planning.cuts import AT_ONCE, Cutting, units
from transom.planning.keys import KeyCurve, PaneKeys
from transom.planning.moments import Moments, Residuals
from transom.planning.phases import CUT, TASKS, UNITS
from transom.planning.profile import PhaseCost, StreamProfile
from transom.planning.waves import clock, wider

LEAST = 16
"""Cuts that must be measured."""
WIDE = 2.0
"""The largest of them must have so many times the rows of the smallest, without the tenth at either end."""
ROUNDS = 12
"""Steps in which cost and spread of tasks settle."""
SPREAD = 1.0
"""Largest squared coefficient of variation of a task: that of times of which nothing is known but their mean. What cuts
vary more is common to their tasks, and says nothing of how these differ."""
USUAL = 0.4549
"""Median of the square of a standard normal number."""
LONGER = "Give a longer time, such as --for 5m, or a source that has more rows."


@dataclass(frozen=True)
class Nature:
    """What the job itself says of a stream."""

    closing: float = 1.0
    """Seconds from one closing of windows to the next."""
    windows: float = 1.0
    """Windows that complete in this time, over all queries; 0 for sessions, which complete at any time."""
    pane: float = 0.0
    """Seconds from one edge of windows to the next; 0 if no cut sees two."""
    span: float = 0.0
    """Seconds of a window, on average."""
    look: float = 0.05
    """Seconds between two looks at its source."""
    limit: float | None = None
    """The tightest limit of its queries, seconds."""
    after: str | None = None
    """The stream whose results it reads."""


def fit(
    name: str, cuts: Sequence[CutPhases], cores: int, nature: Nature, before: StreamProfile | None = None
) -> StreamProfile:
    """Return the profile of a stream.

    Args:
        name: Of the stream, for errors.
        cuts: Its cuts, without those that were slow as all was new.
        cores: That ran their tasks.
        nature: What the job says.
        before: What was known of it. Where the cuts that were measured are all alike, what a row costs is as it was.

    Raises:
        DefinitionError: They say too little.
    """
    read = [cut for cut in cuts if cut.rows and cut.stages]
    if len(read) < LEAST:
        raise DefinitionError(f"profile: of {name!r} {len(read)} cuts were measured, and {LEAST} are needed.", LONGER)
    sizes = sorted(cut.rows for cut in read)
    few, many = sizes[len(sizes) // 10], sizes[-1 - len(sizes) // 10]
    if many < WIDE * few and before is None:
        raise DefinitionError(
            f"profile: the cuts of {name!r} nearly all have about {many:,} rows, so what a row costs cannot be told.",
            "Give a source that can be read in smaller parts, such as more and smaller files.",
        )
    windows = sum(cut.windows for cut in cuts)
    if not windows:
        raise DefinitionError(f"profile: no window of {name!r} was completed, so what that takes is unknown.", LONGER)
    rows = sum(cut.rows for cut in cuts)
    closings = windows / nature.windows if nature.windows else rows
    partials = _partials(read, nature.pane / nature.closing * rows / closings if nature.windows else 0.0, before)
    whole = nature.span / nature.closing * rows / closings if nature.windows else 0.0
    results = sum(cut.results * _missing(cut, whole, partials) for cut in cuts)
    profile = StreamProfile(
        costs=_costs(cuts, read, partials, cores, nature, {} if before is None else before.costs),
        keys=partials.curve,
        pane=nature.pane,
        fanout=partials.fanout,
        span=nature.span,
        closing=nature.closing,
        rows=rows / closings,
        flowing=not nature.windows,
        merged=results / closings,
        results=results / closings,
        parts=_parts(read, cores, 0 if before is None else before.parts),
        limit=nature.limit,
        after=nature.after,
        cuts=len(read),
        row_cpu=_each(read, lambda stage: stage.cpu),
        row_bytes=_each(read, lambda stage: stage.input_bytes),
        exchanged_bytes=_each([cut for cut in read if _behind(cut)], lambda stage: stage.shuffle_bytes),
        most_rows=max(sizes[-1], 0 if before is None else before.most_rows),
    )
    return replace(profile, residuals=_residuals(profile, read, cores))


def _costs(
    cuts: Sequence[CutPhases],
    read: Sequence[CutPhases],
    keys: PaneKeys,
    cores: int,
    nature: Nature,
    before: Mapping[Phase, PhaseCost],
) -> dict[Phase, PhaseCost]:
    def measured(cut: CutPhases, phase: Phase) -> tuple[float, float, int]:
        """Return what a phase took, what it costs by, and the tasks that shared the work."""
        # Rows that are merged are not counted: they are taken to be as many as results.
        of = units(cut.rows, _tasks(cut), _behind(cut), keys, cut.results, cut.results)
        tasks = _behind(cut) if phase is Phase.EXCHANGE else _tasks(cut)
        of["partials"] = cut.partials
        return cut.seconds[phase], of[UNITS[phase]] if phase in UNITS else 0.0, tasks

    # A row comes at any moment between two looks.
    costs = {**before, Phase.LOOK: PhaseCost(nature.look / 2, 0.0, 1 / 3)}
    for phase in (*CUT, Phase.CLOSE, Phase.CONSOLIDATE, Phase.DELIVER):
        some = [cut for cut in (read if phase in CUT else cuts) if phase in cut.seconds]
        if phase is Phase.EXCHANGE:
            some = [cut for cut in some if _behind(cut)]
        if some:
            seconds, of, tasks = np.array([measured(cut, phase) for cut in some], dtype=float).T
            believed = before.get(phase, PhaseCost()).each
            least = _processor(read) if phase is Phase.MAP else 0.0
            if phase in TASKS:
                cost = _of_tasks(seconds, of, tasks, cores, believed, least)
                work = cost.fixed * tasks + cost.each * of
                said = np.array([ran(cut, phase) for cut in some])
                costs[phase] = replace(cost, ran=float(median(said / np.maximum(work, 1e-9))))
            else:
                costs[phase] = _line(seconds, of, believed)
    return costs


def _processor(cuts: Sequence[CutPhases]) -> float:
    """Return the seconds of processor time that a row takes where it is read, without what each task takes.

    It is less disturbed by what else a machine does than the clock, which may show no difference of long and short
    cuts at all then.
    """
    odd = len(cuts) % 2
    read = [(cut.rows, sum(stage.cpu for stage in cut.stages if stage.rows)) for cut in cuts[odd:]]
    tasks = np.array([_tasks(cut) for cut in cuts[odd:]])
    rows, seconds = np.array(read, dtype=float).T / tasks
    return float(line(rows, seconds)[1])


def _line(seconds: Floats, of: Floats, believed: float, least: float = 0.0) -> PhaseCost:
    """Return the line through points; `scv` from what they are off it.

    Args:
        seconds: What the phase took.
        of: What it costs by.
        believed: Seconds of a unit where the units do not differ enough to tell.
        least: Seconds that a unit takes at least.
    """
    if len(of) == 1:
        return PhaseCost(float(seconds[0]))
    odd = len(of) % 2
    _, slope = line(of[odd:], seconds[odd:], believed)
    each = max(least, float(slope))
    fixed = max(0.0, float(np.mean(seconds - each * of)))
    expected = np.maximum(fixed + each * of, 1e-9)
    return PhaseCost(fixed, each, float(np.mean(((seconds - expected) / expected) ** 2)) if fixed + each else 0.0)


def _of_tasks(seconds: Floats, of: Floats, tasks: Floats, cores: int, believed: float, least: float) -> PhaseCost:
    """Return the cost of a phase in which tasks run: of each task, and of each unit, on one core."""
    cost = PhaseCost()
    kinds, kind = np.unique(tasks, return_inverse=True)
    for _ in range(ROUNDS):
        spread = math.sqrt(cost.scv)
        slowed = np.array([clock(int(each), cores, spread) for each in kinds])[kind]
        wide = np.array([wider(int(each), spread) for each in kinds])[kind]
        taken, units_of_task = seconds / slowed / tasks, of / tasks
        found = _line(taken, units_of_task, believed, least)
        # Not the mean, which some wild cuts raise: all others would be off, and so seem to have tasks that differ.
        beside = found.each * units_of_task
        usual = np.maximum(1e-9, float(median(taken - beside)) + beside)
        off = ((taken - usual) * slowed * tasks / usual / wide) ** 2
        cost = replace(found, scv=min(SPREAD, float(median(off)) / USUAL))
    return cost


def _partials(cuts: Sequence[CutPhases], of_pane: float, before: StreamProfile | None) -> PaneKeys:
    """Return how many rows of partials so many rows make: the means of cuts that differ by less than 2 in their rows.

    Args:
        cuts: That were measured.
        of_pane: Rows of a pane; 0 if all of a cut are in one.
        before: What was known; what lies beside these cuts is kept.
    """
    of_pane = of_pane or math.inf
    fanout = max(1.0, max(cut.partials / cut.rows for cut in cuts), 1.0 if before is None else before.fanout)
    bins: dict[int, list[tuple[float, float]]] = {}
    for cut in cuts:
        tasks = 1 if _behind(cut) else _tasks(cut)  # without an exchange each has partials of its own
        panes = tasks + cut.rows / of_pane
        rows = fanout * cut.rows / panes
        bins.setdefault(int(math.log2(rows)) if rows >= 1 else 0, []).append((rows, cut.partials / panes))
    found = [(float(rows), float(partials)) for rows, partials in (np.mean(bins[at], axis=0) for at in bins)]
    if before is not None:
        found += [(rows, keys) for rows, keys in before.keys.points if int(math.log2(rows)) not in bins]
    points: list[tuple[float, float]] = []
    most = 1.0
    for rows, partials in sorted(found):
        most = max(most, min(rows, partials))
        if rows >= most:
            points.append((rows, most))
    return PaneKeys(KeyCurve(tuple(points)), of_pane, fanout)


def _missing(cut: CutPhases, whole: float, partials: PaneKeys) -> float:
    """Return by how much the results of a cut would be more if its windows did not begin before all rows.

    Windows of a day have rows of a minute where a minute's rows are measured.

    Args:
        cut: That may have completed windows.
        whole: Rows of a window.
        partials: How many keys so many rows have.
    """
    if cut.before is None or not cut.results or cut.before + cut.rows >= whole:
        return 1.0
    there = partials.curve.keys(partials.fanout * max(1, cut.before + cut.rows))
    return partials.curve.keys(partials.fanout * whole) / there


def _residuals(profile: StreamProfile, cuts: Sequence[CutPhases], cores: int) -> Residuals:
    """Return by how many deviations cuts, from plan to commit, were off what these costs say."""
    found = []
    for cut in cuts:
        tuning = StreamTuning(0, None, -(-cut.rows // _tasks(cut)), _behind(cut) or None)
        expected = Cutting(profile, tuning, cores, cores, profile.rows / profile.closing).of(cut.rows)
        time: Moments = sum((expected.phase(phase) for phase in CUT), AT_ONCE)
        if time.variance > 0:
            found.append((sum(cut.seconds.get(phase, 0.0) for phase in CUT) - time.mean) / time.sigma)
    return Residuals(tuple(found))


def _each(cuts: Sequence[CutPhases], of: Callable[[StageTasks], float]) -> float:
    """Return what all stages had of something, for each row of the cuts."""
    rows = sum(cut.rows for cut in cuts)
    return sum(of(stage) for cut in cuts for stage in cut.stages) / rows if rows else 0.0


def _parts(cuts: Sequence[CutPhases], cores: int, before: int) -> int:
    """Return the tasks that a cut can be divided into at most; 0 for no bound that is known.

    Args:
        cuts: That were measured. Those that have as many tasks as they were allowed say of no bound.
        cores: That ran their tasks.
        before: The bound that was known.
    """
    widest = max(_tasks(cut) for cut in cuts)
    if any(_tasks(cut) < cut.allowed or not cut.allowed for cut in cuts):
        return widest if widest < cores else 0
    return before if widest <= before else 0


def _tasks(cut: CutPhases) -> int:
    """Return the tasks that read the rows of a cut; 1 where Spark was not asked."""
    return max(1, cut.tasks or 1)


def ran(cut: CutPhases, phase: Phase) -> float:
    """Return the seconds for which executors say that the tasks of a phase ran, together."""
    reading = [not number or bool(stage.rows) or stage.in_workers for number, stage in enumerate(cut.stages)]
    return sum(stage.run for stage, reads in zip(cut.stages, reading, strict=True) if reads is (phase is Phase.MAP))


def _behind(cut: CutPhases) -> int:
    """Return the tasks behind the exchange; none where there is no other stage that reads one."""
    alone = any(stage.in_workers for stage in cut.stages)  # then others may read what was left to Spark SQL
    behind = [stage for stage in cut.stages[1:] if not (alone and (stage.rows or stage.in_workers))]
    return max((stage.tasks for stage in behind), default=0)
