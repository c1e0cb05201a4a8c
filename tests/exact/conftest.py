"""A session for tests with many different queries."""

from __future__ import annotations

import pytest
from exact_helpers import Bench
from pyspark.sql import SparkSession


@pytest.fixture(scope="session", autouse=True)
def tier(request: pytest.FixtureRequest) -> None:
    """Let all applications of these tests keep their partials in the tier of --tier."""
    if (chosen := request.config.getoption("--tier")) is not None:
        Bench.defaults = {"tier": chosen, "key_groups": 3}


@pytest.fixture(scope="session")
def interpreted(spark: SparkSession) -> SparkSession:
    """A session that compiles nothing: every example has other queries, and compiling takes longer than running."""
    session = spark.newSession()
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    return session
