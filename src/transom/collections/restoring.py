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
from typing import TYPE_CHECKING

import pyarrow as pa

from transom.collections.datasets import Dataset, with_ancestors
from transom.collections.deriving import Gap, Made, Step, common_schema, executing
from transom.engine.placed import placed
from transom.engine.placed.outlasting import passes
from transom.engine.placed.placed import PARTITION, PlacedFile, Tasks
from transom.errors import SourceError, TransomError
from transom.failures import classify
from transom.model.time import MICROS_PER_SECOND, SystemClock

if TYPE_CHECKING:
    from transom.collections.namespaces import Namespace

GONE = ""
"""Executor of a file that is not there any more."""


def derive(namespace: Namespace, dataset: Dataset) -> pa.Schema:
    """Make all partitions of a new dataset from those of its parents, and return its columns: one job.

    Its files, delay and what the job took beyond that are noted in it.

    Raises:
        DefinitionError: What the function gave is not a partition: not a table, of other columns, with other keys.
    """
    with namespace.lock:
        namespace.bring_home(dataset.parents)
        gap = Gap.of([dataset], namespace.homes, namespace.alive)
        begun = SystemClock().monotonic()
        made = _executed(namespace, gap, {}, check=True)
        seconds = (SystemClock().monotonic() - begun) / MICROS_PER_SECOND
        results = [each for task in made for each in task.values()]
        try:
            schema = common_schema([steps[-1] for steps in results])
        except Exception:  # nobody will ask for these files
            namespace.stale += [file for steps in results for each in steps if (file := each.file) is not None]
            raise
        _kept(namespace, gap, made, {})
        dataset.delay = max(sum(steps[-1].seconds for steps in task.values()) for task in made)
        dataset.started = max(0.0, seconds - dataset.delay)
        return schema


def restore(namespace: Namespace, datasets: Sequence[Dataset]) -> None:
    """Make everything that is missing of some datasets, at its home."""
    gap = Gap.of(datasets, namespace.homes, namespace.alive)
    if not gap.missing:
        return
    begun = SystemClock().monotonic()
    fresh = _exchanged(namespace, gap.exchanged())
    try:
        if gap.away:
            namespace.carry_home(gap.away)
        made = _executed(namespace, gap, fresh, check=False)
    except Exception:  # nobody will ask for these files
        namespace.stale += fresh.values()
        raise
    _kept(namespace, gap, made, fresh)
    if namespace.checkpointer is not None:
        namespace.checkpointer.recovered(datasets, (SystemClock().monotonic() - begun) / MICROS_PER_SECOND)


def mark_missing(namespace: Namespace, datasets: Sequence[Dataset]) -> None:
    """Look which files of datasets, and of what they are made from, are not there; they count as lost. One job."""
    with namespace.lock:
        everything = [each for each in with_ancestors(datasets) if each.files]
        by_home: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
        for place, dataset in enumerate(everything):
            for number, file in enumerate(dataset.files):
                if file.executor in namespace.alive:
                    by_home[file.executor].append((place, number, file.path))
        homes = sorted(by_home)

        def look(task: int) -> bytes:
            there = by_home[homes[task]]
            return pickle.dumps([(place, number) for place, number, path in there if not Path(path).exists()])

        for answer in Tasks(namespace.spark, homes).run(look) if homes else []:
            for place, number in pickle.loads(answer):
                files = everything[place].files
                files[number] = replace(files[number], executor=GONE)


def _exchanged(namespace: Namespace, wanted: Mapping[Dataset, Sequence[int]]) -> dict[tuple[Dataset, int], PlacedFile]:
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
                found.update(_together(namespace, datasets, wanted))
            except Exception as error:
                if isinstance(error, TransomError) or passes(error):
                    raise
                for dataset in datasets:  # alone, to find which one it is
                    found.update(_alone(namespace, dataset, wanted))
    except BaseException:  # nobody will ask for these files
        namespace.stale += found.values()
        raise
    return found


def _alone(
    namespace: Namespace, dataset: Dataset, wanted: Mapping[Dataset, Sequence[int]]
) -> dict[tuple[Dataset, int], PlacedFile]:
    """Return partitions of one dataset, computed again.

    Raises:
        SourceError: They cannot be.
    """
    try:
        return _together(namespace, [dataset], wanted)
    except Exception as error:
        if isinstance(error, TransomError) or passes(error):
            raise
        raise SourceError(
            f"{dataset.kind}: the dataset {dataset.label!r} was evicted, or lost with its executor, and cannot be "
            f"computed again: {classify(error).reason}.",
            "Bring back what its DataFrame reads; or drop the dataset, and add it again from another one.",
        ) from error


def _together(
    namespace: Namespace, datasets: Sequence[Dataset], wanted: Mapping[Dataset, Sequence[int]]
) -> dict[tuple[Dataset, int], PlacedFile]:
    """Return partitions of datasets whose columns are alike, computed again in one job."""
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    frames: list[DataFrame] = []
    slots: list[tuple[Dataset, int]] = []
    for dataset in datasets:
        frame, numbers = dataset.frame, list(wanted[dataset])
        assert frame is not None
        partition = (dataset.partitioning or namespace.partitioning).of(frame)
        place = F.array_position(F.array(*map(F.lit, numbers)), partition) - 1 + len(slots)
        frames.append(frame.where(partition.isin(numbers)).withColumn(PARTITION, place.cast("int")))
        slots += [(dataset, number) for number in numbers]
    tasks = Tasks(namespace.spark, [namespace.homes[number] for _, number in slots])
    files = placed.place_numbered(reduce(DataFrame.unionAll, frames), tasks, namespace.name)
    return dict(zip(slots, files, strict=True))


def _executed(
    namespace: Namespace,
    gap: Gap,
    fresh: Mapping[tuple[Dataset, int], PlacedFile],
    check: bool,
) -> list[dict[int, list[Made]]]:
    """Run the programs of all missing partitions, and return what came of them; by task."""
    programs: list[dict[int, list[Step]]] = []
    homes: list[str | None] = []
    for each in namespace.grouping.ranges:
        group = {number: gap.program(number, fresh)[0] for number in each if number in gap.missing}
        if group := {number: program for number, program in group.items() if program}:
            programs.append(group)
            homes.append(namespace.homes[each.start])
    if not programs:
        return []
    application = namespace.spark.sparkContext.applicationId
    answers = namespace.tasks(homes).run(executing(programs, application, namespace.keys, check))
    return [pickle.loads(answer) for answer in answers]


def _kept(
    namespace: Namespace,
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
            namespace.stale.append(file)
    for task in made:
        for number, steps in task.items():
            for place, dataset in gap.program(number, fresh)[1].items():
                kept = steps[place].file
                assert kept is not None
                found[dataset][number] = replace(kept, executor=namespace.homes[number] or GONE)
    for dataset, files in found.items():
        dataset.files = [files.get(number) or dataset.files[number] for number in range(namespace.partitions)]
