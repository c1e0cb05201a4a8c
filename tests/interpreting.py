"""Sessions that compile nothing: for queries that are asked once, compiling takes longer than running."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

CONF = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


def interpreting(spark: SparkSession, conf: Mapping[str, str] | None = None) -> SparkSession:
    """Return a new session that compiles nothing, with some more settings."""
    session = spark.newSession()
    for name, value in {**CONF, **(conf or {})}.items():
        session.conf.set(name, value)
    return session
