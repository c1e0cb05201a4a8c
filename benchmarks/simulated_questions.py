"""Questions about the past hours on the cluster of the paper, simulated in virtual time (Stark, section IV-E).

Transom's side is its own code: `bundles` makes the tasks of a job, `Busy` and `placed` say where they run, `Replicas`
what is copied, `Grouping` and `Assignment` what is where. What tasks, jobs and plans cost is measured where the
benchmark runs. Stock Spark is a model of what it does with the same questions; where it was not clear what is cheaper,
the model has it cheaper. Executors take tasks in order, a link carries one transfer after the other.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.harness import percentile
from benchmarks.rates import Search, Trial
from benchmarks.simulated_cluster import Cluster, Machines
from transom.collections.batching import MOST, RUNNING, GroupQuestion, Question, bundles
from transom.collections.workers import TASK_SECONDS
from transom.placement.grouping import Grouping
from transom.placement.locality import Assignment
from transom.placement.replicas import Busy, Replicas, Task, placed

REVIEW = 1.0
"""Seconds from one review of the replicas to the next."""


@dataclass(frozen=True)
class Costs:
    """Seconds, as measured."""

    job: float
    """Of a job of Transom beside its longest task."""
    question: float
    """Of the driver's process for each question of a job, one after the other: CPU seconds."""
    part: float
    """Of a question in a task without bytes."""
    byte: float
    """Of a question for each byte; the same for Spark, whose operators are compiled but read rows."""
    plan: float
    """Of the driver to plan a question to stock Spark."""
    plan_dataset: float
    """The same for each dataset."""
    stock: float = 0.0
    """Of a question to stock Spark beside plan and tasks; it keeps nothing busy."""
    launch: float = 0.0003
    """Of the driver's one scheduling thread for each task."""


@dataclass(frozen=True)
class Load:
    """Questions at a rate: about a random range of times and a random range of cells each, as in the paper."""

    rate: float
    """Per second."""
    seconds: float
    dataset_bytes: float
    datasets: int = 36
    partitions: int = 640
    """Of equal size."""

    def questions(self, seed: int) -> list[tuple[float, int, range]]:
        """Return when each is asked, how many datasets it is about, and which partitions."""
        rng = np.random.default_rng(seed)
        count = max(20, int(self.rate * self.seconds))
        times = np.cumsum(rng.exponential(1 / self.rate, count))
        steps = np.sort(rng.integers(0, self.datasets + 1, (count, 2)), axis=1)
        keys = np.sort(rng.integers(0, self.partitions, (count, 2)), axis=1)
        return [
            (float(time), max(1, int(b - a)), range(int(low), int(high) + 1))
            for time, (a, b), (low, high) in zip(times, steps, keys, strict=True)
        ]


