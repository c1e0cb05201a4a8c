"""Key groups on Spark's executors: where each is merged, and one job for all windows that are due."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from transom.engine.cluster.groups import KeyGroups
from transom.engine.cluster.resident import Done, GroupWork, Task, run
from transom.engine.cluster.store import Here, Merge, by_group, load_spec
from transom.engine.spark import placed
from transom.errors import CheckpointError
from transom.model.time import Clock, Micros

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recovered:
    """What the loss of executors cost."""

    lost: tuple[str, ...]
    took: Micros
    """From the start of the first merge without them to its end: partials were read from files again."""
    rows: int
    """Rows that were read for it."""


class SparkExecutors:
    """Merges the key groups of a stream where they live; a task for each core of an executor has several of them.

    Spark runs a task elsewhere, or again, when its executor is gone; what the group's memory held is read from files.

    Args:
        session: Transom's session, classic.
        directory: Where the files are, which the driver and all executors see under this path.
        clock: For measuring.
        groups: Number of key groups of new files; None for two for each core.
    """

    def __init__(self, session: SparkSession, directory: Path, clock: Clock, groups: int | None = None) -> None:
        self._session = session
        self._clock = clock
        self.directory = directory
        self.groups = groups or max(2, 2 * session.sparkContext.defaultParallelism)
        self.key_groups = KeyGroups.beginning(self.groups)
        self.recovered: Recovered | None = None
        """The last loss of executors."""

    def run(self, merge: Merge) -> list[Done]:
        """Merge the key groups of a store; on the driver, if Spark cannot.

        Raises:
            CheckpointError: A file cannot be read or written.
        """
        began = self._clock.now()
        alive = {each.id: each.cores for each in placed.executors(self._session)}
        before = self.key_groups
        self.key_groups = before.with_executors(alive)
        works = self.key_groups.routed(by_group(merge, self.key_groups.home), merge)
        lost = before.alive - alive.keys()
        try:
            done = self._merged(merge, works, alive)
        except Exception as error:
            if CheckpointError.__name__ in str(error) or not works:
                raise
            logger.warning("Merging on the executors failed, and is done on the driver: %s", error)
            return Here(self.directory).run(merge)
        for one in done:
            self.key_groups = self.key_groups.measured(one.merged)
        if lost:
            self.recovered = Recovered(tuple(sorted(lost)), self._clock.now() - began, sum(one.read for one in done))
        return done

    def _merged(self, merge: Merge, works: list[GroupWork], cores: Mapping[str, int]) -> list[Done]:
        homes: list[str] = []
        tasks: list[Task] = []
        for home in dict.fromkeys(work.home for work in works):
            mine = sorted((work for work in works if work.home == home), key=lambda work: work.group)
            for core in range(cores[home]):
                some = mine[core :: cores[home]]
                if some:
                    homes.append(home)
                    tasks.append(merge.task(str(self.directory), some, f"-{len(tasks)}"))
        if not tasks:
            return []

        def work(number: int) -> bytes:
            return pickle.dumps(run(tasks[number], load_spec))

        return [pickle.loads(answer) for answer in placed.Tasks(self._session, homes).run(work)]
