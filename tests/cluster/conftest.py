"""One cluster for all tests here that run by default, and one for those that are slow: processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


class Checks:
    """A process that makes some checks on a cluster."""

    def __init__(self, *names: str) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        program = str(Path(__file__).with_name("cluster_checks.py"))
        self._process = subprocess.Popen(
            [sys.executable, program, *names],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def seen(self) -> dict[str, Any]:
        """Wait for what the checks saw; pytest-timeout says for how long."""
        try:
            out, errors = self._process.communicate()
        finally:
            self.end()
        assert self._process.returncode == 0, errors[-4000:]
        return dict(json.loads(out.splitlines()[-1]))

    def end(self) -> None:
        """End it, if nobody waited for it."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


TOGETHER = pytest.StashKey[Checks]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin with the check that takes longest of all, and mostly waits for its executors, beside the first tests."""
    wanted = any("together" in getattr(item, "fixturenames", ()) for item in session.items)
    one_of_several = "PYTEST_XDIST_WORKER" in os.environ  # of whom only one needs it; the others go on meanwhile
    if wanted and not session.config.option.collectonly and not one_of_several:
        session.config.stash[TOGETHER] = Checks("together")


def pytest_unconfigure(config: pytest.Config) -> None:
    if (checks := config.stash.get(TOGETHER, None)) is not None:
        checks.end()


@pytest.fixture(scope="session")
def together(pytestconfig: pytest.Config) -> dict[str, Any]:
    """What was seen on a cluster of three executors with one core each, of which one was killed."""
    if TOGETHER not in pytestconfig.stash:
        pytestconfig.stash[TOGETHER] = Checks("together")
    return dict(pytestconfig.stash[TOGETHER].seen()["together"])


@pytest.fixture(scope="session")
def seen() -> dict[str, Any]:
    """What each of the longer checks saw on such a cluster."""
    return Checks("placement", "moving", "migrating", "killed", "copies", "elastic").seen()


@pytest.fixture(scope="session")
def grown() -> dict[str, Any]:
    """What was seen of an application that asks for executors of such a cluster, and gives them back."""
    return dict(Checks("growing").seen()["growing"])


@pytest.fixture(scope="session")
def kills() -> dict[str, Any]:
    """What was seen while executors of such a cluster were killed again and again."""
    return Checks("collection_kills", "window_kills").seen()
