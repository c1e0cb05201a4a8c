"""Event times at the ends of what a timestamp can be: dead letters with a reason, or exact results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from exact_helpers import SECOND, Bench, PiecewiseSource
from pyspark.sql import SparkSession

import transom as tm
from transom.api.app import App
from transom.engine.execution.onspark import run_on_spark
from transom.model.time import FIRST_EVENT, LAST_EVENT, VirtualClock
from transom.simulation.virtual import JobCosts, SimulatedCutRunner
from transom.sinks.inmemory import MemorySink
from transom.windows.components import Arrangement, key_sets_of

LEAST, MOST = -(1 << 63), (1 << 63) - 1
LONGEST = f"{(1 << 58) // (86_400 * SECOND)} days"
WINDOWS = {
    "tumbling": tm.tumbling("10 seconds", offset="3 seconds"),
    "sliding": tm.sliding("1 hour", every="7 minutes"),
    "longest": tm.tumbling(LONGEST, offset="-1 day"),
    "weeks": tm.calendar("week", zone="America/New_York"),
    "months": tm.calendar("month", zone="Europe/Copenhagen", offset="4 hours"),
    "years": tm.calendar("year", zone="Asia/Kathmandu"),
    "sessions": tm.session_window("5 seconds"),
    "longest_sessions": tm.session_window(LONGEST),
}


def bench_of(spark: SparkSession, directory: Path, source: PiecewiseSource, delay: str, **options: Any) -> Bench:
    def define(app: App, sink: MemorySink) -> None:
        stream = app.stream(source, event_time="at", watermark=tm.watermark(delay, **options))
        for name, window in WINDOWS.items():
            stream.window(window).agg(n=tm.count(), first=tm.min("at")).to(sink, name)

    return Bench(spark, directory, define)


@pytest.mark.parametrize(
    ("first", "bound"),
    [
        (LEAST, None),
        (MOST, "1 day"),
        pytest.param(LEAST, "1 day", marks=pytest.mark.slow),
        pytest.param(MOST, None, marks=pytest.mark.slow),
    ],
)
def test_a_row_at_either_end_is_a_dead_letter(
    interpreted: SparkSession, tmp_path: Path, first: int, bound: str | None
) -> None:
    """In the first cut, alone, before rows of today and after them."""
    source = PiecewiseSource("at timestamp", (1, 3, 3))
    outside = [first, LEAST, FIRST_EVENT - 1, *([LAST_EVENT + 1] if bound is None else [])]
    source.add([(outside[0],), (5 * SECOND,), (outside[1],), (6 * SECOND,)])
    source.add([(each,) for each in outside[2:]])
    bench = bench_of(interpreted, tmp_path, source, "1 second", max_ahead=bound)
    progress = bench.run()
    assert progress is not None
    assert [query.failure for query in progress.queries] == [None] * len(WINDOWS)
    assert bench.rows("tumbling") == [(3 * SECOND, 13 * SECOND, 2, 5 * SECOND)]
    assert bench.rows("sessions") == [(5 * SECOND, 11 * SECOND, 2, 5 * SECOND)]
    assert [sum(row[2] for row in bench.rows(name)) for name in ("longest", "weeks", "months", "years")] == [2] * 4
    found = [(letter["reason"], letter["event_time"]) for letter in bench.letters()]
    reasons = dict.fromkeys(outside, "event time out of range")
    if bound is not None:
        reasons[MOST] = "too far ahead"
    assert sorted(found) == sorted((reasons[each], each) for each in outside)
    assert sum(progress.streams[0].dead_letters.values()) == len(outside)


@pytest.mark.parametrize("delay", ["0 seconds", LONGEST])
def test_the_first_and_the_last_time_that_are_taken_are_exact(
    interpreted: SparkSession, tmp_path: Path, delay: str
) -> None:
    source = PiecewiseSource("at timestamp", (1,))
    times = [FIRST_EVENT, FIRST_EVENT + 1, 0, LAST_EVENT - 1, LAST_EVENT]
    source.add([(each,) for each in times])
    bench = bench_of(interpreted, tmp_path, source, delay, max_ahead=None)
    progress = bench.run()
    assert progress is not None
    assert [query.failure for query in progress.queries] == [None] * len(WINDOWS)
    assert bench.letters() == []
    for name, window in WINDOWS.items():
        rows = bench.rows(name)
        each = 1 if name != "sliding" else 3_600 / 420
        assert len(times) * int(each) <= sum(row[2] for row in rows) <= len(times) * (int(each) + 1)
        for start, end, _, first in rows:
            assert start <= first < end
            if name in ("tumbling", "longest", "sliding"):
                assert end - start == window.length  # type: ignore[union-attr]
                assert (start - window.offset) % window.slide == 0  # type: ignore[union-attr]
    assert len(bench.rows("sessions")) == 3
    assert len(bench.rows("years")) == 3


@pytest.mark.parametrize(
    ("kind", "value"),
    [("date", -(1 << 31)), ("date", (1 << 31) - 1), ("timestamp_ntz", LEAST), ("timestamp_ntz", MOST)],
)
@pytest.mark.parametrize(
    "zone", ["America/New_York", *(pytest.param(zone, marks=pytest.mark.slow) for zone in ("UTC", "Asia/Kathmandu"))]
)
def test_a_date_or_a_local_time_at_either_end_is_a_dead_letter(
    interpreted: SparkSession, tmp_path: Path, kind: str, value: int, zone: str
) -> None:
    session = interpreted.newSession()
    session.conf.set("spark.sql.session.timeZone", zone)
    source = PiecewiseSource(f"at {kind}")
    source.add([(value,), (1,)])

    def define(app: App, sink: MemorySink) -> None:
        stream = app.stream(source, event_time="at", watermark=tm.watermark(0, max_ahead=None))
        stream.window("10 seconds").agg(n=tm.count()).to(sink, "q")

    bench = Bench(session, tmp_path, define)
    bench.run()
    assert [row[2] for row in bench.rows("q")] == [1]
    (letter,) = bench.letters()
    assert letter["reason"] in ("event time out of range", "null event time")


@pytest.mark.parametrize("tier", ["driver", pytest.param("cluster", marks=pytest.mark.slow)])
def test_what_a_map_makes_such_a_time_of_is_a_dead_letter(interpreted: SparkSession, tmp_path: Path, tier: str) -> None:
    """Of those queries whose condition it satisfies, whether it was grouped in panes, windows or sessions."""
    source = PiecewiseSource("at timestamp, micros bigint, n int", (3, 3))
    source.add([(SECOND, LEAST, 1), (SECOND, MOST, 2), (SECOND, 2 * SECOND, 3)])
    source.add([(2 * SECOND, None, 4), (2 * SECOND, LEAST, -5), (60 * SECOND, 60 * SECOND, 6)])
    source.add([(60 * SECOND, SECOND, 7)])

    def define(app: App, sink: MemorySink) -> None:
        stream = app.stream(source, event_time="at", watermark=tm.watermark(0, max_ahead=None))
        mapped = stream.map(lambda df: df.selectExpr("timestamp_micros(micros) AS at", "n"))
        mapped.window("10 seconds").agg(n=tm.count()).to(sink, "q")
        mapped.where("n > 0").window(tm.session_window("10 seconds")).agg(n=tm.count()).to(sink, "s")
        mapped.where("n < 0").window("10 seconds").agg(n=tm.count()).to(sink, "negative")
        stream.window("10 seconds").agg(n=tm.count()).to(sink, "untouched")

    bench = Bench(interpreted, tmp_path, define, tier=tier, key_groups=3)
    progress = bench.run()
    assert progress is not None
    assert [row[2] for name in "qs" for row in bench.rows(name)] == [1, 1, 1, 1]
    letters = [(each["reason"], json.loads(each["record"])["n"], sorted(each["queries"])) for each in bench.letters()]
    assert sorted(letters) == [
        ("event time out of range", -5, ["negative", "q"]),
        ("event time out of range", 1, ["q", "s"]),
        ("event time out of range", 2, ["q", "s"]),
        ("late", 7, ["q", "s"]),
        ("null event time", 4, ["q", "s"]),
    ]
    assert progress.streams[0].dead_letters == {"event time out of range": 3, "null event time": 1, "late": 2}


def test_of_windows_that_are_computed_directly_too(interpreted: SparkSession, tmp_path: Path) -> None:
    source, current = PiecewiseSource("at timestamp, micros bigint", (1,)), []
    source.add([(SECOND, each) for each in (SECOND, LEAST, MOST, None, 2 * SECOND)])

    def define(app: App, sink: MemorySink) -> None:
        current[:] = [app]
        stream = app.stream(source, event_time="at", watermark=tm.watermark(0, max_ahead=None))
        mapped = stream.map(lambda df: df.selectExpr("timestamp_micros(micros) AS at"))
        mapped.window(tm.sliding("8 seconds", every="4 seconds")).agg(n=tm.count()).to(sink, "q")

    def follow(step: str) -> None:
        loop = current[0]._loop
        if step == "committed":
            stream = loop.streams["stream1"]
            names = {key_set.name for key_set in key_sets_of(stream.state.running())}
            loop.learning.follow(stream, Arrangement(frozenset(), frozenset(names)))
            assert stream.compiled.components[0].direct

    bench = Bench(interpreted, tmp_path, define)
    progress = bench.run(on_step=follow)
    assert progress is not None
    assert bench.rows("q") == [(-4 * SECOND, 4 * SECOND, 2), (0, 8 * SECOND, 2)]
    assert progress.streams[0].dead_letters == {"event time out of range": 2, "null event time": 1}
    assert [each["queries"] for each in bench.letters()] == [["q"]] * 3


def test_without_spark_the_same_rows_are_taken(interpreted: SparkSession, tmp_path: Path) -> None:
    found = []
    for name, work in (("spark", {"work": run_on_spark}), ("arrow", {})):
        source, clock, sink = tm.sources.memory("at timestamp"), VirtualClock(0), MemorySink()
        source.add([(each,) for each in (LEAST, FIRST_EVENT - 1, FIRST_EVENT, 1, LAST_EVENT, LAST_EVENT + 1, MOST)])
        app = tm.App(interpreted, tmp_path / name, clock=clock)
        app._runner = SimulatedCutRunner(clock, JobCosts(), **work)  # type: ignore[arg-type]
        stream = app.stream(source, event_time="at", watermark=tm.watermark(0, max_ahead=None))
        stream.window("10 seconds").agg(n=tm.count()).to(sink, "q")
        progress = app.run(once=True, close_all=True)
        table = sink.to_table("q")
        assert table is not None
        found.append((table["n"].to_pylist(), progress.streams[0].dead_letters))
    assert found == [([1, 1, 1], {"event time out of range": 4})] * 2


def test_a_watermark_at_the_end_of_time_closes_everything(interpreted: SparkSession, tmp_path: Path) -> None:
    source = tm.sources.memory("at timestamp")
    source.add([(SECOND,)])
    source.add_watermark(1 << 70)
    sink = MemorySink()
    app = tm.App(interpreted, tmp_path)
    stream = app.stream(source, event_time="at", watermark=tm.watermark("1 second", from_source=True))
    stream.window("10 seconds").agg(n=tm.count()).to(sink, "q")
    app.run(once=True)
    assert sink.to_table("q").num_rows == 1  # type: ignore[union-attr]
