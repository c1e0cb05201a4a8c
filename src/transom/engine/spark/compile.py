"""Turns the queries of a stream into components, stores and types, by asking Spark to analyse them once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from transom.engine.partials.contents import Origin, TableNote
from transom.engine.partials.results import no_results
from transom.engine.spark import eventtimes, plan
from transom.engine.spark.alike import check_texts, of_one_branch
from transom.engine.spark.carrying import Carried, KnownRows
from transom.engine.spark.checks import check_ends, check_expressions, check_keys, check_row_wise, checked_event_time
from transom.engine.spark.columns import TIME, first_line
from transom.engine.spark.plan import Aggregation, Branch, Needed, Rows, StreamPlan
from transom.engine.spark.plantext import plan_text
from transom.engine.spark.shaping import Shaping
from transom.engine.spark.zones import check_zones
from transom.engine.state.queries import CompiledQuery
from transom.engine.state.stores import StoreShape, new_store
from transom.errors import DefinitionError
from transom.model.calendar import CalendarSpec
from transom.model.expression import Expression
from transom.windows.aggregates.base import Primitive, Types
from transom.windows.aggregates.widening import type_name
from transom.windows.components import DEFAULT, Arrangement, Component, KeySet, key_sets_of, ordered, plan_components
from transom.windows.query import Key, WindowedQuery

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class Compiled:
    """Queries as the engine runs them."""

    plan: StreamPlan
    """The job of each cut."""
    stores: tuple[StoreShape, ...]
    queries: dict[str, CompiledQuery]
    definitions: dict[str, dict[str, Any]]
    """The part of each query that must not change while a checkpoint is used."""

    @property
    def components(self) -> tuple[Component, ...]:
        """The components that the job aggregates."""
        return self.plan.components

    @cached_property
    def store_of(self) -> dict[str, StoreShape]:
        """The store of each query's partials."""
        return {query.name: shape for shape in self.stores for query in shape[0].queries}

    def without_queries(self) -> Compiled:
        """Return what is left of it when none of the queries runs; Spark is not asked."""
        rows = replace(self.plan, branches={}, components=(), needed=(), aggregations=(), notes=())
        return Compiled(rows, (), {}, {})


def compile_queries(
    session: SparkSession,
    schema: StructType,
    rows: Rows,
    queries: Sequence[WindowedQuery],
    share: bool = True,
    arrangement: Arrangement = DEFAULT,
    carried: Carried | None = None,
) -> Compiled:
    """Analyse the queries.

    Args:
        session: Transom's Spark session.
        schema: What the source gives.
        rows: What becomes of it before the queries see it.
        queries: The queries.
        share: Whether queries share partials; else each is computed by itself.
        arrangement: Where and how key sets are computed.
        carried: Under which plans a checkpoint knows their rows.

    Raises:
        DefinitionError: A query cannot work; names the query and what Spark says.
    """
    from pyspark.errors import PySparkException

    try:
        return _compile(session, schema, rows, queries, share, arrangement, carried or Carried({}))
    except (PySparkException, DefinitionError) as error:
        if len(queries) > 1:
            for query in queries:
                compile_queries(session, schema, rows, [query], share, arrangement, carried)
        if isinstance(error, DefinitionError):
            raise
        name = queries[0].name if queries else ""
        raise DefinitionError(
            f"query {name!r}: {first_line(error)}.",
            f"The stream's columns are {', '.join(each for each in schema.names if each != TIME)}.",
        ) from error


@dataclass(frozen=True)
class _Seen:
    """The rows that queries see, by branch."""

    time: Column
    """The event time as the plan takes it."""
    branches: dict[int, Branch]
    frames: Mapping[int, DataFrame]
    """Without rows."""
    texts: Mapping[int, str]
    """Their analysed plans."""
    known: Mapping[str, KnownRows]
    """The rows of each query, as its checkpoint names them."""
    identity: Mapping[int, str]
    """Lasting names of the branches."""


