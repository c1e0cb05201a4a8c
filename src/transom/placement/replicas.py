"""The executors of tasks when the holders of their data are busy, and the groups that get or lose a replica.

Stark (section III-C3) decides in Spark's task scheduler: a task waits for a local executor for a bounded time, then
takes an idle one, of those the one with the fewest distinct collection partitions (Minimum Contention First), and what
it reads stays there as a replica. Stock Spark has no hook there, and a remote read leaves nothing. So locations are
chosen when a job is submitted, from a model of how long each executor is busy, and replicas are made and dropped on
purpose: a task that would have liked to run where its data cannot be read stays, and its wish counts for a replica.
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
class RunningTask:
    """A task that was submitted and of which no end is known."""

    executor: ExecutorId
    begun: float
    """Second from which it may have computed: when it was submitted, or when a core became free for it."""
    seconds: float
    """Time that it is expected to compute."""


@dataclass(frozen=True)
class Busy:
    """The load of each executor by what was submitted: cores that take tasks in order, expected times."""

    cores: Mapping[ExecutorId, int]
    tasks: Mapping[int, RunningTask] = field(default_factory=dict)
    """By ticket; tickets ascend with time."""

    def __post_init__(self) -> None:
        """Check the executors.

        Raises:
            DefinitionError: There is none, or one without cores.
        """
        if not self.cores or min(self.cores.values()) < 1:
            raise DefinitionError(f"cores is {dict(self.cores)}.", "Give at least one executor, each with its cores.")

    def free(self, now: float) -> dict[ExecutorId, list[float]]:
        """Return in how many seconds each core of each executor is free, as heaps. O(tasks log cores)."""
        free = {executor: [now] * count for executor, count in self.cores.items()}
        for _, task in sorted(self.tasks.items()):
            if (ends := free.get(task.executor)) is not None:
                begin = max(task.begun, ends[0]) if ends[0] > now else task.begun
                heapreplace(ends, max(begin + task.seconds, now + OVERDUE_SHARE * task.seconds))
        return {executor: [end - now for end in ends] for executor, ends in free.items()}

    def waits(self, now: float) -> dict[ExecutorId, float]:
        """Return for how many seconds a new task would wait on each executor. O(tasks log cores)."""
        return {executor: ends[0] for executor, ends in self.free(now).items()}

    def submitted(self, places: Mapping[int, Place], now: float) -> Busy:
        """Return the model with more tasks, by ticket.

        Raises:
            DefinitionError: A ticket is in use.
        """
        for ticket in self.tasks.keys() & places.keys():
            raise DefinitionError(f"Ticket {ticket} is in use.", "Give each task its own number, ascending.")
        new = {ticket: RunningTask(place.executor, now, place.task.seconds) for ticket, place in places.items()}
        return replace(self, tasks={**self.tasks, **new})

    def ended(self, tickets: Collection[int], now: float) -> Busy:
        """Return the model without tasks that ended, failed or not; unknown tickets are ignored.

        Tasks that waited for their cores begin now.
        """
        kept: dict[int, RunningTask] = {}
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
    """One task of a job that is about to be submitted; a group may have several."""

    group: int
    seconds: float
    """Expected."""
    holders: Sequence[ExecutorId]
    """With the data: the group's home first, then its replicas."""
    most_wait: float
    """Bound on waiting for a holder, seconds; not more than its slack, where somebody waits for the answer."""


@dataclass(frozen=True)
class Place:
    """The place of a task."""

    task: Task
    executor: ExecutorId
    source: ExecutorId | None
    """The holder whose data it reads; None when all of them are gone."""
    wish: ExecutorId | None = None
    """An idle executor that would have taken it, had the data been there."""


def placed(
    tasks: Sequence[Task],
    free: Mapping[ExecutorId, Sequence[float]],
    groups: Mapping[ExecutorId, Collection[int]],
    sites: Mapping[ExecutorId, str],
) -> list[Place]:
    """Return where the tasks of a job run, in their order: with their data unless they would wait too long for it.

    Longest first, a task goes to the holder of its group that is free first, if it waits there no longer than its
    bound. Else it takes an executor without waiting time, of those the one with the fewest groups (MCF; groups that go
    there in this job count), of those at the site of a holder, where it can read the data; with no idle one it goes
    where it begins first. Idle executors elsewhere are only wished for. O(tasks x executors).

    Args:
        tasks: Of the job.
        free: Seconds until each core of each executor is free (`Busy.free`).
        groups: That each executor holds.
        sites: Executors at one site, such as a host, read one another's files.

    Raises:
        DefinitionError: There is no executor.
    """
    if not free:
        raise DefinitionError("There is no executor.", "Wait until the cluster has given some.")
    cores = {executor: list(ends) for executor, ends in free.items()}
    for ends in cores.values():
        heapify(ends)
    held = {executor: set(groups.get(executor, ())) for executor in cores}
    found: dict[int, Place] = {}
    for number in sorted(range(len(tasks)), key=lambda number: (-tasks[number].seconds, number)):
        place = _choose(tasks[number], cores, held, sites)
        wait = cores[place.executor][0]
        heapreplace(cores[place.executor], max(wait, 0.0) + place.task.seconds)
        held[place.executor].add(place.task.group)
        found[number] = place
    return [found[number] for number in range(len(tasks))]


