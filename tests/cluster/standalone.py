"""A standalone cluster of Spark on this machine: a master and workers, each a process with a directory of its own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pyspark


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment() -> dict[str, str]:
    """Return the environment of processes that belong to a cluster on this machine."""
    return {
        **os.environ,
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }


class StandaloneCluster:
    """Workers with two cores each; `with` stops all that is left of it."""

    def __init__(self, directory: Path, workers: int) -> None:
        port, self._page = free_port(), free_port()
        self.master = f"spark://127.0.0.1:{port}"
        self._directory = directory
        self._processes = [
            self._start("Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(self._page))
        ]
        self._await_workers(0)
        for number in range(workers):
            own = directory / f"worker-{number}"
            arguments = ("--host", "127.0.0.1", "--cores", "2", "--memory", "1g", "-d", str(own), self.master)
            self._processes.append(self._start("Worker", *arguments))
        self._await_workers(workers)

    def _start(self, what: str, *arguments: str) -> subprocess.Popen[bytes]:
        self._directory.mkdir(parents=True, exist_ok=True)
        program = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
        with open(self._directory / f"{what}.log", "ab") as log:
            return subprocess.Popen(
                [program, f"org.apache.spark.deploy.{what.lower()}.{what}", *arguments],
                stdout=log,
                stderr=log,
                env=environment(),
                cwd=self._directory,
            )

    def state(self) -> dict[str, Any]:
        """Return what the master's page tells."""
        with urlopen(f"http://127.0.0.1:{self._page}/json/", timeout=10) as answer:
            return dict(json.load(answer))

    def _await_workers(self, count: int) -> None:
        for _ in range(1200):
            try:
                if self.state()["aliveworkers"] >= count:
                    return
            except OSError:  # the master does not listen yet
                pass
            time.sleep(0.1)
        raise TimeoutError(f"{count} workers are to be there: {(self._directory / 'Master.log').read_text()[-2000:]}")

    def kill_worker(self, number: int) -> None:
        """Kill a worker's process; its executors go with it."""
        self._processes[1 + number].kill()
        self._processes[1 + number].wait()

    def __enter__(self) -> StandaloneCluster:
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait()
