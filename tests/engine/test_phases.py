"""The phases of cuts: they are what passes between an arrival and a result, no more and no less."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import transom as tm
from transom.api.app import App
from transom.engine.control.phases import MOST_OPEN, WATCHED, PhaseRecorder
from transom.engine.spark import stages
from transom.engine.streams.cuts import CutOutcome, LoggedCut
from transom.model.phases import OF_A_JOB, OF_WINDOWS, WAITS, CutPhases, Phase
from transom.model.time import VirtualClock
from transom.model.tuning import StreamTuning, Tuning
from transom.scheduling.waits import mean_waits
from transom.settings import Settings
from transom.simulation.virtual import JobCosts, SimulatedCutRunner
from transom.sinks.inmemory import MemorySink

SECOND = 1_000_000
NOON = 1_700_000_000 * SECOND
moments = st.integers(0, 1_000)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for Spark's status store as long as a busy machine needs; an application does without what is not there."""
    monkeypatch.setattr(stages, "BUS", 600_000)


@given(st.lists(st.tuples(moments, st.sampled_from(WAITS)), min_size=1, max_size=6), moments, moments, moments)
def test_mean_waits_are_those_of_single_rows(line: Any, until: int, one: int, other: int) -> None:
    line = sorted(line, key=lambda each: each[0])
    until = max(until, line[-1][0])
    oldest, newest = min(one, other), max(one, other)
    found = mean_waits(line, until, oldest, newest)
    count = 400
    rows = [oldest + (newest - oldest) * (i + 0.5) / count for i in range(count)]
    ends = [*(begin for begin, _ in line[1:]), until]
    for phase in WAITS:
        spans = [(begin, end) for (begin, each), end in zip(line, ends, strict=True) if each is phase]
        spent = [sum(max(0.0, end - max(begin, row)) for begin, end in spans) for row in rows]
        assert SECOND * found.get(phase, 0.0) == pytest.approx(sum(spent) / count, abs=2.6)
    whole = sum(max(0.0, until - max(row, line[0][0])) for row in rows) / count
    assert SECOND * sum(found.values()) == pytest.approx(whole, abs=2.6)


class Watched:
    """An application in virtual time: a group of rows every so often, and what was measured of its cuts."""

    def __init__(self, spark: SparkSession, directory: Path, every: int, costs: dict[str, JobCosts], **settings: Any):
        self.clock = clock = VirtualClock(NOON)
        app = self.app = App(
            spark, directory, clock=clock, **{"poll": "20 ms", "trigger": "100 ms", "policy": "fcfs", **settings}
        )
        app._runner = SimulatedCutRunner(clock, costs.__getitem__)
        self.sink = MemorySink()
        self.cuts: list[CutPhases] = []
        for name in costs:
            source = tm.sources.memory("at timestamp, v bigint")
            app.stream(source, event_time="at", name=name).window("1 second").agg(n=tm.count()).to(self.sink, name)
            for moment in range(NOON, NOON + 10 * SECOND, every):
                clock.at(moment, lambda source=source, moment=moment: source.add(rows_at(moment, every)))
        clock.at(NOON + 10 * SECOND, app.stop)

    def run(self) -> dict[str, list[CutPhases]]:
        def on_step(step: str) -> None:
            self.app._loop.phases.on_cut = self.cuts.append

        self.app._on_step = on_step
        self.progress = self.app.run()
        found: dict[str, list[CutPhases]] = {}
        for cut in self.cuts:
            found.setdefault(cut.stream, []).append(cut)
        return found


def rows_at(moment: int, every: int) -> pa.Table:
    return pa.table({"at": pa.array([moment - every + 1, moment], pa.timestamp("us", "UTC")), "v": pa.array([1, 2])})


