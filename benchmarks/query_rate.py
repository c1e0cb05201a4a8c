"""Questions per second about the past hours, each answered within 800 ms (Stark, Figures 19 and 20)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import transom as tm
from benchmarks.cluster import local_cluster, spilled_bytes
from benchmarks.harness import Run, benchmark, percentile
from benchmarks.plots import Figure, Form, Panel, Series
from benchmarks.results import differences
from benchmarks.workloads import hotspots

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
GROWTH = 1.25
"""From one rate to the next."""
REPEATS, QUICK_REPEATS = 3, 1
THREADS = 64
"""Questions in flight at most; later ones wait, and their time counts from when they are due."""
SCALES = (0.5, 1.0, 2.0)
"""Rows of a dataset, relative to the above, for response times at one rate."""
REDUCED = (
    f"{QUICK_STEPS} instead of {STEPS} datasets of {QUICK_ROWS:,} instead of {ROWS:,} trips, runs of "
    f"{QUICK_SECONDS:.0f} instead of {SECONDS:.0f} s, {QUICK_REPEATS} instead of {REPEATS} repeats"
)


@dataclass(frozen=True)
class Question:
    """Trips, and their median fare, of each cell in a region, over some of the datasets."""

    start: int
    end: int
    first: int
    """First cell."""
    last: int
    """The cell after the last one."""


Ask = Callable[[Question], pa.Table]


def questions(rng: np.random.Generator, count: int, steps: int, cells: np.ndarray) -> list[Question]:
    """Return questions about random times, of a quarter to three quarters of the datasets, and random regions."""
    found = []
    for _ in range(count):
        length = int(rng.integers(max(1, steps // 4), steps * 3 // 4 + 1))
        start = int(rng.integers(0, steps - length + 1))
        low, high = np.quantile(cells, sorted(rng.random(2)), method="lower")
        found.append(Question(start, start + length, int(low), int(high) + 1))
    return found


class Forms:
    """The datasets in memory in each form, and how each answers."""

    def __init__(self, run: Run, spark: SparkSession, tag: str, sources: Sequence[DataFrame]) -> None:
        run.say(f"{tag}: loading {len(sources)} datasets")
        self.raw = [each.persist() for each in sources]
        self.cached = [each.repartition(EXECUTORS, "cell").persist() for each in sources]
        for each in (*self.raw, *self.cached):
            each.count()
        self.collection = tm.Collection(spark, tag, keys=["cell"], partitions=PARTITIONS)
        for step, each in enumerate(sources):
            self.collection.add(step, each)

    def asks(self) -> dict[str, Ask]:
        """Return how to ask each form."""
        return {
            "hash": lambda q: _sql(self.raw[q.start : q.end], q),
            "cached": lambda q: _sql(self.cached[q.start : q.end], q),
            "transom": lambda q: self.collection.between(q.start, q.end).run(_in_region(q)),
        }

    def close(self) -> None:
        """Free the memory."""
        for each in (*self.raw, *self.cached):
            each.unpersist()
        self.collection.close()


def _sql(frames: Sequence[DataFrame], q: Question) -> pa.Table:
    """Ask Spark: only the cells of the region are exchanged, or nothing where a cell's trips lie together."""
    united = reduce(DataFrame.unionAll, frames).where((F.col("cell") >= q.first) & (F.col("cell") < q.last))
    return united.groupBy("cell").agg(F.count("*").alias("trips"), F.median("fare").alias("median")).toArrow()


def _in_region(q: Question) -> Callable[[pa.Table], pa.Table]:
    return lambda rows: hotspots.medians(hotspots.in_cells(rows, q.first, q.last))


def open_loop(ask: Ask, asked: Sequence[Question], rate: float) -> list[float]:
    """Ask at a fixed rate, whether or not answers come; return seconds from when each question was due."""
    latencies = [0.0] * len(asked)
    start = time.perf_counter() + 0.05

    def one(number: int) -> None:
        ask(asked[number])
        latencies[number] = time.perf_counter() - start - number / rate

    with ThreadPoolExecutor(THREADS) as pool:
        waiting = threading.Event()
        for number in range(len(asked)):
            waiting.wait(max(0.0, start + number / rate - time.perf_counter()))
            pool.submit(one, number).add_done_callback(_raised)
    return latencies


def _raised(future) -> None:
    if error := future.exception():
        raise error


def highest_rate(ask: Ask, asked: Sequence[Question], seconds: float, first: float) -> tuple[float, float]:
    """Return the highest rate on the ladder whose 95th percentile is within the limit, and that percentile in ms."""
    rate, best = first, (0.0, float("nan"))
    while True:
        many = [asked[n % len(asked)] for n in range(max(8, int(rate * seconds)))]
        slow = percentile(open_loop(ask, many, rate), QUANTILE)
        if slow > LIMIT_S:
            if best[0] > 0 or rate < 0.2:
                return best
            rate /= GROWTH**3
        else:
            best = (rate, slow * 1_000)
            rate *= GROWTH


