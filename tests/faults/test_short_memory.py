"""More than the memory holds waits for a slow query: nothing is lost, and the process lives."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import memory_app
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F


def run(directory: Path, bound: float) -> subprocess.CompletedProcess[str]:
    script = [sys.executable, memory_app.__file__, str(directory / "checkpoint"), str(bound)]
    return subprocess.run(script, capture_output=True, text=True, timeout=3_000, check=False, env=dict(os.environ))


def batch(spark: SparkSession) -> list[list[int]]:
    """Return what the slow query has to give, by plain Spark over the same input."""
    wide = memory_app.widened(spark.createDataFrame(memory_app.rows()))
    windows = wide.where(F.col("id") < memory_app.IDS).groupBy(F.window("at", "1 second").alias("w"))
    sums = windows.agg(F.count("*").alias("n"), F.sum(F.crc32(F.encode("text", "utf-8"))).alias("sums"))
    return [[row["n"], row["sums"]] for row in sorted(sums.collect(), key=lambda row: row["w"]["start"])]


@pytest.mark.slow
def test_without_the_memory_mode_the_process_is_killed(tmp_path: Path) -> None:
    assert run(tmp_path, 1.0).returncode == -signal.SIGKILL


@pytest.mark.slow
def test_with_the_memory_mode_it_lives_and_gives_the_same_as_plain_spark(spark: SparkSession, tmp_path: Path) -> None:
    ended = run(tmp_path, 0.8)
    assert ended.returncode == 0, ended.stderr[-2_000:]
    found = json.loads(ended.stdout.splitlines()[-1])
    wanted = batch(spark)
    assert len(wanted) == memory_app.WINDOWS
    assert found["rows"] == wanted
    assert found["most"] < memory_app.HARD
    assert found["modes"] > 0
    assert found["notes"][0].startswith("Memory is short (driver ")
    assert sum(n for n, _ in wanted) * 96_000 > memory_app.HARD, "all of it at once is more than there is"
