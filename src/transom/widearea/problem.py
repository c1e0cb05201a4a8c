"""Flows and links as arrays: what a column (flow, tree, interval) puts on each link, and what it is worth.

With discrete intervals the problem of the paper, which is bilinear, becomes linear exactly: choose one column for each
flow so that no link carries more than it can. Sites are numbered; the sources of a flow are the bits of a mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from transom.errors import DefinitionError
from transom.widearea.flows import Floats, Flow
from transom.widearea.topology import INTERVALS, Topology
from transom.widearea.trees import Tree

TICKS = np.array(INTERVALS, dtype=np.float64)
TOLERANCE = 1e-9
"""Share of a link's capacity that sums of floating point numbers may be off."""


class Column(NamedTuple):
    """One way for one flow."""

    flow: int
    parents: tuple[int, ...]
    """Where each source sends, in the order of the flow's sources; relays send to the destination."""
    at: int
    """Place of its interval in `INTERVALS`."""


class Load(NamedTuple):
    """What a column puts on links; each link once."""

    links: tuple[int, ...]
    """Link from u to v of n sites: u * n + v."""
    rates: tuple[float, ...]
    """Bytes per second."""


@dataclass(frozen=True, eq=False)
class Shape:
    """A flow in numbers."""

    flow: Flow
    sources: tuple[int, ...]
    destination: int
    allowed: tuple[int, ...]
    """Places of the intervals that it may have."""
    tick: float

    def size(self, mask: int) -> Floats:
        """Return bytes of parcels that merge some of the sources, by interval; at least one, so that all take a link.

        Raises:
            DefinitionError: The sizes of the flow are not one number for each interval, or not finite, or negative.
        """
        found = self._sizes.get(mask)
        if found is None:
            names = frozenset(name for bit, name in enumerate(self.flow.sources) if mask >> bit & 1)
            size = self.flow.sizes.of(names)
            if size.shape != TICKS.shape or not (np.isfinite(size) & (size >= 0)).all():
                raise DefinitionError(
                    f"The sizes of flow {self.flow.name!r} for {', '.join(sorted(names))} are {size}.",
                    f"Give {len(TICKS)} numbers of bytes, one for each interval, none of them negative.",
                )
            found = self._sizes[mask] = np.maximum(size, 1.0)
        return found

    def rate(self, mask: int) -> Floats:
        """Return bytes per second of parcels that merge some of the sources, by interval."""
        found = self._rates.get(mask)
        if found is None:
            found = self._rates[mask] = self.size(mask) / (TICKS * self.tick)
        return found

    @cached_property
    def _sizes(self) -> dict[int, Floats]:
        return {}

    @cached_property
    def _rates(self) -> dict[int, Floats]:
        return {}

    @cached_property
    def target(self) -> float:
        """Seconds that a latency is measured by: the limit, or what no way makes shorter where that is more."""
        return max(self.flow.limit, float(TICKS[self.allowed[0]]) * self.tick + self.flow.job)

    @property
    def everything(self) -> int:
        """The mask of all sources."""
        return (1 << len(self.sources)) - 1

    def groups(self, parents: Sequence[int]) -> dict[int, int]:
        """Return the sites that send to the destination, with the mask of the sources that each of them sends."""
        found: dict[int, int] = {}
        for bit, (source, parent) in enumerate(zip(self.sources, parents, strict=True)):
            head = source if parent == self.destination else parent
            found[head] = found.get(head, 0) | 1 << bit
        return found


@dataclass(frozen=True, eq=False)
class Problem:
    """All flows over all links."""

    topology: Topology
    flows: tuple[Flow, ...]

    @property
    def sites(self) -> int:
        """Number of sites."""
        return len(self.topology.sites)

    @cached_property
    def place(self) -> dict[str, int]:
        """The number of each site."""
        return {site: number for number, site in enumerate(self.topology.sites)}

    @cached_property
    def capacity(self) -> Floats:
        """Bytes per second of each link, 0 where there is none; shape (sites, sites)."""
        found = np.zeros((self.sites, self.sites))
        for link in self.topology.links:
            found[self.place[link[0]], self.place[link[1]]] = self.topology.capacity(link)
        return found

    @cached_property
    def speed(self) -> Floats:
        """Bytes per second at which a parcel travels by itself: without the headroom; shape (sites, sites)."""
        return self.capacity / self.topology.headroom

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """The flows in numbers."""
        return tuple(
            Shape(
                flow,
                tuple(self.place[source] for source in flow.sources),
                self.place[flow.destination],
                tuple(at for at, ticks in enumerate(INTERVALS) if flow.least <= ticks <= flow.most),
                self.topology.tick,
            )
            for flow in self.flows
        )

    def load(self, column: Column) -> Load:
        """Return what a column puts on links."""
        shape, at, sites = self.shapes[column.flow], column.at, self.sites
        links: list[int] = []
        rates: list[float] = []
        for bit, (source, parent) in enumerate(zip(shape.sources, column.parents, strict=True)):
            if parent != shape.destination:
                links.append(source * sites + parent)
                rates.append(float(shape.rate(1 << bit)[at]))
        for head, mask in shape.groups(column.parents).items():
            links.append(head * sites + shape.destination)
            rates.append(float(shape.rate(mask)[at]))
        return Load(tuple(links), tuple(rates))

    def use(self, columns: Sequence[Column]) -> Floats:
        """Return bytes per second on each link, computed again from columns; shape (sites, sites)."""
        found = np.zeros(self.sites * self.sites)
        for column in columns:
            links, rates = self.load(column)
            found[list(links)] += rates
        return found.reshape(self.sites, self.sites)

    def fits(self, load: Load, room: Floats) -> bool:
        """Tell whether links have room for a load; `room` by number of the link, bytes per second."""
        limit = self.capacity.ravel()
        return all(
            rate <= room[link] + TOLERANCE * limit[link] for link, rate in zip(load.links, load.rates, strict=True)
        )

    def fits_all(self, columns: Sequence[Column]) -> bool:
        """Tell whether no link carries more than it can."""
        return bool((self.use(columns) <= self.capacity * (1 + TOLERANCE)).all())

    def column(self, flow: int, tree: Tree, ticks: int) -> Column:
        """Return the column of a tree and an interval."""
        parents = dict(tree.parents)
        return Column(flow, tuple(self.place[parents[s]] for s in self.flows[flow].sources), INTERVALS.index(ticks))

    def tree(self, column: Column) -> Tree:
        """Return the tree of a column."""
        flow, names = self.flows[column.flow], self.topology.sites
        pairs = zip(flow.sources, column.parents, strict=True)
        return Tree(flow.destination, tuple((source, names[parent]) for source, parent in pairs))
