"""The time of a cut, phase by phase, from its rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from transom.model.phases import OF_A_JOB, Phase
from transom.model.tuning import StreamTuning
from transom.planning.keys import KeyCurve, PaneKeys
from transom.planning.moments import Moments
from transom.planning.phases import CUT, TASKS, UNITS
from transom.planning.profile import PhaseCost, StreamProfile
from transom.planning.waves import clock, wider

AT_ONCE = Moments()
NEARLY = 1e-6
"""Of a piece: what is nearer to a whole number of them is one."""


class Cutting:
    """How cuts of a stream are divided and what they take, for given settings and free cores.

    Args:
        stream: Its profile.
        tuning: Of the stream.
        cores: That there are.
        free: Of them, what all else leaves; see `leave` for more than one number.
        rate: Rows that come in a second; 0 if they are all of one pane.
    """

    def __init__(self, stream: StreamProfile, tuning: StreamTuning, cores: int, free: float, rate: float = 0.0) -> None:
        self.stream, self.tuning, self.cores, self.free = stream, tuning, cores, free
        self.partials = stream.partials(rate)
        """How many rows of partials so many rows make."""
        self.closings = 1.0
        """Closings of windows that a cut brings together; more than one where cuts are longer than the time between."""
        beside = [phase for phase in CUT if phase not in TASKS]
        self._fixed = sum(stream.cost(phase).fixed for phase in beside)
        self._per_task, self._per_partial = (
            sum(stream.cost(phase).each for phase in beside if UNITS.get(phase) == unit)
            for unit in ("tasks", "partials")
        )
        self._map, self._exchange = stream.cost(Phase.MAP), stream.cost(Phase.EXCHANGE)
        self._free: Sequence[tuple[float, float]] = [(1.0, free)]
        self._piece = rate * stream.piece
        """Rows that arrive together."""
        self._clocks: dict[tuple[int, float], float] = {}
        """What `clock` said, by tasks and their variance."""
        self._seconds: dict[float, float] = {}
        """What `seconds` said of cuts of whole pieces."""

    def leave(self, free: Sequence[tuple[float, float]]) -> None:
        """Let all else leave so many of the cores, each for a share of the cuts."""
        if free != self._free:
            self._free, self.free = free, sum(share * cores for share, cores in free)
            self._clocks.clear()
            self._seconds.clear()

    def of(self, rows: float) -> Cut:
        """Return a cut of so many rows."""
        return Cut(self, rows)

    def sizes(self, rows: float) -> list[tuple[float, float]]:
        """Return the rows of cuts that have so many on average, each with its share of the cuts.

        No cut has a part of what arrives together: of 1.6 pieces on average, 4 of 10 have one, the others two.
        """
        least = math.floor(rows / self._piece + NEARLY) if self._piece else 0
        more = rows / self._piece - least if least else 0.0
        if more <= NEARLY:
            return [(1.0, rows)]
        return [(1 - more, least * self._piece), (more, (least + 1) * self._piece)]

    def average(self, rows: float) -> float:
        """Return the mean of `seconds` over cuts that have so many rows on average."""
        sizes, total = self.sizes(rows), 0.0
        for share, each in sizes:
            taken = self._seconds.get(each)
            if taken is None:
                taken = self.seconds(each)
                if len(sizes) > 1:
                    self._seconds[each] = taken
            total += share * taken
        return total

    def seconds(self, rows: float) -> float:
        """Return the mean seconds of all that the stream's next cut waits for, without waits for others.

        The sum of `Cut.mean` over these phases: a search for settings asks for it a million times.
        """
        tasks = self.tasks(rows)
        behind = self.behind(tasks)
        taken = self._fixed + self._per_task * (tasks + behind) + self.clocked(self._map, tasks, rows)
        if self._per_partial:
            taken += self._per_partial * collected(rows, tasks, behind, self.partials)
        if behind:
            shuffled = tasks * self.partials.keys(rows / tasks) if self._exchange.each else 0.0
            taken += self.clocked(self._exchange, behind, shuffled)
        return taken

    def clocked(self, cost: PhaseCost, tasks: int, units: float) -> float:
        """Return the mean seconds until so many tasks have done what so many units cost."""
        work = cost.fixed * tasks + cost.each * units
        if not work:
            return 0.0
        key = tasks, cost.scv
        factor = self._clocks.get(key)
        if factor is None:
            spread = math.sqrt(cost.scv)
            factor = sum(share * clock(tasks, cores, spread) for share, cores in self._free)
            self._clocks[key] = factor
        return work * factor

    def behind(self, tasks: int) -> int:
        """Return the tasks behind the exchange; cuts of one task have none, nor those without Spark SQL."""
        return 0 if tasks == 1 or not self.stream.exchanges else self.tuning.partitions or self.cores

    def tasks(self, rows: float) -> int:
        """Return the tasks that read a cut of so many rows."""
        tasks, parts = self.tuning.tasks(math.ceil(rows)), self.stream.parts
        if tasks is None:
            return parts or self.cores
        return min(tasks, parts) if parts else tasks


def collected(rows: float, tasks: int, behind: int, keys: KeyCurve | PaneKeys) -> float:
    """Return the rows of partials that a cut brings to the driver: without an exchange each task has its own.

    Args:
        rows: That it reads.
        tasks: That read them.
        behind: Tasks behind the exchange, 0 if there is none.
        keys: How many rows of partials so many rows make.
    """
    return keys.keys(rows) if behind else tasks * keys.keys(rows / tasks)


def units(
    rows: float, tasks: int, behind: int, keys: KeyCurve | PaneKeys, merged: float, results: float
) -> dict[str, float]:
    """Return how many of each unit a cut has by which phases cost, see `phases.UNITS`.

    Args:
        rows: That it reads.
        tasks: That read them.
        behind: Tasks behind the exchange, 0 if there is none.
        keys: How many rows of partials so many rows make.
        merged: Rows of partials that its closing merges.
        results: Rows of results of its closing.
    """
    return {
        "rows": rows,
        "tasks": tasks + behind,
        "shuffled": tasks * keys.keys(rows / tasks) if behind else 0.0,
        "partials": collected(rows, tasks, behind, keys),
        "merged": merged,
        "results": results,
    }


class Cut:
    """A cut of a stream.

    Args:
        cutting: Of the stream.
        rows: That it reads.
    """

    def __init__(self, cutting: Cutting, rows: float) -> None:
        self._cutting, stream = cutting, cutting.stream
        self.tasks = cutting.tasks(rows)
        self.behind = cutting.behind(self.tasks)
        self._units = units(
            rows,
            self.tasks,
            self.behind,
            cutting.partials,
            cutting.closings * stream.merged,
            cutting.closings * stream.results,
        )

    def work(self, phase: Phase) -> float:
        """Return the seconds of one core that a phase takes on average."""
        cost = self._cutting.stream.cost(phase)
        each = cost.each * self._units[UNITS[phase]] if phase in UNITS else 0.0
        return cost.fixed * (self._tasks_of(phase) if phase in TASKS else 1) + each

    def mean(self, phase: Phase) -> float:
        """Return the mean seconds of the clock that a phase takes; of tasks until the slowest has ended."""
        if phase not in TASKS:
            return self.work(phase)
        return self._cutting.clocked(self._cutting.stream.cost(phase), self._tasks_of(phase), self._units[UNITS[phase]])

    def together(self, phase: Phase) -> float:
        """Return the seconds for which a phase is busy with all of its tasks at once, or all cores that it has.

        The fewer cores are left to it, the longer it keeps those from others.
        """
        tasks = self._tasks_of(phase)
        return self.work(phase) / min(tasks, self._cutting.cores, max(0.5, self._cutting.free)) if tasks else 0.0

    def phase(self, phase: Phase) -> Moments:
        """Return the seconds of the clock that a phase takes."""
        mean = self.mean(phase)
        if phase not in TASKS or not mean:
            return Moments.with_scv(mean, self._cutting.stream.cost(phase).scv)
        tasks = self._tasks_of(phase)
        alone = self.work(phase) / tasks / min(1.0, self._cutting.free)
        spread = self._spread(phase)
        return Moments(mean, (spread * alone * wider(tasks, spread)) ** 2)

    def job(self) -> Moments:
        """Return the time of the job in its slot."""
        return sum((self.phase(phase) for phase in OF_A_JOB), AT_ONCE)

    def _tasks_of(self, phase: Phase) -> int:
        return self.tasks if phase is Phase.MAP else self.behind

    def _spread(self, phase: Phase) -> float:
        return math.sqrt(self._cutting.stream.cost(phase).scv)
