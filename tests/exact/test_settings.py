"""Whatever the user's session is set to, results are the same, and the session is afterwards what it was."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from exact_helpers import SECOND, Bench, Crash, PiecewiseSource
from pyspark.sql import DataFrame, SparkSession
from tests.interpreting import compiling

import transom as tm
from transom.api.app import App
from transom.engine.spark import jobs
from transom.engine.spark.caching import cached
from transom.sinks.inmemory import MemorySink

SCHEMA = "zone int, fare double, at timestamp"


def source() -> PiecewiseSource:
    made = PiecewiseSource(SCHEMA, (40,))
    made.add([(i % 3, i / 4, (i * 7 % 100) * SECOND) for i in range(99)])
    made.add([(1, None, None)])
    return made


def define_on(rows: PiecewiseSource) -> Any:
    """Two components over a map that needs the user's view and function."""

    def named(df: DataFrame) -> DataFrame:
        zones = df.sparkSession.table("zones")
        return df.join(zones, "zone").selectExpr("*", "doubled(fare) as twice", "date_trunc('DAY', at) as day")

    def define(app: App, sink: MemorySink) -> None:
        stream = app.stream(rows, event_time="at", watermark="2 minutes")
        mapped = stream.map(named)
        values = {"n": tm.count(), "f": tm.sum("twice"), "m": tm.avg("fare")}
        windows = ("10 seconds", tm.sliding("30 seconds", every="20 seconds"))
        mapped.group_by("name").window(*windows).agg(**values).to(sink, "zones")
        stream.window("1 minute").agg(n=tm.count("fare"), q=tm.quantile("fare", 0.5), t=tm.last("at")).to(sink, "all")

    return define


def user_session(spark: SparkSession, zone: str, ansi: bool, aqe: bool) -> SparkSession:
    session = compiling(spark)
    session.conf.set("spark.sql.session.timeZone", zone)
    session.conf.set("spark.sql.ansi.enabled", str(ansi).lower())
    session.conf.set("spark.sql.adaptive.enabled", str(aqe).lower())
    names = pa.table({"zone": pa.array([0, 1, 2], pa.int32()), "name": ["a", "b", "c"]})
    session.createDataFrame(names).createOrReplaceTempView("zones")
    session.sql("CREATE OR REPLACE TEMPORARY FUNCTION doubled(x DOUBLE) RETURNS DOUBLE RETURN x * 2")
    return session


def seen(session: SparkSession) -> dict[str, Any]:
    """What an application must not change."""
    return {
        "settings": sorted((row.key, row.value) for row in session.sql("SET").collect()),
        "tables": sorted(table.name for table in session.catalog.listTables()),
        "functions": sorted(row.function for row in session.sql("SHOW USER FUNCTIONS").collect()),
        "database": session.catalog.currentDatabase(),
        "active": active_session(),
    }


def active_session() -> str | None:
    """The identity of the JVM's session of this thread; PySpark makes a new wrapper for it each time."""
    active = SparkSession.getActiveSession()
    return None if active is None else str(active._jsparkSession.toString())


def results(session: SparkSession, directory: Path) -> dict[str, list[tuple[Any, ...]]]:
    bench = Bench(session, directory, define_on(source()))
    bench.run(close_all=False)
    bench.run()
    return {query: bench.rows(query) for query in ("zones", "all")}


@pytest.fixture(scope="module")
def wanted(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[Any, ...]]]:
    found = results(user_session(spark, "UTC", True, True), tmp_path_factory.mktemp("utc"))
    assert sum(row[3] for row in found["zones"] if row[1] - row[0] == 10 * SECOND) == 99
    return found


OTHERS = [
    pytest.param("America/New_York", False, False, marks=pytest.mark.slow),
    ("Asia/Kathmandu", False, True),
    pytest.param("America/New_York", True, True, marks=pytest.mark.slow),
    pytest.param("Asia/Kathmandu", True, False, marks=pytest.mark.slow),
]
"""Against UTC, ANSI and adaptive execution: each has another value in one of the first two."""


@pytest.mark.parametrize(("zone", "ansi", "aqe"), OTHERS)
def test_results_and_session_do_not_depend_on_each_other(spark, tmp_path, wanted, zone, ansi, aqe):
    session = user_session(spark, zone, ansi, aqe)
    before = seen(session)
    assert results(session, tmp_path) == wanted
    assert seen(session) == before


@pytest.mark.parametrize("end", [pytest.param("a query fails", marks=pytest.mark.slow), "the application ends at once"])
def test_a_job_that_does_not_end_well_leaves_nothing_in_the_cache(spark, tmp_path, monkeypatch, end):
    """The rows are there for the partials and for the join; what two branches need of them is for one job."""
    rows, run_cut = source(), jobs.run_cut
    held, seen_cached = threading.Event(), []

    def run(*args, **options):
        held.set()
        seen_cached.append(not spark._jsparkSession.sharedState().cacheManager().isEmpty())
        return run_cut(*args, **options)

    def define(app: App, sink: MemorySink) -> None:
        one = app.stream(rows, event_time="at", name="one")
        other = app.stream(source(), event_time="at", name="other").map(
            lambda df: df.selectExpr("zone", "fare as paid", "_event_micros")
        )
        app.join(one, other, on="zone", window="10 seconds").window("10 seconds").agg(n=tm.count()).to(sink, "pairs")
        one.where("fare > 3").map(lambda df: df.selectExpr("*", "fare + 1 as more")).window("10 seconds").agg(
            m=tm.sum("more")
        ).to(sink, "mapped")
        bad = one.map(lambda df: df.selectExpr("*", "assert_true(fare < 20) as right"))
        bad.window("10 seconds").agg(n=tm.count("right")).to(sink, "bad")

    def on_step(step: str) -> None:
        if step == "windows closed" and end == "the application ends at once":
            assert held.wait(600)
            spark.sparkContext.cancelAllJobs()
            raise Crash

    monkeypatch.setattr(jobs, "run_cut", run)
    bench = Bench(spark, tmp_path, define)
    progress = bench.run(on_step=on_step)
    assert any(seen_cached)
    if progress is not None:
        assert [query.name for query in progress.queries if query.failure] == ["bad"]
    assert spark._jsparkSession.sharedState().cacheManager().isEmpty()
    assert len(spark.sparkContext._jsc.getPersistentRDDs()) == 0


def test_who_lets_go_of_rows_takes_them_from_nobody_else(spark):
    """Spark takes two frames with the same plan for one: streams of the same rows took them from each other."""
    users, one, other = (
        keep(spark.range(3).selectExpr("id * 2 AS twice")) for keep in (DataFrame.persist, cached, cached)
    )
    assert [each.count() for each in (users, one, other)] == [3, 3, 3]
    one.unpersist()
    assert [each.storageLevel.useMemory for each in (users, one, other)] == [True, False, True]
    assert "Filter" not in other._jdf.queryExecution().executedPlan().toString(), "the mark costs nothing"
    other.unpersist()
    users.unpersist()
