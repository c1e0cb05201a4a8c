"""Datasets that are partitioned alike and sit together: made, asked, derived from one another, and forgotten.

All datasets of a namespace have the same partitions, and corresponding ones the same home. Neighbouring partitions form
groups, one task each (Stark, section III).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from transom.collections.batching import GroupQuestion, Question, SharedJobs
from transom.collections.checkpointing import Checkpointer, Recovery
from transom.collections.datasets import Dataset
from transom.collections.homes import Homes
from transom.collections.partitioning import Partitioning
from transom.collections.placing import Placing
from transom.collections.replicas import Copies
from transom.collections.restoring import Restorer
from transom.collections.steps import OnTables
from transom.collections.workers import Workers, workers
from transom.engine.placed.files import file_name
from transom.engine.placed.placed import Tasks
from transom.errors import DefinitionError
from transom.model.time import MICROS_PER_SECOND, Clock, Micros, SystemClock
from transom.placement.grouping import Grouping
from transom.placement.locality import ExecutorId

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE: Micros = 60 * MICROS_PER_SECOND
"""Longest wait for executors that are missing, unless a namespace says otherwise."""


@dataclass(frozen=True)
class NamespaceSpec:
    """The partitions of a namespace, and what holds for all of its datasets."""

    keys: tuple[str, ...]
    """Columns whose hash, or order, gives a row's partition."""
    partitions: int
    """Number of partitions; never changes."""
    elastic: tuple[int, int] | None = None
    """Bytes: two neighbouring groups that are smaller together than the first are merged, one above the second is
    split, by the sizes of the last datasets; what is heavy in a partition with more than its share of the second is
    salted. None: as many groups as there are cores."""
    bounds: tuple[Any, ...] | None = None
    """First key of each partition but the first, ascending; None for partitions by hash."""
    patience: Micros = PATIENCE
    """Time to wait for executors while there is none, or what is needed of them is lost."""
    last: int = 3
    """So many datasets count for the sizes of groups."""


