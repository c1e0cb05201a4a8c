"""What tests need and no Python package brings: from Maven or npm once per user, kept in the user's cache."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
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
    return _fetched(name, lambda work, partial: _from_maven(artifacts, work, partial))


def node_package(name: str, version: str) -> Path:
    """Return the directory of a package of npm, with what it needs; it is fetched if it is not there.

    Raises:
        MissingError: It cannot be fetched.
    """

    def fetch(work: Path, partial: Path) -> None:
        command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(work), f"{name}@{version}"]
        _run("npm", command, work)
        partial.mkdir()
        (work / "node_modules").rename(partial / "node_modules")

    return _fetched(f"{name}-{version}", fetch) / "node_modules" / name


def _fetched(name: str, fetch: Callable[[Path, Path], None]) -> Path:
    """Return a directory of the cache; where it is not there, it is what `fetch` leaves, given where to work."""
    found = CACHE / name
    found.parent.mkdir(parents=True, exist_ok=True)
    with found.with_name(f"{found.name}.lock").open("w") as lock:  # of several processes one fetches it
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.is_dir():
            work, partial = found.with_name(f"{found.name}.work"), found.with_name(f"{found.name}.part")
            for each in (work, partial):
                shutil.rmtree(each, ignore_errors=True)
            work.mkdir()
            fetch(work, partial)
            shutil.rmtree(work)
            partial.rename(found)
    return found


def _from_maven(artifacts: Iterable[str], work: Path, partial: Path) -> None:
    (work / "pom.xml").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>tests</groupId>'
        f"<artifactId>jars</artifactId><version>1</version><dependencies>{''.join(artifacts)}</dependencies></project>"
    )
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
    _run("mvn", [*command, f"-DoutputDirectory={partial}"], work)


def _run(program: str, command: list[str], work: Path) -> None:
    if shutil.which(program) is None:
        raise MissingError(f"{program} is not installed, which fetches {work.stem}")
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines() or ["it said nothing"]
        raise MissingError(f"{program} cannot fetch {work.stem}: {said[0]}")
