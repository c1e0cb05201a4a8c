"""Many queries at once, each with streams of its own: Transom under a policy, or stock Structured Streaming.

A worker's process (`benchmarks.worker`): both engines in one JVM, so that both are compiled and have the same memory.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.transom_runner import raise_failures, session
from benchmarks.workloads import WORKLOADS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from transom.api.gate import Gate
    from transom.sinks.base import WindowResults
    from transom.sinks.owner import Claim


@dataclass(frozen=True)
class Job:
    """A query of a workload on its own inputs."""

    name: str
    workload: str
    shift: int
    """Microseconds added to event time."""
    inputs: tuple[str, ...]
    """Directories."""

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Job:
        """Return a job from JSON."""
        return cls(value["name"], value["workload"], value["shift"], tuple(value["inputs"]))


class Recorder:
    """A sink that keeps results in memory and notes when it had them."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, float, pa.Table]] = []

    def describe(self) -> str:
        """Return what it is."""
        return "recorder"

    def open(self, query: str) -> None:
        """Do nothing."""

    def claim(self, claim: Claim) -> None:
        """Do nothing."""

    def recover(self, query: str, next_cut: int) -> None:
        """Do nothing: there is one run."""

    def write(self, results: WindowResults) -> None:
        """Keep results."""
        self.take(results.query, results.table)

    def take(self, query: str, table: pa.Table) -> None:
        """Keep a table of results, with the time."""
        self.taken.append((query, time.time(), table))

    def close(self) -> None:
        """Do nothing."""

    def save(self, directory: Path) -> None:
        """Write one Parquet file per query, with the time in the column `visible`, seconds since the epoch."""
        directory.mkdir(parents=True)
        by_query: dict[str, list[pa.Table]] = {}
        for query, moment, table in self.taken:
            if table.num_rows:
                visible = pa.array([moment] * table.num_rows)
                by_query.setdefault(query, []).append(plain(table).append_column("visible", visible))
        for query, tables in by_query.items():
            pq.write_table(pa.concat_tables(tables, promote_options="permissive"), directory / f"{query}.parquet")


class Recorded(Protocol):
    """An engine whose results are recorded."""

    recorder: Recorder

    def stop(self) -> dict[str, Any]:
        """Stop it, and return what is known of the run."""


def plain(table: pa.Table) -> pa.Table:
    """Return results with all columns as int64, window edges as microseconds."""
    columns = {}
    for name in table.column_names:
        column = table.column(name)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", column.type.tz))
        columns[name] = column.cast(pa.int64())
    return pa.table(columns)


def _schema(job: Job) -> str:
    return f"{WORKLOADS[job.workload].schema}, at bigint"


class _Transom:
    """An application that runs until it is stopped."""

    def __init__(self, jobs: Sequence[Job], place: Path, policy: str) -> None:
        import transom as tm

        self.recorder = Recorder()
        app = tm.App(session(), checkpoint=str(place / "checkpoint"), policy=policy)
        for job in jobs:
            sources = [tm.sources.files(f"{path}/*.parquet", schema=_schema(job)) for path in job.inputs]
            WORKLOADS[job.workload].define(app, sources, job.name, self.recorder, job.shift)
        self._running = app.start()

    def stop(self) -> dict[str, Any]:
        """End it; return jobs, rows and the seconds that scheduling took."""
        self._running.stop()
        progress = self._running.wait()
        raise_failures(progress)
        streams = progress.streams
        return {
            "jobs": sum(stream.cuts for stream in streams),
            "rows": sum(stream.rows for stream in streams if not stream.source.startswith(("results", "inner join"))),
            "scheduling": progress.scheduling,
        }


