"""Runners of the jobs of cuts: Spark, on threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

from transom.engine.execution.onspark import run_on_spark
from transom.engine.execution.threads import Threads
from transom.engine.spark.compile import Compiled
from transom.engine.spark.session import in_pool
from transom.engine.streams.cuts import CutOutcome, LoggedCut
from transom.engine.streams.stream import RunningStream

Result = TypeVar("Result")


class CutRunner(Protocol):
    """Runs the jobs of cuts. Called on the loop's thread."""

    @property
    def in_real_time(self) -> bool:
        """Whether jobs end by themselves while real time passes; else the clock's moving ends them."""

    def submit(self, stream: RunningStream, cut: LoggedCut, compiled: Compiled) -> Future[CutOutcome]:
        """Start the job of a cut that reads rows.

        Args:
            stream: The stream.
            cut: The cut, already in the log.
            compiled: The queries that ran when it was logged.
        """

    def merge(self, stream: RunningStream, work: Callable[[], Result]) -> Future[Result]:
        """Start to merge files of a stream; it waits for no job of a cut.

        Args:
            stream: The stream.
            work: Merges, and waits for Spark.
        """

    def close(self, longest: float) -> None:
        """Wait for the jobs that run, at most so many seconds; those that have not begun never do."""


class SparkCutRunner:
    """Runs `run_on_spark` on threads, each of which waits for its Spark jobs.

    Args:
        slots: Jobs that run at once.
        pools: Whether each stream has a FAIR pool of its own.
        streams: Number of streams: each may merge files while jobs have all slots.
    """

    in_real_time = True

    def __init__(self, slots: int, pools: bool, streams: int) -> None:
        self._threads = Threads(slots + streams, "transom-job")
        self._pools = pools

    def submit(self, stream: RunningStream, cut: LoggedCut, compiled: Compiled) -> Future[CutOutcome]:
        """Start the job of a cut."""
        return self._threads.submit(self._run, stream, cut, compiled)

    def _run(self, stream: RunningStream, cut: LoggedCut, compiled: Compiled) -> CutOutcome:
        with in_pool(stream.session, stream.name if self._pools else None):
            return run_on_spark(stream, cut, compiled)

    def merge(self, stream: RunningStream, work: Callable[[], Result]) -> Future[Result]:
        """Start to merge files of a stream."""

        def run() -> Result:
            with in_pool(stream.session, stream.name if self._pools else None):
                return work()

        return self._threads.submit(run)

    def close(self, longest: float) -> None:
        """Wait for the jobs that run."""
        self._threads.close(longest)
