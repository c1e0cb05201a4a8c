"""A standalone cluster of Spark on this machine: a master and workers, each a process with a directory of its own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any
from urllib.request import urlopen

import pyspark

SOON_READY = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of a Java that does not live long."""


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
        "SPARK_DAEMON_JAVA_OPTS": SOON_READY,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }


class Daemon:
    """A master or a worker; what it says goes to a file.

    Args:
        directory: Where it runs, and the file is.
        what: Master or Worker.
        arguments: Of its command line.
    """

    def __init__(self, directory: Path, what: str, *arguments: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._log = directory / f"{what}.log"
        self._going_on: threading.Thread | None = None
        program = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
        self.process = subprocess.Popen(
            [program, f"org.apache.spark.deploy.{what.lower()}.{what}", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**environment(), "SPARK_LOCAL_DIRS": str(directory / "local")},
            cwd=directory,
            text=True,
        )

    def await_said(self, text: str) -> None:
        """Wait until it has said something; from then on it says all into the file.

        Raises:
            RuntimeError: It ended without.
        """
        said = self.process.stdout
        assert said is not None
        with open(self._log, "a", encoding="utf-8") as log:
            for line in said:
                log.write(line)
                if text in line:
                    break
            else:
                said.close()
                raise RuntimeError(self._log.read_text(encoding="utf-8")[-2_000:])
        self._going_on = threading.Thread(target=self._go_on, args=[said], daemon=True)
        self._going_on.start()

    def _go_on(self, said: IO[str]) -> None:
        with said, open(self._log, "a", encoding="utf-8") as log:
            log.writelines(said)

    def kill(self) -> None:
        """Kill it, and what it has started ends by itself."""
        self.process.kill()
        self.process.wait()
        if self._going_on is not None:
            self._going_on.join()


class StandaloneCluster:
    """Workers with two cores each; `with` stops all that is left of it."""

    def __init__(self, directory: Path, workers: int) -> None:
        port, self._page = free_port(), free_port()
        self.master = f"spark://127.0.0.1:{port}"
        self.workers: list[Path] = []
        """The directories of the workers, with all that they and their executors write."""
        self._directory = directory
        self._daemons: list[Daemon] = []
        at = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(self._page))
        self._start("New state: ALIVE", directory, "Master", *at)
        for _ in range(workers):
            self.add_worker()

    def add_worker(self) -> None:
        """Let one more worker come."""
        own = self._directory / f"worker-{len(self.workers)}"
        size = ("--host", "127.0.0.1", "--cores", "2", "--memory", "1g", "-d", str(own))
        self._start("Successfully registered with master", own, "Worker", *size, self.master)
        self.workers.append(own)

    def _start(self, said: str, directory: Path, what: str, *arguments: str) -> None:
        self._daemons.append(Daemon(directory, what, *arguments))
        try:
            self._daemons[-1].await_said(said)
        except BaseException:
            self.end()
            raise

    def state(self) -> dict[str, Any]:
        """Return what the master's page tells."""
        with urlopen(f"http://127.0.0.1:{self._page}/json/", timeout=10) as answer:
            return dict(json.load(answer))

    def kill_worker(self, number: int) -> None:
        """Kill a worker's process; its executors go with it."""
        self._daemons[1 + number].kill()

    def end(self) -> None:
        """Kill all that is left."""
        for daemon in reversed(self._daemons):
            daemon.kill()

    def __enter__(self) -> StandaloneCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
