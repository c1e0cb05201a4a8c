"""Runs the job of a cut and brings back partials and counts."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.engine.cluster.files import Slice
from transom.engine.partials.tables import LENGTH, PANE, TAG, state_name
from transom.engine.spark import eventtimes
from transom.engine.spark.caching import cached
from transom.engine.spark.columns import TIME
from transom.engine.spark.packing import Packing, Timeless, named, packed, told
from transom.engine.spark.plan import StreamPlan
from transom.model.time import MIN_TIME, Micros
from transom.model.window import WindowSpec
from transom.scheduling.arrivals import DelayMoments
from transom.sources.base import ARRIVAL, CORRUPT, ORIGIN, PARTITION
from transom.windows.components import ROWS, Component
from transom.windows.intervals import TIMES
from transom.windows.panes import Times
from transom.windows.query import WindowedQuery

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SMALL_CUT_ROWS = 50_000
"""Up to so many rows one task does the whole cut: no exchange, one stage."""


@dataclass(frozen=True)
class CutStats:
    """Counts over the raw rows of a cut."""

    rows: int = 0
    newest: tuple[Micros | None, ...] = ()
    """Largest believed event time of each source partition; None where the cut had no such row."""
    null_time: int = 0
    ahead: int = 0
    corrupt: int = 0
    out_of_range: int = 0
    delays: DelayMoments = field(default_factory=DelayMoments)
    """Arrival minus event time of the rows that queries see; none where the source does not tell when they arrived."""

    @property
    def bad(self) -> int:
        """Rows that no query sees."""
        return self.null_time + self.ahead + self.corrupt + self.out_of_range

    def with_timeless(self, null_time: int, out_of_range: int) -> CutStats:
        """Return the counts with rows that a transformation left without an event time, or with one out of range."""
        return replace(self, null_time=self.null_time + null_time, out_of_range=self.out_of_range + out_of_range)

    def to_json(self) -> dict[str, Any]:
        """Return the counts as JSON."""
        return {
            "rows": self.rows,
            "newest": list(self.newest),
            "null_time": self.null_time,
            "ahead": self.ahead,
            "corrupt": self.corrupt,
            "out_of_range": self.out_of_range,
            "delays": [self.delays.records, self.delays.total, self.delays.spread],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> CutStats:
        """Return what `to_json` wrote."""
        delays = DelayMoments(*value.get("delays", ()))
        return cls(**{**value, "newest": tuple(value["newest"]), "delays": delays})


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
    estimated_rows: int,
    packings: Sequence[Packing | None] = (),
) -> CutPartials:
    """Run the one job of a cut.

    The counts are observed in the same pass, before any transformation. (DESIGN asks for ordinary aggregate columns;
    the users' filters sit between the scan and the aggregation, so those would need a second pass. See
    docs/decisions/0002.) With several components what they need of the rows is kept for the length of the job, so that
    there is one scan; else (several branches, or nothing is shared) the parsed rows.

    Args:
        raw: The rows of the cut, as the source reads them.
        stream: Event time, transformations and aggregations; without aggregations only the counts are made.
        partitions: Number of source partitions.
        ahead: Largest event time that is believed; None for no bound.
        estimated_rows: Size of the cut; decides whether it is worth more than one task.
        packings: For each component where its partials go; None, or nothing at all, for the driver.
    """
    from pyspark.sql import Observation

    raw = raw.drop(ORIGIN)
    columns = raw.columns
    if estimated_rows <= SMALL_CUT_ROWS:
        raw = raw.coalesce(1)
    timed = raw.withColumn(TIME, stream.time)
    stats = _stat_columns(columns, partitions, ahead)
    if not stream.aggregations:
        return CutPartials((), _stats_of(timed.agg(*stats).toArrow().to_pylist()[0], partitions))
    several, alike = len(stream.aggregations) > 1, len({id(needed) for needed in stream.needed}) == 1
    shared: DataFrame | None = None
    if several and not alike:
        timed = shared = cached(timed)
    try:
        observation = Observation()
        good = eventtimes.good_rows(timed.observe(observation, *stats), ahead, columns)
        rows = {index: branch(good) for index, branch in stream.branches.items()}
        read = {id(n): n(rows[c.branch]) for n, c in zip(stream.needed, stream.components, strict=True)}
        if several and alike:
            (number,) = read
            read[number] = shared = cached(read[number])
        pairs = zip(stream.needed, stream.aggregations, strict=True)
        places = list(packings) or [None] * len(stream.components)
        frames = []
        for (needed, aggregation), component, place in zip(pairs, stream.components, places, strict=True):
            frame = aggregation(read[id(needed)])
            frames.append(frame if place is None else packed(frame, component, place))
        tables = _collect(frames)
        counted = observed(observation)
        if counted is None:
            counted = timed.agg(*stats).toArrow().to_pylist()[0]
    finally:
        if shared is not None:
            shared.unpersist()
    found: list[pa.Table] = []
    slices: list[list[Slice] | None] = []
    timeless: dict[str, int] = {}
    for table, component, place in zip(tables, stream.components, places, strict=True):
        written, summary, without = (None, *named(table, component)) if place is None else told(table, component)
        found.append(summary)
        slices.append(written)
        timeless.update(_by_query(without, component))
    return CutPartials(tuple(found), _stats_of(counted, partitions), tuple(slices), timeless)


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


def late_moments(queries: Sequence[WindowedQuery], watermark: Micros) -> dict[str, Micros]:
    """Return, for each query, the moment before which its rows are late; MIN_TIME when none is."""
    return {query.name: max(MIN_TIME, query.late_before(watermark)) for query in queries}


def late_for_sessions(component: Component, watermark: Micros) -> tuple[Micros, ...]:
    """Return the moments before which rows are late for the sessions of a component, ascending."""
    return tuple(sorted({s.late_before(watermark) for key_set in component.key_sets for s in key_set.sessions}))


def straddled(tables: Sequence[pa.Table], components: Sequence[Component], watermark: Micros) -> tuple[Micros, ...]:
    """Return the moments before which rows are late for sessions and that lie between the rows of a partial.

    Panes need no edge there, since a moment that moves with the watermark would make every plan a new one; only when
    rows on both sides of it are in one pane of a key, which is rare, the job must run again with that edge.

    Args:
        tables: The components' partials.
        components: The components.
        watermark: The watermark in force.
    """
    found: set[Micros] = set()
    for table, component in zip(tables, components, strict=True):
        moments = late_for_sessions(component, watermark)
        if moments:
            first, last = _times(table, component)
            found.update(moment for moment in moments if ((first < moment) & (moment <= last)).any())
    return tuple(sorted(found))


def _times(table: pa.Table, component: Component) -> tuple[Times, Times]:
    """Return the first and the last event time of each partial; its pane's start where that is as good."""
    if TIMES not in component.primitives:
        panes = table.column(PANE).to_numpy()
        return panes, panes
    index = component.primitives.index(TIMES)
    first, last = (table.column(state_name(index, name)).to_numpy() for name in ("first", "last"))
    return first, last


