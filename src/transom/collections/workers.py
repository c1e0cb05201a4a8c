"""The executors of an application, as all of its collections share them: how busy they are, and tasks on any of them.

Stock Spark has no hook in its task scheduler, but it follows locations. Which task goes where is decided here when a
job is submitted (`placement/replicas.py`); tasks of an RDD that has some for each executor then carry it out.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from transom.engine.placed import placed
from transom.engine.placed.placed import ExecutorInfo, Tasks
from transom.model.time import MICROS_PER_SECOND, Clock, SystemClock
from transom.placement.locality import ExecutorId
from transom.placement.replicas import Busy, Place, Task
from transom.placement.replicas import placed as chosen
from transom.scheduling.costs import CostHistory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLOTS = 4
"""Tasks for each executor at first; twice as many when a job needs more."""
TASK_SECONDS = 0.005
"""Of a task beside its questions: to start it in an executor that runs, and to send what it found."""
JOB_SECONDS = 0.05
"""Of a job beside its longest task, believed until jobs were measured."""
SMOOTHING = 0.1
"""Weight of the newest job in what jobs take."""


@dataclass(frozen=True)
class QuestionCosts:
    """The time that questions are expected to take, seconds."""

    question: float
    """In a task, without bytes."""
    byte: float
    job: float
    """Of a job beside its longest task."""


def by_host(executor: ExecutorInfo) -> str:
    """Return where the executor's files can be read: on its host. Containers of one machine have hosts of their own."""
    return executor.host


class Workers:
    """The executors and their load; safe to use from several threads.

    Args:
        spark: A classic session.
        clock: The time.
        site: Executors with the same one read each other's files.

    Raises:
        SessionError: The session is a Spark Connect session, or has no executor yet.
    """

    def __init__(
        self, spark: SparkSession, clock: Clock | None = None, site: Callable[[ExecutorInfo], str] = by_host
    ) -> None:
        self.spark, self._clock, self._site = spark, clock or SystemClock(), site
        self._lock = threading.Lock()
        self._tickets = itertools.count()
        self._known: tuple[ExecutorInfo, ...] = ()
        self._tasks: Tasks | None = None
        self._each = SLOTS
        self._costs = CostHistory(fixed=0.002, row=1e-9)
        self._overhead = JOB_SECONDS
        self._busy = Busy({each.id: each.cores for each in placed.executors(spark)})
        self.look()

    def look(self) -> dict[ExecutorId, int]:
        """Return the cores of the executors that are alive, by id, and forget the others.

        Raises:
            SessionError: There is no executor.
        """
        found = tuple(placed.executors(self.spark))
        cores = {each.id: each.cores for each in found}
        with self._lock:
            if [each.location for each in found] != [each.location for each in self._known]:
                self._tasks = None
                self._busy = self._busy.with_executors(cores)
            self._known = found
        return cores

    def now(self) -> float:
        """Return the time, seconds."""
        return self._clock.monotonic() / MICROS_PER_SECOND

    @property
    def cores(self) -> Mapping[ExecutorId, int]:
        """Cores of each executor."""
        return self._busy.cores

    @property
    def costs(self) -> QuestionCosts:
        """The costs learned so far."""
        costs = self._costs.costs
        return QuestionCosts(float(costs.fixed), float(costs.row), self._overhead)

    def seconds(self, size: int) -> float:
        """Return how long a question to so many bytes is expected to compute."""
        return float(self._costs.costs.job(np.asarray(size, np.float64)))

    def slack(self, due: float, seconds: float) -> float:
        """Return how long a task may wait that is expected to compute for some seconds, for an answer due then."""
        return due - self.now() - self._overhead - seconds

    def learned(self, size: float, seconds: float, overhead: float) -> None:
        """Take in a job.

        Args:
            size: Bytes of a question in its longest task, on average.
            seconds: How long that question took, on average.
            overhead: What the job took beside its longest task, seconds.
        """
        with self._lock:
            self._costs.ran(size, seconds)
            self._overhead += SMOOTHING * (max(0.0, overhead) - self._overhead)

    @contextmanager
    def booked(self, tasks: Sequence[Task], groups: Mapping[ExecutorId, Collection[int]]) -> Iterator[Sequence[Place]]:
        """Decide where the tasks of a job run; they count as busy until the block ends, however it does.

        Args:
            tasks: Of the job.
            groups: That each executor holds.
        """
        sites = {each.id: self._site(each) for each in self._known}
        tickets: list[int] = []
        try:
            with self._lock:
                now = self.now()
                places = chosen(tasks, self._busy.free(now), groups, sites)
                tickets += itertools.islice(self._tickets, len(places))
                self._busy = self._busy.submitted(dict(zip(tickets, places, strict=True)), now)
            yield places
        finally:
            with self._lock:
                self._busy = self._busy.ended(tickets, self.now())

    def run(self, places: Sequence[Place], function: Callable[[int], bytes]) -> list[bytes]:
        """Return what the function gives for the number of each task, at its place; one job of one stage.

        Args:
            places: Of the tasks.
            function: Runs in a Python worker there.
        """
        tasks, slots = self._slots([place.executor for place in places])
        numbers = {slot: number for number, slot in enumerate(slots)}
        return tasks.run(lambda slot: function(numbers[slot]), slots)

    def waits(self) -> dict[ExecutorId, float]:
        """Return for how many seconds a task would wait at each executor."""
        with self._lock:
            return self._busy.waits(self.now())

    def _slots(self, homes: Sequence[ExecutorId]) -> tuple[Tasks, list[int]]:
        """Return tasks for all executors, and which of them run at these; one that just went is replaced by any."""
        with self._lock:
            first = {each.id: place for place, each in enumerate(self._known)}
            wanted = [home if home in first else self._known[0].id for home in homes]
            most = max(map(wanted.count, set(wanted)))
            while self._each < most:
                self._each, self._tasks = 2 * self._each, None
            if self._tasks is None:
                self._tasks = Tasks(self.spark, [each.id for each in self._known for _ in range(self._each)])
            used = dict.fromkeys(first, 0)
            slots = []
            for home in wanted:
                slots.append(first[home] * self._each + used[home])
                used[home] += 1
            return self._tasks, slots


_KNOWN: dict[str, Workers] = {}
_LOCK = threading.Lock()


def workers(spark: SparkSession) -> Workers:
    """Return the executors of the application of a session."""
    application = spark.sparkContext.applicationId
    with _LOCK:
        for other in _KNOWN.keys() - {application}:
            del _KNOWN[other]
        if application not in _KNOWN:
            _KNOWN[application] = Workers(spark)
        return _KNOWN[application]
