"""What overload leaves out when Spark computes the results: files, each a dead letter, and rows before a costly map."""

from __future__ import annotations

import os
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from overload_world import NOON, SECOND
from pyspark.sql import DataFrame, SparkSession
from tests.interpreting import compiling

import transom as tm
from transom.api.app import App
from transom.engine.execution.onspark import run_on_spark
from transom.engine.spark.columns import Thinning
from transom.engine.streams.cuts import CutJob, CutOutcome
from transom.engine.streams.stream import RunningStream
from transom.model.time import VirtualClock
from transom.simulation.virtual import JobCosts, SimulatedCutRunner
from transom.sinks.inmemory import MemorySink

pytestmark = pytest.mark.usefixtures("compiled_once")


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
    rows = compiling(spark).range(16_000)
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
    """Of a source that cannot leave out pieces, so that all of it is read; a query before the map has all rows."""
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
    every = app.stream(source, event_time="event_time")
    every.window("1 second").agg(n=tm.count()).within("3 seconds").to(sink, "every")
    rows = every.map(lambda df: df.withColumn("w", df.v + 1), costly=True)
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
    whole = sink.to_table("every")
    assert set(whole["n"].to_pylist()[:-1]) == {2_000}
    assert "shed_share" not in whole.column_names
    assert done.dead_letters["overload"] > 0
    assert len(set(steps.values())) <= 16
    letters = pq.read_table(tmp_path / "dead-letters" / "stream1").to_pylist()
    assert {letter["reason"] for letter in letters} == {"overload"}
