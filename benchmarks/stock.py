"""Stock Spark Structured Streaming: one streaming query per query, or one hand-written shared query."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import feed, topics, ysb
from benchmarks.equipment import CORES, equipped
from benchmarks.ysb import QUERIES, Query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

STATE_STORES = {
    "default": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
_STORE = "spark.sql.streaming.stateStore.providerClass"


@cache
def session() -> SparkSession:
    """Return the session: FAIR pools, and two shuffle partitions for two cores instead of 200."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("stock").config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.scheduler.mode", "FAIR").config("spark.sql.shuffle.partitions", CORES)
    return equipped(builder)


@cache
def _ads() -> DataFrame:
    return session().createDataFrame(ysb.ads())


def _views(source: str, files_per_trigger: int, watermark: bool = True) -> DataFrame:
    from pyspark.sql import functions as F

    topic = topics.parsed(source)
    if topic is None:
        rows = session().readStream.schema(ysb.SCHEMA).option("maxFilesPerTrigger", files_per_trigger).json(source)
    else:  # of a topic: offsets
        rows = topics.stream(session(), *topic, ysb.USED_SCHEMA, files_per_trigger)
    events = rows.withColumn("ts", F.timestamp_millis("event_time"))
    if watermark:
        events = events.withWatermark("ts", "0 seconds")
    return events.where("event_type = 'view'").join(F.broadcast(_ads()), "ad_id")


def _windowed(views: DataFrame, query: Query) -> DataFrame:
    from pyspark.sql import functions as F

    span = F.window("ts", f"{query.window} seconds", f"{query.slide} seconds")
    last = [F.max("event_time").alias("last")] if query.last else []
    grouped = views.groupBy(span, *query.keys).agg(F.count(F.lit(1)).alias("n"), *last)
    return grouped.select(
        F.col("window.start").alias("window_start"),
        F.col("window.end").alias("window_end"),
        *query.keys,
        *query.values,
    )


def _start(
    frame: DataFrame, output: Path, checkpoint: Path, name: str, available_now: bool, by: Sequence[str] = ()
) -> StreamingQuery:
    session().sparkContext.setLocalProperty("spark.scheduler.pool", name)
    writer = (
        frame.writeStream.format("parquet")
        .outputMode("append")
        .queryName(name)
        .option("path", str(output))
        .option("checkpointLocation", str(checkpoint))
    )
    if by:
        writer = writer.partitionBy(*by)
    trigger = {"availableNow": True} if available_now else {"processingTime": "0 seconds"}
    return writer.trigger(**trigger).start()


def start_all(
    source: str,
    output: Path,
    queries: Sequence[Query],
    files_per_trigger: int,
    store: str = "default",
    available_now: bool = True,
) -> list[StreamingQuery]:
    """Start one streaming query per query, each in its own pool; results go to `output`/NAME, which must not exist."""
    session().conf.set(_STORE, STATE_STORES[store])
    return [
        _start(
            _windowed(_views(source, files_per_trigger), query),
            output / query.name,
            output / f"_checkpoint-{query.name}",
            query.name,
            available_now,
        )
        for query in queries
    ]


def _finish(running: Sequence[StreamingQuery]) -> None:
    for query in running:
        query.awaitTermination()


def catchup(source: str, output: str, count: int, files_per_trigger: int, store: str) -> dict[str, Any]:
    """Run the first `count` queries over all files; return the seconds until the last one ended."""
    session()
    _ads()
    shutil.rmtree(output, ignore_errors=True)
    started = time.perf_counter()
    _finish(start_all(source, Path(output), QUERIES[:count], files_per_trigger, store))
    return {"seconds": time.perf_counter() - started}


def warm(source: str, output: str, count: int) -> None:
    """Run everything once over a small input, so that classes are loaded and code is compiled."""
    catchup(source, output, count, 4 if topics.parsed(source) is None else 51_000, "default")
    if count == len(QUERIES):
        shared(source, output, 4, "default")


_LONGEST = max(query.window for query in QUERIES)


