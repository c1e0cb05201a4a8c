"""Datasets that are partitioned alike and sit together: which executor has what, now and after the next change.

All datasets of a namespace have the same partitions, and corresponding ones the same home. Neighbouring partitions form
groups, one task each. When groups, homes or executors change, nothing moves; the next action on a dataset brings those
of its partitions home that are elsewhere, and computes again those whose executor is gone (Stark, section III).
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from transom.engine.spark import placed
from transom.engine.spark.partitioning import SLICES, Key, Partitioning, heavy_keys
from transom.engine.spark.placed import PlacedFile, Tasks
from transom.engine.spark.sharing import SharedJobs
from transom.errors import DefinitionError, SessionError
from transom.model.time import MICROS_PER_SECOND, Clock, Micros, SystemClock
from transom.placement.balance import Flux
from transom.placement.grouping import Grouping, Sizes
from transom.placement.locality import Assignment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOOK: Micros = MICROS_PER_SECOND
"""Executors that come and go are noticed so soon."""


@dataclass(eq=False)
class Dataset:
    """One dataset of a collection: how it is computed, and where its partitions are."""

    label: Any
    frame: DataFrame
    """What it is computed from, again if need be: the same rows every time."""
    files: list[PlacedFile] = field(default_factory=list)
    """One for each partition; empty while it is evicted."""
    used: int = 0
    """Number of the last action that read it."""
    partitioning: Partitioning | None = None
    """How its rows became partitions, from its first computation on."""

    @property
    def bytes(self) -> int:
        """Bytes of its files."""
        return sum(file.bytes for file in self.files)

    @property
    def rows(self) -> int:
        """Rows of its files."""
        return sum(file.rows for file in self.files)


class Namespace:
    """Partitions, their groups and homes; safe to use from several threads.

    Args:
        spark: A classic session.
        name: For people and files.
        keys: Columns whose hash, or order, gives a row's partition.
        partitions: Number of partitions; never changes.
        elastic: Bytes: two neighbouring groups that are smaller together than the first are merged, one above the
            second is split, by the sizes of the last datasets; what is heavy in a
            partition with more than its share of the second is salted. None: as many groups as there are cores.
        bounds: First key of each partition but the first, ascending; None for partitions by hash.
        last: So many datasets.
        clock: The time.

    Raises:
        DefinitionError: A value cannot be.
        SessionError: The session is a Spark Connect session.
    """

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        keys: Sequence[str],
        partitions: int,
        elastic: tuple[int, int] | None = None,
        last: int = 3,
        clock: Clock | None = None,
        bounds: Sequence[Any] | None = None,
    ) -> None:
        self.partitioning = Partitioning(tuple(keys), partitions, None if bounds is None else tuple(bounds))
        """Of the next dataset."""
        if elastic is not None and not 0 <= elastic[0] <= elastic[1]:
            raise DefinitionError(f"elastic is {elastic}.", "Give bytes for the smallest and the largest group.")
        self.spark, self.name, self.keys = spark, name, tuple(keys)
        self.partitions, self.elastic, self.last = partitions, elastic, last
        self.users = 0
        """Collections that are open."""
        self.key_types: tuple[str, ...] | None = None
        """Of the first dataset; the hash of a number depends on its type."""
        self._lock = threading.RLock()
        self._assignment = Assignment.nowhere(partitions)
        self._sizes: list[list[int]] = []
        self._clock = clock or SystemClock()
        self._looked_at: Micros | None = None
        self._tasks: dict[tuple[Any, ...], Tasks] = {}
        self._stale: list[PlacedFile] = []
        self.shared = SharedJobs()
        """Its counts tell how many questions went into how many jobs."""
        self._alive: dict[str, int] = {}
        self.look(now=True)
        groups = 1 if elastic is not None else min(partitions, sum(self._alive.values()))
        self.grouping = Grouping.even(partitions, max(1, groups))
        self._settle()

    @property
    def homes(self) -> tuple[str | None, ...]:
        """Executor of each partition."""
        return self._assignment.homes

    def look(self, now: bool = False) -> None:
        """Notice executors that came or went, if that was not done just now.

        Raises:
            SessionError: There is no executor.
        """
        with self._lock:
            moment = self._clock.now()
            if not now and self._looked_at is not None and moment < self._looked_at + LOOK:
                return
            self._looked_at = moment
            alive = {each.id: each.cores for each in placed.executors(self.spark)}
            if alive != self._alive:
                self._alive = alive
                if hasattr(self, "grouping"):
                    self._settle()

    def _settle(self) -> None:
        """Give every group a living home, and move groups while that evens out the loads."""
        sizes = self._weights()
        ranges = self.grouping.ranges
        settled = self._assignment.settled(list(self._alive), list(sizes), units=ranges)
        homes = Assignment(tuple(settled.homes[each.start] for each in ranges))
        for move in Flux(most_moves=len(ranges)).moves(homes, list(self.grouping.sizes(sizes)), list(self._alive)):
            settled = settled.moved(dict.fromkeys(ranges[move.group], move.target))
        self._assignment = settled

    def _weights(self) -> Sizes:
        """Return the size of each partition over the last datasets; all alike while there is none."""
        if not self._sizes:
            return np.ones(self.partitions)
        return np.asarray(np.array(self._sizes, np.float64).sum(axis=0))

    def check_keys(self, frame: DataFrame) -> None:
        """Make sure that a dataset can be partitioned like the others.

        Raises:
            DefinitionError: A key is missing, or has another type.
        """
        types = dict(frame.dtypes)
        missing = [key for key in self.keys if key not in types]
        if missing:
            raise DefinitionError(
                f"The dataset has no column {', '.join(missing)}, a key of the namespace {self.name!r}.",
                f"Its columns are {', '.join(types)}.",
            )
        found = tuple(types[key] for key in self.keys)
        with self._lock:
            self.key_types = self.key_types or found
            if found != self.key_types:
                raise DefinitionError(
                    f"The keys {', '.join(self.keys)} are {', '.join(found)}; in the namespace {self.name!r} they are "
                    f"{', '.join(self.key_types)}, and equal values of different types lie in different partitions.",
                    "Cast them, or use another namespace.",
                )

    def materialise(self, dataset: Dataset) -> None:
        """Compute all partitions of a dataset, and adapt the groups to its sizes.

        One job with one exchange; again, once, if a key is found that is too large for a task.
        """
        with self._lock:
            self.look()
            self._sweep()
            first = dataset.partitioning is None
            dataset.partitioning = dataset.partitioning or self.partitioning
            dataset.files = self._placed(dataset)
            share = 0 if self.elastic is None else self.elastic[1] // self.last  # a group holds that of each dataset
            if first and (heavy := self._heavy(dataset, share)):
                self.partitioning = self.partitioning.salted(heavy, share // SLICES)
                if self.partitioning is not dataset.partitioning:
                    old, dataset.partitioning = dataset.files, self.partitioning
                    dataset.files = self._placed(dataset)
                    self._stale += old
            self._sizes = [*self._sizes, [file.bytes for file in dataset.files]][-self.last :]
            if self.elastic is not None:
                self.grouping = self.grouping.adapted(self._weights(), *self.elastic)
            self._settle()

    def _placed(self, dataset: Dataset) -> list[PlacedFile]:
        partitioning = dataset.partitioning or self.partitioning
        return placed.place(dataset.frame, partitioning.of(dataset.frame), self._by_partition(), self.name)

    def _heavy(self, dataset: Dataset, most: int) -> dict[Key, int]:
        """Return bytes of the keys that make a partition larger than this; a job only if there is such a partition."""
        large = [number for number, file in enumerate(dataset.files) if file.bytes > most]
        if most < SLICES or not large:
            return {}
        paths, sizes, keys = [each.path for each in dataset.files], [each.bytes for each in dataset.files], self.keys

        def find(number: int) -> bytes:
            return pickle.dumps(heavy_keys(placed.open_table(paths[number]), keys, sizes[number], most // SLICES))

        found: dict[Key, int] = {}
        for answer in self._by_partition().run(find, large):
            found.update(pickle.loads(answer))
        return found

    def _sweep(self) -> None:
        """Delete the files that were left behind."""
        stale, self._stale = self._stale, []
        if stale:
            placed.remove(stale, self.spark)

    def bring_home(self, datasets: Sequence[Dataset]) -> None:
        """Make all partitions of some datasets be where they belong, computing again what is lost."""
        with self._lock:
            self.look()
            for dataset in datasets:
                if not dataset.files:
                    self.materialise(dataset)
                self._recompute_lost(dataset)
            away = [
                (dataset, number)
                for dataset in datasets
                for number, file in enumerate(dataset.files)
                if file.executor != self._assignment.homes[number]
            ]
            if not away:
                return
            old = [dataset.files[number] for dataset, number in away]
            there = Tasks(self.spark, [self._assignment.homes[number] for _, number in away])
            for (dataset, number), file in zip(away, placed.move(old, there, self.name), strict=True):
                dataset.files[number] = file
            self._stale += old  # deleted before the next dataset is added: whoever asks now does not wait for it

    def _recompute_lost(self, dataset: Dataset) -> None:
        from pyspark.sql import functions as F

        lost = [number for number, file in enumerate(dataset.files) if file.executor not in self._alive]
        if not lost:
            return
        partition = (dataset.partitioning or self.partitioning).of(dataset.frame)
        place = F.array_position(F.array(*map(F.lit, lost)), partition).cast("int") - 1
        tasks = Tasks(self.spark, [self._assignment.homes[number] for number in lost])
        found = placed.place(dataset.frame.where(partition.isin(lost)), place, tasks, self.name)
        for number, file in zip(lost, found, strict=True):
            dataset.files[number] = file

    def plan(self, datasets: Sequence[Dataset]) -> tuple[Tasks, list[list[list[str]]]]:
        """Return one task for each group, and the paths of its partitions by group and dataset; all are at home."""
        with self._lock:
            self.bring_home(datasets)
            ranges = self.grouping.ranges
            paths = [[[dataset.files[p].path for p in each] for dataset in datasets] for each in ranges]
            return self._made([self._assignment.homes[each.start] for each in ranges]), paths

    def run(self, datasets: Sequence[Dataset], function: Callable[[list[pa.Table]], bytes]) -> list[bytes]:
        """Return what the function gives for the tables of each group, one per dataset; a job without an exchange.

        What several threads ask while jobs run shares the next job.

        A host that vanished during the job is noticed, and what was there is computed again, once.
        """
        tasks, paths = self.plan(datasets)
        try:
            return self.shared.run(tasks, _on_tables(paths, function))
        except Exception as error:
            if "FileNotFoundError" not in str(error):
                raise
            self.look(now=True)
            with self._lock:
                for dataset in datasets:
                    dataset.files = []
            tasks, paths = self.plan(datasets)
            return self.shared.run(tasks, _on_tables(paths, function))

    def free(self, dataset: Dataset) -> None:
        """Remove the files of a dataset; it is computed again when it is used."""
        with self._lock:
            self._stale, dataset.files = [*self._stale, *dataset.files], []
            self._sweep()

    def _by_partition(self) -> Tasks:
        return self._made(list(self._assignment.homes))

    def _made(self, homes: list[str | None]) -> Tasks:
        """Return tasks with these homes, made once: it takes some milliseconds for each of them."""
        key = tuple(homes)
        if key not in self._tasks:
            if len(self._tasks) > 8:
                self._tasks.clear()
            self._tasks[key] = Tasks(self.spark, homes)
        return self._tasks[key]


def _on_tables(paths: list[list[list[str]]], function: Callable[[list[pa.Table]], bytes]) -> Callable[[int], bytes]:
    def run(group: int) -> bytes:
        return function(tables_of(paths[group]))

    return run


def tables_of(paths: Sequence[Sequence[str]]) -> list[pa.Table]:
    """Return one table for each dataset, of some partitions of it; without copying."""
    return [pa.concat_tables([placed.open_table(path) for path in each]) for each in paths]


_KNOWN: dict[tuple[str, str], Namespace] = {}


def namespace(
    spark: SparkSession,
    name: str,
    keys: Sequence[str],
    partitions: int,
    elastic: tuple[int, int] | None,
    bounds: Sequence[Any] | None = None,
) -> Namespace:
    """Return the namespace of this name in the application, a new one if there is none; until `leave`.

    Raises:
        DefinitionError: It exists and is partitioned in another way.
    """
    if not hasattr(spark, "_jsparkSession"):
        raise SessionError(
            "Collections need a classic Spark session; this one is a Spark Connect session.",
            "Make it with session_builder() on the machine of the driver.",
        )
    application = spark.sparkContext.applicationId
    for other in [each for each in _KNOWN if each[0] != application]:
        del _KNOWN[other]
    known = _KNOWN.get((application, name))
    if known is None:
        known = _KNOWN[application, name] = Namespace(spark, name, keys, partitions, elastic, bounds=bounds)
    wanted = None if bounds is None else tuple(bounds)
    if known.partitions != partitions or len(known.keys) != len(keys) or known.partitioning.bounds != wanted:
        raise DefinitionError(
            f"The namespace {name!r} has {known.partitions} partitions by {len(known.keys)} keys, "
            f"not {partitions} by {len(keys)}, or other bounds.",
            "Datasets of one namespace are partitioned alike: use the same, or another namespace.",
        )
    known.users += 1
    return known


def leave(known: Namespace) -> None:
    """Note that a collection is closed; with the last one the name is free for other partitions."""
    known.users -= 1
    if known.users == 0:
        _KNOWN.pop((known.spark.sparkContext.applicationId, known.name), None)
