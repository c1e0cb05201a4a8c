"""Another having, select or rename at a restart: windows go on, later results follow it, none is there twice."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from faults_app import Killed, at_step
from pyspark.sql.types import StructType

import transom as tm
from transom.engine.streams.results import ResultsSource
from transom.errors import JobChangedError, SinkError
from transom.model.time import ManualClock

without_jobs = pytest.mark.usefixtures("in_memory")


def rows_of(*seconds: int) -> list[tuple[int, datetime]]:
    return [(second, datetime(2024, 1, 1, 0, 0, second, tzinfo=UTC)) for second in seconds]


def build(spark: Any, root: Any, rows: Any, sink: Any, shape: Any, read: Any = None) -> tm.App:
    made = tm.App(spark, root / "checkpoint", clock=ManualClock(1_700_000_000_000_000))
    stream = made.stream(rows, event_time="at", watermark=tm.watermark(0, max_ahead=None), name="rows")
    query = shape(stream.window("10 seconds").agg(n=tm.count(), v=tm.sum("v")))
    query.to(sink, "q")
    if read is not None:
        query.results().window("1 minute").agg(n=tm.sum("n")).to(read, "read")
    return made


def many(query: Any) -> Any:
    return query.having("n > 1")


def killed_at(step: str, app: tm.App) -> None:
    app._on_step = at_step(step, 1, lambda: (_ for _ in ()).throw(Killed()))
    with pytest.raises(Killed):
        app.run(once=True)


def test_windows_go_on_and_later_results_follow_the_new_condition(spark: Any, tmp_path: Any) -> None:
    """The first window has one row, too few for the former condition; the open one goes on with its rows."""
    rows, sink, read = tm.sources.memory("v long, at timestamp"), tm.sinks.memory(), tm.sinks.memory()
    rows.add(rows_of(1, 11))
    build(spark, tmp_path, rows, sink, many, read).run(once=True)
    assert sink.rows("q") == []
    rows.add(rows_of(21, 22, 23))
    killed_at("cut logged", build(spark, tmp_path, rows, sink, lambda query: query.having("n = 1"), read))
    build(spark, tmp_path, rows, sink, lambda query: query.having("n = 1"), read).run(once=True)
    assert [(row["window_start"].second, row["n"], row["v"]) for row in sink.rows("q")] == [(10, 1, 11)]
    shape = lambda query: query.select("window_end", n="n * 10", m="v / n")  # noqa: E731
    build(spark, tmp_path, rows, sink, shape, read).run(once=True, close_all=True)
    assert [(row["window_end"].second, row["n"], row["m"]) for row in sink.rows("q")[1:]] == [(30, 30, 22.0)]
    assert [row["n"] for row in read.rows("read")] == [1 + 30]


@without_jobs
def test_a_kill_leaves_windows_of_which_nobody_knows(spark: Any, tmp_path: Any) -> None:
    rows, sink = tm.sources.memory("v long, at timestamp"), tm.sinks.memory()
    rows.add(rows_of(1, 2, 11))
    killed_at("windows closed", build(spark, tmp_path, rows, sink, many))
    rows.add(rows_of(21))
    killed_at("delivered", build(spark, tmp_path, rows, sink, many))
    with pytest.raises(JobChangedError) as refused:
        build(spark, tmp_path, rows, sink, lambda query: query).run(once=True)
    assert str(refused.value) == (
        "The query 'q' has another having, select or rename than in the checkpoint, which has windows that closed "
        "before the application ended without saying so, as after a kill: some may be written, some not. Run once "
        "with the former ones (transom run --once), which ends what was under way, and then with the new ones; or "
        "give the query a new name, which starts afresh."
    )
    build(spark, tmp_path, rows, sink, many).run(once=True)
    build(spark, tmp_path, rows, sink, lambda query: query).run(once=True, close_all=True)
    assert [(row["window_start"].second, row["n"]) for row in sink.rows("q")] == [(0, 2), (20, 1)]


@without_jobs
def test_what_else_changes_is_another_query(spark: Any, tmp_path: Any) -> None:
    rows, sink = tm.sources.memory("v long, at timestamp"), tm.sinks.memory()
    rows.add(rows_of(1, 11))
    build(spark, tmp_path, rows, sink, many).run(once=True)
    with pytest.raises(JobChangedError, match="fill: zero"):
        build(spark, tmp_path, rows, sink, lambda query: query.fill("zero")).run(once=True)


@without_jobs
def test_a_table_with_other_columns_says_so(spark: Any, tmp_path: Any) -> None:
    rows, sink = tm.sources.memory("v long, at timestamp"), lambda: tm.sinks.sqlite(tmp_path / "results.db")
    rows.add(rows_of(1, 11))
    build(spark, tmp_path, rows, sink(), lambda query: query).run(once=True)
    rows.add(rows_of(21))
    build(spark, tmp_path, rows, sink(), lambda query: query.having("n > 0")).run(once=True)
    with sqlite3.connect(tmp_path / "results.db") as database:
        assert database.execute("SELECT count(*) FROM q").fetchone() == (2,)
    rows.add(rows_of(31))
    with pytest.raises(SinkError, match="no column named m"):
        build(spark, tmp_path, rows, sink(), lambda query: query.select("window_end", m="n")).run(once=True)


def test_results_that_wait_for_a_reader_keep_their_columns() -> None:
    source = ResultsSource("rows", "q")
    source._schema = StructType().add("window_end", "timestamp").add("m", "double")
    waits = {"newest": 3, "watermark": 0, "ingested": 0, "items": [[3, 1, 0, 0]]}
    with pytest.raises(JobChangedError, match=r"have the columns window_end, n; now they would be window_end, m.*once"):
        source.restore(waits, {"3": pa.table({"window_end": [1], "n": [2]})})
    source.restore(waits, {"3": pa.table({"window_end": [1], "m": [2.0]})})
