"""The Spark session: a builder with the settings that must be there from the start, and a private copy for Transom."""

from __future__ import annotations

import os
import sys
import warnings
from typing import TYPE_CHECKING

from transom.errors import SessionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATIC_SETTINGS = {
    "spark.scheduler.mode": "FAIR",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.shuffle.reduceLocality.enabled": "false",
    "spark.locality.wait": "0s",
    "spark.ui.showConsoleProgress": "false",
    "spark.cleaner.periodicGC.interval": "5min",
}
"""Settings that only take effect when the Spark context starts."""

RUNTIME_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.execution.arrow.pyspark.fallback.enabled": "false",
}
"""Settings of Transom's own session; the user's session keeps its own."""


def session_builder() -> SparkSession.Builder:
    """Return a `SparkSession.builder` with the settings that Transom wants from the start.

    Raises:
        SessionError: There is no Java, or PySpark is missing.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SessionError(f"PySpark cannot be imported: {error}.", "Install it: pip install transom.") from error
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder
    for key, value in STATIC_SETTINGS.items():
        builder = builder.config(key, value)
    return builder


def private_session(spark: SparkSession) -> SparkSession:
    """Return a session beside the user's: same context, views, functions and runtime settings, but its own changes.

    A session that was not made by `session_builder` works too; what it lacks is said once.
    """
    missing = [
        f"{key}={value}" for key, value in STATIC_SETTINGS.items() if spark.conf.get(key, None) != value
    ]
    if missing:
        warnings.warn(
            "The Spark session was not made with transom.session_builder(); everything works, but these settings "
            f"would make micro-batches faster: {', '.join(missing)}.",
            stacklevel=3,
        )
    return spark
