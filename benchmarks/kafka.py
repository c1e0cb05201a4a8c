"""A topic of three partitions: catching up against stock Spark and Flink SQL, latency at a pace, a micro-batch's cost.

Transom makes partials without Spark SQL (`lane="auto"`), and once more with it, to compare rates and processor time.
Flink reads a topic of its own, whose events name their campaign already (`benchmarks.flink` says why). The broker is
the one of the tests, on this machine: it takes a part of the cores that the engines have.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
from tests import fetching
from tests.kafka import broker

from benchmarks import feed, flink, latency, results, topics, ysb
from benchmarks.harness import Run, benchmark, paired_ratio, percentile
from benchmarks.latency import cpu_seconds
from benchmarks.worker import Worker
from benchmarks.ysb import QUERIES, Events

EVENTS = Events(rate=10_000, per_file=50_000)
WARM = Events(rate=10_000, per_file=5_000)
WARM_FILES = 4
PACED = Events(rate=10_000, per_file=10_000)
CONNECTOR = "5.0.0-2.2"
"""Version of Flink's connector."""
SMALL = Events(rate=100, per_file=100)
OFFSETS = 17_000 * topics.PARTITIONS
"""Of stock Spark's micro-batches. Each takes as many of each partition, and none ends where a window does: else an
event before the end could come behind one after it, and stock Spark would drop it."""
REDUCED = (
    "0.3 to 0.6 M events instead of 3 M, 0.2 M for stock Spark with 16 queries instead of 1.2 M, at most 2 repeats "
    "instead of 3, one setting of stock Spark with more queries than one, 40 s at a pace instead of 330 s"
)


@dataclass(frozen=True)
class Size:
    """How much of the input one number of queries gets, in files of 50,000 events."""

    queries: int
    files: int
    stock_files: int
    reserve: float
    """Seconds that a quick run keeps for what follows."""


FULL = (Size(1, 60, 60, 0), Size(4, 60, 60, 0), Size(16, 60, 24, 0))
QUICK = (Size(1, 12, 12, 190), Size(4, 8, 8, 140), Size(16, 12, 4, 80))
SETTINGS = tuple((most, store) for store in ("default", "rocksdb") for most in (OFFSETS, 4 * OFFSETS))


@cache
def expected(files: int) -> dict[str, pa.Table]:
    """Return the right results over the first files; computed once."""
    return ysb.oracle(EVENTS, files)


class Topics:
    """The topics of a run, each filled once.

    Args:
        run: The benchmark.
        at: The broker.
    """

    def __init__(self, run: Run, at: broker.Broker) -> None:
        self.run, self.at = run, at
        self._known: dict[tuple[Events, int], str] = {}
        self._for_flink: dict[int, str] = {}

    def of(self, events: Events, files: int) -> str:
        """Return a topic with the first files and the closing one, as a source."""
        if (events, files) not in self._known:
            name = self.at.topic(topics.PARTITIONS)
            topics.fill(self.at.servers, name, ysb.prefix(self.run.data, events, files))
            self._known[events, files] = topics.address(self.at.servers, name)
        return self._known[events, files]

    def for_flink(self, worker: Worker, files: int) -> str:
        """Return a topic with the first files in Flink's form, as a source."""
        if files not in self._for_flink:
            name = self.at.topic(topics.PARTITIONS)
            worker.call("fill", servers=self.at.servers, topic=name, source=ysb.prefix(self.run.data, EVENTS, files))
            self._for_flink[files] = topics.address(self.at.servers, name)
        return self._for_flink[files]

    def empty(self) -> str:
        """Return the name of a topic without events."""
        return self.at.topic(topics.PARTITIONS)