class Namespace:
    """Partitions, their groups and homes; safe to use from several threads.

    Args:
        spark: A classic session.
        name: For people and files.
        spec: Its partitions.
        clock: The time.
        shared_workers: The executors; those that all namespaces of the application share, if not given.

    Raises:
        DefinitionError: A value cannot be.
        SessionError: The session is a Spark Connect session.
    """

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        spec: NamespaceSpec,
        clock: Clock | None = None,
        shared_workers: Workers | None = None,
    ) -> None:
        partitioning = Partitioning(spec.keys, spec.partitions, spec.bounds)
        self.spark, self.spec, self.name = spark, spec, name
        self.users = 0
        """Collections that are open."""
        self.workers = shared_workers or workers(spark)
        self._homes = homes = Homes(spark, name, spec.partitions, self.workers, clock or SystemClock(), spec.patience)
        self.placing = Placing(homes, partitioning, spec.elastic[1] // spec.last if spec.elastic else 0)
        """Places new datasets; a group holds the share of each of the last."""
        self._restorer = Restorer(homes, spec.keys)
        self.copies = Copies(homes)
        """Of groups that are wanted more than their homes can serve."""
        self.shared = SharedJobs(self.workers, homes.held, self.copies.ran)
        """Its counts tell how many questions went into how many jobs."""

    def __repr__(self) -> str:
        counts = Counter(self._homes.of(group) for group in self.grouping.ranges)
        homes = ", ".join(f"{count} at executor {home}" for home, count in sorted(counts.items(), key=str))
        copies = f", {len(self.copies.wanted)} copied elsewhere" if self.copies.wanted else ""
        by = ", ".join(self.keys)
        return f"Namespace({self.name!r}, {self.spec.partitions} partitions by {by}, groups: {homes}{copies})"

    @property
    def keys(self) -> tuple[str, ...]:
        """Columns whose hash, or order, gives a row's partition."""
        return self.spec.keys

    @property
    def homes(self) -> tuple[ExecutorId | None, ...]:
        """Executor of each partition."""
        return self._homes.by_partition

    @property
    def grouping(self) -> Grouping:
        """The neighbouring partitions that are one task each."""
        return self._homes.grouping

    @property
    def checkpointer(self) -> Checkpointer | None:
        """Keeps the bound for recovery; None while there is none."""
        return self._restorer.checkpointer

    def look(self, now: bool = False) -> None:
        """Notice executors that came or went, if that was not done just now.

        Raises:
            SessionError: There is no executor.
        """
        self._homes.look(now)

    # ---- datasets

    def materialise(self, dataset: Dataset) -> None:
        """Compute all partitions of a new dataset, and adapt the groups to its sizes."""
        homes = self._homes
        with homes.lock:
            homes.sweep()
            homes.outlasting(lambda: self.placing.place(dataset))
            if dataset.frame is not None:
                self.placing.placed(dataset.frame)
            sizes = [file.bytes for file in dataset.files]
            self.copies.forget(homes.regroup(sizes, self.spec.last, self.spec.elastic))
            homes.outlasting(lambda: self._note(dataset))

    def derive(self, dataset: Dataset) -> pa.Schema:
        """Make a dataset from its parents, checkpoint what has to be, and return its columns: one job or two.

        Raises:
            DefinitionError: What its function gives is not a partition of it.
        """
        homes = self._homes
        with homes.lock:
            homes.sweep()
            schema = homes.outlasting(lambda: self._restorer.derive(dataset))
            homes.outlasting(lambda: self._note(dataset))
            return schema

    def recover(self, recovery: Recovery) -> None:
        """Keep a bound for recovery from now on.

        Raises:
            DefinitionError: There is another one.
        """
        with self._homes.lock:
            if self.checkpointer is None:
                name = f"{self.spark.sparkContext.applicationId}-{file_name(self.name)}"
                self._restorer.checkpointer = Checkpointer(recovery, name)
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

    def bring_home(self, datasets: Sequence[Dataset]) -> None:
        """Make all partitions of some datasets be where they belong, computing again what is lost."""
        self._restorer.bring_home(datasets)

    def tasks(self, homes: list[str | None]) -> Tasks:
        """Return tasks with these homes."""
        return self._homes.tasks(homes)

    def forget(self, dataset: Dataset) -> None:
        """Remove the files of a dataset that is not asked for any more."""
        with self._homes.lock:
            self.free(dataset)
            if self.checkpointer is not None:
                self.checkpointer.forget(dataset)

    def free(self, dataset: Dataset) -> None:
        """Remove the files of a dataset; it is computed again when it is used."""
        with self._homes.lock:
            self._homes.leave(dataset)
            self._homes.sweep()

    # ---- questions

    def plan(self, datasets: Sequence[Dataset]) -> tuple[Tasks, list[list[list[str]]]]:
        """Return one task for each group, and the paths of its partitions by group and dataset; all are at home."""

        def made() -> tuple[Tasks, list[list[list[str]]]]:
            with self._homes.lock:
                self.bring_home(datasets)
                ranges = self.grouping.ranges
                paths = [[[dataset.files[p].path for p in each] for dataset in datasets] for each in ranges]
                return self.tasks([self._homes.of(each) for each in ranges]), paths

        return self._homes.outlasting(made)

    def parts(self, datasets: Sequence[Dataset], partitions: Collection[int] | None = None) -> list[GroupQuestion]:
        """Return what a question asks of each group, all of it at home.

        Args:
            datasets: In the order of the function's tables.
            partitions: Without the others; None for all.
        """
        with self._homes.lock:
            self.bring_home(datasets)
            alive, found = self._homes.alive, []
            for each in self.grouping.ranges:
                numbers = [number for number in each if partitions is None or number in partitions]
                home = self._homes.of(each)
                if not numbers or home is None:
                    continue
                files = [[dataset.files[number] for number in numbers] for dataset in datasets]
                paths = {home: [[file.path for file in one] for one in files]}
                for executor in self.copies.of(each.start):
                    keys = [(number, executor) for number in numbers]
                    if executor in alive and all(key in dataset.copies for dataset in datasets for key in keys):
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
                self._restorer.mark_missing(datasets)

        answers = self._homes.outlasting(ask, look_again)
        self.copies.adapt_soon()
        return answers
