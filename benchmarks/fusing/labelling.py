"""Fusion as labelling: a search that leaves less traffic than merging two components at a time.

A component needs one attribute that all its operators have. So a fusion is a choice of one attribute per operator, its
label, and what flows between operators with different labels is the traffic: minimising it is the uniform metric
labelling problem (a Potts model) on the graph. It is NP-hard; its standard heuristic is expansion (Boykov, Veksler and
Zabih, "Fast approximate energy minimization via graph cuts", 2001): for one label at a time choose the best set of
operators that take it. That moves many operators from several components at once, which neither Algorithm 1 nor
Migrate does.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

Labels: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
_SMALL = 1e-12
"""Share of all traffic below which a gain is rounding."""


def expand_labels(
    masks: Sequence[int],
    pairs: Sequence[tuple[int, int]],
    weights: Sequence[float],
    start: Sequence[int],
    rounds: int,
    chooser: random.Random,
) -> list[int]:
    """Return the component of each operator after the search.

    Components are connected: operators between which nothing flows are not fused, as that would save nothing and
    cost parallelism.

    Args:
        masks: Attributes of each of n operators, as bits.
        pairs: Source and target of each edge.
        weights: Rate of each edge.
        start: Component of each operator to start with; members of one share an attribute.
        rounds: Restarts from a disturbed result.
        chooser: Decides the disturbances.
    """
    search = _Search(masks, pairs, weights)
    best = search.descend(search.labels(start), range(search.width))
    least = search.traffic(best)
    order = list(range(search.width))
    for number in range(rounds):
        if least <= search.small:
            break
        chooser.shuffle(order)
        labels = search.descend(search.disturbed(best, chooser, everywhere=number % 4 == 0), order)
        if (found := search.traffic(labels)) < least - search.small:
            best, least = labels, found
    return search.connected(best)


class _Search:
    """Labels of n operators among `width` attributes; operators without attributes have a negative one of their own."""

    def __init__(self, masks: Sequence[int], pairs: Sequence[tuple[int, int]], weights: Sequence[float]) -> None:
        count = len(masks)
        self.masks = masks
        self.width = max((mask.bit_length() for mask in masks), default=0)
        self.flow = np.zeros((count, count))
        """Rates between operators, both ways."""
        for (source, target), weight in zip(pairs, weights, strict=True):
            self.flow[source, target] += weight
            self.flow[target, source] += weight
        self.allowed = np.array([[mask >> bit & 1 for bit in range(self.width)] for mask in masks], dtype=bool)
        self.choices = [np.flatnonzero(row).tolist() for row in self.allowed.reshape(count, self.width)]
        self.total = float(self.flow.sum()) / 2
        self.small = self.total * _SMALL

    def labels(self, components: Sequence[int]) -> Labels:
        """Return a label for each operator: the lowest attribute that its component has in common."""
        common: dict[int, int] = {}
        for component, mask in zip(components, self.masks, strict=True):
            common[component] = common.get(component, -1) & mask
        found = [(mask & -mask).bit_length() - 1 for mask in (common[component] for component in components)]
        return np.array([label if label >= 0 else -1 - i for i, label in enumerate(found)], dtype=np.int64)

    def traffic(self, labels: Labels) -> float:
        """Return what flows between different labels."""
        return self.total - float(self.flow[labels[:, None] == labels[None, :]].sum()) / 2

    def disturbed(self, labels: Labels, chooser: random.Random, everywhere: bool) -> Labels:
        """Return labels of which a sixth, or all, are drawn anew."""
        free = [i for i, choices in enumerate(self.choices) if choices]
        changed = labels.copy()
        for i in free if everywhere else chooser.sample(free, min(len(free), max(2, len(free) // 6))):
            changed[i] = chooser.choice(self.choices[i])
        return changed

    def descend(self, labels: Labels, order: Sequence[int]) -> Labels:
        """Expand one label after the other until none gains anything."""
        labels = labels.copy()
        idle = 0
        while idle < len(order):
            for label in order:
                idle = 0 if self.expand(labels, label) else idle + 1
                if idle >= len(order):
                    break
        return labels

    def expand(self, labels: Labels, label: int) -> bool:
        """Give a label to a set of operators if traffic falls by it, in place; O(n^2).

        The best set is a minimum cut. Here it is peeled: of all operators that may take the label, the one whose
        taking it hurts most (or helps least) leaves, again and again, and the best set on the way counts.
        """
        candidates = np.flatnonzero(self.allowed[:, label] & (labels != label))
        if not len(candidates):
            return False
        flow = self.flow[candidates]
        old = labels[candidates]
        kept = flow[:, labels == label].sum(axis=1) - (flow * (old[:, None] == labels[None, :])).sum(axis=1)
        inner = flow[:, candidates]
        # `kept` counts what flows between two candidates of one label as lost, twice; it is not when both move.
        both = np.where(old[:, None] == old[None, :], 2.0, 1.0) * inner
        inside = np.ones(len(candidates), dtype=bool)
        pull = both.sum(axis=1)
        value = float(kept.sum() + pull.sum() / 2)
        best, chosen = value, inside.copy()
        gain = kept + pull
        for _ in range(len(candidates) - 1):
            worst = int(np.argmin(gain))
            value -= float(gain[worst])
            inside[worst] = False
            gain -= both[worst]
            gain[worst] = np.inf
            if value > best:
                best, chosen = value, inside.copy()
        if best <= self.small:
            return False
        labels[candidates[chosen]] = label
        return True

    def connected(self, labels: Labels) -> list[int]:
        """Return components: operators with one label that flows join."""
        found = [-1] * len(labels)
        for start in range(len(labels)):
            if found[start] < 0:
                found[start] = start
                reached = [start]
                for one in reached:
                    for other in np.flatnonzero((self.flow[one] > 0) & (labels == labels[one])).tolist():
                        if found[other] < 0:
                            found[other] = start
                            reached.append(other)
        return found