def _choose(
    task: Task,
    cores: Mapping[ExecutorId, Sequence[float]],
    held: Mapping[ExecutorId, Collection[int]],
    sites: Mapping[ExecutorId, str],
) -> Place:
    living = [executor for executor in task.holders if executor in cores]
    if not living:  # it will be noticed that the data is lost
        return Place(task, min(cores, key=lambda executor: (cores[executor][0], executor)), None)
    home = min(living, key=lambda executor: max(0.0, cores[executor][0]))
    if cores[home][0] <= task.most_wait:
        return Place(task, home, home)
    near = {sites[executor]: executor for executor in reversed(living)}
    others = [executor for executor in sorted(cores) if executor not in living]
    idle = sorted((executor for executor in others if cores[executor][0] <= 0), key=lambda one: (len(held[one]), one))
    neighbours = [executor for executor in idle if sites[executor] in near]
    if not neighbours:
        sooner = [executor for executor in others if sites[executor] in near and cores[executor][0] < cores[home][0]]
        neighbours = sorted(sooner, key=lambda executor: (cores[executor][0], len(held[executor]), executor))
    if neighbours:
        return Place(task, neighbours[0], near[sites[neighbours[0]]])
    return Place(task, home, home, idle[0] if idle else None)


Copy = tuple[int, ExecutorId]
"""A group on an executor."""


@dataclass(frozen=True)
class Replicas:
    """The replicas of groups beside their homes, and how much each copy was wanted lately.

    A task that wished for an executor without its data says that its group is wanted more than its holders can serve.
    Wants fade by half for every half-life. A group whose unserved wants reach `hot` gets a replica where they were
    most; a replica that was wanted less than `cold` goes.

    Raises:
        DefinitionError: `cold` is not below `hot`, or one of the numbers is not positive.
    """

    extra: frozenset[Copy] = frozenset()
    wants: Mapping[Copy, float] = field(default_factory=dict)
    """Faded number of tasks for each copy, whether it exists (a replica) or not (a wish)."""
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

    def ran(self, places: Sequence[Place], now: float) -> Replicas:
        """Return the state after the tasks of a job were placed."""
        counted = [
            (place.task.group, executor)
            for place in places
            for executor in {place.executor, place.wish or place.executor}
            if executor == place.wish or (place.task.group, executor) in self.extra
        ]
        if not counted:
            return self
        wants = self._faded(now)
        for copy in counted:
            wants[copy] = wants.get(copy, 0.0) + 1
        return replace(self, wants=wants, at=max(now, self.at))

    def adapted(self, now: float, executors: Collection[ExecutorId]) -> Replicas:
        """Return the state with the replicas that are wanted.

        A new replica brings the wants of its group with it, so it is not cold before it was of use.

        Args:
            now: Second.
            executors: Those that live; replicas on others are gone.
        """
        wants = {copy: want for copy, want in self._faded(now).items() if copy[1] in executors and want > 1e-3}
        extra = {copy for copy in self.extra if copy[1] in executors and wants.get(copy, 0.0) >= self.cold}
        wants = {copy: want for copy, want in wants.items() if copy in extra or copy not in self.extra}
        unserved: dict[int, dict[ExecutorId, float]] = {}
        for (group, executor), want in wants.items():
            if (group, executor) not in extra:
                unserved.setdefault(group, {})[executor] = want
        for group, places in unserved.items():
            total = sum(places.values())
            if total >= self.hot:
                executor = max(sorted(places), key=places.__getitem__)
                wants = {copy: want for copy, want in wants.items() if copy[0] != group or copy in extra}
                wants[group, executor] = total
                extra.add((group, executor))
        return replace(self, extra=frozenset(extra), wants=wants, at=max(now, self.at))

    def without(self, groups: Collection[int]) -> Replicas:
        """Return the state without what is known of some groups, which are no more."""
        return replace(
            self,
            extra=frozenset(copy for copy in self.extra if copy[0] not in groups),
            wants={copy: want for copy, want in self.wants.items() if copy[0] not in groups},
        )

    def _faded(self, now: float) -> dict[Copy, float]:
        share = exp2(-max(0.0, now - self.at) / self.half_life)
        return {copy: want * share for copy, want in self.wants.items()}
