"""The job of a cut as a DataFrame: one scan, the users' transformations, one aggregation per component."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from transom.engine.spark.columns import is_case_sensitive, to_column
from transom.engine.tables import PANE, state_name
from transom.errors import DefinitionError
from transom.model.expression import Expression
from transom.model.query import Query
from transom.model.time import Micros
from transom.sources.base import CORRUPT, PARTITION
from transom.windows.aggregates.base import Primitive
from transom.windows.aggregates.udaf import executor_function_of
from transom.windows.components import Component

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Transformation: TypeAlias = "Callable[[DataFrame], DataFrame]"

TIME = "_event_micros"
"""Event time as a bigint of microseconds; travels with the row through the users' transformations."""


@dataclass(frozen=True)
class Rows:
    """What a stream's rows are before any query sees them."""

    event_time: Expression
    branches: tuple[tuple[Transformation, ...], ...]
    """Chains of transformations; queries name them by index."""


def with_time(raw: DataFrame, event_time: Expression) -> DataFrame:
    """Return the rows with their event time in microseconds.

    Raises:
        DefinitionError: The event time is no timestamp.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    column = to_column(event_time, raw.columns, is_case_sensitive(raw))
    try:
        kind = raw.select(column).schema[0].dataType.typeName()
    except AnalysisException as error:
        raise DefinitionError(
            f"event_time: {event_time.text!r} is not in the stream: {first_line(error)}.",
            f"The columns are {', '.join(raw.columns)}.",
        ) from error
    advice = {
        "long": f'Write event_time="timestamp_millis({event_time.text})" (or timestamp_seconds, timestamp_micros).',
        "integer": f'Write event_time="timestamp_seconds({event_time.text})".',
        "string": f'Write event_time="try_to_timestamp({event_time.text})", or timestamp in the schema.',
    }
    if kind not in ("timestamp", "timestamp_ntz", "date"):
        raise DefinitionError(
            f"event_time: {event_time.text!r} is a {kind}, not a timestamp.",
            advice.get(kind, "Give a column or an expression of type timestamp."),
        )
    return raw.withColumn(TIME, F.unix_micros(column.cast("timestamp")))


def believed(ahead: Micros | None) -> str:
    """Return the SQL condition that a row's event time can be used."""
    known = f"{TIME} IS NOT NULL"
    return known if ahead is None else f"{known} AND {TIME} <= {ahead}L"


def good_rows(timed: DataFrame, ahead: Micros | None) -> DataFrame:
    """Return the rows that the queries see: parsed, with a time that is neither null nor too far ahead."""
    condition = believed(ahead)
    if CORRUPT in timed.columns:
        condition = f"{CORRUPT} IS NULL AND {condition}"
    return timed.where(condition).drop(CORRUPT, PARTITION)


def transformed(good: DataFrame, chain: Sequence[Transformation], event_time: Expression) -> DataFrame:
    """Return the rows after the users' transformations, still with their event time.

    Raises:
        DefinitionError: A transformation returned no DataFrame, or dropped the event time.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    df = good
    for function in chain:
        df = function(df)
        if not hasattr(df, "groupBy"):
            raise DefinitionError(
                f"map: {getattr(function, '__name__', function)!r} returned {type(df).__name__}, not a DataFrame.",
                "Return the DataFrame it made.",
            )
    if TIME not in df.columns:
        column = to_column(event_time, df.columns, is_case_sensitive(df))
        try:
            df = df.withColumn(TIME, F.unix_micros(column.cast("timestamp")))
        except AnalysisException as error:
            raise DefinitionError(
                f"map: the event time {event_time.text!r} is gone after the transformation.",
                f"Keep it, or the column {TIME}, in the select.",
            ) from error
    return df.where(f"{TIME} IS NOT NULL") if chain else df


def aggregated(rows: DataFrame, component: Component) -> DataFrame:
    """Return one row per pane and key: PANE, the keys as _k0, _k1, ..., and the states of the primitives."""
    from pyspark.sql import functions as F

    names, case_sensitive = rows.columns, is_case_sensitive(rows)
    inputs = tuple(dict.fromkeys(e for p in component.primitives for e in p.inputs))
    reference = {expression: f"_i{i}" for i, expression in enumerate(inputs)}
    selected: list[Column] = [F.expr(component.grid.start_sql(TIME)).alias(PANE)]
    selected += [
        to_column(key.expression, names, case_sensitive).alias(f"_k{i}") for i, key in enumerate(component.keys)
    ]
    selected += [to_column(e, names, case_sensitive).alias(name) for e, name in reference.items()]
    selected.append(F.col(TIME))
    states: list[Column] = []
    for i, primitive in enumerate(component.primitives):
        sql = primitive.sql([reference[e] for e in primitive.inputs], TIME)
        states += [F.expr(text).alias(state_name(i, column)) for column, text in sql.items()]
    grouped = rows.select(*selected).groupBy(PANE, *[f"_k{i}" for i in range(len(component.keys))])
    result = grouped.agg(*states)
    for i, primitive in enumerate(component.primitives):
        function = executor_function_of(primitive)
        if function is not None:
            call = F.arrow_udf(function.function, function.returns)  # type: ignore[attr-defined]
            name = state_name(i, function.column)
            result = result.withColumn(name, call(F.col(name)))
    return result


def state_types(component: Component, schema: pa.Schema) -> dict[Primitive, dict[str, pa.DataType]]:
    """Return the types of each primitive's columns in a component's result."""
    types: dict[Primitive, dict[str, pa.DataType]] = {}
    for i, primitive in enumerate(component.primitives):
        prefix = state_name(i, "")
        types[primitive] = {
            field.name.removeprefix(prefix): field.type for field in schema if field.name.startswith(prefix)
        }
    return types


def input_types(rows: DataFrame, query: Query) -> dict[str, tuple[pa.DataType, ...]]:
    """Return the Arrow types of each aggregate's inputs, by result column."""
    from pyspark.sql.pandas.types import to_arrow_schema

    names, case_sensitive = rows.columns, is_case_sensitive(rows)
    flat = [(name, e) for name, aggregate in query.aggregates for e in aggregate.inputs]
    columns = [to_column(e, names, case_sensitive).alias(f"_i{i}") for i, (_, e) in enumerate(flat)]
    schema = utc(to_arrow_schema(rows.select(*columns).schema, timezone="UTC")) if columns else pa.schema([])
    result: dict[str, tuple[pa.DataType, ...]] = {name: () for name, _ in query.aggregates}
    for field, (name, _) in zip(schema, flat, strict=True):
        result[name] += (field.type,)
    return result


def utc(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose timestamps are labelled UTC; the values of Spark's timestamps are UTC in any case."""
    return pa.schema([pa.field(f.name, _utc_type(f.type), f.nullable) for f in schema])


def _utc_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp("us", "UTC")
    if pa.types.is_list(kind):
        return pa.list_(_utc_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _utc_type(f.type), f.nullable) for f in kind])
    return kind


def plan_text(df: DataFrame) -> str:
    """Return the analysed plan of a DataFrame as text without the numbers that differ from run to run."""
    if hasattr(df, "_jdf"):
        text = df._jdf.queryExecution().analyzed().toString()
    else:
        text = df._explain_string(extended=True).split("== Optimized")[0]  # type: ignore[operator]
    return re.sub(r"#\d+L?|plan_id=\d+|\[id=[^\]]*\]|@[0-9a-f]+", "", str(text)).strip()


def first_line(error: BaseException) -> str:
    """Return the first sentence of an error, without Spark's class names and traces."""
    text = str(error).strip().splitlines()
    return (text[0] if text else type(error).__name__).rstrip(".")
