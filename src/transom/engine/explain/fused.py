"""The operators of a stream as Transom fuses them: the components of the job, and what the driver does."""

from __future__ import annotations

from transom.engine.explain.graph import StreamGraph
from transom.windows.operators import Fused, Operator, OperatorKind, common


def fused_as_run(graph: StreamGraph) -> tuple[Fused, ...]:
    """Return the components in the order of the work: joins and maps, aggregations, then what is done on the driver.

    Computes of one component of the job have one exchange. Those that have no attribute in common with the rest of
    it (a global one, say) are made of its partials on the driver, and stand alone. The map belongs to the component
    that reads it; when several do, its rows are kept for them. A join runs in the job of the rows that it makes.
    Consolidates run on the driver, together when they read one store.
    """
    by_name = {operator.name: operator for operator in graph.operators}
    jobs = [_aggregation(graph, number, by_name) for number in range(len(graph.compiled.components))]
    groups = _with_maps(graph, jobs, by_name)
    for join in (operator for operator in graph.operators if operator.kind is OperatorKind.JOIN):
        if common([join, *groups[0]]):
            groups[0].insert(0, join)
        else:
            groups.insert(0, [join])
    return tuple(Fused(tuple(group)) for group in groups + _consolidates(graph, by_name))


def _aggregation(graph: StreamGraph, component: int, by_name: dict[str, Operator]) -> list[list[Operator]]:
    """Return the computes that share a component's exchange, then each of those that only share its partials."""
    together: list[Operator] = []
    alone: list[list[Operator]] = []
    for compute in graph.computes:
        if compute.component == component:
            operator = by_name[compute.name]
            if not together or common([operator, *together]):
                together.append(operator)
            else:
                alone.append([operator])
    return [together, *alone]


def _with_maps(
    graph: StreamGraph, jobs: list[list[list[Operator]]], by_name: dict[str, Operator]
) -> list[list[Operator]]:
    branches = [component.branch for component in graph.compiled.components]
    kept: dict[int, list[Operator]] = {}
    for branch, (together, *_) in zip(branches, jobs, strict=True):
        source = by_name[graph.map_name(branch)]
        if branches.count(branch) == 1 and together[0].partition:
            together.insert(0, source)
        else:
            kept[branch] = [source]
    return [*kept.values(), *(group for job in jobs for group in job)]


def _consolidates(graph: StreamGraph, by_name: dict[str, Operator]) -> list[list[Operator]]:
    groups: list[list[Operator]] = []
    for key_set in dict.fromkeys(compute.key_set for compute in graph.computes):
        members = [by_name[graph.consolidate_name(query.name)] for query in key_set.queries]
        groups += [members] if members[0].partition else [[member] for member in members]
    return groups
