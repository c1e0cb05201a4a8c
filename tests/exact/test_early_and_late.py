"""Early results and corrections in whole applications: crashes, restarts and sinks included."""

from __future__ import annotations

from pathlib import Path

import pytest
from exact_helpers import NOON, SECOND, Bench, PiecewiseSource
from pyspark.sql import SparkSession

import transom as tm
from transom.api.app import App
from transom.errors import DefinitionError
from transom.sinks.inmemory import MemorySink

pytestmark = pytest.mark.usefixtures("compiled_once")

START = NOON - NOON % (60 * SECOND)


def at(second: float) -> int:
    return START + int(second * SECOND)


def bench_of(spark: SparkSession, directory: Path, source: PiecewiseSource, **timing: str) -> Bench:
    def define(app: App, sink: MemorySink) -> None:
        stream = app.stream(source, event_time="at", watermark="0 seconds")
        grouped = stream.group_by("k")
        grouped.window("10 seconds", **timing).agg(n=tm.count(), top=tm.max("x")).to(sink, "live")
        grouped.window("10 seconds").agg(n=tm.count(), top=tm.max("x")).to(sink, "once")

    return Bench(spark, directory, define)


def rows_of(bench: Bench) -> list[tuple[float, str, int, int, int]]:
    table = bench.sink.to_table("live")
    found = [] if table is None else table.to_pylist()
    return [
        ((r["window_end"].timestamp() * SECOND - START) / SECOND, r["k"], r["n"], r["top"], r["revision"])
        for r in found
    ]


def test_late_rows_within_the_lateness_correct_the_result_and_later_ones_are_dead_letters(spark, tmp_path):
    source = PiecewiseSource("k string, x int, at timestamp", (3, 1, 1, 1, 1, 1))
    source.add([("a", 1, at(1)), ("b", 2, at(2)), ("a", 5, at(11))])
    source.add([("a", 9, at(3))])  # closed at 11, final at 15
    source.add([("c", 7, at(16))])
    source.add([("b", 8, at(4))])
    bench = bench_of(spark, tmp_path, source, lateness="5 seconds")
    bench.run()
    assert rows_of(bench) == [
        (10, "a", 1, 1, 0),
        (10, "b", 1, 2, 0),
        (10, "a", 2, 9, 1),
        (20, "a", 1, 5, 0),
        (20, "c", 1, 7, 0),
    ]
    letters = bench.letters()
    assert [(letter["reason"], sorted(letter["queries"])) for letter in letters] == [
        ("late", ["once"]),
        ("late", ["live", "once"]),
    ]
    latest = bench.sink.latest("live")
    assert latest is not None
    assert [(r["k"], r["n"]) for r in latest.to_pylist()] == [("b", 1), ("a", 2), ("a", 1), ("c", 1)]


def test_early_results_come_by_the_wall_clock(spark, tmp_path):
    source = PiecewiseSource("k string, x int, at timestamp", (1,))
    source.add([("a", 1, at(1)), ("b", 2, at(2)), ("a", 3, at(3))])
    bench = bench_of(spark, tmp_path, source, early="10 seconds")
    bench.run(close_all=False, on_step=lambda step: bench.clock.advance(4 * SECOND) if step == "committed" else None)
    assert rows_of(bench) == [(10, "a", 2, 3, 0), (10, "b", 1, 2, 0)]
    assert bench.rows("once") == []
    source.add([("b", 9, at(12))])
    bench.clock.advance(20 * SECOND)
    bench.run()
    assert rows_of(bench)[2:] == [(20, "b", 1, 9, 0)], "nothing changed since the early result"
    assert len(bench.rows("once")) == 3


SOON = ("committed", "delivered", "after snapshot")
STEPS = ("cut logged", "windows closed", "job done", "committed", "delivered", "before snapshot", "after snapshot")


@pytest.fixture(scope="module")
def undisturbed(spark, tmp_path_factory) -> list[tuple[float, str, int, int]]:
    return run_with(spark, tmp_path_factory.mktemp("undisturbed"), None)


def run_with(spark: SparkSession, directory: Path, crash: str | None) -> list[tuple[float, str, int, int]]:
    source = PiecewiseSource("k string, x int, at timestamp", (2,))
    source.add([("a", 1, at(1)), ("b", 2, at(2)), ("a", 5, at(11)), ("b", 5, at(3))])
    source.add([("a", 9, at(4)), ("b", 1, at(12)), ("a", 0, at(19)), ("b", 3, at(8))])
    bench = bench_of(spark, directory, source, early="1 us", lateness="20 seconds")
    if crash:
        for number in range(3):
            bench.run(close_all=False, crash_at=(crash, number))
    bench.run()
    latest = bench.sink.latest("live")
    assert latest is not None
    return sorted((r["window_start"].timestamp(), r["k"], r["n"], r["top"]) for r in latest.to_pylist())


@pytest.mark.parametrize(
    "step", [step if step in SOON else pytest.param(step, marks=pytest.mark.slow) for step in STEPS]
)
def test_a_crash_anywhere_leaves_the_same_last_revisions(spark, tmp_path, undisturbed, step):
    assert run_with(spark, tmp_path, step) == undisturbed


def test_wrong_timing_is_refused(spark, tmp_path):
    grouped = tm.App(spark, tmp_path).stream(tm.sources.memory("k string, at timestamp"), event_time="at").group_by("k")
    with pytest.raises(DefinitionError, match="early: the interval is '0 seconds'"):
        grouped.window("1 minute", early="0 seconds")
    with pytest.raises(DefinitionError, match="lateness: '-1 seconds' is negative"):
        grouped.window("1 minute", lateness="-1 seconds")
    with pytest.raises(DefinitionError, match="fill: it does not go with early"):
        grouped.window("1 minute", early="1 second").agg(n=tm.count()).fill("zero")
    with pytest.raises(DefinitionError, match="two result columns 'revision'"):
        grouped.window("1 minute", early="1 second").agg(revision=tm.count())


def test_a_pause_does_not_start_the_revisions_anew(spark, tmp_path):
    source = PiecewiseSource("k string, x int, at timestamp", (2,))
    source.add([("a", 1, at(1)), ("b", 2, at(2))])
    bench = bench_of(spark, tmp_path, source, early="1 us")
    bench.run(close_all=False, on_step=lambda step: bench.clock.advance(SECOND) if step == "committed" else None)
    assert rows_of(bench) == [(10, "a", 1, 1, 0), (10, "b", 1, 2, 0)]
    for pause in (True, False):
        app = bench.app()
        (app.pause if pause else app.resume)("live")
        source.add([("a", 5 + pause, at(3)), ("c", 1, at(4))])
        bench.clock.advance(SECOND)
        app.run(once=True, close_all=not pause)
    assert rows_of(bench)[2:] == [(10, "a", 3, 6, 1), (10, "b", 1, 2, 1), (10, "c", 2, 1, 1)]
    assert [row[2:] for row in bench.rows("once")] == [("a", 3, 6), ("b", 1, 2), ("c", 2, 1)]
