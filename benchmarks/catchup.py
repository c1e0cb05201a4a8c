"""Speed of processing a backlog for 1, 4 and 16 queries, against stock Spark, Flink SQL, DuckDB and Polars.

Transom makes partials without Spark SQL (`lane="auto"`), and once more with it. `--only` chooses what it is compared
with, as most of a run in full is the time of stock Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pyarrow as pa

from benchmarks import flink, results, stock, ysb
from benchmarks.harness import CORES, Run, benchmark, paired_ratio
from benchmarks.latency import cpu_seconds
from benchmarks.worker import Worker
from benchmarks.ysb import QUERIES, Events, Query

EVENTS = Events(rate=10_000, per_file=50_000)
WARM = Events(rate=10_000, per_file=5_000)
WARM_FILES = 4
REDUCED = (
    "0.6 to 1 M events instead of 3 M, 0.2 M for stock Spark with 16 queries instead of 1.2 M, at most 3 "
    "repeats instead of 3 to 5, and the settings of stock Spark chosen among fewer"
)


@dataclass(frozen=True)
class Size:
    """How much of the input one number of queries gets, in files of 50,000 events."""

    queries: int
    files: int
    stock_files: int
    """What stock Spark gets, and Transom once more for the ratio, when it is less than `files`."""
    repeats: int
    reserve: float
    """Seconds that a quick run keeps for what follows."""


FULL = (Size(1, 60, 60, 5, 0), Size(4, 60, 60, 3, 0), Size(16, 60, 24, 3, 0))
QUICK = (Size(1, 20, 20, 3, 205), Size(4, 12, 12, 3, 145), Size(16, 20, 4, 3, 15))


@dataclass(frozen=True)
class Setting:
    """Settings of stock Spark that are tried."""

    files_per_trigger: int
    store: str

    def __str__(self) -> str:
        return f"{self.files_per_trigger} files per trigger, {self.store} state store"


SETTINGS = tuple(Setting(files, store) for store in ("default", "rocksdb") for files in (1, 4))
QUICK_SETTINGS = (Setting(1, "default"), Setting(4, "rocksdb"), Setting(4, "default"))
TRIAL_FILES = {1: 8, 4: 8, 16: 4}
QUICK_TRIAL_FILES = {1: 12}


class Speed(NamedTuple):
    """What an engine made of the input."""

    rows_per_s: float
    cpu_s_per_m: float
    """Seconds of processor time per million events, of all its processes."""


@cache
def expected(files: int) -> dict[str, pa.Table]:
    """Return the right results over the first files; computed once."""
    return ysb.oracle(EVENTS, files)


OTHERS = ("spark_lane", "flink", "duckdb", "polars", "stock_shared", "stock")
"""What Transom is compared with."""
_PROCESSES = {"spark_lane": "transom_runner", "duckdb": "batch", "polars": "batch", "stock_shared": "stock"}
"""Of engines that share one with another."""


class Engines:
    """The processes, and one way to time any of them on a number of files and queries.

    Args:
        run: The benchmark.
        workers: The processes by engine.
    """

    def __init__(self, run: Run, workers: dict[str, Worker]) -> None:
        self.run = run
        self.workers = workers
        self.best: dict[int, Setting] = {}

    def time(self, engine: str, queries: int, files: int, **more: Any) -> Speed:
        """Run once, compare the results, and return how fast it was."""
        source, output = ysb.prefix(self.run.data, EVENTS, files), self.run.fresh("out") / engine
        worker = self.workers[_PROCESSES.get(engine, engine)]
        given = self.for_flink(source, files) if engine == "flink" else source
        before = cpu_seconds(worker.pid)
        directory: Callable[[Query], Path] = lambda query: output / query.name  # noqa: E731
        if engine in ("duckdb", "polars"):
            report = worker.call("catchup", engine=engine, source=source, output=output, count=queries)
        elif engine == "stock_shared":
            report = worker.call("shared", source=source, output=output, **more)
            directory = lambda query: output / "all" / f"spec={stock.spec(query)}"  # noqa: E731
        else:
            report = worker.call("catchup", source=given, output=output, count=queries, **more)
        used = cpu_seconds(worker.pid) - before
        label = ", ".join([engine, *(f"{name} {value}" for name, value in more.items()), f"{queries} queries"])
        chosen = QUERIES[:queries]
        self.run.check(results.check(label, directory, chosen, expected(files), EVENTS.end_ms(files)))
        if "lane" in more:
            native = report["native"] == (more["lane"] == "auto")
            self.run.check([] if native else [f"{label}: partials were made in the other lane"])
        rows = files * EVENTS.per_file
        speed = Speed(rows / float(report["seconds"]), used / rows * 1e6)
        self.run.say(
            f"{label}, {files} files: {report['seconds']:.2f} s, {speed.rows_per_s:,.0f} rows/s, "
            f"{speed.cpu_s_per_m:.2f} CPU s per million"
        )
        return speed

    def for_flink(self, source: Path, files: int) -> Path:
        """Return the same events as Flink gets them; see `benchmarks.flink`."""
        target = self.run.data / f"{EVENTS.name}-flink" / f"to-{files}-in-{CORES}"
        self.workers["flink"].call("prepare", source=source, output=target)
        return target

    def wanted(self, engine: str) -> bool:
        """Return whether to compare with this one of `OTHERS`."""
        return engine in self.run.parts and (engine != "flink" or engine in self.workers)

    def transom(self, queries: int, files: int, lane: str = "auto") -> Speed:
        """Time Transom; what makes partials is checked, too.

        A small run before it is not timed: Spark ends Python workers that had nothing to do for a minute, as while
        other engines were timed, and a stream always has something to do.
        """
        warm = ysb.prefix(self.run.data, WARM, WARM_FILES)
        self.workers["transom_runner"].call("warm", source=warm, output=self.run.fresh("warm"), count=queries)
        return self.time("transom_runner", queries, files, lane=lane)

    def stock(self, queries: int, files: int) -> Speed:
        """Time stock Spark with the best of its settings for this number of queries."""
        return self.time("stock", queries, files, **vars(self.best[queries]))

    def choose(self, queries: int) -> None:
        """Try stock Spark's settings on a part of the input and keep the fastest."""
        if not (self.wanted("stock") or self.wanted("stock_shared")):
            return
        trial = (QUICK_TRIAL_FILES if self.run.quick else TRIAL_FILES).get(queries)
        if trial is None:
            self.best[queries] = self.best[max(self.best)]
            return
        found = {
            setting: self.time("stock", queries, trial, **vars(setting)).rows_per_s
            for setting in (QUICK_SETTINGS if self.run.quick else SETTINGS)
        }
        self.best[queries] = max(found, key=lambda setting: found[setting])
        self.run.say(f"stock, {queries} queries: best with {self.best[queries]}")


