"""Calendar windows in the engine: equal to Spark's dates in a session of the zone, and closed at local midnights."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import numpy as np
import pytest
from exact_helpers import SECOND, Bench, PiecewiseSource, plain_rows
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import transom as tm
from transom.api.app import App
from transom.engine.spark import zones
from transom.errors import DefinitionError
from transom.sinks.inmemory import MemorySink

HOUR = 3_600 * SECOND
FIRST_DAYS = {
    "day": ("s", "date_add(s, 1)"),
    "week": ("trunc(s, 'week')", "date_add(trunc(s, 'week'), 7)"),
    "month": ("trunc(s, 'month')", "add_months(trunc(s, 'month'), 1)"),
    "quarter": ("trunc(s, 'quarter')", "add_months(trunc(s, 'quarter'), 3)"),
    "year": ("trunc(s, 'year')", "add_months(trunc(s, 'year'), 12)"),
    "hour": ("date_trunc('hour', at)", "date_trunc('hour', at) + INTERVAL 1 HOUR"),
}
"""First day of a date's unit and of the next one, or the hour of a time where clocks change by whole hours."""


def micros(*date: int) -> int:
    return int(datetime(*date, tzinfo=UTC).timestamp()) * SECOND


def by_date(spark: SparkSession, source: PiecewiseSource, rows: list[tuple], unit: str, zone: str) -> list[tuple]:
    """What Spark says of the windows of a unit, in a session of the zone.

    By dates, not by date_trunc('day'), which makes two days of one whose midnight comes twice.
    """
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", zone)
    frame: DataFrame = session.createDataFrame(source._from_python(rows), source.schema).coalesce(1)
    dated = frame.withColumn("s", F.to_date("at"))
    start, end = (F.expr(f"CAST({day} AS TIMESTAMP)") for day in FIRST_DAYS[unit])
    result = dated.groupBy(start.alias("w"), end.alias("e"), "k").agg(F.count("*").alias("n"), F.sum("x").alias("t"))
    return list(plain_rows(result.toArrow()))