def timed(run: Run, made: Topics, worker: Worker, queries: int, files: int, **more: Any) -> tuple[float, float]:
    """Run an engine once over a topic, compare the results; return input rows per second, CPU seconds per million."""
    source = made.for_flink(worker, files) if worker.engine == "flink" else made.of(EVENTS, files)
    output = run.fresh("out") / worker.engine
    before = cpu_seconds(worker.pid)
    report = worker.call("catchup", source=source, output=output, count=queries, **more)
    used = (cpu_seconds(worker.pid) - before) / (files * EVENTS.per_file) * 1e6
    label = " ".join([f"{worker.engine}, {queries} queries", *([more["lane"]] if "lane" in more else [])])
    if "lane" in more:
        native = report["native"] == (more["lane"] == "auto")
        run.check([] if native else [f"{label}: partials were made in the other lane"])
    run.check(results.check(label, lambda q: output / q.name, QUERIES[:queries], expected(files), EVENTS.end_ms(files)))
    rows = files * EVENTS.per_file / float(report["seconds"])
    run.say(f"{label}, {files} files: {report['seconds']:.2f} s, {rows:,.0f} rows/s, {used:.2f} CPU s per million")
    return rows, used


def catch_up(run: Run, made: Topics, workers: Mapping[str, Worker]) -> list[list[object]]:
    """Time the engines in turn for 1, 4 and 16 queries; return rows of the table."""
    transom, stock, flinks = workers["transom_runner"], workers["stock"], workers.get("flink")
    table: list[list[object]] = []
    best: dict[str, Any] = {}
    for size in QUICK if run.quick else FULL:
        count, same = size.queries, size.files == size.stock_files
        ours: list[tuple[float, float]] = []
        by_spark: list[tuple[float, float]] = []
        alike: list[float] = []
        theirs: list[float] = []
        with_flink: list[float] = []
        if not best or (not run.quick and count < 16):
            tried = SETTINGS[::3] if run.quick else SETTINGS
            rates = {
                each: timed(run, made, stock, count, size.stock_files, files_per_trigger=each[0], store=each[1])[0]
                for each in tried
            }
            most, store = max(rates, key=lambda each: rates[each])
            best = {"files_per_trigger": most, "store": store}
            run.say(f"stock: best with {most} offsets per trigger, {store} state store")
        for lane in ("spark", "auto"):  # untimed, as are stock Spark's trials
            timed(run, made, transom, count, size.files, lane=lane)
        if flinks is not None:
            timed(run, made, flinks, count, size.stock_files)
        for _ in run.repeats(2 if run.quick else 3, size.reserve):
            ours.append(timed(run, made, transom, count, size.files, lane="auto"))
            by_spark.append(timed(run, made, transom, count, size.files, lane="spark"))
            theirs.append(timed(run, made, stock, count, size.stock_files, **best)[0])
            if flinks is not None:
                with_flink.append(timed(run, made, flinks, count, size.files)[0])
            alike.append((ours[-1] if same else timed(run, made, transom, count, size.stock_files, lane="auto"))[0])
        ratio = paired_ratio(alike, theirs)
        rate = median(rate for rate, _ in ours)
        run.figure(f"q{count}.rows_per_s", rate)
        run.figure(f"q{count}.cpu_s_per_m", median(used for _, used in ours))
        run.figure(f"q{count}.spark_lane_rows_per_s", median(rate for rate, _ in by_spark))
        run.figure(f"q{count}.spark_lane_cpu_s_per_m", median(used for _, used in by_spark))
        run.figure(f"q{count}.stock_rows_per_s", median(theirs))
        run.figure(f"q{count}.ratio", ratio.median)
        run.figure(f"q{count}.flink_rows_per_s", median(with_flink) if with_flink else float("nan"))
        flink_rate = median(with_flink) if with_flink else ""
        table.append([f"{count} queries", rate, median(theirs), str(ratio), flink_rate, ratio.repeats])
    return table


