"""Applications in virtual time whose costs are known: the real loop; phases of jobs take what a profile says."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.model.phases import Phase
from transom.model.time import MICROS_PER_SECOND, Micros, VirtualClock
from transom.model.tuning import Tuning
from transom.planning.profile import Equipment, PhaseCost, Profile, StreamProfile
from transom.simulation.staged import StagedCutRunner
from transom.sinks.base import WindowResults
from transom.sinks.inmemory import MemorySink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from transom.api.app import App

NOON: Micros = 1_700_000_000 * MICROS_PER_SECOND
WARM = 3
"""Windows of each stream that do not count."""


@dataclass(frozen=True)
class Truth:
    """A job of which all is known: its streams have one query each, over tumbling windows."""

    profile: Profile
    """What its phases cost; `closing` is the length of the windows, `piece` the time between two arrivals."""
    rates: Mapping[str, float]
    limits: Mapping[str, float]


def random_truth(chance: random.Random, cores: int, most: int) -> Truth:
    """Return a job of one to three streams that keeps up to so many executors busy.

    Args:
        chance: Decides everything.
        cores: Of an executor.
        most: Executors that there are.
    """

    def between(low: float, high: float) -> float:
        return math.exp(chance.uniform(math.log(low), math.log(high)))

    count = chance.randint(1, 3)
    work = between(0.3, 0.6 * most * cores) / count
    streams, rates, limits = {}, {}, {}
    for name in (f"s{number}" for number in range(count)):
        rate, scv = between(500, 4_000), chance.choice((0.0, 0.02, 0.1, 0.3))
        costs = {
            Phase.PLAN: PhaseCost(between(0.02, 0.15), 0.0, scv),
            Phase.LAUNCH: PhaseCost(between(0.005, 0.03), between(0.0005, 0.004), scv),
            Phase.MAP: PhaseCost(between(0.01, 0.05), work / rate, scv),
            Phase.EXCHANGE: PhaseCost(between(0.005, 0.03), 0.0, scv),
            Phase.COLLECT: PhaseCost(between(0.005, 0.02), 0.0, scv),
            Phase.COMMIT: PhaseCost(0.008),
            Phase.CONSOLIDATE: PhaseCost(0.004),
        }
        rates[name] = rate
        streams[name] = StreamProfile(
            costs,
            closing=chance.choice((0.5, 1.0, 2.0)),
            merged=1.0,
            results=1.0,
            piece=chance.choice((0.05, 0.1, 0.25)),
            regular=0.0,
        )
        limits[name] = between(0.6, 4.0)
    return Truth(Profile("", Equipment(cores, shared=False), streams), rates, limits)


@dataclass(frozen=True)
class _Arrivals:
    """When the rows of a stream come, one piece after the other."""

    piece: Micros
    first: Micros
    """When the first piece does."""
    behind: Micros = 0
    """By so much event times are behind arrivals, so that windows end at another phase of these."""

    def completing(self, end: Micros) -> Micros:
        """Return when the piece comes that completes the window with an end."""
        return self.first + max(0, -(-(end + self.behind - self.first) // self.piece)) * self.piece

    @classmethod
    def drawn(cls, stream: StreamProfile, chance: random.Random | None) -> _Arrivals:
        """Return arrivals at phases that are drawn; all begin together if there is none to draw them."""
        piece = round(MICROS_PER_SECOND * stream.piece)
        if chance is None:
            return cls(piece, NOON + piece)
        return cls(piece, NOON + chance.randint(1, piece), chance.randrange(round(MICROS_PER_SECOND * stream.closing)))


class LatencySink(MemorySink):
    """Notes how long after the arrival of the row that completes it a window's result is there."""

    def __init__(self, clock: VirtualClock, arrivals: Mapping[str, _Arrivals]) -> None:
        super().__init__()
        self.clock, self.arrivals = clock, arrivals
        self.seen: dict[str, list[tuple[float, float]]] = {}
        """Of each query, when a result was there, seconds since the beginning, and its latency."""

    def write(self, results: WindowResults) -> None:
        """Take results."""
        arrivals, now = self.arrivals[results.query], self.clock.monotonic() - NOON
        for end in pc.unique(results.table["window_end"]).cast(pa.int64()).to_pylist():
            arrived = arrivals.completing(end) - NOON
            self.seen.setdefault(results.query, []).append(
                ((now / MICROS_PER_SECOND), (now - arrived) / MICROS_PER_SECOND)
            )


@dataclass
class Played:
    """A run in virtual time."""

    app: App
    clock: VirtualClock
    runner: StagedCutRunner
    sink: LatencySink
    seconds: float
    due: Mapping[str, int] = field(default_factory=dict)
    """Windows of each query that are complete some time before the end."""

    def mean(self, query: str) -> float:
        """Return the mean latency; infinite if results are missing at the end, as a backlog grows then."""
        found = [latency for _, latency in self.sink.seen.get(query, [])]
        if len(found) < self.due[query]:
            return math.inf
        return float(np.mean(found[WARM:]))


