"""Key groups on Spark's executors: where each is merged, one job for all windows that are due, and moves."""

from __future__ import annotations

import logging
import pickle
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING

from transom.engine.cluster.groups import KeyGroups
from transom.engine.cluster.losses import Losses
from transom.engine.cluster.merges import Here, Merge, Merged, Standing, load_spec
from transom.engine.cluster.messages import MEMORY, Done, GroupWork, MergeTask
from transom.engine.cluster.worker import give, run, take
from transom.engine.placed import placed
from transom.engine.placed.aside import aside
from transom.engine.placed.exchange import exchange
from transom.engine.placed.outlasting import outlasting
from transom.errors import QueryFailedError, SessionError
from transom.failures import Failure, FailureKind, classify
from transom.model.sessions import is_local
from transom.model.time import MICROS_PER_SECOND, Clock, Micros
from transom.placement.balance import Flux, Move
from transom.placement.locality import ExecutorId
from transom.placement.migration import Strategy
from transom.storage.places import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

READ_AT_ONCE = 500_000
"""Rows that one job reads in the background, or those of one group if it has more: windows that are due wait for it
at most."""

_POOL = "spark.scheduler.pool"
"""Property of a thread: the FAIR pool of its Spark jobs."""
_ENDING = (FailureKind.CHECKPOINT, FailureKind.DISK_FULL, FailureKind.SPARK_GONE)
"""Failures after which the driver cannot do it either."""


DRIVER_BYTES = 1 << 30
PATIENCE: Micros = 60 * MICROS_PER_SECOND
"""Longest wait for executors, where only they can merge."""


def _going_on(error: Exception) -> Failure:
    """Return why something failed that can be done in another way.

    Raises:
        TransomError: It cannot.
    """
    failure = classify(error)
    if failure.kind in _ENDING:
        raise failure.ending("Merging or moving key groups") from error
    return failure


def usual_groups(session: SparkSession, executors: int = 0) -> int:
    """Return two key groups for each core that there is or may be: a group is merged by one task.

    Args:
        session: A classic session.
        executors: As many there may be; 0 for no more than there are.
    """
    context = session.sparkContext
    each = 0 if is_local(session) else int(context.getConf().get("spark.executor.cores", "1") or 1)
    return max(2, 2 * max(context.defaultParallelism, executors * each))


@dataclass(frozen=True)
class _Reading:
    """Groups that move instantly, while their targets read what they have."""

    groups: frozenset[int]
    done: Future[None]


