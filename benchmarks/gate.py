"""16 Structured Streaming queries as users have them, with and without the gate: result latency and processor time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np

from benchmarks import replay, scheduling_figures
from benchmarks.harness import CORES, Run, benchmark, paired_ratio, percentile
from benchmarks.replay import Schedule
from benchmarks.scheduling import Measured, Plan, Query, measure
from benchmarks.worker import Worker
from benchmarks.workloads.base import SECOND
from benchmarks.workloads.everyday import EVERYDAY

QUERIES = 16
FEEDS = 2
"""Different feeds of each workload; queries share them, with other phases of their windows."""
EVERY: int = 7 * SECOND
"""Time between two files of an input. It makes the load: without the gate a query runs a batch for each file, and one
for each watermark that completes windows."""
ENGINES = {"ungated": "stock", "gated": "gated.klink"}
"""The same queries, by what their figures are called."""
WARM_UP = Plan(2, 30, 1)
"""Run once and not counted: the JVM compiles what a batch needs."""
SECONDS = 580.0
"""Of a run in full: repeats that no longer fit are left out."""
REDUCED = "two repeats of 32 s counted after 10 s, instead of 3 of 50 s after 20 s"


def plan_of(run: Run) -> Plan:
    """Return how long and how often."""
    return Plan(10, 32, 2) if run.quick else Plan(20, 50, 3)


def queries(run: Run, seconds: int) -> list[Query]:
    """Return the queries, which start at random times and have windows of their own phases, over written feeds."""
    random = np.random.default_rng(5)
    known: dict[tuple[str, int], tuple[Schedule, ...]] = {}
    chosen = []
    for number in range(QUERIES):
        workload = EVERYDAY[number % len(EVERYDAY)]
        seed = number // len(EVERYDAY) % FEEDS
        if (workload.name, seed) not in known:
            feeds = workload.events(seed, seconds, delay="zipf" if seed % 2 else "uniform")
            place = run.work / "feeds" / f"{workload.name}-{seed}"
            known[workload.name, seed] = tuple(
                replay.write(feed, place / str(i), EVERY) for i, feed in enumerate(feeds)
            )
        shift, start = int(random.integers(0, workload.slide)), int(random.integers(0, EVERY))
        inputs = tuple(replace(one, visible=one.visible + start) for one in known[workload.name, seed])
        chosen.append(Query(f"q{number:02d}", workload, shift, inputs))
    return chosen


def report(run: Run, runs: dict[str, list[Measured]], counted: int) -> None:
    """Keep the figures and print them."""
    rows: list[list[object]] = []
    for name, found in runs.items():
        figures = {
            "mean_s": fmean(fmean(each.all()) for each in found),
            "p99_s": fmean(percentile(each.all(), 0.99) for each in found),
            "within_share": fmean(each.share() for each in found),
            "cpu_s": fmean(each.cores * counted for each in found),
            "batches": fmean(float(each.jobs) for each in found),
        }
        for figure, value in figures.items():
            run.figure(f"{name}.{figure}", value)
        load = fmean(each.cores for each in found) / CORES
        results = sum(len(each.all()) for each in found)
        missing = sum(each.missing for each in found)
        rows.append([name, *figures.values(), load, results, missing, max(each.slip for each in found)])
    titles = ["", "mean s", "p99 s", "within limit", "CPU s", "batches", "load", "results", "missing", "feeder slip s"]
    run.table(f"{QUERIES} queries, {counted} s counted, {len(next(iter(runs.values())))} repeats", titles, rows)
    for what, value in (("mean", _means), ("p99", _tails), ("CPU", _cores)):
        ratio = paired_ratio([value(each) for each in runs["gated"]], [value(each) for each in runs["ungated"]])
        run.say(f"{what}, gated / ungated: {ratio}")


def _means(found: Measured) -> float:
    return fmean(found.all())


def _tails(found: Measured) -> float:
    return percentile(found.all(), 0.99)


def _cores(found: Measured) -> float:
    return found.cores


def in_turn(engines: Sequence[str], repeat: int) -> list[str]:
    """Return the engines in the order of a repeat: each is first as often as the other."""
    return [*engines[repeat % len(engines) :], *engines[: repeat % len(engines)]]


def main() -> None:
    """Run the benchmark."""
    with benchmark("gate", REDUCED, figures=True, seconds=SECONDS) as run, Worker("streams", run.work) as worker:
        plan = plan_of(run)
        chosen = queries(run, plan.seconds)
        expected = run.work / "expected"
        jobs = [query.job(one.directory for one in query.inputs) for query in chosen]
        worker.call("oracle", jobs=jobs, output=expected)
        run.say("warm-up")
        measure(run, worker, chosen, ENGINES["ungated"], WARM_UP, expected)
        runs: dict[str, list[Measured]] = {name: [] for name in ENGINES}
        for repeat in run.repeats(plan.repeats, reserve=5.0):
            for name in in_turn(tuple(ENGINES), repeat):
                run.say(f"repeat {repeat + 1}: {name}")
                runs[name].append(measure(run, worker, chosen, ENGINES[name], plan, expected))
        report(run, runs, plan.counted)
        run.draw(scheduling_figures.gate_figure(runs))


if __name__ == "__main__":
    main()
