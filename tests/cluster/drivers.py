"""Applications on a cluster, as the command line runs them: each driver is a process in a directory of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.standalone import SOON_READY, StandaloneCluster, environment

FOUR_EXECUTORS = {
    "spark.executor.cores": "1",
    "spark.executor.memory": "480m",
    "spark.executor.extraJavaOptions": SOON_READY,
}
"""Two of them fit into each worker of a `StandaloneCluster`."""


class Driver:
    """`transom run` with a master's URL.

    Args:
        job: The job file.
        directory: The working directory; it is made.
        master: URL of the master.
        conf: Settings of Spark.
        more: Further arguments.
    """

    def __init__(self, job: Path, directory: Path, master: str, conf: Mapping[str, str], *more: str) -> None:
        directory.mkdir()
        settings = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
        command = [sys.executable, "-m", "transom_command", "run", str(job), "--master", master, "--json", *settings]
        self._errors = directory / "stderr"
        with open(self._errors, "w", encoding="utf-8") as errors:
            self._process = subprocess.Popen(
                [*command, *more], cwd=directory, env=environment(), stdout=subprocess.PIPE, stderr=errors, text=True
            )

    @property
    def said(self) -> str:
        """What it wrote to standard error."""
        return self._errors.read_text(encoding="utf-8")

    def await_rows(self, rows: int) -> None:
        """Wait until its stream has read some rows."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            found = json.loads(line)
            if any(stream["rows"] >= rows for stream in found.get("streams", ())):
                return
        raise AssertionError(self.said)

    def finish(self) -> None:
        """Wait for its end, which is to be a good one."""
        self._process.communicate()
        assert self._process.returncode == 0, self.said

    def kill(self) -> None:
        """Kill it, if it still runs; Spark's Java notices that, and ends."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


@contextmanager
def driver(job: Path, directory: Path, master: str, conf: Mapping[str, str], *more: str) -> Iterator[Driver]:
    """Run a driver, which is killed at the end if it still runs."""
    running = Driver(job, directory, master, conf, *more)
    try:
        yield running
    finally:
        running.kill()


def run_through_losses(job: Path, root: Path, conf: Mapping[str, str], worker_after: int, driver_after: int) -> None:
    """Run a job to its end on two workers with two executors each; a worker and the driver are killed on the way.

    Args:
        job: The job file.
        root: Where the cluster and the working directories of the drivers are made.
        conf: Settings of Spark, beside those of the executors.
        worker_after: A worker is killed when so many rows are read.
        driver_after: The driver is killed then; another one goes on in another working directory.
    """
    conf = {**FOUR_EXECUTORS, **conf}
    with StandaloneCluster(root / "cluster", workers=2) as cluster:
        with driver(job, root / "here", cluster.master, conf) as first:
            first.await_rows(worker_after)
            assert sum(worker["coresused"] for worker in cluster.state()["workers"]) == 4, "four executors of one core"
            cluster.kill_worker(0)
            first.await_rows(driver_after)
            first.kill()
        with driver(job, root / "there", cluster.master, conf, "--once", "--close-all") as second:
            second.finish()
