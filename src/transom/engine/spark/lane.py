"""How partials are computed without Spark SQL, of queries of which everything is known to be the same there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from transom.engine.partials.tables import PANE, TAG, state_name
from transom.engine.spark.columns import TIME, Unrepeatable
from transom.engine.spark.compile import Compiled
from transom.engine.spark.eventtimes import time_columns
from transom.engine.spark.laneplan import LanePlan
from transom.engine.spark.plan import Needed, Rows, utc
from transom.engine.spark.programs import OnlySparkError, empty_rows, runner_of
from transom.engine.spark.sparkterms import reader_of
from transom.model.expression import Expression
from transom.model.sessions import is_connect
from transom.native.evaluate import Runner
from transom.native.groups import Bits, Chosen, Listed, Moments, PairMoments, Sorted, State, is_ordered
from transom.native.partials import Grouping, Reduced
from transom.native.times import UTC
from transom.native.values import is_moment
from transom.windows.aggregates.base import Primitive, Types
from transom.windows.aggregates.best import Best
from transom.windows.aggregates.bits import Bits as BitsOfValues
from transom.windows.aggregates.collect import FirstOf, Smallest
from transom.windows.aggregates.count import Count
from transom.windows.aggregates.edges import Edge
from transom.windows.aggregates.extremes import Extreme
from transom.windows.aggregates.filtered import Filtered
from transom.windows.aggregates.mean import MeanSum
from transom.windows.aggregates.moments import Moments as SmallMoments
from transom.windows.aggregates.pairs import PairMoments as Pairs
from transom.windows.aggregates.rowstates import FrequentOf, HllOf, KllOf, RowsFunction
from transom.windows.aggregates.shape import HigherMoments
from transom.windows.aggregates.sketches import HLL_LG_K, Hll, Kll
from transom.windows.aggregates.sums import Sum
from transom.windows.aggregates.times import TimeRange
from transom.windows.aggregates.topk import FrequentItems, HeavyItems, map_size
from transom.windows.aggregates.udaf import UserStates
from transom.windows.components import ROWS, Component

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_OTHER_TEXTS = re.compile(r"[:<]((?:var)?char\(\d+\)|string collate \w+)")
Made: TypeAlias = "dict[str, Reduced] | State"
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
    from pyspark.sql.types import LongType, StructField, StructType

    if is_connect(session):
        raise OnlySparkError("Spark Connect has no tasks without SQL")
    if rows.arrival:
        raise OnlySparkError("the event time may be that of the arrival")
    if other := _OTHER_TEXTS.search(schema.simpleString()):
        raise OnlySparkError(f"texts of the type {other[1]} are compared in another way")
    if not compiled.components:
        raise OnlySparkError("there is no query")
    if any(isinstance(step, Unrepeatable) for branch in compiled.plan.branches.values() for step in branch.chain):
        raise OnlySparkError("map(..., deterministic=False) may do something else in each micro-batch")
    columns = _columns(schema)
    raw = empty_rows(session, schema)
    written, _ = time_columns(raw, rows.event_time)
    time = runner_of(raw.select(written.alias(TIME)), raw)
    timed = empty_rows(session, StructType([*schema, StructField(TIME, LongType())]))
    plan, types = compiled.plan, _types(compiled)
    versions = {table: empty_rows(session, table.schema(session)) for table in plan.lookup_tables}
    lookups = {table.name: rows for table, rows in versions.items()}
    branches: dict[int, tuple[Runner, list[tuple[int, Grouping]]]] = {}
    for place, (component, needed) in enumerate(zip(plan.components, plan.needed, strict=True)):
        if id(needed) not in branches:
            branch = replace(plan.branches[component.branch], tables=versions)
            branches[id(needed)] = runner_of(needed(branch.as_written(timed)), timed, lookups), []
        runner, groupings = branches[id(needed)]
        groupings.append((place, _grouping(component, needed, runner.program.schema, types)))
    made = tuple((runner, tuple(groupings)) for runner, groupings in branches.values())
    utc = reader_of(session).zone in UTC
    return LanePlan(columns, time, made, len(plan.components), utc)


def _columns(schema: StructType) -> pa.Schema:
    """Return the columns of a source as Arrow's.

    Raises:
        OnlySparkError: Arrow has not the type of one.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    found: list[pa.Field] = []
    for field in schema:
        try:
            found += to_arrow_schema(StructType([field]), timezone="UTC")
        except PySparkException:
            raise OnlySparkError(f"only Spark has values of {field.name} ({field.dataType.simpleString()})") from None
    return pa.schema(found)


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
    others: list[tuple[dict[str, str], State]] = []
    for number, primitive in enumerate(component.primitives):
        kinds = {"count": pa.int64()} if primitive == ROWS else types[component.branch, primitive]
        mine = {name: state_name(number, name) for name in kinds}
        fields += [pa.field(mine[name], kind) for name, kind in kinds.items()]
        found = _made_of(primitive, needed.names, columns, kinds)
        if isinstance(found, dict):
            states += [replace(found[name], name=column) for name, column in mine.items()]
        else:
            others.append((mine, found))
    conditions = tuple(None if c is None else needed.conditions[c] for c in component.conditions)
    schema = utc(pa.schema(fields))
    return Grouping(schema, component.grid.start, TIME, tuple(keys), conditions, tuple(states), tuple(others))


