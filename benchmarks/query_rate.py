"""Questions per second about the past hours, each answered within 800 ms (Stark, Figures 19 and 20)."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial, reduce
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import transom as tm
from benchmarks.cluster import networked_cluster, spilled_bytes, watched
from benchmarks.harness import Run, benchmark, percentile
from benchmarks.plots import Figure, Form, Panel, Series
from benchmarks.results import differences
from benchmarks.simulated_cluster import Cluster, Costs, Load, highest, spark, transom
from benchmarks.workloads import hotspots
from transom.scheduling.costs import line

EXECUTORS = 3
MEGABYTES = 2_048
PARTITIONS = 12
STEPS, QUICK_STEPS = 36, 12
"""Datasets: one for each five minutes."""
ROWS, QUICK_ROWS = 20_000, 10_000
"""Trips of a dataset on average; their rate doubles from the first to the last."""
LIMIT_S = 0.8
QUANTILE = 0.95
SECONDS, QUICK_SECONDS = 12.0, 4.0
"""Of a run at one rate."""
LEAST = 20
"""Questions of a run: one of them may be too late."""
GROWTH = 1.25
"""From one rate to the next."""
LEAST_RATE = 0.1
"""No rate below it is tried."""
REPEATS, QUICK_REPEATS = 3, 1
THREADS = 64
"""Questions in flight at most; later ones wait, and their time counts from when they are due."""
SCALES, QUICK_SCALES = (1.0, 2.0, 4.0), (1.0, 4.0)
"""Rows of a dataset, relative to the above, for response times at one rate."""
KINDS = {
    "count": "count(*) AS trips",
    "fares": "cell, count(*) AS trips, sum(fare) AS fares, max(tip) AS tip",
    "median": "cell, count(*) AS trips, median(fare) AS median",
}
"""Kinds of questions, a third each, as Spark is asked them."""
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
class Question:
    """What is asked of the cells in a region, over some of the datasets."""

    kind: str
    start: int
    end: int
    first: int
    """First cell."""
    last: int
    """The cell after the last one."""


Ask = Callable[[Question], pa.Table]


def questions(rng: np.random.Generator, count: int, steps: int, cells: np.ndarray) -> list[Question]:
    """Return questions about random ranges of times and random regions, the kinds in turn."""
    found = []
    for number in range(count):
        start, end = sorted(rng.choice(steps + 1, 2, replace=False))
        low, high = np.quantile(cells, sorted(rng.random(2)), method="lower")
        found.append(Question(list(KINDS)[number % len(KINDS)], int(start), int(end), int(low), int(high) + 1))
    return found


class Forms:
    """The datasets in memory in each form, and how each answers."""

    def __init__(
        self, run: Run, session: SparkSession, tag: str, sources: Sequence[DataFrame], cells: np.ndarray
    ) -> None:
        run.say(f"{tag}: loading {len(sources)} datasets")
        self.tag, self.session, self.steps = tag, session, len(sources)
        self.frames = {
            "hash": [each.persist() for each in sources],
            "cached": [_together(each).persist() for each in sources],
        }
        for name, frames in self.frames.items():
            reduce(DataFrame.unionAll, frames).count()  # one job fills the caches of all
            for step, each in enumerate(frames):
                each.createOrReplaceTempView(f"{name}_{step}")
        bounds = hotspots.bounds(cells, PARTITIONS, int(cells.max()))
        self.collection = tm.Collection(session, tag, keys=["cell"], partitions=PARTITIONS, bounds=bounds)
        for step, each in enumerate(sources):
            self.collection.add(step, each)

    def asks(self) -> dict[str, Ask]:
        """Return how to ask each form."""
        return {
            "hash": lambda q: self.sql("hash", q).toArrow(),
            "cached": lambda q: self.sql("cached", q).toArrow(),
            "transom": self.placed,
        }

    def sql(self, name: str, q: Question) -> DataFrame:
        """Ask Spark: only the cells of the region are exchanged, or nothing where a cell's trips lie together."""
        union = " UNION ALL ".join(f"SELECT cell, fare, tip FROM {name}_{step}" for step in range(q.start, q.end))
        grouped = "" if q.kind == "count" else " GROUP BY cell"
        region = f"cell >= {q.first} AND cell < {q.last}"
        return self.session.sql(f"SELECT {KINDS[q.kind]} FROM ({union}) WHERE {region}{grouped}")

    def placed(self, q: Question) -> pa.Table:
        """Ask the collection."""
        view = self.collection.between(q.start, q.end).key_range(q.first, q.last).within(f"{LIMIT_S} s")
        if q.kind == "count":
            return pa.table({"trips": [view.count()]})
        if q.kind == "median":
            return view.run(hotspots.medians)
        found = view.aggregate(["cell"], {"fare": ["count", "sum"], "tip": "max"})
        return found.rename_columns(["cell", "trips", "fares", "tip"])

    def close(self) -> None:
        """Free the memory."""
        for name, frames in self.frames.items():
            for step, each in enumerate(frames):
                each.unpersist()
                self.session.catalog.dropTempView(f"{name}_{step}")
        self.collection.close()


