"""Jars that tests need and no Python package brings: from Maven once per user, kept in the user's cache."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "transom"
_ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


class MissingError(Exception):
    """What the tests need is not there and cannot be fetched; the text says why."""


def artifact(name: str, *, alone: bool = False) -> str:
    """Return an artifact, named as group:artifact:version, as Maven wants it in a list; alone or with what it needs."""
    group, artifact_, version = name.split(":")
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact_}</artifactId><version>{version}</version>"
        f"<scope>runtime</scope>{_ALONE if alone else ''}</dependency>"
    )


def jars(name: str, artifacts: Iterable[str]) -> Path:
    """Return the directory of some jars, which are fetched if it is not there.

    Args:
        name: Of the directory, with the version: it is never fetched again.
        artifacts: What `artifact` returns.

    Raises:
        MissingError: They cannot be fetched.
    """
    found = CACHE / name
    found.parent.mkdir(parents=True, exist_ok=True)
    with found.with_name(f"{found.name}.lock").open("w") as lock:  # of several processes one fetches them
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.is_dir():
            _fetch(artifacts, found)
    return found


def _fetch(artifacts: Iterable[str], target: Path) -> None:
    if shutil.which("mvn") is None:
        raise MissingError(f"Maven (mvn) is not installed, which fetches {target.name}")
    work, partial = target.with_name(f"{target.name}.work"), target.with_name(f"{target.name}.part")
    for each in (work, partial):
        shutil.rmtree(each, ignore_errors=True)
    work.mkdir()
    (work / "pom.xml").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>tests</groupId>'
        f"<artifactId>jars</artifactId><version>1</version><dependencies>{''.join(artifacts)}</dependencies></project>"
    )
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
    done = subprocess.run(
        [*command, f"-DoutputDirectory={partial}"], cwd=work, capture_output=True, text=True, timeout=600, check=False
    )
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines() or ["it said nothing"]
        raise MissingError(f"Maven cannot fetch {target.name}: {said[0]}")
    shutil.rmtree(work)
    partial.rename(target)
