"""Executors of a cluster on this machine: to kill them, and to wait for others."""

from __future__ import annotations

import os
import signal
import time

from pyspark.sql import SparkSession

from transom.engine.spark import placed


def kill(process: str) -> None:
    """Kill the executor whose Python daemon this is."""
    daemon = int(process.rsplit(":", 1)[1])
    with open(f"/proc/{daemon}/stat") as stat:
        parent = int(stat.read().rsplit(")", 1)[1].split()[1])
    os.kill(parent, signal.SIGKILL)


def await_executors(spark: SparkSession, without: str, count: int) -> list[str]:
    """Return the executors once one is gone and there are as many as before."""
    for _ in range(600):
        alive = [each.id for each in placed.executors(spark)]
        if without not in alive and len(alive) >= count:
            return alive
        time.sleep(0.05)
    raise TimeoutError(f"{without} is still among {alive}")
