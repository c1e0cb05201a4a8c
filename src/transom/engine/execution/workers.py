"""Jobs of one stage in Python workers, and workers that start while queries are planned.

To start one takes most of a second: Spark's daemon, then a process that imports Arrow and pandas. The first cut would
wait for that after its queries were planned, which takes longer, and leaves a core idle.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from transom.engine.execution.splits import awake
from transom.engine.spark.stages import in_workers
from transom.model.sessions import is_connect
from transom.sources.base import Source
from transom.sources.filesets.source import FileSource
from transom.sources.generated import GeneratorSource
from transom.sources.shared import source_of
from transom.sources.topics.source import KafkaSource

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.sql import SparkSession

MOST_TASKS = 256
LONGEST = 2.0
"""Seconds that the end of a run waits for workers that start, so that Spark is not stopped in the middle of it."""
_waking: WeakKeyDictionary[SparkContext, threading.Thread] = WeakKeyDictionary()
"""What starts, or has started, the workers of a context."""


def run_in_workers(
    spark: SparkSession, function: Callable[[Iterable[int]], Iterable[bytes]], tasks: int
) -> list[bytes]:
    """Return what tasks give; one job of one stage.

    Args:
        spark: A classic session.
        function: What a task does, told its number.
        tasks: How many, at most `MOST_TASKS`.
    """
    context = spark.sparkContext
    with in_workers(spark):
        return list(context.runJob(_numbers(context), function, list(range(tasks))))


def wake_workers(spark: SparkSession, sources: Sequence[Source]) -> None:
    """Start Python workers in the background if they may read a source, once for each Spark context; return at once.

    Args:
        spark: A session.
        sources: Those that are read.
    """
    if is_connect(spark) or not any(map(_may_be_read, sources)) or spark.sparkContext in _waking:
        return
    context = spark.sparkContext

    def wake() -> None:
        with suppress(Exception):  # what is wrong the first cut finds, too, and tells
            run_in_workers(spark, awake, min(context.defaultParallelism, MOST_TASKS))

    with suppress(RuntimeError):  # the interpreter is ending
        (thread := threading.Thread(target=wake, name="transom-wake", daemon=True)).start()
        _waking[context] = thread


def wait_for_workers(longest: float) -> None:
    """Wait until workers that start have, for a moment at most.

    Args:
        longest: Seconds to wait.
    """
    for thread in list(_waking.values()):
        thread.join(min(longest, LONGEST))


def _may_be_read(source: Source) -> bool:
    """Tell whether workers may read a source, or make its rows."""
    of = source_of(source)
    if isinstance(of, GeneratorSource):
        return of.is_large
    return isinstance(of, KafkaSource) or (isinstance(of, FileSource) and of.plain_format is not None)


@functools.lru_cache(1)
def _numbers(context: SparkContext) -> RDD[int]:
    """Return the number of each task; jobs run on the first ones."""
    return context.parallelize(range(MOST_TASKS), MOST_TASKS)
