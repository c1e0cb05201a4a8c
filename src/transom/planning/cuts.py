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


class Cutting:
    """How cuts of a stream are divided and what they take, for given settings and free cores.

    Args:
        stream: Its profile.
        tuning: Of the stream.
        cores: That there are.
        free: Of them, what all else leaves.
    """

    def __init__(self, stream: StreamProfile, tuning: StreamTuning, cores: int, free: float) -> None:
        self.stream, self.tuning, self.cores, self.free = stream, tuning, cores, free

    def of(self, rows: float) -> Cut:
        """Return a cut of so many rows."""
        return Cut(self, rows)

    def seconds(self, rows: float) -> float:
        """Return the mean seconds of all that the stream's next cut waits for, without waits for others."""
        cut = Cut(self, rows)
        return sum([cut.mean(phase) for phase in CUT])

    def tasks(self, rows: float) -> int:
        """Return the tasks that read a cut of so many rows."""
        most = self.stream.parts or self.cores
        tasks = self.tuning.tasks(math.ceil(rows))
        if tasks is None:
            return 1 if rows <= SMALL_CUT else most
        return min(tasks, most) if self.stream.parts else tasks


class Cut:
    """A cut of a stream.

    Args:
        cutting: Of the stream.
        rows: That it reads.
    """

    def __init__(self, cutting: Cutting, rows: float) -> None:
        self._cutting, stream = cutting, cutting.stream
        self.tasks = cutting.tasks(rows)
        self.behind = 0 if self.tasks == 1 else cutting.tuning.partitions or cutting.cores
        """Tasks behind the exchange, of which a cut of one task has none."""
        self._units = {
            "rows": rows,
            "tasks": self.tasks + self.behind,
            "shuffled": self.tasks * stream.keys.keys(rows / self.tasks) if self.behind else 0.0,
            "partials": stream.keys.keys(rows),
            "merged": stream.merged,
            "results": stream.results,
        }

    def work(self, phase: Phase) -> float:
        """Return the seconds of one core that a phase takes on average."""
        cost = self._cutting.stream.cost(phase)
        each = cost.each * self._units[UNITS[phase]] if phase in UNITS else 0.0
        return cost.fixed * (self._of(phase) if phase in TASKS else 1) + each

    def mean(self, phase: Phase) -> float:
        """Return the mean seconds of the clock that a phase takes; of tasks until the slowest has ended."""
        work = self.work(phase)
        if phase not in TASKS or not work:
            return work
        tasks = self._of(phase)
        return work / min(tasks, self._cutting.free) + self._spread(phase, work) * slowest_of(tasks).mean

    def phase(self, phase: Phase) -> Moments:
        """Return the seconds of the clock that a phase takes."""
        mean = self.mean(phase)
        if phase not in TASKS or not mean:
            return Moments.with_scv(mean, self._cutting.stream.cost(phase).scv)
        return Moments(mean, self._spread(phase, self.work(phase)) ** 2 * slowest_of(self._of(phase)).variance)

    def job(self) -> Moments:
        """Return the time of the job in its slot."""
        return sum((self.phase(phase) for phase in OF_A_JOB), AT_ONCE)

    def _of(self, phase: Phase) -> int:
        return self.tasks if phase is Phase.MAP else self.behind

    def _spread(self, phase: Phase, work: float) -> float:
        """Return the deviation of the seconds of single tasks."""
        alone = work / self._of(phase) / min(1.0, self._cutting.free)
        return math.sqrt(self._cutting.stream.cost(phase).scv) * alone
