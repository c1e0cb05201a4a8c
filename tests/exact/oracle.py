"""What the results must be: plain Spark batch with `F.window` over the records that were in time for each window."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from exact_helpers import plain_rows, without_dates
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructType

from transom.engine.streams.cuts import LoggedCut
from transom.model.window import WindowSpec

WATERMARK = "_in_force"
"""Column with the watermark in force at the record's cut; microseconds."""


@dataclass(frozen=True)
class BatchQuery:
    """A query as plain Spark takes it."""

    windows: Sequence[WindowSpec]
    keys: Mapping[str, Column]
    aggregates: Mapping[str, Column]
    rows: Callable[[DataFrame], DataFrame] = lambda df: df
    """Must keep the columns that it does not know."""
    lateness: int = 0
    """Microseconds for which rows still correct a window that the watermark has passed."""
    steps: Callable[[DataFrame], DataFrame] = lambda df: df
    """From windows, keys and values to the results."""


def logged_rows(table: pa.Table, cuts: Sequence[LoggedCut]) -> pa.Table:
    """Return the records that were read with the watermark that was in force for them.

    Args:
        table: All records in the order of their offsets, which count from 0.
        cuts: The log.
    """
    assert [0, *(cut.end for cut in cuts)] == [*(cut.start for cut in cuts), table.num_rows]
    parts = [table.slice(0, 0), *(table.slice(cut.start, cut.end - cut.start) for cut in cuts)]
    watermarks = [cut.watermark for cut in cuts for _ in range(cut.end - cut.start)]
    joined = pa.concat_tables(parts).append_column(WATERMARK, pa.array(watermarks, pa.int64()))
    return joined.combine_chunks()  # PySpark loses the chunks that follow an empty one


def expected(
    spark: SparkSession, schema: StructType, rows: pa.Table, event_time: str, queries: Mapping[str, BatchQuery]
) -> dict[str, pa.Table]:
    """Return the results of some queries: window_start, window_end, keys, values, or what steps make of them.

    All are of one Spark job; times are in microseconds.

    Args:
        spark: The session.
        schema: The records' columns.
        rows: What `logged_rows` returned.
        event_time: The column with the event time.
        queries: The queries by name.
    """
    fields = StructType([*schema.fields]).add(WATERMARK, LongType())
    records = spark.createDataFrame(rows, fields).coalesce(1)
    frames, names = [], {}
    for number, query in enumerate(queries.values()):
        rows = query.rows(records)
        windows = [
            _windows(rows, F.col(event_time), window, query.windows[:i], query.lateness)
            for i, window in enumerate(query.windows)
        ]
        exploded = functools.reduce(DataFrame.unionByName, windows)
        keys = [column.alias(f"k{i}") for i, column in enumerate(query.keys.values())]
        values = [column.alias(f"v{i}") for i, column in enumerate(query.aggregates.values())]
        result = exploded.groupBy("window_start", "window_end", *keys).agg(*values)
        result = query.steps(_with_times(result.toDF("window_start", "window_end", *query.keys, *query.aggregates)))
        names[number] = result.columns
        columns = [f"{number}_{i}" for i in range(len(result.columns))]
        frames.append(result.toDF(*columns).select(F.lit(number).alias("query"), *columns))
    both = functools.reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames).toArrow()
    tables = {}
    for number, name in enumerate(queries):
        mine = both.filter(pc.equal(both.column("query"), number))
        columns = [f"{number}_{i}" for i in range(len(names[number]))]
        tables[name] = without_dates(mine.select(columns).rename_columns(names[number]))
    return tables


def _with_times(rows: DataFrame) -> DataFrame:
    """Return windows with their bounds as times, as results have them."""
    bounds = {name: F.timestamp_micros(name) for name in ("window_start", "window_end")}
    return rows.withColumns(bounds)


def _windows(
    rows: DataFrame, time: Column, window: WindowSpec, earlier: Sequence[WindowSpec], lateness: int
) -> DataFrame:
    """Return the rows once for every window that they are in time for and that is no window of the earlier kinds."""
    seen = [
        F.pmod(F.col("window_start") - F.lit(other.offset), F.lit(other.slide)) == 0
        for other in earlier
        if other.length == window.length
    ]
    if window.gaps:
        start = F.unix_micros(time) - F.pmod(F.unix_micros(time) - window.offset, F.lit(window.slide))
        rows = rows.withColumn("window_start", start).withColumn("window_end", start + window.length)
        rows = rows.where(F.unix_micros(time) < F.col("window_end"))
    else:
        durations = [f"{micros} microseconds" for micros in (window.length, window.slide, window.offset)]
        rows = rows.withColumn("_w", F.window(time, *durations))
        rows = rows.withColumns({"window_start": F.unix_micros("_w.start"), "window_end": F.unix_micros("_w.end")})
        rows = rows.drop("_w")
    return rows.where(F.col("window_end") > F.col(WATERMARK) - F.lit(lateness)).where(
        ~functools.reduce(Column.__or__, seen, F.lit(False))
    )


def differences(
    actual: pa.Table | None, wanted: pa.Table, keys: int, close: Sequence[str] = ()
) -> list[tuple[Any, Any, Any]]:
    """Return the rows that differ: window and keys, actual values, wanted values.

    Args:
        actual: The results.
        wanted: What `expected` returned.
        keys: Number of grouping keys.
        close: Columns in which floating point may differ in the last places.
    """
    if actual is None:
        actual = wanted.schema.empty_table()
    assert actual.column_names == wanted.column_names
    left, right = by_window(actual, keys), by_window(wanted, keys)
    names = wanted.column_names[keys + 2 :]
    found = []
    for key in dict.fromkeys([*right, *left]):
        got, want = left.get(key), right.get(key)
        if (
            got is None
            or want is None
            or not all(same(a, b, name in close) for a, b, name in zip(got, want, names, strict=True))
        ):
            found.append((key, got, want))
    return found


def by_window(table: pa.Table, keys: int) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Return values by window and keys, each of which must be there once."""
    found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in plain_rows(table):
        key = tuple(_key(value) for value in row[: keys + 2])
        assert key not in found, f"twice: {key}"
        found[key] = row[keys + 2 :]
    return found


def _key(value: Any) -> Any:
    """Return a value by which keys are told apart: NaN is one key, the text 'NaN' another, and 0.0 is not -0.0."""
    return repr(value) if isinstance(value, float) else value


def same(a: Any, b: Any, close: bool = False) -> bool:
    """Tell whether two values are equal; with `close`, floating point up to a few units in the last places."""
    if isinstance(a, float) and isinstance(b, float):
        if math.isnan(a) or math.isnan(b):
            return math.isnan(a) and math.isnan(b)
        return a == b or (close and math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-9))
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(same(x, y, close) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k], close) for k in a)
    return bool(type(a) is type(b) and a == b)
