"""Datasets that are partitioned alike and sit together: which executor has what, now and after the next change.

All datasets of a namespace have the same partitions, and corresponding ones the same home. Neighbouring partitions form
groups, one task each. When groups, homes or executors change, nothing moves; the next action on a dataset brings those
of its partitions home that are elsewhere, and computes again those whose executor is gone (Stark, section III).
"""

from __future__ import annotations

import logging
import pickle
import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from transom.collections.batching import GroupQuestion, Question, SharedJobs
from transom.collections.checkpointing import Checkpointer, Recovery
from transom.collections.datasets import Dataset
from transom.collections.keyvalues import key_types
from transom.collections.partitioning import SLICES, Key, Partitioning, heavy_keys
from transom.collections.replicas import Copies
from transom.collections.restoring import derive, mark_missing, restore
from transom.collections.steps import OnTables
from transom.collections.workers import Workers, workers
from transom.engine.placed import exchange, placed
from transom.engine.placed.outlasting import outlasting
from transom.engine.placed.placed import PlacedFile, Tasks
from transom.errors import DefinitionError
from transom.failures import FailureKind, classify
from transom.model.time import MICROS_PER_SECOND, Clock, Micros, SystemClock
from transom.placement.grouping import Grouping
from transom.placement.layout import Layout
from transom.placement.locality import ExecutorId

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOOK: Micros = MICROS_PER_SECOND
"""Executors that come and go are noticed so soon."""
PATIENCE: Micros = 60 * MICROS_PER_SECOND
"""Longest wait for executors that are missing, unless a namespace says otherwise."""
logger = logging.getLogger(__name__)