class SparkGroupExecutors:
    """Merges the key groups of a stream where they live; a task for each core of an executor has several of them.

    Spark runs a task elsewhere, or again, when its executor is gone; what the group's memory held is read from files.
    Used by one thread; reads for groups that move instantly are on another one.

    Args:
        session: Transom's session, classic.
        directory: Where the files are, which the driver and all executors see under this path.
        clock: For measuring.
        groups: Number of key groups of new files; None for two for each core that there is.
        memory: Bytes of merged panes that each Python worker keeps.
        driver_bytes: Bytes of files that the driver merges at most if the executors cannot.
    """

    def __init__(
        self,
        session: SparkSession,
        directory: Place,
        clock: Clock,
        groups: int | None = None,
        memory: int = MEMORY,
        driver_bytes: int = DRIVER_BYTES,
    ) -> None:
        self._session = session
        self._clock = clock
        self._memory, self._driver_bytes = memory, driver_bytes
        self.directory = directory
        self.groups = groups or usual_groups(session)
        self.key_groups = KeyGroups.beginning(self.groups)
        self._cores: Mapping[ExecutorId, int] = {}
        self._rows: Counter[int] = Counter()
        """Rows read and merged for each group since the loads were last measured."""
        self._since = clock.monotonic()
        self._losses = Losses()
        self._joined = False
        """Whether executors came since loads were last evened out."""
        self._moved = 0
        self._emptied: frozenset[ExecutorId] = frozenset()
        """Executors that Transom will give back."""
        self._reading: _Reading | None = None
        self._unread: list[tuple[Merge, list[GroupWork]]] = []
        """Jobs of `_reading` that have not begun."""

    @property
    def standing(self) -> Standing:
        """The distribution of the groups."""
        homes = Counter(str(home) for home in self.key_groups.assignment.homes if home is not None)
        return Standing(dict(sorted(homes.items())), self._moved, self._losses.last, self._losses.estimate)

    def run(self, merges: Sequence[Merge]) -> list[Merged]:
        """Merge the key groups of stores in one job; return what came of each merge.

        What fails is tried again, each store by itself. Then the driver merges what is small enough for it; for what is
        larger, executors that are missing or lost are waited for, and the failure of the rest says why.

        Raises:
            CheckpointError: A file cannot be read or written.
            SessionError: Spark is gone.
        """
        try:
            return [*self._on_spark(merges)]
        except Exception as error:
            logger.warning("Merging on the executors failed, and is tried again: %s", _going_on(error).reason)
        return [self._alone(merge) for merge in merges]

    def _alone(self, merge: Merge) -> Merged:
        small = merge.nbytes <= self._driver_bytes
        try:
            return outlasting(lambda: self._on_spark([merge])[0], 0 if small else PATIENCE, self._clock)
        except Exception as error:
            reason = _going_on(error).reason
        if not small:
            return QueryFailedError(
                f"{merge.nbytes:,} bytes of partials could not be merged on the executors, and are more than what the "
                f"driver takes (driver_bytes): {reason}.",
                "Give the executors more memory, or more key_groups; or the driver more driver_bytes.",
            )
        logger.warning("Merging on the executors failed again, and is done on the driver: %s", reason)
        return Here(self.directory).run([merge])[0]

    def _on_spark(self, merges: Sequence[Merge]) -> list[list[Done]]:
        began = self._clock.monotonic()
        self._look()
        routed = self.key_groups.routed
        found = self._merged([(merge, routed(merge.by_group(self.key_groups.home), merge)) for merge in merges])
        for one in (one for done in found for one in done):
            self._rows.update(one.rows)
        self._losses.merged(zip(merges, found, strict=True), self._clock.monotonic() - began)
        if any(merge.gives_results for merge in merges):
            self._read_ahead()
        return found

    def _look(self) -> None:
        """Take note of executors that came, will go or are gone, and of groups that have arrived."""
        if self._reading is not None and self._reading.done.done():
            error = self._reading.done.exception()
            if error is None:
                self._moved += len(self._reading.groups & self.key_groups.arriving.keys())
                self.key_groups = self.key_groups.arrived(self._reading.groups)
            else:
                logger.warning("Key groups stay where they are; their new homes could not read them: %s", error)
                self.key_groups = self.key_groups.stayed(self._reading.groups)
            self._reading = None
        before = self.key_groups
        infos = placed.executors(self._session)
        self._cores = {each.id: each.cores for each in infos}
        leaving = self._emptied.union(each.id for each in infos if each.leaving)
        self.key_groups = before.with_executors(self._cores, leaving)
        self._joined |= bool(before.alive) and not self._cores.keys() <= before.alive
        lost = {str(home) for home in before.assignment.homes if home is not None} - self._cores.keys()
        if lost:
            self._losses.lost(lost)

    def due_moves(self, merges: Sequence[Merge], balance: bool) -> list[Move]:
        """Return the moves that empty executors that will go, and those that even out the loads.

        Args:
            merges: What each store has in files.
            balance: Whether it is time to even out loads; it is in any case when an executor has come.
        """
        try:
            self._look()
        except SessionError:  # no executor is there at the moment
            return []
        self._losses.held(merges, self.key_groups.home)
        if self._reading is not None:
            self._read_ahead()
            return []
        moves = self.key_groups.emptying()
        now = self._clock.monotonic()
        if (balance or self._joined) and self._rows and now > self._since:
            self.key_groups = self.key_groups.measured(self._rows, (now - self._since) / MICROS_PER_SECOND)
            self._rows.clear()
            self._since = now
            if not moves:
                self._joined = False
                moves = self.key_groups.balance(Flux())
        return moves

    def migrate(
        self, moves: Sequence[Move], strategy: Strategy, cut: int, boundary: Micros, merges: Sequence[Merge]
    ) -> None:
        """Let key groups live elsewhere; see `KeyGroups.moved`.

        Instantly: the targets read in the background, group by group, and are used from the first merge after that.
        They begin when the next results are out, or when it is asked for moves again: results that are due wait for
        nothing.
        """
        self.arrive()
        self.key_groups = self.key_groups.moved(moves, strategy, cut, boundary)
        if strategy is Strategy.INSTANT:
            self._plan_reading(moves, merges)
            return
        self._moved += len(moves)
        if strategy is Strategy.DISRUPTIVE:
            for merge in merges:
                self._bring(moves, merge)

    def empty(self, executors: Collection[ExecutorId]) -> None:
        """Let these executors, and no others, be emptied by the next moves, as they will be given back."""
        self._emptied = frozenset(executors)

    def arrive(self) -> None:
        """Wait for the groups that move instantly."""
        if self._reading is not None:
            self._read_ahead()
            self._reading.done.exception()
            self._look()

    def _of_groups(self, merge: Merge, homes: Mapping[int, ExecutorId]) -> list[GroupWork]:
        """Return the work on some groups at some homes."""
        works = merge.by_group(lambda group: homes.get(group % self.groups, ""))
        return [work for work in works if work.home]

    def _plan_reading(self, moves: Sequence[Move], merges: Sequence[Merge]) -> None:
        """Divide what the targets have to read into jobs so small that a window that is due need not wait long."""
        targets = {move.group: move.target for move in moves}
        self._reading = _Reading(frozenset(targets), Future())
        for merge in merges:
            some: list[GroupWork] = []
            for work in self._of_groups(merge, targets):
                if some and sum(each.rows for each in some) + work.rows > READ_AT_ONCE:
                    self._unread.append((merge, some))
                    some = []
                some.append(work)
            if some:
                self._unread.append((merge, some))
        if not self._unread:
            self._reading.done.set_result(None)

    def _read_ahead(self) -> None:
        """Let the targets begin to read."""
        if self._reading is None or not self._unread:
            return
        context = self._session.sparkContext
        pool = context.getLocalProperty(_POOL)
        jobs, self._unread = self._unread, []

        def read() -> None:
            context.setLocalProperty(_POOL, pool)  # type: ignore[arg-type]
            for job in jobs:
                self._merged([job])

        self._reading = replace(self._reading, done=aside(read, "transom-key-groups"))

    def _bring(self, moves: Sequence[Move], merge: Merge) -> None:
        """Move what the groups have in memory from their old to their new homes; who has nothing reads the files."""
        sources, targets = {m.group: m.source for m in moves}, {m.group: m.target for m in moves}
        given = self._of_groups(merge, sources)
        if not given:
            return
        givers, takers = (sorted({homes[w.group % self.groups] for w in given}) for homes in (sources, targets))
        place = {work.group: takers.index(targets[work.group % self.groups]) for work in given}
        from_tasks = [self._task(merge, [work for work in given if work.home == home]) for home in givers]
        taken = self._of_groups(merge, targets)
        to_tasks = [self._task(merge, [work for work in taken if work.home == home]) for home in takers]

        def send(number: int) -> Iterator[tuple[int, int, bytes]]:
            for group, data in give(from_tasks[number], load_spec):
                yield place[group], group, data

        def receive(number: int, data: dict[int, bytes]) -> None:
            take(to_tasks[number], data, load_spec)

        try:
            exchange(placed.Tasks(self._session, givers), send, placed.Tasks(self._session, takers), receive)
        except Exception as error:
            logger.warning("Key groups could not be moved, and are read from files: %s", _going_on(error).reason)

    def _task(self, merge: Merge, works: Sequence[GroupWork], name: str = "") -> MergeTask:
        return replace(merge.task(str(self.directory), works, name), memory=self._memory)

    def _merged(self, jobs: Sequence[tuple[Merge, Sequence[GroupWork]]]) -> list[list[Done]]:
        """Merge groups of stores in one Spark job, with a task for each core that has some; return what came of each.

        Args:
            jobs: Merges, each with the groups.
        """
        tasks: dict[tuple[str, int], list[tuple[int, MergeTask]]] = {}
        for number, (merge, works) in enumerate(jobs):
            names = count()
            for home in dict.fromkeys(work.home for work in works):
                mine = sorted((work for work in works if work.home == home), key=lambda work: work.group)
                cores = self._cores[home]
                for core in range(min(cores, len(mine))):
                    task = self._task(merge, mine[core::cores], f"-{next(names)}")
                    tasks.setdefault((home, core), []).append((number, task))
        found: list[list[Done]] = [[] for _ in jobs]
        if not tasks:
            return found
        todo = list(tasks.values())

        def work(number: int) -> bytes:
            return pickle.dumps([(merge, run(task, load_spec)) for merge, task in todo[number]])

        for answer in placed.Tasks(self._session, [home for home, _ in tasks]).run(work):
            for merge_number, done in pickle.loads(answer):
                found[merge_number].append(done)
        return found