@dataclass(frozen=True)
class _Computed:
    """The aggregations of the job of a cut, and their types."""

    needed: tuple[Needed, ...]
    """For each component the columns that it needs of the rows."""
    aggregations: tuple[Aggregation, ...]
    notes: tuple[TableNote, ...]
    states: Mapping[tuple[int, Primitive], Types]
    """Types of the primitives of each branch."""
    keys: Mapping[tuple[int, Key], pa.DataType]
    """Types of the keys of each branch."""


def _compile(
    session: SparkSession,
    schema: StructType,
    rows: Rows,
    queries: Sequence[WindowedQuery],
    share: bool,
    arrangement: Arrangement,
    carried: Carried,
) -> Compiled:
    check_zones(session, (w for query in queries for w in query.windows if isinstance(w, CalendarSpec)))
    seen, queries = _seen(session, schema, rows, queries, carried)
    inputs = {index: plan.expression_types(df, _inputs(queries, index)) for index, df in seen.frames.items()}
    components = plan_components(queries, share, arrangement)
    computed = _computed(seen, components, share)
    stores: list[StoreShape] = []
    for key_set in key_sets_of(queries, share):
        keys = pa.schema([(key.name, computed.keys[key_set.branch, key]) for key in ordered(key_set.keys)])
        kept = {p: computed.states[key_set.branch, p] for p in key_set.primitives}
        stores.append((key_set, _origin(seen.identity, key_set), keys, kept))
    store_of = {query.name: shape for shape in stores for query in shape[0].queries}
    compiled = {q.name: _compiled(session, q, _input_types(q, inputs[q.branch]), store_of) for q in queries}
    definitions = {
        query.name: query.definition(seen.known[query.name].plan)
        | seen.known[query.name].to_json()
        | {"types": _types(query, computed.keys, inputs[query.branch], seen.frames[query.branch])}
        | ({} if share else {"share": False})
        for query in queries
    }
    made = computed.needed, computed.aggregations, computed.notes
    stream = StreamPlan(seen.time, rows.arrival, seen.branches, components, *made)
    return Compiled(stream, tuple(stores), compiled, definitions)


def _compiled(
    session: SparkSession,
    query: WindowedQuery,
    input_types: dict[str, tuple[pa.DataType, ...]],
    store_of: Mapping[str, StoreShape],
) -> CompiledQuery:
    """Return a query with its types, and with what makes results of its aggregates.

    Raises:
        DefinitionError: Its results cannot be computed.
    """
    if not query.steps:
        return CompiledQuery(query, input_types)
    aggregates = no_results(query, new_store(store_of[query.name]), input_types)
    return CompiledQuery(query, input_types, Shaping(session, query, aggregates.schema))


def _seen(
    session: SparkSession, schema: StructType, rows: Rows, queries: Sequence[WindowedQuery], carried: Carried
) -> tuple[_Seen, Sequence[WindowedQuery]]:
    """Return the rows that queries see, and the queries with branches that are alike made one.

    Raises:
        DefinitionError: Rows are not made one by one, or cannot be made.
    """
    raw = session.createDataFrame([], rows.columns(schema))
    written, time = eventtimes.time_columns(raw, rows.event_time)
    good = raw.withColumn(TIME, written)
    branches = {
        index: Branch.of(good, rows.branches[index], rows.event_time)
        for index in dict.fromkeys(query.branch for query in queries)
    }
    frames = {index: branch.as_written(good) for index, branch in branches.items()}
    texts = {index: plan_text(df) for index, df in frames.items()}
    stream_text = checked_event_time(good, rows.event_time)
    for index, df in frames.items():
        check_row_wise(df, texts[index], stream_text, branches[index].chain)
    queries = of_one_branch(queries, frames, texts)
    check_texts(queries)
    check_ends(queries, frames, texts)
    frames = {index: df for index, df in frames.items() if any(query.branch == index for query in queries)}
    known: dict[str, KnownRows] = {}
    identity: dict[int, str] = {}
    for index in frames:
        members = [query for query in queries if query.branch == index]
        known.update(carried.rows_of(session, schema, rows, members, texts[index]))
        identity[index] = known[members[0].name].branch
    return _Seen(time, branches, frames, texts, known, identity), queries


