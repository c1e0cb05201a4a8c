"""Runs the job of a cut and brings back partials and counts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from transom.engine.cluster.files import Slice
from transom.engine.spark import eventtimes
from transom.engine.spark.caching import cached
from transom.engine.spark.columns import TIME
from transom.engine.spark.cutstats import CutStats
from transom.engine.spark.packing import Packing, Timeless, named, packed, told
from transom.engine.spark.plan import StreamPlan
from transom.model.time import Micros
from transom.scheduling.arrivals import DelayMoments
from transom.sources.base import ARRIVAL, CORRUPT, ORIGIN, PARTITION
from transom.windows.components import Component

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True)
class CutPartials:
    """The partials that the job of a cut brought back."""

    tables: tuple[pa.Table, ...]
    """One table per component: PANE (int64), TAG (int32) if it has several conditions, keys by name, states. Of one
    whose tasks wrote files: PANE, TAG, the number of rows in them, and TIMES where sessions need them."""
    stats: CutStats = field(default_factory=CutStats)
    slices: tuple[list[Slice] | None, ...] = ()
    """For each component what its tasks wrote; None if its partials are in its table."""
    timeless: Mapping[str, int] = field(default_factory=dict)
    """For each query how many rows a transformation left without an event time that can be used; none where it is 0."""


def _stat_columns(given: Sequence[str], partitions: int, ahead: Micros | None) -> list[Column]:
    """Return the aggregates of CutStats over rows for which the source gave these columns."""
    from pyspark.sql import functions as F

    parsed = f"{CORRUPT} IS NULL" if CORRUPT in given else "true"
    seen = f"{parsed} AND {eventtimes.believed(ahead)}"
    has_partition = PARTITION in given
    columns = [F.expr("count(1)").alias("rows")]
    for i in range(partitions):
        here = f" AND {PARTITION} = {i}" if has_partition else ""
        columns.append(F.expr(f"max(IF({seen}{here}, {TIME}, NULL))").alias(f"newest{i}"))
    for reason, condition in eventtimes.unusable(ahead).items():
        columns.append(F.expr(f"count_if({parsed} AND ({condition}))").alias(reason))
    columns.append(F.expr(f"count_if(NOT ({parsed}))").alias("corrupt"))
    if ARRIVAL in given:
        delay = f"(CAST({ARRIVAL} AS DOUBLE) - CAST({TIME} AS DOUBLE))"
        columns.append(F.expr(f"sum(IF({seen}, {delay}, NULL))").alias("delay"))
        columns.append(F.expr(f"var_pop(IF({seen}, {delay}, NULL))").alias("delay_variance"))
    return columns


def _stats_of(values: Mapping[str, Any], partitions: int) -> CutStats:
    stats = CutStats(
        rows=values["rows"],
        newest=tuple(values[f"newest{i}"] for i in range(partitions)),
        null_time=values[eventtimes.NO_TIME],
        ahead=values.get(eventtimes.TOO_FAR_AHEAD, 0),
        corrupt=values["corrupt"],
        out_of_range=values[eventtimes.OUT_OF_RANGE],
    )
    if values.get("delay") is None:
        return stats
    seen = stats.rows - stats.bad
    return replace(stats, delays=DelayMoments(seen, values["delay"], seen * values["delay_variance"]))


def run_cut(
    raw: DataFrame,
    stream: StreamPlan,
    *,
    partitions: int,
    ahead: Micros | None,
    packings: Sequence[Packing | None] = (),
) -> CutPartials:
    """Run the one job of a cut.

    The counts are observed in the same pass, before any transformation. (DESIGN asks for ordinary aggregate columns;
    the users' filters sit between the scan and the aggregation, so those would need a second pass. See
    docs/decisions/0002.)

    Args:
        raw: The rows of the cut, as the source reads them.
        stream: Event time, transformations and aggregations; without aggregations only the counts are made.
        partitions: Number of source partitions.
        ahead: Largest event time that is believed; None for no bound.
        packings: For each component where its partials go; None, or nothing at all, for the driver.
    """
    from pyspark.sql import Observation

    raw = raw.drop(ORIGIN)
    columns = raw.columns
    timed = stream.timed(raw)
    stats = _stat_columns(columns, partitions, ahead)
    if not stream.aggregations:
        return CutPartials((), _stats_of(timed.agg(*stats).toArrow().to_pylist()[0], partitions))
    places = list(packings) or [None] * len(stream.components)
    observation = Observation()

    def good(rows: DataFrame) -> DataFrame:
        return eventtimes.good_rows(rows.observe(observation, *stats), ahead, columns)

    with _scanned_once(timed, stream, good) as (scanned, needed):
        every = zip(stream.aggregations, needed, stream.components, places, strict=True)
        tables = _collect([_partials(made(rows), component, place) for made, rows, component, place in every])
        counted = observed(observation)
        if counted is None:
            counted = scanned.agg(*stats).toArrow().to_pylist()[0]
    return _brought_back(tables, _stats_of(counted, partitions), stream.components, places)


@contextmanager
def _scanned_once(
    timed: DataFrame, stream: StreamPlan, good: Callable[[DataFrame], DataFrame]
) -> Iterator[tuple[DataFrame, list[DataFrame]]]:
    """Give the rows of the source, and those that each component needs; within it they are read by one scan.

    With several components what they need of the rows is kept meanwhile; else (several branches, or nothing is shared)
    the parsed rows.

    Args:
        timed: The rows of the source with their event time.
        stream: What is made of them.
        good: Counts rows, and leaves out those without a time that can be used.
    """
    several, alike = len(stream.aggregations) > 1, len({id(needed) for needed in stream.needed}) == 1
    kept: DataFrame | None = None
    try:
        if several and not alike:
            timed = kept = cached(timed)
        seen = good(timed)
        rows = {index: branch(seen) for index, branch in stream.branches.items()}
        read = {id(n): n(rows[c.branch]) for n, c in zip(stream.needed, stream.components, strict=True)}
        if several and alike:
            (number,) = read
            read[number] = kept = cached(read[number])
        yield timed, [read[id(needed)] for needed in stream.needed]
    finally:
        if kept is not None:
            kept.unpersist()


def _partials(aggregated: DataFrame, component: Component, place: Packing | None) -> DataFrame:
    return aggregated if place is None else packed(aggregated, component, place)


def _brought_back(
    tables: Sequence[pa.Table], stats: CutStats, components: Sequence[Component], places: Sequence[Packing | None]
) -> CutPartials:
    """Return what came of a job: partials of the components, or what tells of their files."""
    found: list[pa.Table] = []
    slices: list[list[Slice] | None] = []
    timeless: dict[str, int] = {}
    for table, component, place in zip(tables, components, places, strict=True):
        written, summary, without = (None, *named(table, component)) if place is None else told(table, component)
        found.append(summary)
        slices.append(written)
        timeless.update(_by_query(without, component))
    return CutPartials(tuple(found), stats, tuple(slices), timeless)


def _by_query(timeless: Timeless, component: Component) -> dict[str, int]:
    """Return the rows of each query of a component, given those of each of its conditions."""
    rows = {component.conditions[tag]: number for tag, number in timeless.items()}
    key_sets = [key_set for key_set in component.key_sets if key_set.condition in rows]
    return {query.name: rows[key_set.condition] for key_set in key_sets for query in key_set.queries}


def _collect(frames: Sequence[DataFrame]) -> list[pa.Table]:
    """Return the rows of several DataFrames of different columns with one job."""
    from pyspark.sql import functions as F

    if len(frames) == 1:
        return [frames[0].toArrow()]
    numbered = [
        frame.select(F.lit(i).alias("_frame"), *[F.col(name).alias(f"{i}{name}") for name in frame.columns])
        for i, frame in enumerate(frames)
    ]
    table = functools.reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), numbered).toArrow()
    return [
        table.filter(pc.equal(table.column("_frame"), i))
        .select([f"{i}{name}" for name in frame.columns])
        .rename_columns(frame.columns)
        for i, frame in enumerate(frames)
    ]


def observed(observation: Any) -> dict[str, Any] | None:
    """Return the observed values; None when the optimizer dropped the observed scan, as for a filter that is false."""
    from py4j.protocol import Py4JJavaError

    try:
        values = observation.get
    except Py4JJavaError:
        return None
    return dict(values) if values else None