def shared(source: str, output: str, files_per_trigger: int, store: str) -> dict[str, Any]:
    """Run all 16 queries as one: explode every view into all windows of both keys.

    The grouping column with the watermark is the window's end. Its watermark lags by the longest window,
    because the latest end that an event has is its own time, rounded down to a pane, plus the longest
    window; so each window closes exactly when it does in a query of its own. Results are partitioned by
    `spec`, and two queries that differ only in their aggregates share one.
    """
    from pyspark.sql import functions as F

    session()
    _ads()
    shutil.rmtree(output, ignore_errors=True)
    session().conf.set(_STORE, STATE_STORES[store])
    started = time.perf_counter()
    exploded = (
        _views(source, files_per_trigger, watermark=False)
        .select("campaign_id", "page_id", "event_time", F.inline(F.expr(_explosion())))
        .withColumn("page_id", F.expr("if(by_page, page_id, null)"))
        .select("campaign_id", "page_id", "event_time", "spec", "window_end")
        .withWatermark("window_end", f"{_LONGEST} seconds")
    )
    grouped = exploded.groupBy("spec", "window_end", "campaign_id", "page_id").agg(
        F.count(F.lit(1)).alias("n"), F.max("event_time").alias("last")
    )
    path = Path(output)
    _finish([_start(grouped, path / "all", path / "_checkpoint", "shared", True, by=["spec"])])
    return {"seconds": time.perf_counter() - started}


def spec(query: Query) -> str:
    """Return the name of a query's windows and keys in the shared query's results."""
    return f"{query.window}-{query.slide}-{'page' if query.by_page else 'campaign'}"


def _explosion() -> str:
    parts = []
    for query in {spec(query): query for query in QUERIES}.values():
        step = query.slide * 1_000
        count = query.window // query.slide
        ends = f"transform(sequence(1, {count}), i -> (event_time div {step} + i) * {step})"
        row = (
            f"named_struct('spec', '{spec(query)}', 'by_page', {str(query.by_page).lower()}, "
            "'window_end', timestamp_millis(e))"
        )
        parts.append(f"transform({ends}, e -> {row})")
    return f"concat({', '.join(parts)})"


_running: list[StreamingQuery] = []


def start(source: str, output: str, names: list[str]) -> None:
    """Start the named queries over a directory in which files appear; each runs as often as it can."""
    chosen = [query for query in QUERIES if query.name in names]
    _running.extend(start_all(source, Path(output), chosen, 1_000, available_now=False))


def stop(rows: int) -> dict[str, Any]:
    """Let the queries finish the files that are there, and stop them.

    Args:
        rows: How many have come; each query knows by itself.

    Raises:
        RuntimeError: One of the queries had failed.
    """
    failed = [str(query.exception()) for query in _running if query.exception()]
    for query in [] if failed else _running:
        query.processAllAvailable()
    for query in _running:
        query.stop()
    _running.clear()
    if failed:
        raise RuntimeError(failed[0])
    return {}


def fixed(source: str, output: str, count: int) -> dict[str, Any]:
    """Run the first `count` queries at once and give them a file when all have finished the one before.

    There are no batches for the watermark alone, so file n is micro-batch n of each query; it is done when all have
    committed it.

    Returns:
        `seconds`: from the appearance of each file until all queries had committed it.
    """
    place, incoming = Path(output), Path(output) / "_in"
    conf = session().conf
    conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    try:
        shutil.rmtree(place, ignore_errors=True)
        incoming.mkdir(parents=True)
        running = start_all(str(incoming), place, QUERIES[:count], 1, available_now=False)
    finally:
        conf.unset("spark.sql.streaming.noDataMicroBatches.enabled")
    commits = [place / f"_checkpoint-{query.name}" / "commits" for query in QUERIES[:count]]
    try:
        seconds = feed.one_by_one(
            Path(source),
            incoming,
            lambda number: all((path / str(number)).exists() for path in commits),
            lambda: all(query.isActive for query in running),
        )
    finally:
        for query in running:
            query.stop()
    return {"seconds": seconds}


OPERATIONS: dict[str, Callable[..., Any]] = {
    "warm": warm,
    "catchup": catchup,
    "shared": shared,
    "start": start,
    "stop": stop,
    "fixed": fixed,
}
