"""The real loop, scheduler and state in virtual time: which stream runs next, and when its results are there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

import transom as tm
from transom.api.app import App
from transom.engine.streams.cuts import CutJob, CutOutcome
from transom.engine.streams.stream import RunningStream
from transom.errors import DefinitionError
from transom.model.time import VirtualClock
from transom.simulation.virtual import JobCosts, SimulatedCutRunner
from transom.sinks.base import WindowResults
from transom.sinks.inmemory import MemorySink

pytestmark = pytest.mark.usefixtures("compiled_once")

SECOND = 1_000_000
NOON = 1_700_000_000 * SECOND
EVERY = SECOND // 5
"""Rows arrive so often."""


@dataclass(frozen=True)
class Feed:
    """A stream with one query; rows arrive in groups, with event times up to their arrival."""

    rate: int
    """Rows per second."""
    window: int
    """Seconds."""
    limit: str = "1 second"
    first: float = 0.0
    """Arrival of the first group, seconds."""
    last: float = 1e9


class RecordingRunner(SimulatedCutRunner):
    """Notes when the job of which stream started."""

    def __init__(self, clock: VirtualClock, costs: Callable[[str], JobCosts]) -> None:
        super().__init__(clock, costs)
        self.clock = clock
        self.starts: list[tuple[float, str, int]] = []
        self.ends: list[tuple[float, str]] = []

    def submit(self, stream: RunningStream, job: CutJob) -> Future[CutOutcome]:
        self.starts.append((self.now(), stream.name, job.cut.rows))
        future = super().submit(stream, job)
        future.add_done_callback(lambda _: self.ends.append((self.now(), stream.name)))
        return future

    def now(self) -> float:
        return (self.clock.monotonic() - NOON) / SECOND


class CountingClock(VirtualClock):
    """Counts how often somebody waits."""

    waits = 0

    def wait(self, until: int, wake: Callable[[int], bool]) -> None:
        self.waits += 1
        super().wait(until, wake)


class TimedSink(MemorySink):
    """Notes how long after its end a window's results are there; refuses what comes at some times."""

    def __init__(self, clock: VirtualClock, refuses: tuple[float, float] = (0, 0)) -> None:
        super().__init__()
        self.clock, self.refuses = clock, refuses
        self.latencies: dict[str, list[float]] = {}

    def write(self, results: WindowResults) -> None:
        if self.refuses[0] <= (self.clock.monotonic() - NOON) / SECOND < self.refuses[1]:
            raise OSError("the disk is away")
        super().write(results)
        for end in pc.unique(results.table["window_end"]).cast(pa.int64()).to_pylist():
            self.latencies.setdefault(results.query, []).append((self.clock.monotonic() - end) / SECOND)


@dataclass
class Played:
    starts: list[tuple[float, str, int]]
    ends: list[tuple[float, str]]
    latencies: dict[str, list[float]]
    seconds: float
    costs: dict[str, float]
    """Seconds of a job of 400 rows of each stream, as it was learned."""
    waits: int
    """How often the loop waited."""
    counts: dict[str, dict[int, int]]
    """Rows of each window by its end."""

    def gaps(self, name: str) -> list[float]:
        """Return the times between two starts of a stream, and after the last one, seconds."""
        starts = [start for start, stream, _ in self.starts if stream == name]
        return [b - a for a, b in pairwise([*starts, self.seconds])]