Result = TypeVar("Result")


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
        shared_workers: The executors; those that all namespaces of the application share, if not given.
        patience: How long to wait for executors while there is none, or what is needed of them is lost.

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
        shared_workers: Workers | None = None,
        patience: Micros = PATIENCE,
    ) -> None:
        self.partitioning = Partitioning(tuple(keys), partitions, None if bounds is None else tuple(bounds))
        """Of the next dataset."""
        self.spark, self.name, self.keys = spark, name, tuple(keys)
        self.partitions, self.elastic, self.last, self.patience = partitions, elastic, last, patience
        self.users = 0
        """Collections that are open."""
        self.key_types: tuple[str, ...] | None = None
        """Of the first dataset; the hash of a number depends on its type."""
        self.lock = threading.RLock()
        """Held while anything of it changes."""
        self._clock = clock or SystemClock()
        self._tasks: dict[tuple[Any, ...], Tasks] = {}
        self.stale: list[PlacedFile] = []
        """Files that were left behind, to be deleted when nobody waits for it."""
        self.checkpointer: Checkpointer | None = None
        """None while no bound is set for recovery."""
        self.workers = shared_workers or workers(spark)
        self.copies = Copies(self)
        """Of groups that are wanted more than their homes can serve."""
        self.shared = SharedJobs(self.workers, lambda: self._layout.held(self.copies.wanted), self.copies.ran)
        """Its counts tell how many questions went into how many jobs."""
        self.alive: dict[ExecutorId, int] = self.workers.look()
        """Cores of the executors."""
        self._looked_at = self._clock.monotonic()
        groups = min(partitions, sum(self.alive.values()))
        self._layout = Layout.beginning(partitions, max(1, groups), self.alive)

    def __repr__(self) -> str:
        counts = Counter(self._layout.home(group) for group in self.grouping.ranges)
        homes = ", ".join(f"{count} at executor {home}" for home, count in sorted(counts.items(), key=str))
        copies = f", {len(self.copies.wanted)} copied elsewhere" if self.copies.wanted else ""
        by = ", ".join(self.keys)
        return f"Namespace({self.name!r}, {self.partitions} partitions by {by}, groups: {homes}{copies})"

    @property
    def homes(self) -> tuple[ExecutorId | None, ...]:
        """Executor of each partition."""
        return self._layout.homes

    @property
    def grouping(self) -> Grouping:
        """The neighbouring partitions that are one task each."""
        return self._layout.grouping

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
                self._layout = self._layout.with_executors(alive, self.copies.wanted)

    def check_keys(self, frame: DataFrame, schema: pa.Schema) -> None:
        """Make sure that a dataset, which has these columns, can be partitioned like the others.

        Raises:
            DefinitionError: A key is missing, or has another type.
        """
        key_types(frame, self.keys, self.key_types, self.name)
        self.partitioning.check([schema.field(key).type for key in self.keys])

    def materialise(self, dataset: Dataset) -> None:
        """Compute all partitions of a new dataset, and adapt the groups to its sizes.

        One job with one exchange; again, once, if a key is found that is too large for a task.
        """
        with self.lock:
            self._sweep()
            self._outlasting(lambda: self._place(dataset))
            if dataset.frame is not None:
                self.key_types = key_types(dataset.frame, self.keys, self.key_types, self.name)
            before, sizes = self.grouping, [file.bytes for file in dataset.files]
            self._layout = self._layout.with_dataset(sizes, self.last, self.elastic)
            self.copies.forget({each.start for each in set(before.ranges) - set(self.grouping.ranges)})
            self._outlasting(lambda: self._note(dataset))

    def derive(self, dataset: Dataset) -> pa.Schema:
        """Make a dataset from its parents, checkpoint what has to be, and return its columns: one job or two.

        Raises:
            DefinitionError: What its function gives is not a partition of it.
        """
        with self.lock:
            self._sweep()
            schema = self._outlasting(lambda: derive(self, dataset))
            self._outlasting(lambda: self._note(dataset))
            return schema

    def _outlasting(self, action: Callable[[], Result]) -> Result:
        """Return what an action gives that can be done again, while executors come and go."""
        return outlasting(action, self.patience, self._clock, lambda _: self.look(now=True))

    def recover(self, recovery: Recovery) -> None:
        """Keep a bound for recovery from now on.

        Raises:
            DefinitionError: There is another one.
        """
        with self.lock:
            if self.checkpointer is None:
                name = f"{self.spark.sparkContext.applicationId}-{placed.file_name(self.name)}"
                self.checkpointer = Checkpointer(recovery, name)
            elif self.checkpointer.recovery != recovery:
                raise DefinitionError(
                    f"recovery is {recovery}; the namespace {self.name!r} has {self.checkpointer.recovery}.",
                    "Give it to one collection of the namespace only, or the same to all.",
                )

    def _note(self, dataset: Dataset) -> None:
        """Tell what was made, and checkpoint what has to be for it."""
        if self.checkpointer is None:
            return
        self.checkpointer.take_in(dataset)
        if chosen := self.checkpointer.due(dataset):
            self.bring_home(chosen)
            for each, paths in zip(chosen, self.checkpointer.write(chosen, self.tasks), strict=True):
                each.truncate(paths)

    def _place(self, dataset: Dataset) -> None:
        """Place a new dataset, and again what salts it needs; what an earlier try left is left behind."""
        self.look()
        self._leave(dataset)
        begun = self._clock.monotonic()
        dataset.partitioning = self.partitioning
        dataset.files = self._placed(dataset)
        dataset.delay = (self._clock.monotonic() - begun) / MICROS_PER_SECOND
        share = 0 if self.elastic is None else self.elastic[1] // self.last  # a group holds that of each dataset
        if heavy := self._heavy(dataset, share):
            salted = self.partitioning.salted(heavy, share // SLICES)
            if salted is not self.partitioning:
                self._leave(dataset)
                dataset.partitioning = self.partitioning = salted
                dataset.files = self._placed(dataset)

    def _placed(self, dataset: Dataset) -> list[PlacedFile]:
        partitioning = dataset.partitioning or self.partitioning
        frame: Any = dataset.frame
        return placed.place(frame, partitioning.of(frame), self._by_partition(), self.name)

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
        """Delete the files that were left behind; those that cannot be deleted now are tried again later."""
        try:
            if self.stale:
                placed.remove(self.stale, self.spark)
            self.stale = []
        except Exception as error:
            logger.info("%s: files are deleted later: %s", self.name, classify(error).reason)

    def bring_home(self, datasets: Sequence[Dataset]) -> None:
        """Make all partitions of some datasets be where they belong, computing again what is lost."""
        with self.lock:
            self.look()
            try:
                self._restore(datasets)
            except Exception as error:
                if classify(error).kind is not FailureKind.PARTITION_GONE:
                    raise
                mark_missing(self, datasets)
                self._restore(datasets)
            homes = self.homes
            away = []
            for dataset in datasets:
                for number, file in enumerate(dataset.files):
                    if file.executor == (home := homes[number]):
                        continue
                    if home is not None and (copy := dataset.without_copy(number, home)):
                        self.stale.append(file)
                        dataset.files[number] = copy
                    else:
                        away.append((dataset, number))
            if away:
                self.carry_home(away)

    def carry_home(self, away: Sequence[tuple[Dataset, int]]) -> None:
        """Move partitions that are there to where they belong: one exchange."""
        with self.lock:
            old = [dataset.files[number] for dataset, number in away]
            there = Tasks(self.spark, [self.homes[number] for _, number in away])
            for (dataset, number), file in zip(away, exchange.move(old, there, self.name), strict=True):
                dataset.files[number] = file
            self.stale += old  # deleted before the next dataset is added: whoever asks now does not wait for it

    def _restore(self, datasets: Sequence[Dataset]) -> None:
        """Take what is lost from copies, and make the rest of it again."""
        for dataset in datasets:
            for number, executor in dataset.copies:
                there = executor in self.alive and dataset.files and dataset.lacks(number, self.alive)
                if there and (copy := dataset.without_copy(number, executor)):
                    dataset.files[number] = copy
        restore(self, datasets)

    def plan(self, datasets: Sequence[Dataset]) -> tuple[Tasks, list[list[list[str]]]]:
        """Return one task for each group, and the paths of its partitions by group and dataset; all are at home."""

        def made() -> tuple[Tasks, list[list[list[str]]]]:
            with self.lock:
                self.bring_home(datasets)
                ranges = self.grouping.ranges
                paths = [[[dataset.files[p].path for p in each] for dataset in datasets] for each in ranges]
                return self.tasks([self._layout.home(each) for each in ranges]), paths

        return self._outlasting(made)

    def parts(self, datasets: Sequence[Dataset], partitions: Collection[int] | None = None) -> list[GroupQuestion]:
        """Return what a question asks of each group, all of it at home.

        Args:
            datasets: In the order of the function's tables.
            partitions: Without the others; None for all.
        """
        with self.lock:
            self.bring_home(datasets)
            found = []
            for each in self.grouping.ranges:
                numbers = [number for number in each if partitions is None or number in partitions]
                home = self._layout.home(each)
                if not numbers or home is None:
                    continue
                files = [[dataset.files[number] for number in numbers] for dataset in datasets]
                paths = {home: [[file.path for file in one] for one in files]}
                for executor in self.copies.of(each.start):
                    keys = [(number, executor) for number in numbers]
                    if executor in self.alive and all(key in dataset.copies for dataset in datasets for key in keys):
                        paths[executor] = [[dataset.copies[key].path for key in keys] for dataset in datasets]
                found.append(GroupQuestion(each.start, sum(file.bytes for one in files for file in one), paths))
            return found

    def run(
        self,
        datasets: Sequence[Dataset],
        function: Callable[[list[pa.Table]], bytes],
        partitions: Collection[int] | None = None,
        most_wait: float = 0.1,
        due: float | None = None,
    ) -> list[bytes]:
        """Return what the function gives for the tables of each group, one per dataset; a job without an exchange.

        What several threads ask while jobs run shares the next job. While executors are missing or lost, it waits for
        others (`patience`) and asks again; what was there is computed again.

        Args:
            datasets: In the order of the function's tables.
            function: Runs at the executors.
            partitions: Without the others; None for all.
            most_wait: Seconds that a task waits where its data is while other executors are idle.
            due: Second of `workers.now()` at which the answer is wanted; None for no hurry.
        """

        def ask() -> list[bytes]:
            parts = self.parts(datasets, partitions)
            return self.shared.run(Question(parts, OnTables(function), most_wait, due, subject=datasets))

        def look_again(tries: int) -> None:
            self.look(now=True)
            if tries > 1:
                mark_missing(self, datasets)

        answers = outlasting(ask, self.patience, self._clock, look_again)
        self.copies.adapt_soon()
        return answers

    def _leave(self, dataset: Dataset) -> None:
        """Leave the files of a dataset behind."""
        self.stale += [*dataset.files, *dataset.copies.values()]
        dataset.files, dataset.copies = [], {}

    def forget(self, dataset: Dataset) -> None:
        """Remove the files of a dataset that is not asked for any more."""
        with self.lock:
            self.free(dataset)
            if self.checkpointer is not None:
                self.checkpointer.forget(dataset)

    def free(self, dataset: Dataset) -> None:
        """Remove the files of a dataset; it is computed again when it is used."""
        with self.lock:
            self._leave(dataset)
            self._sweep()

    def _by_partition(self) -> Tasks:
        return self.tasks(list(self.homes))

    def tasks(self, homes: list[str | None]) -> Tasks:
        """Return tasks with these homes, made once: it takes some milliseconds for each of them."""
        key = tuple(homes)
        if key not in self._tasks:
            if len(self._tasks) > 8:
                self._tasks.clear()
            self._tasks[key] = Tasks(self.spark, homes)
        return self._tasks[key]
