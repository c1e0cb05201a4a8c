"""Key groups on Spark's executors: where each is merged, and one job for all windows that are due."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from transom.engine.cluster.groups import KeyGroups
from transom.engine.cluster.resident import Done, GroupWork, Task, run
from transom.engine.cluster.store import Here, Merge, Recovered, by_group, load_spec
from transom.engine.spark import placed
from transom.errors import CheckpointError
from transom.model.time import Clock, Micros
from transom.placement.balance import Flux, Move
from transom.placement.migration import Strategy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)


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
        self._merges = 0

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
        self._merges += bool(merge.spans)
        for one in done:
            self.key_groups = self.key_groups.measured(one.merged)
        if lost:
            self.recovered = Recovered(tuple(sorted(lost)), self._clock.now() - began, sum(one.read for one in done))
        return done

    def migrate(self, moves: Sequence[Move], strategy: Strategy, cut: int, boundary: Micros) -> None:
        """Let key groups live elsewhere; what is read for that is for the caller to ask for (`TieredStore.preload`)."""
        self.key_groups = self.key_groups.moved(moves, strategy, cut, boundary)

    def drain(self, executor: str) -> list[Move]:
        """Give an executor no more key groups; return the moves that empty it."""
        self.key_groups, moves = self.key_groups.drain(executor)
        return moves

    def uneven(self) -> list[Move]:
        """Return the moves that would even out the executors' loads, once there is something to go by."""
        self._merges, merges = 0, self._merges
        return self.key_groups.balance(Flux()) if merges else []

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
