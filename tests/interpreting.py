"""Sessions that compile nothing, and such as users have.

For queries that are asked once, compiling takes longer than running.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

CONF = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
_USUAL = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}


def interpreting(spark: SparkSession, conf: Mapping[str, str] | None = None) -> SparkSession:
    """Return a new session that compiles nothing, with some more settings."""
    session = spark.newSession()
    for name, value in {**CONF, **(conf or {})}.items():
        session.conf.set(name, value)
    return session


def compiling(spark: SparkSession) -> SparkSession:
    """Return a new session that compiles queries, as they do by default."""
    return interpreting(spark, _USUAL)
