"""Copies of a namespace's groups beside their homes: of which datasets there are some; made, used and dropped.

A copy is a file of each partition of the group at another executor (`Dataset.copies`). Tasks run there as at home, and
what is lost at home is taken from there. A copy of a dataset goes when the dataset is computed anew or evicted, all
copies of a group when its borders change or when it is not wanted any more.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Sequence
from typing import Any
from weakref import WeakSet

from transom.collections.datasets import Dataset
from transom.collections.homes import Homes
from transom.engine.placed import exchange
from transom.engine.placed.files import PlacedFile
from transom.engine.placed.placed import Tasks
from transom.failures import classify
from transom.placement.locality import ExecutorId
from transom.placement.replicas import Copy, Place, Replicas

logger = logging.getLogger(__name__)

EVERY = 1.0
"""Seconds from one review of the copies to the next."""


class Copies:
    """The copies of a namespace's groups, each named by its first partition; safe to use from several threads.

    Args:
        homes: Where the groups belong.
    """

    def __init__(self, homes: Homes) -> None:
        self._homes = homes
        self._lock, self._working = threading.Lock(), threading.Lock()
        self._replicas = Replicas()
        self._wished: dict[Copy, WeakSet[Dataset]] = {}
        self._datasets: WeakSet[Dataset] = WeakSet()
        self._reviewed = 0.0
        self._adapting: threading.Thread | None = None
        homes.copied = lambda: self.wanted

    @property
    def wanted(self) -> frozenset[Copy]:
        """The copies that there are to be."""
        return self._replicas.extra

    def of(self, group: int) -> list[ExecutorId]:
        """Return the executors that are to have a copy of a group."""
        return sorted(executor for other, executor in self._replicas.extra if other == group)

    def ran(self, places: Sequence[tuple[Place, list[Any]]], now: float) -> None:
        """Take in where the tasks of a job run, each with the lists of datasets that it reads."""
        with self._lock:
            self._replicas = self._replicas.ran([place for place, _ in places], now)
            for place, subjects in places:
                if place.wish is not None:
                    wished = self._wished.setdefault((place.task.group, place.wish), WeakSet())
                    for datasets in subjects:
                        wished.update(datasets)

    def forget(self, groups: Collection[int]) -> None:
        """Forget groups that are no more."""
        with self._lock:
            self._replicas = self._replicas.without(groups)
            self._wished = {copy: each for copy, each in self._wished.items() if copy[0] not in groups}

    def adapt_soon(self) -> None:
        """Adapt on another thread, if there is anything to do: who asks does not wait for it.

        At most one such thread runs. What fails is logged, never raised: the answer is there already.
        """
        try:
            if self._is_due() and (self._adapting is None or not self._adapting.is_alive()):
                name = f"copies of {self._homes.name}"
                thread = threading.Thread(target=self._adapt, name=name, daemon=True)
                thread.start()
                self._adapting = thread
        except Exception as error:
            self._warn(error)

    def _is_due(self) -> bool:
        """Tell whether there is anything to do; looked at now and then."""
        now = self._homes.workers.now()
        with self._lock:
            if now < self._reviewed + EVERY:
                return False
            self._reviewed = now
            wanted = self._replicas.adapted(now, self._homes.alive).extra
            lacking = any(copy in wanted for copy in self._wished)
            superfluous = any((self._group(n), e) not in wanted for each in self._datasets for n, e in each.copies)
            return lacking or superfluous or wanted != self._replicas.extra

    def _adapt(self) -> None:
        try:
            self.adapt()
        except Exception as error:
            self._warn(error)

    def _warn(self, error: Exception) -> None:
        name, why = self._homes.name, classify(error).reason
        logger.warning("%s: groups could not be copied (%s); they are asked for at their homes.", name, why)

    def adapt(self) -> None:
        """Copy the groups that are wanted elsewhere, and let go the copies that are not wanted any more."""
        with self._working:
            missing = self._missing()
            if missing:
                self._copy(missing)

    def _missing(self) -> list[tuple[Dataset, int, ExecutorId, PlacedFile]]:
        """Let go what is not wanted; return which partition is wanted at which executor, and its file."""
        homes = self._homes
        with homes.lock:
            homes.look()
            wished = self._reviewed_wishes()
            ranges = {each.start: each for each in homes.grouping.ranges}
            for dataset in list(self._datasets):
                for number, executor in dataset.copies:
                    unwanted = (self._group(number), executor) not in self._replicas.extra
                    if unwanted and (copy := dataset.without_copy(number, executor)):
                        homes.stale.append(copy)
            return [
                (dataset, number, executor, dataset.files[number])
                for (group, executor), datasets in wished.items()
                for dataset in datasets
                for number in ranges.get(group, ())
                if dataset.files and (number, executor) not in dataset.copies
                if dataset.files[number].executor in homes.alive
            ]

    def _copy(self, missing: Sequence[tuple[Dataset, int, ExecutorId, PlacedFile]]) -> None:
        homes = self._homes
        there = Tasks(homes.spark, [executor for _, _, executor, _ in missing])
        made = exchange.move([file for *_, file in missing], there, homes.name)
        with homes.lock:
            for (dataset, number, executor, file), copy in zip(missing, made, strict=True):
                current = dataset.files and dataset.files[number] is file and executor in homes.alive
                if current and (number, executor) not in dataset.copies:
                    dataset.with_copy(number, executor, copy)
                else:
                    homes.stale.append(copy)

    def _reviewed_wishes(self) -> dict[Copy, list[Dataset]]:
        """Decide which groups have copies; return the datasets that were wished for at these since the last time."""
        with self._lock:
            self._replicas = self._replicas.adapted(self._homes.workers.now(), self._homes.alive)
            found = {copy: list(self._wished.pop(copy)) for copy in sorted(self._replicas.extra & self._wished.keys())}
            self._wished = {copy: each for copy, each in self._wished.items() if copy in self._replicas.wants}
            for datasets in found.values():
                self._datasets.update(datasets)
            return found

    def _group(self, partition: int) -> int:
        grouping = self._homes.grouping
        return grouping.ranges[grouping.group_of(partition)].start
