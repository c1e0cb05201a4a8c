"""Where rows cannot be left out that is said with the remedy, when a query is written or before it runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import transom as tm
from transom.api.shedding import least_share
from transom.sinks.nowhere import Nowhere

SHED: Any = {"on_overload": "shed"}


def test_the_least_share_is_a_tenth_unless_another_is_given() -> None:
    assert least_share("delay", None, (), ()) is None
    assert least_share("shed", None, (), ()) == 0.1
    assert least_share("shed", 1, (), ()) == 1.0


@pytest.mark.parametrize(
    "on_overload, keep, columns, says",
    [
        ("drop", None, (), "on_overload is 'drop'"),
        ("delay", 0.5, (), "keep is 0.5, but nothing is left out"),
        ("shed", 0, (), "above 0, at most 1"),
        ("shed", float("nan"), (), "above 0, at most 1"),
        ("shed", 1.01, (), "above 0, at most 1"),
        ("shed", "0.5", (), "above 0, at most 1"),
        ("shed", True, (), "above 0, at most 1"),
        ("shed", None, ("n", "shed_share"), "a column 'shed_share' already"),
    ],
)
def test_what_makes_no_sense_is_refused(on_overload: str, keep: Any, columns: tuple[str, ...], says: str) -> None:
    with pytest.raises(tm.DefinitionError, match=says):
        least_share(on_overload, keep, (), columns)


def query(stream: Any, window: Any = "1 second") -> Any:
    return stream.group_by("v").window(window).agg(n=tm.count())


def results_read(app: tm.App, stream: Any) -> None:
    first = query(stream).within("1 second", **SHED)
    first.to(Nowhere(), "first")
    query(first.results()).to(Nowhere(), "second")


def late_rows_read(app: tm.App, stream: Any) -> None:
    first = query(stream).within("1 second", **SHED)
    first.to(Nowhere(), "first")
    first.late_rows().window("1 minute").agg(n=tm.count()).to(Nowhere(), "second")


def of_results(app: tm.App, stream: Any) -> None:
    query(query(stream).results("first")).within("1 second", **SHED).to(Nowhere(), "second")


def of_a_join(app: tm.App, stream: Any) -> None:
    query(app.join(stream, stream, on="v", window="1 second")).within("1 second", **SHED).to(Nowhere(), "second")


def of_a_generator(app: tm.App, stream: Any) -> None:
    made = app.stream(
        tm.sources.generator({"v": "id", "event_time": "event_time"}, rows_per_second=10), event_time="event_time"
    )
    query(made).within("1 second", **SHED).to(Nowhere(), "second")


def of_sessions(app: tm.App, stream: Any) -> None:
    query(stream, tm.session_window("1 second")).within("1 second", **SHED)


@pytest.mark.parametrize(
    "define, says",
    [
        (results_read, "'first' says .*first.results is read by queries that want all of it"),
        (late_rows_read, "'first' says .*first.late is read by queries that want all of it"),
        (of_results, "'second' says .*its rows come from other queries or a join"),
        (of_a_join, "'second' says .*its rows come from other queries or a join"),
        (of_a_generator, "'second' says .*no piece of its source can be left out: generator"),
        (of_sessions, "a session window would end where rows were left out"),
    ],
)
def test_where_nothing_can_be_left_out(
    define: Callable[[tm.App, Any], None], says: str, spark: SparkSession, tmp_path: Path
) -> None:
    app = tm.App(spark, tmp_path)
    stream = app.stream(tm.sources.memory("at timestamp, v bigint"), event_time="at")

    def defined_and_run() -> None:
        define(app, stream)
        app.run(once=True)

    with pytest.raises(tm.DefinitionError, match=says):
        defined_and_run()