def paced(run: Run, made: Topics, worker: Worker) -> list[object]:
    """Feed 10,000 events a second to 16 queries, keep the figures, and return the row of the table."""
    seconds, warm_up = (40, 15) if run.quick else (330, 60)
    place, name = run.fresh("paced"), made.empty()
    output, notes = place / "out", place / "arrivals.jsonl"
    source = ysb.prefix(run.data, PACED, seconds, close=False)
    servers = made.at.servers
    worker.call("start", source=topics.address(servers, name), output=output, names=[query.name for query in QUERIES])
    feeder = topics.start(servers, name, source, notes, 1.0)
    time.sleep(warm_up)
    began, used = time.monotonic(), latency.cpu_seconds(worker.pid)
    if feeder.wait() != 0:
        raise RuntimeError("The feeding process failed.")
    cores = (latency.cpu_seconds(worker.pid) - used) / (time.monotonic() - began)
    time.sleep(1.0)
    report = worker.call("stop", rows=seconds * PACED.per_file)
    found = latency.closings(PACED, feed.arrivals(notes), output, QUERIES, warm_up)
    end = PACED.end_ms(seconds)
    right = ysb.oracle(PACED, seconds)
    run.check(results.check("paced", lambda q: output / q.name, QUERIES, right, end, until_ms=end - 1))
    taken = [closing.seconds for closing in found]
    p50, p95 = percentile(taken, 0.5), percentile(taken, 0.95)
    run.figure("q16.p50_s", p50)
    run.figure("q16.p95_s", p95)
    run.figure("q16.cpu_cores", cores)
    return ["16 queries", len(found), p50, p95, max(taken), cores, report["backlog_rows"]]


def fixed(run: Run, made: Topics, worker: Worker) -> None:
    """Send 100 rows when those before are committed, to 16 queries."""
    files, warm_up = (60, 30) if run.quick else (300, 150)
    name = made.empty()
    source = ysb.prefix(run.data, SMALL, files, close=False)
    taken = worker.call(
        "fixed_topic",
        source=source,
        topic=topics.address(made.at.servers, name),
        output=run.fresh("fixed"),
        count=16,
    )["seconds"]
    run.figure("cut_ms", 1_000 * median(taken[warm_up:]))
    run.say(f"100 rows, 16 queries: {run.figures['cut_ms']:.0f} ms")


def main() -> None:
    """Run the benchmark."""
    with benchmark("kafka", REDUCED) as run:
        os.environ["BENCHMARK_JARS"] = ",".join(map(str, sorted(broker.jars("spark").glob("*.jar"))))
        engines = ["transom_runner", "stock"]
        connector = fetching.artifact(f"org.apache.flink:flink-sql-connector-kafka:{CONNECTOR}", alone=True)
        try:
            flink.jars()
            os.environ["BENCHMARK_FLINK_JARS"] = ",".join(
                map(str, sorted(fetching.jars(f"flink-kafka-{CONNECTOR}", [connector]).glob("*.jar")))
            )
            engines.append("flink")
        except (flink.MissingError, fetching.MissingError) as missing:
            run.say(f"without Flink: {missing}")
        with ExitStack() as stack:
            at = stack.enter_context(broker.running(Path(run.work) / "broker"))
            workers = {name: stack.enter_context(Worker(name, run.work)) for name in engines}
            transom, stock = workers["transom_runner"], workers["stock"]
            made = Topics(run, at)
            run.say("warm-up of Transom and stock Spark")
            warm = made.of(WARM, WARM_FILES)
            transom.call("warm", source=warm, output=run.fresh("warm"), count=16)
            stock.call("warm", source=warm, output=run.fresh("warm"), count=4)
            rows = catch_up(run, made, workers)
            titles = ["", "windows", "p50 s", "p95 s", "max s", "cores", "backlog rows"]
            late = paced(run, made, transom)
            fixed(run, made, transom)
        run.table("Catching up, rows/s", ["", "Transom", "stock Spark", "ratio", "Flink SQL", "repeats"], rows)
        run.table("At 10,000 events/s: events acknowledged to result visible", titles, [late])


if __name__ == "__main__":
    main()
