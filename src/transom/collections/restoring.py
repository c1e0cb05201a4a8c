"""Restoring datasets: missing partitions, and only those, are exchanged, read from checkpoints or derived again.

At most two jobs, however much is missing: one exchange for all datasets with a frame whose columns are alike, then one
task for each group of partitions, which reads what is there and derives the rest (`deriving`).
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path

import pyarrow as pa

from transom.collections.checkpointing import Checkpointer
from transom.collections.datasets import Dataset, with_ancestors
from transom.collections.deriving import Gap, Made, Step, common_schema, executing
from transom.collections.homes import Homes
from transom.engine.placed import placed
from transom.engine.placed.files import PlacedFile
from transom.engine.placed.outlasting import passes
from transom.engine.placed.placed import PARTITION, Tasks
from transom.errors import SourceError, TransomError
from transom.failures import FailureKind, classify
from transom.model.time import MICROS_PER_SECOND, SystemClock

GONE = ""
"""Executor of a file that is not there any more."""


class Restorer:
    """Makes partitions be where they belong, whatever has become of the executors that had them.

    Args:
        homes: Where the partitions belong.
        keys: The columns by which they are partitioned.
    """

    def __init__(self, homes: Homes, keys: tuple[str, ...]) -> None:
        self.homes, self.keys = homes, keys
        self.checkpointer: Checkpointer | None = None
        """None while no bound is set for recovery."""

    def bring_home(self, datasets: Sequence[Dataset]) -> None:
        """Make all partitions of some datasets be where they belong, computing again what is lost."""
        with self.homes.lock:
            self.homes.look()
            try:
                self._restore(datasets)
            except Exception as error:
                if classify(error).kind is not FailureKind.PARTITION_GONE:
                    raise
                self.mark_missing(datasets)
                self._restore(datasets)
            if away := self._take_copies_home(datasets):
                self.homes.carry_home(away)

    def _take_copies_home(self, datasets: Sequence[Dataset]) -> list[tuple[Dataset, int]]:
        """Use the copies that are at the homes of partitions which are elsewhere; return those without one."""
        homes, away = self.homes.by_partition, []
        for dataset in datasets:
            for number, file in enumerate(dataset.files):
                if file.executor == (home := homes[number]):
                    continue
                if home is not None and (copy := dataset.without_copy(number, home)):
                    self.homes.stale.append(file)
                    dataset.files[number] = copy
                else:
                    away.append((dataset, number))
        return away

    def _restore(self, datasets: Sequence[Dataset]) -> None:
        """Take what is lost from copies, and make the rest of it again."""
        alive = self.homes.alive
        for dataset in datasets:
            for number, executor in dataset.copies:
                there = executor in alive and dataset.files and dataset.lacks(number, alive)
                if there and (copy := dataset.without_copy(number, executor)):
                    dataset.files[number] = copy
        self._make_again(datasets)

    def derive(self, dataset: Dataset) -> pa.Schema:
        """Make all partitions of a new dataset from those of its parents, and return its columns: one job.

        Its files, delay and what the job took beyond that are noted in it.

        Raises:
            DefinitionError: What the function gave is not a partition: not a table, of other columns, with other keys.
        """
        with self.homes.lock:
            self.bring_home(dataset.parents)
            gap = Gap.of([dataset], self.homes.by_partition, self.homes.alive)
            begun = SystemClock().monotonic()
            made = self._executed(gap, {}, check=True)
            seconds = (SystemClock().monotonic() - begun) / MICROS_PER_SECOND
            results = [each for task in made for each in task.values()]
            try:
                schema = common_schema([steps[-1] for steps in results])
            except BaseException:  # nobody will ask for these files
                self.homes.stale += [file for steps in results for each in steps if (file := each.file) is not None]
                raise
            self._kept(gap, made, {})
            dataset.delay = max(sum(steps[-1].seconds for steps in task.values()) for task in made)
            dataset.started = max(0.0, seconds - dataset.delay)
            return schema

    def _make_again(self, datasets: Sequence[Dataset]) -> None:
        """Make everything that is missing of some datasets, at its home."""
        gap = Gap.of(datasets, self.homes.by_partition, self.homes.alive)
        if not gap.missing:
            return
        begun = SystemClock().monotonic()
        fresh = self._exchanged(gap.exchanged())
        try:
            if gap.away:
                self.homes.carry_home(gap.away)
            made = self._executed(gap, fresh, check=False)
        except BaseException:  # nobody will ask for these files
            self.homes.stale += fresh.values()
            raise
        self._kept(gap, made, fresh)
        if self.checkpointer is not None:
            self.checkpointer.recovered(datasets, (SystemClock().monotonic() - begun) / MICROS_PER_SECOND)

    def mark_missing(self, datasets: Sequence[Dataset]) -> None:
        """Look which files of datasets, and of what they are made from, are not there; they count as lost. One job."""
        with self.homes.lock:
            everything = [each for each in with_ancestors(datasets) if each.files]
            by_home: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
            for place, dataset in enumerate(everything):
                for number, file in enumerate(dataset.files):
                    if file.executor in self.homes.alive:
                        by_home[file.executor].append((place, number, file.path))
            homes = sorted(by_home)

            def look(task: int) -> bytes:
                there = by_home[homes[task]]
                return pickle.dumps([(place, number) for place, number, path in there if not Path(path).exists()])

            for answer in Tasks(self.homes.spark, homes).run(look) if homes else []:
                for place, number in pickle.loads(answer):
                    files = everything[place].files
                    files[number] = replace(files[number], executor=GONE)

    def _exchanged(self, wanted: Mapping[Dataset, Sequence[int]]) -> dict[tuple[Dataset, int], PlacedFile]:
        """Return partitions of datasets with a frame, computed again: a job for all whose columns are alike.

        Raises:
            SourceError: One cannot be computed any more.
        """
        alike: dict[str, list[Dataset]] = defaultdict(list)
        for dataset in wanted:
            if dataset.frame is not None:
                alike[str(dataset.frame.dtypes)].append(dataset)
        found: dict[tuple[Dataset, int], PlacedFile] = {}
        try:
            for datasets in alike.values():
                try:
                    found.update(self._together(datasets, wanted))
                except Exception as error:
                    if isinstance(error, TransomError) or passes(error):
                        raise
                    for dataset in datasets:  # alone, to find which one it is
                        found.update(self._alone(dataset, wanted))
        except BaseException:  # nobody will ask for these files
            self.homes.stale += found.values()
            raise
        return found

    def _alone(
        self, dataset: Dataset, wanted: Mapping[Dataset, Sequence[int]]
    ) -> dict[tuple[Dataset, int], PlacedFile]:
        """Return partitions of one dataset, computed again.

        Raises:
            SourceError: They cannot be.
        """
        try:
            return self._together([dataset], wanted)
        except Exception as error:
            if isinstance(error, TransomError) or passes(error):
                raise
            raise SourceError(
                f"{dataset.kind}: the dataset {dataset.label!r} was evicted, or lost with its executor, and cannot be "
                f"computed again: {classify(error).reason}.",
                "Bring back what its DataFrame reads; or drop the dataset, and add it again from another one.",
            ) from error

    def _together(
        self, datasets: Sequence[Dataset], wanted: Mapping[Dataset, Sequence[int]]
    ) -> dict[tuple[Dataset, int], PlacedFile]:
        """Return partitions of datasets whose columns are alike, computed again in one job."""
        from pyspark.sql import DataFrame
        from pyspark.sql import functions as F

        frames: list[DataFrame] = []
        slots: list[tuple[Dataset, int]] = []
        for dataset in datasets:
            frame, numbers = dataset.frame, list(wanted[dataset])
            assert frame is not None
            assert dataset.partitioning is not None, "it was placed"
            partition = dataset.partitioning.of(frame)
            place = F.array_position(F.array(*map(F.lit, numbers)), partition) - 1 + len(slots)
            frames.append(frame.where(partition.isin(numbers)).withColumn(PARTITION, place.cast("int")))
            slots += [(dataset, number) for number in numbers]
        tasks = Tasks(self.homes.spark, [self.homes.by_partition[number] for _, number in slots])
        files = placed.place_numbered(reduce(DataFrame.unionAll, frames), tasks, self.homes.name)
        return dict(zip(slots, files, strict=True))

    def _executed(
        self,
        gap: Gap,
        fresh: Mapping[tuple[Dataset, int], PlacedFile],
        check: bool,
    ) -> list[dict[int, list[Made]]]:
        """Run the programs of all missing partitions, and return what came of them; by task."""
        programs: list[dict[int, list[Step]]] = []
        homes: list[str | None] = []
        for each in self.homes.grouping.ranges:
            group = {number: gap.program(number, fresh)[0] for number in each if number in gap.missing}
            if group := {number: program for number, program in group.items() if program}:
                programs.append(group)
                homes.append(self.homes.by_partition[each.start])
        if not programs:
            return []
        application = self.homes.spark.sparkContext.applicationId
        answers = self.homes.tasks(homes).run(executing(programs, application, self.keys, check))
        return [pickle.loads(answer) for answer in answers]

    def _kept(
        self,
        gap: Gap,
        made: Sequence[Mapping[int, Sequence[Made]]],
        fresh: Mapping[tuple[Dataset, int], PlacedFile],
    ) -> None:
        """Note where the missing partitions are now."""
        found: dict[Dataset, dict[int, PlacedFile]] = defaultdict(dict)
        for (dataset, number), file in fresh.items():
            if gap.keeps(dataset):
                found[dataset][number] = file
            else:
                self.homes.stale.append(file)
        for task in made:
            for number, steps in task.items():
                for place, dataset in gap.program(number, fresh)[1].items():
                    kept = steps[place].file
                    assert kept is not None
                    found[dataset][number] = replace(kept, executor=self.homes.by_partition[number] or GONE)
        for dataset, files in found.items():
            dataset.files = [files.get(number) or dataset.files[number] for number in range(self.homes.partitions)]
