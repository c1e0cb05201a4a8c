"""Servers that tests talk to: one of each for a run, begun when a test asks for it and ended with the tests.

A test is skipped where its server cannot be had; the reason says what is missing. All end also when tests are killed.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fetching import MissingError

from transom.storage.places import ObjectPath

_numbers = itertools.count(1)
SECRET = "a-secret-that-nobody-may-print"
SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""
"""Says its port, and ends with the tests, however they end: with its input."""


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
    if importlib.util.find_spec("moto") is None or importlib.util.find_spec("obstore") is None:
        pytest.skip("moto and obstore are not installed")
    log = (tmp_path_factory.mktemp("moto") / "log").open("wb")
    server = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
    )
    assert server.stdin is not None
    assert server.stdout is not None
    port = server.stdout.readline().decode().strip()
    assert port, Path(log.name).read_text()
    address = f"http://127.0.0.1:{port}"
    told = {
        "AWS_ENDPOINT_URL": address,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in told.items():
            patch.setenv(name, value)
        put = urllib.request.Request(f"{address}/transom", data=b"", method="PUT")
        put.add_header("Authorization", "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request")
        urllib.request.urlopen(put).close()
        yield address
    server.stdin.close()
    server.wait()
    server.stdout.close()
    log.close()


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of a small HDFS; for slow tests."""
    if importlib.util.find_spec("hdfs_native") is None:
        pytest.skip("hdfs-native is not installed")
    from tests.storage.hdfs import Cluster

    try:
        cluster = Cluster(tmp_path_factory.mktemp("hdfs"))
    except MissingError as error:
        pytest.skip(str(error))
    try:
        yield cluster.url
    finally:
        cluster.end()


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of a container of Azure's emulator; the environment says where that is. For slow tests."""
    if importlib.util.find_spec("obstore") is None:
        pytest.skip("obstore is not installed")
    from tests.storage.azurite import ACCOUNT, Azurite

    try:
        server = Azurite(tmp_path_factory.mktemp("azurite"))
    except MissingError as error:
        pytest.skip(str(error))
    told = {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": server.url, "AZURE_ALLOW_HTTP": "true"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in told.items():
            patch.setenv(name, value)
        server.create("transom")
        yield f"abfs://transom@{ACCOUNT}.dfs.core.windows.net"
    server.end()


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
    return lambda: ObjectPath("s3://transom", f"folder-{os.getpid()}-{next(_numbers)}")
