"""Executors that each have a network of their own on this machine: one namespace each, links with a given rate.

A standalone Spark master and one worker for each executor. Every namespace hangs on a bridge by a pair of virtual
interfaces, whose two ends carry an HTB class with the rate of the link: one for what the executor sends, one for what
it gets. The driver is on the bridge. Needs root and the programs `ip` and `tc`; there is no delay and no loss.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

from benchmarks.namespaces import Namespace, Network, call, network

MEGABITS = 1_000
"""Of a link, per second, each way."""
PATIENCE_SECONDS = 30


@dataclass(frozen=True)
class Cluster:
    """A standalone cluster whose executors have their own links."""

    master: str
    """URL."""
    driver: str
    """Address that the driver has to use."""


@contextmanager
def linked_cluster(executors: int, megabytes: int, megabits: int = MEGABITS) -> Iterator[Cluster]:
    """Start a master and one worker of one core in each of so many namespaces; all is gone afterwards.

    Args:
        executors: How many.
        megabytes: Memory that a worker gives to executors.
        megabits: Rate of each link each way, per second.

    Raises:
        subprocess.CalledProcessError: The system refuses a namespace or a link.
        TimeoutError: The master does not come up.
    """
    with network() as net, tempfile.TemporaryDirectory(prefix="transom-linked-") as work:
        spaces = [net.namespace(number) for number in range(executors)]
        for space in spaces:
            _shape(space, megabits)
        port = _free_port(net.host)
        _start(net, Path(work), "master", ["Master", "--host", net.host, "--port", str(port)])
        _wait_for(net.host, port)
        master = f"spark://{net.host}:{port}"
        for space in spaces:
            memory = ["--cores", "1", "--memory", f"{megabytes}m", "--work-dir", f"{work}/{space.name}"]
            _start(net, Path(work), space.name, ["Worker", "--host", space.address, *memory, master], space)
        yield Cluster(master, net.host)


def _shape(space: Namespace, megabits: int) -> None:
    """Let both ends of a namespace's link send at most at a rate."""
    for run, device in ((call, space.outside), (space.call, "eth0")):
        run(*f"tc qdisc add dev {device} root handle 1: htb default 1".split())
        run(*f"tc class add dev {device} parent 1: classid 1:1 htb rate {megabits}mbit".split())


def _start(net: Network, work: Path, name: str, words: list[str], inside: Namespace | None = None) -> None:
    """Start a part of the cluster."""
    home = _find_spark_home()
    kind, *options = words
    command = [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{kind.lower()}.{kind}", *options]
    paths = [str(Path(path).absolute()) for path in sys.path if path] + [str(Path.cwd())]
    environment = {
        "SPARK_HOME": home,
        "SPARK_LOCAL_IP": net.host if inside is None else inside.address,
        "SPARK_DAEMON_MEMORY": "256m",
        "PYTHONPATH": os.pathsep.join(paths),
        "SPARK_WORKER_WEBUI_PORT": "0",
        "SPARK_MASTER_WEBUI_PORT": "0",
    }
    net.start(command, work / f"{name}.log", environment, inside)


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _wait_for(host: str, port: int) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        with suppress(OSError), socket.create_connection((host, port), timeout=1):
            return
        if time.monotonic() > end:
            raise TimeoutError(f"No Spark master at {host}:{port}.")
        time.sleep(0.1)
