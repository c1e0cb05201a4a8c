"""Fusion: which operators share an exchange, so that few tuples cross from one component to another.

Enorm, section 4.4.1. Fused operators are partitioned by what they have in common, so PA(C), the intersection over a
component, is never empty. The paper's greedy algorithm leaves more traffic than it must (see `fuse`).
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from benchmarks.fusing.labelling import expand_labels
from benchmarks.fusing.labels import components_of, labels_of
from transom.errors import DefinitionError
from transom.windows.operators import Attributes, Fused, Graph


class Score(Enum):
    """What Algorithm 1 looks at when it chooses the next two operators to fuse."""

    COMM = "comm"
    """The rate of tuples from one operator to the other: least traffic."""
    PA = "pa"
    """The number of partition attributes that both components have: fewest components, and no rates are needed."""


@dataclass(frozen=True)
class Masks:
    """The graph with attribute sets as bit masks; a bit more than there are names stands for the whole row."""

    graph: Graph

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The attributes that some operator is partitioned by, ordered."""
        return tuple(sorted({name for operator in self.graph.operators for name in operator.partition.names}))

    @cached_property
    def masks(self) -> tuple[int, ...]:
        """Attribute set of each operator; all bits are set for a map."""
        bit = {name: 1 << number for number, name in enumerate(self.names)}
        return tuple(self._mask(operator.partition, bit) for operator in self.graph.operators)

    def _mask(self, attributes: Attributes, bit: dict[str, int]) -> int:
        return (2 << len(self.names)) - 1 if attributes.whole else sum(bit[name] for name in attributes.names)

    @cached_property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Source and target of each edge, as positions of operators."""
        index = self.graph.index
        return tuple((index[edge.source], index[edge.target]) for edge in self.graph.edges)


def traffic(graph: Graph, components: Sequence[Fused]) -> float:
    """Return what flows between components, in bytes per second, or in rows per second if bytes were not measured.

    Raises:
        DefinitionError: The rates are unknown, or an operator is in no component or in two.
    """
    labels = labels_of(graph, components)
    index = graph.index
    return sum(
        weight
        for edge, weight in zip(graph.edges, _weights(graph), strict=True)
        if labels[index[edge.source]] != labels[index[edge.target]]
    )


def fuse(graph: Graph, rounds: int = 8, seed: int = 0) -> tuple[Fused, ...]:
    """Return the components with the least traffic between them that this search finds.

    Without measured rates: Algorithm 1 with the score PA. With them: Algorithm 1 with COMM is the start of
    a search. On random jobs the greedy's traffic is 8 to 12 % above the optimum, the search's 0.1 to 0.4 %
    (`benchmarks/fusion.py`).

    Args:
        graph: Operators and rates.
        rounds: Restarts of the search from a disturbed result; each costs about as much as the first.
        seed: Decides the disturbances; the same arguments give the same components.
    """
    if graph.weights is None:
        return fuse_greedily(graph, Score.PA)
    start = labels_of(graph, fuse_greedily(graph, Score.COMM))
    view = Masks(graph)
    labels = expand_labels(view.masks, view.pairs, graph.weights, start, rounds, random.Random(seed))
    return components_of(graph, labels)


def fuse_greedily(graph: Graph, score: Score) -> tuple[Fused, ...]:
    """Return what Algorithm 1 returns: it fuses the two operators with the best score until none is left.

    Two neighbours can be fused when their components' partition attributes intersect and the score is above
    zero; of equal scores the first counts, by source and then by edge, as in the paper's loops. The paper searches all
    edges for each fusion. As scores never rise (rates are constant, intersections shrink), a heap whose entries are
    checked when they come up finds the same in O(E log E) for COMM and O(E A log E) for A attributes.

    Raises:
        DefinitionError: The score is COMM and the rates are unknown.
    """
    view = Masks(graph)
    rates = _weights(graph) if score is Score.COMM else ()
    groups = _Groups(view.masks)

    def value(edge: int) -> float:
        return rates[edge] if score is Score.COMM else groups.common(*view.pairs[edge]).bit_count()

    order = sorted(range(len(view.pairs)), key=lambda edge: view.pairs[edge][0])
    heap = [(-value(edge), place, edge) for place, edge in enumerate(order)]
    heapq.heapify(heap)
    while heap:
        best, place, edge = heapq.heappop(heap)
        source, target = view.pairs[edge]
        if best == 0 or groups.same(source, target) or not groups.common(source, target):
            continue
        if value(edge) < -best:
            heapq.heappush(heap, (-value(edge), place, edge))
        else:
            groups.join(source, target)
    return components_of(graph, groups.labels)


def fuse_from_operators(graph: Graph, seed: int = 0) -> tuple[Fused, ...]:
    """Return what the paper's baseline returns (section 7.6).

    It starts with the first operator and fuses its component with the downstream neighbour whose partition
    attributes have most in common with it, until none has any; then it goes on with a random operator that is not
    fused. A neighbour that is fused already brings its component along: if it were passed over, the baseline, not
    COMM, would have the most components, unlike in the paper's figure 14. O(N E) for N operators.
    """
    view = Masks(graph)
    groups = _Groups(view.masks)
    below: list[list[int]] = [[] for _ in graph.operators]
    for source, target in view.pairs:
        below[source].append(target)
    waiting = list(range(len(graph.operators)))
    chooser = random.Random(seed)
    current = 0
    while waiting:
        waiting.remove(current)
        while True:
            members = groups.members[groups.find(current)]
            best, found = 0, -1
            for target in (t for member in members for t in below[member]):
                if not groups.same(current, target):
                    size = groups.common(current, target).bit_count()
                    if size > best:
                        best, found = size, target
            if found < 0:
                break
            groups.join(current, found)
        waiting = [operator for operator in waiting if len(groups.members[groups.find(operator)]) == 1]
        if waiting:
            current = chooser.choice(waiting)
    return components_of(graph, groups.labels)


class _Groups:
    """Disjoint sets of operators with the attributes that all members share."""

    def __init__(self, masks: Sequence[int]) -> None:
        self._parent = list(range(len(masks)))
        self._mask = list(masks)
        self.members = [[number] for number in range(len(masks))]
        """Members, valid for the operator that `find` returns."""

    def find(self, operator: int) -> int:
        """Return the operator that stands for the set."""
        while self._parent[operator] != operator:
            self._parent[operator] = self._parent[self._parent[operator]]
            operator = self._parent[operator]
        return operator

    def same(self, one: int, other: int) -> bool:
        """Return whether two operators are in one set."""
        return self.find(one) == self.find(other)

    def common(self, one: int, other: int) -> int:
        """Return the attributes that two sets share."""
        return self._mask[self.find(one)] & self._mask[self.find(other)]

    def join(self, one: int, other: int) -> None:
        """Unite two different sets."""
        keep, gone = self.find(one), self.find(other)
        self._parent[gone] = keep
        self._mask[keep] &= self._mask[gone]
        self.members[keep] += self.members[gone]
        self.members[gone] = []

    @property
    def labels(self) -> list[int]:
        """The set of each operator."""
        return [self.find(number) for number in range(len(self._parent))]


def _weights(graph: Graph) -> tuple[float, ...]:
    if graph.weights is None:
        raise DefinitionError("fusion: not every edge has a measured rate.", "Measure them, or use the score PA.")
    return graph.weights
