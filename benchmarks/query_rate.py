"""Questions per second about the past hours, each answered within 800 ms (Stark, Figures 19 and 20)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from statistics import median

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.asking import QUANTILE, THREADS, alone, climb, open_loop, warm
from benchmarks.cluster import networked_cluster, spilled_bytes, watched
from benchmarks.harness import Run, benchmark
from benchmarks.plots import Figure, Form, Panel, Series
from benchmarks.questions import EXECUTORS, LIMIT_S, Ask, Forms, Question, compare, datasets, questions
from benchmarks.rates import Search, Trial
from benchmarks.simulated_cluster import Cluster
from benchmarks.simulated_questions import Costs, Load, highest, spark, transom
from benchmarks.workloads import hotspots
from transom.model.slopes import line

MEGABYTES = 2_048
STEPS, QUICK_STEPS = 36, 12
"""Datasets: one for each five minutes."""
ROWS, QUICK_ROWS = 20_000, 10_000
"""Trips of a dataset on average; their rate doubles from the first to the last."""
SECONDS, QUICK_SECONDS = 12.0, 4.0
"""Of a run at one rate."""
WARM_SECONDS, QUICK_WARM_SECONDS = 60.0, 15.0
"""In which each form is asked at most until its answers come no faster."""
RATIO = 1.25
"""Of the lowest rate that is not kept to the highest that is, when the search ends."""
LEAST_RATE = 0.1
"""No rate below it is tried."""
REPEATS, QUICK_REPEATS = 3, 1
SCALES, QUICK_SCALES = (1.0, 2.0, 4.0), (1.0, 4.0)
"""Rows of a dataset, relative to the above, for response times at one rate."""
GROUPS = 80
"""Of partitions on the simulated cluster: two for each executor."""
SIMULATED_BYTES, QUICK_BYTES = (4e6, 16e6, 64e6), (16e6,)
"""Of a dataset on the simulated cluster; the figures are of the one in the middle."""
SIMULATED_SECONDS = 4.0
PIECES = (5, 10, 20, 40)
"""Partitions of a cached dataset on the simulated cluster, of which Spark has the one that is best for it."""
SIMULATED_RATE = 20.0
"""Questions per second at which the paper compares response times."""
REDUCED = (
    f"{QUICK_STEPS} instead of {STEPS} datasets of {QUICK_ROWS:,} instead of {ROWS:,} trips, runs of "
    f"{QUICK_SECONDS:.0f} instead of {SECONDS:.0f} s, {QUICK_REPEATS} instead of {REPEATS} repeats"
)


@dataclass(frozen=True)
class Searched:
    """Rates that were tried with one form."""

    trials: tuple[Trial, ...]
    best: Trial
    """The highest rate that was kept; rate 0 if none was."""


def throughput(run: Run, asks: Mapping[str, Ask], asked: Sequence[Question]) -> dict[str, list[Searched]]:
    """Find the highest rate of each form, in turn."""
    seconds = QUICK_SECONDS if run.quick else SECONDS
    found: dict[str, list[Searched]] = {name: [] for name in asks}
    for repeat in run.repeats(QUICK_REPEATS if run.quick else REPEATS, reserve=70):
        names = list(asks)
        for place, name in enumerate(names[repeat % 3 :] + names[: repeat % 3]):
            share = (run.left() - 70) / (3 - place)
            stop = run.left() - share
            first = max(LEAST_RATE, 0.5 / max(alone(asks[name], asked[:6]), 0.02))
            search = Search(LIMIT_S, first, RATIO, LEAST_RATE)
            trials = climb(asks[name], asked, seconds, search, lambda stop=stop: run.left() < stop)
            best = search.best(trials) or Trial(0.0, math.nan)
            found[name].append(Searched(tuple(trials), best))
            run.say(f"{name}: {best.rate:.2f} questions/s, p95 {best.seconds * 1e3:.0f} ms ({len(trials)} rates)")
    return found


def responses(
    run: Run, session: SparkSession, forms: Forms, steps: int, rows: int, rate: float, asked: Sequence[Question]
) -> Panel | None:
    """Measure response times at one rate of questions for rising rates of data; closes the forms."""
    times: dict[str, list[float]] = {}
    done: list[float] = []
    for scale in QUICK_SCALES if run.quick else SCALES:
        if run.left() < 60:
            run.say(f"time is short: {len(done)} rates of data")
            break
        if scale != 1:
            forms.close()
            frames, cells = datasets(run, session, steps, int(rows * scale), f"x{scale:.0f}")
            forms = Forms(run, session, f"x{scale:.0f}", frames, cells)
            compare(run, forms.asks(), asked[:3])
        for name, ask in forms.asks().items():
            latencies = open_loop(ask, asked[: max(12, int(rate * 5))], rate)
            times.setdefault(name, []).append(median(latencies) * 1_000)
        done.append(int(rows * scale))
    forms.close()
    if not done:
        return None
    run.table(
        f"median response in ms at {rate:.1f} questions/s, by trips per dataset",
        ["form", *(f"{each:,.0f}" for each in done)],
        [[name, *each] for name, each in times.items()],
    )
    series = tuple(Series(name, done, each) for name, each in times.items())
    return Panel(Form.LINES, f"At {rate:.1f} questions/s", "trips per dataset", "median, ms", series, y_log=True)


def timed(rows: pa.Table) -> pa.Table:
    """Return bytes of some rows, and the mean seconds that a question of each kind computes, the best of five."""
    kinds: list[Callable[[], object]] = [
        lambda: len(hotspots.in_cells(rows, 0, 1 << 40)),
        lambda: rows.group_by("cell", use_threads=False).aggregate([("fare", "sum"), ("tip", "max")]),
        lambda: hotspots.medians(rows),
    ]
    total = 0.0
    for kind in kinds:
        taken = []
        for _ in range(5):
            begun = time.perf_counter()
            kind()
            taken.append(time.perf_counter() - begun)
        total += min(taken)
    return pa.table({"bytes": [rows.nbytes], "seconds": [total / len(kinds)]})


def measured(run: Run, forms: Forms, asked: Sequence[Question]) -> Costs:
    """Measure what the simulation is told."""
    ask = forms.asks()["transom"]
    begun = time.process_time()  # not the wall: executors that answer share the driver's cores here
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(ask, asked))
    further = (time.process_time() - begun) / len(asked)
    counts, plans = [], []
    for question in asked[:24]:
        begun = time.perf_counter()
        forms.sql("cached", question)._jdf.queryExecution().executedPlan()
        plans.append(time.perf_counter() - begun)
        counts.append(question.end - question.start)
    plan, plan_dataset = line(np.array(counts, np.float64), np.array(plans))
    narrow = [Question("count", each.start, each.start + 1, each.first, each.first + 1) for each in asked[:6]]
    stock = max(0.0, alone(forms.asks()["hash"], narrow) - float(plan + plan_dataset))
    rows = forms.collection.all().run(timed)
    byte = sum(rows["seconds"].to_pylist()) / sum(rows["bytes"].to_pylist())
    learned = forms.collection._namespace.workers.costs
    found = Costs(learned.job, further, learned.question, byte, float(plan), float(plan_dataset), stock)
    ours = f"{found.job * 1e3:.0f} ms a job, {further * 1e3:.1f} ms of the driver for each question of it"
    task = f"{found.part * 1e3:.1f} ms a question in a task, {byte * 1e9:.2f} ns a byte"
    planned = f"{found.plan * 1e3:.0f} ms a plan, {found.plan_dataset * 1e3:.1f} ms each dataset of it"
    run.say(f"measured: {ours}; {task}; Spark: {planned}, {stock * 1e3:.0f} ms beside")
    return found


def simulated(run: Run, costs: Costs) -> Panel:
    """Show the same on the paper's cluster, where two cores are no bound: in virtual time."""
    cluster = Cluster()
    forms: dict[str, list[Callable[[Load], list[float]]]] = {
        "hash": [partial(spark, cluster, costs, exchanges=True, pieces=pieces) for pieces in PIECES],
        "cached": [partial(spark, cluster, costs, exchanges=False, pieces=pieces) for pieces in PIECES],
        "transom": [partial(transom, cluster, costs, groups=GROUPS)],
    }
    volumes = QUICK_BYTES if run.quick else SIMULATED_BYTES
    rows, rates = [], {}
    for name, simulations in forms.items():
        best, responses = [], []
        for size in volumes:
            found = [
                highest(lambda rate, s=size, f=each: f(Load(rate, SIMULATED_SECONDS, s)), LIMIT_S, QUANTILE)
                for each in simulations
            ]
            best.append(max(found))
            fastest = simulations[found.index(best[-1])]
            responses.append(median(fastest(Load(SIMULATED_RATE, SIMULATED_SECONDS, size))) * 1_000)
        rates[name] = best
        rows.append([name, *best, *responses])
    sizes = [f"{size / 1e6:.0f} MB" for size in volumes]
    run.table(
        f"SIMULATED: {cluster.executors} executors with {cluster.cores} cores, links of {cluster.link * 8 / 1e9:.0f} "
        f"Gbit/s; 36 datasets; questions/s with p95 within {LIMIT_S * 1e3:.0f} ms, and median ms at "
        f"{SIMULATED_RATE:.0f} questions/s",
        ["form", *(f"rate, {each}" for each in sizes), *(f"ms, {each}" for each in sizes)],
        rows,
    )
    middle = len(volumes) // 2
    for name in forms:
        run.figure(f"simulated.{name}.qps", rates[name][middle])
    series = tuple(Series(name, [size / 1e6 for size in volumes], rates[name]) for name in forms)
    return Panel(
        Form.LINES,
        f"Simulated: {cluster.executors} executors",
        "MB per dataset",
        "questions/s within 800 ms",
        series,
        x_log=True,
        y_log=True,
    )


