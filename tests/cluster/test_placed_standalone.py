"""On a standalone cluster of two workers with two executors each: where partitions of collections are, what is moved;
and an application that asks for executors, and gives them back."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.standalone import environment

pytestmark = pytest.mark.slow


def seen_of(name: str, directory: Path) -> dict[str, Any]:
    program = [sys.executable, str(Path(__file__).with_name("standalone_checks.py")), name, str(directory)]
    done = subprocess.run(program, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_an_application_has_as_many_executors_as_it_asks_for_though_the_cluster_gives_all(tmp_path: Path) -> None:
    found = seen_of("growing", tmp_path)
    assert len(found["there"]) == 4, "as a standalone cluster does not know spark.executor.instances"
    assert found["began"] in found["there"]
    assert len(found["grown"]) == 3
    assert len(found["groups"]) == 3, "the new ones have groups"
    assert len(found["left"]) == 2
    assert found["killed"] not in found["left"], "another one came in its place"
    assert found["emptied"]
    assert found["same"]
    assert len(found["ended"]) == 1


def test_a_lost_worker_costs_what_was_there_and_another_one_takes_its_share(tmp_path: Path) -> None:
    pytest.importorskip("networkx")
    seen = seen_of("collections", tmp_path)
    steps = seen["steps"]
    for step in steps:
        assert step["alike"], "corresponding partitions of all datasets are at the same executor"
        assert step["alive"]
        assert step["files"]
    assert all(before["found"] == after["found"] for before, after in pairwise(steps))
    begun, smaller, again, larger, settled = steps
    # Each executor has as many partitions.
    assert sorted(Counter(begun["executors"]).values()) == [3] * 4
    assert Counter(begun["workers"]) == {"worker-0": 6, "worker-1": 6}
    assert sorted(Counter(smaller["executors"]).values()) == [6] * 2
    assert Counter(smaller["workers"]) == {"worker-1": 12}
    assert Counter(larger["workers"]) == {"worker-1": 6, "worker-2": 6}
    # Only adding exchanges bytes; then only what has to move.
    assert seen["derived"] == begun["exchanged"] == again["exchanged"] == settled["exchanged"] == 0
    assert 0 < smaller["exchanged"] < seen["added"]
    assert larger["exchanged"] > 0