class _Stock:
    """One streaming query for each job, each in a pool of its own, as fast as they can; through a gate or not."""

    def __init__(self, jobs: Sequence[Job], place: Path, gate: Gate | None = None) -> None:
        self.recorder = Recorder()
        self._gate = gate
        self._queries: list[StreamingQuery] = []
        self._rows: dict[str, int] = {}
        spark = session()
        spark.conf.set("spark.sql.shuffle.partitions", "2")
        spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1000")
        for job in jobs:
            inputs = [spark.readStream.schema(_schema(job)).parquet(path) for path in job.inputs]
            frame = WORKLOADS[job.workload].plain(inputs, job.shift)
            spark.sparkContext.setLocalProperty("spark.scheduler.pool", job.name)
            writer = frame.writeStream.foreachBatch(self._taking(job)).queryName(job.name).outputMode("append")
            location = str(place / "checkpoint" / job.name)
            self._queries.append(
                writer.option("checkpointLocation", location).trigger(processingTime="0 seconds").start()
            )
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]

    def _taking(self, job: Job) -> Callable[[DataFrame, int], None]:
        def take(frame: DataFrame, number: int) -> None:
            self.recorder.take(job.name, frame.toArrow())

        return take if self._gate is None else self._gate.batch(take, **_windows(job))

    def stop(self) -> dict[str, Any]:
        """End them; return jobs and rows."""
        failed = [str(query.exception()) for query in self._queries if query.exception()]
        progress = [query.recentProgress for query in self._queries]
        if self._gate is not None:
            self._gate.close()
        for query in self._queries:
            with contextlib.suppress(Exception):  # a batch that is cut short is no matter here
                query.stop()
        if failed:
            raise RuntimeError(failed[0])
        return {
            "jobs": sum(len(each) for each in progress),
            "rows": sum(batch["numInputRows"] for each in progress for batch in each),
            "scheduling": 0.0,
        }


def _windows(job: Job) -> dict[str, Any]:
    """Return the windows of a job, and how soon its results should be there, as `gate.batch` takes them."""
    import transom as tm

    workload = WORKLOADS[job.workload]
    window = tm.sliding(workload.length, workload.slide)
    return {"window": window, "limit": workload.limit}


_live: list[tuple[Path, _Transom | _Stock]] = []


def start(jobs: list[dict[str, Any]], place: str, policy: str) -> None:
    """Start all queries under a policy, or as stock queries."""
    where = Path(place)
    parsed = [Job.of(job) for job in jobs]
    _live.append((where, _engine(parsed, where, policy)))


def _engine(jobs: Sequence[Job], place: Path, policy: str) -> _Transom | _Stock:
    """Return the engine of a policy: one of Transom's, "stock", or "gated.POLICY" for stock queries through a gate."""
    kind, _, order = policy.partition(".")
    if kind == "stock":
        return _Stock(jobs, place)
    if kind == "gated":
        import transom as tm

        return _Stock(jobs, place, tm.gate(session(), policy=order))
    return _Transom(jobs, place, policy)


def stop() -> dict[str, Any]:
    """Stop them, save the results, and return what is known of the run."""
    return finished(*_live.pop())


def finished(place: Path, running: Recorded) -> dict[str, Any]:
    """Stop what runs, save its results below its directory, and return what is known of the run."""
    found = running.stop()
    running.recorder.save(place / "results")
    shutil.rmtree(place / "checkpoint", ignore_errors=True)
    return found


@cache
def _expected(job: str) -> pa.Table:
    parsed = Job.of(json.loads(job))
    spark = session()
    inputs = [spark.read.schema(_schema(parsed)).parquet(path) for path in parsed.inputs]
    return plain(WORKLOADS[parsed.workload].plain(inputs, parsed.shift).toArrow())


def oracle(jobs: list[dict[str, Any]], output: str) -> None:
    """Compute the results of jobs over complete inputs in a Spark batch, one Parquet file each."""
    Path(output).mkdir(parents=True, exist_ok=True)
    for job in jobs:
        pq.write_table(_expected(json.dumps(job)), Path(output) / f"{job['name']}.parquet")


def capacity(jobs: list[dict[str, Any]], place: str, rows: int) -> float:
    """Run jobs over inputs that are all there, cuts of so many rows, with all slots busy; return the seconds."""
    import transom as tm

    where, recorder = Path(place), Recorder()
    app = tm.App(session(), checkpoint=str(where / "checkpoint"), policy="fcfs", max_rows_per_cut=rows, cycle="1 hour")
    for job in map(Job.of, jobs):
        sources = [tm.sources.files(f"{path}/*.parquet", schema=_schema(job)) for path in job.inputs]
        WORKLOADS[job.workload].define(app, sources, job.name, recorder, job.shift)
    began = time.perf_counter()
    app.run(once=True)
    seconds = time.perf_counter() - began
    shutil.rmtree(where, ignore_errors=True)
    return seconds


OPERATIONS: dict[str, Callable[..., Any]] = {"start": start, "stop": stop, "oracle": oracle, "capacity": capacity}
