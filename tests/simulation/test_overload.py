"""Overload comes and goes in virtual time: results stay in time, and what was left out is told to the row."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import transom as tm
from transom.api.app import App
from transom.engine.execution.onspark import run_on_spark
from transom.engine.spark.columns import Thinning
from transom.engine.state.shares import Stretch
from transom.engine.streams.cuts import CutJob, CutOutcome, LoggedCut
from transom.engine.streams.stream import RunningStream
from transom.errors import DefinitionError
from transom.model.time import VirtualClock
from transom.simulation.virtual import JobCosts, SimulatedCutRunner
from transom.sinks.base import WindowResults
from transom.sinks.inmemory import MemorySink
from transom.sources.inmemory import MemorySource

pytestmark = pytest.mark.usefixtures("compiled_once")

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
        self.done.append(app.run(on_progress=lambda progress: self.notes.extend(progress.notes)))
        return self

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


def test_overload_comes_and_goes(spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path, {0: 400, 8: 2_000, 24: 400}, 34).run(spark)
    assert world.read + world.dead["overload"] == world.offered
    assert len(world.notes) == 2
    assert "pieces are left out" in world.notes[0]
    assert "reads everything again" in world.notes[1]
    assert max(world.took_from(0)) <= LIMIT + EVERY / SECOND
    offered = {end: 2_000 if 8 < end <= 24 else 400 for end in world.results}
    for end, row in world.results.items():
        near = 0.1 if end == 25 else 0.05  # pieces with rows from before and after the change are taken to be even
        assert row["shed_share"] == pytest.approx(1 - row["n"] / offered[end], abs=near)
        assert row["shed_rows"] == (None if row["shed_share"] else 0)
    before, during, after = (
        [row for end, row in world.results.items() if first < end <= last]
        for first, last in ((0, 8), (12, 23), (29, 33))
    )
    for row in (*before, *after):
        assert (row["n"], row["shed_share"]) == (400, 0.0)
    least = min(row["n"] for row in during) / 2_000
    assert least >= 0.8 / 2
    assert sum(row["n"] for row in during) >= 0.8 / 2 * 2_000 * len(during)


@pytest.mark.parametrize(
    "rate, noise, most", [(700, 0.1, 0), (2_000, 0.1, 1), pytest.param(1_100, 0.3, 1, marks=pytest.mark.slow)]
)
def test_noise_makes_nothing_flap(rate: int, noise: float, most: int, spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path, {0: 400, 8: rate}, 40, noise=noise).run(spark)
    assert len(world.notes) <= 2 * most
    assert bool(world.dead.get("overload")) == bool(most)
    assert max(world.took_from(9)) <= LIMIT


@pytest.mark.parametrize("other, window", [(300, "1 second"), pytest.param(300, "10 seconds", marks=pytest.mark.slow)])
def test_results_are_in_time_beside_another_stream(
    other: int, window: str, spark: SparkSession, tmp_path: Path
) -> None:
    """It has the one slot for a part of the time, and its runs are waited for."""
    world = World(tmp_path, {0: 400, 8: 2_000}, 40, noise=0.1, window=window, other=other).run(spark)
    late = [took for took in world.took_from(12) if took > LIMIT]
    assert len(late) <= 1
    assert world.read + world.dead["overload"] == world.offered


def test_nothing_is_left_out_where_that_would_not_help(spark: SparkSession, tmp_path: Path) -> None:
    """A job without rows takes as long as the limit."""
    world = World(tmp_path, {0: 400, 8: 2_000}, 14, limit="100 ms").run(spark)
    assert "overload" not in world.dead
    (note,) = world.notes
    assert "it would not help. State a longer limit" in note


def test_late_and_bad_rows_are_counted_apart(spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path, {0: 400, 6: 2_000, 14: 0}, 16, odd=True).run(spark)
    world.app(spark).run(once=True, close_all=True)
    in_windows = sum(row["n"] for row in world.results.values())
    assert world.read + world.dead["overload"] == world.offered
    assert in_windows + world.dead["late"] + world.dead["null event time"] == world.read


@pytest.mark.parametrize("jump", [-3_600, 3_600])
def test_a_wall_clock_that_is_set_leaves_nothing_out(jump: int, spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path, {0: 400}, 20)
    world.clock.at(NOON + 12 * SECOND, lambda: world.clock.step(jump * SECOND))
    assert "overload" not in world.run(spark).dead


def test_nothing_is_left_out_of_what_came_before_the_start(spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path, {0: 0}, 30)
    world.clock.wait(NOON + 2 * SECOND, lambda now: False)
    for _ in range(20):
        world._arrive(world._rows(world.clock.now() - SECOND, 400))
    assert "overload" not in world.run(spark, max_rows_per_cut=500).dead
    assert world.read == world.offered


def test_all_input_at_once_is_read_whole(spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path, {0: 0}, 1)
    for _ in range(20):
        world._arrive(world._rows(NOON, 400))
    world.done.append(world.app(spark, max_rows_per_cut=400).run(once=True))
    assert world.read == world.offered == 8_000


def test_a_query_that_wants_all_rows_gets_them(spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path, {0: 400, 6: 1_500}, 14)
    app = world.app(spark)
    app._streams["clicks"].window("2 seconds").agg(n=tm.count()).to(MemorySink(), "all")
    world.clock.at(NOON + 20 * SECOND, app.stop)
    world.done.append(app.run(on_progress=lambda progress: world.notes.extend(progress.notes)))
    assert "overload" not in world.dead
    assert sum("since all wants all rows" in note for note in world.notes) == 1


@pytest.mark.parametrize("restarted", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_query_that_comes_later_has_no_window_of_which_something_was_left_out(
    restarted: bool, spark: SparkSession, tmp_path: Path
) -> None:
    """Windows whose panes are there may lack rows; nothing later than the largest event time that is believed does."""
    world, whole = World(tmp_path, {0: 400, 6: 2_000, 16: 400}, 30, ahead="3 seconds"), MemorySink()
    app = world.app(spark, snapshot_bytes=1)

    def add() -> None:
        world.stream.window("4 seconds").agg(n=tm.count()).to(whole, "whole")

    if restarted:
        world.clock.at(NOON + 14 * SECOND, app.stop)
        app.run()
        app = world.app(spark)
        add()
    else:
        world.clock.at(NOON + 14 * SECOND, add)
    world.clock.at(NOON + 38 * SECOND, app.stop)
    world.done.append(app.run())
    assert world.dead.get("overload") or restarted
    assert len(whole.rows("whole")) >= 2
    assert {row["n"] for row in whole.rows("whole")} == {1_600}


def test_without_a_bound_on_event_times_a_query_that_wants_all_rows_comes_too_late(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = World(tmp_path, {0: 400, 6: 2_000}, 20, ahead=None)
    app = world.app(spark)
    world.clock.at(NOON + 14 * SECOND, app.stop)
    app.run()
    app = world.app(spark)
    world.stream.window("4 seconds").agg(n=tm.count()).to(MemorySink(), "whole")
    with pytest.raises(DefinitionError, match="'whole': rows of its stream were left out"):
        app.run()


def test_what_may_not_be_left_out_is_logged_and_planned_as_ever(spark: SparkSession, tmp_path: Path) -> None:
    cuts = {}
    for name, within in (("shed", {"on_overload": "shed"}), ("delay", {"on_overload": "delay"}), ("plain", {})):
        world = World(tmp_path / name, {0: 400}, 5, within=within)
        app = world.app(spark)
        logged = cuts.setdefault(name, [])
        app._on_step = lambda step, app=app, logged=logged: logged.extend(
            cut.to_json() for cut in app._loop.cuts.logged.values() if step == "cut logged"
        )
        world.clock.at(NOON + 8 * SECOND, app.stop)
        world.done.append(app.run())
    assert cuts["plain"] == cuts["delay"]
    assert not any("shed" in cut for cut in cuts["delay"])
    assert all(cut["shed"]["units"] == () for cut in cuts["shed"] if cut["start"] != cut["end"])


class Killed(BaseException):
    """Ends a run as a kill does."""


SOON = ("cut logged", "committed")
LATER = ("windows closed", "job done", "partials written", "delivered", "delivery logged")


@pytest.mark.parametrize("step", [*SOON, *(pytest.param(step, marks=pytest.mark.slow) for step in LATER), "snapshot"])
def test_killed_under_overload_it_goes_on_as_logged(step: str, spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path, {0: 400, 6: 2_000}, 16)
    logged: dict[int, LoggedCut] = {}
    killed_at = NOON + (11 if step != "snapshot" else 99) * SECOND

    def watch(app: App, may_kill: bool) -> None:
        def on_step(name: str) -> None:
            for cut in app._loop.cuts.logged.values():
                assert logged.setdefault(cut.number, cut) == cut
            if may_kill and name == step and world.clock.now() > killed_at:
                raise Killed

        app._on_step = on_step

    first, second = world.app(spark, snapshot_bytes=1 if step == "snapshot" else 1 << 30), world.app(spark)
    watch(first, True)
    watch(second, False)
    if step == "snapshot":
        world.clock.at(NOON + 11 * SECOND, first.stop)
        first.run()
    else:
        with pytest.raises(Killed):
            first.run()
    world.clock.at(NOON + 30 * SECOND, second.stop)
    second.run()
    kept = [
        moment // SECOND
        for cut in logged.values()
        for moment in world.source.rows(cut.start, cut.end, cut.left_out)["at"].cast(pa.int64()).to_pylist()
    ]
    assert any(cut.left_out for cut in logged.values())
    for end, row in world.results.items():
        assert row["n"] == kept.count(NOON // SECOND + end - 1)
        shed = any(
            cut.shed is not None and any(each.dropped and _over(each, end) for each in cut.shed.stretches)
            for cut in logged.values()
        )
        assert (row["shed_share"] > 0) == shed == (row["shed_rows"] is None)


def _over(stretch: Stretch, end: int) -> bool:
    """Tell whether a stretch may hold rows of the window that ends at a second, by cells of a quarter of a second."""
    cell, edge = SECOND // 4, NOON + end * SECOND
    return stretch.first // cell * cell < edge and -(-stretch.last // cell) * cell > edge - SECOND


def test_files_that_are_left_out_are_dead_letters(spark: SparkSession, tmp_path: Path) -> None:
    """Spark computes what the model says how long it takes."""
    clock, sink, here = VirtualClock(NOON), MemorySink(), tmp_path / "in"
    here.mkdir()

    def write(moment: int, rows: int) -> None:
        path = here / f"{moment}.json"
        path.write_text("".join(f'{{"at": {moment - n}}}\n' for n in range(rows)))
        os.utime(path, ns=(moment * 1_000,) * 2)

    for number in range(10 * 5):
        moment = NOON + (number + 1) * SECOND // 5
        clock.at(moment, partial(write, moment, 60 if number < 25 else 500))
    app = App(spark, tmp_path / "checkpoint", clock=clock, slots=1, trigger="100 ms", poll="50 ms")
    costs = JobCosts(fixed=100_000, row=1_000.0, cores=1)
    app._runner = SimulatedCutRunner(clock, costs, work=run_on_spark)
    source = tm.sources.files(str(here / "*.json"), schema="at long")
    stream = app.stream(source, event_time="timestamp_micros(at)", name="clicks")
    stream.window("1 second").agg(n=tm.count()).within("2 seconds", on_overload="shed").to(sink, "q")
    clock.at(NOON + 25 * SECOND, app.stop)
    done = app.run()
    app.run(once=True, close_all=True)
    letters = pq.read_table(tmp_path / "checkpoint" / "dead-letters" / "clicks").to_pylist()
    assert {letter["reason"] for letter in letters} == {"overload"}
    left_out = {Path(letter["record"]) for letter in letters}
    assert len(left_out) == len(letters)
    assert left_out < set(here.iterdir())
    rows = {path: len(path.read_text().splitlines()) for path in here.iterdir()}
    results = sink.to_table("q").to_pylist()
    assert sum(row["n"] for row in results) == sum(n for path, n in rows.items() if path not in left_out)
    assert done.streams[0].dead_letters["overload"] == pytest.approx(sum(rows[path] for path in left_out), rel=0.2)
    assert results[0]["shed_share"] == 0.0
    assert max(row["shed_share"] for row in results) > 0.3


def test_thinning_is_even_repeatable_and_compiled_once(spark: SparkSession) -> None:
    rows = spark.range(16_000)
    five = Thinning(5, 7)(rows)
    assert five.count() == Thinning(5, 7)(rows).count() == pytest.approx(5_000, rel=0.05)
    assert Thinning(16, 7)(rows).count() == 16_000
    assert five.exceptAll(Thinning(6, 7)(rows)).isEmpty()
    other = Thinning(5, 8)(rows)
    assert not five.exceptAll(other).isEmpty()

    def code(frame: DataFrame) -> list[str]:
        stages = frame._jdf.queryExecution().debug().codegenToSeq()
        return [stages.apply(number)._2() for number in range(stages.size())]

    assert code(five) == code(other) != code(Thinning(6, 7)(rows))


class ThinningRunner(SimulatedCutRunner):
    """Jobs whose rows cost a twentieth before the place where they are thinned."""

    def submit(self, stream: RunningStream, job: CutJob) -> Future[CutOutcome]:
        part = 1.0 if job.cut.shed is None else job.cut.shed.sixteenths / 16
        self._costs_of = lambda _: JobCosts(fixed=100_000, row=1_000.0 * (0.05 + 0.95 * part), cores=1)
        return super().submit(stream, job)


@pytest.mark.slow
def test_rows_are_thinned_before_a_costly_map(spark: SparkSession, tmp_path: Path) -> None:
    """Of a source that cannot leave out pieces, so that all of it is read."""
    clock, sink = VirtualClock(NOON), MemorySink()
    source = tm.sources.generator(
        {"v": "id", "event_time": "event_time"}, rows_per_second=2_000, start=NOON, rows=40_000
    )
    app = App(spark, tmp_path, clock=clock, slots=1, trigger="200 ms", poll="50 ms")
    app._runner = ThinningRunner(clock, JobCosts(), work=run_on_spark)
    steps: dict[int, int] = {}

    def on_step(name: str) -> None:
        steps.update((cut.number, cut.shed.sixteenths) for cut in app._loop.cuts.logged.values() if cut.shed)

    app._on_step = on_step
    rows = app.stream(source, event_time="event_time").map(lambda df: df.withColumn("w", df.v + 1), costly=True)
    rows.window("1 second").agg(n=tm.count(), odd=tm.sum("v % 2")).within("3 seconds", on_overload="shed").to(sink, "q")
    clock.at(NOON + 24 * SECOND, app.stop)
    done = app.run().streams[0]
    results = sink.to_table("q").to_pylist()[5:-4]
    thinned = [row for row in results if row["shed_share"]]
    assert len(thinned) > 5
    for row in thinned:
        assert row["n"] == pytest.approx(2_000 * (1 - row["shed_share"]), rel=0.15)
    counted, odd = (sum(row[name] for row in thinned) for name in ("n", "odd"))
    assert odd == pytest.approx(counted / 2, rel=0.05)
    assert min(row["n"] for row in results) >= 2_000 / 16 * 2 * 0.7
    assert sum(row["n"] for row in results[-5:]) >= 0.3 * 5 * 2_000
    assert done.dead_letters["overload"] > 0
    assert len(set(steps.values())) <= 16
    letters = pq.read_table(tmp_path / "dead-letters" / "stream1").to_pylist()
    assert {letter["reason"] for letter in letters} == {"overload"}