def _computed(seen: _Seen, components: tuple[Component, ...], share: bool) -> _Computed:
    """Return the aggregations of components.

    Raises:
        DefinitionError: An expression or a key cannot be.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    needed = _needed(seen.frames, components, share)
    for branch, mine in {(c.branch, id(n)): (c.branch, n) for c, n in zip(components, needed, strict=True)}.values():
        check_expressions(mine(seen.frames[branch]), seen.texts[branch], seen.branches[branch].chain)
    notes, aggregations = [], []
    states: dict[tuple[int, Primitive], Types] = {}
    keys: dict[tuple[int, Key], pa.DataType] = {}
    for component, mine in zip(components, needed, strict=True):
        aggregation = Aggregation.of(mine, component)
        aggregations.append(aggregation)
        frame = aggregation(mine(seen.frames[component.branch]))
        schema = plan.utc(to_arrow_schema(frame.schema, timezone="UTC"))
        for primitive, columns in plan.state_types(component, schema).items():
            states[component.branch, primitive] = columns
        for i, key in enumerate(component.keys):
            keys[component.branch, key] = schema.field(f"_k{i}").type
        notes.append(_description(seen.identity, component))
    check_keys(keys)
    return _Computed(needed, tuple(aggregations), tuple(notes), states, keys)


def _needed(seen: Mapping[int, DataFrame], components: Sequence[Component], share: bool) -> tuple[Needed, ...]:
    if not share:
        return tuple(Needed.of(seen[component.branch], [component]) for component in components)
    by_branch = {index: Needed.of(df, [c for c in components if c.branch == index]) for index, df in seen.items()}
    return tuple(by_branch[component.branch] for component in components)


def _inputs(queries: Sequence[WindowedQuery], branch: int) -> list[Expression]:
    mine = [aggregate for query in queries if query.branch == branch for _, aggregate in query.aggregates]
    return [
        *(expression for aggregate in mine for expression in aggregate.inputs),
        *(expression for aggregate in mine for primitive in aggregate.primitives for expression in primitive.inputs),
    ]


def _input_types(query: WindowedQuery, types: Mapping[Expression, pa.DataType]) -> dict[str, tuple[pa.DataType, ...]]:
    return {name: tuple(types[e] for e in aggregate.inputs) for name, aggregate in query.aggregates}


def _types(
    query: WindowedQuery,
    keys: Mapping[tuple[int, Key], pa.DataType],
    inputs: Mapping[Expression, pa.DataType],
    seen: DataFrame,
) -> dict[str, dict[str, str]]:
    """Return the types of what a query's states and kept rows are made of, by their names in Spark."""
    rows = [field for field in seen.schema if field.name != TIME] if query.keeps_rows else []
    used = dict.fromkeys(e for _, a in query.aggregates for p in a.primitives for e in p.inputs)
    return {
        "keys": {key.name: type_name(keys[query.branch, key]) for key in query.keys},
        "inputs": {expression.text: type_name(inputs[expression]) for expression in used},
        "rows": {field.name: field.dataType.simpleString() for field in rows},
    }


def _origin(identity: Mapping[int, str], key_set: KeySet) -> Origin:
    """Return where the partials of a key set come from."""
    keys = tuple(sorted(str(key) for key in key_set.keys))
    return Origin(identity[key_set.branch], keys, condition_text(key_set.condition), key_set.only)


def _description(identity: Mapping[int, str], component: Component) -> TableNote:
    """Return what a component's table says of itself."""
    origin = replace(_origin(identity, component.finest), condition="")
    conditions = tuple(condition_text(condition) for condition in component.conditions)
    made_for = tuple(_origin(identity, key_set) for key_set in component.key_sets)
    return TableNote(origin, component.primitives, conditions, made_for)


def condition_text(condition: Expression | None) -> str:
    """Return a condition's lasting name; empty for all rows."""
    return "" if condition is None else condition.text
