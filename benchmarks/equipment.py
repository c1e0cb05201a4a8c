"""The machine that every engine under a benchmark gets: the same cores, memory and disk."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORES = os.environ.get("BENCHMARK_CORES", "2")


def equipped(builder: SparkSession.Builder) -> SparkSession:
    """Return the session of a builder that says how the engine is set up, and nothing of the machine."""
    if jars := os.environ.get("BENCHMARK_JARS"):
        builder = builder.config("spark.jars", jars)
    spark = (
        builder.master(f"local[{CORES}]")
        .config("spark.driver.memory", "4g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.local.dir", os.environ.get("BENCHMARK_WORK", "."))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark
