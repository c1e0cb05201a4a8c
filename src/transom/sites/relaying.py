"""A site that only passes on what others send: without rows, windows, job and Spark.

What partials are, they say themselves, by lasting names; so those of several sites can be merged where they are alike.
Which flows there are, a relay hears from their destinations, and what a source says of itself has to agree with that.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from transom.errors import SiteError
from transom.model.time import MICROS_PER_SECOND, Clock, Micros
from transom.sites.agreement import merged_alike
from transom.sites.codec import LinkPacking
from transom.sites.mail import Listener, Mail
from transom.sites.planning import Planning
from transom.sites.region import Region
from transom.sites.status import EVERY, relay_status_of, write_status
from transom.widearea.carriers import Carrier
from transom.widearea.hellos import DESTINATION, LIMIT, STREAM, FlowParts, Hello
from transom.widearea.parcels import FlowName, Reason
from transom.widearea.routes import Ends, Routes
from transom.widearea.topology import Site

LOOK: Micros = 50_000
"""Between two looks at what is due, where nothing comes."""
MOST_FLOWS = 10_000


def only_relays(region: Region, site: Site) -> bool:
    """Tell whether a site has no rows, and is the destination of no query that the topology names."""
    return not region.entry(site).sources and site not in (region.default, *region.destinations.values())


class Relayed:
    """The flows that pass a relay, as their ends tell of them (`transom.sites.mail.Listener`).

    What a destination says holds for the connection on which parcels go to it, and what a source says for that on which
    its own come, so that nobody is judged by what another run of it said.

    Args:
        region: The sites.
        carrier: Of the relay; flows are added to what its routes know.
    """

    def __init__(self, region: Region, carrier: Carrier) -> None:
        self._region, self._carrier = region, carrier
        self._sending: dict[Site, Hello] = {}
        self._taking: dict[Site, Hello] = {}

    def called(self, theirs: Hello) -> Mapping[FlowName, str]:
        """Take what a site says that sends something here; `judge` tells which of its flows are not taken."""
        self._sending[theirs.site] = theirs
        return {}

    def answered(self, theirs: Hello) -> None:
        """Take what a site says to which something goes; forget what it would not understand any more."""
        before, self._taking[theirs.site] = self._taking.get(theirs.site), theirs
        known = self._carrier.routes.flows
        for flow, parts in theirs.flows.items():
            ends = self._ends(theirs.site, flow, parts)
            if ends is not None and (flow in known or len(known) < MOST_FLOWS):
                known[flow] = ends
        if before is None:
            return
        for flow in before.flows:
            if self._region.destination(flow) == theirs.site and _why_not(flow, before, theirs):
                self._carrier.forget(flow)

    def judge(self, site: Site, flow: FlowName) -> tuple[Reason, str] | None:
        """Return why a flow of a neighbour is not passed on; None if its destination would understand it.

        While there is no connection to its destination, what differs comes again: the next run there may be another.
        """
        there = self._region.destination(flow)
        mine, theirs = self._sending[site], self._taking.get(there)
        if theirs is None:
            return Reason.FULL, ""
        wrong = _why_not(flow, theirs, mine)
        return (Reason.FLOW if there in self._carrier.open else Reason.FULL, wrong) if wrong else None

    def _ends(self, site: Site, flow: FlowName, parts: FlowParts) -> Ends | None:
        """Return the ends of a flow, told by the site that the topology has as its destination; None from others."""
        if parts.get(DESTINATION) != site or self._region.destination(flow) != site:
            return None
        limit = parts.get(LIMIT, "")
        sources = tuple(sorted(self._region.sources(parts.get(STREAM, ""))))
        return Ends(sources, site, int(limit) if limit.isdecimal() and len(limit) < 19 else 0)


def _why_not(flow: FlowName, one: Hello, other: Hello) -> str:
    """Return why a flow cannot go from one site to another; empty if it can."""
    try:
        one.check(other)
    except SiteError as error:
        return error.message
    return one.difference(flow, other)


class Relaying:
    """Runs a relay.

    Args:
        site: Its name.
        region: The sites.
        mail: Makes the way to other sites; given what hears who they are.
        clock: The time.
        directory: Where it is written now and then how things stand.
        planning: Its part in planning; None where flows go straight. Given the carrier.
        say: Tells people what happens.
    """

    def __init__(
        self,
        site: Site,
        region: Region,
        mail: Callable[[Listener], Mail],
        clock: Clock,
        directory: Path,
        planning: Callable[[Carrier], Planning] | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.site, self._clock, self._directory, self._say = site, clock, directory, say
        self._rates = region.rates(site)
        self.routes = Routes(site, region.tick, {}, region.most)
        boot = secrets.token_hex(8)
        self.carrier = Carrier(
            site, boot, self.routes, merged_alike, self._rates, lambda _: LinkPacking(), judge=self._judge
        )
        self._relayed = Relayed(region, self.carrier)
        self._mail = mail(self._relayed)
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
        if self.carrier.has_to_say:
            self._mail.look(now)
        if self.planning is not None:
            for note in self.planning.look(now, ()):
                self._say(note)
        if self._shown is None or now >= self._shown + EVERY:
            self._show(now)

    def _show(self, now: Micros) -> None:
        self._shown = now
        with suppress(OSError):
            write_status(self._directory, relay_status_of(self, self._rates, self._clock.now(), now))

    def _judge(self, site: Site, flow: FlowName) -> tuple[Reason, str] | None:
        return self._relayed.judge(site, flow)

    def end(self) -> None:
        """Close the connections."""
        if self.planning is not None:
            self.planning.end()
        self._show(self._clock.monotonic())
        self._mail.end()
