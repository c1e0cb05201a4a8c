"""Groups of partitions that follow a crowd: task inputs and job delays (Stark, Figures 13 to 15)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import transom as tm
from benchmarks.cluster import networked_cluster
from benchmarks.harness import Run, benchmark, paired_ratio
from benchmarks.plots import Figure, Form, Panel, Series
from benchmarks.results import differences
from benchmarks.simulated_crowds import Costs, simulated
from benchmarks.workloads import hotspots
from transom.collections.workers import TASK_SECONDS
from transom.placement.grouping import smallest_largest

EXECUTORS = 3
PARTITIONS, GROUPS = 120, 12
PHASES, DATASETS = 3, 3
ROWS, QUICK_ROWS = 600_000, 120_000
LATER, QUICK_LATER = 7, 3
REPEATS, QUICK_REPEATS = 3, 8
SLOWER = 2.0
"""The first job after a change is not much slower: less than so many times a later one, over all changes."""
RESERVE = 20
"""Seconds for the report."""
REDUCED = (
    f"{QUICK_ROWS:,} instead of {ROWS:,} trips a dataset, {QUICK_LATER} instead of {LATER} later jobs, "
    "as many repeats as there is time for, so that there are changes enough to tell"
)


@dataclass(frozen=True)
class Workload:
    """Where the trips are, and the question about them."""

    name: str
    cells: Callable[[np.random.Generator, int, int], np.ndarray]
    fine: Callable[[np.ndarray], list[int]]
    """Bounds of the small partitions, given the first dataset's cells."""
    ask: Callable[[tm.Collection, Sequence[int]], pa.Table]
    stock: Callable[[DataFrame], DataFrame]


@dataclass
class Seen:
    """What was measured of one form."""

    skew: list[float] = field(default_factory=list)
    """Largest over mean task input, by phase."""
    first: list[float] = field(default_factory=list)
    """Seconds of the first job, by phase."""
    later: list[float] = field(default_factory=list)
    """Median seconds of the jobs after it, by phase."""
    changed: list[bool] = field(default_factory=list)
    """Whether groups or homes changed before the first job."""


@dataclass
class Repeat:
    """What came of going through the phases once."""

    seen: dict[str, Seen]
    """By form."""
    bests: list[float]
    """The best possible skew, by phase."""
    salts: dict
    """Keys that were salted."""
    costs: Costs


def _medians(collection: tm.Collection, labels: Sequence[int]) -> pa.Table:
    return collection.between(labels[0], labels[-1] + 1).run(hotspots.medians)


def _totals(collection: tm.Collection, labels: Sequence[int]) -> pa.Table:
    found = collection.between(labels[0], labels[-1] + 1).aggregate(["cell"], {"fare": ["count", "sum", "max"]})
    return found.rename_columns(["cell", "trips", "sum", "max"])


def _stock_medians(frame: DataFrame) -> DataFrame:
    def run(batches):
        held = list(batches)
        if held:
            yield from hotspots.medians(pa.Table.from_batches(held)).to_batches()

    return frame.repartitionByRange(GROUPS, "cell").mapInArrow(run, hotspots.MEDIANS)


def _stock_totals(frame: DataFrame) -> DataFrame:
    return frame.groupBy("cell").agg(
        F.count("fare").alias("trips"), F.sum("fare").alias("sum"), F.max("fare").alias("max")
    )


