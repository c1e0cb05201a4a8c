"""The end of a run: told to stop, to stop at once, or failed, and what is under way then."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from transom.engine.execution.runners import CutRunner
from transom.engine.loop.batches import Cuts
from transom.engine.loop.delivery import Delivery
from transom.engine.loop.journal import Journal
from transom.engine.spark.session import cancel_jobs
from transom.errors import StoppedError, TransomError
from transom.model.time import MICROS_PER_SECOND, Clock, Micros, format_duration
from transom.sinks.base import Sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT_ONCE = 5.0
"""Seconds that an end at once, or one that has waited for long enough, waits for threads that were told to end."""


class Ending:
    """Says that and how a run ends; its first four methods may be called from anywhere.

    Args:
        session: Transom's Spark session.
        runner: Runs the jobs of cuts.
        cuts: The cuts under way.
        delivery: Writes to the sinks.
        journal: Takes notes for people.
        clock: The time.
        stop_timeout: Time that a run which was told to stop has for what is under way.
        wake: Wakes the loop.
    """

    def __init__(
        self,
        session: SparkSession,
        runner: CutRunner,
        cuts: Cuts,
        delivery: Delivery,
        journal: Journal,
        clock: Clock,
        stop_timeout: Micros,
        wake: Callable[[], None],
    ) -> None:
        self._session = session
        self._runner = runner
        self._cuts = cuts
        self._delivery = delivery
        self._journal = journal
        self._clock = clock
        self._stop_timeout = stop_timeout
        self._wake = wake
        self.stopping = False
        """Whether the run was told to stop."""
        self.failure: TransomError | None = None
        """The error that ends it."""
        self.still_writing: list[Sink] = []
        """Sinks that could not be waited for, at the end."""
        self._stop_by: Micros | None = None
        """Once it is stopping: until when it waits."""
        self._at_once = False
        self._ended = threading.Event()
        """Set when no job is waited for any more."""

    def stop(self) -> None:
        """Finish the running micro-batches, deliver what is ready, then end the run.

        What is not done within the setting `stop_timeout` is left to the next run.
        """
        self.stopping = True
        self._wake()

    def fail(self, error: TransomError) -> None:
        """End the run with an error."""
        self.failure = error
        self._wake()

    def end_at_once(self) -> None:
        """End the run without waiting for what is under way."""
        self.abandon()
        self._cancel()
        self.fail(StoppedError("The run was stopped at once.", "The next one goes on from the last micro-batch."))

    def abandon(self) -> None:
        """Let no running micro-batch start another Spark job, and wait for none; for an end at once."""
        self._at_once = True
        self._runner.abandon()

    @property
    def something_runs(self) -> bool:
        """Whether a job or a write runs that will wake the loop, so that real time passes."""
        return (bool(self._cuts.busy) and self._runner.in_real_time) or self._delivery.busy

    def overdue(self) -> bool:
        """Tell whether what is under way has had its time since `stop`; it is left then."""
        now, longest = self._clock.monotonic(), self._stop_timeout
        self._stop_by = now + longest if self._stop_by is None else self._stop_by
        if now < self._stop_by:
            return False
        late = [f"a micro-batch of {name}" for name in sorted(self._cuts.busy)]
        late += [f"the sink of {query}" for query in self._delivery.writing()]
        if late:
            self._journal.note(
                f"Stopped without {' and '.join(late)}, which did not end within {format_duration(longest)}; what is "
                "missing is in the checkpoint, and the next run goes on with it."
            )
            self.abandon()
            if self._cuts.jobs:
                self._cancel()
        return True

    def end_threads(self, finished: bool) -> None:
        """End the jobs and the writes that are under way; after an error nobody waits for the latter."""
        longest = AT_ONCE if self._at_once else self._stop_timeout / MICROS_PER_SECOND
        self.abandon()  # what still runs is for nothing
        with ExitStack() as ending:
            ending.callback(lambda: self.still_writing.extend(self._delivery.close(longest if finished else 0)))
            ending.callback(self._ended.set)
            ending.callback(lambda: self._runner.close(longest))

    def _cancel(self) -> None:
        """Cancel Spark's jobs until none is waited for any more."""
        if self._runner.in_real_time:
            cancel_jobs(self._session, self._ended)