def play(
    spark: SparkSession,
    directory: Path,
    feeds: dict[str, Feed],
    costs: dict[str, JobCosts],
    seconds: float,
    steps: Sequence[tuple[float, int]] = (),
    refuses: tuple[float, float] = (0, 0),
    **settings: object,
) -> Played:
    """Run an application for so many virtual seconds; the wall clock is set by so much at some of them."""
    clock = CountingClock(NOON)
    for second, by in steps:
        clock.at(NOON + round(second * SECOND), lambda by=by: clock.step(by))  # type: ignore[misc]
    app = App(spark, directory, clock=clock, **{"slots": 1, "trigger": "100 ms", "poll": "20 ms", **settings})
    runner = app._runner = RecordingRunner(clock, costs.__getitem__)
    sink = TimedSink(clock, refuses)
    for name, feed in feeds.items():
        source = tm.sources.memory("at timestamp, v bigint")
        stream = app.stream(source, event_time="at", name=name)
        stream.window(f"{feed.window} seconds").agg(n=tm.count()).within(feed.limit).to(sink, name)
        moment = NOON + round(feed.first * SECOND)
        while moment <= min(NOON + seconds * SECOND, NOON + feed.last * SECOND):
            clock.at(moment, lambda source=source, feed=feed, moment=moment: source.add(group(feed, moment)))
            moment += EVERY
    clock.at(NOON + round(seconds * SECOND), app.stop)
    learned: dict[str, float] = {}
    app._on_step = lambda step: learned.update(costs_of(app)) if step == "job done" else None
    app.run()
    tables = {name: sink.to_table(name) for name in feeds}
    counts = {
        name: dict(zip(table["window_end"].cast(pa.int64()).to_pylist(), table["n"].to_pylist(), strict=True))
        for name, table in tables.items()
        if table is not None
    }
    return Played(runner.starts, runner.ends, sink.latencies, seconds, learned, clock.waits, counts)


def costs_of(app: App) -> dict[str, float]:
    known = app._loop.scheduler._estimates.items()
    return {name: float(one.runs.costs.costs.job(np.asarray(400.0))) for name, one in known}


def group(feed: Feed, moment: int) -> pa.Table:
    count = feed.rate * EVERY // SECOND
    times = moment - EVERY + (np.arange(count) + 1) * EVERY // count
    return pa.table({"at": pa.array(times, pa.timestamp("us", "UTC")), "v": pa.array(np.arange(count))})


HEAVY, LIGHT = Feed(2_000, 10, "5 seconds"), Feed(500, 2, "500 ms")
COSTS = {
    "heavy": JobCosts(fixed=100_000, row=350.0, cores=1),
    "light": JobCosts(fixed=100_000, row=100.0, cores=1),
}


def test_results_come_when_the_cost_model_says(spark: SparkSession, tmp_path: Path) -> None:
    costs = {"one": JobCosts(fixed=300_000, row=100.0, cores=1)}
    found = play(spark, tmp_path, {"one": Feed(1_000, 1)}, costs, 10)
    took = [end - start for (start, *_), (end, _) in zip(found.starts, found.ends, strict=True)]
    assert took == pytest.approx([0.3 + 1e-4 * rows for *_, rows in found.starts])
    assert min(found.latencies["one"]) > 0.3
    assert max(found.latencies["one"]) < 2 * max(took) + 0.3


def test_the_same_scenario_runs_the_same_way(spark: SparkSession, tmp_path: Path) -> None:
    feeds = {"heavy": HEAVY, "light": LIGHT}
    one, other = (play(spark, tmp_path / name, feeds, COSTS, 6) for name in "ab")
    assert one == other