def compiled_once() -> AbstractContextManager[Any]:
    """Let Spark compile equal queries once: nothing else needs it."""
    from transom.engine.spark.compile import compile_queries
    from transom.engine.streams import compiling

    made: dict[Any, Any] = {}

    def once(session: Any, schema: Any, rows: Any, queries: Any, *others: Any, **more: Any) -> Any:
        key = schema.json(), rows, tuple(query.name for query in queries), repr(queries)
        if key not in made:
            made[key] = compile_queries(session, schema, rows, queries, *others, **more)
        return made[key]

    return patch.object(compiling, "compile_queries", once)


def virtual_session() -> SparkSession:
    """Return a session that compiles queries, and runs no job."""
    from transom.engine.spark.session import session_builder

    session = session_builder().master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def play(
    session: SparkSession,
    directory: Path,
    truth: Truth,
    cores: int,
    seconds: float,
    tuning: Tuning | None = None,
    seed: int = 0,
    rate_at: Callable[[str, float], float] | None = None,
    costs_at: Callable[[str, float], StreamProfile] | None = None,
    prepare: Callable[[App], None] = lambda app: None,
    phases: random.Random | None = None,
    **settings: Any,
) -> Played:
    """Run a job for so many virtual seconds.

    Args:
        session: For what Spark makes of queries; no job runs.
        directory: For the checkpoint; fresh.
        truth: The job.
        cores: That run tasks.
        seconds: Virtual ones.
        tuning: In force from the beginning.
        seed: Of what happens by chance.
        rate_at: Rows per second of a stream at a second; as in the job if None.
        costs_at: What the phases of a stream cost at a second; as in the job if None.
        prepare: Called before it runs.
        phases: Draws when rows come, and windows end, beside each other; all at once if None.
        **settings: Of the application.
    """
    import transom as tm
    from transom.api.app import App

    streams, clock = truth.profile.streams, VirtualClock(NOON)

    def costs(name: str) -> StreamProfile:
        second = (clock.monotonic() - NOON) / MICROS_PER_SECOND
        return streams[name] if costs_at is None else costs_at(name, second)

    app = App(session, directory, clock=clock, **{"poll": "50 ms", "policy": "fcfs", **settings})
    runner = StagedCutRunner(clock, costs, cores, random.Random(seed))
    app._runner = runner
    arrivals = {name: _Arrivals.drawn(each, phases) for name, each in streams.items()}
    sink = LatencySink(clock, arrivals)
    for name, stream in streams.items():
        source = tm.sources.memory("at timestamp, v bigint")
        made = app.stream(source, event_time="at", name=name).window(f"{round(1_000 * stream.closing)} ms")
        made.agg(n=tm.count()).within(f"{round(1_000 * truth.limits[name])} ms").to(sink, name)
        when = arrivals[name]
        for moment in range(when.first, NOON + round(MICROS_PER_SECOND * seconds) + 1, when.piece):
            second = (moment - NOON) / MICROS_PER_SECOND
            rate = truth.rates[name] if rate_at is None else rate_at(name, second)
            clock.at(moment, lambda *, s=source, m=moment, w=when, r=rate: s.add(_rows(m - w.behind, w.piece, r)))
    clock.at(NOON + round(MICROS_PER_SECOND * seconds), app.stop)
    first = next(iter(streams.values()))

    def on_step(step: str) -> None:
        phase = {"partials written": Phase.COMMIT, "windows closed": Phase.CONSOLIDATE}.get(step)
        if phase is not None:  # the loop's thread is busy meanwhile, the cluster is not
            until = clock.monotonic() + round(MICROS_PER_SECOND * first.cost(phase).fixed)
            while clock.monotonic() < until:
                clock.wait(until, lambda micros: False)

    app._on_step = on_step
    if tuning is not None:
        app._queries.requests.tune(tuning, "a setting of the benchmark")
    prepare(app)
    app.run()
    due = {
        name: max(WARM + 1, int((seconds - 3 * truth.limits[name]) / each.closing) - 1)
        for name, each in streams.items()
    }
    return Played(app, clock, runner, sink, seconds, due)


def _rows(moment: Micros, piece: Micros, rate: float) -> pa.Table:
    """Return the rows of a piece, with event times up to a moment."""
    count = max(1, round(rate * piece / MICROS_PER_SECOND))
    times = moment - piece + (np.arange(count) + 1) * piece // count
    return pa.table({"at": pa.array(times, pa.timestamp("us", "UTC")), "v": pa.array(np.zeros(count, np.int64))})
