"""The datasets to checkpoint so that no recovery takes longer than a bound (Stark, section III-D2).

When the longest un-checkpointed path to a dataset exceeds the bound, a minimum vertex cut of the violating paths is
written. Relaxed by f, the cut is searched from the newest dataset back, and stops at the first datasets whose size is
at most f times the flow through them, if these cost at most f times the minimum: shorter paths are left behind.

The minimum is that of cutting all paths among datasets on violating paths. Cutting only the long ones of them can be
cheaper, and is NP-hard (length-bounded cuts; Baier et al., 2010): `lookahead` does it.

Unlike in the paper a path begins with the time to read what is durable, and a checkpoint has to leave room for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from transom.errors import DefinitionError
from transom.placement.lineage import Lineage

if TYPE_CHECKING:
    import networkx as nx

SOURCE, SINK = ("source", ""), ("sink", "")


def checkpoints(lineage: Lineage, newest: Sequence[str], bound: float, relax: float = 1.0) -> list[str]:
    """Return what to checkpoint so that the paths to the newest datasets are within the bound; none if they are.

    Every path longer than the bound loses a dataset. Datasets that no violating path goes through are left out; a
    path within the bound may be cut, too, where it shares its datasets with a violating one.

    Args:
        lineage: All datasets; those before are within the bound.
        newest: The datasets that were made last.
        bound: Recovery bound r, seconds.
        relax: f; the result costs at most f times the optimum.

    Raises:
        DefinitionError: The bound is not positive, or `relax` below 1.
    """
    if not bound > 0 or not relax >= 1:
        raise DefinitionError(f"bound is {bound}, relax {relax}.", "Give a positive bound, and relax of at least 1.")
    nodes = violating(lineage, newest, bound)
    if not nodes:
        return []
    import networkx as nx  # only here, as it takes long, and this module is loaded wherever Transom is

    graph, cost = _graph(lineage, newest, bound, nodes)
    least, flow = nx.maximum_flow(graph, SOURCE, SINK)
    through = {name: flow["in", name]["out", name] for name in nodes}
    found = _cheap(lineage, [name for name in nodes if name in newest], cost, through, relax)
    # Flow that passes two of them was counted twice: then the exact cut, of several the one nearest to the sink.
    if sum(cost[name] for name in found) > relax * least:
        _, (_, after) = nx.minimum_cut(graph, SOURCE, SINK)
        return [name for name in nodes if ("out", name) in after and ("in", name) not in after]
    return [name for name in nodes if name in found]


def _graph(
    lineage: Lineage, newest: Sequence[str], bound: float, nodes: Sequence[str]
) -> tuple[nx.DiGraph[tuple[str, str]], dict[str, int]]:
    """Return the violating datasets as a network, where cutting through a dataset costs its size, and these costs."""
    import networkx as nx

    above, below = lineage.lengths(), _below(lineage, newest)
    # What is not there cannot be written; what takes too long to read does not help.
    useless = 1 + sum(lineage.datasets[name].size for name in nodes)
    cost = {name: lineage.datasets[name].size for name in nodes}
    for name in nodes:
        dataset = lineage.datasets[name]
        slow = dataset.reading + below[name] > bound or dataset.reading > above[name]
        if name not in newest and (slow or not dataset.held):
            cost[name] = useless
    graph: nx.DiGraph[tuple[str, str]] = nx.DiGraph()
    for name in nodes:
        dataset = lineage.datasets[name]
        graph.add_edge(("in", name), ("out", name), capacity=cost[name])
        for parent in dataset.parents:
            if parent in nodes:
                graph.add_edge(("out", parent), ("in", name))
        # What begins here is too long by itself, or after what is durable: it has to be cut from here on.
        parents = [lineage.datasets[parent] for parent in dataset.parents]
        read = max((each.reading for each in parents if each.durable), default=0.0)
        if read + dataset.delay + below[name] > bound:
            graph.add_edge(SOURCE, ("in", name))
        if name in newest:
            graph.add_edge(("out", name), SINK)
    return graph, cost


def _cheap(
    lineage: Lineage, newest: Sequence[str], cost: Mapping[str, float], flow: Mapping[str, float], relax: float
) -> set[str]:
    """Return the first datasets, from the newest back, that cost at most `relax` times the flow through them."""
    found: set[str] = set()
    todo, seen = list(newest), set[str]()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        if cost[name] <= relax * flow[name]:
            found.add(name)
        else:
            todo += [parent for parent in lineage.datasets[name].parents if parent in cost]
    return found


def _below(lineage: Lineage, newest: Sequence[str]) -> dict[str, float]:
    """Return the longest path from the end of each dataset to a newest one; minus infinity where there is none."""
    below = dict.fromkeys(lineage.datasets, float("-inf"))
    for name, dataset in reversed(list(lineage.datasets.items())):
        if not dataset.durable:
            below[name] = max(below[name], 0.0 if name in newest else float("-inf"))
            for parent in dataset.parents:
                below[parent] = max(below[parent], below[name] + dataset.delay)
    return below


def violating(lineage: Lineage, newest: Sequence[str], bound: float) -> list[str]:
    """Return the datasets on paths longer than the bound that end at the newest ones, in order. O(edges)."""
    above, below = lineage.lengths(), _below(lineage, newest)
    return [
        name for name, dataset in lineage.datasets.items() if not dataset.durable and above[name] + below[name] > bound
    ]


def edge(lineage: Lineage, newest: Sequence[str], bound: float) -> list[str]:
    """Return all current leaves if a path to a newest dataset exceeds the bound: the baseline Edge (Tachyon)."""
    return lineage.leaves() if violating(lineage, newest, bound) else []
