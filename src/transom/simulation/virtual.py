"""Jobs in virtual time: the real loop, scheduler and state, with a cost model in place of Spark's execution.

For transcripts and experiments: what runs when, and what comes out, does not depend on the machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from transom.engine.streams.cuts import CutJob, CutOutcome
from transom.engine.streams.stream import RunningStream
from transom.errors import DefinitionError
from transom.model.time import MICROS_PER_SECOND, Micros, VirtualClock
from transom.simulation.inmemory import run_in_memory

Result = TypeVar("Result")
Work = Callable[[RunningStream, CutJob], CutOutcome]


@dataclass(frozen=True)
class JobCosts:
    """The time that the job of a cut takes on one core.

    Raises:
        DefinitionError: A negative cost, no cost at all, or no core.
    """

    fixed: Micros = MICROS_PER_SECOND // 10
    """Microseconds without rows."""
    row: float = 1.0
    """Microseconds per row."""
    merge: Micros = 0
    """Microseconds of a merge of files."""
    cores: int = 2
    """Jobs beyond this share them evenly, as in Spark's FAIR pools."""

    def __post_init__(self) -> None:
        if self.fixed <= 0 or not 0 <= self.row < math.inf or self.merge < 0 or self.cores < 1:
            raise DefinitionError(
                f"job costs: fixed {self.fixed}, row {self.row}, merge {self.merge}, cores {self.cores}.",
                "Give a fixed cost of at least 1 us, 0 or more per row and merge, and at least one core.",
            )


@dataclass
class _Job:
    future: Future[Any]
    result: Any
    """An exception is what it fails with."""
    left: float
    """Microseconds of one core."""


class SimulatedCutRunner:
    """Runs jobs at the cost that a model says; what they bring is there when the clock has come so far.

    Args:
        clock: The application's clock too.
        costs: Cost of every job, or those of each stream by name.
        work: What a job brings: from rows in memory, without Spark; or `run_on_spark`, as Spark computes it, for
            queries that `run_in_memory` does not know.
    """

    in_real_time = False

    def __init__(
        self, clock: VirtualClock, costs: JobCosts | Callable[[str], JobCosts], work: Work = run_in_memory
    ) -> None:
        self._clock = clock
        self._costs_of = costs if callable(costs) else lambda _: costs
        self._work = work
        self._jobs: list[_Job] = []
        self._since = clock.monotonic()
        self._cores = 0
        self._version = 0

    def submit(self, stream: RunningStream, job: CutJob) -> Future[CutOutcome]:
        """Start the job of a cut; an error of it is there as late as its result would be."""
        costs = self._costs_of(stream.name)
        return self._begin(lambda: self._work(stream, job), costs.fixed + costs.row * job.cut.rows, costs.cores)

    def times(self, stream: RunningStream, group: str) -> None:
        """Return None: there are no tasks."""

    def merge(self, stream: RunningStream, work: Callable[[], Result]) -> Future[Result]:
        """Start to merge files of a stream."""
        costs = self._costs_of(stream.name)
        return self._begin(work, costs.merge, costs.cores)

    def _begin(self, work: Callable[[], Result], left: float, cores: int) -> Future[Result]:
        """Do some work now, and let its result, or its error, be there when so much of one core was spent on it."""
        try:
            result: Result | Exception = work()
        except Exception as error:
            result = error
        self._advance()
        self._cores = cores
        job = _Job(Future(), result, left)
        job.future.set_running_or_notify_cancel()
        self._jobs.append(job)
        self._foresee()
        return job.future

    @property
    def _share(self) -> float:
        """Share of a core that each job has."""
        return min(1.0, self._cores / max(1, len(self._jobs)))

    def _advance(self) -> None:
        """Let the jobs have done what they could until now."""
        now = self._clock.monotonic()
        for job in self._jobs:
            job.left -= (now - self._since) * self._share
        self._since = now

    def _foresee(self) -> None:
        """Put the next end of a job on the clock's agenda; those that were foreseen before no longer count."""
        self._version += 1
        version = self._version
        if self._jobs:
            left = min(job.left for job in self._jobs)
            end = self._clock.monotonic() + max(0, math.ceil(left / self._share))
            self._clock.at(end, lambda: self._end(version))

    def _end(self, version: int) -> None:
        if version != self._version:
            return
        self._advance()
        ended = [job for job in self._jobs if job.left < 1]
        self._jobs = [job for job in self._jobs if job.left >= 1]
        self._foresee()
        for job in ended:
            if isinstance(job.result, Exception):
                job.future.set_exception(job.result)
            else:
                job.future.set_result(job.result)

    def allow(self, slots: int) -> None:
        """Do nothing: there are no threads, and jobs share the cores."""

    def abandon(self) -> None:
        """Do nothing: no job runs any more once it was submitted."""

    def close(self, longest: float) -> None:
        """Forget the jobs that run: nothing waits for them any more."""
        self._jobs.clear()
        self._version += 1
