"""Where the tasks of a job run when their groups' executors are busy, and which groups get or lose a replica.

Stark (section III-C3) decides in Spark's task scheduler: a task waits for a local executor for a bounded time, then
takes an idle one, of those the one with the fewest distinct collection partitions (Minimum Contention First). Stock
Spark has no hook there, and a remote read leaves no replica. So locations are chosen when a job is submitted, from a
model of how long each executor is busy, and replicas are made and dropped on purpose.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heapreplace
from math import exp2

from transom.errors import DefinitionError
from transom.placement.locality import ExecutorId

OVERDUE_SHARE = 0.1
"""A task that should have ended is believed to need this share of its expected time, still."""


@dataclass(frozen=True)
class Running:
    """A task that was submitted and of which no end is known."""

    executor: ExecutorId
    begun: float
    """Second from which it may have computed: when it was submitted, or when a core became free for it."""
    seconds: float
    """How long it is expected to compute."""


@dataclass(frozen=True)
class Busy:
    """How long each executor is busy with what was submitted: cores that take tasks in order, expected times."""

    cores: Mapping[ExecutorId, int]
    tasks: Mapping[int, Running] = field(default_factory=dict)
    """By ticket; tickets ascend with time."""

    def __post_init__(self) -> None:
        """Check the executors.

        Raises:
            DefinitionError: There is none, or one without cores.
        """
        if not self.cores or min(self.cores.values()) < 1:
            raise DefinitionError(f"cores is {dict(self.cores)}.", "Give at least one executor, each with its cores.")

    def waits(self, now: float) -> dict[ExecutorId, float]:
        """Return for how many seconds a new task would wait on each executor. O(tasks log cores)."""
        free = {executor: [now] * count for executor, count in self.cores.items()}
        for _, task in sorted(self.tasks.items()):
            if (ends := free.get(task.executor)) is not None:
                begin = max(task.begun, ends[0]) if ends[0] > now else task.begun
                heapreplace(ends, max(begin + task.seconds, now + OVERDUE_SHARE * task.seconds))
        return {executor: ends[0] - now for executor, ends in free.items()}

    def submitted(self, ticket: int, executor: ExecutorId, seconds: float, now: float) -> Busy:
        """Return the model with one more task.

        Raises:
            DefinitionError: The ticket is in use.
        """
        if ticket in self.tasks:
            raise DefinitionError(f"Ticket {ticket} is in use.", "Give each task its own number, ascending.")
        return replace(self, tasks={**self.tasks, ticket: Running(executor, now, seconds)})

    def ended(self, tickets: Collection[int], now: float) -> Busy:
        """Return the model without tasks that ended, failed or not; unknown tickets are ignored.

        Tasks that waited for their cores begin now.
        """
        kept: dict[int, Running] = {}
        before, after = dict.fromkeys(self.cores, 0), dict.fromkeys(self.cores, 0)
        for ticket, task in sorted(self.tasks.items()):
            cores = self.cores.get(task.executor)
            if cores is None:
                continue
            waited = before[task.executor] >= cores
            before[task.executor] += 1
            if ticket not in tickets:
                begins = waited and after[task.executor] < cores
                after[task.executor] += 1
                kept[ticket] = replace(task, begun=now) if begins else task
        return replace(self, tasks=kept)

    def with_executors(self, cores: Mapping[ExecutorId, int]) -> Busy:
        """Return the model for the executors that there are now; tasks of others are forgotten."""
        return Busy(cores, {ticket: task for ticket, task in self.tasks.items() if task.executor in cores})


@dataclass(frozen=True)
class Task:
    """One group's task of a job that is about to be submitted."""

    group: int
    seconds: float
    """Expected, where the data is local."""
    remote_seconds: float
    """Expected more where it is not: reading, or computing the data anew."""


@dataclass(frozen=True)
class Place:
    """Where a task runs."""

    task: Task
    executor: ExecutorId
    local: bool


def placed(
    tasks: Sequence[Task],
    holders: Mapping[int, Sequence[ExecutorId]],
    waits: Mapping[ExecutorId, float],
    cores: Mapping[ExecutorId, int],
    most_wait: float,
    slack: float | None = None,
) -> list[Place]:
    """Return where the tasks of a job run, longest first: with their data unless they would wait too long for it.

    A task goes to the holder of its group that is free first, if it waits there at most `most_wait` seconds, or no more
    than the job's slack lets it. Else it takes an executor without waiting time, of those the one that holds the fewest
    groups (MCF; groups that go there in this job count); only if it would end there before it does at its holder. With
    no idle executor it goes where it ends first. O(tasks x executors).

    Args:
        tasks: One for each group of the job.
        holders: Executors with the data of each group: its home and replicas. A group without is remote anywhere.
        waits: Seconds until each executor has a free core (`Busy.waits`).
        cores: Of each executor, the same ones.
        most_wait: Bound on waiting for data, seconds.
        slack: How much later the job may end and still be in time, seconds; a task that is remote needs
            `remote_seconds` of it, too. None: no limit.

    Raises:
        DefinitionError: There is no executor.
    """
    if not waits:
        raise DefinitionError("There is no executor.", "Wait until the cluster has given some.")
    free = {executor: [wait] + [max(wait, 0.0)] * (cores[executor] - 1) for executor, wait in waits.items()}
    for ends in free.values():
        heapify(ends)
    groups: dict[ExecutorId, set[int]] = {executor: set() for executor in waits}
    for group, executors in holders.items():
        for executor in executors:
            if executor in groups:
                groups[executor].add(group)
    bound = most_wait if slack is None else max(0.0, min(most_wait, slack))
    found: list[Place] = []
    for task in sorted(tasks, key=lambda one: (-one.seconds, one.group)):
        living = [executor for executor in holders.get(task.group, ()) if executor in free]
        executor, local = _choose(task, living, free, groups, bound)
        wait = free[executor][0]
        heapreplace(free[executor], wait + task.seconds + (0.0 if local else task.remote_seconds))
        groups[executor].add(task.group)
        found.append(Place(task, executor, local))
    return found


