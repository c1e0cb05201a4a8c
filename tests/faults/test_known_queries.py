"""Queries that a checkpoint knows, at a restart: found again, told apart, or kept out."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F
from test_recovery import COUNT, NOON, OVERFLOWING, both, build, killed_at, source, starts

import transom as tm
from transom.errors import CheckpointCorruptError, DefinitionError
from transom.model.time import ManualClock
from transom.windows.aggregates.sums import Sum


def seconds(until):
    """A row per second, alternating between zones, with times as numbers."""
    added = tm.sources.memory("zone string, at long, size long")
    added.add([("ab"[i % 2], i, i) for i in range(until)])
    return added


@pytest.mark.parametrize("snapshot_bytes", [1, pytest.param(1 << 20, marks=pytest.mark.slow)], ids=["snapshots", "log"])
@pytest.mark.slow
def test_columns_and_functions_are_known_again(spark, tmp_path, snapshot_bytes):
    """Made anew in each run, as the code of an application makes them: they are known by what they read like."""
    rows, sinks = seconds(45), [tm.sinks.memory() for _ in range(3)]

    def again():
        app = tm.App(
            spark, tmp_path / "checkpoint", clock=ManualClock(NOON), max_rows_per_cut=5, snapshot_bytes=snapshot_bytes
        )
        stream = app.stream(rows, event_time="timestamp_seconds(at)", watermark=tm.watermark(0, max_ahead=None))
        half = F.udf(lambda size: size // 2, "bigint")("size")
        functions = (
            lambda rows: {"total": sum(rows["x"].to_pylist())},
            lambda states: {"total": sum(states["total"].to_pylist())},
            lambda state: state["total"],
        )
        total = tm.udaf({"x": "size"}, *functions, "total long", "long")
        zones = stream.group_by(zone=F.col("zone")).window("10 seconds")
        zones.agg(total=total, check=tm.sum("size")).to(sinks[0], "total")
        halves = stream.where(F.col("size") >= 0).group_by(zone=F.col("zone")).window("20 seconds")
        halves.agg(half=tm.sum(half), check=tm.sum("size div 2")).to(sinks[1], "half")
        positive = stream.where(F.col("size") >= 0).group_by(zone=F.col("zone")).window("10 seconds")
        positive.agg(check=tm.max("size"), most=tm.max(F.col("size"))).to(sinks[2], "most")
        return app

    for step in ("committed", "delivered"):
        killed_at(again(), step, 3)
    again().run(once=True, close_all=True)
    for sink, query, value in zip(sinks, ("total", "half", "most"), ("total", "half", "most"), strict=True):
        found = sink.rows(query)
        assert len(found) == (6 if query == "half" else 10)
        assert all(row[value] == row["check"] for row in found), query


def kinds_of_columns(stream, kind, number):
    """A query with a Column, or function, that reads like that of another number and is not the same."""
    function = F.udf(lambda value: value % (2 + number), "bigint")
    keyed = stream.group_by("zone").window("10 seconds")
    if kind == "key":
        return stream.group_by(k=function("at")).window("10 seconds").agg(**COUNT)
    if kind == "condition":
        return stream.where(function("at") == 0).group_by("zone").window("10 seconds").agg(**COUNT)
    if kind == "input":
        return keyed.agg(n=tm.sum(function("size")))
    if kind == "aggregate":
        functions = (lambda rows: {"total": number}, lambda states: {"total": number}, len)
        return keyed.agg(n=tm.udaf({"x": "size"}, *functions, "total long", "long", name="mine"))
    return stream.map(lambda df: df.withColumn("k", function("at"))).group_by("k").window("10 seconds").agg(**COUNT)


@pytest.mark.parametrize("kind", ["key", "condition", "input", "aggregate", "map"])
def test_what_a_checkpoint_could_not_tell_apart_is_refused(spark, tmp_path, kind):
    app = tm.App(spark, tmp_path / "checkpoint", clock=ManualClock(NOON))
    stream = app.stream(seconds(5), event_time="timestamp_seconds(at)")
    for number in range(2):
        kinds_of_columns(stream, kind, number).to(tm.sinks.memory(), f"q{number}")
    with pytest.raises(DefinitionError, match=r"other functions.* name=|different names"):
        app.run(once=True)


def test_equal_transformations_are_one(spark, tmp_path):
    """Numbered in the order of the queries, they were taken for each other when one of them had gone."""
    rows, sinks = seconds(35), {name: tm.sinks.memory() for name in "abc"}

    def app(names):
        made = tm.App(spark, tmp_path / "checkpoint", clock=ManualClock(NOON), max_rows_per_cut=5)
        stream = made.stream(rows, event_time="timestamp_seconds(at)", watermark=tm.watermark(0, max_ahead=None))
        for name, value in zip(names, names, strict=True):
            twice = (
                stream.map(lambda df: df.withColumn("size", F.col("size") * 2)).group_by("zone").window("10 seconds")
            )
            twice.agg(**{value: {"a": tm.sum, "b": tm.min, "c": tm.max}[value]("size")}).to(sinks[name], name)
        return made

    killed_at(app("abc"), "committed", 3)
    app("cb").run(once=True, close_all=True)
    assert [row["b"] for row in sinks["b"].rows("b")] == [0, 2, 20, 22, 40, 42, 60, 62]
    assert [row["c"] for row in sinks["c"].rows("c")] == [16, 18, 36, 38, 56, 58, 68, 66]


def test_a_state_that_nobody_knows_is_an_error(spark, tmp_path, monkeypatch):
    """What a class is called in the code does not matter; what states are called does, and is never passed over."""
    rows, sink = source(25), tm.sinks.memory()
    killed_at(build(spark, tmp_path, rows, {"q": (sink, {"n": tm.sum("size")})}, snapshot_bytes=1), "after snapshot", 2)
    with monkeypatch.context() as patch:
        patch.setattr(Sum, "key", property(lambda self: '["sum.2", "size"]'))
        with pytest.raises(CheckpointCorruptError, match=r"no states \[.sum\.2.*zone"):
            build(spark, tmp_path, rows, {"q": (sink, {"n": tm.sum("size")})}).run(once=True)
    monkeypatch.setattr(Sum, "__repr__", lambda self: "Another()")
    build(spark, tmp_path, rows, {"q": (sink, {"n": tm.sum("size")})}).run(once=True, close_all=True)
    assert [row["n"] for row in sink.rows("q")] == [20, 25, 70, 75, 66, 44]


@pytest.mark.parametrize("snapshot_bytes", [1, pytest.param(1 << 20, marks=pytest.mark.slow)], ids=["snapshots", "log"])
@pytest.mark.slow
def test_a_query_that_failed_and_does_not_compile_any_more_stays_out(spark, tmp_path, snapshot_bytes):
    """With what reads its results; the others start, and it is not forgotten however often that happens."""
    rows, sinks = seconds(40), {name: tm.sinks.memory() for name in ("good", "bad", "child")}

    def app(broken):
        made = tm.App(
            spark, tmp_path / "checkpoint", clock=ManualClock(NOON), max_rows_per_cut=5, snapshot_bytes=snapshot_bytes
        )
        stream = made.stream(rows, event_time="timestamp_seconds(at)", watermark=tm.watermark(0, max_ahead=None))
        column = "no_such_column" if broken else f"IF(at IN (12, 17), {OVERFLOWING}, 0)"
        huge = stream.map(lambda df: df.selectExpr("at", f"{column} AS size"))
        bad = huge.window("10 seconds").agg(size=tm.sum("size"))
        bad.to(sinks["bad"], "bad")
        bad.results().window("20 seconds").agg(n=tm.count()).to(sinks["child"], "child")
        stream.group_by("zone").window("10 seconds").agg(n=tm.count()).to(sinks["good"], "good")
        return made

    killed_at(app(broken=False), "committed", 7)
    for until in (60, 80):
        rows.add([("ab"[i % 2], i, i) for i in range(until - 20, until)])
        notes = []
        app(broken=True).run(once=True, on_progress=lambda progress, notes=notes: notes.extend(progress.notes))
        assert any("bad failed earlier and stays out" in n and "no_such_column" in n for n in notes), notes
        assert any("child failed earlier" in n for n in notes), notes
    progress = app(broken=False).run(once=True, close_all=True)
    assert {query.name: query.failure is None for query in progress.queries} == {
        "good": True,
        "bad": False,
        "child": False,
    }
    assert starts(sinks["good"], "good") == both(*range(0, 80, 10))
    assert [row["window_start"].second for row in sinks["bad"].rows("bad")] == [0]
