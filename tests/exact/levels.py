"""Queries over the results of queries, for tests: how they are defined, and what plain Spark makes of each level."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from exact_helpers import SECOND, Bench, PiecewiseSource
from oracle import WATERMARK, BatchQuery, differences, expected
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

import transom as tm
from transom.api.app import App
from transom.model.time import MIN_TIME
from transom.model.window import WindowSpec
from transom.sinks.inmemory import MemorySink

SCHEMA = "user string, area string, x bigint, at timestamp"


def big(df: DataFrame) -> DataFrame:
    return df.where("n > 1")


@dataclass(frozen=True)
class Level:
    """A query, on the stream or on the results of another one."""

    parent: str | None
    keys: tuple[str, ...]
    windows: tuple[WindowSpec, ...]
    mapped: bool = False
    sink: bool = True
    early: bool = False
    lateness: int = 0
    """Seconds."""
    reads_early: bool = False
    """Whether it reads early results, too."""

    def rows(self, df: DataFrame) -> DataFrame:
        return big(df) if self.mapped else df

    def aggregates(self) -> Mapping[str, Any]:
        if self.parent is None:
            return {"n": tm.count(), "s": tm.sum("x"), "hi": tm.max("x"), "m": tm.avg("x")}
        return {"n": tm.sum("n"), "s": tm.sum("s"), "hi": tm.max("hi"), "m": tm.avg("m"), "w": tm.count()}

    def updates(self) -> dict[str, Any]:
        return {"early": "100 ms" if self.early else None, "lateness": f"{self.lateness} seconds"}

    def batch(self) -> BatchQuery:
        texts = ["sum(n)", "sum(s)", "max(hi)", "avg(m)", "count(*)"]
        if self.parent is None:
            texts = ["count(*)", "sum(x)", "max(x)", "avg(x)"]
        values = dict(zip(self.aggregates(), map(F.expr, texts), strict=True))
        return BatchQuery(self.windows, {key: F.col(key) for key in self.keys}, values, self.rows)


def define(app: App, sink: MemorySink, source: PiecewiseSource, levels: Mapping[str, Level]) -> None:
    stream = app.stream(source, event_time="at", watermark=tm.watermark("3 seconds", max_ahead=None))
    made: dict[str, Any] = {}
    for name, level in levels.items():
        rows = stream if level.parent is None else made[level.parent].results(early=level.reads_early)
        rows = rows.map(big) if level.mapped else rows
        made[name] = rows.group_by(*level.keys).window(*level.windows, **level.updates()).agg(**level.aggregates())
        if level.sink:
            made[name].to(sink, name)
        else:
            made[name].results(name)


def check(spark: SparkSession, bench: Bench, rows: pa.Table, levels: Mapping[str, Level]) -> None:
    """Compare the sink with plain Spark, level by level."""
    wanted: dict[str, pa.Table] = {}
    for name, level in levels.items():
        if level.parent is None:
            time, late = "at", pc.subtract(rows.column(WATERMARK), level.lateness * SECOND)
            table = rows.drop_columns([WATERMARK]).append_column(WATERMARK, late).combine_chunks()
        else:
            below = wanted[level.parent]
            moments = pa.array([end - 1 for end in below.column("window_end").to_pylist()], pa.timestamp("us", "UTC"))
            table = below.drop_columns(["window_start", "window_end"]).append_column("t", moments)
            table = table.append_column(WATERMARK, pa.array([MIN_TIME] * len(below), pa.int64())).combine_chunks()
            time = "t"
        schema = from_arrow_schema(table.drop_columns([WATERMARK]).schema)
        wanted |= expected(spark, schema, table, time, {name: level.batch()})
        if level.sink:
            actual = bench.sink.latest(name)
            if actual is not None and "revision" in actual.column_names:
                actual = actual.drop_columns(["revision"])
            assert differences(actual, wanted[name], len(level.keys), ("m",)) == [], name


def seconds(length: int, slide: int | None = None, offset: int = 0) -> WindowSpec:
    return WindowSpec(length * SECOND, (slide or length) * SECOND, offset * SECOND)


LEVELS = {
    "fine": Level(None, ("area", "user"), (seconds(2),), early=True, lateness=3),
    "plain": Level(None, ("area",), (seconds(6, 2),)),
    "middle": Level("fine", ("area",), (seconds(6), seconds(4, 2)), mapped=True, sink=False),
    "sibling": Level("fine", ("user",), (seconds(10, 5, 1),)),
    "day": Level("middle", (), (seconds(20),)),
    "top": Level("day", (), (seconds(60),)),
}
