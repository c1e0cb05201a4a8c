"""A profile of a job that runs on Spark, and a plan by it."""

from __future__ import annotations

import itertools
import json
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import transom as tm
from transom.api.app import App
from transom.api.profiling import Profiler
from transom.cli.loading import load
from transom.cli.main import cli
from transom.cli.profiling import here
from transom.engine.control.nature import nature
from transom.engine.control.phases import PhaseRecorder
from transom.errors import DefinitionError
from transom.jobs.digest import job_digest
from transom.model.phases import Phase
from transom.model.tuning import StreamTuning, Tuning

JOB = """
from datetime import datetime, timedelta
from pathlib import Path

import transom as tm

HERE = Path(__file__).parent


def build(spark):
    source = tm.sources.memory("page string, at timestamp")
    noon = datetime(2026, 3, 1, 12)
    source.add([("abcdefgh"[i % 8], noon + timedelta(seconds=i)) for i in range(2_000)])
    app = tm.App(spark, checkpoint=HERE / "ckpt")
    clicks = app.stream(source, event_time="at", name="clicks")
    pages = clicks.group_by("page").window("10 seconds").agg(n=tm.count()).within("2 seconds")
    pages.to(tm.sinks.parquet(HERE / "out"), name="pages")
    return app
"""


@pytest.mark.slow  # seconds are what it takes
@pytest.mark.parametrize("setting", ['lane="spark"', 'lane="auto"', 'tier="cluster"'])
def test_a_profile_is_made_into_no_sink_and_a_plan_by_it(spark: SparkSession, tmp_path: Path, setting: str) -> None:
    job, where = tmp_path / "job.py", tmp_path / "job.profile.json"
    job.write_text(JOB.replace('"ckpt"', f'"ckpt", {setting}'))
    build = load(job, tmp_path / "aside", aside=True)
    made = Profiler(lambda: build(spark), 14.0).run(spark, job_digest(job), here())
    assert {each.name for each in tmp_path.iterdir()} <= {"job.py", "__pycache__"}
    clicks = made.streams["clicks"]
    assert (clicks.closing, clicks.limit, clicks.after) == (10.0, 2.0, None)
    assert clicks.results == pytest.approx(8.0)
    assert clicks.cost(Phase.MAP).fixed > 0
    assert clicks.cost(Phase.PLAN).fixed > 0
    where.write_text(made.to_json())
    options = ["--profile", str(where), "--rate", "50", "--within", "1 minute", "--quantile", "0.9", "--json"]
    shown = CliRunner().invoke(cli, ["plan", str(job), *options])
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.stdout)["latencies"]["clicks"] < 60


@pytest.mark.slow  # so many cuts are needed until an application knows itself
def test_an_application_tells_what_it_expects_and_what_it_has_learned_outlasts_the_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = tm.sources.memory("page string, at timestamp")
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    source.add([("abcdefgh"[i % 8], noon + timedelta(seconds=i)) for i in range(12 * 40 + 16 * 10)])

    def app() -> App:
        made = App(spark, tmp_path / "checkpoint", max_rows_per_cut=40)
        made._phases = lambda: PhaseRecorder(every=1)
        clicks = made.stream(source, event_time="at", name="clicks")
        clicks.group_by("page").window("10 seconds").agg(n=tm.count()).to(tm.sinks.memory(), name="pages")
        return made

    def shorter(step: str) -> None:
        if step == "cut logged" and next(cuts) == 11:
            smaller = Tuning(2, {"clicks": StreamTuning(rows_per_cut=10)})
            first._queries.requests.tune(smaller, "a test")

    first, cuts = app(), itertools.count()
    first._on_step = shorter
    first.run(once=True)
    ask = ["plan", str(tmp_path / "checkpoint"), "--json"]
    goes_on = threading.Event()
    with app().start(on_progress=lambda progress: goes_on.set()):
        goes_on.wait()
        told = json.loads(CliRunner().invoke(cli, ask).stdout)
        shown = CliRunner().invoke(cli, [*ask, "--rate", "50", "--within", "1 minute"])
    clicks = told["streams"]["clicks"]
    assert clicks["unknown"] is None
    assert clicks["expected"]["phases"]["plan"] > 0
    assert told["profile"]["streams"]["clicks"]["closing"] == 10.0
    (change,) = told["changes"]
    assert (change["reason"], change["changes"]) == ("a test", ["clicks: rows_per_cut 40 -> 10"])
    assert change["at"] > 0
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.stdout)["latencies"]["clicks"] < 60


def test_what_the_job_says_of_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    app = App(spark, tmp_path / "checkpoint")
    clicks = app.stream(tm.sources.memory("k string, at timestamp"), event_time="at", name="clicks")
    short = clicks.group_by("k").window("1 second", tm.sliding("10 seconds", every="5 seconds")).agg(n=tm.count())
    short.within("3 seconds").to(tm.sinks.memory(), name="short")
    clicks.group_by("k").window(tm.calendar("day")).agg(n=tm.count()).within("1 minute").to(tm.sinks.memory(), "day")
    short.results().group_by("k").window("1 minute").agg(n=tm.sum("n")).to(tm.sinks.memory(), name="more")
    first, second = (nature(each, 50_000) for each in app._definitions())
    assert (first.closing, first.look, first.limit, first.after) == (1.0, 0.05, 3.0, None)
    # `short` is two queries: one with a limit, and the one that is read, without.
    assert first.windows == pytest.approx(2 * (1 + 1 / 5) + 1 / 86_400)
    assert (second.closing, second.limit, second.after) == (60.0, None, "clicks")


def test_a_job_that_writes_rows_as_files_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    def build() -> App:
        app = App(spark, tmp_path / "checkpoint")
        source = tm.sources.memory("k string, at timestamp")
        source.add([("a", datetime(2026, 3, 1, tzinfo=UTC))])
        app.stream(source, event_time="at").rows().to(tm.sinks.parquet(tmp_path / "rows"), name="rows")
        return app

    with pytest.raises(DefinitionError, match="'rows' writes rows as files"):
        Profiler(build, 7.0).run(spark, "", {})
    assert not (tmp_path / "rows").exists()