@pytest.mark.usefixtures("compiled_once")
def test_the_phases_of_a_stream_alone(spark: SparkSession, tmp_path: Path) -> None:
    """Rows come every 200 ms, a job takes 130 ms: a row waits for the next look at most."""
    watched = Watched(spark, tmp_path, 200_000, {"one": JobCosts(fixed=130_000, row=0.0)})
    cuts = watched.run()["one"]
    assert len(cuts) > 40
    for cut in cuts[1:]:
        assert cut.rows == 2
        assert cut.job == pytest.approx(0.13, abs=0.001)
        assert cut.seconds.get(Phase.LOOK, 0.0) <= 0.021
        assert cut.seconds.get(Phase.TURN, 0.0) <= 0.001
        assert Phase.SLOT not in cut.seconds
        assert cut.batching_at_source == pytest.approx(0.1, abs=0.001)
    completing = [cut for cut in cuts if Phase.DELIVER in cut.seconds]
    assert len(completing) >= 8
    assert all({Phase.CLOSE, Phase.CONSOLIDATE} <= cut.seconds.keys() and cut.results == 1 for cut in completing)
    means = watched.progress.streams[0].phases
    assert means["job"] == pytest.approx(130_000, abs=1_000)
    assert means.keys() - {"look", "turn"} == {"commit", "close", "consolidate", "deliver", "job"}
    assert watched.progress.streams[0].tuning == {"trigger": 100_000, "rows_per_cut": Settings.max_rows_per_cut}
    assert watched.progress.slots == 2


@pytest.mark.usefixtures("compiled_once")
def test_a_trigger_and_a_slow_job_are_the_turn(spark: SparkSession, tmp_path: Path) -> None:
    """Rows every 50 ms for a job of 500 ms: on average a row waits for half of a job, and none for another stream."""
    watched = Watched(spark, tmp_path, 50_000, {"one": JobCosts(fixed=500_000, row=0.0)})
    cuts = watched.run()["one"][2:]
    assert sum(cut.seconds[Phase.TURN] for cut in cuts) / len(cuts) == pytest.approx(0.225, abs=0.03)
    assert all(Phase.SLOT not in cut.seconds for cut in cuts)


@pytest.mark.usefixtures("compiled_once")
def test_other_streams_are_the_slot(spark: SparkSession, tmp_path: Path) -> None:
    costs = dict.fromkeys(("a", "b", "c"), JobCosts(fixed=200_000, row=0.0))
    found = Watched(spark, tmp_path, 200_000, costs, slots=1, policy="round_robin").run()
    for cuts in found.values():
        waited = [cut.seconds.get(Phase.SLOT, 0.0) for cut in cuts[2:]]
        assert 0.1 < sum(waited) / len(waited) < 0.4


@pytest.mark.usefixtures("compiled_once")
def test_phases_add_up_to_the_latency_that_is_measured(spark: SparkSession, tmp_path: Path) -> None:
    """One row at a time completes each window: from its arrival to the result there is nothing but the phases."""
    watched = Watched(spark, tmp_path, SECOND, {"one": JobCosts(fixed=300_000, row=0.0)})
    completing = [cut for cut in watched.run()["one"] if Phase.DELIVER in cut.seconds]
    latency = watched.progress.queries[0].latency
    assert completing[-1].total * SECOND == pytest.approx(latency["p50"], abs=25_000)


def outcome(number: int) -> CutOutcome:
    return CutOutcome(LoggedCut(number, number, number + 1, 1, 100, 100, None, NOON))


def test_results_that_no_sink_takes_hold_back_no_more_than_a_bound() -> None:
    phases, found = PhaseRecorder(), []
    phases.on_cut = found.append
    for number in range(1, 3 * MOST_OPEN):
        cut, now = outcome(number).cut, number * SECOND
        phases.started("s", cut, None, now)
        phases.logged("s", cut, number > 1, now)
        phases.closed("s", cut, ["q"] if number > 1 else [], 1, 10, NOON)
        phases.committed("s", outcome(number), now, now + 10, 100, None, now + 20, NOON)
    assert len(found) == 3 * MOST_OPEN - 1 - MOST_OPEN
    assert all(Phase.DELIVER not in cut.seconds for cut in found)
    assert [cut.number for cut in found] == sorted(cut.number for cut in found)


