"""Engines as processes of their own, kept warm between runs, told what to do in JSON lines.

`python -m benchmarks.worker ENGINE` imports the module `benchmarks.ENGINE` and calls the functions in its
`OPERATIONS`. Whatever the engine prints goes to its standard error, into a log file.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks import harness


class WorkerError(RuntimeError):
    """An engine's process failed; the message holds the end of its log."""


class Worker:
    """One engine's process.

    Args:
        engine: Name of the module in `benchmarks`.
        work: Where its log is written.
        cores: Threads that it may use.
    """

    def __init__(self, engine: str, work: Path, cores: int = harness.CORES) -> None:
        self.engine = engine
        self._log = work / f"{engine}.log"
        environment = {
            **os.environ,
            "POLARS_MAX_THREADS": str(cores),
            "PYTHONPATH": os.pathsep.join(
                p for p in (str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH")) if p
            ),
            "BENCHMARK_CORES": str(cores),
            "BENCHMARK_WORK": str(work),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.worker", engine],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
            )

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    def start(self, operation: str, **arguments: Any) -> None:
        """Begin an operation; `result` waits for it."""
        assert self._process.stdin is not None
        line = json.dumps({"operation": operation, "arguments": arguments}, default=str)
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def result(self) -> Any:
        """Wait for the operation that was begun and return what it returned.

        Raises:
            WorkerError: It raised, or the process died.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer = json.loads(line) if line else {"error": f"the process ended with {self._process.wait()}"}
        if "error" in answer:
            tail = self._log.read_text(errors="replace")[-4_000:]
            raise WorkerError(f"{self.engine}: {answer['error']}\n{tail}")
        return answer["result"]

    def call(self, operation: str, **arguments: Any) -> Any:
        """Run an operation and return what it returned."""
        self.start(operation, **arguments)
        return self.result()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if error is not None:
            self._process.terminate()
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def serve(engine: str) -> None:
    """Answer operations until standard input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    operations = importlib.import_module(f"benchmarks.{engine}").OPERATIONS
    for line in sys.stdin:
        request = json.loads(line)
        print(f"--- {request['operation']} at {time.time():.3f}", file=sys.stderr, flush=True)
        try:
            answer = {"result": operations[request["operation"]](**request["arguments"])}
        except Exception as error:  # any failure is the benchmark's to report
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


if __name__ == "__main__":
    serve(sys.argv[1])
