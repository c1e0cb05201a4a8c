"""Joins for tests: how they are defined, and what a batch join makes of each window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from exact_helpers import Bench, PiecewiseSource
from oracle import WATERMARK, logged_rows
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructType

import transom as tm
from transom.api.app import App
from transom.api.streams import Stream
from transom.model.window import WindowSpec
from transom.sinks.inmemory import MemorySink
from transom.windows.joining import IntervalTimes

LEFT = "k string, x bigint, at timestamp"
RIGHT = "K string, y bigint, t timestamp"


@dataclass(frozen=True)
class Join:
    """What is joined and how."""

    window: Any
    how: str
    itself: bool = False
    between: tuple[int, int] | None = None
    """Microseconds."""
    time: str | None = None

    @property
    def alone(self) -> bool:
        """Whether joined rows have the columns of the left side only."""
        return self.how in ("left_semi", "left_anti")

    @property
    def text(self) -> str:
        """A joined row as SQL text."""
        bounds = "unix_micros(window_start) as s, unix_micros(window_end) as e"
        y = "" if self.alone else ", y"
        return f"to_json(struct({bounds if self.between is None else '_event_micros as e'}, k, x{y}))"


def renamed(df: DataFrame) -> DataFrame:
    return df.where("x > 0").select(F.col("k").alias("K"), F.col("x").alias("y"), "_event_micros")


def left_rows(df: DataFrame) -> DataFrame:
    return df.where("x < 8").select("k", "x", "at")


def right_rows(df: DataFrame) -> DataFrame:
    return df.select("K", "y", "_event_micros")


def join_of(app: App, left: PiecewiseSource, right: PiecewiseSource, join: Join) -> Stream:
    """Return the joined rows."""
    watermark = tm.watermark("3 seconds", max_ahead=None)
    one = app.stream(left, event_time="at", watermark=watermark, name="left")
    if join.itself:
        other = one.map(renamed)
    else:
        other = app.stream(right, event_time="t", watermark=watermark, name="right").map(right_rows)
    time = {"how": join.how, "event_time": join.time}
    return app.join(one.map(left_rows), other, on=["k"], window=join.window, between=join.between, **time)


def define_rows(joined: Stream, sink: MemorySink, join: Join) -> None:
    rows = joined.group_by() if join.between else joined.group_by(end="window_end")
    rows.window("1 second").agg(rows=tm.collect_list(join.text)).to(sink, "rows")


def define(app: App, sink: MemorySink, left: PiecewiseSource, right: PiecewiseSource, join: Join) -> None:
    joined = join_of(app, left, right, join)
    define_rows(joined, sink, join)
    totals = joined.group_by("k").window("20 seconds").agg(n=tm.count(), x=tm.sum("x"))
    totals.results("totals").window("40 seconds").agg(n=tm.sum("n"), x=tm.sum("x")).to(sink, "chained")


def in_windows(rows: DataFrame, time: str, window: Any) -> DataFrame:
    """Return the rows once for each of their windows that they are in time for."""
    if isinstance(window, WindowSpec):
        found: Column = F.window(time, *(f"{m} microseconds" for m in (window.length, window.slide, window.offset)))
        rows = rows.withColumn("w", found).withColumn("s", F.expr("w.start")).withColumn("e", F.expr("w.end"))
    else:
        day = F.date_trunc("day", F.from_utc_timestamp(time, window.zone))
        rows = rows.withColumn("s", F.to_utc_timestamp(day, window.zone))
        rows = rows.withColumn("e", F.to_utc_timestamp(day + F.expr("interval 1 day"), window.zone))
    return rows.where(F.unix_micros("e") > F.col(WATERMARK)).drop("w", WATERMARK)


def frame(spark: SparkSession, source: PiecewiseSource, rows: Sequence[Any], cuts: Sequence[Any]) -> DataFrame:
    schema = StructType([*source.schema.fields]).add(WATERMARK, LongType())
    return spark.createDataFrame(logged_rows(source._from_python(list(rows)), cuts), schema).coalesce(1)


def batch_join(one: DataFrame, other: DataFrame, join: Join) -> DataFrame:
    """Return the joined rows with `moment`, their event time in microseconds."""
    if join.between is not None:
        return near_each_other(one.where("x < 8"), other, join, join.between)
    right = in_windows(other, "t", join.window).withColumnsRenamed({"s": "rs", "e": "re", "K": "rk"})
    left = in_windows(one.where("x < 8"), "at", join.window)
    joined = left.join(right, F.expr("s = rs and e = re and k = rk"), join.how)
    if not join.alone:
        joined = joined.withColumns({name: F.coalesce(name, f"r{name}") for name in ("s", "e", "k")})
    last = F.unix_micros("e") - 1
    moment = {"left": F.unix_micros(first_of("at", "t", join)), "right": F.unix_micros(first_of("t", "at", join))}
    found = joined.withColumn("moment", moment.get(join.time or "", last))
    return found.withColumnsRenamed({"s": "window_start", "e": "window_end"})


def first_of(name: str, other: str, join: Join) -> Column:
    return F.col("at") if join.alone else F.coalesce(name, other)


def near_each_other(one: DataFrame, other: DataFrame, join: Join, between: tuple[int, int]) -> DataFrame:
    length = IntervalTimes(*between, join.how).window.length
    left, right = (
        rows.where(f"unix_micros({at}) div {length} * {length} + {length} > {WATERMARK}").drop(WATERMARK)
        for rows, at in ((one, "at"), (other.withColumnRenamed("K", "rk"), "t"))
    )
    apart = f"unix_micros(t) - unix_micros(at) BETWEEN {between[0]} AND {between[1]}"
    joined = left.join(right, F.expr(f"k = rk AND {apart}"), join.how)
    if not join.alone:
        joined = joined.withColumn("k", F.coalesce("k", "rk"))
    time = first_of("t", "at", join) if join.time == "right" else first_of("at", "t", join)
    return joined.withColumn("moment", F.unix_micros(time)).withColumn("_event_micros", F.col("moment"))


def check(spark: SparkSession, bench: Bench, join: Join, sources: Sequence[PiecewiseSource], rows: Any) -> int:
    """Compare the joined rows, and what is computed from them; return how many there are."""
    one = frame(spark, sources[0], rows[0], bench.cuts_of("left"))
    if join.itself:
        other = one.where("x > 0").selectExpr("k as K", "x as y", "at as t", WATERMARK)
    else:
        other = frame(spark, sources[1], rows[1], bench.cuts_of("right"))
    wanted = batch_join(one, other, join).persist()
    try:
        return compared(bench, wanted, join)
    finally:
        wanted.unpersist()


def compared(bench: Bench, wanted: DataFrame, join: Join) -> int:
    texts = Counter(wanted.selectExpr(join.text).toArrow().column(0).to_pylist())
    assert Counter(text for row in bench.sink.rows("rows") for text in row["rows"]) == texts
    window = F.window(F.timestamp_micros("moment"), "40 seconds")
    totals = wanted.groupBy(window.alias("w")).agg(F.count("*").alias("n"), F.sum("x").alias("x"))
    table = totals.select(F.unix_micros("w.start"), F.unix_micros("w.end"), "n", "x").toArrow()
    assert bench.rows("chained") == sorted(zip(*(c.to_pylist() for c in table.columns), strict=True), key=repr)
    return sum(texts.values())
