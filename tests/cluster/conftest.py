"""One cluster for all tests here that run by default, and one for those that are slow: processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def together() -> dict[str, Any]:
    """What was seen on a cluster of three executors with one core each, of which one was killed."""
    return dict(_seen("together")["together"])


@pytest.fixture(scope="session")
def seen() -> dict[str, Any]:
    """What each of the longer checks saw on such a cluster."""
    return _seen("placement", "moving", "migrating", "killed", "copies", "elastic")


def _seen(*names: str) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("cluster_checks.py")), *names],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))