def test_klink_gives_results_sooner_than_first_come_first_served(spark: SparkSession, tmp_path: Path) -> None:
    feeds = {"heavy": HEAVY, "light": LIGHT}
    mean = {}
    for policy in ("klink", "fcfs"):
        found = play(spark, tmp_path / policy, feeds, COSTS, 40, policy=policy)
        settled = [each for some in found.latencies.values() for each in some[len(some) // 4 :]]
        mean[policy] = fmean(settled)
    assert mean["klink"] < 0.9 * mean["fcfs"]


OVERLOAD = {"heavy": HEAVY, "light": LIGHT, "other": Feed(1_500, 2)}
OVERLOAD_COSTS = {**COSTS, "other": JobCosts(fixed=100_000, row=300.0, cores=1)}


@pytest.mark.parametrize("policy", ["klink", "highest_rate", "streambox"])
def test_no_stream_waits_longer_than_the_bound(policy: str, spark: SparkSession, tmp_path: Path) -> None:
    settings = {"policy": policy, "cycle": "600 ms"}
    found = play(spark, tmp_path, OVERLOAD, OVERLOAD_COSTS, 15, longest_wait="3 seconds", **settings)
    longest = max(end - start for (start, *_), (end, _) in zip(found.starts, found.ends, strict=False))
    bound = 3 + len(OVERLOAD) * longest + 0.1
    assert bound < 7
    assert all(max(found.gaps(name)) <= bound for name in OVERLOAD)


def test_without_the_bound_a_stream_starves(spark: SparkSession, tmp_path: Path) -> None:
    found = play(spark, tmp_path, OVERLOAD, OVERLOAD_COSTS, 15, policy="highest_rate", cycle="600 ms")
    assert max(max(found.gaps(name)) for name in OVERLOAD) > 7


def test_fair_runs_all_streams_at_once_and_they_share_the_cores(spark: SparkSession, tmp_path: Path) -> None:
    feeds = {"a": Feed(1_000, 1, last=0), "b": Feed(1_000, 1, last=0)}
    costs = dict.fromkeys(feeds, JobCosts(fixed=400_000, row=0.0, cores=1))
    found = play(spark, tmp_path, feeds, costs, 3, policy="fair")
    assert [name for *_, name in found.ends] == ["a", "b"]
    assert {start for start, *_ in found.starts} == {found.starts[0][0]}
    assert [end - found.starts[0][0] for end, _ in found.ends] == pytest.approx([0.8, 0.8])


def test_what_only_spark_computes_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    clock = VirtualClock(NOON)
    app = App(spark, tmp_path, clock=clock)
    app._runner = SimulatedCutRunner(clock, JobCosts())
    source = tm.sources.memory("at timestamp, v bigint")
    source.add([(NOON, 1)])
    app.stream(source, event_time="at").window("1 second").agg(m=tm.quantile("v", 0.5)).to(MemorySink(), "q")
    with pytest.raises(DefinitionError, match=r"not computed without Spark.*work=run_on_spark"):
        app.run(once=True)


HOUR = 3_600 * SECOND
JUMPS = {
    "forward": [(4.05, HOUR)],
    "back": [(4.05, -HOUR)],
    "both ways": [(2.05, -HOUR), (4.05, 2 * HOUR), (4.65, -3 * HOUR), (8.05, 2 * HOUR)],
}


@pytest.mark.parametrize("policy", ["round_robin", "klink"])
@pytest.mark.parametrize("jumps", JUMPS)
def test_a_wall_clock_that_is_set_changes_nothing(policy: str, jumps: str, spark: SparkSession, tmp_path: Path) -> None:
    """Triggers, costs, retries of sinks and the number of turns of the loop are those of a clock that is not set."""
    feeds, options = {"heavy": HEAVY, "light": LIGHT}, {"policy": policy, "refuses": (3.5, 5.5)}
    still, set_ = (
        play(spark, tmp_path / name, feeds, COSTS, 14, steps, **options)  # type: ignore[arg-type]
        for name, steps in (("still", []), ("set", JUMPS[jumps]))
    )
    assert set_.costs == {name: pytest.approx(found, rel=0.25) for name, found in still.costs.items()}
    assert set_.waits < 1.2 * still.waits
    for name in feeds:
        assert max(set_.gaps(name)) <= max(still.gaps(name)) + (2.0 if policy == "klink" else 0)
    if policy == "round_robin":
        assert (set_.starts, set_.ends, set_.latencies) == (still.starts, still.ends, still.latencies)
        assert set_.counts == still.counts
    for name in feeds:
        shared = set_.counts[name].keys() & still.counts[name].keys()
        assert len(shared) >= len(still.counts[name]) - 1
        assert all(set_.counts[name][end] == still.counts[name][end] for end in shared)
