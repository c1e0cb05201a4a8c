"""The sites that run one application together, as all of them know it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from transom.errors import DefinitionError, did_you_mean
from transom.model.time import MICROS_PER_SECOND, Micros
from transom.widearea.topology import INTERVALS, Link, Site

FAST = 12_500_000.0
"""Bytes per second of a link of which nothing is stated: 100 Mbit/s."""


@dataclass(frozen=True)
class SiteEntry:
    """One site."""

    name: Site
    address: str = ""
    """Host and port where others reach it; empty within one process."""
    sources: tuple[str, ...] = ()
    """The streams of which it has rows."""
    offset: Micros = 0
    """It begins its cuts so long after each tick."""


@dataclass(frozen=True)
class Region:
    """The sites, their links, and where the windows of each query are made.

    Raises:
        DefinitionError: Two sites have one name, or something names a site that is not there.
    """

    sites: tuple[SiteEntry, ...]
    default: Site
    """Where the windows of a query are made of which nothing is said."""
    destinations: Mapping[str, Site] = field(default_factory=dict)
    """Of queries."""
    links: Mapping[Link, float] = field(default_factory=dict)
    """Stated bandwidths, bytes per second; if there are none, each two sites have a fast link."""
    tick: Micros = MICROS_PER_SECOND
    """Streams are cut, and flows leave, so often."""
    least: int = 1
    """Ticks between two departures of a flow, at least."""
    most: int = INTERVALS[-1]
    """The same, at most."""
    objective: str = "latency"
    """What plans make good."""

    def __post_init__(self) -> None:
        names = [entry.name for entry in self.sites]
        for name in names:
            if names.count(name) > 1:
                raise DefinitionError(f"Two sites are named {name!r}.", "Give each site a name of its own.")
        named = [self.default, *self.destinations.values(), *(site for link in self.links for site in link)]
        for site in named:
            if site not in names:
                raise DefinitionError(
                    f"There is no site {site!r}.", did_you_mean(site, names, f"Sites are {', '.join(names)}.")
                )

    def entry(self, site: Site) -> SiteEntry:
        """Return a site.

        Raises:
            DefinitionError: There is none of this name.
        """
        for entry in self.sites:
            if entry.name == site:
                return entry
        names = [entry.name for entry in self.sites]
        raise DefinitionError(
            f"There is no site {site!r}.", did_you_mean(site, names, f"Sites are {', '.join(names)}.")
        )

    def destination(self, query: str) -> Site:
        """Return where the windows of a query are made."""
        return self.destinations.get(query, self.default)

    def sources(self, stream: str) -> tuple[Site, ...]:
        """Return the sites that have rows of a stream."""
        return tuple(entry.name for entry in self.sites if stream in entry.sources)

    def rates(self, site: Site) -> dict[Site, float]:
        """Return the sites that a site has a link to, with its bandwidth."""
        if not self.links:
            return {entry.name: FAST for entry in self.sites if entry.name != site}
        return {there: rate for (here, there), rate in self.links.items() if here == site}
