"""Killed at any step, and started again: the sinks hold what an uninterrupted run gives, no more and no less.

Most kills here are an exception that nothing handles, and what needs Spark is done once for all runs: queries are
compiled, the job of a cut runs, and its dead letters are written. Some kills are real.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import faults_app
import pytest
from faults_app import STEPS, Killed, at_step, dead_letters, make_app, results, write_input
from tests.without_jobs import ask_once


def kill_at(spark, root, step, number):
    """Run until the occurrence of the step; return whether the run was killed."""

    def kill():
        raise Killed

    app = make_app(spark, root)
    app._on_step = at_step(step, number, kill)
    try:
        app.run(once=True, close_all=True)
    except Killed:
        return True
    return False


SOON = ("job done", "committed")
"""Steps at which every occurrence is tried in each run of the tests; at the others in the long one."""


@pytest.fixture(scope="module", autouse=True)
def spark_is_asked_once():
    with pytest.MonkeyPatch.context() as patch:
        ask_once(patch)
        yield


def outcome(root):
    return results(root), dead_letters(root)


@pytest.fixture(scope="module")
def whole(spark, tmp_path_factory):
    """Results and dead letters of an uninterrupted run, and how often each step occurs in it."""
    root = tmp_path_factory.mktemp("whole")
    write_input(root / "in")
    steps = Counter()
    app = make_app(spark, root)
    app._on_step = lambda step: steps.update([step])
    progress = app.run(once=True, close_all=True)
    assert set(steps) == set(STEPS)
    assert sum(query.late_rows for query in progress.queries) > 0
    assert steps["after snapshot"] >= 3, steps
    found = results(root)
    assert set(found) == {"fares", "ranks", "total"}
    assert len(dead_letters(root)) == 3
    return outcome(root), steps


@pytest.mark.parametrize(
    "step", [step if step in SOON else pytest.param(step, marks=pytest.mark.slow) for step in STEPS]
)
def test_every_occurrence_of_a_step(spark, tmp_path, whole, step):
    """One checkpoint is killed again and again: at the second occurrence in each run, which always gets further."""
    write_input(tmp_path / "in")
    kills = 0
    while kill_at(spark, tmp_path, step, 2):
        kills += 1
        assert kills < 40
    assert kills >= 1
    assert outcome(tmp_path) == whole[0]


def test_the_first_of_anything_and_then_of_everything(spark, tmp_path, whole):
    """Kills come ever later: after 1 step, then after 2 more, and so on; each run recovers from the one before."""
    write_input(tmp_path / "in")
    number = 1
    while kill_at(spark, tmp_path, "any", number):
        number += 1
    assert number > 5
    assert outcome(tmp_path) == whole[0]


@pytest.mark.slow
def test_each_occurrence_alone(spark, tmp_path, whole):
    expected, steps = whole
    for step in STEPS:
        for number in range(1, steps[step] + 1):
            root = tmp_path / f"{step}-{number}"
            write_input(root / "in")
            kill_at(spark, root, step, number)
            assert not kill_at(spark, root, "none", 1)
            assert outcome(root) == expected, (step, number)
            shutil.rmtree(root)


def run_script(root: Path, step: str, number: int) -> int:
    command = [sys.executable, faults_app.__file__, str(root), step, str(number)]
    return subprocess.run(command, capture_output=True, timeout=600, check=False).returncode


@pytest.mark.slow
@pytest.mark.parametrize("step, number", [("sink", 4), ("delivered", 3)])
def test_real_kill(spark, tmp_path, whole, step, number):
    write_input(tmp_path / "in")
    assert run_script(tmp_path, step, number) == -signal.SIGKILL
    # Another sink may be in the middle of a write whenever the process dies.
    assert step != "sink" or list((tmp_path / "out").glob("*/.part-*.tmp"))
    assert not kill_at(spark, tmp_path, "none", 1)
    assert outcome(tmp_path) == whole[0]
    assert not list((tmp_path / "out").glob("*/.part-*.tmp"))


@pytest.mark.slow
@pytest.mark.parametrize("step, number", [(s, n) for s in [*STEPS, "sink", "named"] for n in (1, 2, 4)])
def test_real_kill_everywhere(spark, tmp_path, whole, step, number):
    write_input(tmp_path / "in")
    assert run_script(tmp_path, step, number) in (-signal.SIGKILL, 0)
    assert not kill_at(spark, tmp_path, "none", 1)
    assert outcome(tmp_path) == whole[0]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_real_kill_at_a_random_moment(spark, tmp_path, whole, seed):
    write_input(tmp_path / "in")
    command = [sys.executable, faults_app.__file__, str(tmp_path), "none", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout.readline() == b"ready\n"
        try:
            process.wait(random.Random(seed).uniform(1, 8))
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
    assert not kill_at(spark, tmp_path, "none", 1)
    assert outcome(tmp_path) == whole[0]