def measure(engines: Engines, size: Size) -> list[list[object]]:
    """Time the engines in turn for one number of queries, keep the figures, return rows of the table."""
    run, count = engines.run, size.queries
    same = size.stock_files == size.files
    rates: dict[str, list[float]] = {}

    def note(engine: str, speed: Speed) -> None:
        for name, value in speed._asdict().items():
            rates.setdefault(f"{engine}_{name}" if engine else name, []).append(value)

    for lane in ("spark", "auto"):  # untimed, as are stock Spark's trials
        engines.transom(count, size.files, lane)
    if engines.wanted("flink"):
        engines.time("flink", count, size.files)
    batch = ("duckdb", "polars") if count == 16 else ()
    for _ in run.repeats(size.repeats, size.reserve):
        note("", engines.transom(count, size.files))
        if engines.wanted("spark_lane"):
            note("spark_lane", engines.transom(count, size.files, "spark"))
        for engine in filter(engines.wanted, (*batch, "flink")):
            note(engine, engines.time(engine, count, size.files))
        if count == 16 and engines.wanted("stock_shared"):
            note("stock_shared", engines.time("stock_shared", count, size.stock_files, **vars(engines.best[count])))
        if engines.wanted("stock"):
            note("stock", engines.stock(count, size.stock_files))
            if not same:
                note("stock_input", engines.transom(count, size.stock_files))
    for name, values in rates.items():
        run.figure(f"q{count}.{name}", median(values))
    rows: list[list[object]] = [
        [
            f"q{count}.{name}",
            *(f"{value:,.0f}" if name.endswith("rows_per_s") else f"{value:.2f}" for value in _range(values)),
            len(values),
        ]
        for name, values in rates.items()
    ]
    if engines.wanted("stock"):
        ours = rates["rows_per_s" if same else "stock_input_rows_per_s"]
        ratio = paired_ratio(ours, rates["stock_rows_per_s"])
        run.figure(f"q{count}.ratio", ratio.median)
        rows.append([f"q{count}.ratio", str(ratio), "", "", ratio.repeats])
    return rows


def _range(values: list[float]) -> tuple[float, float, float]:
    """Return the median, the least and the largest."""
    return median(values), min(values), max(values)


def main() -> None:
    """Run the benchmark."""
    with benchmark("catchup", REDUCED, parts=OTHERS) as run:
        sizes = QUICK if run.quick else FULL
        run.say(f"events: {max(size.files for size in sizes) * EVENTS.per_file:,} in {run.data}")
        for size in sizes:
            ysb.prefix(run.data, EVENTS, size.files)
        warm = ysb.prefix(run.data, WARM, WARM_FILES)
        names = ["transom_runner", *(_PROCESSES.get(engine, engine) for engine in run.parts)]
        try:
            if "flink" in names:
                flink.jars()
        except flink.MissingError as missing:
            run.say(f"without Flink: {missing}")
            names.remove("flink")
        with ExitStack() as stack:
            workers = {name: stack.enter_context(Worker(name, run.work)) for name in dict.fromkeys(names)}
            engines = Engines(run, workers)
            run.say("warm-up of Transom and what it is compared with")
            for name, count in (("transom_runner", 16), ("stock", 4 if run.quick else 16)):
                if name in workers:
                    workers[name].call("warm", source=warm, output=run.fresh("warm"), count=count)
            for name in filter(engines.wanted, ("duckdb", "polars")):
                workers["batch"].call("catchup", engine=name, source=warm, output=run.fresh("warm"), count=16)
            rows = []
            for size in sizes:
                engines.choose(size.queries)
                rows += measure(engines, size)
        run.table("Catching up", ["figure", "median", "least", "most", "repeats"], rows)


if __name__ == "__main__":
    main()
