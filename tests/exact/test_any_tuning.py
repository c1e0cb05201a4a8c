"""What is set while an application runs changes no result, whenever it is set; it is logged, and gone on with."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from exact_helpers import SECOND, Bench, PiecewiseSource, few_examples
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from test_transcripts import TRANSCRIPTS, SimulatedBench, expected, played
from tests.without_jobs import run_without_jobs

import transom as tm
from transom.api.app import App
from transom.engine.changes.requests import Change
from transom.engine.loop import tuning
from transom.engine.spark import jobs, partitions
from transom.errors import DefinitionError
from transom.model.tuning import StreamTuning, Tuning
from transom.settings import Settings
from transom.sinks.inmemory import MemorySink
from transom.sources.inmemory import MemorySource
from transom.sources.schemas import as_struct

STREAMS = ("one", "two")
numbers = st.none() | st.sampled_from([1, 2, 3, 7, 50])
stream_tunings = st.builds(StreamTuning, st.sampled_from([0, 50_000, 200_000, SECOND]), numbers, numbers, numbers)
tunings = st.builds(Tuning, st.integers(1, 3), st.dictionaries(st.sampled_from(STREAMS), stream_tunings))
SETTINGS: list[Tuning] = [
    Tuning(1, {"one": StreamTuning(0, rows_per_cut=20, rows_per_task=4, partitions=3)}),
    Tuning(3, {"one": StreamTuning(rows_per_task=1, partitions=1), "two": StreamTuning(SECOND, 9, 2, 5)}),
    Tuning(2, {"two": StreamTuning(rows_per_cut=1_000)}),
]


def ask(app: App, wanted: Tuning, reason: str = "as the test says") -> Change:
    return app._queries.requests.tune(wanted, reason)


def define_on(sources: Sequence[MemorySource]) -> Callable[[App, MemorySink], None]:
    """Two streams; of the first there are two components."""

    def define(app: App, sink: MemorySink) -> None:
        one, two = (
            app.stream(source, event_time="at", watermark="4 seconds", name=name)
            for name, source in zip(STREAMS, sources, strict=True)
        )
        one.group_by("k").window("10 seconds").agg(n=tm.count(), v=tm.sum("v"), m=tm.max("v")).to(sink, "keys")
        one.window(tm.sliding("20 seconds", "5 seconds")).agg(v=tm.max("v"), n=tm.count()).to(sink, "all")
        two.group_by("k").window("10 seconds").agg(n=tm.count(), v=tm.min("v")).to(sink, "others")

    return define


def sources(*pieces: int) -> list[PiecewiseSource]:
    made = [PiecewiseSource("k string, v bigint, at timestamp", (rows,), 2) for rows in pieces or (60, 50)]
    for number, source in enumerate(made):
        for piece in range(4):
            at = [(piece * 10 + i * 7 % 13 - 30 * (i % 17 == 5)) * SECOND for i in range(30)]
            source.add([("abc"[(i + number) % 3], i, moment) for i, moment in enumerate(at)], partition=piece % 2)
    return made


def in_order() -> list[MemorySource]:
    """Rows of which none can be late, however they are cut."""
    made = [MemorySource(as_struct("k string, v bigint, at timestamp"), 1) for _ in STREAMS]
    for number, source in enumerate(made):
        source.add([("abc"[(i + number) % 3], i, i * SECOND // 3) for i in range(150)])
    return made


def results(bench: Bench) -> dict[str, Any]:
    return {query: bench.rows(query) for query in ("keys", "all", "others")}


def tuned_in(bench: Bench) -> list[dict[str, Any]]:
    """Return the tunings that the log has held."""
    return [record for record in bench.history if record["type"] == "tuning"]


def tune_at(app: App, step: str, these: Iterator[Tuning]) -> Callable[[str], None]:
    def on_step(name: str) -> None:
        if name == step and (wanted := next(these, None)) is not None:
            ask(app, wanted)

    return on_step


def test_any_tuning_at_any_cut_on_spark(
    interpreted: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job of one task or several, with its own number of tasks after the exchange, beside jobs with another one."""
    asked: list[tuple[int, str]] = []
    run_cut = jobs.run_cut

    def run(raw: Any, plan: Any, **options: Any) -> Any:
        asked.append((raw.rdd.getNumPartitions(), raw.sparkSession.conf.get(partitions.SHUFFLE_PARTITIONS)))
        return run_cut(raw, plan, **options)

    plain = Bench(interpreted, tmp_path / "plain", define_on(sources()))
    with monkeypatch.context() as patch:
        run_without_jobs(patch)
        plain.run()
    monkeypatch.setattr(jobs, "run_cut", run)
    tuned = Bench(interpreted, tmp_path / "tuned", define_on(sources()), lane="spark")
    app = tuned.app()
    ask(app, SETTINGS[0])
    tuned.run(app=app, on_step=tune_at(app, "committed", iter(SETTINGS[1:])))
    assert results(tuned) == results(plain)
    assert len(results(plain)["keys"]) > 5
    assert len(tuned_in(tuned)) == len(SETTINGS)
    assert {"1", "3", "5"} <= {number for _, number in asked}
    assert len({tasks for tasks, _ in asked}) > 1
    assert {len(partitions.with_copies(interpreted))} == {1}, "copies are of Transom's own session"