def _choose(
    task: Task,
    living: Sequence[ExecutorId],
    free: Mapping[ExecutorId, Sequence[float]],
    groups: Mapping[ExecutorId, Collection[int]],
    bound: float,
) -> tuple[ExecutorId, bool]:
    home = min(living, key=lambda executor: (free[executor][0], executor), default=None)
    if home is not None and free[home][0] <= bound:
        return home, True
    others = sorted(executor for executor in free if executor not in living)
    idle = [executor for executor in others if free[executor][0] <= 0]
    if idle:
        other = min(idle, key=lambda executor: (len(groups[executor]), executor))
    elif others:
        other = min(others, key=lambda executor: (free[executor][0], len(groups[executor]), executor))
    else:
        assert home is not None  # all executors are holders
        return home, True
    if home is not None and free[home][0] <= free[other][0] + task.remote_seconds:
        return home, True
    return other, False


Copy = tuple[int, ExecutorId]
"""A group on an executor."""


@dataclass(frozen=True)
class Replicas:
    """Which groups have replicas beside their home, and how much each copy was wanted lately.

    A task that ran without its data says that its group is wanted more than its holders can serve, and where a copy
    would have served. Wants fade by half for every half-life. A group whose unserved wants reach `hot` gets a replica
    where they were most; a replica that was wanted less than `cold` goes.

    Raises:
        DefinitionError: `cold` is not below `hot`, or one of the numbers is not positive.
    """

    extra: frozenset[Copy] = frozenset()
    wants: Mapping[Copy, float] = field(default_factory=dict)
    """Faded number of tasks for each copy, whether it exists (a replica) or not (a task that was remote)."""
    at: float = 0.0
    """Second to which the wants are faded."""
    half_life: float = 60.0
    """Seconds."""
    hot: float = 3.0
    cold: float = 0.5

    def __post_init__(self) -> None:
        if not (0 < self.cold < self.hot and self.half_life > 0):
            raise DefinitionError(
                f"cold is {self.cold}, hot {self.hot}, half_life {self.half_life}.", "Give 0 < cold < hot and a time."
            )

    def holders(self, homes: Sequence[ExecutorId | None]) -> dict[int, list[ExecutorId]]:
        """Return the executors of each group: its home first, then its replicas."""
        found = {group: [home] if home is not None else [] for group, home in enumerate(homes)}
        for group, executor in sorted(self.extra):
            if executor not in found[group]:
                found[group].append(executor)
        return found

    def ran(self, places: Sequence[Place], now: float) -> Replicas:
        """Return the state after the tasks of a job were placed."""
        wants = self._faded(now)
        for place in places:
            copy = (place.task.group, place.executor)
            if copy in self.extra or not place.local:
                wants[copy] = wants.get(copy, 0.0) + 1
        return replace(self, wants=wants, at=max(now, self.at))

    def adapted(self, now: float, executors: Collection[ExecutorId]) -> tuple[Replicas, set[Copy], set[Copy]]:
        """Return the state with the replicas that are wanted, which ones are new, and which ones went.

        A new replica brings the wants of its group with it, so it is not cold before it was of use.

        Args:
            now: Second.
            executors: Those that live; replicas on others are gone.
        """
        wants = {copy: want for copy, want in self._faded(now).items() if copy[1] in executors}
        gone = {copy for copy in self.extra if copy[1] not in executors or wants.get(copy, 0.0) < self.cold}
        unserved: dict[int, dict[ExecutorId, float]] = {}
        for (group, executor), want in wants.items():
            if (group, executor) not in self.extra:
                unserved.setdefault(group, {})[executor] = want
        new: set[Copy] = set()
        for group, places in unserved.items():
            total = sum(places.values())
            if total >= self.hot:
                executor = max(sorted(places), key=places.__getitem__)
                new.add((group, executor))
                wants = {copy: want for copy, want in wants.items() if copy[0] != group or copy in self.extra}
                wants[group, executor] = total
        wants = {copy: want for copy, want in wants.items() if copy not in gone and want > 1e-3}
        return replace(self, extra=(self.extra - gone) | new, wants=wants, at=max(now, self.at)), new, gone

    def _faded(self, now: float) -> dict[Copy, float]:
        share = exp2(-max(0.0, now - self.at) / self.half_life)
        return {copy: want * share for copy, want in self.wants.items()}
