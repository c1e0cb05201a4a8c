"""Transom under the benchmarks: the same queries, the same files, the same form of results."""

from __future__ import annotations

import gc
import shutil
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from benchmarks import feed, topics, ysb
from benchmarks.equipment import equipped
from benchmarks.gauges import sample
from benchmarks.ysb import QUERIES, Query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from transom.api.app import App
    from transom.engine.loop.progress import Progress
    from transom.sources.base import Offset, Source

DRAIN_SECONDS = 120.0
"""How long `stop` waits for rows that have come but are not processed."""


@cache
def session() -> SparkSession:
    """Return Transom's usual session, with the memory and threads that stock Spark gets."""
    import transom as tm

    return equipped(tm.session_builder().appName("transom"))


@cache
def _ads() -> DataFrame:
    return session().createDataFrame(ysb.ads())


class _Watched:
    """A source, and when each micro-batch of it was committed."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.committed: list[float] = []
        self.offset: Offset = {}
        """Up to where rows are committed."""
        self._release = source.release
        source.release = self.release  # type: ignore[method-assign]

    def release(self, oldest_needed: Offset) -> None:
        """Note the time, seconds since the epoch; the engine calls this after each commit."""
        self.committed.append(time.time())
        self.offset = oldest_needed
        self._release(oldest_needed)


def watched(source: str, files_per_cut: int | None) -> _Watched:
    """Return the JSON files of a directory, or a topic, as a source."""
    import transom as tm

    topic = topics.parsed(source)
    if topic is not None:
        return _Watched(tm.sources.kafka(*topic, tm.json(ysb.USED_SCHEMA)))
    return _Watched(tm.sources.files(f"{source}/*.json", schema=ysb.USED_SCHEMA, max_files_per_cut=files_per_cut))


def build(files: _Watched, output: Path, queries: Sequence[Query], **settings: Any) -> App:
    """Return the application: one stream, the views joined with their campaigns, and the queries."""
    import transom as tm

    app = tm.App(session(), checkpoint=str(output / "_checkpoint"), **settings)
    add_queries(app, files, output, queries)
    return app


def add_queries(
    app: App, files: _Watched, output: Path, queries: Sequence[Query], name: str = "events", prefix: str = ""
) -> None:
    """Add a stream of events and its queries, whose names begin with `prefix`."""
    from pyspark.sql import functions as F

    import transom as tm

    ads = _ads()
    events = app.stream(
        files.source,
        event_time="timestamp_millis(event_time)",
        watermark=tm.watermark("0 seconds"),
        name=name,
    )
    views = events.map(lambda frame: frame.where("event_type = 'view'").join(F.broadcast(ads), "ad_id"))
    for query in queries:
        length, every = f"{query.window} seconds", f"{query.slide} seconds"
        window = tm.tumbling(length) if query.slide == query.window else tm.sliding(length, every=every)
        values = {"n": tm.count(), "last": tm.max("event_time"), "first": tm.min("event_time")}
        some = views if query.condition is None else views.where(query.condition)
        (
            some.group_by(*query.keys)
            .window(window)
            .agg(**{name: values[name] for name in query.values})
            .to(tm.sinks.parquet(str(output / query.name)), name=f"{prefix}{query.name}")
        )


def raise_failures(progress: Progress) -> None:
    """Raise when a query of a run failed."""
    failed = [f"{query.name}: {query.failure}" for query in progress.queries if query.failure]
    if failed:
        raise RuntimeError("; ".join(failed))


def catchup(source: str, output: str, count: int, lane: str = "spark") -> dict[str, Any]:
    """Run the first `count` queries over all files in a lane; return the seconds until the last result, and more."""
    session()
    _ads()
    shutil.rmtree(output, ignore_errors=True)
    started = time.perf_counter()
    final = build(watched(source, None), Path(output), QUERIES[:count], lane=lane).run(once=True, close_all=True)
    seconds = time.perf_counter() - started
    raise_failures(final)
    return {"seconds": seconds, "native": final.streams[0].native_cuts == final.streams[0].cuts}


def shared(source: str, output: str, count: int) -> dict[str, Any]:
    """Run the first `count` of the many queries, or the one query with all their panes and keys, over all files."""
    session()
    _ads()
    shutil.rmtree(output, ignore_errors=True)
    queries = (ysb.ONE_QUERY,) if count == 1 else ysb.MANY_QUERIES[:count]
    started = time.perf_counter()
    final = build(watched(source, None), Path(output), queries).run(once=True, close_all=True)
    seconds = time.perf_counter() - started
    raise_failures(final)
    return {"seconds": seconds}


def warm(source: str, output: str, count: int, lane: str = "auto") -> None:
    """Run everything once over a small input, so that classes are loaded, code is compiled and workers are there."""
    catchup(source, output, count, lane)


class _Live:
    """An application that runs until it is stopped."""

    def __init__(self, app: App) -> None:
        self._running = app.start()

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return not self._running.done

    @property
    def rows(self) -> int:
        """Rows committed so far."""
        streams = self._running.progress.streams
        return streams[0].rows if streams else 0

    def stop(self, rows: int) -> dict[str, Any]:
        backlog = rows - self.rows
        deadline = time.monotonic() + DRAIN_SECONDS
        while self.rows < rows and self.alive and time.monotonic() < deadline:
            time.sleep(0.05)
        self._running.stop()
        raise_failures(self._running.wait())
        return {"backlog_rows": backlog}


_live: list[_Live] = []


def start(source: str, output: str, names: list[str]) -> None:
    """Start the named queries over a directory in which files appear."""
    chosen = [query for query in QUERIES if query.name in names]
    begin(build(watched(source, None), Path(output), chosen))


def begin(app: App) -> None:
    """Start an application, which `stop` stops."""
    _live.append(_Live(app))


def stop(rows: int) -> dict[str, Any]:
    """Note the backlog, let the application finish the files that are there, and stop it.

    Args:
        rows: How many have come.

    Returns:
        `backlog_rows`: rows that had come and were not committed when this was called.
    """
    return _live.pop().stop(rows)


def fixed(source: str, output: str, count: int) -> dict[str, Any]:
    """Run the first `count` queries and give them a file when the one before is committed.

    The source is looked at every 10 ms and nothing waits for more rows, as with stock Spark's trigger here.

    Returns:
        `seconds`: from the appearance of each file until it was committed.
    """
    shutil.rmtree(output, ignore_errors=True)
    incoming = Path(output) / "_in"
    incoming.mkdir(parents=True)
    files = watched(str(incoming), 1)
    live = _Live(build(files, Path(output), QUERIES[:count], trigger=0, poll=10_000, policy="fcfs"))
    try:
        seconds = feed.one_by_one(
            Path(source), incoming, lambda number: len(files.committed) > number, lambda: live.alive
        )
    finally:
        live.stop(0)
    return {"seconds": seconds}


def fixed_topic(source: str, topic: str, output: str, count: int) -> dict[str, Any]:
    """Do as `fixed` does with a topic: the lines of the next file are sent when those of the one before are committed.

    Returns:
        `seconds`: from the moment at which the broker had all lines until they were committed.
    """
    shutil.rmtree(output, ignore_errors=True)
    found = topics.parsed(topic)
    assert found is not None
    sender = topics.producer(found[0])
    watching = watched(topic, None)
    live = _Live(build(watching, Path(output), QUERIES[:count], trigger=0, poll=10_000, policy="fcfs"))
    taken: list[float] = []
    sent = 0
    try:
        for path in sorted(Path(source).glob("*.json")):
            topics.send(sender, found[1], path)
            began = time.perf_counter()
            sent += len(path.read_bytes().splitlines())
            while sum(cast("dict[str, int]", watching.offset).values()) < sent:
                time.sleep(0.002)
                if not live.alive:
                    raise RuntimeError("The application has ended.")
            taken.append(time.perf_counter() - began)
    finally:
        live.stop(0)
    return {"seconds": taken}


def bare_jobs(path: str, jobs: int) -> dict[str, Any]:
    """Run jobs that read a file in a Python worker and send back partials, one after the other, without Spark SQL.

    Returns:
        `seconds` of each.
    """
    from benchmarks import native_readers
    from transom.engine.placed.placed import Tasks, executors

    def task(number: int) -> bytes:
        found = native_readers.arrow_shapes(Path(path), native_readers.TASKS[16]).groups
        gc.freeze()  # Spark's daemon collects garbage after each task
        return found.combine_chunks().to_batches()[0].serialize().to_pybytes()

    tasks = Tasks(session(), [executors(session())[0].id])
    taken: list[float] = []
    for _ in range(jobs):
        began = time.perf_counter()
        (partials,) = tasks.run(task)
        taken.append(time.perf_counter() - began)
        assert partials
    return {"seconds": taken}


def soak(source: str, output: str, seconds: float | None, samples: int, snapshot_bytes: int) -> dict[str, Any]:
    """Run all queries, one file per micro-batch, and look at what the process holds now and then.

    Args:
        source: Where the files are, all of them from the start.
        output: Where results and the checkpoint go.
        seconds: Stop after this time; None for all files.
        samples: How often to look, evenly over the files or the time.
        snapshot_bytes: Transom's setting of this name.

    Returns:
        `batches`, `rows`, and `samples`: one mapping from name to value each.
    """
    files = len(list(Path(source).glob("*.json")))
    app = build(watched(source, 1), Path(output), QUERIES, snapshot_bytes=snapshot_bytes)
    began = time.monotonic()
    seen: list[dict[str, float]] = []

    def note(progress: Progress) -> None:
        done = progress.streams[0].cuts / files
        spent = (time.monotonic() - began) / seconds if seconds else 0.0
        if max(done, spent) * samples >= len(seen) + 1:
            seen.append(sample(session(), Path(output) / "_checkpoint"))
        if spent >= 1:
            app.stop()

    final = app.run(once=True, on_progress=note)
    raise_failures(final)
    stream = final.streams[0]
    return {"batches": stream.cuts, "rows": stream.rows, "samples": seen}


OPERATIONS: dict[str, Callable[..., Any]] = {
    "warm": warm,
    "catchup": catchup,
    "shared": shared,
    "start": start,
    "stop": stop,
    "fixed": fixed,
    "fixed_topic": fixed_topic,
    "bare_jobs": bare_jobs,
    "soak": soak,
}