@pytest.mark.usefixtures("in_memory")
@given(given_tunings=st.lists(tunings, max_size=8), crashes=st.lists(st.integers(0, 6), max_size=2))
@few_examples(12)
def test_any_tuning_at_any_step_and_crash(spark: SparkSession, given_tunings: list[Tuning], crashes: list[int]) -> None:
    these = iter(given_tunings)
    with tempfile.TemporaryDirectory() as scratch:
        plain = Bench(spark, Path(scratch) / "plain", define_on(in_order()))
        plain.run()
        tuned = Bench(spark, Path(scratch) / "tuned", define_on(in_order()), max_rows_per_cut=20)
        for crash in [*crashes, None]:
            app = tuned.app()
            step = tune_at(app, "cut logged", these)
            tuned.run(app=app, on_step=step, crash_at=None if crash is None else ("tuning logged", crash))
        assert results(tuned) == results(plain)


@pytest.mark.usefixtures("in_memory")
@pytest.mark.parametrize("step", ["tuning logged", "cut logged", "committed", "before snapshot", "after snapshot"])
def test_a_killed_run_goes_on_with_the_tuning_that_is_logged(spark: SparkSession, tmp_path: Path, step: str) -> None:
    plain = Bench(spark, tmp_path / "plain", define_on(sources(20, 15)))
    plain.run()
    bench = Bench(spark, tmp_path / "tuned", define_on(sources(20, 15)), snapshot_bytes=1)
    made: list[Tuning] = []
    endless = itertools.cycle(SETTINGS)
    progress = None
    for number in range(40):
        app = bench.app()
        found: list[Tuning] = []
        tunes = tune_at(app, "committed", endless)

        def look(name: str, app: App = app, found: list[Tuning] = found, tunes: Any = tunes) -> None:
            if app._loop is not None and not found:
                found.append(app._loop.tuner.tuning)
            tunes(name)

        before = tuned_in(bench)
        progress = bench.run(
            app=app, on_step=look, crash_at=(step, 3 + number // 5)
        )  # later than two commits of one turn
        if before and found:
            assert found[0].to_json() == before[-1]["tuning"]
            made += found
        if progress is not None:
            break
    assert progress is not None
    assert made
    assert results(bench) == results(plain)


@pytest.mark.usefixtures("in_memory")
def test_it_is_logged_with_its_reason_before_the_first_cut_that_follows_it(spark: SparkSession, tmp_path: Path) -> None:
    bench = Bench(spark, tmp_path, define_on(sources()))
    app = bench.app()
    wanted = Tuning(3, {"one": StreamTuning(120_000, rows_per_cut=7)})
    first = ask(app, wanted, "the rate rises")
    wrong = ask(app, Tuning(2, {"three": StreamTuning()}))
    same = ask(app, Tuning(3))
    progress = bench.run(app=app)
    assert progress is not None
    assert first.wait() is None
    assert same.done
    with pytest.raises(DefinitionError, match="no stream 'three'"):
        wrong.wait()
    (record,) = tuned_in(bench)
    assert record["reason"] == "the rate rises"
    assert record["tuning"]["slots"] == 3
    assert record["tuning"]["streams"]["one"] == {"trigger": 150_000, "rows_per_cut": 7}, "a multiple of one look"
    kinds = [each["type"] for each in bench.history]
    assert kinds.index("tuning") < kinds.index("cut")
    note = "Tuned, the rate rises: slots 2 -> 3; one: trigger 200 ms -> 150 ms; one: rows_per_cut 750,000 -> 7."
    assert note in progress.notes


@pytest.mark.usefixtures("in_memory")
def test_with_other_settings_it_begins_anew(spark: SparkSession, tmp_path: Path) -> None:
    made = sources()
    bench = Bench(spark, tmp_path, define_on(made))
    app = bench.app()
    ask(app, SETTINGS[0])
    bench.run(app=app, close_all=False)

    def again(**settings: Any) -> Tuning:
        made[0].add([("a", 1, 100 * SECOND)])
        bench.settings = settings
        app, found = bench.app(), []
        bench.run(app=app, close_all=False, on_step=lambda _: found.append(app._loop.tuner.tuning))
        return found[0]

    kept = again()
    assert kept.slots == 1
    assert kept.of("one") == StreamTuning(0, 20, 4, 3)
    fresh = again(slots=4)
    assert fresh.slots == 4
    assert fresh.of("one") == StreamTuning(rows_per_cut=Settings.max_rows_per_cut)


@pytest.mark.usefixtures("in_memory")
def test_spark_connect_has_one_number_of_tasks_for_all_jobs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "is_connect", lambda session: True)
    bench = Bench(spark, tmp_path, define_on(in_order()))
    app = bench.app()
    refused, made = ask(app, SETTINGS[0]), ask(app, Tuning(3, {"one": StreamTuning(0)}))
    bench.run(app=app)
    with pytest.raises(DefinitionError, match=r"partitions of 'one': a Spark Connect session"):
        refused.wait()
    assert made.wait() is None
    assert [record["tuning"]["slots"] for record in tuned_in(bench)] == [3]


class TunedBench(SimulatedBench):
    """In virtual time, with another tuning at each commit."""

    def run(self, **options: Any) -> Any:
        app = self.app()
        cycle = itertools.cycle([Tuning(n, {"stream1": StreamTuning(n * 100_000, n, n, n)}) for n in (1, 2, 3)])
        return super().run(app=app, on_step=tune_at(app, "committed", cycle), **options)


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcripts_with_another_tuning_at_each_cut(path: Path, interpreted: SparkSession, tmp_path: Path) -> None:
    assert played(TunedBench, interpreted, tmp_path, path) == expected(path)