@pytest.mark.parametrize(("watermark", "close"), [(100, 0.5), (101, None)])
def test_stamps_become_phases(watermark: int, close: float | None) -> None:
    """A watermark beyond that of the cut completes windows by itself: they are not those of the cut."""
    phases, found = PhaseRecorder(), []
    phases.on_cut = found.append
    one, two = outcome(1), replace(outcome(2).cut, watermark=watermark)
    tenths = SECOND // 10
    phases.waits("s", Phase.LOOK, 2 * tenths)
    phases.waits("s", Phase.SLOT, 9 * tenths)
    phases.started("s", one.cut, 4 * tenths, 10 * tenths)
    phases.committed("s", one, 8 * tenths, 15 * tenths, 100, None, 16 * tenths, NOON)
    phases.logged("s", two, True, 21 * tenths)
    if close is not None:
        phases.closed("s", two, ["p", "q"], 7, 2 * tenths, NOON)
        phases.delivered("q", 2, NOON + 3 * tenths)
        phases.delivered("p", 2, NOON + 1 * tenths)
    phases.settle()
    (cut,) = found
    of_windows = {} if close is None else {Phase.CLOSE: close, Phase.CONSOLIDATE: 0.2, Phase.DELIVER: 0.3}
    assert cut.job == pytest.approx(0.5)
    assert cut.seconds == pytest.approx({Phase.LOOK: 0.3, Phase.SLOT: 0.1, Phase.COMMIT: 0.1, **of_windows})


def test_every_eighth_cut_is_watched() -> None:
    phases = PhaseRecorder()
    seen = [phases.watches("s", 0) for _ in range(3 * WATCHED)]
    assert [i for i, watched in enumerate(seen) if watched] == [0, WATCHED, 2 * WATCHED]
    each = PhaseRecorder(every=1)
    assert all(each.watches("s", 0) for _ in range(WATCHED))


@pytest.mark.parametrize(("length", "between"), [(0.3, 8), (0.5, 6), (1.0, 3), (2.9, 2), (20.0, 1)])
def test_of_long_cuts_more_are_watched(length: float, between: int) -> None:
    phases, each = PhaseRecorder(), round(length * SECOND)
    seen = [i for i in range(50) if phases.watches("s", i * each)]
    assert all(after - before <= between for before, after in itertools.pairwise(seen))
    assert seen[1] == between


def test_spark_is_asked_about_each_cut_of_streams_that_are_watched_closely() -> None:
    phases = PhaseRecorder()
    phases.closely.add("s")
    seen = [(phases.watches("s", 0), phases.watches("other", 0)) for _ in range(WATCHED + 1)]
    assert all(closely for closely, _ in seen)
    assert [i for i, (_, other) in enumerate(seen) if other] == [0, WATCHED]
    phases.closely.clear()
    assert not phases.watches("s", 0)


@pytest.mark.usefixtures("compiled_once")
def test_an_application_that_plans_has_spark_asked_about_cuts_that_it_doubts(
    spark: SparkSession, tmp_path: Path
) -> None:
    app = Watched(spark, tmp_path, SECOND, {"one": JobCosts(fixed=130_000, row=0.0)}, plan="auto").app
    asked: list[bool] = []

    def on_step(step: str) -> None:
        app._loop.planner.watch.closely.add("one")
        asked.append(app._loop.phases.watches("one", 0))

    app._on_step = on_step
    app.run()
    assert len(asked) > WATCHED
    assert all(asked)


def test_a_cut_has_the_windows_that_it_completed() -> None:
    phases, found = PhaseRecorder(), []
    phases.on_cut = found.append
    phases.closed("s", outcome(1).cut, ["q"], 5, 10, NOON, windows=3)
    phases.delivered("q", 1, NOON)
    assert [(cut.results, cut.windows) for cut in found] == [(5, 3)]


