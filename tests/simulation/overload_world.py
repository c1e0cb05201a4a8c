"""Clicks that come faster than they can be read, in virtual time, and an application that counts them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import transom as tm
from transom.api.app import App
from transom.engine.loop.progress import Progress
from transom.model.time import VirtualClock
from transom.simulation.virtual import JobCosts, SimulatedCutRunner
from transom.sinks.base import WindowResults
from transom.sinks.inmemory import MemorySink
from transom.sources.inmemory import MemorySource

SECOND = 1_000_000
NOON = 1_700_000_000 * SECOND
EVERY = SECOND // 20
"""Rows arrive so often."""
LIMIT = 3


class NoisyRunner(SimulatedCutRunner):
    """Jobs take up to so much more or less than the model says."""

    def __init__(self, clock: VirtualClock, costs: JobCosts, noise: float) -> None:
        random = np.random.default_rng(7)

        def noisy(stream: str) -> JobCosts:
            times = 1 + random.uniform(-noise, noise)
            return JobCosts(round(costs.fixed * times), costs.row * times, costs.merge, costs.cores)

        super().__init__(clock, noisy)


class TimedSink(MemorySink):
    """Notes how long after its end a window's results are there."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self.clock = clock
        self.took: dict[int, float] = {}

    def write(self, results: WindowResults) -> None:
        super().write(results)
        for end in results.table["window_end"].cast(pa.int64()).to_pylist():
            self.took[(end - NOON) // SECOND] = (self.clock.now() - end) / SECOND


@dataclass
class World:
    """Clicks arrive for some seconds; 1,000 a second would fill the one core."""

    directory: Path
    rates: Mapping[int, int]
    """Rows per second, from some seconds on."""
    seconds: int
    noise: float = 0.0
    limit: str = f"{LIMIT} seconds"
    within: Mapping[str, Any] = field(default_factory=lambda: {"on_overload": "shed"})
    ahead: str | None = "1 day"
    window: str = "1 second"
    other: int = 0
    """Rows per second of another stream, with windows of a second."""
    odd: bool = False
    """Whether every hundredth row has no time, and from two seconds on another one is a minute late."""
    clock: VirtualClock = field(default_factory=lambda: VirtualClock(NOON))
    others: MemorySink = field(default_factory=MemorySink)
    offered: int = 0
    notes: list[str] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    """Of the rows of the last seconds, those that were left out, each time that progress was shown."""
    done: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.source: MemorySource = tm.sources.memory("at timestamp, v bigint")
        self.source.open(None, None, self.clock)  # type: ignore[arg-type]
        self.sink = TimedSink(self.clock)
        self.beside: MemorySource = tm.sources.memory("at timestamp, v bigint")
        self.beside.open(None, None, self.clock)  # type: ignore[arg-type]
        for moment in range(NOON, NOON + self.seconds * SECOND, EVERY):
            second = (moment - NOON) // SECOND
            rate = self.rates[max(since for since in self.rates if since <= second)]
            self.clock.at(moment + EVERY, partial(self._arrive, self._rows(moment, rate * EVERY // SECOND)))
            if self.other:
                rows = self._rows(moment, self.other * EVERY // SECOND)
                self.clock.at(moment + EVERY, partial(self.beside.add, rows))

    def _rows(self, moment: int, count: int) -> pa.Table:
        times = moment + np.arange(count) * EVERY // max(1, count)
        if self.odd and moment > NOON + 2 * SECOND:
            times[5::100] -= 60 * SECOND
        at = pa.array(times, pa.timestamp("us", "UTC"), mask=np.arange(count) % 100 == 50 if self.odd else None)
        return pa.table({"at": at, "v": pa.array(np.arange(count))})

    def _arrive(self, table: pa.Table) -> None:
        self.offered += table.num_rows
        self.source.add(table)

    def app(self, spark: SparkSession, **settings: Any) -> App:
        options = {"slots": 1, "trigger": "100 ms", "poll": "20 ms", **settings}
        app = App(spark, self.directory, clock=self.clock, **options)
        app._runner = NoisyRunner(self.clock, JobCosts(fixed=100_000, row=1_000.0, cores=1), self.noise)
        stream = app.stream(self.source, event_time="at", watermark=tm.watermark(max_ahead=self.ahead), name="clicks")
        self.stream = stream
        query = stream.window(self.window).agg(n=tm.count())
        query.within(self.limit, **self.within).to(self.sink, "q")
        if self.other:
            other = app.stream(self.beside, event_time="at", name="beside")
            other.window("1 second").agg(n=tm.count()).within("3 seconds").to(self.others, "other")
        return app

    def run(self, spark: SparkSession, **settings: Any) -> World:
        app = self.app(spark, **settings)
        self.clock.at(NOON + (self.seconds + 8) * SECOND, app.stop)
        self.done.append(app.run(on_progress=self._see))
        return self

    def _see(self, progress: Progress) -> None:
        self.notes.extend(progress.notes)
        self.shares.append(progress.streams[0].shed_share)

    @property
    def dead(self) -> Mapping[str, int]:
        return self.done[-1].streams[0].dead_letters

    @property
    def read(self) -> int:
        return self.done[-1].streams[0].rows

    def took_from(self, second: int) -> list[float]:
        """Return how long results took of windows that end after a second."""
        return [took for end, took in self.sink.took.items() if end > second]

    @property
    def results(self) -> dict[int, dict[str, Any]]:
        """Results by the second of the window's end."""
        rows = self.sink.to_table("q").to_pylist()
        return {round(row["window_end"].timestamp() - NOON / SECOND): row for row in rows}