def alone(ask: Ask, asked: Sequence[Question]) -> float:
    """Return the median seconds of a question by itself."""
    taken = []
    for question in asked:
        begun = time.perf_counter()
        ask(question)
        taken.append(time.perf_counter() - begun)
    return median(taken)


def datasets(run: Run, spark: SparkSession, steps: int, rows: int, tag: str) -> tuple[list[DataFrame], np.ndarray]:
    """Write the datasets, whose rate rises; return them and the cells of the last."""
    rng = np.random.default_rng(3)
    frames, cells = [], np.zeros(0, np.int64)
    for step in range(steps):
        cells = hotspots.taxi_cells(rng, int(rows * (2 / 3) * (1 + step / max(1, steps - 1))), 0) >> 8
        path = run.work / f"{tag}-{step}.parquet"
        pq.write_table(hotspots.trips(cells, rng, 5 * step), path)
        frames.append(spark.read.schema(hotspots.TRIPS).parquet(str(path)))
    return frames, cells


def compare(run: Run, asks: dict[str, Ask], asked: Sequence[Question]) -> None:
    """Compare the answers of all forms, which also warms them."""
    for question in asked:
        answers = {name: ask(question).sort_by("cell") for name, ask in asks.items()}
        for name in ("cached", "transom"):
            found = differences(answers[name], answers["hash"])
            run.check([f"{name}, {question}: {found}"] if found else [])


def main() -> None:
    """Run the benchmark."""
    with (
        benchmark("query_rate", REDUCED, figures=True) as run,
        local_cluster(EXECUTORS, MEGABYTES, spark_sql_shuffle_partitions=str(EXECUTORS)) as spark,
    ):
        steps, rows = (QUICK_STEPS, QUICK_ROWS) if run.quick else (STEPS, ROWS)
        seconds = QUICK_SECONDS if run.quick else SECONDS
        frames, cells = datasets(run, spark, steps, rows, "rate")
        forms = Forms(run, spark, "rate", frames)
        asks = forms.asks()
        asked = questions(np.random.default_rng(9), 64, steps, cells)
        compare(run, asks, asked[:4])
        for ask in asks.values():
            open_loop(ask, asked[:12], 4.0)
        spilled = spilled_bytes(spark)
        run.check([f"{spilled} bytes of the baselines' cached data are on disk"] if spilled else [])
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in asks}
        for repeat in run.repeats(QUICK_REPEATS if run.quick else REPEATS, reserve=60):
            names = list(asks)
            for name in names[repeat % 3 :] + names[: repeat % 3]:
                first = 1 / max(alone(asks[name], asked[:6]), 0.02)
                found[name].append(highest_rate(asks[name], asked, seconds, first))
                run.say(f"{name}: {found[name][-1][0]:.1f} questions/s, p95 {found[name][-1][1]:.0f} ms")
        for name, runs in found.items():
            run.figure(f"{name}.qps", median(rate for rate, _ in runs))
            run.figure(f"{name}.p95_ms", median(slow for _, slow in runs))
        shared = forms.collection.groups.shared
        run.say(f"transom: {shared.questions} questions in {shared.jobs} jobs")
        qps = {name: median(rate for rate, _ in runs) for name, runs in found.items()}
        run.say(
            f"transom over hash {qps['transom'] / qps['hash']:.2f}, over cached {qps['transom'] / qps['cached']:.2f}"
        )
        forms.close()
        responses(run, spark, steps, rows, max(0.2, 0.7 * min(qps.values())), asked)


def responses(run: Run, spark: SparkSession, steps: int, rows: int, rate: float, asked: Sequence[Question]) -> None:
    """Measure response times at one rate of questions for rising rates of data."""
    times: dict[str, list[float]] = {}
    done = []
    for scale in SCALES:
        if run.left() < 45:
            run.say(f"time is short: {len(done)} of {len(SCALES)} rates of data")
            break
        frames, _ = datasets(run, spark, steps, int(rows * scale), f"x{scale}")
        forms = Forms(run, spark, f"x{scale}", frames)
        compare(run, forms.asks(), asked[:2])
        for name, ask in forms.asks().items():
            latencies = open_loop(ask, asked[: max(12, int(rate * 5))], rate)
            times.setdefault(name, []).append(median(latencies) * 1_000)
        forms.close()
        done.append(int(rows * scale))
    if not done:
        return
    run.table(
        f"median response in ms at {rate:.1f} questions/s, by trips per dataset",
        ["form", *map(str, done)],
        [[name, *each] for name, each in times.items()],
    )
    series = tuple(Series(name, done, each) for name, each in times.items())
    panel = Panel(Form.LINES, "Response time", "trips per dataset", "ms", series, y_log=True)
    text = f"Median response time at {rate:.1f} questions/s over {steps} datasets; {EXECUTORS} executors with one core."
    run.draw(Figure("query_rate", "Questions about the past hours", text, (panel,), columns=1))


if __name__ == "__main__":
    main()
