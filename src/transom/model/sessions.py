"""The kinds of Spark session: classic, or Spark Connect."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_connect(spark: SparkSession) -> bool:
    """Tell whether a session is one of Spark Connect, whose driver, context and pools are in another process."""
    return not hasattr(spark, "_jsparkSession")
