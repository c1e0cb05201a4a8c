"""Scheduling policies on real Spark: latency, share within the limit and throughput by load; stock Spark beside."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import replay, scheduling_figures
from benchmarks.harness import CORES, Run, benchmark, percentile
from benchmarks.latency import cpu_seconds
from benchmarks.replay import Schedule
from benchmarks.results import differences
from benchmarks.worker import Worker
from benchmarks.workloads import WORKLOADS
from benchmarks.workloads.base import BASE_MICROS, SECOND, Workload

POLICIES = ("klink", "fcfs", "round_robin", "highest_rate", "streambox", "fair", "stock")
MIX = ("ysb", "nyt", "ysb10", "ysb")
"""The queries in turn: as long as the paper's, twice, and shorter and longer ones, with other limits."""
LOADS = {"load70": (0.7, 0.0), "load90": (0.9, 0.0), "load110": (1.1, 0.0), "burst": (0.75, 0.7)}
"""Offered work over capacity, and the spread of the rates: standard deviation over mean, new every 5 s."""
QUICK_LOADS = ("load90", "burst")
WARM_UPS = 3
"""How often capacity is measured, until the JVM has compiled what it will; the last time counts."""
FEEDS = 4
"""Different feeds of each workload; queries share them, with other phases of their windows."""
START: int = 2 * SECOND
"""From the start of an engine to the first event: all queries have begun by then."""
TAIL: int = SECOND
"""Watermarks that come so shortly before the end are not counted."""
REDUCED = "the loads 0.9 and burst, one repeat, 8 s counted after 4 s of warm-up instead of 30 after 10, 3 repeats"


@dataclass(frozen=True)
class Query:
    """A query and when its windows should be there."""

    name: str
    workload: Workload
    shift: int
    inputs: tuple[Schedule, ...]

    def job(self, directories: Iterable[Path]) -> dict[str, Any]:
        """Return it as the engines take it."""
        paths = [str(path) for path in directories]
        return {"name": self.name, "workload": self.workload.name, "shift": self.shift, "inputs": paths}

    def closings(self, first: int, last: int) -> dict[int, int]:
        """Return the arrival of the sweeping watermark by window end, for arrivals in [first, last).

        Arrivals are microseconds from the beginning; ends are event times.
        """
        found = {}
        slide = self.workload.slide
        offset = (self.workload.length - slide) % slide if slide != self.workload.length else 0
        lowest = BASE_MICROS + self.shift
        end = lowest - (lowest - offset) % slide + slide
        while True:
            arrivals = [one.sweeping(end - lowest) for one in self.inputs]
            if None in arrivals:
                return found
            arrival = max(one for one in arrivals if one is not None)
            if first <= arrival < last:
                found[end] = arrival
            end += slide


@dataclass
class Measured:
    """One run of all queries under one policy."""

    latencies: dict[str, list[float]] = field(default_factory=dict)
    """Seconds, by query; a result that is missing at the end counts with the time until then."""
    limits: dict[str, float] = field(default_factory=dict)
    missing: int = 0
    rows: int = 0
    """Rows that were read and committed; what waits for its window on purpose when the run ends is not among them."""
    throughput: float = 0.0
    """Rows per second whose results came: of each query what is offered, times the share of its results."""
    jobs: int = 0
    cores: float = 0.0
    overhead: float = 0.0
    slip: float = 0.0

    def all(self) -> list[float]:
        """Return all latencies."""
        return [each for some in self.latencies.values() for each in some]

    def within(self, query: str) -> float:
        """Return the share of a query's results that came within its limit."""
        found = self.latencies[query]
        return sum(each <= self.limits[query] for each in found) / len(found)

    def share(self) -> float:
        """Return the share of all results that came within their limit."""
        inside = [each <= self.limits[name] for name, found in self.latencies.items() for each in found]
        return sum(inside) / len(inside)


@dataclass(frozen=True)
class Plan:
    """How long things take, seconds."""

    warm_up: int
    counted: int
    repeats: int

    @property
    def seconds(self) -> int:
        """For how long events happen."""
        return self.warm_up + self.counted


class Feeds:
    """Written feeds, kept for all runs."""

    def __init__(self, run: Run, seconds: int) -> None:
        self._run, self._seconds = run, seconds
        self._known: dict[tuple[str, int, float], tuple[Schedule, ...]] = {}

    def get(self, workload: str, seed: int, burst: float) -> tuple[Schedule, ...]:
        """Return the inputs of one query."""
        key = workload, seed, burst
        if key not in self._known:
            delay = "zipf" if seed % 2 else "uniform"
            feeds = WORKLOADS[workload].events(seed, self._seconds, delay=delay, burst=burst)
            place = self._run.work / "feeds" / f"{workload}-{seed}-{burst}"
            self._known[key] = tuple(replay.write(feed, place / str(i)) for i, feed in enumerate(feeds))
        return self._known[key]


