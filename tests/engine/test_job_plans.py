"""What Spark runs for a cut: how often rows are read, exchanged and aggregated."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pyspark.sql import DataFrame

import transom as tm
from transom.api.app import App
from transom.api.streams import Stream
from transom.engine.spark.columns import TIME
from transom.engine.spark.compile import compile_queries
from transom.engine.streams import compiling
from transom.sources.inmemory import MemorySource
from transom.sources.schemas import as_struct

SCHEMA = "area string, user string, device string, fare double, unused string, at timestamp"


def job(spark, tmp_path, streams) -> tuple[DataFrame, Sequence[DataFrame]]:
    """Return the rows that the aggregations of a cut read, and the aggregations."""
    app = App(spark, tmp_path / "checkpoint")
    stream = app.stream(MemorySource(as_struct(SCHEMA), 1), event_time="at")
    for i, query in enumerate(streams(stream)):
        query.to(tm.sinks.memory(), f"q{i}")
    definition = stream._definition()
    schema = as_struct(SCHEMA)
    compiled = compile_queries(spark, schema, definition.rows, definition.queries)
    plan = compiled.plan
    made = {"timestamp": "timestamp_seconds(id)", "double": "double(id)", "string": "string(id)"}
    raw = spark.range(9).selectExpr(*(f"{made[f.dataType.simpleString()]} as `{f.name}`" for f in schema))
    read = plan.needed[0](plan.branches[0](raw.withColumn(TIME, plan.time)))
    return read, [aggregation(read) for aggregation in plan.aggregations]


def count(frames: Sequence[DataFrame], node: str) -> int:
    """Return how often an operator is in the physical plans."""
    return sum(df._jdf.queryExecution().executedPlan().toString().count(node) for df in frames)


def windowed(stream: Stream, *keys: str, where: str | None = None, **aggregates):
    rows = stream if where is None else stream.where(where)
    return rows.group_by(*keys).window("1 minute").agg(**(aggregates or {"n": tm.count(), "total": tm.sum("fare")}))


@pytest.mark.parametrize(
    ("streams", "aggregations"),
    [
        (lambda s: [windowed(s, "area", "user"), windowed(s, "area"), windowed(s)], 1),
        (lambda s: [windowed(s, "area"), windowed(s, "area", where="fare > 1"), windowed(s, where="fare > 9")], 1),
        (lambda s: [windowed(s, "area", "user"), windowed(s, "area", "device")], 2),
        (lambda s: [windowed(s, "area", "user"), windowed(s, "area", q=tm.quantile("fare", 0.5))], 2),
    ],
    ids=["coarser keys are derived", "conditions are tags", "no keys are finer", "sketches are not derived"],
)
def test_key_sets_share_exchanges(spark, tmp_path, streams, aggregations: int):
    _, frames = job(spark, tmp_path, streams)
    assert len(frames) == aggregations
    assert count(frames, "Exchange hashpartitioning(_pane") == count(frames, "Exchange") == aggregations


def test_each_expression_is_evaluated_once_and_nothing_else_is_kept(spark, tmp_path):
    read, _ = job(
        spark, tmp_path, lambda s: [windowed(s, "area", "user"), windowed(s, "area", "device", where="fare > 1")]
    )
    area_user_fare_device_condition = [f"_e{i}" for i in range(5)]
    assert read.columns == [TIME, *area_user_fare_device_condition]


@pytest.mark.usefixtures("in_memory")
def test_queries_are_analysed_once_at_the_start(spark, tmp_path, monkeypatch):
    """The first run of a stream begins with no query; Spark need not be asked what is left then."""
    asked: list[int] = []

    def noted(session, schema, rows, queries, *others):
        asked.append(len(queries))
        return compile_queries(session, schema, rows, queries, *others)

    monkeypatch.setattr(compiling, "compile_queries", noted)
    for run in range(2):
        app = App(spark, tmp_path / "checkpoint")
        stream = app.stream(MemorySource(as_struct(SCHEMA), 1), event_time="at")
        windowed(stream, "area").to(tm.sinks.memory(), "one")
        if run:
            windowed(stream, "user", where="fare > 1").to(tm.sinks.memory(), "two")
        app.run(once=True)
    assert asked == [1, 2, 1], "the second run begins with the query of the first"