def _together(frame: DataFrame) -> DataFrame:
    """Return the rows with those of a cell together.

    A filter makes a nullable key not null; then Spark no longer sees that filtered datasets are partitioned alike, and
    exchanges their union. So the key is not nullable from the start.
    """
    key = F.coalesce("cell", F.lit(0).cast("bigint"))
    return frame.withColumn("cell", key).repartition(EXECUTORS, "cell").sortWithinPartitions("cell")


def open_loop(ask: Ask, asked: Sequence[Question], rate: float, limit: float = math.inf) -> list[float]:
    """Ask at a fixed rate, whether or not answers come; return seconds from when each question was due.

    Once more questions than the quantile allows are late, the rest is not asked: it counts as infinite.
    """
    latencies = [math.inf] * len(asked)
    late: list[int] = []
    most = len(asked) - math.ceil(QUANTILE * len(asked))
    start = time.perf_counter() + 0.05

    def one(number: int) -> None:
        ask(asked[number])
        latencies[number] = time.perf_counter() - start - number / rate
        if latencies[number] > limit:
            late.append(number)

    with ThreadPoolExecutor(THREADS) as pool:
        waiting = threading.Event()
        for number in range(len(asked)):
            waiting.wait(max(0.0, start + number / rate - time.perf_counter()))
            if len(late) > most:
                break
            pool.submit(one, number).add_done_callback(_raised)
    return latencies


def _raised(future) -> None:
    if error := future.exception():
        raise error


@dataclass
class Ladder:
    """Rates that were tried with one form, and their 95th percentiles in seconds."""

    tried: list[tuple[float, float]]

    @property
    def best(self) -> tuple[float, float]:
        """The highest rate whose percentile is within the limit, and that in milliseconds; 0 if there is none."""
        kept = [(rate, slow * 1_000) for rate, slow in self.tried if slow <= LIMIT_S]
        return max(kept, default=(0.0, float("nan")))


def climb(ask: Ask, asked: Sequence[Question], seconds: float, first: float, until: Callable[[], bool]) -> Ladder:
    """Double or halve the rate until one is kept and one is not; then go up from the one that is, step by step.

    Args:
        ask: The form.
        asked: Questions, asked in turn.
        seconds: Of a run at one rate; longer if it would have too few questions.
        first: Questions per second.
        until: Whether to stop.
    """
    ladder, rate, kept, not_kept = Ladder([]), first, 0.0, float("inf")
    while rate > LEAST_RATE and not until():
        offset = len(ladder.tried) * LEAST
        many = [asked[(offset + n) % len(asked)] for n in range(max(LEAST, int(rate * seconds)))]
        ladder.tried.append((rate, percentile(open_loop(ask, many, rate, LIMIT_S), QUANTILE)))
        if ladder.tried[-1][1] <= LIMIT_S:
            kept = rate
        else:
            not_kept = rate
        if not kept:
            rate /= 2
        elif not_kept == float("inf"):
            rate *= 2
        elif kept * GROWTH < 0.99 * not_kept:
            rate = kept * GROWTH
        else:
            break
    return ladder


def alone(ask: Ask, asked: Sequence[Question]) -> float:
    """Return the median seconds of a question by itself."""
    taken = []
    for question in asked:
        begun = time.perf_counter()
        ask(question)
        taken.append(time.perf_counter() - begun)
    return median(taken)


def datasets(run: Run, session: SparkSession, steps: int, rows: int, tag: str) -> tuple[list[DataFrame], np.ndarray]:
    """Write the datasets, whose rate rises; return them and the cells of the last."""
    rng = np.random.default_rng(3)
    frames, cells = [], np.zeros(0, np.int64)
    for step in range(steps):
        cells = hotspots.taxi_cells(rng, int(rows * (2 / 3) * (1 + step / max(1, steps - 1))), 0) >> 8
        path = run.work / f"{tag}-{step}.parquet"
        pq.write_table(hotspots.trips(cells, rng, 5 * step), path)
        frames.append(session.read.schema(hotspots.TRIPS).parquet(str(path)))
    return frames, cells


