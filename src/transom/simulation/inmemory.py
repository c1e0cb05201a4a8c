"""The job of a cut without Spark: partials of rows that are in memory, by Arrow, for simulated runners.

It knows what transcripts need: rows of a memory source without transformations, keys and inputs that are plain columns,
event times that are one, or `timestamp_seconds` of one, fixed and calendar windows, and count, sum, min and max.
Anything else is refused, never computed in another way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.engine.partials.late import late_moments, late_rows
from transom.engine.partials.tables import PANE, describe_table, state_name
from transom.engine.spark.counting import counted
from transom.engine.spark.cutstats import CutStats
from transom.engine.streams.cuts import CutJob, CutOutcome
from transom.engine.streams.stream import RunningStream
from transom.errors import DefinitionError
from transom.model.expression import Expression
from transom.model.time import MICROS_PER_SECOND, Micros
from transom.sources.base import ARRIVAL, PARTITION
from transom.sources.inmemory import MemorySource
from transom.windows.aggregates.base import Primitive, Types
from transom.windows.aggregates.count import Count
from transom.windows.aggregates.extremes import Extreme
from transom.windows.aggregates.sums import Sum
from transom.windows.components import Component
from transom.windows.panes import Times

_UNITS = {"seconds": MICROS_PER_SECOND, "millis": MICROS_PER_SECOND // 1000, "micros": 1}
_FROM_NUMBER = re.compile(rf"timestamp_({'|'.join(_UNITS)})\((\w+)\)")

REMEDY = "Let the simulated runner compute with Spark: work=run_on_spark."


def run_in_memory(stream: RunningStream, job: CutJob) -> CutOutcome:
    """Return what the job of a cut brings, as `run_on_spark` does; late rows are counted, not written as dead letters.

    O(rows x components).

    Raises:
        DefinitionError: A query, the source or a row is of a kind that only Spark can compute.
    """
    source, cut, compiled = stream.source, job.cut, job.compiled
    if not isinstance(source, MemorySource):
        raise _refused(f"The stream {stream.name!r} reads {source.describe()}")
    if cut.thinning is not None:
        raise _refused(f"Rows of the stream {stream.name!r} are thinned")
    if stream.buffers:
        raise _refused(f"Rows of the stream {stream.name!r} are kept for a join")
    rows = source.rows(cut.start, cut.end, cut.left_out)
    time = _event_time(rows, stream.definition.rows.event_time)
    stats, good = _counted(rows, time, cut.ahead, len(source.partitions))
    rows, time = rows.filter(good), time.filter(good)
    queries = [known.query for known in compiled.queries.values()]
    before = late_moments(queries, cut.watermark)
    types = {primitive: kinds for *_, kept in compiled.stores for primitive, kinds in kept.items()}
    tables, late = [], {}
    for component, note in zip(compiled.components, compiled.plan.notes, strict=True):
        if stream.definition.rows.branches[component.branch]:
            raise _refused(f"The stream {stream.name!r} has transformations")
        table = _partials(component, rows, time.to_numpy(), types)
        late.update(late_rows(table, component, before))
        tables.append(describe_table(table, note))
    return CutOutcome(cut, tuple(tables), stats, late={query: n for query, n in late.items() if n})


def _refused(what: str) -> DefinitionError:
    return DefinitionError(f"{what}, which is not computed without Spark.", REMEDY)


def _column(rows: pa.Table, expression: Expression) -> pa.ChunkedArray:
    if expression.column is not None or expression.text not in rows.column_names:
        raise _refused(f"{expression.text!r} is no column")
    return rows.column(expression.text)


def _event_time(rows: pa.Table, expression: Expression) -> pa.ChunkedArray:
    if (made := _FROM_NUMBER.fullmatch(expression.text)) and made[2] in rows.column_names:
        number = rows.column(made[2])
        if pa.types.is_int64(number.type):
            return pc.multiply_checked(number, _UNITS[made[1]])
    column = _column(rows, expression)
    if not pa.types.is_timestamp(column.type):
        raise _refused(f"The event time has type {column.type}")
    return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())


def _counted(
    rows: pa.Table, time: pa.ChunkedArray, ahead: Micros | None, partitions: int
) -> tuple[CutStats, pa.BooleanArray]:
    """Return the counts over all rows, and which of them the queries see."""
    of = rows.column(PARTITION).to_numpy() if PARTITION in rows.column_names else None
    stats, good = counted(time.combine_chunks(), ahead, partitions, of, rows.column(ARRIVAL).to_numpy())
    return stats, pa.array(good)


def _partials(component: Component, rows: pa.Table, time: Times, types: Mapping[Primitive, Types]) -> pa.Table:
    """Return one row per pane and keys, as the job's aggregation does."""
    if component.conditions != (None,):
        raise _refused("A condition of a query")
    if component.direct or any(key_set.sessions for key_set in component.key_sets):
        raise _refused("A session, or a window that is made of rows instead of panes,")
    columns: dict[str, Any] = {PANE: pa.array(component.grid.start(time), pa.int64())}
    for key in component.keys:
        columns[key.name] = _column(rows, key.expression)
        if pa.types.is_floating(columns[key.name].type):
            raise _refused(f"The key {key.name!r} of type {columns[key.name].type}")
    groups = list(columns)
    columns["_row"] = pa.array(np.ones(rows.num_rows, np.int64))
    functions: dict[tuple[str, str], None] = {}
    places: dict[str, str] = {}
    for number, primitive in enumerate(component.primitives):
        name = "_row"
        for expression in primitive.inputs:
            name = f"_input {expression.text}"
            columns[name] = _number(_column(rows, expression), primitive)
        for state, function in _functions(primitive).items():
            functions[name, function] = None
            places[state_name(number, state)] = f"{name}_{function}"
    grouped = pa.table(columns).group_by(groups, use_threads=False).aggregate(list(functions))
    result = {name: grouped.column(name) for name in groups}
    for number, primitive in enumerate(component.primitives):
        for state in _functions(primitive):
            column = grouped.column(places[state_name(number, state)])
            result[state_name(number, state)] = column.cast(types.get(primitive, {}).get(state, column.type))
        if isinstance(primitive, Sum):
            result[state_name(number, "carry")] = pa.array(np.zeros(grouped.num_rows, np.int64))
    return pa.table(result)


def _functions(primitive: Primitive) -> dict[str, str]:
    """Return Arrow's function for each column of a primitive's state; `Sum` has its carry besides."""
    if isinstance(primitive, Count):
        return {"count": "count"}
    if isinstance(primitive, Sum):
        return {"sum": "sum", "count": "count"}
    if isinstance(primitive, Extreme) and primitive.function in ("min", "max"):
        return {"value": primitive.function}
    raise _refused(f"{primitive!r}")


def _number(column: pa.ChunkedArray, primitive: Primitive) -> pa.ChunkedArray:
    """Refuse values with which Arrow and Spark do not do the same."""
    kind = column.type
    if isinstance(primitive, Count):
        return column
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_timestamp(kind)):
        raise _refused(f"{primitive!r} of {kind}")
    if pa.types.is_floating(kind) and pc.any(pc.is_nan(column)).as_py():
        raise _refused(f"{primitive!r} of NaN")
    return column