def capacity(run: Run, worker: Worker, feeds: Feeds) -> dict[str, float]:
    """Return how many windows a second the engine can do of each workload, each in one job, with all slots busy."""
    found = {}
    for name in dict.fromkeys(MIX):
        workload = WORKLOADS[name]
        inputs = [feeds.get(name, seed, 0.0) for seed in range(FEEDS)]
        jobs = [
            Query(f"{name}-{i}", workload, i * 1_000, one).job(schedule.directory for schedule in one)
            for i, one in enumerate(inputs)
        ]
        per_window = round(workload.rate * workload.slide / SECOND * 1.05)
        windows = sum(math.ceil(one[0].rows / per_window) for one in inputs)
        seconds = worker.call("capacity", jobs=jobs, place=run.fresh("capacity"), rows=per_window)
        found[name] = windows / seconds
        run.say(f"{name}: {found[name]:.1f} windows of {workload.slide / SECOND:g} s per second")
    return found


def queries_for(load: float, burst: float, able: dict[str, float], feeds: Feeds) -> tuple[list[Query], float]:
    """Return as many queries as make the load, and the load that they make."""
    random = np.random.default_rng(7)
    chosen: list[Query] = []
    offered = 0.0
    while True:
        name = MIX[len(chosen) % len(MIX)]
        workload = WORKLOADS[name]
        more = SECOND / workload.slide / able[name]
        if offered + more / 2 > load:
            return chosen, offered
        offered += more
        shift = int(random.integers(0, workload.slide))
        inputs = feeds.get(name, len(chosen) % FEEDS, burst)
        chosen.append(Query(f"q{len(chosen):02d}", workload, shift, inputs))


def measure(run: Run, worker: Worker, queries: Sequence[Query], policy: str, plan: Plan, expected: Path) -> Measured:
    """Run all queries under a policy in real time."""
    place = run.fresh("run")
    targets = {query.name: [place / "in" / f"{query.name}-{i}" for i in range(len(query.inputs))] for query in queries}
    schedules = {
        target: schedule
        for query in queries
        for target, schedule in zip(targets[query.name], query.inputs, strict=True)
    }
    end = plan.seconds * SECOND
    replay.prepare(schedules, end, place / "plan")
    worker.call("start", jobs=[query.job(targets[query.name]) for query in queries], place=place, policy=policy)
    begin = int(time.time() * 1e6) + START
    feeder = replay.start(place / "plan", begin)
    time.sleep(max(0.0, (begin + plan.warm_up * SECOND) / 1e6 - time.time()))
    used, began = cpu_seconds(worker.pid), time.monotonic()
    time.sleep(max(0.0, (begin + end) / 1e6 - time.time()))
    cores = (cpu_seconds(worker.pid) - used) / (time.monotonic() - began)
    finish = time.time()
    report = worker.call("stop")
    slip = float(feeder.communicate()[0])
    found = Measured(
        rows=report["rows"],
        jobs=report["jobs"],
        cores=cores,
        overhead=report["scheduling"] / (finish - begin / 1e6 + START / SECOND) / CORES,
        slip=slip,
    )
    for query in queries:
        results = read(place / "results" / f"{query.name}.parquet")
        visible = times(results, finish)
        found.limits[query.name] = query.workload.limit / SECOND
        closings = query.closings(plan.warm_up * SECOND, end - TAIL)
        missing = len(closings.keys() - visible.keys())
        found.missing += missing
        offered = sum(one.rows for one in query.inputs) / plan.seconds
        found.throughput += offered * (1 - missing / len(closings) if closings else 1.0)
        found.latencies[query.name] = [
            visible.get(window_end, finish) - (begin + arrival) / 1e6 for window_end, arrival in closings.items()
        ]
        run.check(check(f"{policy}, {query.name}", results, pq.read_table(expected / f"{query.name}.parquet")))
    return found


def read(path: Path) -> pa.Table | None:
    """Return the results of a query; None when there is none."""
    return pq.read_table(path) if path.exists() else None


def times(results: pa.Table | None, finish: float) -> dict[int, float]:
    """Return when the last row of each window was at the sink, seconds since the epoch, by window end."""
    if results is None:
        return {}
    last = results.group_by("window_end").aggregate([("visible", "max")])
    pairs = zip(last["window_end"].to_pylist(), last["visible_max"].to_pylist(), strict=True)
    return {end: moment for end, moment in pairs if moment <= finish}


def check(label: str, results: pa.Table | None, expected: pa.Table) -> list[str]:
    """Compare the windows that have results with what a Spark batch gives for them."""
    if results is None:
        return []
    ends = pc.unique(results["window_end"])
    wanted = expected.filter(pc.is_in(expected["window_end"], ends))
    order = [(name, "ascending") for name in expected.column_names]
    found = differences(results.select(expected.column_names).sort_by(order), wanted.sort_by(order))
    return [f"{label}: {found}"] if found else []


