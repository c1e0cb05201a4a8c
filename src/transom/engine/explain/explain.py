"""The plan of an application, as values for people and programs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from transom.engine.explain.explanation import Explanation
from transom.engine.explain.fused import fused_as_run
from transom.engine.explain.graph import StreamGraph, application_graph, partial_text
from transom.engine.spark.compile import Compiled
from transom.engine.streams.definition import StreamDefinition
from transom.model.time import format_duration
from transom.model.window import windows_text
from transom.windows.components import Component, KeySet
from transom.windows.operators import Attributes, Fused, Operator, OperatorKind, Schema
from transom.windows.panes import Grid
from transom.windows.query import LatencyTarget, WindowedQuery
from transom.windows.splitting import Form

Part = tuple[StreamDefinition, Compiled]


def explain(
    name: str,
    parts: Sequence[Part],
    sinks: Mapping[str, str],
    columns: Mapping[str, Schema],
    tier: str = "auto",
    lanes: Mapping[str, str | None] | None = None,
    planning: Mapping[str, Any] | None = None,
) -> Explanation:
    """Return streams, queries, what their queries share, and the graph of operators.

    Args:
        name: The application's.
        parts: The streams, parents first.
        sinks: What each query's sink is.
        columns: What each stream's source gives.
        tier: The setting.
        lanes: For each stream why partials are made by Spark SQL; None where they are made without.
        planning: What it plans for itself, see `Explanation`.
    """
    lanes = lanes or {}
    graphs = [
        StreamGraph(
            compiled,
            definition.name,
            columns.get(definition.name, ()),
            feed=definition.feed,
        )
        for definition, compiled in parts
    ]
    return Explanation(
        name,
        [
            {
                "name": definition.name,
                "source": definition.source.describe(),
                "shares_source_with": definition.origin if definition.source_name != definition.name else None,
                "event_time": definition.rows.event_time.text,
                "watermark": str(definition.policy),
                "scans_per_cut": 1,
                "lane": "spark" if lanes.get(definition.name, "") is not None else "native",
                "lane_why": lanes.get(definition.name),
                "queries": [_query(query, sinks[query.name]) for query in definition.queries],
                "components": [_component(component, tier) for component in compiled.components],
            }
            for definition, compiled in parts
        ],
        _graph(graphs, [definition for definition, _ in parts]),
        planning or {},
    )


def _query(query: WindowedQuery, sink: str) -> dict[str, Any]:
    target = query.target
    return {
        "name": query.name,
        "where": None if query.condition is None else str(query.condition),
        "group_by": [str(key) for key in query.keys],
        "rows": query.keeps_rows,
        "windows": _windows(query),
        "aggregates": {} if query.keeps_rows else {column: a.describe() for column, a in query.aggregates},
        "results": [str(step) for step in query.steps],
        "fill": None if query.fill is None or query.total is not None else str(query.fill),
        "within": None if target is None else _target(target),
        "early": None if query.early is None else format_duration(query.early),
        "lateness": format_duration(query.lateness) if query.lateness and not query.passes_rows else None,
        "sink": sink,
    }


def _windows(query: WindowedQuery) -> list[str]:
    """Return the windows that users know of, for people."""
    if query.passes_rows:
        return []
    texts = windows_text(query.windows)
    return texts if query.total is None else [f"all rows so far, every {text}" for text in texts]


def _target(target: LatencyTarget) -> dict[str, Any]:
    sheds = {} if target.keep is None else {"on_overload": "shed", "keep": target.keep}
    return {"limit": format_duration(target.limit), "quantile": target.quantile, **sheds}


def _panes(key_sets: Iterable[KeySet]) -> list[dict[str, str]]:
    """Return the panes of the windows that users know of; none where rows are only passed on."""
    queries = [query for key_set in key_sets for query in key_set.queries if not query.passes_rows]
    grid = Grid.of(window for query in queries for window in query.windows)
    fixed = [{"every": format_duration(slide), "offset": format_duration(offset)} for slide, offset in grid.edges]
    return fixed + [{"every": str(calendar)} for calendar in grid.calendars]


def _component(component: Component, tier: str) -> dict[str, Any]:
    needed = sum(len(a.primitives) for s in component.key_sets for q in s.queries for _, a in q.aggregates)
    return {
        "transformations": component.branch,
        "group_by": [str(key) for key in component.keys],
        "form": (Form.DIRECT if component.direct else Form.SPLIT).value,
        "panes": [] if component.direct else _panes(component.key_sets),
        "partials": [partial_text(primitive) for primitive in component.primitives],
        "tier": tier,
        "shared": {"aggregates_of_queries": needed, "partials_computed": len(component.primitives)},
        "key_sets": [
            {
                "group_by": sorted(str(key) for key in key_set.keys),
                "where": None if key_set.condition is None else str(key_set.condition),
                "derived_from": None if key_set is component.finest else [str(key) for key in component.keys],
                "queries": [query.name for query in key_set.queries],
            }
            for key_set in component.key_sets
        ],
    }


def _graph(streams: Sequence[StreamGraph], definitions: Sequence[StreamDefinition]) -> dict[str, Any]:
    pairs = list(zip(streams, definitions, strict=True))
    graph = application_graph(streams)
    notes = {name: note for stream, definition in pairs for name, note in _notes(stream, definition).items()}
    fused = [(stream, one) for stream in streams for one in fused_as_run(stream)]
    return {
        "operators": [_operator(operator) | notes[operator.name] for operator in graph.operators],
        "edges": [{"from": edge.source, "to": edge.target} for edge in graph.edges],
        "components": [_fused(f"C{number}", stream, one) for number, (stream, one) in enumerate(fused, 1)],
    }


def _notes(stream: StreamGraph, definition: StreamDefinition) -> dict[str, dict[str, Any]]:
    """Return what is peculiar to each operator."""
    notes: dict[str, dict[str, Any]] = {operator.name: {"stream": stream.stream} for operator in stream.operators}
    for branch, functions in enumerate(definition.rows.branches):
        if stream.map_name(branch) in notes:
            names = [getattr(function, "__name__", type(function).__name__) for function in functions]
            notes[stream.map_name(branch)]["functions"] = names
    for compute in stream.computes:
        component = stream.compiled.components[compute.component]
        key_set = compute.key_set
        finest = stream.finest(compute)
        wanted = [p for p in component.primitives if p in key_set.primitives] or component.primitives
        notes[compute.name] |= {
            "where": None if key_set.condition is None else str(key_set.condition),
            "form": (Form.DIRECT if component.direct else Form.SPLIT).value,
            "panes": [] if component.direct else _panes([key_set]),
            "partials": [partial_text(primitive) for primitive in wanted],
            "from_partials_of": None if compute is finest else finest.name,
        }
        for query in key_set.queries:
            notes[stream.consolidate_name(query.name)]["query"] = query.name
    return notes


def _operator(operator: Operator) -> dict[str, Any]:
    return {
        "name": operator.name,
        "kind": operator.kind.value,
        "partitioned_by": _attributes(operator.partition),
        "partitions": _cardinality(operator.cardinality),
        "inputs": [dict(schema) for schema in operator.inputs],
        "output": dict(operator.output),
    }


def _fused(name: str, stream: StreamGraph, component: Fused) -> dict[str, Any]:
    return {
        "name": name,
        "stream": stream.stream,
        "runs_on": "driver"
        if all(one.kind is OperatorKind.CONSOLIDATE or one.name in stream.derived for one in component)
        else "executors",
        "partitioned_by": _attributes(component.partition),
        "partitions": _cardinality(component.cardinality),
        "stateless": component.stateless,
        "flexible": component.flexible,
        "operators": [operator.name for operator in component],
    }


def _attributes(attributes: Attributes) -> str | list[str]:
    return "all" if attributes.whole else sorted(attributes.names)


def _cardinality(count: float | None) -> int | str | None:
    """Return a number of partitions for JSON, which has no infinity; None if it was not counted."""
    if count is None:
        return None
    return "unbounded" if math.isinf(count) else int(count)
