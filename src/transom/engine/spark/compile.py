"""Turns the queries of a stream into components, stores and types, by asking Spark to analyse them once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from transom.engine.spark import plan
from transom.engine.spark.plan import TIME, Aggregation, Branch, Rows, StreamPlan
from transom.engine.spark.zones import check_zones
from transom.engine.state import CompiledQuery
from transom.engine.tables import PANE, Origin
from transom.errors import DefinitionError
from transom.model.calendar import CalendarSpec
from transom.model.query import Query
from transom.windows.aggregates.base import Primitive
from transom.windows.components import Component, KeySet, plan_components

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

StoreShape = tuple[KeySet, Origin, pa.Schema, dict[Primitive, dict[str, pa.DataType]]]


@dataclass(frozen=True)
class Compiled:
    """Queries as the engine runs them."""

    plan: StreamPlan
    """The job of each cut."""
    stores: tuple[StoreShape, ...]
    queries: dict[str, CompiledQuery]
    definitions: dict[str, dict[str, Any]]
    """What must not change while a checkpoint is used, by query."""
    origins: tuple[Origin, ...]
    """Origin of each component's table."""

    @property
    def components(self) -> tuple[Component, ...]:
        """What the job aggregates."""
        return self.plan.components


def compile_queries(session: SparkSession, schema: StructType, rows: Rows, queries: Sequence[Query]) -> Compiled:
    """Analyse the queries.

    Raises:
        DefinitionError: A query cannot work; names the query and what Spark says.
    """
    from pyspark.errors import PySparkException

    try:
        return _compile(session, schema, rows, queries)
    except (PySparkException, DefinitionError) as error:
        if len(queries) > 1:
            for query in queries:
                compile_queries(session, schema, rows, [query])
        if isinstance(error, DefinitionError):
            raise
        name = queries[0].name if queries else ""
        raise DefinitionError(
            f"query {name!r}: {plan.first_line(error)}.",
            f"The stream's columns are {', '.join(schema.names)}.",
        ) from error


def _compile(session: SparkSession, schema: StructType, rows: Rows, queries: Sequence[Query]) -> Compiled:
    from pyspark.sql.pandas.types import to_arrow_schema

    check_zones(session, (w for query in queries for w in query.windows if isinstance(w, CalendarSpec)))
    raw = session.createDataFrame([], schema)
    time = plan.time_column(raw, rows.event_time)
    good = raw.withColumn(TIME, time)
    branches = {
        index: Branch.of(good, rows.branches[index], rows.event_time)
        for index in dict.fromkeys(query.branch for query in queries)
    }
    seen = {index: branch(good) for index, branch in branches.items()}
    texts = {index: plan.plan_text(df) for index, df in seen.items()}
    identity = _identities(texts)
    components = plan_components(queries)
    stores: list[StoreShape] = []
    origins, aggregations = [], []
    for component in components:
        aggregation = Aggregation.of(seen[component.branch], component)
        aggregations.append(aggregation)
        schema_out = plan.utc(to_arrow_schema(aggregation(seen[component.branch]).schema, timezone="UTC"))
        types = plan.state_types(component, schema_out)
        key_types = {key: schema_out.field(f"_k{i}").type for i, key in enumerate(component.keys)}
        _check_keys(key_types)
        origins.append(_origin(identity[component.branch], component.keys))
        for key_set in component.key_sets:
            keys = [key for key in component.keys if key in key_set.keys]
            key_schema = pa.schema([pa.field(key.name, key_types[key]) for key in keys])
            origin = _origin(identity[component.branch], keys)
            stores.append((key_set, origin, key_schema, {p: types[p] for p in key_set.primitives}))
    compiled = {q.name: CompiledQuery(q, plan.input_types(seen[q.branch], q)) for q in queries}
    definitions = {q.name: q.definition(texts[q.branch]) for q in queries}
    stream = StreamPlan(time, branches, components, tuple(aggregations))
    return Compiled(stream, tuple(stores), compiled, definitions, tuple(origins))


def _origin(branch: str, keys: Sequence[Any]) -> Origin:
    return Origin(branch, tuple(sorted(str(key) for key in keys)))


def _identities(texts: dict[int, str]) -> dict[int, str]:
    """Return a lasting name per branch; branches with equal plans are told apart by their order."""
    counts: dict[str, int] = {}
    names = {}
    for branch in sorted(texts):
        digest = hashlib.sha256(texts[branch].encode()).hexdigest()[:16]
        counts[digest] = counts.get(digest, 0) + 1
        names[branch] = digest if counts[digest] == 1 else f"{digest}-{counts[digest]}"
    return names


def _check_keys(types: dict[Any, pa.DataType]) -> None:
    for key, kind in types.items():
        if pa.types.is_nested(kind) or pa.types.is_null(kind):
            raise DefinitionError(
                f"group_by: the key {key.name!r} is a {kind}.",
                "Group by its parts, or by to_json() of it.",
            )
        if key.name == PANE or key.name in ("window_start", "window_end") or key.name.startswith("_s"):
            if key.name.startswith("_s") and not key.name[2:3].isdigit():
                continue
            raise DefinitionError(
                f"group_by: the key name {key.name!r} is taken by Transom.",
                "Give it another name: group_by(x=...).",
            )