def worse(klink: Sequence[float], other: Sequence[float], less_is_better: bool = True) -> bool:
    """Tell whether Klink is worse beyond the 95 % interval of the paired differences."""
    sign = 1 if less_is_better else -1
    gaps = [sign * (a - b) for a, b in zip(klink, other, strict=True)]
    return len(gaps) > 1 and fmean(gaps) - 2.0 * stdev(gaps) / math.sqrt(len(gaps)) > 0


def lost(klink: Sequence[Measured], other: Sequence[Measured]) -> list[str]:
    """Return the comparisons that Klink loses; a pair is a query in one repeat."""
    pairs = [(a, b, query) for a, b in zip(klink, other, strict=True) for query in a.latencies if a.latencies[query]]
    means = [[fmean(each.latencies[query]) for each, query in side] for side in _sides(pairs)]
    tails = [[percentile(each.latencies[query], 0.99) for each, query in side] for side in _sides(pairs)]
    shares = [[each.within(query) for each, query in side] for side in _sides(pairs)]
    found = []
    if worse(*means):
        found.append("mean_s")
    if worse(*tails):
        found.append("p99_s")
    if worse(*shares, less_is_better=False):
        found.append("within_share")
    return found


def _sides(pairs: Sequence[tuple[Measured, Measured, str]]) -> tuple[list[tuple[Measured, str]], ...]:
    return [(a, query) for a, _, query in pairs], [(b, query) for _, b, query in pairs]


def report(run: Run, load: str, offered: float, runs: dict[str, list[Measured]]) -> list[str]:
    """Keep the figures of a load and print them; return the comparisons that Klink loses."""
    rows: list[list[object]] = []
    for policy, found in runs.items():
        figures = {
            "mean_s": fmean(fmean(each.all()) for each in found),
            "p99_s": fmean(percentile(each.all(), 0.99) for each in found),
            "within_share": fmean(each.share() for each in found),
            "throughput": fmean(each.throughput for each in found),
        }
        for name, value in figures.items():
            run.figure(f"{load}.{policy}.{name}", value)
        read = fmean(each.rows for each in found) / plan_of(run).seconds
        run.figure(f"{load}.{policy}.read", read)
        rest = [read, fmean(each.cores for each in found), fmean(float(each.jobs) for each in found)]
        missing = sum(each.missing for each in found)
        slip = max(each.slip for each in found)
        rows.append([policy, *figures.values(), *rest, missing, slip])
    columns = ["policy", "mean s", "p99 s", "within", "rows/s", "read/s", "cores", "jobs", "missing", "feeder slip s"]
    queries = len(next(iter(runs.values()))[0].latencies)
    run.table(f"{load}: {queries} queries, offered work {offered:.2f} of capacity", columns, rows)
    return [
        f"{load}.{policy}.{metric}"
        for policy, found in runs.items()
        if policy != "klink"
        for metric in lost(runs["klink"], found)
    ]


def in_turn(number: int) -> tuple[str, ...]:
    """Return the policies, each time beginning with another one, so that none always runs after the same."""
    first = 3 * number % len(POLICIES)
    return POLICIES[first:] + POLICIES[:first]


def plan_of(run: Run) -> Plan:
    """Return how long and how often."""
    return Plan(4, 8, 1) if run.quick else Plan(10, 30, 3)


def main() -> None:
    """Run the benchmark."""
    with (
        benchmark("scheduling", REDUCED, figures=True, parts=tuple(LOADS)) as run,
        Worker("streams", run.work) as worker,
    ):
        plan = plan_of(run)
        feeds = Feeds(run, plan.seconds)
        for _ in range(WARM_UPS):
            able = capacity(run, worker, feeds)
        lost_all: list[str] = []
        overheads = []
        found: dict[str, dict[str, list[Measured]]] = {}
        for load in QUICK_LOADS if run.quick and run.parts == tuple(LOADS) else run.parts:
            share, burst = LOADS[load]
            queries, offered = queries_for(share, burst, able, feeds)
            run.say(f"{load}: {len(queries)} queries")
            expected = run.work / f"expected-{load}"
            jobs = [query.job(one.directory for one in query.inputs) for query in queries]
            worker.call("oracle", jobs=jobs, output=expected)
            if not found:  # the code of the queries' jobs is compiled by now, whoever comes first
                measure(run, worker, queries, "fcfs", Plan(1, 3, 1), expected)
            runs: dict[str, list[Measured]] = {policy: [] for policy in POLICIES}
            for repeat in range(plan.repeats):
                for policy in in_turn(repeat + len(found)):
                    runs[policy].append(measure(run, worker, queries, policy, plan, expected))
            found[load] = runs
            lost_all += report(run, load, offered, runs)
            overheads += [each.overhead for each in runs["klink"]]
        for name in lost_all:
            run.say(f"Klink is worse: {name}")
        run.figure("klink_worse", float(len(lost_all)))
        run.figure("overhead", fmean(overheads))
        for figure in scheduling_figures.figures(found):
            run.draw(figure)


if __name__ == "__main__":
    main()
