"""A site that only passes on what others send: without rows, windows, job and Spark.

What partials are, they say themselves, by lasting names; so those of several sites can be merged where they are alike.
Which flows there are, a relay hears from their destinations, and what a source says of itself has to agree with that.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from transom.errors import SiteError
from transom.model.time import MICROS_PER_SECOND, Clock, Micros
from transom.sites.agreement import merged_alike
from transom.sites.codec import LinkPacking
from transom.sites.mail import Mail
from transom.sites.planning import Planning
from transom.sites.region import Region
from transom.sites.status import EVERY, relay_status_of, write_status
from transom.widearea.carriers import Carrier
from transom.widearea.hellos import DESTINATION, LIMIT, STREAM, FlowParts, Hello
from transom.widearea.parcels import FlowName
from transom.widearea.routes import Ends, Routes
from transom.widearea.topology import Site

LOOK: Micros = 50_000
"""Between two looks at what is due, where nothing comes."""
MOST_FLOWS = 10_000


def only_relays(region: Region, site: Site) -> bool:
    """Tell whether a site has no rows, and is the destination of no query that the topology names."""
    return not region.entry(site).sources and site not in (region.default, *region.destinations.values())


class Relayed:
    """The flows that pass a relay, as their ends tell of them.

    Args:
        region: The sites.
        routes: What the relay knows of flows; flows are added to it.
    """

    def __init__(self, region: Region, routes: Routes) -> None:
        self._region, self._routes = region, routes
        self._hellos: dict[Site, Hello] = {}

    def heard(self, theirs: Hello) -> dict[FlowName, str]:
        """Take what a neighbour says of itself; return its flows that are not passed on, each with the reason."""
        self._hellos[theirs.site] = theirs
        for flow, parts in theirs.flows.items():
            ends = self._ends(theirs.site, flow, parts)
            if ends is not None and (flow in self._routes.flows or len(self._routes.flows) < MOST_FLOWS):
                self._routes.flows[flow] = ends
        return self.refused(theirs.site)

    def refused(self, site: Site) -> dict[FlowName, str]:
        """Return the flows of a neighbour that are not passed on, as their destinations would not understand them."""
        mine, found = self._hellos[site], {}
        for flow, ends in self._routes.flows.items():
            there = self._hellos.get(ends.destination)
            if there is None or site == ends.destination or flow not in mine.flows:
                continue
            try:
                there.check(mine)
            except SiteError as error:
                found[flow] = error.message
                continue
            if different := there.differs(mine).get(flow):
                found[flow] = different
        return found

    @property
    def sites(self) -> Iterable[Site]:
        """The neighbours that were heard."""
        return self._hellos

    def _ends(self, site: Site, flow: FlowName, parts: FlowParts) -> Ends | None:
        """Return the ends of a flow, told by the site that the topology has as its destination; None from others."""
        if parts.get(DESTINATION) != site or self._region.destination(flow) != site:
            return None
        limit = parts.get(LIMIT, "")
        sources = tuple(sorted(self._region.sources(parts.get(STREAM, ""))))
        return Ends(sources, site, int(limit) if limit.isdecimal() and len(limit) < 19 else 0)


class Relaying:
    """Runs a relay.

    Args:
        site: Its name.
        region: The sites.
        mail: Makes the way to other sites; given what is called with each hello, see `Relayed.heard`.
        clock: The time.
        directory: Where it is written now and then how things stand.
        planning: Its part in planning; None where flows go straight. Given the carrier.
        say: Tells people what happens.
    """

    def __init__(
        self,
        site: Site,
        region: Region,
        mail: Callable[[Callable[[Hello], Mapping[FlowName, str]]], Mail],
        clock: Clock,
        directory: Path,
        planning: Callable[[Carrier], Planning] | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.site, self._clock, self._directory, self._say = site, clock, directory, say
        self._rates = region.rates(site)
        self.routes = Routes(site, region.tick, {}, region.most)
        self.carrier = Carrier(
            site, secrets.token_hex(8), self.routes, merged_alike, self._rates, lambda _: LinkPacking(), learns=True
        )
        self._relayed = Relayed(region, self.routes)
        self._mail = mail(self._heard)
        self.planning = None if planning is None else planning(self.carrier)
        self._news = threading.Event()
        self._shown: Micros | None = None

    def begin(self) -> None:
        """Take connections, and connect with the others.

        Raises:
            SiteError: The address cannot be taken.
        """
        self._mail.begin(self.carrier, lambda: (), self._news.set, {})
        if self.planning is not None:
            self.planning.begin(self._news.set)

    def run(self, stopped: threading.Event) -> None:
        """Pass on what comes until it is to stop."""
        while not stopped.is_set():
            self._news.wait(LOOK / MICROS_PER_SECOND)
            self._news.clear()
            self.look()

    def look(self) -> None:
        """Take in what came, and pass on what is due."""
        now = self._clock.monotonic()
        self._mail.look(now)
        self.carrier.expired(now)
        self.carrier.news, self.carrier.reopened = [], []  # for senders, of which there are none
        self._mail.look(now)
        if self.planning is not None:
            for note in self.planning.look(now, ()):
                self._say(note)
        if self._shown is None or now >= self._shown + EVERY:
            self._show(now)

    def _show(self, now: Micros) -> None:
        self._shown = now
        with suppress(OSError):
            write_status(self._directory, relay_status_of(self, self._rates, self._clock.now()))

    def _heard(self, theirs: Hello) -> Mapping[FlowName, str]:
        """Take what a neighbour says of itself, and judge anew what the others send; on the thread of `look`."""
        found = self._relayed.heard(theirs)
        for site in self._relayed.sites:
            if site != theirs.site:
                self.carrier.refuse(site, self._relayed.refused(site))
        return found

    def end(self) -> None:
        """Close the connections."""
        if self.planning is not None:
            self.planning.end()
        self._show(self._clock.monotonic())
        self._mail.end()
