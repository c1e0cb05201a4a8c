"""Servers that tests talk to: one of each for a run, begun when a test asks for it and ended with the tests.

A test is skipped where its server cannot be had; the reason says what is missing. All end also when tests are killed.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from tests.fetching import MissingError
from tests.storage.moto_server import BUCKET, s3_server, why_not

from transom.storage.places import ObjectPath

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A broker of Kafka."""
    from tests.kafka import broker

    pytest.importorskip("confluent_kafka")
    try:
        broker.jars("spark")
        with broker.running(tmp_path_factory.mktemp("kafka")) as one:
            yield one
    except MissingError as missing:
        pytest.skip(f"no Kafka: {missing}")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Any]:
    """A PostgreSQL."""
    from tests.sinks.postgres_server import postgres_server, why_not

    if why := why_not():
        pytest.skip(why)
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the server; the environment says where it is."""
    if why := why_not():
        pytest.skip(why)
    with _told(s3_server(tmp_path_factory.mktemp("moto") / "log")) as told:
        yield told["AWS_ENDPOINT_URL"]


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of a small HDFS; for slow tests."""
    if importlib.util.find_spec("hdfs_native") is None:
        pytest.skip("hdfs-native is not installed")
    from tests.storage.hdfs import hdfs_server

    try:
        with hdfs_server(tmp_path_factory.mktemp("hdfs")) as url:
            yield url
    except MissingError as missing:
        pytest.skip(f"no HDFS: {missing}")


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of a container of Azure's emulator; the environment says where that is. For slow tests."""
    if importlib.util.find_spec("obstore") is None:
        pytest.skip("obstore is not installed")
    from tests.storage.azurite import ACCOUNT, azure_server

    try:
        with _told(azure_server(tmp_path_factory.mktemp("azurite"), "transom")):
            yield f"abfs://transom@{ACCOUNT}.dfs.core.windows.net"
    except MissingError as missing:
        pytest.skip(f"no Azure: {missing}")


@contextmanager
def _told(server: AbstractContextManager[Mapping[str, str]]) -> Iterator[Mapping[str, str]]:
    """Run a server, and let the environment say where it is."""
    with pytest.MonkeyPatch.context() as patch, server as told:
        for name, value in told.items():
            patch.setenv(name, value)
        yield told


@pytest.fixture
def azure_place(azure: str) -> Callable[[], ObjectPath]:
    """Make a new folder in Azure's emulator."""
    return lambda: ObjectPath(azure, f"folder-{next(_numbers)}")


@pytest.fixture
def hdfs_place(hdfs: str) -> Callable[[], ObjectPath]:
    """Make a new folder in the small HDFS."""
    return lambda: ObjectPath(hdfs, f"tests/folder-{next(_numbers)}")


@pytest.fixture
def s3_place(s3: str) -> Callable[[], ObjectPath]:
    """Make a new folder in the bucket of the server."""
    return lambda: ObjectPath(BUCKET, f"folder-{os.getpid()}-{next(_numbers)}")