@pytest.mark.parametrize("application", ["first", pytest.param("second", marks=pytest.mark.slow)])
def test_spark_says_of_every_eighth_cut_what_its_tasks_did(
    spark: SparkSession, tmp_path: Path, application: str
) -> None:
    """The phases of a job are its time; with rows in several tasks there is an exchange.

    The second application of a session has streams and cuts of the same names.
    """
    app = App(spark, tmp_path / "checkpoint", max_rows_per_cut=40, lane="spark")
    source = tm.sources.memory("k string, v bigint, at timestamp")
    source.add([("abc"[i % 3], i, NOON + i * SECOND) for i in range(WATCHED * 40 + 20)])
    stream = app.stream(source, event_time="at")
    stream.group_by("k").window("10 seconds").agg(n=tm.count()).to(MemorySink(), "q")
    app._queries.requests.tune(Tuning(2, {"stream1": StreamTuning(0, 40, 10, 2)}), "a test")
    cuts: list[CutPhases] = []
    jobs = itertools.count()

    def on_step(step: str) -> None:
        next(jobs)
        app._loop.phases.on_cut = cuts.append

    app._on_step = on_step
    app.run(once=True)
    read = [cut for cut in cuts if cut.rows]
    assert len(read) >= WATCHED - 1
    asked = [cut for cut in read if cut.stages]
    assert [cut.number for cut in asked][:1] == [1]
    for cut in asked:
        assert cut.job is not None
        assert sum(cut.seconds[phase] for phase in OF_A_JOB) == pytest.approx(cut.job, abs=0.01)
        assert len(cut.stages) == 2
        assert cut.tasks == cut.stages[0].tasks > 1
        assert cut.allowed == -(-cut.rows // 10)
        assert cut.stages[1].tasks == 2
        assert cut.stages[0].shuffle_bytes > 0
        assert cut.stages[0].cpu > 0
        assert cut.seconds[Phase.MAP] > 0
    assert all(not any(phase in cut.seconds for phase in OF_A_JOB) for cut in read if cut not in asked)
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None
    assert set(OF_WINDOWS) <= set().union(*(cut.seconds for cut in cuts))


@pytest.mark.parametrize("reads", ["rows", "files"])
def test_the_phases_of_cuts_without_spark_sql(spark: SparkSession, tmp_path: Path, reads: str) -> None:
    """What Python workers did is known from them; rows that are in memory need no job of Spark's at all."""
    app = App(spark, tmp_path / "checkpoint", lane="auto", tier="driver")
    rows = [("abc"[i % 3], i, NOON // SECOND + i) for i in range(60)]
    source: Any = tm.sources.memory("k string, v bigint, t bigint")
    if reads == "rows":
        source.add(rows)
    else:
        path = tmp_path / "rows.json"
        path.write_text("".join(f'{{"k":"{k}","v":{v},"t":{t}}}\n' for k, v, t in rows))
        source = tm.sources.files(f"{tmp_path}/*.json", schema="k string, v bigint, t bigint")
    stream = app.stream(source, event_time="timestamp_seconds(t)")
    stream.group_by("k").window("10 seconds").agg(n=tm.count()).to(MemorySink(), "q")
    cuts: list[CutPhases] = []

    def on_step(step: str) -> None:
        phases = app._loop.phases
        phases.on_cut = cuts.append
        for each in phases._open:
            if each.asked is not None:
                each.asked.result(600)

    app._on_step = on_step
    progress = app.run(once=True)
    assert progress is not None
    assert progress.streams[0].native_cuts == 1
    (cut,) = [cut for cut in cuts if cut.rows]
    (stage,) = cut.stages
    assert (cut.tasks, stage.tasks, stage.in_workers, stage.rows) == (1, 1, True, 60)
    assert stage.cpu > 0
    assert stage.input_bytes == (path.stat().st_size if reads == "files" else 0)
    assert cut.job is not None
    assert sum(cut.seconds[phase] for phase in OF_A_JOB) == pytest.approx(cut.job, abs=0.01)
    assert cut.seconds[Phase.MAP] > 0
    assert cut.seconds[Phase.EXCHANGE] == 0
    assert CutPhases.from_json(cut.to_json()) == cut
    assert spark.sparkContext.getLocalProperty("callSite.short") is None
