"""Ctrl-C: the first one finishes the micro-batch, the second stops at once; both are followed by exact results.

What the command says and returns after the first one: `test_queries_come_rest_and_go`.
"""

from __future__ import annotations

import collections
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import interrupted_job
import pytest

STARTING = "Starting Spark ...\n"


def expected():
    """The results by plain arithmetic."""
    sums = collections.defaultdict(lambda: [0, 0])
    for i in range(interrupted_job.ROWS):
        at = i * 1_000_000 // interrupted_job.RATE
        for length, slide in ((2_000_000, 2_000_000), (6_000_000, 3_000_000)):
            offset = -interrupted_job.START % slide
            start = at - (at - offset) % slide
            while start > at - length:
                entry = sums[start, start + length, i % 3]
                entry[0] += 1
                entry[1] += i
                start -= slide
    return sorted((*key, *value) for key, value in sums.items())


def found(out: Path):
    from datetime import datetime

    def micros(text):
        return round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1e6) - interrupted_job.START

    rows = [json.loads(line) for path in out.glob("part-*") for line in path.read_text().splitlines()]
    return sorted(
        (micros(row["window_start"]), micros(row["window_end"]), row["key"], row["n"], row["total"]) for row in rows
    )


def finish(spark, tmp_path):
    progress = interrupted_job.build(spark, tmp_path / "checkpoint").run(once=True, close_all=True)
    assert found(tmp_path / "out") == expected()
    return progress


@pytest.mark.parametrize(
    "step",
    ["cut logged", *(pytest.param(step, marks=pytest.mark.slow) for step in ("job done", "committed", "delivered"))],
)
def test_the_first_interrupt_finishes_the_micro_batch(spark, tmp_path, step):
    app = interrupted_job.build(spark, tmp_path / "checkpoint")
    steps = []

    def on_step(name):
        steps.append(name)
        if name == step and steps.count(step) == 2:
            os.kill(os.getpid(), signal.SIGINT)

    app._on_step = on_step
    before = signal.getsignal(signal.SIGINT)
    progress = app.run()
    assert progress.stopping
    assert steps.count("cut logged") == steps.count("committed")
    assert steps[-1] == "after snapshot"
    assert signal.getsignal(signal.SIGINT) is before
    cuts = progress.streams[0].cuts
    assert 0 < cuts < 6
    assert finish(spark, tmp_path).streams[0].rows == interrupted_job.ROWS - progress.streams[0].rows


def start(tmp_path, start_new_session=False, **environment):
    """Start `transom run`; return the process."""
    command = [sys.executable, "-c", "from transom.cli import main; main()", "run", interrupted_job.__file__]
    return subprocess.Popen(
        [*command, "--checkpoint", str(tmp_path / "checkpoint"), "--master", "local[2]"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=start_new_session,
        env={**os.environ, "STEPS": "1", **environment},
    )


def wait_for(process, step, number):
    for line in process.stderr:
        assert line.startswith("step: ") or line == STARTING, line
        number -= line == f"step: {step}\n"
        if number == 0:
            return
    raise AssertionError("it ended too early")


@pytest.mark.slow
def test_a_second_interrupt_stops_at_once(spark, tmp_path):
    with start(tmp_path, DELAY_MS="10000") as process:
        wait_for(process, "committed", 2)
        wait_for(process, "cut logged", 1)
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):  # the job of the third cut takes more than an hour
            process.wait(0.3)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=600)
    said = [line for line in errors.splitlines() if not line.startswith("step: ")]
    assert said == ["Stopped at once; the next run goes on from the last committed micro-batch."]
    assert "Traceback" not in out
    assert process.returncode == 130
    finish(spark, tmp_path)
