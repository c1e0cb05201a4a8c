"""Times at which windowing goes wrong easily: edges, far years, zones, silence, lateness."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from exact_helpers import NOON, SECOND, Bench, PiecewiseSource
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import transom as tm
from transom.api.app import App
from transom.model.watermark import WatermarkPolicy
from transom.model.window import Window
from transom.sinks.inmemory import MemorySink

DAY = 86_400 * SECOND


def micros(*date: int) -> int:
    return int(datetime(*date, tzinfo=UTC).timestamp()) * SECOND


def bench_of(
    spark: SparkSession,
    directory: Path,
    source: PiecewiseSource,
    *windows: Window,
    policy: WatermarkPolicy | str = "0 seconds",
    fill: bool = False,
) -> Bench:
    """One query that counts the rows of each window."""

    def define(app: App, sink: MemorySink) -> None:
        builder = app.stream(source, event_time="at", watermark=policy).window(*windows).agg(n=tm.count())
        (builder.fill("zero") if fill else builder).to(sink, "q")

    return Bench(spark, directory, define)


def times(*moments: int | None, pieces: tuple[int, ...] = (1_000,), partitions: int = 1) -> PiecewiseSource:
    source = PiecewiseSource("at timestamp", pieces, partitions)
    if moments:
        source.add([(moment,) for moment in moments])
    return source


def test_a_time_on_the_start_is_in_and_on_the_end_is_out(spark, tmp_path):
    bench = bench_of(spark, tmp_path, times(10 * SECOND, 20 * SECOND - 1, 20 * SECOND), "10 seconds")
    bench.run()
    assert bench.rows("q") == [(10 * SECOND, 20 * SECOND, 2), (20 * SECOND, 30 * SECOND, 1)]


def test_before_1970(spark, tmp_path):
    source = times(-1, -10 * SECOND, -10 * SECOND - 1, micros(1969, 7, 20), micros(1, 1, 1))
    bench = bench_of(spark, tmp_path, source, "10 seconds")
    bench.run()
    starts = [-10 * SECOND, -20 * SECOND, micros(1969, 7, 20), micros(1, 1, 1)]
    counts = dict.fromkeys(starts, 1) | {-10 * SECOND: 2}
    assert {row[0]: row[2] for row in bench.rows("q")} == counts


def test_the_year_9999(spark, tmp_path):
    """The last window ends in the year 10000, which Python's datetime does not have."""
    last = micros(9999, 12, 31) + DAY - 1
    policy = tm.watermark("1 second", max_ahead=None)
    bench = bench_of(spark, tmp_path, times(last - DAY, last), "1 day", policy=policy)
    bench.run()
    assert bench.rows("q") == [(last + 1 - 2 * DAY, last + 1 - DAY, 1), (last + 1 - DAY, last + 1, 1)]


@pytest.mark.parametrize("pieces", [(1_000,), (1,)], ids=["one cut", "a cut per row"])
def test_a_slide_of_3_s_on_7_s(spark, tmp_path, pieces):
    moments = [0, SECOND, 2 * SECOND, 6 * SECOND, 7 * SECOND - 1, 7 * SECOND, 12 * SECOND]
    source = times(*moments, pieces=pieces)
    bench = bench_of(spark, tmp_path, source, tm.sliding("7 seconds", every="3 seconds"))
    bench.run()
    wanted = []
    for start in range(-6 * SECOND, 13 * SECOND, 3 * SECOND):
        count = sum(start <= moment < start + 7 * SECOND for moment in moments)
        if count:
            wanted.append((start, start + 7 * SECOND, count))
    assert bench.rows("q") == sorted(wanted, key=repr)


def test_two_cuts_that_meet_on_an_edge(spark, tmp_path):
    """The first cut ends just before the edge, the second begins on it and closes the window of the first."""
    source = times(9 * SECOND, 10 * SECOND - 1, 10 * SECOND, 10 * SECOND + 1, pieces=(2,))
    bench = bench_of(spark, tmp_path, source, "10 seconds")
    bench.run(close_all=False)
    assert bench.rows("q") == [(0, 10 * SECOND, 2)]
    bench.run()
    assert bench.rows("q") == [(0, 10 * SECOND, 2), (10 * SECOND, 20 * SECOND, 2)]


