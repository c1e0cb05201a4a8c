"""Transom, or stock Spark, under `latency_model` and `plan`: profiles of jobs, and runs of them with given settings."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from benchmarks.equipment import equipped
from benchmarks.model_jobs import JOBS, Job, build, words_of
from benchmarks.transom_runner import raise_failures
from transom.engine.control.phases import PhaseRecorder
from transom.model.phases import CutPhases
from transom.model.slopes import line
from transom.model.tuning import Tuning

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from transom.sinks.base import WindowResults

WATCHED = 4
"""Of every so many cuts of a run Spark is asked about the tasks of one."""


@cache
def session() -> SparkSession:
    """Return Transom's usual session."""
    import transom as tm

    return equipped(tm.session_builder().appName("latency_model"))


def profile(job: str, source: str, seconds: float) -> dict[str, Any]:
    """Profile a job over the files of a directory.

    Returns:
        `profile`, as JSON; `line`: fixed seconds of a cut, and seconds of a row, as the scheduler sees them.
    """
    from transom.api.profiling import Profiler

    def made() -> Any:
        return build(JOBS[job], session(), Path(source), Path(source, "unused"), lambda results: None)

    profiler = Profiler(made, seconds)
    found = profiler.run(session(), job, {})
    lines = {}
    for name, cuts in profiler.cuts.items():
        read = [cut for cut in cuts if cut.rows and cut.job is not None]
        rows, taken = np.array([[cut.rows, cut.job] for cut in read[len(read) % 2 :]], dtype=float).T
        lines[name] = [float(each) for each in line(rows, taken)]
    return {"profile": found.to_json(), "lines": lines}


SeenResult: TypeAlias = tuple[str, int, int, int]
"""Query, end of windows in milliseconds, when their results were there in nanoseconds, and what they count."""


def counted(query: str, results: pa.Table) -> list[SeenResult]:
    """Return what came of a query just now, by window."""
    now, found = time.time_ns(), results.group_by("window_end").aggregate([("n", "sum")])
    ends = found["window_end"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    return [(query, end // 1_000, now, number) for end, number in zip(ends, found["n_sum"].to_pylist(), strict=True)]


class _Run:
    """An application that runs until it is stopped, and what is seen of it."""

    def __init__(self, job: str, incoming: Path, checkpoint: Path, tuning: Tuning) -> None:
        self.seen: list[SeenResult] = []
        self.cuts: list[CutPhases] = []
        self._lock = threading.Lock()
        app = build(JOBS[job], session(), incoming, checkpoint, self._take)
        app._phases = lambda: PhaseRecorder(self.cuts.append, every=WATCHED)
        app._queries.requests.tune(tuning, "a setting of the benchmark")
        goes_round = threading.Event()
        self.running = app.start(on_progress=lambda progress: goes_round.set())
        while not goes_round.wait(0.1) and not self.running.done:
            pass

    def _take(self, results: WindowResults) -> None:
        found = counted(results.query, results.table)
        with self._lock:
            self.seen += found

    def stop(self) -> dict[str, Any]:
        """Stop it; rows that wait are left."""
        stopped = time.time_ns()
        self.running.stop()
        final = self.running.wait()
        raise_failures(final)
        return {
            "stopped": stopped,
            "seen": self.seen,
            "cuts": [cut.to_json() for cut in self.cuts],
            "rows": sum(stream.rows for stream in final.streams),
            "backlog": sum(stream.backlog for stream in final.streams),
        }


class _Stock:
    """The queries of a job over windows of fixed length as those of Structured Streaming, each by itself."""

    def __init__(self, job: Job, incoming: str, checkpoint: Path, trigger: float, partitions: int) -> None:
        from pyspark.sql import functions as F

        spark, self.seen = session(), list[SeenResult]()
        self._queries: list[StreamingQuery] = []
        before = spark.conf.get("spark.sql.shuffle.partitions")
        spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
        for number in range(job.queries):
            name, length, offset = f"q{number}", f"{job.length} milliseconds", f"{number * job.every} milliseconds"
            rows = words_of(spark.readStream.schema("at bigint, text string").json(incoming))
            rows = rows.withColumn("ts", F.timestamp_millis("at")).withWatermark("ts", "0 seconds")
            groups = rows.groupBy(F.window("ts", length, length, offset), "word").count()
            results = groups.select(F.col("window.end").alias("window_end"), F.col("count").alias("n"))
            spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
            writer = results.writeStream.foreachBatch(self._taking(name)).queryName(name).outputMode("append")
            writer = writer.option("checkpointLocation", str(checkpoint / name))
            self._queries.append(writer.trigger(processingTime=f"{round(1_000 * trigger)} milliseconds").start())
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]
        spark.conf.set("spark.sql.shuffle.partitions", str(before))

    def _taking(self, query: str) -> Callable[[DataFrame, int], None]:
        return lambda frame, number: self.seen.extend(counted(query, frame.toArrow()))

    def stop(self) -> dict[str, Any]:
        """Stop them; rows that wait are left."""
        stopped, failed = time.time_ns(), [str(query.exception()) for query in self._queries if query.exception()]
        for query in self._queries:
            with contextlib.suppress(Exception):  # a batch that is cut short is no matter here
                query.stop()
        if failed:
            raise RuntimeError(failed[0])
        return {"stopped": stopped, "seen": self.seen, "cuts": [], "backlog": 0}


_runs: list[_Run | _Stock] = []


def start(job: str, incoming: str, output: str, tuning: dict[str, Any]) -> None:
    """Start a job over a directory in which files appear."""
    shutil.rmtree(output, ignore_errors=True)
    _runs.append(_Run(job, Path(incoming), Path(output, "checkpoint"), Tuning.from_json(tuning)))


def start_stock(job: str, incoming: str, output: str, trigger: float, partitions: int) -> None:
    """Start the queries of a job on stock Spark over such a directory."""
    shutil.rmtree(output, ignore_errors=True)
    _runs.append(_Stock(JOBS[job], incoming, Path(output), trigger, partitions))


def stop() -> dict[str, Any]:
    """Stop it, and return what was seen."""
    return _runs.pop().stop()


OPERATIONS: dict[str, Callable[..., Any]] = {
    "profile": profile,
    "start": start,
    "start_stock": start_stock,
    "stop": stop,
}