def compare(run: Run, asks: dict[str, Ask], asked: Sequence[Question]) -> None:
    """Compare the answers of all forms, which also warms them."""
    for question in asked:
        answers = {name: ask(question) for name, ask in asks.items()}
        if question.kind != "count":
            answers = {name: answer.sort_by("cell") for name, answer in answers.items()}
        for name in ("cached", "transom"):
            found = differences(answers[name], answers["hash"])
            run.check([f"{name}, {question}: {found}"] if found else [])


def throughput(run: Run, asks: dict[str, Ask], asked: Sequence[Question]) -> dict[str, list[Ladder]]:
    """Find the highest rate of each form, in turn."""
    seconds = QUICK_SECONDS if run.quick else SECONDS
    found: dict[str, list[Ladder]] = {name: [] for name in asks}
    for repeat in run.repeats(QUICK_REPEATS if run.quick else REPEATS, reserve=70):
        names = list(asks)
        for place, name in enumerate(names[repeat % 3 :] + names[: repeat % 3]):
            share = (run.left() - 70) / (3 - place)
            stop = run.left() - share
            first = 0.5 / max(alone(asks[name], asked[:6]), 0.02)
            ladder = climb(asks[name], asked, seconds, first, lambda stop=stop: run.left() < stop)
            found[name].append(ladder)
            rate, slow = ladder.best
            run.say(f"{name}: {rate:.2f} questions/s, p95 {slow:.0f} ms ({len(ladder.tried)} rates)")
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
    single = alone(ask, asked[:6])
    begun = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(ask, asked[:THREADS]))
    further = max(0.0, time.perf_counter() - begun - single) / THREADS
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
    learned = forms.collection.groups.workers.costs
    found = Costs(learned.job, further, learned.question, byte, float(plan), float(plan_dataset), stock)
    ours = f"{found.job * 1e3:.0f} ms a job, {further * 1e3:.1f} ms each further question of it"
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
                highest(lambda rate, s=size, f=each: f(Load(rate, SIMULATED_SECONDS, s)), LIMIT_S, QUANTILE)[0]
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
        for ask in asks.values():
            open_loop(ask, asked[:12], 4.0)
        spilled = spilled_bytes(session)
        run.check([f"{spilled} bytes of the baselines' cached data are on disk"] if spilled else [])
        found = throughput(run, asks, asked)
        qps = {name: median(each.best[0] for each in ladders) for name, ladders in found.items()}
        for name, ladders in found.items():
            run.figure(f"{name}.qps", qps[name])
            run.figure(f"{name}.p95_ms", median(each.best[1] for each in ladders))
        shared = forms.collection.groups.shared
        run.say(f"transom: {shared.questions} questions in {shared.jobs} jobs")
        for name in ("hash", "cached"):
            ratio = f"{qps['transom'] / qps[name]:.2f}" if qps[name] else "no rate at all was kept by"
            run.say(f"transom over {name}: {ratio}")
        virtual = simulated(run, measured(run, forms, asked))
        rate = max(0.2, 0.7 * min(qps.values()))
        by_data = responses(run, session, forms, steps, rows, rate, asked)
        draw(run, found, by_data, virtual, steps)


def draw(run: Run, found: dict[str, list[Ladder]], by_data: Panel | None, virtual: Panel, steps: int) -> None:
    """Draw what was measured, and what was simulated."""
    series = []
    for name, ladders in found.items():
        points = sorted(point for ladder in ladders for point in ladder.tried if math.isfinite(point[1]))
        series.append(Series(name, [rate for rate, _ in points], [slow * 1_000 for _, slow in points]))
    levels = {"limit": LIMIT_S * 1_000}
    by_rate = Panel(
        Form.LINES, "By rate", "questions/s", "95th percentile, ms", tuple(series), (), levels, x_log=True, y_log=True
    )
    panels = tuple(panel for panel in (by_rate, by_data, virtual) if panel is not None)
    text = f"Response times over {steps} datasets; {EXECUTORS} executors with one core. Last: virtual time."
    run.draw(Figure("query_rate", "Questions about the past hours", text, panels, columns=len(panels)))


if __name__ == "__main__":
    main()
