"""Sites and the directed links between them: what a link can carry for partials."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import TypeAlias

from transom.errors import DefinitionError

Site: TypeAlias = str
"""A place with rows, with queries, or one that only passes on what others send; by name."""
Link: TypeAlias = tuple[Site, Site]
"""From a site to another one; the way back is another link."""

INTERVALS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 60)
"""Ticks between two departures of a flow. They divide 120, so that what all flows do repeats after 120 ticks."""
PERIOD = 120
"""Ticks after which the departures of all flows repeat."""
HEADROOM = 0.8
"""Share of the measured bandwidth that is planned for: a link that is filled to the last byte has an endless queue."""


@dataclass(frozen=True)
class Topology:
    """Sites, what was measured of their links, and the tick on which parcels leave."""

    sites: tuple[Site, ...]
    links: Mapping[Link, float]
    """Measured bandwidth, bytes per second; pairs without an entry have no link."""
    tick: float = 1.0
    """Seconds."""
    overhead: Mapping[Link, float] = field(default_factory=dict)
    """Bytes per second that frames, TLS and receipts take of a link; 0 where it is not known."""
    headroom: float = HEADROOM
    """Share of the measured bandwidth that partials may take, 0 to 1."""

    def __post_init__(self) -> None:
        if len(set(self.sites)) != len(self.sites):
            raise DefinitionError("Two sites have one name.", "Give each site a name of its own.")
        if not 0 < self.tick < float("inf"):
            raise DefinitionError(f"The tick is {self.tick} s.", "Give a positive number of seconds, such as 1.0.")
        if not 0 < self.headroom <= 1:
            raise DefinitionError(f"The headroom is {self.headroom}.", "Give a share above 0 and at most 1.")
        for (source, target), rate in self.links.items():
            if source == target or source not in self.sites or target not in self.sites:
                raise DefinitionError(
                    f"The link from {source!r} to {target!r} does not join two of the sites.",
                    f"Sites are {', '.join(map(repr, self.sites))}.",
                )
            if not (isfinite(rate) and rate >= 0):
                raise DefinitionError(
                    f"The link from {source!r} to {target!r} has a bandwidth of {rate} bytes/s.",
                    "Give a number that is not negative.",
                )

        for (source, target), taken in self.overhead.items():
            if not (isfinite(taken) and taken >= 0):
                raise DefinitionError(
                    f"The overhead of the link from {source!r} to {target!r} is {taken} bytes/s.",
                    "Give a number that is not negative.",
                )

    def capacity(self, link: Link) -> float:
        """Return the bytes per second that partials may take of a link; 0 where there is none."""
        return max(0.0, self.headroom * self.links.get(link, 0.0) - self.overhead.get(link, 0.0))
