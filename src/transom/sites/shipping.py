"""What goes on beside the loop of a site: partials of its streams leave, those of other sites arrive."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transom.engine.loop.logrecords import Arrived, Shipped
from transom.engine.loop.loop import Beside, Loop
from transom.engine.streams.sending import CutRange, Elsewhere, FlowSender
from transom.engine.streams.stream import RunningStream
from transom.errors import JobChangedError, SiteError
from transom.model.time import Clock, Micros, format_duration
from transom.sites.agreement import merged, merged_alike
from transom.sites.codec import LinkPacking
from transom.sites.flows import SiteStreams
from transom.sites.incarnations import Incarnations
from transom.sites.mail import Mail
from transom.sites.planning import Planning
from transom.sites.receiving import Most, Receiving
from transom.sites.shipments import Shipment, beat_of, content_of, news_of
from transom.sites.status import EVERY, status_of, write_status
from transom.sites.telling import told_of
from transom.sites.waiting import Alone, Passing, Telling, patience
from transom.storage.places import Place
from transom.widearea.carriers import Carrier
from transom.widearea.parcels import Ack, Body, Parcel, Part, Reason, Refusal, Standing
from transom.widearea.routes import Ends, Routes
from transom.widearea.senders import Fix, Sender
from transom.widearea.topology import INTERVALS, Site

LOOK: Micros = 50_000
"""Between two looks at what is due, where nothing comes."""


@dataclass(frozen=True)
class Self:
    """The site as its neighbours know it in this run."""

    site: Site
    incarnation: str
    """Identity of its checkpoint."""
    epoch: int
    """Of its writer."""
    accepts_loss: bool = False
    """Whether this run goes on where something was lost."""


class Shipping(Beside):
    """Lets flows leave when their intervals end, and takes in those that end here; used on the loop's thread.

    Args:
        here: This site.
        streams: What it runs.
        sources: Returns the sites that have rows of a stream.
        rates: Of the links to its neighbours, as stated; bytes per second.
        tick: Length of a tick, microseconds.
        most: Ticks between two departures of a flow, at most.
        mail: The way to other sites.
        clock: The time.
        check: Returns while no other application has taken over the checkpoint.
        holds: How much of what comes is held here.
        directory: Where it is written now and then how things stand.
        planning: This site's part in planning; None where flows go straight at each tick. Given the carrier.
    """

    longest = LOOK

    def __init__(
        self,
        here: Self,
        streams: SiteStreams,
        sources: Callable[[str], Iterable[Site]],
        rates: Mapping[Site, float],
        tick: Micros,
        most: int,
        mail: Mail,
        clock: Clock,
        check: Callable[[], None],
        holds: Most,
        directory: Place,
        planning: Callable[[Carrier], Planning] | None = None,
    ) -> None:
        self.here, self._clock, self._mail, self._check = here, clock, mail, check
        self.flows = {flow.name: flow for flow in streams.flows}
        self._rates, self._directory = dict(rates), directory
        self._shown: Micros | None = None
        """When it was last written how things stand."""
        ends = {
            flow.name: Ends(tuple(sorted(sources(flow.stream))), flow.destination, flow.limit) for flow in streams.flows
        }
        self.routes = Routes(here.site, tick, ends, most)
        self.carrier = Carrier(
            here.site, secrets.token_hex(8), self.routes, self._merged, rates, lambda _: LinkPacking()
        )
        self.receiving = Receiving(self.flows, streams.arriving, self.carrier, holds, here.accepts_loss, clock.now)
        self.planning = None if planning is None else planning(self.carrier)
        self._incarnations = Incarnations(here.incarnation, directory, check)
        self.shipments: dict[str, Shipment] = {}
        self._ticks: dict[str, int] = {}
        """By flow, the last tick on which it was looked whether it leaves."""
        self._awaited: dict[str, tuple[int, int]] = {}
        """By flow that is about to leave: the tick, and the cut that it waits for."""
        self._beats: dict[str, int | None] = {}
        """By flow, the last time at which it left so that this site is heard."""
        self._told: dict[str, Any] = {}
        """By flow, what was last told of it besides its rows."""
        self._by_stream: list[list[Shipment]] = []
        self._looked: dict[str, Any] = {}
        """By stream, all that says whether its flows leave, at the last look."""
        self._alone, self._passing = Alone(), Passing()
        self._let_go: set[str] = set()
        """Flows of which all rows have arrived, and whose destination may have ended since."""
        self._met: set[Site] = set()
        """Sites that were connected in this run."""
        self.telling = Telling()
        """Of what this run waits for, when it is to end."""
        self._resting: set[str] = set()
        """Flows that are refused until somebody helps, and of which people have heard so."""
        self._loop: Loop

    # ---- beside a loop

    def begin(self, loop: Loop) -> None:
        """Go on where the log says: what was fixed and has not arrived leaves again.

        Raises:
            JobChangedError: A flow is new to the checkpoint.
            SiteError: The site cannot be reached under its address.
        """
        self._loop, self._journal = loop, loop.starter.journal
        loop.reporter.every = EVERY
        for stream in loop.streams.values():
            for flow, gathered in stream.senders.items():
                self._require_known(stream, gathered)
                sender = Sender(flow, self.here.site, self._incarnations.of(flow), self.here.epoch, gathered.committed)
                sender.restored(
                    gathered.left, [self._again(stream, gathered, each) for each in gathered.ranges.values()]
                )
                self.shipments[flow] = Shipment(self.flows[flow], stream, gathered, sender)
        mine = [[each for each in self.shipments.values() if each.stream is one] for one in loop.streams.values()]
        self._by_stream = [shipments for shipments in mine if shipments]
        self.carrier.leaving = lambda: [shipment.sender.standing for shipment in self.shipments.values()]
        self.receiving.begin(loop, self._check)
        flows = told_of(self.flows.values(), loop.streams)
        self._mail.begin(self.carrier, self.receiving.standings, loop.wakeups.wake_soon, flows)
        if self.planning is not None:
            self.planning.begin(loop.wakeups.wake)

    @staticmethod
    def _require_known(stream: RunningStream, gathered: FlowSender) -> None:
        if not gathered.committed and stream.state.offset != stream.source.start():
            raise JobChangedError(
                f"The checkpoint does not know the flow {gathered.flow!r} of the stream {stream.name!r}: what was read "
                "before is not in it.",
                "Queries that travel cannot be added to a checkpoint: give all sites new ones.",
            )

    def look(self) -> bool:
        """Take in what came, and let leave what is due; tell whether partials have come for streams here."""
        now, before = self._clock.monotonic(), self.receiving.stored
        for text in self.telling.look(now):
            self._journal.note(text)
        self._mail.look(now)
        self.carrier.expired(now)
        self.receiving.expired(now)
        self._take(now)
        for shipments in self._by_stream:
            self._depart(shipments, now)
        senders = [shipment.sender for shipment in self.shipments.values()]
        while orders := self.carrier.dispatch(senders, now):
            self._fix(orders)
        self._take(now)  # what this site owes itself
        self._give_up(now)
        self.receiving.listened(now)
        if self.carrier.has_to_say:
            self._mail.look(now)
        if self.planning is not None:
            for note in self.planning.look(now, self.shipments):
                self._journal.note(note)
        if self._shown is None or now >= self._shown + EVERY:
            self._show(now)
        return self.receiving.stored > before

    def _show(self, now: Micros) -> None:
        """Write how things stand, where that is a file of this machine; nothing depends on it."""
        self._shown = now
        if isinstance(self._directory, Path):
            with suppress(OSError):
                write_status(self._directory, status_of(self, self._loop, self._rates, self._clock.now(), now))

    def _take(self, now: Micros) -> None:
        while self.carrier.arrivals or self.carrier.news or self.carrier.reopened:
            self.receiving.take(now)
            self._take_news(now)

    def done(self) -> bool:
        """Tell whether all that left has arrived, the destinations know that this run ends, and nothing passes here."""
        lacking = [text for text in map(self._lacks, self.shipments.values()) if text]
        waits = [*lacking, *self._passing.look(self.carrier, not lacking, self._clock.monotonic())]
        self.telling.found(waits)
        return not waits

    def _lacks(self, each: Shipment) -> str:
        told = not self._once or each.sender.told_end or each.stream.halted is not None
        arrived = each.flow.name in self._let_go and not each.gathered.waits
        return "" if arrived else each.lacks(told, self._hears(each))

    def _hears(self, each: Shipment) -> bool:
        """Tell whether the destination of a flow is connected."""
        return each.flow.destination in (self.here.site, *self.carrier.open)

    def end(self) -> None:
        """Close the connections, whatever else cannot be done: nobody would hear that this run is gone."""
        try:
            if self.planning is not None:
                self.planning.end()
            self._show(self._clock.monotonic())
        finally:
            self._mail.end()

    def _give_up(self, now: Micros) -> None:
        """End a run that only waits for a destination which may have ended; with an error if that lacks rows."""
        waiting = {name: after for name, each in self.shipments.items() if (after := self._waits_for(each)) is not None}
        for name, waited in self._alone.look(now, waiting).items():
            there, here = self.flows[name].destination, self.here.site
            what = f"{there} has not been heard for {format_duration(waited)}, and may have ended"
            if self.shipments[name].gathered.waits:
                error = f"{what} without {here}: it lacks what is new of {name!r}."
                self._loop.ending.fail(SiteError(error, "Run both again."))
            else:
                self._let_go.add(name)
                self._journal.note(f"{what}: it has all rows of {name!r}, and is not waited for any longer")

    def _waits_for(self, each: Shipment) -> Micros | None:
        """Return how long a site may be silent, if a flow only waits for a destination that is not connected."""
        stream = each.stream
        if not self._once or self._hears(each) or stream.name in self._loop.cuts.busy:
            return None
        if not (stream.ended() or stream.stuck) or not self._lacks(each):
            return None
        met = each.flow.destination in self._met
        return patience(stream.definition.policy.absent_after, each.gathered.waits, met)

    # ---- what leaves

    def _depart(self, shipments: Sequence[Shipment], now: Micros) -> None:
        """Look whether flows of one stream leave; not if nothing has happened since the last look."""
        stream = shipments[0].stream
        assert stream.definition.leaving is not None
        tick = stream.definition.leaving.ticks.number(self._clock.now())
        news, ends = news_of(stream, tick), self._ends(stream)
        failures = tuple(name for name, query in stream.state.queries.items() if query.failure is not None)
        looked = tick, shipments[0].gathered.committed, news, failures, ends, beat_of(stream, now)
        if ends or looked != self._looked.get(stream.name):
            self._looked[stream.name] = looked
            for shipment in shipments:
                self._depart_one(shipment, tick, (news, shipment.failure), ends, now)

    def _depart_one(self, shipment: Shipment, tick: int, news: Any, ends: bool, now: Micros) -> None:
        """Tell the sender of a flow what was committed, and that its interval has ended once that is so."""
        stream, sender, flow = shipment.stream, shipment.sender, shipment.flow.name
        if shipment.gathered.committed > sender.gathered:
            sender.committed(shipment.gathered.committed)
        if news != self._told.get(flow):
            self._told[flow] = news
            sender.progressed()
        if ends:
            sender.ends(tick)
            return
        sender.goes_on()
        due = self._due(flow, tick)
        if due is not None:
            under_way = self._loop.cuts.logged.get(stream.name) if stream.name in self._loop.cuts.busy else None
            self._awaited[flow] = due, 0 if under_way is None else under_way.number
        beat = beat_of(stream, now)
        if flow in self._awaited and beat != self._beats.get(flow):  # whoever computes for long is there, too
            self._beats[flow], self._awaited[flow] = beat, (self._awaited[flow][0], 0)
            sender.progressed()
        if flow in self._awaited and shipment.gathered.committed >= self._awaited[flow][1]:
            sender.departs(due := self._awaited.pop(flow)[0])
            if self.planning is not None:
                self.planning.departs(flow, due)

    def _due(self, flow: str, tick: int) -> int | None:
        """Return the last tick since the last look on which an interval of a flow ended; None where none did."""
        last = min(self._ticks.get(flow, tick - 1), tick)
        self._ticks[flow] = tick
        ended = range(tick, max(last, tick - 2 * INTERVALS[-1]), -1)
        return next((each for each in ended if self.routes.departs(flow, each)), None)

    @property
    def _once(self) -> bool:
        return self._loop.scheduler.once

    def _ends(self, stream: RunningStream) -> bool:
        """Tell whether this run reads no more of a stream."""
        return self._once and stream.name not in self._loop.cuts.busy and stream.ended()

    def _fix(self, orders: Sequence[Fix]) -> None:
        """Fix ranges of cuts in the log, all with one sync, and make parcels of them."""
        found = [order for order in orders if order.after < order.upto]
        for order in found:
            record = Shipped(self.shipments[order.flow].stream.name, order.flow, order.upto, order.tick)
            self._journal.log(record.to_json(), sync=order is found[-1])
        for order in orders:
            self._ship(order)

    def _ship(self, order: Fix) -> None:
        """Make a parcel of a range of cuts that is fixed."""
        shipment, made = self.shipments[order.flow], None
        if order.after < order.upto:
            made = shipment.gathered.fix(order.upto, order.tick)
            self._journal.step("shipped")
            if self.planning is not None:
                self.planning.fixed(order.flow, order.tick, made.table)
        asks = order.upto < shipment.gathered.committed  # what is known now is of cuts behind it
        content = {} if asks else content_of(shipment.stream, shipment.flow, made, shipment.gathered)
        shipment.sender.fixed(order.parcel(**content))

    def _again(self, stream: RunningStream, gathered: FlowSender, made: CutRange) -> Parcel:
        """Return the parcel of a range that an earlier run fixed."""
        flow, here = gathered.flow, self.here
        content = content_of(stream, self.flows[flow], made, gathered)
        body = content.pop("body")
        part = Part(here.site, self._incarnations.of(flow), here.epoch, made.after, made.upto, 1, **content)
        return Parcel(flow, made.tick, (part,), body)

    def _take_news(self, now: Micros) -> None:
        """Take acks and refusals for what leaves here, and that there are new connections."""
        news, self.carrier.news = self.carrier.news, []
        for each in news:
            if isinstance(each, Ack) and each.standing.site == self.here.site:
                self._told_of(each)
            for standing in each.standings if isinstance(each, Refusal) else (each.standing,):
                self._stands(standing)
            if isinstance(each, Refusal) and each.flow in self.shipments:
                self.shipments[each.flow].sender.refused(each, now)
        reopened, self.carrier.reopened = self.carrier.reopened, []
        for peer, forgot in reopened:
            anew = forgot or peer not in self._met  # perhaps others told it to a run of it before
            self._met.add(peer)
            for shipment in self.shipments.values():
                shipment.sender.reopened(peer, forgot)
                if shipment.flow.destination == peer:
                    self._let_go.discard(shipment.flow.name)
                    if anew:  # what a run of it knew besides rows, this one does not
                        shipment.sender.forgotten()
        for flow, shipment in self.shipments.items():
            self._tell_whether_it_rests(flow, shipment)

    def _told_of(self, ack: Ack) -> None:
        """Take note of the window that waits at the destination, and of what remains to be done for it."""
        shipment = self.shipments.get(ack.standing.flow)
        self._alone.heard(ack.standing.flow)
        if shipment is not None:
            waiting = shipment.stream.elsewhere
            waiting.pop(ack.standing.flow, None)
            if ack.deadline is not None:
                waiting[ack.standing.flow] = Elsewhere(ack.deadline, shipment.flow.limit, ack.cost)

    def _stands(self, standing: Standing) -> None:
        shipment = self.shipments.get(standing.flow)
        if shipment is None or standing.site != self.here.site:
            return
        gone = [parcel.part.upto for parcel in shipment.sender.stands(standing) if not parcel.part.empty]
        refusal = shipment.sender.refusal
        if refusal is not None and refusal.reason is Reason.BEHIND and self.here.accepts_loss:
            shipment.sender.begin_anew(self._incarnations.renew(standing.flow))
            self._journal.note(f"the flow {standing.flow!r} begins anew: {refusal.detail}")
        if gone and shipment.gathered.arrived_up_to(max(gone)):
            record = Arrived(shipment.stream.name, standing.flow, max(gone))
            self._journal.log(record.to_json(), sync=False)
            self._journal.step("arrived")

    def _tell_whether_it_rests(self, flow: str, shipment: Shipment) -> None:
        """Tell people once that a flow rests until somebody helps; one that ends with its rows would wait for ever."""
        refusal = shipment.sender.refusal
        if refusal is None:
            self._resting.discard(flow)
        elif flow not in self._resting:
            self._resting.add(flow)
            what = f"{shipment.flow.destination} does not take the flow {flow!r}: {refusal.detail}"
            if self._once:
                self._loop.ending.fail(SiteError(what, refusal.reason.remedy))
            else:
                self._journal.note(f"{what} {refusal.reason.remedy}")

    def _merged(self, flow: str, bodies: Iterable[Body]) -> Body:
        """Return the body of several bodies of a flow merged, at a relay.

        Raises:
            SiteError: They differ, or cannot be merged here.
        """
        shipment = self.shipments.get(flow)
        return merged_alike(flow, bodies) if shipment is None else merged(shipment.gathered, bodies)
