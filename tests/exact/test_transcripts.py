"""Transcripts (input, watermark, expected) in tests/transcripts, on Spark and in virtual time alike."""

from __future__ import annotations

import bisect
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from exact_helpers import NOON, SECOND, Bench, plain_rows
from pyspark.sql import SparkSession

import transom as tm
from transom.api.app import App
from transom.engine.execution.onspark import run_on_spark
from transom.model.time import VirtualClock
from transom.simulation.virtual import JobCosts, SimulatedCutRunner
from transom.sinks.inmemory import MemorySink
from transom.sources.base import Cut
from transom.sources.inmemory import MemorySource
from transom.sources.schemas import as_struct
from transom.windows.aggregates.parse import parse_aggregate

START = NOON - NOON % (180 * SECOND)
TRANSCRIPTS = sorted((Path(__file__).parents[1] / "transcripts").glob("*.toml"))


class SteppedSource(MemorySource):
    """A memory source with one cut per step, of rows and the watermark after them."""

    def __init__(self, steps: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(as_struct("at timestamp, k string, v bigint"), 1)
        self.ends: list[int] = []
        self.counts: list[int] = []
        for step in steps:
            rows = [(moment(row[0]), *map(value, row[1:])) for row in step.get("rows", ())]
            self.add(rows)
            if "watermark" in step:
                self.add_watermark(moment(step["watermark"]))
            self.ends.append(self.latest())
            self.counts.append(len(rows))

    def cut(self, start: Any, max_rows: int) -> Cut:
        step = bisect.bisect_right(self.ends, start)
        return Cut(self.ends[step], self.counts[step]) if step < len(self.ends) else Cut(start, 0)


def value(written: Any) -> Any:
    return None if written == "null" else written


def moment(seconds: Any) -> int | None:
    return None if seconds == "null" else START + round(seconds * SECOND)


def window_of(text: str) -> Any:
    length, _, slide = text.partition(" by ")
    return tm.sliding(length, slide) if slide else length


class SimulatedBench(Bench):
    """The same application in virtual time."""

    work: Any = None

    def app(self) -> App:
        clock = self.clock = VirtualClock(self.clock.now())
        app = super().app()
        app._runner = SimulatedCutRunner(clock, JobCosts(), **({} if self.work is None else {"work": self.work}))
        return app


def played(bench_class: type[Bench], spark: SparkSession, directory: Path, path: Path) -> list[list[list[Any]]]:
    """Return the results that each step led to, as a transcript writes them."""
    transcript = tomllib.loads(path.read_text(encoding="utf-8"))
    source = SteppedSource(transcript["step"])

    def define(app: App, sink: MemorySink) -> None:
        stream = app.stream(source, event_time="at", watermark=tm.watermark(**transcript["watermark"]))
        for name, query in transcript["queries"].items():
            windowed = stream.group_by(*query["keys"]).window(*map(window_of, query["windows"]))
            windowed.agg(**dict(map(parse_aggregate, query["aggregates"]))).to(sink, name)

    bench = bench_class(spark, directory, define)
    bench.run(close_all=False)
    cuts = bench.cuts["stream1"]
    found: list[list[list[Any]]] = [[] for _ in transcript["step"]]
    for (query, number), table in bench.sink.tables.items():
        step = bisect.bisect_left(source.ends, cuts[number].start)
        for start, end, *rest in plain_rows(table):
            times = [(each - START) / SECOND for each in (start, end)]
            found[step].append([query, *times, *("null" if each is None else each for each in rest)])
    return [sorted(step, key=repr) for step in found]


def expected(path: Path) -> list[list[list[Any]]]:
    steps = tomllib.loads(path.read_text(encoding="utf-8"))["step"]
    written = [[[row[0], float(row[1]), float(row[2]), *row[3:]] for row in step.get("expect", ())] for step in steps]
    return [sorted(step, key=repr) for step in written]


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
@pytest.mark.parametrize("bench", [Bench, SimulatedBench])
def test_transcript(bench: type[Bench], path: Path, interpreted: SparkSession, tmp_path: Path) -> None:
    assert played(bench, interpreted, tmp_path, path) == expected(path)


def test_virtual_time_with_the_partials_of_spark(interpreted: SparkSession, tmp_path: Path) -> None:
    class WithSpark(SimulatedBench):
        work = staticmethod(run_on_spark)

    path = TRANSCRIPTS[0]
    assert played(WithSpark, interpreted, tmp_path, path) == expected(path)