def transom(cluster: Cluster, costs: Costs, load: Load, groups: int, seed: int = 0) -> list[float]:
    """Return the seconds from when each question is asked to its answer, with Transom's decisions.

    Args:
        cluster: The machines.
        costs: What things take.
        load: The questions.
        groups: Of partitions; each has a home.
        seed: Of all that is random.
    """
    machines = Machines(cluster, seed)
    ids = [f"{number:03d}" for number in range(cluster.executors)]
    sites = {each: each for each in ids}
    grouping = Grouping.even(load.partitions, groups)
    ranges = grouping.ranges
    homes = Assignment.nowhere(groups).settled(ids, [1.0] * groups).homes
    busy, replicas = Busy(dict.fromkeys(ids, cluster.cores)), Replicas()
    ready: dict[tuple[int, str], float] = {}
    piece = load.dataset_bytes / load.partitions
    asked = load.questions(seed)

    def seconds(size: int) -> float:
        return costs.part + costs.byte * size

    def question(datasets: int, keys: range, copies: dict[int, list[str]]) -> Question:
        parts = []
        for group in range(grouping.group_of(keys.start), grouping.group_of(keys.stop - 1) + 1):
            each = ranges[group]
            size = datasets * (min(keys.stop, each.stop) - max(keys.start, each.start)) * piece
            paths = {str(home): () for home in (homes[group], *copies.get(group, ()))}
            parts.append(GroupQuestion(group, int(size), paths))
        return Question(parts, bytes, 0.1)

    latencies = [0.0] * len(asked)
    waiting: list[int] = []
    events = [(time, 0, (number,)) for number, (time, _, _) in enumerate(asked)]
    heapq.heapify(events)
    running, tickets, reviewed = 0, 0, 0.0
    pending: dict[int, tuple[list[int], list[int]]] = {}
    while events:
        now, kind, (number,) = heapq.heappop(events)
        if kind == 0:
            waiting.append(number)
        else:
            mine, questions = pending.pop(number)
            busy = busy.ended(mine, now)
            running -= 1
            for each in questions:
                latencies[each] = now - asked[each][0]
        while waiting and running < RUNNING:
            together, waiting = waiting[:MOST], waiting[MOST:]
            copies: dict[int, list[str]] = {}
            for group, at in sorted(replicas.extra):
                if ready[group, at] <= now:
                    copies.setdefault(group, []).append(at)
            made = [question(asked[each][1], asked[each][2], copies) for each in together]
            work = bundles(made, seconds, busy.cores)
            tasks = [Task(each.group, each.seconds + TASK_SECONDS, each.holders, 0.1) for each in work]
            held: dict[str, set[int]] = {each: set() for each in ids}
            for group, home in (*enumerate(homes), *replicas.extra):
                held[str(home)].add(group)
            places = placed(tasks, busy.free(now), held, sites)
            mine = list(range(tickets, tickets + len(places)))
            tickets += len(places)
            busy = busy.submitted(dict(zip(mine, places, strict=True)), now)
            replicas = replicas.ran(places, now)
            begin = machines.launch(now, costs.question * len(together) + costs.launch * len(places))
            ends = [machines.compute(int(place.executor), begin, place.task.seconds) for place in places]
            job = mine[0]
            pending[job] = (mine, together)
            heapq.heappush(events, (max(ends) + costs.job, 1, (job,)))
            running += 1
        if now >= reviewed + REVIEW:
            reviewed = now
            before, replicas = replicas.extra, replicas.adapted(now, ids)
            size = load.dataset_bytes * load.datasets / groups
            for copy in replicas.extra - before:
                ready[copy] = machines.transfer(int(copy[1]), now, size)
    return latencies


def spark(cluster: Cluster, costs: Costs, load: Load, exchanges: bool, pieces: int, seed: int = 0) -> list[float]:
    """Return the same for stock Spark over cached datasets.

    Every question is planned, and is a job of its own. With an exchange each partition of each dataset is a task where
    it is cached, and the rows of the region go to as many tasks as a dataset has partitions. Without, there is one task
    for each of the partitions, which correspond; but those of different datasets are cached at different executors, so
    that all but one of them come over the link, whole, and hash partitions know no region.

    Args:
        cluster: The machines.
        costs: What things take.
        load: The questions.
        exchanges: Which of the two.
        pieces: Partitions of a dataset.
        seed: Of all that is random.
    """
    machines, rng = Machines(cluster, seed), np.random.default_rng(seed + 1)
    size = load.dataset_bytes / pieces
    latencies = []
    for time, datasets, keys in load.questions(seed):
        share = len(keys) / load.partitions
        now = machines.plan(time, costs.plan + costs.plan_dataset * datasets)
        ends = rng.permuted(np.tile(np.arange(cluster.executors), (datasets, 1)), axis=1)[:, :pieces]
        if exchanges:
            now = machines.launch(now, costs.launch * datasets * pieces)
            scan = TASK_SECONDS + costs.byte * size * (1 - share)
            now = max(machines.compute(int(at), now, scan) for at in ends.ravel())
            come = datasets * size * share * (cluster.executors - 1) / cluster.executors
            compute = TASK_SECONDS + costs.byte * datasets * size * share
        else:
            come = (datasets - 1) * size
            compute = TASK_SECONDS + costs.byte * datasets * size
        now = machines.launch(now, costs.launch * pieces)
        reducers = [(int(at), machines.transfer(int(at), now, come)) for at in ends[0]]
        latencies.append(max(machines.compute(at, there, compute) for at, there in reducers) + costs.stock - time)
    return latencies


def highest(simulate: Callable[[float], Sequence[float]], limit: float, quantile: float) -> float:
    """Return the highest rate whose quantile of response times is within the limit, to 5 %; 0 if there is none.

    Args:
        simulate: Gives response times in seconds at a rate.
        limit: Seconds.
        quantile: Of the response times.
    """
    search, trials = Search(limit, first=1.0, ratio=1.05, least=1 / 16, most=1e5), list[Trial]()
    while (rate := search.next(trials)) is not None:
        trials.append(Trial(rate, percentile(simulate(rate), quantile)))
    best = search.best(trials)
    return 0.0 if best is None else best.rate
