"""Whom a site believes what of flows: everybody has a certificate, and not everybody can know everything.

That rows have come is known by the destination of their flow, and by who passed them on. What a site has made it knows
best itself, so that while it is heard nobody else can say more of it. A relay could change what it passes on, so this
proves nothing; but numbers that are wrong would end the flow of a site that has nothing to do with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from transom.model.time import LAST_EVENT, MICROS_PER_SECOND, Micros, format_duration
from transom.model.watermark import WatermarkPolicy
from transom.widearea.parcels import Ack, FlowName, Parcel, Part, Place, Reason, Refusal, Standing
from transom.widearea.routes import Routes
from transom.widearea.topology import Site

CUTS = 1_000
"""A site makes no more cuts in a second, however much waits for them."""
APART: Micros = 60 * MICROS_PER_SECOND
"""Clocks of sites may be so far apart; what is of later than they allow is not believed."""


class Belief:
    """What one site believes.

    Args:
        site: This site.
        routes: The flows that it knows.
    """

    def __init__(self, site: Site, routes: Routes) -> None:
        self._site, self._routes = site, routes
        self.given: set[tuple[FlowName, Site]] = set()
        """Flows of which parcels were given to a neighbour: it may pass on what their destination says of them."""
        self._fixed: dict[Site, dict[FlowName, tuple[str, Place, Micros]]] = {}
        """By neighbour that has connected: by which identity and how far it has fixed its own flows, and when it said
        so."""
        self._silent: set[Site] = set()
        """Neighbours whose connections may be gone: nothing is heard on them."""

    # What became of parcels

    def owns(self, peer: Site, flow: FlowName) -> bool:
        """Tell whether a neighbour makes the windows of a flow: others cannot say by themselves what has come of it."""
        ends = self._routes.flows.get(flow)
        return ends is not None and ends.destination == peer

    def has_part(self, site: Site, flow: FlowName) -> bool:
        """Tell whether a site may have sent parcels of a flow: nothing is kept of others, whatever is said of them."""
        ends = self._routes.flows.get(flow)
        return ends is not None and (site in ends.sources or site == self._site)

    def may_tell(self, peer: Site, message: Ack | Refusal) -> bool:
        """Tell whether a neighbour can know what became of parcels: as their destination, or as who passed them on.

        What anybody else says is wrong, and to believe it would be to forget rows that nobody has.
        """
        if isinstance(message, Ack):
            about = {(message.standing.flow, message.standing.site)}
        else:
            about = {(message.flow, site) for site, _ in message.places}
            about |= {(each.flow, each.site) for each in message.standings}
        return all(
            (self.owns(peer, flow) or (flow, peer) in self.given) and self.has_part(site, flow) for flow, site in about
        )

    # What parcels say

    def foreign(self, parcel: Parcel) -> tuple[Reason, str] | None:
        """Return why a parcel can be of no flow that is known here; None if it can."""
        ends = self._routes.flows.get(parcel.flow)
        if ends is None:
            return Reason.FLOW, f"{self._site} does not know the flow {parcel.flow!r}."
        others = [part.site for part in parcel.parts if part.site not in ends.sources]
        return (Reason.FLOW, f"{', '.join(others)} has no part in the flow {parcel.flow!r}.") if others else None

    def connected(self, peer: Site, standings: Iterable[Standing], now: Micros) -> None:
        """Take what a site says that opens a connection: how far it has fixed the flows that end here."""
        known = [each for each in standings if each.site == peer and each.flow in self._routes.flows]
        self._fixed[peer] = {each.flow: (each.incarnation, each.place, now) for each in known}
        self._silent.discard(peer)

    def left(self, peer: Site) -> None:
        """Take note that a site is not connected any more: others may know more of it."""
        self._fixed.pop(peer, None)

    def heard(self, peer: Site, is_heard: bool) -> None:
        """Take note whether something is heard of a site that is connected."""
        (self._silent.discard if is_heard else self._silent.add)(peer)

    def doubt(self, parcel: Parcel, peer: Site, now: Micros) -> str:
        """Return why a site cannot have made its part of a parcel, which another one brings; empty if it can.

        While a site is heard, no later run of it can be, nor one with another checkpoint: that is of before, and who
        accepts a loss would begin anew with it. Nor can it have made more cuts than there was time for. What it brings
        itself is believed.
        """
        for part in parcel.parts:
            said = self._fixed.get(part.site, {}).get(parcel.flow)
            incarnation, place, at = said if said is not None else (part.incarnation, Place(0, 0, 0), now)
            if part.site == peer:
                most = Place(max(part.upto, place.upto), max(part.epoch, place.epoch), part.step)
                self._fixed.setdefault(peer, {})[parcel.flow] = part.incarnation, most, now
            elif said is None or part.site in self._silent:
                continue
            elif part.incarnation != incarnation:
                return f"{peer} brings what {part.site} sent with another checkpoint than it has."
            elif part.epoch > place.epoch:
                return f"{peer} brings what run {part.epoch} of {part.site} sent, of which run {place.epoch} is here."
            elif part.upto > place.upto + CUTS + CUTS * (now - at) // MICROS_PER_SECOND:
                return f"{peer} brings cuts of {part.site} up to {part.upto}, which had {place.upto} just now."
        return ""


def too_new(part: Part, policy: WatermarkPolicy, now: Micros) -> str:
    """Return why rows of a part cannot have happened by now; empty if they can.

    The site has left out what is too far ahead of its own clock. If that is wrong, or what it says, the watermark of
    its rows would be at a time from which it never comes back, and all that follow would be late.

    Args:
        part: What a site says.
        policy: How far rows may be ahead.
        now: Wall time here.
    """
    newest = max((each.newest for each in part.partitions if each.newest is not None), default=None)
    limit = policy.ahead_limit(now + APART)
    if newest is None or newest <= (LAST_EVENT if limit is None else limit):
        return ""
    ahead, most = format_duration(newest - now), policy.max_ahead
    told = "there is no such time" if most is None else f"max_ahead is {format_duration(most)}"
    return f"{part.site} has read rows of a time that is {ahead} ahead of the clock here, and {told}."


def arrived_by(parcel: Parcel, now: Micros) -> Parcel:
    """Return a parcel whose rows have arrived at their sites by now, wall time, whatever the clocks there say."""
    if all(part.arrived is None or part.arrived <= now for part in parcel.parts):
        return parcel
    parts = [part if part.arrived is None else replace(part, arrived=min(part.arrived, now)) for part in parcel.parts]
    return replace(parcel, parts=tuple(parts))
