"""What Spark's status store says of the jobs of a cut: when their stages ran, with how many tasks, and at what cost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transom.model.phases import StageTasks
from transom.model.sessions import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUP = "spark.jobGroup.id"
"""The property of a thread by which the jobs that it starts are found again."""
_NAME = "callSite.short"
"""The property of a thread that names the stages of the jobs that it starts."""
_IN_WORKERS = "partials without Spark SQL"
MILLIS = 1_000
BUS = 1_000
"""Milliseconds for which it is waited at most until the store knows what has happened."""


@dataclass(frozen=True)
class JobTimes:
    """The jobs of a cut in Spark."""

    stages: tuple[StageTasks, ...]
    """Those that ran, in order."""
    launch: float
    """Seconds from the submission of each job to its first task, together."""
    map: float
    """From there to the end of the stages that read no exchange."""
    exchange: float
    """From there to the end of the last stage."""
    ended: float
    """When the last job ended; seconds since the epoch."""


@contextmanager
def watched(session: SparkSession, group: str | None) -> Iterator[None]:
    """Let the jobs that this thread starts be found again.

    Args:
        session: A session.
        group: Their name; None to do nothing, as on Spark Connect, which has no status store.
    """
    if group is None or is_connect(session):
        yield
        return
    session.sparkContext.setLocalProperty(GROUP, group)
    try:
        yield
    finally:
        session.sparkContext.setLocalProperty(GROUP, None)  # type: ignore[arg-type]


@contextmanager
def in_workers(session: SparkSession) -> Iterator[None]:
    """Let the jobs that this thread starts say that their tasks are Python workers, also on Spark's pages."""
    session.sparkContext.setLocalProperty(_NAME, _IN_WORKERS)
    try:
        yield
    finally:
        session.sparkContext.setLocalProperty(_NAME, None)  # type: ignore[arg-type]


def job_times(session: SparkSession, group: str) -> JobTimes | None:
    """Return what became of the jobs of a group; None if Spark does not say, as it forgets old jobs or is gone.

    It costs some milliseconds, and starts no job.
    """
    from py4j.protocol import Py4JError

    if is_connect(session):
        return None
    try:
        context = session.sparkContext._jsc.sc()
        context.listenerBus().waitUntilEmpty(BUS)
        store = context.statusStore()
        found = [
            _job(store, number) for number in sorted(session.sparkContext.statusTracker().getJobIdsForGroup(group))
        ]
    except (Py4JError, OSError):
        return None
    jobs = [job for job in found if job is not None]
    if not jobs or len(jobs) < len(found):
        return None
    return JobTimes(
        tuple(stage for job in jobs for stage in job.stages),
        sum(job.launch for job in jobs),
        sum(job.map for job in jobs),
        sum(job.exchange for job in jobs),
        max(job.ended for job in jobs),
    )


def _job(store: Any, number: int) -> JobTimes | None:
    job = store.job(number)
    submitted, ended = _seconds(job.submissionTime()), _seconds(job.completionTime())
    if submitted is None or ended is None:
        return None
    stages: list[tuple[float, float, float, bool, StageTasks]] = []
    for text in sorted(job.stageIds().mkString(" ").split(), key=int):
        stage = store.lastStageAttempt(int(text))
        begin, first, end = (
            _seconds(each) for each in (stage.submissionTime(), stage.firstTaskLaunchedTime(), stage.completionTime())
        )
        if begin is None or first is None or end is None:  # skipped, as what it gives was there
            continue
        tasks = StageTasks(
            tasks=stage.numTasks(),
            seconds=end - begin,
            launch=first - begin,
            run=stage.executorRunTime() / MILLIS,
            cpu=stage.executorCpuTime() / 1e9,
            rows=stage.inputRecords(),
            input_bytes=stage.inputBytes(),
            shuffle_bytes=stage.shuffleWriteBytes(),
            in_workers=stage.name() == _IN_WORKERS,
        )
        stages.append((begin, first, end, stage.shuffleReadRecords() > 0, tasks))
    if not stages:
        return JobTimes((), 0.0, 0.0, 0.0, ended)
    read = [each for each in stages if not each[3]] or stages[:1]
    first, mapped, last = (
        min(each[1] for each in stages),
        max(each[2] for each in read),
        max(each[2] for each in stages),
    )
    return JobTimes(
        tuple(each[4] for each in stages),
        max(0.0, first - submitted),
        max(0.0, mapped - first),
        max(0.0, last - mapped),
        ended,
    )


def _seconds(moment: Any) -> float | None:
    """Return an optional date of Scala as seconds since the epoch."""
    return moment.get().getTime() / MILLIS if moment.isDefined() else None
