"""Runners of the jobs of cuts: Spark, on threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

from transom.engine.execution.lane import Lane
from transom.engine.execution.onspark import run_on_spark
from transom.engine.execution.partials import take_partials
from transom.engine.execution.threads import Threads
from transom.engine.execution.workers import wait_for_workers
from transom.engine.spark.session import in_pool
from transom.engine.spark.stages import JobTimes, job_times, watched
from transom.engine.streams.cuts import CutJob, CutOutcome
from transom.engine.streams.partialsource import brings_partials
from transom.engine.streams.stream import RunningStream
from transom.model.sessions import is_connect

Result = TypeVar("Result")


class CutRunner(Protocol):
    """Runs the jobs of cuts. Called on the loop's thread."""

    @property
    def in_real_time(self) -> bool:
        """Whether jobs end by themselves while real time passes; else the clock's moving ends them."""

    def submit(self, stream: RunningStream, job: CutJob) -> Future[CutOutcome]:
        """Start the job of a cut that reads rows.

        Args:
            stream: The stream.
            job: The job; its cut is in the log already.
        """

    def times(self, stream: RunningStream, group: str) -> Future[JobTimes | None] | None:
        """Begin to find out what became of the Spark jobs of a cut; None where there are none.

        Args:
            stream: The stream.
            group: That of the cut's job.
        """

    def merge(self, stream: RunningStream, work: Callable[[], Result]) -> Future[Result]:
        """Start to merge files of a stream; it waits for no job of a cut.

        Args:
            stream: The stream.
            work: Merges, and waits for Spark.
        """

    def allow(self, slots: int) -> None:
        """Be ready to run so many jobs of cuts at once."""

    def abandon(self) -> None:
        """Let no job that runs start another Spark job, since the application ends at once."""

    def close(self, longest: float) -> None:
        """Wait for the jobs that run, at most so many seconds; those that have not begun never do."""


class SparkCutRunner:
    """Runs `run_on_spark` on threads, each of which waits for its Spark jobs.

    Args:
        slots: Jobs that run at once.
        pools: Whether each stream has a FAIR pool of its own.
        streams: Number of streams: each may merge files while jobs have all slots.
        lane: Whether partials are made without Spark SQL where they can be.
    """

    in_real_time = True

    def __init__(self, slots: int, pools: bool, streams: int, lane: bool = False) -> None:
        self._streams = streams
        self._threads = Threads(slots + streams, "transom-job")
        self._pools = pools
        self._takes_lane = lane
        self._lanes: dict[str, Lane] = {}
        self._abandoned = threading.Event()

    def submit(self, stream: RunningStream, job: CutJob) -> Future[CutOutcome]:
        """Start the job of a cut."""
        return self._threads.submit(self._run, stream, job)

    def _run(self, stream: RunningStream, job: CutJob) -> CutOutcome:
        if brings_partials(stream.source):
            return take_partials(stream.source, job)
        pool = in_pool(stream.session, stream.name if self._pools else None)
        with pool, watched(stream.session, job.group):
            return run_on_spark(stream, job, self._abandoned.is_set, self._lane(stream))

    def _lane(self, stream: RunningStream) -> Lane | None:
        if not self._takes_lane:
            return None
        return self._lanes.setdefault(stream.name, Lane(stream))

    def times(self, stream: RunningStream, group: str) -> Future[JobTimes | None] | None:
        """Begin to find out what became of the Spark jobs of a cut."""
        if is_connect(stream.session) or brings_partials(stream.source):
            return None
        return self._threads.submit(job_times, stream.session, group)

    def merge(self, stream: RunningStream, work: Callable[[], Result]) -> Future[Result]:
        """Start to merge files of a stream."""

        def run() -> Result:
            with in_pool(stream.session, stream.name if self._pools else None):
                return work()

        return self._threads.submit(run)

    def allow(self, slots: int) -> None:
        """Be ready to run so many jobs of cuts at once."""
        self._threads.allow(slots + self._streams)

    def abandon(self) -> None:
        """Let no job that runs start another Spark job."""
        self._abandoned.set()

    def close(self, longest: float) -> None:
        """Wait for the jobs that run."""
        self._threads.close(longest)
        if self._takes_lane:
            wait_for_workers(longest)
