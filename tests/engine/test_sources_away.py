"""Sources that cannot be reached for a while, or that lost rows: their streams wait or halt, and others go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import transom as tm
from transom.errors import SourceAwayError, SourceError, SourceLostError
from transom.model.time import VirtualClock
from transom.simulation.inmemory import run_in_memory
from transom.simulation.virtual import JobCosts, SimulatedCutRunner
from transom.sources.inmemory import MemorySource

pytestmark = pytest.mark.usefixtures("in_memory")
SECOND = 1_000_000
NOON = 1_700_000_000 * SECOND
AWAY = SourceAwayError("brokers do not answer.", "Wait.")


class Failing(MemorySource):
    """A source that raises an error at each look while it has one."""

    error: SourceError | None = None

    def latest(self) -> Any:
        if self.error is not None:
            raise self.error
        return super().latest()


class Scene:
    """Two streams of windows of a second in virtual time, `q0` and `q1`; the source of the first may fail."""

    def __init__(self, spark: SparkSession, directory: Path, fails: int = 0) -> None:
        self.clock, self.sink, self.notes = VirtualClock(NOON), tm.sinks.memory(), list[str]()
        schema = tm.sources.memory("at timestamp").schema
        self.sources = [Failing(schema, 1), Failing(schema, 1)]
        self.left = fails
        self.app = tm.App(spark, directory, clock=self.clock, poll="20 ms", trigger=0)
        self.app._runner = SimulatedCutRunner(self.clock, JobCosts(), self.work)
        for number, source in enumerate(self.sources):
            stream = self.app.stream(source, event_time="at", watermark=0)
            stream.window("1 second").agg(n=tm.count()).to(self.sink, f"q{number}")
            for second in range(20):
                self.at(second, lambda source=source, second=second: source.add([(NOON + second * SECOND,)]))

    def at(self, second: float, action: Any) -> None:
        self.clock.at(NOON + round(second * SECOND), action)

    def work(self, stream: Any, job: Any) -> Any:
        """Do what a job does; those of the first stream fail as often as was said."""
        if stream.name == "stream1" and self.left:
            self.left -= 1
            raise AWAY
        return run_in_memory(stream, job)

    def run(self, until: float) -> Any:
        self.at(until, self.app.stop)
        return self.app.run(on_progress=lambda progress: self.notes.extend(progress.notes))

    def windows(self, query: str) -> list[int]:
        """Return the seconds of the windows that are there, each of which has one row."""
        rows = self.sink.rows(query)
        assert {row["n"] for row in rows} <= {1}
        return [round(row["window_start"].timestamp()) - NOON // SECOND for row in rows]

    def fail(self, error: SourceError | None) -> None:
        self.sources[0].error = error


def test_a_source_that_is_away_for_a_while(spark: SparkSession, tmp_path: Path) -> None:
    scene = Scene(spark, tmp_path)
    seen: list[list[int]] = []
    scene.at(5.5, lambda: scene.fail(AWAY))
    scene.at(14.5, lambda: seen.append(scene.windows("q0")))
    scene.at(14.5, lambda: seen.append(scene.windows("q1")))
    scene.at(14.6, lambda: scene.fail(None))
    scene.run(30)
    assert seen == [list(range(5)), list(range(14))]
    assert scene.windows("q0") == scene.windows("q1") == list(range(19))
    assert [note for note in scene.notes if "stream1" in note] == [
        "stream1 waits: brokers do not answer. Wait.",
        "stream1 goes on: its source answers.",
    ]


def test_a_job_whose_source_does_not_answer_runs_again(spark: SparkSession, tmp_path: Path) -> None:
    scene = Scene(spark, tmp_path, fails=4)
    scene.run(60)
    assert scene.windows("q0") == scene.windows("q1") == list(range(19))
    assert len([note for note in scene.notes if note.startswith("stream1 waits")]) == 1


def test_a_stop_does_not_wait_for_a_source_that_is_away(spark: SparkSession, tmp_path: Path) -> None:
    scene = Scene(spark, tmp_path, fails=1_000)
    scene.run(10)
    assert scene.clock.now() < NOON + 12 * SECOND
    assert scene.windows("q0") == []


def test_rows_that_are_gone_halt_their_stream(spark: SparkSession, tmp_path: Path) -> None:
    scene = Scene(spark, tmp_path)
    scene.at(5.5, lambda: scene.fail(SourceLostError("rows 5 to 9 are gone.", "Skip them.")))
    progress = scene.run(30)
    assert scene.windows("q0") == list(range(5))
    assert scene.windows("q1") == list(range(19))
    assert [query.failure for query in progress.queries] == ["rows 5 to 9 are gone.", None]