def late_rows(table: pa.Table, component: Component, before: Mapping[str, Micros]) -> dict[str, int]:
    """Return how many rows of a cut came too late for each query.

    Late rows are whole partials, since the moment is a window's edge or lies between the rows of none (`straddled`). Of
    windows that were computed directly, those are counted that lie one after the other up to the moment.

    Args:
        table: The component's partials.
        component: The component.
        before: Moment per query.
    """
    starts, last = table.column(PANE).to_numpy(), _times(table, component)[1]
    counts = state_name(component.primitives.index(ROWS), "count")
    rows = table.column(counts).to_numpy()
    tags = table.column(TAG).to_numpy() if TAG in table.column_names else np.zeros(len(starts), np.int32)
    late: dict[str, int] = {}
    for key_set in component.key_sets:
        mine = tags == component.conditions.index(key_set.condition)
        for query in key_set.queries:
            moment = before[query.name]
            if moment > MIN_TIME:
                chosen = mine & (last < moment)
                if component.direct:
                    length = _length_up_to(query, moment)
                    chosen &= (table.column(LENGTH).to_numpy() == length) & ((moment - starts) % length == 0)
                late[query.name] = int(rows[chosen].sum())
    return late


def _length_up_to(query: WindowedQuery, moment: Micros) -> Micros:
    """Return the length of windows that lie one after the other up to the moment, which is an edge of theirs."""
    fixed = [window for window in query.windows if isinstance(window, WindowSpec)]
    return next(window.length for window in fixed if (moment - window.offset) % window.slide == 0)
