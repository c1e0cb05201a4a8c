"""The fusion with the least traffic, for small graphs: what the heuristics are measured against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.fusing.fusion import Masks, fuse, traffic
from benchmarks.fusing.labels import components_of
from transom.windows.operators import Fused, Graph

Pair = tuple[int, int]


@dataclass(frozen=True)
class _Node:
    """Operators contracted so far, and what is decided about the rest."""

    labels: tuple[int, ...]
    """The smallest operator of each operator's component."""
    masks: Mapping[int, int]
    """Common attributes of each component."""
    flows: Mapping[Pair, float]
    """Rates between components that may still be fused, the smaller number first."""
    apart: frozenset[Pair]
    """Components that must not be fused."""
    cut: float
    """Traffic that is certain."""

    def fused(self, one: int, other: int) -> _Node:
        """Return the node in which two components are one."""
        masks = {number: mask for number, mask in self.masks.items() if number != other}
        masks[one] &= self.masks[other]
        apart = frozenset(_renamed(pair, other, one) for pair in self.apart)
        flows: dict[Pair, float] = {}
        for pair, flow in self.flows.items():
            if pair != (one, other):
                pair = _renamed(pair, other, one)
                flows[pair] = flows.get(pair, 0.0) + flow
        labels = tuple(one if label == other else label for label in self.labels)
        return _Node(labels, masks, flows, apart, self.cut).settled()

    def separated(self, pair: Pair) -> _Node:
        """Return the node in which two components stay apart."""
        return _Node(self.labels, self.masks, self.flows, self.apart | {pair}, self.cut).settled()

    def settled(self) -> _Node:
        """Return the node with the flows that can no longer be saved counted as traffic."""
        lost = {p for p in self.flows if p in self.apart or not self.masks[p[0]] & self.masks[p[1]]}
        flows = {pair: flow for pair, flow in self.flows.items() if pair not in lost}
        return _Node(self.labels, self.masks, flows, self.apart, self.cut + sum(self.flows[pair] for pair in lost))

    def bound(self) -> float:
        """Return traffic that no completion can avoid.

        Of two flows that meet in one component, whose three components have nothing in common, one stays. Such
        conflicts are packed greedily: each takes what both flows have left (a solution of the dual linear program).
        """
        left = dict(self.flows)
        neighbours: dict[int, list[Pair]] = {}
        for pair in left:
            for end in pair:
                neighbours.setdefault(end, []).append(pair)
        total = self.cut
        for pairs in neighbours.values():
            pairs.sort(key=lambda pair: -left[pair])
            for place, first in enumerate(pairs):
                common = self.masks[first[0]] & self.masks[first[1]]
                for second in pairs[place + 1 :]:
                    if left[first] <= 0:
                        break
                    if not common & self.masks[second[0]] & self.masks[second[1]]:
                        stays = min(left[first], left[second])
                        total += stays
                        left[first] -= stays
                        left[second] -= stays
        return total


def optimum(graph: Graph, nodes: int = 100_000) -> tuple[Fused, ...] | None:
    """Return components with the least traffic of all that are possible; None if the search is too long.

    Branch and bound: the two neighbouring components with the highest rate between them are fused, or stay apart.
    Exponential at worst; random jobs of 20 operators need some hundred nodes, of 30 up to 100,000.

    Args:
        graph: Operators and rates.
        nodes: The most nodes of the search tree.

    Raises:
        DefinitionError: The rates are unknown.
    """
    start = fuse(graph)
    least = traffic(graph, start)
    view = Masks(graph)
    weights = graph.weights or ()
    flows: dict[Pair, float] = {}
    for (source, target), weight in zip(view.pairs, weights, strict=True):
        if weight > 0:
            pair = (min(source, target), max(source, target))
            flows[pair] = flows.get(pair, 0.0) + weight
    count = len(graph.operators)
    small = 1e-12 * sum(weights)
    best: Sequence[int] | None = None
    waiting = [_Node(tuple(range(count)), dict(enumerate(view.masks)), flows, frozenset(), 0.0).settled()]
    while waiting:
        if (nodes := nodes - 1) < 0:
            return None
        node = waiting.pop()
        if node.bound() >= least - small:
            continue
        if not node.flows:
            best, least = node.labels, node.cut
            continue
        heaviest = max(node.flows, key=lambda pair: (node.flows[pair], pair))
        waiting += [node.separated(heaviest), node.fused(*heaviest)]
    return start if best is None else components_of(graph, best)


def _renamed(pair: Pair, old: int, new: int) -> Pair:
    one, other = (new if end == old else end for end in pair)
    return (one, other) if one < other else (other, one)
