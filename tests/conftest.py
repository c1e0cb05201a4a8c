"""One Spark session per test run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import rich.style  # noqa: F401  draws random numbers when it is first imported, which Hypothesis forbids its strategies
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ["tests.servers"]

settings.register_profile("fixed", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None)
settings.load_profile("fixed")  # another one by --hypothesis-profile, as in `make test-all`
TIMES = 10
"""How many times the examples the profile random draws."""

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
# Every test, and every process that one starts, has other queries: what the second compiler and parallel collection
# save, they do not earn back here. With one compiler alone Java would keep 48 MB of compiled code: full after some
# forty tests, and from then on code is thrown away and made again.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=400m")

# Programs that are tested must hear the signals that they are sent, also where this one was told to ignore some: SIGHUP
# by `nohup`, SIGINT by a shell that runs it in the background. Ignoring is inherited; an answer is not.
for _name in ("SIGINT", "SIGHUP"):
    if hasattr(signal, _name) and signal.getsignal(getattr(signal, _name)) is signal.SIG_IGN:
        signal.signal(getattr(signal, _name), lambda *_: None)


def pytest_addoption(parser: pytest.Parser) -> None:
    tiers = ["driver", "cluster"]
    parser.addoption("--compiled", action="store_true", help="let Spark compile queries, as it does for users")
    parser.addoption("--tier", choices=tiers, help="where the applications of tests/exact keep their partials")
    parser.addoption(
        "--lane", choices=["auto", "spark"], default="spark", help="how the applications of tests/exact make partials"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put tests that talk to a server first, so that one process has them all; let properties draw more examples.

    In the profile random each draws `TIMES` the examples that it asks for otherwise, but for slow tests: they ask for
    many already, often as the long form of another test.
    """
    items.sort(key=_server)
    if config.getoption("--hypothesis-profile") != "random":
        return
    functions = (item for item in items if isinstance(item, pytest.Function) and not item.get_closest_marker("slow"))
    drawn = [item for item in functions if getattr(item.obj, "is_hypothesis_test", False)]
    # Neither mark nor settings of a decorated function have a public name in all versions; Hypothesis' own plugin reads
    # these.
    functions = {(item.obj, "_hypothesis_internal_use_settings") for item in drawn if item.cls is None}
    machines = {(item.cls, "settings") for item in drawn if item.cls is not None}
    for owner, name in functions | machines:
        asked = getattr(owner, name)
        setattr(owner, name, settings(asked, max_examples=asked.max_examples * TIMES))


SERVERS = ("kafka", "postgres", "s3")
"""Fixtures that start a server for each process that asks, the dearest first."""


def _server(item: pytest.Item) -> int:
    """Return the place of the server that a test talks to, behind all of them for one that talks to none."""
    needed = {"kafka"} if item.get_closest_marker("kafka") else set(getattr(item, "fixturenames", ()))
    return next((place for place, name in enumerate(SERVERS) if name in needed), len(SERVERS))


def kafka_jars(request: pytest.FixtureRequest) -> Path | None:
    """Return the directory of Spark's Kafka jars, where a test of this run needs them and they can be had."""
    from tests.kafka import broker

    if not any(item.get_closest_marker("kafka") for item in request.session.items):
        return None
    try:
        return broker.jars("spark")
    except broker.MissingError:  # the fixture `kafka` says so
        return None


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[object]:
    from tests.interpreting import CONF

    from transom.engine.spark.session import session_builder

    builder = (
        session_builder(kafka=kafka_jars(request) or False)
        .master("local[2]")
        .appName("transom-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.ui.explainMode", "simple")  # of every job a description is made, also where nobody sees it
        .config("spark.driver.memory", "2g")
        .config("spark.driver.extraJavaOptions", "-Xms2g -Xmn700m")  # few collections: all that tests make is young
        .config("spark.driver.host", "127.0.0.1")
    )
    for name, value in ({} if request.config.getoption("--compiled") else CONF).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    _find_once(session.sparkContext._jvm, "py4j.reflection.TypeUtil")
    yield session
    session.stop()


def _find_once(jvm: Any, name: str) -> None:
    """Keep the packages of a class, and it: for each error PySpark asks for them fifty times, in all jars each time."""
    for part in name.split("."):
        found = getattr(jvm, part)
        setattr(jvm, part, found)
        jvm = found


@pytest.fixture(scope="session", autouse=True)
def nothing_waits_for_the_disk() -> Iterator[None]:
    """Let `os.fsync` only look whether the file is open: no test ends with a power cut, and each wait is milliseconds.

    Tests of what is made durable, and when, count or fail the calls; a process that is killed loses nothing that was
    written.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture(scope="session")
def interpreted(spark: SparkSession) -> SparkSession:
    """A session that compiles nothing, for tests with many different queries."""
    from tests.interpreting import interpreting

    return interpreting(spark)


def cached(spark: object) -> set[int]:
    """Return the numbers of what Spark keeps in its cache, -1 for DataFrames that wait to be read into it."""
    waiting = not spark._jsparkSession.sharedState().cacheManager().isEmpty()
    return {*spark.sparkContext._jsc.getPersistentRDDs().keySet(), *([-1] if waiting else [])}


@pytest.fixture(autouse=True)
def nothing_stays_cached(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test that has the session, Spark's cache holds no more than before, however the application ended."""
    spark = request.getfixturevalue("spark") if "spark" in request.fixturenames else None
    before = cached(spark) if spark is not None else set()
    yield
    assert spark is None or cached(spark) <= before


@pytest.fixture(scope="module")
def compiled_once() -> Iterator[None]:
    """Let applications with equal streams and queries remember what Spark made of them."""
    from tests.without_jobs import compile_once

    with pytest.MonkeyPatch.context() as patch:
        compile_once(patch)
        yield


@pytest.fixture
def in_memory(monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> None:
    """Let applications on memory sources run no Spark jobs: plans, loop, log, state and sinks are the real ones.

    With --tier cluster it does nothing, as only Spark has executors; nor with --lane auto, which needs no Spark jobs.
    """
    from tests.without_jobs import run_without_jobs

    if pytestconfig.getoption("--tier") != "cluster" and pytestconfig.getoption("--lane") != "auto":
        run_without_jobs(monkeypatch)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts file systems of a size such as "512k"; skips where that is not allowed."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root on Linux")
    points = []

    def mounted(size: str) -> Path:
        point = tmp_path / f"disk{len(points)}"
        point.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "transom-test", str(point)]
        if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
            pytest.skip("mounting is not allowed here")
        points.append(point)
        return point

    yield mounted
    for point in points:
        subprocess.run(["umount", "-l", str(point)], check=True)
