"""Executors of a cluster on this machine: to kill them, to wait for others, and what their tasks did."""

from __future__ import annotations

import os
import signal
from collections import Counter
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from transom.engine.placed import placed
from transom.engine.placed.outlasting import outlasting
from transom.model.time import MICROS_PER_SECOND, SystemClock

PARTITIONS = 12


def kill(process: str) -> None:
    """Kill the executor whose Python daemon this is."""
    daemon = int(process.rsplit(":", 1)[1])
    with open(f"/proc/{daemon}/stat") as stat:
        parent = int(stat.read().rsplit(")", 1)[1].split()[1])
    os.kill(parent, signal.SIGKILL)


def await_executors(spark: SparkSession, without: str, count: int) -> list[str]:
    """Return the executors once one is gone and there are as many as wanted, within ten minutes."""

    def alive() -> list[str]:
        found = [each.id for each in placed.executors(spark)]
        if without in found or len(found) < count:
            raise placed.NoExecutorError(f"{without} is to be gone, and {count} others there: {found}.", "Wait.")
        return found

    return outlasting(alive, 600 * MICROS_PER_SECOND, SystemClock())


def words(spark: SparkSession, seed: int) -> Any:
    """Return 20,000 rows with a key and a text."""
    number = (F.col("id") * 7919 + seed) % 1000
    return spark.range(20_000).select(number.cast("string").alias("key"), F.concat(F.lit("GET /"), "id").alias("text"))


def stages(spark: SparkSession, since: int) -> dict[str, int]:
    """Return shuffle bytes and how many tasks were at which locality, of the stages from a number on."""
    store = spark.sparkContext._jsc.sc().statusStore()
    found: Counter[str] = Counter()
    stage = since
    while True:
        try:
            tasks = store.taskList(stage, 0, 1000)
            data = store.stageData(stage, False, None, False, None).apply(0)
        except Exception:  # the store has no such stage yet
            return dict(found)
        found["shuffle"] += data.shuffleReadBytes() + data.shuffleWriteBytes()
        for place in range(tasks.size()):
            found[tasks.apply(place).taskLocality()] += 1
        stage += 1


def next_stage(spark: SparkSession) -> int:
    """Return the number that the next stage gets."""
    return int(spark.sparkContext._jsc.sc().dagScheduler().nextStageId())


def drained(spark: SparkSession) -> None:
    """Let the status store take in all that has happened."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
