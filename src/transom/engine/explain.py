"""What an application will run, as values for people and programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transom.engine.spark.compile import Compiled
from transom.engine.stream import StreamDefinition
from transom.model.time import format_duration
from transom.windows.components import Component


def explain(name: str, parts: Sequence[tuple[StreamDefinition, Compiled]], sinks: Mapping[str, str]) -> dict[str, Any]:
    """Return streams, queries, and the components with what their queries share."""
    return {
        "application": name,
        "streams": [
            {
                "name": definition.name,
                "source": definition.source.describe(),
                "event_time": definition.rows.event_time.text,
                "watermark": str(definition.policy),
                "scans_per_cut": 1,
                "queries": [
                    {
                        "name": query.name,
                        "group_by": [str(key) for key in query.keys],
                        "windows": [str(window) for window in query.windows],
                        "aggregates": {column: a.describe() for column, a in query.aggregates},
                        "within": None
                        if query.target is None
                        else {
                            "limit": format_duration(query.target.limit),
                            "quantile": query.target.quantile,
                        },
                        "sink": sinks[query.name],
                    }
                    for query in definition.queries
                ],
                "components": [_component(component) for component in compiled.components],
            }
            for definition, compiled in parts
        ],
    }


def _component(component: Component) -> dict[str, Any]:
    needed = sum(len(a.primitives) for s in component.key_sets for q in s.queries for _, a in q.aggregates)
    return {
        "transformations": component.branch,
        "group_by": [str(key) for key in component.keys],
        "panes": [
            {"every": format_duration(slide), "offset": format_duration(offset)}
            for slide, offset in component.grid.edges
        ]
        + [{"every": str(calendar)} for calendar in component.grid.calendars],
        "partials": [
            f"{type(p).__name__.lower()}({', '.join(str(e) for e in p.inputs)})" for p in component.primitives
        ],
        "shared": {"aggregates_of_queries": needed, "partials_computed": len(component.primitives)},
        "key_sets": [
            {
                "group_by": sorted(str(key) for key in key_set.keys),
                "derived_from": None if key_set is component.finest else [str(key) for key in component.keys],
                "queries": [query.name for query in key_set.queries],
            }
            for key_set in component.key_sets
        ],
    }
