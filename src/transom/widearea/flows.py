"""What one component of a stream owes one destination: how large its partials are, and how long they may take."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from transom.errors import DefinitionError
from transom.widearea.topology import INTERVALS, Site

Floats = NDArray[np.float64]


class Sizes(Protocol):
    """U of a flow: bytes of a parcel, by the sources that are merged in it and the ticks that it gathers."""

    def of(self, sources: frozenset[Site]) -> Floats:
        """Return bytes after each of `INTERVALS` ticks; they grow with the ticks and with the sources."""
        ...  # pragma: no cover


@dataclass(frozen=True, eq=False)
class Flow:
    """Partials of the finest key set that queries of one destination need, from all sites that have rows for them."""

    name: str
    sources: tuple[Site, ...]
    destination: Site
    sizes: Sizes
    limit: float
    """Seconds within which results are due after the row came; the tightest of its queries."""
    quantile: float = 0.95
    """Share of the results that keep to the limit."""
    weight: float = 1.0
    """How much the flow counts: its queries, unless they say otherwise."""
    least: int = 1
    """Ticks between two departures, at least."""
    most: int = INTERVALS[-1]
    """Ticks between two departures, at most. There is always a bound: without one, flows starve for ever."""
    job: float = 0.0
    """Seconds of a source's job, from the tick until the parcel may leave."""
    merging: float = 0.0
    """Seconds that merging takes at a relay, and at the destination."""

    def __post_init__(self) -> None:
        where = f"Flow {self.name!r}"
        if not self.sources or len(set(self.sources)) != len(self.sources):
            raise DefinitionError(f"{where} has sources {self.sources}.", "Name one or more sites, each once.")
        if self.destination in self.sources:
            raise DefinitionError(
                f"{where} has its destination {self.destination!r} among its sources.",
                "Leave it out: what a site owes itself takes no link.",
            )
        if not self.limit > 0 or not 0 < self.quantile < 1 or not 0 < self.weight < inf:
            raise DefinitionError(
                f"{where} has limit {self.limit} s, quantile {self.quantile}, weight {self.weight}.",
                "Limit and weight are positive, the weight is finite, the quantile is between 0 and 1.",
            )
        if not 0 <= self.job < inf or not 0 <= self.merging < inf:
            raise DefinitionError(
                f"{where} has jobs of {self.job} s and merging of {self.merging} s.", "Neither is negative or endless."
            )
        if not any(self.least <= ticks <= self.most for ticks in INTERVALS):
            raise DefinitionError(
                f"{where} has no interval from {self.least} to {self.most} ticks.",
                f"Intervals are {', '.join(map(str, INTERVALS))} ticks.",
            )
