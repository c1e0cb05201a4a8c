"""A session for tests with many different queries."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def interpreted(spark: SparkSession) -> SparkSession:
    """A session that compiles nothing: every example has other queries, and compiling takes longer than running."""
    session = spark.newSession()
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    return session
