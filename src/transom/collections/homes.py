"""The homes of a namespace's partitions: executors that come and go, groups, and files that are there or left behind.

When groups, homes or executors change, nothing moves; the next action on a dataset brings those of its partitions home
that are elsewhere, and makes again those whose executor is gone (Stark, section III).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from transom.collections.datasets import Dataset
from transom.collections.workers import Workers
from transom.engine.placed import exchange, placed
from transom.engine.placed.files import PlacedFile
from transom.engine.placed.outlasting import outlasting
from transom.engine.placed.placed import Tasks
from transom.failures import classify
from transom.model.time import MICROS_PER_SECOND, Clock, Micros
from transom.placement.grouping import Grouping
from transom.placement.layout import Layout
from transom.placement.locality import ExecutorId
from transom.placement.replicas import Copy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK: Micros = MICROS_PER_SECOND
"""Executors that come and go are noticed so soon."""
MOST_TASKS = 8
"""Sets of tasks that are kept."""
logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class Homes:
    """Executors, groups and files of a namespace; safe to use from several threads.

    Args:
        spark: A classic session.
        name: For people and files.
        partitions: Number of partitions; never changes.
        workers: The executors.
        clock: The time.
        patience: Time to wait for executors while there is none, or what is needed of them is lost.
    """

    def __init__(
        self, spark: SparkSession, name: str, partitions: int, workers: Workers, clock: Clock, patience: Micros
    ) -> None:
        self.spark, self.name, self.partitions, self.workers = spark, name, partitions, workers
        self.lock = threading.RLock()
        """Held while anything of the namespace changes."""
        self.stale: list[PlacedFile] = []
        """Files that were left behind, to be deleted when nobody waits for it."""
        self.copied: Callable[[], Collection[Copy]] = frozenset
        """Returns the copies of groups that there are to be."""
        self.alive: dict[ExecutorId, int] = workers.look()
        """Cores of the executors."""
        self._clock, self._patience = clock, patience
        self._looked_at = clock.monotonic()
        groups = min(partitions, sum(self.alive.values()))
        self._layout = Layout.beginning(partitions, max(1, groups), self.alive)
        self._tasks: dict[tuple[Any, ...], Tasks] = {}

    @property
    def by_partition(self) -> tuple[ExecutorId | None, ...]:
        """Executor of each partition."""
        return self._layout.homes

    @property
    def grouping(self) -> Grouping:
        """The neighbouring partitions that are one task each."""
        return self._layout.grouping

    def of(self, group: range) -> ExecutorId | None:
        """Return the executor of a group."""
        return self._layout.home(group)

    def held(self) -> dict[ExecutorId, set[int]]:
        """Return the groups that each executor holds, those that are copied there, too."""
        return self._layout.held(self.copied())

    def seconds(self) -> float:
        """Return the time, seconds."""
        return self._clock.monotonic() / MICROS_PER_SECOND

    def look(self, now: bool = False) -> None:
        """Notice executors that came or went, if that was not done just now.

        Raises:
            SessionError: There is no executor.
        """
        with self.lock:
            moment = self._clock.monotonic()
            if not now and moment < self._looked_at + LOOK:
                return
            self._looked_at = moment
            alive = self.workers.look()
            if alive != self.alive:
                self.alive = alive
                self._layout = self._layout.with_executors(alive, self.copied())

    def outlasting(self, action: Callable[[], Result], look_again: Callable[[int], None] | None = None) -> Result:
        """Return what an action gives that can be done again, while executors come and go.

        Args:
            action: The action.
            look_again: Called before another try with their number; looks for executors, if not given.
        """
        return outlasting(action, self._patience, self._clock, look_again or (lambda _: self.look(now=True)))

    def regroup(self, sizes: Sequence[int], last: int, elastic: tuple[int, int] | None) -> set[int]:
        """Adapt the groups to a new dataset; return the groups that are no more, by their first partitions.

        Args:
            sizes: Bytes of each of its partitions.
            last: So many datasets count.
            elastic: Bytes of the smallest and the largest group; None to leave them.
        """
        before = set(self.grouping.ranges)
        self._layout = self._layout.with_dataset(sizes, last, elastic)
        return {each.start for each in before - set(self.grouping.ranges)}

    # ---- files

    def carry_home(self, away: Sequence[tuple[Dataset, int]]) -> None:
        """Move partitions that are there to where they belong: one exchange."""
        with self.lock:
            old = [dataset.files[number] for dataset, number in away]
            there = Tasks(self.spark, [self.by_partition[number] for _, number in away])
            for (dataset, number), file in zip(away, exchange.move(old, there, self.name), strict=True):
                dataset.files[number] = file
            self.stale += old  # deleted before the next dataset is added: whoever asks now does not wait for it

    def leave(self, dataset: Dataset) -> None:
        """Leave the files of a dataset behind."""
        self.stale += [*dataset.files, *dataset.copies.values()]
        dataset.files, dataset.copies = [], {}

    def sweep(self) -> None:
        """Delete the files that were left behind; those that cannot be deleted now are tried again later."""
        try:
            if self.stale:
                placed.remove(self.stale, self.spark)
            self.stale = []
        except Exception as error:
            logger.info("%s: files are deleted later: %s", self.name, classify(error).reason)

    # ---- tasks

    def tasks(self, homes: list[str | None]) -> Tasks:
        """Return tasks with these homes, made once: it takes some milliseconds for each of them."""
        key = tuple(homes)
        if key not in self._tasks:
            if len(self._tasks) > MOST_TASKS:
                self._tasks.clear()
            self._tasks[key] = Tasks(self.spark, homes)
        return self._tasks[key]

    def tasks_by_partition(self) -> Tasks:
        """Return one task for each partition, at its home."""
        return self.tasks(list(self.by_partition))