def test_one_record_of_the_year_2099_closes_nothing(spark, tmp_path):
    far = micros(2099, 1, 1)
    source = times(NOON, far, NOON + SECOND, pieces=(2, 1))
    bench = bench_of(spark, tmp_path, source, "10 seconds", policy=tm.watermark("1 second", max_ahead="1 hour"))
    bench.run()
    start = NOON // (10 * SECOND) * 10 * SECOND
    assert bench.rows("q") == [(start, start + 10 * SECOND, 2)]
    (letter,) = bench.letters()
    assert (letter["reason"], letter["event_time"], letter["queries"]) == ("too far ahead", far, [])


def test_a_null_time_is_a_dead_letter(spark, tmp_path):
    source = PiecewiseSource("x string, at timestamp")
    source.add([("a", None), ("b", SECOND)])
    bench = bench_of(spark, tmp_path, source, "10 seconds")
    progress = bench.run()
    assert bench.rows("q") == [(0, 10 * SECOND, 1)]
    assert bench.letters() == [{"reason": "null event time", "event_time": None, "queries": [], "record": '{"x":"a"}'}]
    assert progress is not None
    assert progress.streams[0].dead_letters["null event time"] == 1


def test_all_rows_late(spark, tmp_path):
    source = times(100 * SECOND, 1, 2, 3, pieces=(1, 3))
    bench = bench_of(spark, tmp_path, source, "10 seconds")
    progress = bench.run()
    assert bench.rows("q") == [(100 * SECOND, 110 * SECOND, 1)]
    assert [(letter["reason"], letter["event_time"], letter["queries"]) for letter in bench.letters()] == [
        ("late", moment, ["q"]) for moment in (1, 2, 3)
    ]
    assert progress is not None
    assert progress.queries[0].late_rows == 3


def test_a_row_late_for_its_short_window_counts_in_its_long_one(spark, tmp_path):
    source = times(10 * SECOND, 15 * SECOND, 1, pieces=(1, 1, 1))
    bench = bench_of(spark, tmp_path, source, "10 seconds", "1 minute")
    bench.run()
    assert bench.rows("q") == [(0, 60 * SECOND, 3), (10 * SECOND, 20 * SECOND, 2)]
    assert bench.letters() == []


def test_empty_input(spark, tmp_path):
    bench = bench_of(spark, tmp_path, times(), "10 seconds", fill=True)
    bench.run()
    assert bench.rows("q") == []
    assert bench.cuts_of() == []


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kathmandu"])
def test_the_zone_of_the_session_moves_no_window(spark, tmp_path, zone):
    """Over the night in which New York's clocks go back, one hour comes twice on the wall, not in the results."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", zone)
    begin = micros(2024, 11, 3, 4)
    source = times(*range(begin, begin + 6 * 3_600 * SECOND, 1_800 * SECOND), pieces=(5,))
    policy = tm.watermark("1 hour", max_ahead=None)
    bench = bench_of(session, tmp_path, source, "1 hour", "1 day", policy=policy)
    bench.run()
    hours = [(begin + h * 3_600 * SECOND, begin + (h + 1) * 3_600 * SECOND, 2) for h in range(6)]
    midnight = micros(2024, 11, 3)
    assert bench.rows("q") == sorted([*hours, (midnight, midnight + DAY, 12)], key=repr)


@pytest.mark.parametrize("settings", [{}, pytest.param({"tier": "cluster", "key_groups": 2}, marks=pytest.mark.slow)])
def test_fill_zero_emits_known_keys_in_windows_without_rows(spark, tmp_path, settings):
    source = PiecewiseSource("k string, x int, at timestamp", (2, 1))
    source.add([("a", 5, SECOND), ("b", None, 2 * SECOND), ("a", 7, 31 * SECOND)])

    def define(app: App, sink: MemorySink) -> None:
        grouped = app.stream(source, event_time="at").group_by("k").window("10 seconds")
        grouped.agg(n=tm.count(), s=tm.sum("x"), m=tm.max(F.col("x"))).fill("zero").to(sink, "q")

    bench = Bench(spark, tmp_path, define, **settings)
    bench.run(close_all=False)
    bench.run()
    wanted: list[tuple[Any, ...]] = [
        (0, 10 * SECOND, "a", 1, 5, 5),
        (0, 10 * SECOND, "b", 1, None, None),
        (30 * SECOND, 40 * SECOND, "a", 1, 7, 7),
        (30 * SECOND, 40 * SECOND, "b", 0, 0, None),
    ]
    for start in (10, 20):
        wanted += [(start * SECOND, (start + 10) * SECOND, key, 0, 0, None) for key in "ab"]
    assert bench.rows("q") == sorted(wanted, key=repr)
