"""How partials are computed without Spark SQL, of queries of which everything is known to be the same there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from transom.engine.partials.tables import PANE, TAG, state_name
from transom.engine.spark.columns import TIME
from transom.engine.spark.compile import Compiled
from transom.engine.spark.eventtimes import time_columns
from transom.engine.spark.laneplan import LanePlan
from transom.engine.spark.plan import Needed, Rows, utc
from transom.engine.spark.programs import OnlySparkError, empty_rows, runner_of
from transom.model.expression import Expression
from transom.model.sessions import is_connect
from transom.native.evaluate import Runner
from transom.native.partials import Grouping, Reduced
from transom.windows.aggregates.base import Primitive, Types
from transom.windows.aggregates.count import Count
from transom.windows.aggregates.extremes import Extreme
from transom.windows.aggregates.filtered import Filtered
from transom.windows.aggregates.mean import MeanSum
from transom.windows.aggregates.sums import Sum
from transom.windows.aggregates.times import TimeRange
from transom.windows.components import ROWS, Component

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_OTHER_TEXTS = re.compile(r"[:<]((?:var)?char\(\d+\)|string collate \w+)")
_LEAST = {"min": "min", "max": "max", "bool_and": "min", "bool_or": "max"}


def lane_plan(session: SparkSession, schema: StructType, rows: Rows, compiled: Compiled) -> LanePlan:
    """Return how the partials of queries are computed without Spark SQL.

    Args:
        session: Transom's session.
        schema: What the source gives.
        rows: What becomes of it before the queries see it.
        compiled: The queries.

    Raises:
        OnlySparkError: Something of them is known to Spark only; says what.
    """
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import LongType, StructField, StructType

    if is_connect(session):
        raise OnlySparkError("Spark Connect has no tasks without SQL")
    if rows.arrival:
        raise OnlySparkError("the event time may be that of the arrival")
    if other := _OTHER_TEXTS.search(schema.simpleString()):
        raise OnlySparkError(f"texts of the type {other[1]} are compared in another way")
    if not compiled.components:
        raise OnlySparkError("there is no query")
    raw = empty_rows(session, schema)
    written, _ = time_columns(raw, rows.event_time)
    time = runner_of(raw.select(written.alias(TIME)), raw)
    timed = empty_rows(session, StructType([*schema, StructField(TIME, LongType())]))
    plan, types = compiled.plan, _types(compiled)
    branches: dict[int, tuple[Runner, list[tuple[int, Grouping]]]] = {}
    for place, (component, needed) in enumerate(zip(plan.components, plan.needed, strict=True)):
        if id(needed) not in branches:
            branch = plan.branches[component.branch]
            branches[id(needed)] = runner_of(needed(branch.as_written(timed)), timed), []
        runner, groupings = branches[id(needed)]
        groupings.append((place, _grouping(component, needed, runner.program.schema, types)))
    made = tuple((runner, tuple(groupings)) for runner, groupings in branches.values())
    return LanePlan(to_arrow_schema(schema, timezone="UTC"), time, made, len(plan.components))


def _types(compiled: Compiled) -> dict[tuple[int, Primitive], Types]:
    return {(shape[0].branch, p): kinds for shape in compiled.stores for p, kinds in shape[3].items()}


def _grouping(
    component: Component, needed: Needed, columns: pa.Schema, types: Mapping[tuple[int, Primitive], Types]
) -> Grouping:
    if component.direct:
        raise OnlySparkError("windows are computed directly")
    fields = [pa.field(PANE, pa.int64())]
    if len(component.conditions) > 1:
        fields.append(pa.field(TAG, pa.int32()))
    keys = []
    for key in component.keys:
        name = needed.names[key.expression]
        kind = columns.field(name).type
        if not _is_key(kind):
            raise OnlySparkError(f"the key {key.name} has the type {kind}")
        keys.append(name)
        fields.append(pa.field(key.name, kind))
    states: list[Reduced] = []
    for number, primitive in enumerate(component.primitives):
        found = _reduced(primitive, needed.names, columns)
        kinds = {"count": pa.int64()} if primitive == ROWS else types[component.branch, primitive]
        for name, kind in kinds.items():
            states.append(replace(found[name], name=state_name(number, name)))
            fields.append(pa.field(state_name(number, name), kind))
    conditions = tuple(None if c is None else needed.conditions[c] for c in component.conditions)
    return Grouping(utc(pa.schema(fields)), component.grid.start, TIME, tuple(keys), conditions, tuple(states))


def _is_key(kind: pa.DataType) -> bool:
    """Tell whether Arrow groups values of a type as Spark does."""
    of = pa.types
    return bool(
        of.is_string(kind)
        or of.is_integer(kind)
        or of.is_boolean(kind)
        or of.is_date32(kind)
        or (of.is_timestamp(kind) and kind.tz is not None)
    )


def _reduced(primitive: Primitive, names: Mapping[Expression, str], columns: pa.Schema) -> dict[str, Reduced]:
    """Return what makes the columns of a primitive's state, by their names.

    Raises:
        OnlySparkError: Only Spark does.
    """
    if isinstance(primitive, Filtered):
        where = names[primitive.condition]
        inner = _reduced(primitive.of, names, columns)
        return {name: replace(each, of=each.of or where, where=where) for name, each in inner.items()}
    if isinstance(primitive, TimeRange):
        return {"first": Reduced("", "min", TIME), "last": Reduced("", "max", TIME)}
    inputs = [names[expression] for expression in primitive.inputs]
    kinds = [columns.field(name).type for name in inputs]
    if isinstance(primitive, Count):
        return {"count": Reduced("", "count", *inputs)}
    if len(inputs) == 1:
        (x,), (kind,) = inputs, kinds
        count, number = Reduced("", "count", x), pa.types.is_integer(kind) or pa.types.is_floating(kind)
        if isinstance(primitive, Sum) and number:
            wide = pa.int64() if pa.types.is_integer(kind) else pa.float64()
            total = Reduced("", "sum", x, summed_as=wide)
            return {"sum": total, "count": count, "carry": Reduced("", "zero")}
        if isinstance(primitive, MeanSum) and number:
            return {"count": count, "sum": Reduced("", "sum", x, summed_as=pa.float64()), "exact": Reduced("", "null")}
        if isinstance(primitive, Extreme) and (number or _is_key(kind)):
            return {"value": Reduced("", _LEAST[primitive.function], x)}  # type: ignore[arg-type]
    raise OnlySparkError(f"only Spark computes {type(primitive).__name__.lower()} of {', '.join(map(str, kinds))}")
