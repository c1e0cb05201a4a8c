"""Jobs in virtual time that have phases: a driver, tasks on cores that all jobs share, and an exchange between them.

`virtual` gives a job one cost. Here its tasks run one by one on the cores that there are, each as long as the law of
its phase says, so that settings, cores and other streams matter as they do in Spark: what a plan says can be seen.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from transom.engine.spark.stages import JobTimes
from transom.engine.streams.cuts import CutJob, CutOutcome
from transom.engine.streams.stream import RunningStream
from transom.model.phases import Phase, StageTasks
from transom.model.time import MICROS_PER_SECOND, VirtualClock
from transom.planning.profile import PhaseCost, StreamProfile
from transom.simulation.inmemory import run_in_memory
from transom.simulation.virtual import Work

Result = TypeVar("Result")


@dataclass
class _Stage:
    """Tasks of one phase that are to run."""

    took: list[float]
    """Seconds of each."""
    launched: float | None = None
    """When the first began."""
    running: int = 0
    begun: int = 0
    ended: int = 0


@dataclass
class _Job:
    future: Future[CutOutcome]
    result: CutOutcome | Exception
    launch: float
    """Seconds until its first task can run, after it was planned."""
    stages: list[_Stage]
    collect: float
    group: str | None
    rows: int
    submitted: float = 0.0
    ends: list[float] = field(default_factory=list)
    """When its stages ended."""

    @property
    def stage(self) -> _Stage:
        """The one that runs."""
        return self.stages[len(self.ends)]


class StagedCutRunner:
    """Runs jobs whose phases cost what a profile says; a task takes a core, and the job with the fewest has the next.

    What costs by rows of partials is taken to cost nothing of it: partials are what the rows in memory make.

    Args:
        clock: The application's clock too.
        costs: Returns what the phases of a stream cost now.
        cores: That there are; may be changed.
        chance: Draws how long tasks take.
        work: What a job brings.
    """

    in_real_time = False

    def __init__(
        self,
        clock: VirtualClock,
        costs: Callable[[str], StreamProfile],
        cores: int,
        chance: random.Random,
        work: Work = run_in_memory,
    ) -> None:
        self._clock, self._costs, self._chance, self._work = clock, costs, chance, work
        self.cores = cores
        self._jobs: list[_Job] = []
        """Those that have tasks to run."""
        self._times: dict[str, JobTimes] = {}

    def drawn(self, mean: float, cost: PhaseCost) -> float:
        """Return how long something takes that takes so many seconds on average."""
        if mean <= 0 or cost.scv <= 0:
            return mean
        return self._chance.gammavariate(1 / cost.scv, mean * cost.scv)

    def submit(self, stream: RunningStream, job: CutJob) -> Future[CutOutcome]:
        """Start the job of a cut; an error of it is there as late as its result would be."""
        known, rows, tuning = self._costs(stream.name), job.cut.rows, stream.options.tuning
        tasks = tuning.tasks(rows) or known.parts or self.cores
        tasks = min(tasks, known.parts) if known.parts else tasks
        behind = 0 if tasks == 1 or not known.exchanges else tuning.partitions or self.cores
        stages = [self._stage(known.cost(Phase.MAP), tasks, rows)]
        stages += [self._stage(known.cost(Phase.EXCHANGE), behind, 0)] if behind else []
        planned, launched, collected = (known.cost(phase) for phase in (Phase.PLAN, Phase.LAUNCH, Phase.COLLECT))
        try:
            result: CutOutcome | Exception = self._work(stream, job)
        except Exception as error:  # it is there when the job would have ended
            result = error
        launch = self.drawn(launched.mean(tasks + behind), launched)
        made = _Job(Future(), result, launch, stages, self.drawn(collected.fixed, collected), job.group, rows)
        made.future.set_running_or_notify_cancel()
        self._after(self.drawn(planned.fixed, planned), partial(self._planned, made))
        return made.future

    def _stage(self, cost: PhaseCost, tasks: int, rows: int) -> _Stage:
        mean = cost.mean(rows / tasks)
        return _Stage([self.drawn(mean, cost) for _ in range(tasks)])

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        self._clock.at(self._clock.monotonic() + round(MICROS_PER_SECOND * seconds), action)

    def _now(self) -> float:
        return self._clock.now() / MICROS_PER_SECOND

    def _planned(self, job: _Job) -> None:
        job.submitted = self._now()
        self._after(job.launch, partial(self._launched, job))

    def _launched(self, job: _Job) -> None:
        self._jobs.append(job)
        self._give_cores()

    def _give_cores(self) -> None:
        """Let tasks run on the cores that are free: those of the job that was there first, as in a pool of Spark's."""
        free = self.cores - sum(job.stage.running for job in self._jobs)
        while free > 0:
            job = next((job for job in self._jobs if job.stage.begun < len(job.stage.took)), None)
            if job is None:
                return
            stage = job.stage
            if stage.launched is None:
                stage.launched = self._now()
            self._after(stage.took[stage.begun], partial(self._ended, job))
            stage.begun, stage.running, free = stage.begun + 1, stage.running + 1, free - 1

    def _ended(self, job: _Job) -> None:
        """Take the end of a task."""
        stage = job.stage
        stage.ended, stage.running = stage.ended + 1, stage.running - 1
        if stage.ended == len(stage.took):
            job.ends.append(self._now())
            if len(job.ends) == len(job.stages):
                self._jobs.remove(job)
                self._note(job)
                self._after(job.collect, partial(self._give, job))
        self._give_cores()

    def _note(self, job: _Job) -> None:
        if job.group is None:
            return
        begins = [job.submitted, *job.ends]
        stages = tuple(
            StageTasks(
                len(stage.took),
                end - begin,
                (stage.launched or begin) - begin,
                sum(stage.took),
                sum(stage.took),
                0 if number else job.rows,
            )
            for number, (stage, begin, end) in enumerate(zip(job.stages, begins, job.ends, strict=False))
        )
        first = job.stages[0].launched or job.submitted
        self._times[job.group] = JobTimes(
            stages, first - job.submitted, job.ends[0] - first, job.ends[-1] - job.ends[0], job.ends[-1]
        )

    @staticmethod
    def _give(job: _Job) -> None:
        if isinstance(job.result, Exception):
            job.future.set_exception(job.result)
        else:
            job.future.set_result(job.result)

    def times(self, stream: RunningStream, group: str) -> Future[JobTimes | None]:
        """Return what became of the tasks of a cut."""
        known: Future[JobTimes | None] = Future()
        known.set_result(self._times.pop(group, None))
        return known

    def merge(self, stream: RunningStream, work: Callable[[], Result]) -> Future[Result]:
        """Merge files of a stream, in no time."""
        done: Future[Result] = Future()
        try:
            done.set_result(work())
        except Exception as error:  # as for a job
            done.set_exception(error)
        return done

    def allow(self, slots: int) -> None:
        """Do nothing: there are no threads."""

    def abandon(self) -> None:
        """Do nothing: no job runs any more once it was submitted."""

    def close(self, longest: float) -> None:
        """Forget the jobs that run: nothing waits for them any more."""
        self._jobs.clear()
