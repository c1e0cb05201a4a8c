"""A site between its senders and receivers and its neighbours: links, what passes, acks on their way back.

A state machine like its parts: events are method calls with the monotonic time; what is to be done is what they return
or leave in `arrivals` and `news`. Parcels go over a connection from this site to a neighbour; receipts, acks and
refusals come back on the same one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeAlias

from transom.model.time import MICROS_PER_SECOND, Micros
from transom.widearea.belief import Belief
from transom.widearea.incoming import LinkIn
from transom.widearea.links import PROBE, Frame, LinkOut, Receipt
from transom.widearea.messages import Abandon, Down, Opened, Opening, Unreadable, Up
from transom.widearea.neighbours import Neighbour
from transom.widearea.packing import Packing, PlainPacking
from transom.widearea.parcels import Ack, FlowName, Parcel, Reason, Refusal, Standing
from transom.widearea.relays import Action as RelayAction
from transom.widearea.relays import Forward, Merge, Relay
from transom.widearea.routes import UNSTATED, Routes
from transom.widearea.senders import Fix, Sender, way
from transom.widearea.topology import Site

SILENCE: Micros = 15_000_000
"""A connection on which nothing was received for so long, though something was sent, is closed."""
DETOUR: Micros = 10_000_000
"""A link that is down for less is waited for."""
QUEUE_BYTES = 256 << 20
"""Of parcels that wait for a link; what comes in addition is forgotten, and sent again by those who have it."""

SIZES = 10_000
"""Sizes of parcels that are remembered where nobody takes them, as without a coordinator."""

Judge: TypeAlias = Callable[[Site, FlowName], "tuple[Reason, str] | None"]
"""Returns why a flow is not taken from a neighbour, with what is wrong, for people; None if it is taken."""


class Carrier:
    """What a site sends, passes on and takes in.

    Args:
        site: Its name.
        boot: Random text of this process.
        routes: What the plans say.
        merge: Merges bodies, at a relay.
        rates: What links to the neighbours carry, as stated; bytes per second.
        packing: Makes the form of parcels on the link with a neighbour.
        relay_bytes: Of what passes, in memory.
        silence: For how long a neighbour may give no receipt while something is under way to it.
        detour: For how long a link may be down before what it should carry takes another way: whoever begins to run
            comes soon, and who is asked to pass on something may end before it is answered.
        judge: Asked about the flow of each parcel that comes, besides what was said when its connection was accepted.
    """

    def __init__(
        self,
        site: Site,
        boot: str,
        routes: Routes,
        merge: Merge,
        rates: Mapping[Site, float],
        packing: Callable[[Site], Packing] = lambda _: PlainPacking(),
        relay_bytes: int = QUEUE_BYTES,
        silence: Micros = SILENCE,
        detour: Micros = DETOUR,
        judge: Judge = lambda peer, flow: None,
    ) -> None:
        self.site, self.boot, self.routes = site, boot, routes
        self.silence, self.detour, self._judge = silence, detour, judge
        self.relay = Relay(merge, relay_bytes)
        self.arrivals: list[tuple[Parcel, Site]] = []
        """Parcels for the receivers of this site, each with the neighbour that brought it; to be taken from here."""
        self.news: list[Ack | Refusal] = []
        """For the senders of this site; to be taken from here."""
        self.reopened: list[tuple[Site, bool]] = []
        """Neighbours to which there is a new connection, and whether they have forgotten what they were given; for the
        senders, to be taken from here."""
        self.sizes: deque[tuple[FlowName, int, int]] = deque(maxlen=SIZES)
        """Flow, tick and bytes of the last parcels with rows of this site, as queued; to be taken from here."""
        self.parcel_bytes: dict[FlowName, int] = {}
        """Bytes of the last of them, of each flow."""
        self.leaving: Callable[[], Iterable[Standing]] = tuple
        """Returns what this site has fixed of its own flows."""
        self.doubts: list[tuple[FlowName, Site, str]] = []
        """Parcels of which a source site is known to have said something else, by flow and neighbour; to be taken from
        here."""
        self._packing = packing
        self._neighbours = {name: Neighbour(rate, packing(name)) for name, rate in rates.items() if name != site}
        self._remaining: dict[FlowName, Micros] = {}
        """What remains of a flow's way from here until its results are out, as the last ack told."""
        self._answers: list[tuple[Site, Down]] = []
        self.belief = Belief(site, routes)

    @property
    def open(self) -> tuple[Site, ...]:
        """The neighbours to which parcels can be sent."""
        return tuple(name for name, each in self._neighbours.items() if each.up)

    def link(self, peer: Site) -> LinkOut:
        """Return the sending end of the link to a neighbour."""
        return self._neighbours[peer].out

    def _of(self, peer: Site) -> Neighbour:
        """Return a site as a neighbour; one to which no link is stated may connect, and be connected with, too."""
        if peer not in self._neighbours:
            self._neighbours[peer] = Neighbour(0.0, self._packing(peer))
        return self._neighbours[peer]

    # What goes out

    def opening(self, peer: Site) -> Opening:
        """Return what is said first on a new connection to a neighbour."""
        fixed = tuple(standing for standing in self.leaving() if self.belief.owns(peer, standing.flow))
        return Opening(self.boot, tuple(self._of(peer).parcels), fixed)

    def opened(self, peer: Site, answer: Opened, now: Micros) -> None:
        """Go on over a new connection to a neighbour."""
        each = self._neighbours[peer]
        self.reopened.append((peer, each.boot not in ("", answer.boot)))
        each.boot, each.up, each.missed = answer.boot, True, None
        for number in each.out.opened(answer.received, now):
            each.parcels.pop(number, None)
        for standing in answer.standings:
            if self.belief.owns(peer, standing.flow) and self.belief.has_part(standing.site, standing.flow):
                self._acked(Ack(standing), peer)
        for flow in [flow for flow in self.relay.flows if self.belief.owns(peer, flow)]:
            self.relay.unanswered(flow, each.parcels.values())

    def closed(self, peer: Site) -> None:
        """Take note that the connection to a neighbour is gone."""
        each = self._of(peer)
        if each.up:
            each.up = False
            each.packing.broken()

    def heard(self, peer: Site, message: Down, now: Micros) -> None:
        """Take what a neighbour says on the connection to it.

        Raises:
            SiteError: It makes no sense; the connection has to be closed.
        """
        each = self._neighbours[peer]
        if isinstance(message, Receipt):
            if each.out.receipt(message, now):
                each.packing.confirmed(message.number)
                each.parcels.pop(message.number, None)
        elif isinstance(message, Unreadable):
            parcel = each.parcels.pop(message.number, None)
            each.out.abandon(message.number)
            if parcel is not None:
                self._queue(parcel, peer, now, full=True)
        elif not self.belief.may_tell(peer, message):
            return
        elif isinstance(message, Ack):
            self._acked(message, peer)
        else:
            self._do(self.relay.refused(message), 0)
            if any(site == self.site for site, _ in message.places):
                self.news.append(message)

    def probe(self, now: Micros) -> None:
        """Measure the links that nobody has used for long."""
        for each in self._neighbours.values():
            if each.up:
                each.out.probe(now)

    def frames(self, peer: Site, now: Micros) -> list[Frame]:
        """Return what may be sent to a neighbour now."""
        each = self._neighbours[peer]
        return each.out.frames(now) if each.up else []

    @property
    def has_to_say(self) -> bool:
        """Whether there may be something to send, or to answer."""
        return bool(self._answers) or any(each.up and each.out.full for each in self._neighbours.values())

    def silent(self, now: Micros) -> list[Site]:
        """Return the neighbours that have not answered for so long that the connection to them is to be closed."""
        return [
            name
            for name, each in self._neighbours.items()
            if each.up and each.out.under_way and now - each.out.heard > self.silence
        ]

    def dispatch(self, senders: Collection[Sender], now: Micros) -> list[Fix]:
        """Give out what waits in the site's senders, and return the orders to fix what is due and has room.

        Args:
            senders: All of them. Those with the least slack go first; where it is alike, what leaves more often, then
                what is smaller: to wait for it costs little, and it would wait for longer than it takes.
            now: Monotonic time.
        """
        orders, there = [], {self.site, *self.open}
        waiting = {sender: sender.waiting(now, there) for sender in senders}
        for sender in sorted((each for each in senders if waiting[each] or each.due is not None), key=self._rank):
            for parcel, tries in waiting[sender]:
                via = self._way(parcel.flow, parcel.tick, tries, now)
                if via is not None:
                    sender.prediction = self.routes.prediction(parcel.flow, parcel.tick)
                    sender.sent(parcel, via, now)
                    self._give(parcel, via, now)
            tick = sender.due
            if tick is not None and self._has_room(self._way(sender.flow, tick, 0, now), sender.flow, tick, now):
                order = sender.fix()
                orders += [] if order is None else [order]
        return orders

    def _way(self, flow: FlowName, tick: int, tries: int, now: Micros) -> Site | None:
        destination, parent = self.routes.flows[flow].destination, self.routes.parent(flow, tick)
        if destination == self.site:
            return self.site
        each = self._neighbours.get(parent)
        if tries == 0 and each is not None and not each.up:
            each.missed = now if each.missed is None else each.missed
            if now - each.missed < self.detour:
                return None
        return way(tries, parent, destination, self.open)

    def _has_room(self, peer: Site | None, flow: FlowName, tick: int, now: Micros) -> bool:
        """Tell whether nothing that waits for its first byte to leave goes to a neighbour before a flow.

        What others wait for here, to be merged with it, leaves with them: nothing would be gained if it came later.
        """
        if peer is None or peer == self.site:
            return peer is not None
        merged = peer == self.routes.flows[flow].destination and self.relay.lacks(flow, tick, self.site)
        return merged or not self._neighbours[peer].out.waits_before(now + self._slack(flow))

    def _slack(self, flow: FlowName) -> Micros:
        """Return the time until a parcel that is ready now should be through its link; to a tick: the rest is noise."""
        ends, tick = self.routes.flows.get(flow), self.routes.tick
        return ((ends.limit if ends else 0) or UNSTATED) - self._remaining.get(flow, 0) // tick * tick

    def _rank(self, sender: Sender) -> tuple[int, int, int]:
        """Return what orders senders: slack, how often each leaves, and how much."""
        flow = sender.flow
        return self._slack(flow), self.routes.every(flow), self.parcel_bytes.get(flow, 0)

    def _give(self, parcel: Parcel, via: Site, now: Micros) -> None:
        """Send a parcel of this site on its way: by the relay here where it is merged here, else to a neighbour."""
        if via == self.site:
            self.arrivals.append((parcel, self.site))
            return
        expected = self.routes.expected(parcel.flow, parcel.tick)
        if expected is not None and via == self.routes.flows[parcel.flow].destination:
            self._do(self.relay.received(parcel, self.site, expected, now), now)
        else:
            self._queue(parcel, via, now)

    def _queue(self, parcel: Parcel, peer: Site, now: Micros, full: bool = False) -> None:
        each = self._neighbours.get(peer)
        if each is None or each.out.queued > QUEUE_BYTES:
            self.relay.lost(parcel)  # those who have it send it again
            return
        self.belief.given.add((parcel.flow, peer))
        data = each.packing.pack(parcel, full)
        if not parcel.merged and parcel.part.site == self.site and not parcel.part.empty:
            self.sizes.append((parcel.flow, parcel.tick, len(data)))
            self.parcel_bytes[parcel.flow] = len(data)
        due = now + self._slack(parcel.flow)
        each.due[parcel.flow] = max(due, each.due.get(parcel.flow, due))
        number = each.out.queue(data, each.due[parcel.flow])
        each.packing.named(number)
        each.parcels[number] = parcel

    # What comes in

    def accept(
        self,
        peer: Site,
        opening: Opening,
        standings: Iterable[Standing] = (),
        refused: Mapping[FlowName, str] | None = None,
        now: Micros = 0,
    ) -> Opened:
        """Take a connection from a neighbour; return what is answered.

        Args:
            peer: The neighbour.
            opening: What it says first.
            standings: Where this site stands with the flows that end here.
            refused: Flows that are not taken from it, each with the reason.
            now: Monotonic time.
        """
        each = self._of(peer)
        each.refused = {flow: (Reason.FLOW, why) for flow, why in (refused or {}).items()}
        if each.sender_boot != opening.boot:
            each.sender_boot, each.into = opening.boot, LinkIn()
        each.into.keep_only(opening.numbers)
        self.belief.connected(peer, opening.standings, now)
        return Opened(self.boot, each.into.received, tuple(standings))

    def came(self, peer: Site, message: Up, now: Micros, at: Micros | None = None) -> None:
        """Take what a neighbour sends.

        Args:
            peer: The neighbour.
            message: What it sends.
            now: Monotonic time.
            at: When it came, by any clock that is not set; None for now.

        Raises:
            SiteError: It is damaged, or too large; the connection has to be closed.
        """
        each = self._neighbours[peer]
        if isinstance(message, Abandon):
            each.into.abandon(message.number)
            return
        receipt, data = each.into.frame(message, now if at is None else at)
        if data is None or data.startswith(PROBE):
            self._answers.append((peer, receipt))
            return
        parcel = each.packing.unpack(data)
        if parcel is None:
            each.into.unread(message.number)
            self._answers.append((peer, Unreadable(message.number)))
            return
        self._answers.append((peer, receipt))
        if wrong := each.refused.get(parcel.flow) or self._judge(peer, parcel.flow) or self.belief.foreign(parcel):
            self._answers.append((peer, Refusal.of(parcel, wrong[0], detail=wrong[1])))
        elif self.routes.flows[parcel.flow].destination == self.site:
            if doubt := self.belief.doubt(parcel, peer, now):
                self.doubts.append((parcel.flow, peer, doubt))
                self._answers.append((peer, Refusal.of(parcel, Reason.AHEAD, detail=doubt)))
            else:
                self.arrivals.append((parcel, peer))
        else:
            self._do(self.relay.received(parcel, peer, self.routes.expected(parcel.flow, parcel.tick), now), now)

    def answer(self, peer: Site, message: Ack | Refusal) -> None:
        """Tell a neighbour, or this site's own senders, what became of a parcel."""
        if peer == self.site:
            self.news.append(message)
        else:
            self._answers.append((peer, message))

    def answers(self) -> list[tuple[Site, Down]]:
        """Return, once, what is to be said on the connections that neighbours have to this site."""
        found, self._answers = self._answers, []
        return found

    # What passes

    def expired(self, now: Micros) -> None:
        """Pass on what has waited for others as long as it may."""
        self._do(self.relay.expired(now), now)

    def forget(self, flow: FlowName) -> None:
        """Forget what passes of a flow, before a new connection to its destination: that takes others than before."""
        self.relay.forget(flow)
        for each in self._neighbours.values():
            for number, parcel in list(each.parcels.items()):
                if parcel.flow == flow:
                    each.out.abandon(number)
                    del each.parcels[number]

    def _acked(self, ack: Ack, peer: Site) -> None:
        """Take an ack from a neighbour; the way to it costs what waits before it."""
        out = self._neighbours[peer].out
        cost = round(out.queued / out.rate * MICROS_PER_SECOND) if out.rate else 0
        self._remaining[ack.standing.flow] = ack.cost
        self._do(self.relay.acked(ack, cost), 0)
        if ack.standing.site == self.site:
            self.news.append(Ack(ack.standing, ack.cost + cost, ack.deadline))
        for each in self._neighbours.values():
            for number, parcel in list(each.parcels.items()):
                if parcel.flow == ack.standing.flow and all(
                    part.site == ack.standing.site and ack.standing.covers(part) for part in parcel.parts
                ):
                    self._abandon(each, number)

    def _abandon(self, each: Neighbour, number: int) -> None:
        """Send no more of a parcel that the destination has got another way, unless it is on its way already."""
        if number not in each.out.begun:
            each.out.abandon(number)
            each.parcels.pop(number)

    def _do(self, actions: Iterable[RelayAction], now: Micros) -> None:
        for action in actions:
            if isinstance(action, Forward):
                self._queue(action.parcel, self.routes.flows[action.parcel.flow].destination, now)
            else:
                self.answer(action.peer, action.message)
