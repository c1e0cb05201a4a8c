"""What does not go with results(early=True), and what the errors say to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import transom as tm
from transom.errors import DefinitionError


def minutes_of(app: tm.App, **timing: str) -> Any:
    rows = app.stream(tm.sources.memory("zone string, fare int, at timestamp"), event_time="at")
    return rows.group_by("zone").window("1 minute", **timing).agg(trips=tm.count())


def test_a_query_whose_results_are_all_final_has_none(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="no early results, each of its results is final") as refused:
        minutes_of(tm.App(spark, tmp_path)).results(early=True)
    assert 'window("1 minute", early="10 seconds")' in refused.value.remedy


def test_somebody_has_to_show_them(spark: SparkSession, tmp_path: Path) -> None:
    app = tm.App(spark, tmp_path)
    hours = minutes_of(app, early="1 second").results("minutes", early=True).window("1 hour")
    hours.agg(trips=tm.sum("trips")).to(tm.sinks.memory(), "hours")
    with pytest.raises(DefinitionError, match=r"'hours' reads early results of 'minutes', and shows none"):
        app.explain()


REFUSED: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "a key that changes": (lambda rows: rows.group_by("trips"), r"group_by uses more of it \(trips\)", "Group by keys"),
    "a computed key": (lambda rows: rows.group_by(many="trips > 3"), r"group_by .*trips > 3", "Group by keys"),
    "a condition": (lambda rows: rows.where("trips > 3").group_by("zone"), "where uses more", "tm.count"),
    "map": (
        lambda rows: rows.map(lambda df: df.where("trips > 3")).group_by("zone"),
        "map, lookup or select",
        "select",
    ),
}


@pytest.mark.parametrize("which", REFUSED)
def test_a_row_that_changes_must_not_move(spark: SparkSession, tmp_path: Path, which: str) -> None:
    app = tm.App(spark, tmp_path)
    grouped, said, remedy = REFUSED[which]
    rows = grouped(minutes_of(app, early="1 second").results("minutes", early=True))
    rows.window("1 hour", early="1 second").agg(n=tm.count()).to(tm.sinks.memory(), "hours")
    with pytest.raises(DefinitionError, match=f"'hours': it reads early results, which change; .*{said}") as refused:
        app.explain()
    assert remedy in refused.value.remedy


def test_rows_are_not_given_on(spark: SparkSession, tmp_path: Path) -> None:
    app = tm.App(spark, tmp_path)
    rows = minutes_of(app, early="1 second").results("minutes", early=True)
    rows.window("1 hour", early="1 second").agg(n=tm.count()).to(tm.sinks.memory(), "hours")
    rows.rows().to(tm.sinks.parquet(tmp_path / "out"), "rows")
    with pytest.raises(DefinitionError, match=r"'rows': it reads early results.*cannot be taken back") as refused:
        app.explain()
    assert "a sink of its own" in refused.value.remedy


def test_what_stays_may_be_used_and_explain_shows_it(spark: SparkSession, tmp_path: Path) -> None:
    app = tm.App(spark, tmp_path)
    minutes = minutes_of(app, early="1 second").rename(area="zone", until="window_end")
    rows = minutes.results("minutes", early=True)
    assert rows is minutes.results(early=True)
    kept = rows.where("area <> 'Soho'").group_by("area", hour="hour(until)")
    kept.window("1 day", early="1 second").agg(n=tm.count()).to(tm.sinks.memory(), "days")
    (stream,) = (s for s in app.explain().streams if s["name"] == "minutes.early")
    assert stream["source"] == "results of minutes, early ones too"
