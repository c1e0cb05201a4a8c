"""What a site tells others of its flows, so that those who would not understand each other find out what differs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from transom.engine.partials.contents import branch_of
from transom.engine.streams.sending import query_of
from transom.engine.streams.stream import RunningStream
from transom.sites.flows import FlowDefinition
from transom.widearea.hellos import DESTINATION, LIMIT, PLAN, STREAM, FlowParts
from transom.widearea.parcels import FlowName


def told_of(flows: Iterable[FlowDefinition], streams: Mapping[str, RunningStream]) -> dict[FlowName, FlowParts]:
    """Return what the partials of each flow are, by part; of those that are made or taken here, also of which rows.

    Only what partials depend on: what acts at the destination alone may differ.
    """
    return {flow.name: {**_defined(flow), **_compiled(flow, streams)} for flow in flows}


def _defined(flow: FlowDefinition) -> FlowParts:
    merged = flow.merged
    return {
        STREAM: flow.stream,
        DESTINATION: flow.destination,
        LIMIT: str(flow.limit),
        "keys": ", ".join(sorted(map(str, merged.keys))),
        "condition": "" if merged.condition is None else str(merged.condition),
        "windows": ", ".join(sorted(map(str, merged.windows))),
        "aggregates": ", ".join(sorted(aggregate.describe() for _, aggregate in merged.aggregates)),
    }


def _compiled(flow: FlowDefinition, streams: Mapping[str, RunningStream]) -> FlowParts:
    for stream in streams.values():
        names = (query_of(flow.name), *(query.name for query in flow.queries))
        for name in names if stream.leaves or stream.name == flow.arriving else ():
            if (definition := stream.compiler.definitions.get(name)) is not None:
                return {"rows": branch_of(definition), PLAN: str(definition["rows"])}
    return {}
