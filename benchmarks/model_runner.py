"""Transom under `latency_model` and `plan`: profiles of the jobs, and runs of them with given settings."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.equipment import equipped
from benchmarks.model_jobs import JOBS, build
from benchmarks.transom_runner import raise_failures
from transom.engine.control.phases import PhaseRecorder
from transom.model.phases import CutPhases
from transom.model.slopes import line
from transom.model.tuning import Tuning

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from transom.sinks.base import WindowResults

WATCHED = 4
"""Of every so many cuts of a run Spark is asked about the tasks of one."""


@cache
def session() -> SparkSession:
    """Return Transom's usual session."""
    import transom as tm

    return equipped(tm.session_builder().appName("latency_model"))


def profile(job: str, source: str, seconds: float) -> dict[str, Any]:
    """Profile a job over the files of a directory.

    Returns:
        `profile`, as JSON; `line`: fixed seconds of a cut, and seconds of a row, as the scheduler sees them.
    """
    from transom.api.profiling import Profiler

    def made() -> Any:
        return build(JOBS[job], session(), Path(source), Path(source, "unused"), lambda results: None)

    profiler = Profiler(made, seconds)
    found = profiler.run(session(), job, {})
    lines = {}
    for name, cuts in profiler.cuts.items():
        read = [cut for cut in cuts if cut.rows and cut.job is not None]
        rows, taken = np.array([[cut.rows, cut.job] for cut in read[len(read) % 2 :]], dtype=float).T
        lines[name] = [float(each) for each in line(rows, taken)]
    return {"profile": found.to_json(), "lines": lines}


class _Run:
    """An application that runs until it is stopped, and what is seen of it."""

    def __init__(self, job: str, incoming: Path, checkpoint: Path, tuning: Tuning) -> None:
        self.seen: list[tuple[str, int, int, int]] = []
        """Query, end of windows in milliseconds, when their results were there in nanoseconds, and what they count."""
        self.cuts: list[CutPhases] = []
        self._lock = threading.Lock()
        app = build(JOBS[job], session(), incoming, checkpoint, self._take)
        app._phases = lambda: PhaseRecorder(self.cuts.append, every=WATCHED)
        app._queries.requests.tune(tuning, "a setting of the benchmark")
        goes_round = threading.Event()
        self.running = app.start(on_progress=lambda progress: goes_round.set())
        while not goes_round.wait(0.1) and not self.running.done:
            pass

    def _take(self, results: WindowResults) -> None:
        now = time.time_ns()
        counted = results.table.group_by("window_end").aggregate([("n", "sum")])
        ends = counted["window_end"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
        with self._lock:
            for end, number in zip(ends, counted["n_sum"].to_pylist(), strict=True):
                self.seen.append((results.query, end // 1_000, now, number))

    def stop(self) -> dict[str, Any]:
        """Stop it; rows that wait are left."""
        self.running.stop()
        final = self.running.wait()
        raise_failures(final)
        return {
            "seen": self.seen,
            "cuts": [cut.to_json() for cut in self.cuts],
            "rows": sum(stream.rows for stream in final.streams),
            "backlog": sum(stream.backlog for stream in final.streams),
        }


_runs: list[_Run] = []


def start(job: str, incoming: str, output: str, tuning: dict[str, Any]) -> None:
    """Start a job over a directory in which files appear."""
    shutil.rmtree(output, ignore_errors=True)
    _runs.append(_Run(job, Path(incoming), Path(output, "checkpoint"), Tuning.from_json(tuning)))


def stop() -> dict[str, Any]:
    """Stop it, and return what was seen."""
    return _runs.pop().stop()


OPERATIONS: dict[str, Callable[..., Any]] = {"profile": profile, "start": start, "stop": stop}