TAXI = Workload(
    "taxi",
    hotspots.taxi_cells,
    lambda cells: hotspots.bounds(cells, PARTITIONS, hotspots.CITY.keys),
    _medians,
    _stock_medians,
)
ZIPF = Workload(
    "zipf",
    hotspots.zipf_cells,
    lambda _: list(range(hotspots.ZIPF_CELLS // PARTITIONS, hotspots.ZIPF_CELLS, hotspots.ZIPF_CELLS // PARTITIONS)),
    _totals,
    _stock_totals,
)


def skew(sizes: Sequence[float]) -> float:
    """Return the largest over the mean."""
    return float(np.max(sizes) / np.mean(sizes))


def inputs(collection: tm.Collection) -> np.ndarray:
    """Return the bytes of each task's input."""
    held = np.array([[file.bytes for file in each.files] for each in collection._datasets.values()])
    return collection._namespace.grouping.sizes(held.sum(axis=0))


def best(collection: tm.Collection) -> float:
    """Return the smallest largest-over-mean that any borders of as many groups could give."""
    held = np.array([[file.bytes for file in each.files] for each in collection._datasets.values()]).sum(axis=0)
    groups = len(collection._namespace.grouping)
    return smallest_largest(held, groups) / (held.sum() / groups)


def timed(ask: Callable[[], pa.Table]) -> tuple[float, pa.Table]:
    """Return the seconds and the answer."""
    begun = time.perf_counter()
    found = ask()
    return time.perf_counter() - begun, found.sort_by("cell")


def one_repeat(run: Run, spark: SparkSession, work: Workload, repeat: int) -> Repeat:
    """Go through the phases once."""
    rng = np.random.default_rng(100 * repeat + 7)
    rows = QUICK_ROWS if run.quick else ROWS
    fine = work.fine(work.cells(rng, rows, 0))
    total = DATASETS * rows * 36
    elastic = (int(0.9 * total / GROUPS), int(1.4 * total / GROUPS))
    seen = {name: Seen() for name in ("static", "range", "elastic")}
    bests, salts = [], {}
    static = tm.Collection(
        spark,
        f"static {work.name} {repeat}",
        ["cell"],
        GROUPS,
        elastic=(0, 0),
        bounds=fine[PARTITIONS // GROUPS - 1 :: PARTITIONS // GROUPS],
    )
    moving = tm.Collection(spark, f"elastic {work.name} {repeat}", ["cell"], PARTITIONS, elastic=elastic, bounds=fine)
    for phase in range(PHASES):
        labels = range(phase * DATASETS, (phase + 1) * DATASETS)
        before = (moving._namespace.grouping, moving._namespace.homes)
        frames = []
        for label in labels:
            path = run.work / f"{work.name}-{repeat}-{label}.parquet"
            pq.write_table(hotspots.trips(work.cells(rng, rows, phase), rng), path, row_group_size=rows // 2)
            source = spark.read.schema(hotspots.TRIPS).parquet(str(path))
            frames.append(source.repartitionByRange(GROUPS, "cell").persist())
            frames[-1].count()
            for collection in (static, moving):
                collection.add(label, source)
        for collection in (static, moving):
            collection.drop(*[label for label in collection.labels if label not in labels])
        changed = before != (moving._namespace.grouping, moving._namespace.homes)
        salts.update(moving.all().salted)
        united = reduce(DataFrame.unionAll, frames)
        asks = {
            "static": partial(work.ask, static, labels),
            "range": lambda united=united: work.stock(united).toArrow(),
            "elastic": partial(work.ask, moving, labels),
        }
        times: dict[str, list[float]] = {name: [] for name in asks}
        for turn in range(1 + (QUICK_LATER if run.quick else LATER)):
            names = list(asks)
            answers = {}
            for name in names[turn % 3 :] + names[: turn % 3]:
                seconds, answers[name] = timed(asks[name])
                times[name].append(seconds)
            for name in ("static", "elastic"):
                found = differences(answers[name], answers["range"])
                run.check([f"{work.name}, phase {phase}, {name}: {found}"] if found else [])
        ranges = united.repartitionByRange(GROUPS, "cell").groupBy(F.spark_partition_id()).count().toArrow()
        counts = ranges["count"].to_pylist()
        for name, size in (("static", inputs(static)), ("elastic", inputs(moving)), ("range", counts)):
            seen[name].skew.append(skew(size))
            seen[name].first.append(times[name][0])
            seen[name].later.append(median(times[name][1:]))
            seen[name].changed.append(name == "elastic" and changed and phase > 0)
        bests.append(best(moving))
        told = ", ".join(
            f"{name} {one.skew[-1]:.2f} {one.first[-1]:.2f} {one.later[-1]:.2f}" for name, one in seen.items()
        )
        run.say(f"{work.name}, phase {phase}, best {bests[-1]:.2f}; max/mean input, first, later s: {told}")
        for frame in frames:
            frame.unpersist()
    costs = measured(moving)
    static.close()
    moving.close()
    return Repeat(seen, bests, salts, costs)


def timed_medians(rows: pa.Table) -> pa.Table:
    """Return bytes of some rows, and the seconds that their medians take, the best of five."""
    taken = [timed(lambda: hotspots.medians(rows))[0] for _ in range(5)]
    return pa.table({"bytes": [rows.nbytes], "seconds": [min(taken)]})


def measured(collection: tm.Collection) -> Costs:
    """Measure what the simulation is told."""
    rows = collection.all().run(timed_medians)
    learned = collection._namespace.workers.costs
    byte = sum(rows["seconds"].to_pylist()) / sum(rows["bytes"].to_pylist())
    return Costs(learned.job, learned.question + TASK_SECONDS, byte)


def main() -> None:
    """Run the benchmark."""
    with benchmark("elasticity", REDUCED, figures=True) as run, networked_cluster(run, EXECUTORS) as spark:
        one: dict[str, list[Repeat]] = {}
        for number, work in enumerate((TAXI, ZIPF), 1):
            reserve = RESERVE + (run.left() - RESERVE) * (1 - number / 2)  # each has as much of a quick run
            one[work.name] = [
                one_repeat(run, spark, work, repeat)
                for repeat in run.repeats(QUICK_REPEATS if run.quick else REPEATS, reserve)
            ]
            report(run, work.name, one[work.name])
        changes = [
            (seen.first[p], seen.later[p])
            for repeats in one.values()
            for seen in (each.seen["elastic"] for each in repeats)
            for p in range(PHASES)
            if seen.changed[p]
        ]
        slower = paired_ratio(*zip(*changes, strict=True))
        run.figure("first_over_later", slower.median)
        run.figure("first_over_later_worst", max(first / later for first, later in changes))
        run.verdict(
            f"first job after each of {slower.repeats} changes over later ones", (slower.low, slower.high), SLOWER
        )
        taxi = one["taxi"]
        costs = [each.costs for each in taxi]
        typical = Costs(*(median(getattr(each, what) for each in costs) for what in ("job", "task", "byte")))
        draw(run, taxi, simulated(run, typical, GROUP_NAMES))


def report(run: Run, name: str, repeats: Sequence[Repeat]) -> None:
    """Print a workload's table and keep its figures: the worst of the phases in which there is a crowd."""
    prefix = "" if name == "taxi" else f"{name}."
    crowded = range(1, PHASES)
    for form in ("static", "range", "elastic"):
        skews = [max(each.seen[form].skew[p] for p in crowded) for each in repeats]
        run.figure(f"{prefix}{form}.max_over_mean", median(skews))
        run.figure(f"{prefix}{form}.later_s", median(each.seen[form].later[p] for each in repeats for p in crowded))
    run.figure(f"{prefix}best.max_over_mean", median(max(each.bests[p] for p in crowded) for each in repeats))
    rows = [
        [form, phase, *(median(getattr(each.seen[form], what)[phase] for each in repeats) for what in WHAT)]
        for form in ("static", "range", "elastic")
        for phase in range(PHASES)
    ]
    run.table(f"{name}: task inputs and jobs", ["form", "phase", "max/mean input", "first job s", "later job s"], rows)
    run.say(f"{name}: salted keys {repeats[-1].salts}")


WHAT = ("skew", "first", "later")


GROUP_NAMES = tuple(f"datasets {p * DATASETS + 1}-{(p + 1) * DATASETS}" for p in range(PHASES))


def draw(run: Run, repeats: Sequence[Repeat], virtual: Panel) -> None:
    """Draw task inputs and delays of the taxi trips, and what was simulated."""

    def series(what: str, label: str) -> list[Series]:
        return [
            Series(
                f"{form}{label}",
                (),
                [median(getattr(each.seen[form], what)[p] for each in repeats) for p in range(PHASES)],
            )
            for form in ("static", "range", "elastic")
        ]

    skews = Panel(Form.BARS, "Task inputs", "", "largest / mean", tuple(series("skew", "")), GROUP_NAMES)
    delays = Panel(
        Form.BARS, "Jobs", "", "seconds", (*series("later", ""), series("first", ", first job")[2]), GROUP_NAMES
    )
    text = f"{EXECUTORS} executors with one core each; a crowd gathers in datasets 4-6 and elsewhere in 7-9."
    run.draw(Figure("elasticity", "Groups that follow a crowd", text, (skews, delays, virtual), columns=3))


if __name__ == "__main__":
    main()