def main() -> None:
    """Run the benchmark."""
    settings = {
        "spark_sql_shuffle_partitions": str(EXECUTORS),
        "spark_sql_objectHashAggregate_sortBased_fallbackThreshold": "100000",
    }
    with (
        benchmark("query_rate", REDUCED, figures=True) as run,
        networked_cluster(run, EXECUTORS, MEGABYTES, **settings) as session,
    ):
        steps, rows = (QUICK_STEPS, QUICK_ROWS) if run.quick else (STEPS, ROWS)
        frames, cells = datasets(run, session, steps, rows, "rate")
        forms = Forms(run, session, "rate", frames, cells)
        asks = forms.asks()
        asked = questions(np.random.default_rng(9), 3 * THREADS, steps, cells)
        compare(run, asks, asked[:6])
        for name, ask in asks.items():
            with watched(session) as stages:
                ask(asked[2])
            moved = stages[0].shuffle_bytes
            run.say(
                f"{name}: {moved:,} bytes are exchanged for the medians of {asked[2].end - asked[2].start} datasets"
            )
            run.check([f"{name}: {moved} bytes were exchanged"] if (moved > 0) != (name == "hash") else [])
        for name, ask in asks.items():
            count = warm(ask, asked, QUICK_WARM_SECONDS if run.quick else WARM_SECONDS)
            open_loop(ask, asked[:12], 4.0)
            run.say(f"{name} is warm after {count} questions")
        spilled = spilled_bytes(session)
        run.check([f"{spilled} bytes of the baselines' cached data are on disk"] if spilled else [])
        found = throughput(run, asks, asked)
        qps = {name: median(each.best.rate for each in searches) for name, searches in found.items()}
        for name, searches in found.items():
            run.figure(f"{name}.qps", qps[name])
            run.figure(f"{name}.p95_ms", median(each.best.seconds * 1_000 for each in searches))
        shared = forms.collection._namespace.shared
        run.say(f"transom: {shared.questions} questions in {shared.jobs} jobs")
        for name in ("hash", "cached"):
            ratio = f"{qps['transom'] / qps[name]:.2f}" if qps[name] else "no rate at all was kept by"
            run.say(f"transom over {name}: {ratio}")
        virtual = simulated(run, measured(run, forms, asked))
        rate = max(0.2, 0.7 * min(qps.values()))
        by_data = responses(run, session, forms, steps, rows, rate, asked)
        draw(run, found, by_data, virtual, steps)


def draw(run: Run, found: dict[str, list[Searched]], by_data: Panel | None, virtual: Panel, steps: int) -> None:
    """Draw what was measured, and what was simulated."""
    series = []
    for name, searches in found.items():
        trials = [trial for each in searches for trial in each.trials if math.isfinite(trial.seconds)]
        trials.sort(key=lambda trial: trial.rate)
        series.append(Series(name, [trial.rate for trial in trials], [trial.seconds * 1_000 for trial in trials]))
    levels = {"limit": LIMIT_S * 1_000}
    by_rate = Panel(
        Form.LINES, "By rate", "questions/s", "95th percentile, ms", tuple(series), (), levels, x_log=True, y_log=True
    )
    panels = tuple(panel for panel in (by_rate, by_data, virtual) if panel is not None)
    text = f"Response times over {steps} datasets; {EXECUTORS} executors with one core. Last: virtual time."
    run.draw(Figure("query_rate", "Questions about the past hours", text, panels, columns=len(panels)))


if __name__ == "__main__":
    main()
