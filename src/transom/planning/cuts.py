"""The time of a cut, phase by phase, from its rows."""

from __future__ import annotations

import math

from transom.model.phases import OF_A_JOB, Phase
from transom.model.tuning import StreamTuning
from transom.planning.moments import Moments
from transom.planning.orders import slowest_of
from transom.planning.phases import CUT, TASKS, UNITS
from transom.planning.profile import StreamProfile

SMALL_CUT = 50_000
"""Rows up to which a cut is one task where nothing is set."""
AT_ONCE = Moments()


class Cut:
    """The phases of cuts of a stream, by their rows.

    Args:
        stream: Its profile.
        tuning: Of the stream.
        cores: That there are.
        free: Of them, what all else leaves.
    """

    def __init__(self, stream: StreamProfile, tuning: StreamTuning, cores: int, free: float) -> None:
        self._stream, self._tuning, self._cores, self._free = stream, tuning, cores, free

    def tasks(self, rows: float) -> int:
        """Return the tasks that read a cut of so many rows."""
        most = self._stream.parts or self._cores
        tasks = self._tuning.tasks(math.ceil(rows))
        if tasks is None:
            return 1 if rows <= SMALL_CUT else most
        return min(tasks, most) if self._stream.parts else tasks

    def tasks_in(self, phase: Phase, rows: float) -> int:
        """Return the tasks of a phase: those that read, or those behind an exchange, of which one task needs none."""
        tasks = self.tasks(rows)
        if phase is not Phase.EXCHANGE:
            return tasks
        return 0 if tasks == 1 else self._tuning.partitions or self._cores

    def units(self, phase: Phase, rows: float) -> float:
        """Return what a phase costs by, for a cut of so many rows."""
        match UNITS.get(phase):
            case "rows":
                return rows
            case "tasks":
                return self.tasks(rows) + self.tasks_in(Phase.EXCHANGE, rows)
            case "shuffled":
                tasks = self.tasks(rows)
                return tasks * self._stream.keys.keys(rows / tasks)
            case "partials":
                return self._stream.keys.keys(rows)
            case "merged":
                return self._stream.merged
            case "results":
                return self._stream.results
            case _:
                return 0.0

    def work(self, phase: Phase, rows: float) -> float:
        """Return the seconds of one core that a phase takes on average."""
        cost, units = self._stream.cost(phase), self.units(phase, rows)
        if phase not in TASKS:
            return cost.mean(units)
        tasks = self.tasks_in(phase, rows)
        return cost.fixed * tasks + cost.each * units if tasks else 0.0

    def phase(self, phase: Phase, rows: float) -> Moments:
        """Return the seconds of the clock that a phase takes; of tasks until the slowest has ended."""
        work, scv = self.work(phase, rows), self._stream.cost(phase).scv
        if phase not in TASKS:
            return Moments.with_scv(work, scv)
        if work <= 0:
            return AT_ONCE
        tasks = self.tasks_in(phase, rows)
        alone = work / tasks / min(1.0, self._free)  # seconds of one task
        spread, order = math.sqrt(scv) * alone, slowest_of(tasks)
        return Moments(work / min(tasks, self._free) + spread * order.mean, spread**2 * order.variance)

    def seconds(self, rows: float) -> float:
        """Return the mean seconds of all that the stream's next cut waits for, without waits for others."""
        return sum(self.phase(phase, rows).mean for phase in CUT)

    def job(self, rows: float) -> Moments:
        """Return the time of the job in its slot."""
        return sum((self.phase(phase, rows) for phase in OF_A_JOB), AT_ONCE)
