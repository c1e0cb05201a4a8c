"""Commands that change the queries of an application which really runs, here or in another process."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import threading
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from transom.cli.loading import load
from transom.cli.main import cli

RATE = 200
JOB = f"""
checkpoint = "ckpt"

[source]
name = "clicks"
rows_per_second = {RATE}
event_time = "at"
watermark = "0 seconds"

[source.generator]
at = "event_time"
page = "cast(id % 4 as string)"

[[query]]
name = "pages"
group_by = ["page"]
windows = ["1 second", "20 seconds"]
aggregates = ["count(*) as n"]
sink = {{json = "out/pages"}}

[[query]]
name = "rest"
windows = ["1 second"]
aggregates = ["count(*) as n"]
sink = {{json = "out/rest"}}
"""
LATER = """
[[query]]
name = "all"
windows = ["2 seconds"]
aggregates = ["count(*) as n"]
sink = {json = "out/all"}

[[query]]
name = "wrong"
windows = ["2 seconds"]
aggregates = ["sum(nothing) as n"]
sink = {json = "out/wrong"}
"""


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "job.toml").write_text(JOB)

    def invoke(*arguments, fails=False):
        done = CliRunner().invoke(cli, [str(argument) for argument in arguments])
        assert done.exit_code == (1 if fails else 0), done.output
        return " ".join((done.stderr if fails else done.stdout).split())

    return invoke


class Application:
    """The job, running."""

    def __init__(self):
        self.said = threading.Event()
        """Set when it has said what it did."""

    def until(self, holds):
        """Look whenever it has said something, until something holds or it has ended."""
        while not self.ended and not holds():
            assert self.said.wait(600)
            self.said.clear()


class Here(Application):
    """Run by another thread."""

    def __init__(self, spark):
        super().__init__()
        self._run = load(Path("job.toml"), None)(spark).start(on_progress=lambda progress: self.said.set())
        self.until(lambda: sum(query.windows for query in self._run.progress.queries[:1]) > 1)

    @property
    def ended(self):
        return self._run.done

    def end(self):
        self._run.stop()
        self._run.wait()


class Process(Application):
    """Run by the command."""

    def __init__(self, spark):
        super().__init__()
        command = [sys.executable, "-c", "from transom.cli import main; main()", "run", "job.toml", "--json"]
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self._process = subprocess.Popen([*command, "--master", "local[1]"], **options)
        for line in self._process.stdout:
            if json.loads(line)["queries"][0]["windows"] > 1:
                break
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for _ in self._process.stdout:
            self.said.set()
        self._process.wait()
        self.said.set()

    @property
    def ended(self):
        return self._process.poll() is not None

    def end(self):
        self._process.send_signal(signal.SIGINT)
        said = self._process.stderr.read()
        assert self._process.wait(600) == 0
        assert said == "Starting Spark ...\n", "the first Ctrl-C ends it in order"
        self._reader.join()
        self._process.communicate()


@pytest.fixture(params=[Here, pytest.param(Process, marks=pytest.mark.slow)], ids=["here", "process"])
def application(request, invoke, spark):
    """The job, running; its first windows are written."""
    made = request.param(spark)
    yield made
    if not made.ended:
        made.end()


def windows(directory, width):
    """Return the number of rows by start of the windows of one width in seconds."""
    found = {}
    for path in directory.glob("part-*.json"):
        for row in map(json.loads, path.read_text().splitlines()):
            start, end = (
                datetime.fromisoformat(row[f"window_{edge}"].replace("Z", "+00:00")) for edge in ("start", "end")
            )
            if end - start == timedelta(seconds=width):
                found[start] = found.get(start, 0) + row["n"]
    return found


def consecutive(found, width):
    starts = sorted(found)
    return [b - a for a, b in itertools.pairwise(starts)] == [timedelta(seconds=width)] * (len(starts) - 1)


def test_queries_come_rest_and_go(invoke, application, tmp_path):
    listed = json.loads(invoke("queries", "job.toml", "--json"))
    assert listed["application_runs"] is True
    assert [(q["name"], q["state"], q["complete_from"]) for q in listed["queries"]] == [
        ("pages", "running", None),
        ("rest", "running", None),
    ]
    assert "no query 'nobody'" in invoke("pause", "ckpt", "nobody", fails=True)
    assert "'rest' is not paused" in invoke("resume", "ckpt", "rest", fails=True)
    assert invoke("pause", "job.toml", "rest") == "rest was paused."
    assert "paused" in invoke("queries", "ckpt")

    assert "has all queries of the job" in invoke("add", "job.toml")
    (tmp_path / "job.toml").write_text(JOB + LATER)
    assert "has no query 'some'" in invoke("add", "job.toml", "some", fails=True)
    (tmp_path / "other.toml").write_text(JOB + LATER)
    assert "was started from" in invoke("add", "other.toml", fails=True)
    assert "nothing" in invoke("add", "job.toml", "wrong", fails=True)
    assert "there are two queries 'pages'" in invoke("add", "job.toml", "pages", fails=True)
    (added,) = json.loads(invoke("add", "job.toml", "all", "--json"))["changes"]
    assert added["error"] is None
    assert invoke("resume", "ckpt", "rest").startswith("rest was resumed; its windows are complete from 2")
    assert invoke("remove", "ckpt", "pages") == "pages was removed."
    assert "removed" in invoke("queries", "ckpt")
    paused_at = max(windows(tmp_path / "out" / "rest", 1))
    application.until(
        lambda: (
            len(windows(tmp_path / "out" / "all", 2)) >= 2 and max(windows(tmp_path / "out" / "rest", 1)) > paused_at
        )
    )
    application.end()
    assert "No application runs on the checkpoint" in invoke("resume", "ckpt", "rest", fails=True)
    listed = json.loads(invoke("queries", "ckpt", "--json"))
    assert listed["application_runs"] is False
    assert [(q["name"], q["state"]) for q in listed["queries"]] == [("rest", "running"), ("all", "running")]

    everything = windows(tmp_path / "out" / "all", 2)
    assert set(everything.values()) == {2 * RATE}
    assert consecutive(everything, 2)
    # `pages` kept the panes of its 20 seconds, or had dropped none (None): whole ones, where a start without history is
    # just after a row.
    assert (added["complete_from"] or 0) % 1_000_000 == 0
    resting = windows(tmp_path / "out" / "rest", 1)
    assert not consecutive(resting, 1)
    assert {n for _, n in sorted(resting.items())[1:]} == {RATE}
