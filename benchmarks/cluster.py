"""A cluster of single-core executors on this machine, and what its tasks did."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import transom as tm
from benchmarks import links, namespaces
from benchmarks.harness import Run
from transom.engine.placed import placed
from transom.engine.placed.files import here

MEGABYTES = 1024
PATIENCE_SECONDS = 60


@contextmanager
def local_cluster(executors: int, megabytes: int = MEGABYTES, **settings: str) -> Iterator[SparkSession]:
    """Give a session with so many executors of one core each on this machine; all of them are there when it begins.

    Args:
        executors: How many.
        megabytes: Memory of each executor's JVM.
        settings: More settings of Spark, with `_` for `.`.

    Raises:
        TimeoutError: They do not come.
    """
    yield from _session(f"local-cluster[{executors},1,{megabytes}]", "127.0.0.1", executors, megabytes, settings)


@contextmanager
def networked_cluster(run: Run, executors: int, megabytes: int = MEGABYTES, **settings: str) -> Iterator[SparkSession]:
    """Give the same with a link of 1 Gbit/s each way for each executor, where this process may make network namespaces.

    Elsewhere it says so, and gives a local cluster, whose executors share the machine's memory as their network.

    Args:
        run: Told which of the two it is.
        executors: How many.
        megabytes: Memory of each executor's JVM.
        settings: More settings of Spark, with `_` for `.`.

    Raises:
        TimeoutError: They do not come.
    """
    if not namespaces.possible():
        run.say(f"{executors} executors without links of their own: network namespaces need root, `ip` and `tc`")
        with local_cluster(executors, megabytes, **settings) as spark:
            yield spark
        return
    with links.linked_cluster(executors, megabytes) as cluster:
        run.say(f"{executors} executors, each in a network namespace with a link of {links.MEGABITS} Mbit/s")
        yield from _session(cluster.master, cluster.driver, executors, megabytes, settings)


def _session(
    master: str, host: str, executors: int, megabytes: int, settings: Mapping[str, str]
) -> Iterator[SparkSession]:
    os.environ["SPARK_LOCAL_IP"] = host
    builder = (
        tm.session_builder()
        .master(master)
        .config("spark.executor.memory", f"{megabytes}m")
        .config("spark.executor.cores", "1")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", host)
        .config("spark.driver.bindAddress", host)
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100000")
    )
    for name, value in settings.items():
        builder = builder.config(name.replace("_", "."), value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    try:
        wait_for(spark, executors)
        yield spark
    finally:
        spark.stop()


def wait_for(spark: SparkSession, executors: int) -> None:
    """Wait until so many executors are there."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        with suppress(tm.SessionError):
            if len(placed.executors(spark)) >= executors:
                return
        if time.monotonic() > end:
            raise TimeoutError(f"Spark has not got {executors} executors.")
        time.sleep(0.05)


def kill_executor(spark: SparkSession, executor: str) -> None:
    """Kill the process of an executor with -9, and return when Spark has noticed.

    Raises:
        TimeoutError: It does not notice.
    """
    daemon = int(placed.Tasks(spark, [executor]).run(lambda _: here().encode())[0].decode().rsplit(":", 1)[1])
    parent = int(Path(f"/proc/{daemon}/stat").read_text().rsplit(")", 1)[1].split()[1])
    os.kill(parent, signal.SIGKILL)
    end = time.monotonic() + PATIENCE_SECONDS
    while any(each.id == executor for each in placed.executors(spark)):
        if time.monotonic() > end:
            raise TimeoutError(f"Spark still has executor {executor}.")
        time.sleep(0.02)


def spilled_bytes(spark: SparkSession) -> int:
    """Return the bytes of cached data that did not fit into the executors' memory and lie on disk."""
    infos = spark.sparkContext._jsc.sc().getRDDStorageInfo()
    return sum(int(each.diskSize()) for each in infos)


@dataclass(frozen=True)
class Stages:
    """What the tasks of some stages did."""

    shuffle_bytes: int
    """Written to and read from exchanges."""
    localities: dict[str, int]
    """Tasks by their locality."""

    @property
    def local_share(self) -> float:
        """Share of the tasks that ran in the process that their preferred location names."""
        total = sum(self.localities.values())
        return self.localities.get("PROCESS_LOCAL", 0) / total if total else 1.0


@contextmanager
def watched(spark: SparkSession) -> Iterator[list[Stages]]:
    """Give a list that holds, after the block, what the stages did that ran in it; for one thread at a time."""
    context: Any = spark.sparkContext._jsc.sc()  # type: ignore[union-attr]
    first = int(context.dagScheduler().nextStageId())
    found: list[Stages] = []
    yield found
    context.listenerBus().waitUntilEmpty()
    store, shuffled, localities = context.statusStore(), 0, Counter[str]()
    for stage in range(first, int(context.dagScheduler().nextStageId())):
        with suppress(Exception):  # a stage that was skipped, as its exchange was there already
            data, tasks = store.stageData(stage, False, None, False, None).apply(0), store.taskList(stage, 0, 10_000)
            shuffled += data.shuffleReadBytes() + data.shuffleWriteBytes()
            localities.update(tasks.apply(place).taskLocality() for place in range(tasks.size()))
    found.append(Stages(shuffled, dict(localities)))
