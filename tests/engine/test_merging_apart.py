"""Merges of files run beside the loop: no other stream waits for them, and what happens meanwhile changes no result."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

import transom as tm
from transom.api.app import App
from transom.engine.cluster.files import write_partials
from transom.engine.cluster.merges import Here
from transom.engine.control import tiers
from transom.engine.partials.tables import PartialTable
from transom.engine.streams.cuts import CutJob, CutOutcome
from transom.engine.streams.stream import RunningStream
from transom.model.time import VirtualClock
from transom.simulation.inmemory import run_in_memory
from transom.simulation.virtual import JobCosts, SimulatedCutRunner

SECOND = 1_000_000
NOON = 1_700_000_000 * SECOND


def into_files(stream: RunningStream, job: CutJob) -> CutOutcome:
    """Compute the partials of a cut in memory and write them into files, if that is where they belong."""
    outcome = run_in_memory(stream, job)
    cut, place = job.cut, stream.state.executors
    if not job.options.all_in_files:
        return outcome
    files = tuple(
        write_partials(
            place.directory,
            f"{cut.number:012d}-{uuid.uuid4().hex}",
            table,
            table["v"].to_numpy() % place.groups,
            PartialTable.of(table).contents,
            cut.number,
        )
        for table in outcome.tables
        if table.num_rows
    )
    return replace(outcome, tables=(), files=files)


class Merging(SimulatedCutRunner):
    """Notes the merges, and lets something happen while one runs."""

    def __init__(self, clock: VirtualClock, costs: Callable[[str], JobCosts]) -> None:
        super().__init__(clock, costs, into_files)
        self.merges: list[str] = []
        self.ended = False
        self.meanwhile: Callable[[], object] = lambda: None

    def merge(self, stream: RunningStream, work: Callable[[], Any]) -> Future[Any]:
        self.merges.append(stream.name)
        self.ended |= stream.ended()
        if len(self.merges) == 6:
            self._clock.at(self._clock.monotonic() + SECOND // 10, lambda: self.meanwhile())
        return super().merge(stream, work)


class Killed(BaseException):
    """As kill -9: nothing is written any more."""


class Run:
    """Two streams with windows of one second for ten virtual seconds; the partials of both are in files."""

    def __init__(self, spark: SparkSession, directory: Path, merge: float, **settings: Any) -> None:
        self.clock = clock = VirtualClock(NOON)
        self.spark, self.directory, self.sink = spark, directory, tm.sinks.memory()
        self.settings = {"slots": 2, "tier": "cluster", "poll": "20 ms", **settings}
        slow, others = JobCosts(50_000, 0.0, round(merge * SECOND)), JobCosts(50_000, 0.0)
        self.executor = Merging(clock, lambda name: slow if name == "slow" else others)
        self.written: dict[str, list[float]] = {}
        self.refuses: str | None = None
        write = self.sink.write

        def timed(results: Any) -> None:
            if results.query == self.refuses:
                raise OSError("refused")
            write(results)
            if clock.now() >= NOON + 14 * SECOND:
                return
            ends = pc.unique(results.table["window_end"]).cast("int64").to_pylist()
            self.written.setdefault(results.query, []).extend((clock.now() - end) / SECOND for end in ends)

        self.sink.write = timed  # type: ignore[method-assign]
        self.sources = {name: tm.sources.memory("at timestamp, v bigint") for name in ("slow", "fast")}
        for source in self.sources.values():
            for tick in range(100):
                at = NOON + tick * SECOND // 10
                clock.at(at, lambda source=source, at=at: source.add([(at, at // 100_000 % 7)]))
        self.app = self.made()
        clock.at(NOON + 14 * SECOND, lambda: self.app.stop())

    def made(self) -> App:
        """Return the application, anew as after a crash."""
        app = App(self.spark, self.directory, clock=self.clock, **self.settings)
        app._runner = self.executor
        for name, source in self.sources.items():
            stream = app.stream(source, event_time="at", name=name)
            for query in (name, f"{name} too"):
                stream.group_by("v").window("1 second").agg(n=tm.count()).to(self.sink, query)
        return app

    def play(self) -> None:
        """Run for the ten seconds and some more, anew when something ends it, then to the end of the input."""
        while self.clock.now() < NOON + 14 * SECOND:
            with contextlib.suppress(Killed):
                self.app.run()
            self.app = self.made()
        self.refuses = None
        self.app.run(once=True, close_all=True)

    def rows(self) -> dict[str, list[str]]:
        names = ("slow", "slow too", "fast", "fast too")
        return {name: sorted(map(str, self.sink.rows(name))) for name in names}


@pytest.fixture(autouse=True)
def on_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let merges be made in this process, and jobs in memory write their partials into files."""
    monkeypatch.setattr("transom.engine.loop.opening.SparkGroupExecutors", lambda session, files, *_: Here(files, 2))


@pytest.fixture(scope="module")
def plain(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The results without files."""
    run = Run(spark, tmp_path_factory.mktemp("plain"), 0, tier="driver")
    run.play()
    return run.rows()


def test_a_slow_merge_delays_no_other_stream(spark: SparkSession, tmp_path: Path, plain: dict[str, list[str]]) -> None:
    run = Run(spark, tmp_path, merge=1.5)
    run.play()
    assert run.executor.merges.count("slow") > 3
    assert not run.executor.ended, "who reads the results waits for those that are being made"
    assert max(run.written["fast"]) < 0.5
    assert min(run.written["slow"]) >= 1.5
    assert run.rows() == plain


SETTINGS = {"snapshots": {"snapshot_bytes": 1}, "a failing sink": {"max_waiting_bytes": 1}}


def killed() -> None:
    raise Killed


@pytest.mark.parametrize("what", ["snapshots", "fewer files", "a kill", "pausing", "a failing sink", "a stop"])
def test_what_happens_while_windows_are_merged_changes_no_result(
    what: str, spark: SparkSession, tmp_path: Path, plain: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(spark, tmp_path, merge=0.4, **SETTINGS.get(what, {}))
    if what == "fewer files":
        monkeypatch.setattr(tiers, "MOST_FILES", 2)
    changes = {
        "a kill": killed,
        "pausing": lambda: run.app.pause("fast too"),
        "a failing sink": lambda: setattr(run, "refuses", "slow"),
        "a stop": lambda: run.app.stop(),
    }
    run.executor.meanwhile = changes.get(what, lambda: None)
    run.play()
    found = run.rows()
    assert len(run.executor.merges) > 6
    left = {"pausing": "fast too", "a failing sink": "slow"}.get(what)
    assert {query for query, rows in found.items() if rows != plain[query]} <= {left}
    assert set(found.get(left or "", ())) <= set(plain.get(left or "", ()))
