"""Executors that each have a network of their own on this machine: one namespace each, links with a given rate.

A standalone Spark master and one worker for each executor. Every namespace hangs on a bridge by a pair of virtual
interfaces, whose two ends carry an HTB class with the rate of the link: one for what the executor sends, one for what
it gets. The driver is on the bridge. Needs root and the programs `ip` and `tc`; there is no delay and no loss.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

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


def possible() -> bool:
    """Return whether this process may make namespaces."""
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
        return False
    name = f"trprobe{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        return False
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return True


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
    tag, net = os.getpid() % 10_000, f"10.{100 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
    bridge, driver = f"trb{tag}", f"{net}.1"
    with ExitStack() as stack:
        work = stack.enter_context(tempfile.TemporaryDirectory(prefix="transom-linked-"))
        _ip("link", "add", bridge, "type", "bridge")
        stack.callback(_ip, "link", "del", bridge)
        _ip("addr", "add", f"{driver}/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        names = [f"tr{tag}n{number}" for number in range(executors)]
        for number, name in enumerate(names):
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "del", name)
            _link(name, f"trv{tag}e{number}", bridge, f"{net}.{10 + number}/24", megabits)
        port = _free_port(driver)
        _start(stack, Path(work), "master", driver, ["Master", "--host", driver, "--port", str(port)])
        _wait_for(driver, port)
        master = f"spark://{driver}:{port}"
        for number, name in enumerate(names):
            host = f"{net}.{10 + number}"
            memory = ["--cores", "1", "--memory", f"{megabytes}m", "--work-dir", f"{work}/{name}"]
            _start(stack, Path(work), name, host, ["Worker", "--host", host, *memory, master], namespace=name)
        yield Cluster(master, driver)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _link(namespace: str, outside: str, bridge: str, address: str, megabits: int) -> None:
    """Join a namespace to the bridge; both ends send at most at the rate."""
    inside = ["ip", "netns", "exec", namespace]
    _ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", namespace)
    _ip("link", "set", outside, "master", bridge)
    _ip("link", "set", outside, "up")
    for words in (["addr", "add", address, "dev", "eth0"], ["link", "set", "eth0", "up"], ["link", "set", "lo", "up"]):
        subprocess.run([*inside, "ip", *words], check=True, capture_output=True)
    for where, device in (([], outside), (inside, "eth0")):
        shape = ["tc", "qdisc", "add", "dev", device, "root", "handle", "1:", "htb", "default", "1"]
        subprocess.run([*where, *shape], check=True, capture_output=True)
        rate = ["class", "add", "dev", device, "parent", "1:", "classid", "1:1", "htb", "rate", f"{megabits}mbit"]
        subprocess.run([*where, "tc", *rate], check=True, capture_output=True)


def _start(stack: ExitStack, work: Path, name: str, host: str, words: list[str], namespace: str | None = None) -> None:
    """Start a part of the cluster in a process group of its own, which ends with the block."""
    home = _find_spark_home()
    kind, *options = words
    command = [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{kind.lower()}.{kind}", *options]
    paths = [str(Path(path).absolute()) for path in sys.path if path] + [str(Path.cwd())]
    environment = {
        **os.environ,
        "SPARK_HOME": home,
        "SPARK_LOCAL_IP": host,
        "SPARK_DAEMON_MEMORY": "256m",
        "PYTHONPATH": os.pathsep.join(paths),
        "SPARK_WORKER_WEBUI_PORT": "0",
        "SPARK_MASTER_WEBUI_PORT": "0",
    }
    log = stack.enter_context((work / f"{name}.log").open("wb"))
    inside = ["ip", "netns", "exec", namespace] if namespace else []
    process = subprocess.Popen(
        [*inside, *command], env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
    )
    stack.callback(_stop, process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ask a process group to end, then make it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
            return


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