@pytest.mark.parametrize(
    ("zone", "around", "units"),
    [
        ("Europe/Copenhagen", micros(2021, 10, 31), ("day", "week", "month", "hour")),
        pytest.param("America/Havana", micros(2021, 11, 7), ("day", "quarter"), marks=pytest.mark.slow),
        pytest.param("America/Sao_Paulo", micros(2018, 11, 4), ("day", "year"), marks=pytest.mark.slow),
    ],
)
def test_windows_equal_those_of_dates_across_a_change_of_the_clocks(interpreted, tmp_path, zone, around, units):
    draw = random.Random(zone)
    source = PiecewiseSource("k string, x int, at timestamp", (100, 30, 90))
    near = sorted(around + draw.randrange(-60 * HOUR, 60 * HOUR) for _ in range(220))
    far = sorted(around + 60 * HOUR + draw.randrange(0, 100 * 24 * HOUR) for _ in range(60))
    rows = [(draw.choice("ab"), draw.randrange(10), moment + draw.randrange(-HOUR, HOUR)) for moment in near + far]
    kinds = [tm.calendar(unit, zone=zone) for unit in units]

    def define(app: App, sink: MemorySink) -> None:
        stream = app.stream(source, event_time="at", watermark=tm.watermark("2 hours", max_ahead=None))
        windowed = stream.group_by("k").window(tm.sliding("6 hours", every="4 hours"), *kinds)
        windowed.agg(n=tm.count(), total=tm.sum("x")).to(sink, "mixed")
        stream.group_by("k").window(kinds[0]).agg(n=tm.count(), total=tm.sum("x")).to(sink, "days")

    bench = Bench(interpreted, tmp_path, define)
    source.add(rows[:130])
    bench.run(close_all=False)
    source.add(rows[130:])
    bench.run(crash_at=("partials written", 1))
    bench.run()
    assert bench.letters() == []
    calendar = {unit: by_date(interpreted, source, rows, unit, zone) for unit in units}
    fixed = []
    for moment in {row[2] // (2 * HOUR) * 2 * HOUR for row in rows}:
        for start in range(moment // (4 * HOUR) * 4 * HOUR - 4 * HOUR, moment + 1, 4 * HOUR):
            if start + 6 * HOUR > moment:
                fixed.append((start, start + 6 * HOUR))
    wanted = [row for unit in units for row in calendar[unit]]
    for start, end in set(fixed):
        for key in "ab":
            held = [x for k, x, at in rows if k == key and start <= at < end]
            wanted += [(start, end, key, len(held), sum(held))] if held else []
    assert bench.rows("mixed") == sorted(wanted, key=repr)
    assert bench.rows("days") == sorted(calendar["day"], key=repr)
    lengths = {(row[1] - row[0]) // HOUR for row in calendar["day"]}
    assert lengths & {23, 25}


def test_a_day_closes_at_its_local_midnight_and_empty_days_are_filled(interpreted, tmp_path):
    """The watermark passes 22:00 UTC, which is midnight in Berlin's summer, and stops short of it the first time."""
    source = PiecewiseSource("k string, at timestamp", (3, 1))
    berlin = tm.calendar("day", zone="Europe/Berlin")

    def define(app: App, sink: MemorySink) -> None:
        stream = app.stream(source, event_time="at", watermark=tm.watermark(0, max_ahead=None))
        stream.group_by("k").window(berlin).agg(n=tm.count()).fill("zero").to(sink, "q")

    bench = Bench(interpreted, tmp_path, define)
    change = micros(2024, 3, 30, 23)
    source.add([("a", change - HOUR), ("b", change), ("a", change + 23 * HOUR - 1)])
    bench.run(close_all=False)
    friday = (change - 24 * HOUR, change)
    assert bench.rows("q") == [(*friday, "a", 1)]  # b has no row yet
    source.add([("a", change + 23 * HOUR), ("a", change + (23 + 48) * HOUR), ("b", change + 22 * HOUR)])
    bench.run(close_all=False)
    days = [change, *(change + (23 + 24 * n) * HOUR for n in range(3))]
    counts = {"a": (1, 1, 0), "b": (1, 0, 0)}
    wanted = [(days[i], days[i + 1], key, counts[key][i]) for i in range(3) for key in "ab"]
    assert bench.rows("q") == sorted([(*friday, "a", 1), *wanted], key=repr)
    (letter,) = bench.letters()
    assert (letter["reason"], letter["event_time"]) == ("late", change + 22 * HOUR)


def test_clocks_on_which_java_and_python_disagree_are_an_error(spark, monkeypatch):
    spec = tm.calendar("week", zone="Asia/Tashkent")
    zones.check_zones(spark, [spec])
    monkeypatch.setattr(zones, "_checked", set())
    windows = type(spec).windows
    other = np.int64(micros(2033, 5, 1))
    monkeypatch.setattr(type(spec), "windows", lambda self, times: windows(self, times + (times == other) * HOUR * 24))
    with pytest.raises(DefinitionError, match=r"do not agree when days begin in Asia/Tashkent, first on 2033-05-01"):
        zones.check_zones(spark, [spec])


def test_hours_are_compared_on_days_when_clocks_change(spark, monkeypatch):
    spec = tm.calendar("hour", zone="Australia/Lord_Howe")
    monkeypatch.setattr(zones, "_checked", {tm.calendar("day", zone="Australia/Lord_Howe")})
    windows = type(spec).windows
    other = np.int64(micros(2033, 4, 2, 15, 30))
    monkeypatch.setattr(type(spec), "windows", lambda self, times: windows(self, times - (times == other) * HOUR))
    with pytest.raises(DefinitionError, match=r"do not agree when hours begin in Australia/Lord_Howe, first on 2033"):
        zones.check_zones(spark, [spec])
