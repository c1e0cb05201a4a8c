"""The best way of one flow by interval, when each link has a price and so much room.

A tree falls apart into groups: a head that sends to the destination, and the sources whose partials it merges; a source
that sends directly is its own head. A group's cost is known for all heads and intervals at once; the cheapest groups
that make up all sources are found over subsets. Beyond `EXACT` sources only some trees are looked at, and what is said
of the others is a lower bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from transom.widearea.flows import Floats
from transom.widearea.objectives import Offer
from transom.widearea.problem import TICKS, Column, Problem, Shape

EXACT = 6
"""Sources up to which all trees are looked at."""
COUNT = len(TICKS)


@dataclass(frozen=True, eq=False)
class Prices:
    """What a byte per second costs on each link, and how many there is room for; shape (sites, sites)."""

    price: Floats
    room: Floats


@dataclass(frozen=True, eq=False)
class Ways:
    """The cheapest ways of a flow, by interval."""

    cost: Floats
    """Of the best tree that was found; infinite where there is none."""
    bound: Floats
    """No tree costs less."""
    groups: list[dict[int, int]] = field(default_factory=list)
    """By interval: the heads, and the masks of the sources that each of them sends."""


def cheapest(problem: Problem, shape: Shape, offer: Offer, prices: Prices) -> Ways:
    """Return the cheapest ways at the intervals of an offer; its slope counts as cost.

    O(2^sources x sites) for the groups, O(3^sources) for the trees; beyond `EXACT` sources O(sources x sites).
    """
    return (_all if len(shape.sources) <= EXACT else _some)(_Groups(problem, shape, offer, prices))


def parents(shape: Shape, groups: dict[int, int]) -> tuple[int, ...]:
    """Return where each source sends."""
    found = [0] * len(shape.sources)
    for head, mask in groups.items():
        for bit, source in enumerate(shape.sources):
            if mask >> bit & 1:
                found[bit] = shape.destination if source == head else head
    return tuple(found)


def columns_at(problem: Problem, flow: int, offers: Sequence[Offer], prices: Prices) -> list[tuple[float, Column]]:
    """Return the best columns of a flow, one of each interval and offer, with what each gains; the best first."""
    shape, found = problem.shapes[flow], list[tuple[float, Column]]()
    for offer in offers:
        ways = cheapest(problem, shape, offer, prices)
        for at in np.flatnonzero(np.isfinite(ways.cost)).tolist():
            found.append((float(offer.values[at] - ways.cost[at]), Column(flow, parents(shape, ways.groups[at]), at)))
    return sorted(found, key=lambda each: (-each[0], each[1]))


def gain_bound(problem: Problem, flow: int, offers: Sequence[Offer], prices: Prices) -> float:
    """Return what no way of a flow gains more than at prices; minus infinity if it has none."""
    most = -np.inf
    for offer in offers:
        bound = cheapest(problem, problem.shapes[flow], offer, prices).bound
        with np.errstate(invalid="ignore"):
            most = max(most, float(np.where(np.isfinite(bound), offer.values - bound, -np.inf).max()))
    return most


class _Groups:
    """The cost of groups for all heads; arrays have shape (sites, intervals)."""

    def __init__(self, problem: Problem, shape: Shape, offer: Offer, prices: Prices) -> None:
        self.shape, self.offer, self.prices = shape, offer, prices
        self.share = offer.slope / len(shape.sources)
        self.timed = offer.slope > 0 or bool(np.isfinite(offer.delays).any())
        self.speed = problem.speed
        self.barred = np.where(np.isfinite(offer.values), 0.0, np.inf)
        self.first = [self._first(bit) for bit in range(len(shape.sources))]
        self.slow = [self._slow(bit) for bit in range(len(shape.sources))] if self.timed else []

    def _first(self, bit: int) -> Floats:
        """Return the cost of sending to each head; to itself it is nothing."""
        source, rate = self.shape.sources[bit], self.shape.rate(1 << bit)
        cost = np.outer(self.prices.price[source], rate)
        cost[self.prices.room[source][:, None] < rate] = np.inf
        cost[source] = 0.0
        cost[self.shape.destination] = np.inf
        return cost

    def _slow(self, bit: int) -> Floats:
        """Return the seconds of sending to each head."""
        source = self.shape.sources[bit]
        with np.errstate(divide="ignore"):
            seconds: Floats = self.shape.size(1 << bit) / self.speed[source][:, None] + self.shape.flow.merging
        seconds[source] = 0.0
        return seconds

    def cost(self, mask: int, sent: Floats, slow: Floats | None) -> Floats:
        """Return the cost of a group, given what it costs to bring its parts to each head, and the time of that."""
        shape, rate = self.shape, self.shape.rate(mask)
        to = self.prices.price[:, shape.destination][:, None] * rate
        to[self.prices.room[:, shape.destination][:, None] < rate] = np.inf
        total = sent + to
        if slow is not None:
            with np.errstate(divide="ignore"):
                last = shape.size(mask) / self.speed[:, shape.destination][:, None] + shape.flow.merging
            total += self.share * mask.bit_count() * (slow + last)
            total[slow + last > self.offer.delays] = np.inf
        for bit, source in enumerate(shape.sources):
            if not mask >> bit & 1:
                total[source] = np.inf  # it would send its own partials, too
        return total


def _all(groups: _Groups) -> Ways:
    """Return the cheapest of all trees: an exact search over the ways to divide the sources into groups."""
    full = groups.shape.everything
    at = np.arange(COUNT)
    sent: list[Floats] = [np.zeros(0)] * (full + 1)
    slow: list[Floats | None] = [None] * (full + 1)
    best = np.full((full + 1, COUNT), np.inf)
    heads: NDArray[np.intp] = np.zeros((full + 1, COUNT), dtype=np.intp)
    for mask in range(1, full + 1):
        bit = mask.bit_length() - 1
        rest = mask ^ 1 << bit
        sent[mask] = groups.first[bit] if not rest else sent[rest] + groups.first[bit]
        if groups.timed:
            before = slow[rest]
            slow[mask] = groups.slow[bit] if before is None else np.maximum(before, groups.slow[bit])
        cost = groups.cost(mask, sent[mask], slow[mask])
        heads[mask] = cost.argmin(axis=0)
        best[mask] = cost[heads[mask], at]
    total = np.zeros((full + 1, COUNT))
    chosen: NDArray[np.intp] = np.zeros((full + 1, COUNT), dtype=np.intp)
    for mask in range(1, full + 1):
        parts = _parts(mask)
        costs = np.array([best[part] + total[mask ^ part] for part in parts])
        first = costs.argmin(axis=0)
        chosen[mask] = np.array(parts)[first]
        total[mask] = costs[first, at]
    cost = total[full] + groups.barred
    found: list[dict[int, int]] = []
    for place in range(COUNT):
        left, tree = (full if np.isfinite(cost[place]) else 0), dict[int, int]()
        while left:
            part = int(chosen[left, place])
            head = int(heads[part, place])
            tree[head] = tree.get(head, 0) | part
            left ^= part
        found.append(tree)
    return Ways(cost, cost, found)


def _parts(mask: int) -> list[int]:
    """Return the subsets of a mask that hold its highest bit."""
    top = 1 << mask.bit_length() - 1
    rest, found = mask ^ top, [mask]
    part = rest
    while part:
        part = (part - 1) & rest
        found.append(part | top)
    return found


def _some(groups: _Groups) -> Ways:
    """Return the cheapest of trees with at most one relay, whose sources are those that it saves something for.

    The bound: a parcel is not smaller than any that is merged in it, so not smaller than their mean.
    """
    shape = groups.shape
    count, at = len(shape.sources), np.arange(COUNT)
    alone: list[Floats] = []
    least = np.zeros(COUNT)
    for bit, source in enumerate(shape.sources):
        slow = groups.slow[bit] if groups.timed else None
        alone.append(groups.cost(1 << bit, groups.first[bit], slow)[source])
        rate = shape.rate(1 << bit)
        to = groups.prices.price[:, shape.destination][:, None] * rate / count
        to[groups.prices.room[:, shape.destination][:, None] < rate] = np.inf
        least += (groups.first[bit] + to).min(axis=0)
    cost = np.sum(alone, axis=0)
    trees = [{source: 1 << bit for bit, source in enumerate(shape.sources)} for _ in range(COUNT)]
    for head in range(len(groups.speed)):
        own = shape.sources.index(head) if head in shape.sources else -1
        joins = [(groups.first[bit][head] < alone[bit]) | (bit == own) for bit in range(count)]
        joined = np.array([sum(1 << bit for bit in range(count) if joins[bit][place]) for place in range(COUNT)])
        for mask in map(int, np.unique(joined)):
            if head == shape.destination or mask.bit_count() < 2:
                continue
            inside = [bit for bit in range(count) if mask >> bit & 1]
            sent = np.sum([groups.first[bit] for bit in inside], axis=0)
            late = np.max([groups.slow[bit] for bit in inside], axis=0) if groups.timed else None
            whole = groups.cost(mask, sent, late)[head]
            whole = whole + sum((alone[bit] for bit in range(count) if bit not in inside), np.zeros(COUNT))
            for place in at[(joined == mask) & (whole < cost)]:
                cost[place] = whole[place]
                rest = {source: 1 << bit for bit, source in enumerate(shape.sources) if bit not in inside}
                trees[place] = {head: mask, **rest}
    return Ways(cost + groups.barred, np.minimum(least, cost) + groups.barred, trees)
