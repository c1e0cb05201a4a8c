"""A driver's holdings at one moment: memory, cached blocks, open files, and its checkpoint on disk."""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SETTLE_SECONDS = 10.0
"""Longest wait for running jobs."""


def sample(spark: SparkSession, checkpoint: Path) -> dict[str, float]:
    """Wait until no job runs, collect garbage in Python and in the JVM, then look.

    The caller sees to it that no job starts meanwhile. A running task holds pages of up to 64 MB, which would hide
    everything else.

    Returns:
        `driver_rss` (resident bytes of the Python driver), `workers` (bytes that Spark's Python workers do not share
        with others, together), `jvm_heap` (used bytes after collection),
        `cached_bytes` (storage memory in use on all executors, and cached blocks on disk), `open_files` (of
        the driver and all its descendants), `log_bytes` and `checkpoint_bytes`.
    """
    _settle(spark)
    gc.collect()
    process = psutil.Process()
    return {
        "driver_rss": process.memory_info().rss,
        "workers": sum(_own(each) for each in process.children(recursive=True)),
        "jvm_heap": _heap(spark),
        "cached_bytes": _cached(spark),
        "open_files": sum(_open_files(each) for each in [process, *process.children(recursive=True)]),
        "log_bytes": _size(checkpoint / "log"),
        "checkpoint_bytes": _size(checkpoint),
    }


def _settle(spark: SparkSession) -> None:
    """Wait for running jobs, collect, let Spark drop what is not referenced any more, and collect that."""
    tracker = spark.sparkContext.statusTracker()
    deadline = time.monotonic() + SETTLE_SECONDS
    while tracker.getActiveJobsIds() and time.monotonic() < deadline:
        time.sleep(0.02)
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    jvm.System.gc()
    time.sleep(0.1)
    jvm.System.gc()


def _heap(spark: SparkSession) -> int:
    """Return what a full collection left."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    pools = jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    left = [pool.getCollectionUsage() for pool in pools if pool.getType().toString() == "Heap memory"]
    return sum(int(usage.getUsed()) for usage in left if usage is not None)


def _cached(spark: SparkSession) -> int:
    context = spark.sparkContext._jsc.sc()
    total = sum(int(info.diskSize()) for info in context.getRDDStorageInfo())
    executors = context.getExecutorMemoryStatus().values().iterator()
    while executors.hasNext():
        most_and_left = executors.next()
        total += int(most_and_left._1()) - int(most_and_left._2())
    return total


def _own(process: psutil.Process) -> int:
    """Return the bytes that a Python process has by itself; 0 for other ones."""
    try:
        return int(process.memory_full_info().uss) if process.name().startswith("python") else 0
    except psutil.NoSuchProcess:
        return 0


def _open_files(process: psutil.Process) -> int:
    try:
        return int(process.num_fds())
    except psutil.NoSuchProcess:
        return 0


def _size(path: Path) -> int:
    total = 0
    for file in path.rglob("*"):
        try:
            if file.is_file():
                total += file.stat().st_size
        except FileNotFoundError:
            continue
    return total