def _is_key(kind: pa.DataType) -> bool:
    """Tell whether Arrow groups values of a type as Spark does."""
    return is_ordered(kind)


def _made_of(primitive: Primitive, names: Mapping[Expression, str], columns: pa.Schema, types: Types) -> Made:
    """Return what makes a primitive's state: of each of its columns by name, or of all of them.

    Args:
        primitive: The primitive.
        names: Columns of its inputs and conditions.
        columns: Their types.
        types: Of the state.

    Raises:
        OnlySparkError: Only Spark does.
    """
    if isinstance(primitive, Filtered):
        where = names[primitive.condition]
        inner = _made_of(primitive.of, names, columns, types)
        if not isinstance(inner, dict):
            return replace(inner, where=where)  # type: ignore[type-var]
        return {name: replace(each, of=each.of or where, where=where) for name, each in inner.items()}
    if isinstance(primitive, TimeRange):
        return {"first": Reduced("", "min", TIME), "last": Reduced("", "max", TIME)}
    inputs = [names[expression] for expression in primitive.inputs]
    kinds = [columns.field(name).type for name in inputs]
    if isinstance(primitive, Count):
        return {"count": Reduced("", "count", *inputs)}
    found: Made | None = _of_one(primitive, inputs[0], kinds[0], types) if len(inputs) == 1 else None
    found = _of_groups(primitive, inputs, kinds, types) if found is None else found
    if found is None:
        raise OnlySparkError(f"only Spark computes {type(primitive).__name__.lower()} of {', '.join(map(str, kinds))}")
    return found


def _of_one(primitive: Primitive, x: str, kind: pa.DataType, types: Types) -> dict[str, Reduced] | None:
    """Return what makes the state of a sum, mean or extreme; None if only Spark does."""
    count, exact = Reduced("", "count", x), pa.types.is_decimal(kind)
    summable = _is_number(kind) or exact
    if isinstance(primitive, Sum) and summable:
        wide = types["sum"] if exact else pa.int64() if pa.types.is_integer(kind) else pa.float64()
        return {"sum": Reduced("", "sum", x, summed_as=wide), "count": count, "carry": Reduced("", "zero")}
    if isinstance(primitive, MeanSum) and summable:
        summed = Reduced("", "sum", x, summed_as=types["exact"]) if exact else Reduced("", "null")
        return {"count": count, "sum": Reduced("", "sum", x, summed_as=pa.float64()), "exact": summed}
    if isinstance(primitive, Extreme) and is_ordered(kind):
        return {"value": Reduced("", _LEAST[primitive.function], x)}  # type: ignore[arg-type]
    return None


def _of_groups(primitive: Primitive, inputs: Sequence[str], kinds: Sequence[pa.DataType], types: Types) -> State | None:
    """Return what makes the state of chosen rows, sorted values, bits or moments; None if only Spark does."""
    x = inputs[0] if inputs else ""
    if isinstance(primitive, Edge):
        return Chosen("time", TIME, x, primitive.last, known=x if primitive.ignore_nulls else "")
    if isinstance(primitive, Best) and is_ordered(kinds[1]):
        return Chosen("by", inputs[1], x, primitive.largest, known=inputs[1])
    if isinstance(primitive, Smallest) and is_ordered(kinds[0]):
        return Sorted("values", x, types["values"], primitive.limit, primitive.unique)
    if isinstance(primitive, FirstOf) and all(map(is_ordered, kinds)):
        return Sorted("rows", x, types["rows"], primitive.limit, by=inputs[1], descending=primitive.descending)
    if (made := _rows_function(primitive, kinds)) is not None:
        known = x if isinstance(primitive, (Hll, Kll)) else ""
        named = primitive.fields if isinstance(primitive, UserStates) else enumerate("xw")
        fields = tuple((str(name), column) for (name, _), column in zip(named, inputs, strict=False))
        return Listed(next(iter(types)), fields, made, known, weighed=isinstance(primitive, HeavyItems))
    if isinstance(primitive, BitsOfValues):
        return Bits(primitive.function, x)
    if isinstance(primitive, SmallMoments) and _is_number(kinds[0]):
        return Moments(x, (2,))
    if isinstance(primitive, HigherMoments) and _is_number(kinds[0]):
        return Moments(x, (2, 3, 4))
    if isinstance(primitive, Pairs) and all(map(_is_number, kinds)):
        return PairMoments(*inputs)
    return None


def _rows_function(primitive: Primitive, kinds: Sequence[pa.DataType]) -> RowsFunction | None:
    """Return what makes states of lists of rows; None if none does, or Spark gives it other values."""
    x = kinds[0] if kinds else pa.null()
    is_whole, is_text = pa.types.is_integer(x), pa.types.is_string(x)
    if isinstance(primitive, Hll) and is_ordered(x) and not pa.types.is_decimal(x):
        return HllOf(HLL_LG_K)
    if isinstance(primitive, Kll) and _is_number(x):
        return KllOf(primitive.k)
    if isinstance(primitive, (FrequentItems, HeavyItems)) and (is_whole or is_text or pa.types.is_boolean(x)):
        return FrequentOf(map_size(primitive.max_items)) if all(map(pa.types.is_integer, kinds[1:])) else None
    if isinstance(primitive, UserStates) and all(is_ordered(kind) and not is_moment(kind) for kind in kinds):
        return primitive.executor_function.function  # moments have the session's zone there
    return None


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))
