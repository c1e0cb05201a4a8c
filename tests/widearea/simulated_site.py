"""A site in virtual time: what it keeps, and the pure machines that run on it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from transom.widearea.carriers import Carrier
from transom.widearea.parcels import Ack, Parcel, Part, PartitionProgress, Reason, Refusal, Standing
from transom.widearea.receivers import Receiver, Store
from transom.widearea.room import Awaited, Room
from transom.widearea.routes import Ends, Routes
from transom.widearea.senders import Fix, Sender

if TYPE_CHECKING:
    from tests.widearea.network import World

MS = 1_000
TICK = 500 * MS
WINDOW = 10
"""Cuts of a window: the n-th cut of a site happens at n."""
SITES = ("a", "b", "c", "d")
FLOWS = {"f": Ends(("a", "b", "c"), "d", 2_000 * MS), "g": Ends(("a", "b", "c"), "c", 1_000 * MS)}


def merge(_flow, bodies):
    return json.dumps([row for body in bodies for row in json.loads(body)]).encode()


@dataclass
class Disk:
    """What a site keeps through crashes."""

    identity: str
    epoch: int = 0
    rows: list[int] = field(default_factory=list)
    """Of each cut, a number that no other cut of any site has."""
    renewed: dict[str, str] = field(default_factory=dict)
    """By flow, an identity that is another one than the checkpoint's."""
    shipped: dict[str, list[tuple[int, int, int]]] = field(default_factory=lambda: {flow: [] for flow in FLOWS})
    acked: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FLOWS, 0))
    """As logged: may be older than what is known."""
    inbox: dict[str, list[Parcel]] = field(default_factory=lambda: {flow: [] for flow in FLOWS})
    full_until: int = 0

    @property
    def cuts(self) -> int:
        """The last cut."""
        return len(self.rows)

    def incarnation(self, flow: str) -> str:
        """Return by what identity a flow is known at its destination."""
        return self.renewed.get(flow, self.identity)


class Node:
    """A site: pure machines in the hands of the world."""

    def __init__(self, world: World, name: str, disk: Disk) -> None:
        self.world, self.name, self.disk = world, name, disk
        self.accepts = name in world.accepts
        disk.epoch += 1
        world.boots += 1
        boot = f"{name}{world.boots}"
        routes = Routes(name, TICK, FLOWS)
        rates = {site: 50_000.0 for site in SITES if site != name}
        self.carrier = Carrier(name, boot, routes, merge, rates, relay_bytes=world.relay_bytes, silence=3_000 * MS)
        self.rooms = {flow: Room(2_000 * MS) for flow in FLOWS}
        self.receivers = {
            flow: Receiver(
                flow,
                standings(disk.inbox[flow], flow),
                held_bytes=world.held_bytes,
                patience=4_000 * MS,
                has_room=self.has_room,
                accepts_loss=self.accepts,
                anew=anew(disk.inbox[flow]),
            )
            for flow, ends in FLOWS.items()
            if ends.destination == name
        }
        self.senders = [self.restored(flow) for flow, ends in FLOWS.items() if name in ends.sources]
        self.carrier.leaving = lambda: [sender.standing for sender in self.senders]
        self.ticked = 0
        self.met: set[str] = set()
        """Sites that were connected in this run."""
        self.storing: list[Store] = []
        self.heard: dict[str, dict[str, Part]] = {flow: {} for flow in self.receivers}
        """By flow and site, the newest part that came in this run."""

    def restored(self, flow: str) -> Sender:
        ranges = [each for each in self.disk.shipped[flow] if each[1] > self.disk.acked[flow]]
        incarnation = self.disk.incarnation(flow)
        sender = Sender(flow, self.name, incarnation, self.disk.epoch, self.disk.cuts)
        after = self.disk.shipped[flow][-1][1] if self.disk.shipped[flow] else 0
        parcels = [
            Parcel(
                flow,
                tick,
                (Part(self.name, incarnation, 0, low, high, 1, partitions=at(high)),),
                self.body(low, high),
            )
            for low, high, tick in ranges
        ]
        sender.restored(after, parcels)
        return sender

    def body(self, after: int, upto: int) -> bytes:
        rows = [[self.name, cut, self.disk.rows[cut - 1]] for cut in range(after + 1, upto + 1)]
        return json.dumps(rows).encode() + b" " * (self.world.padding * len(rows)) if rows else b""

    def commit(self) -> None:
        self.world.rows += 1
        self.disk.rows.append(self.world.rows)
        for sender in self.senders:
            sender.committed(self.disk.cuts)

    def turn(self) -> None:
        """Do what the loop of a site does."""
        now, carrier = self.world.now, self.carrier
        tick = (now + self.world.skew[self.name]) // TICK
        for number in range(self.ticked + 1, tick + 1) if self.ticked else [tick]:
            for sender in self.senders:
                if carrier.routes.departs(sender.flow, number):
                    sender.departs(number)
        self.ticked = max(tick, self.ticked)
        for sender in self.senders:
            if self.world.ends:
                sender.ends(tick)
        carrier.expired(now)
        for receiver in self.receivers.values():
            self.perform(receiver.expired(now))
        for peer, forgot in carrier.reopened:
            for sender in self.senders:
                sender.reopened(peer, forgot)
                if (forgot or peer not in self.met) and FLOWS[sender.flow].destination == peer:
                    sender.forgotten()
            self.met.add(peer)
        carrier.reopened.clear()
        self.take()
        if now >= self.disk.full_until:
            for order in carrier.dispatch(self.senders, now):
                self.fix(order)
            carrier.dispatch(self.senders, now)
        self.take()
        for peer in carrier.silent(now):
            self.world.cut_off(self.name, peer)
        self.speak()

    def take(self) -> None:
        """Take what came."""
        carrier, now = self.carrier, self.world.now
        while carrier.arrivals or carrier.news:
            arrivals, carrier.arrivals = carrier.arrivals, []
            for parcel, via in arrivals:
                self.perform(self.receivers[parcel.flow].received(parcel, via, now))
            news, carrier.news = carrier.news, []
            for message in news:
                told = (message.standing,) if isinstance(message, Ack) else message.standings
                for sender in self.senders:
                    for standing in told:
                        if (standing.flow, standing.site) == (sender.flow, self.name):
                            self.stands(sender, standing)
                    if isinstance(message, Refusal) and message.flow == sender.flow:
                        sender.refused(message, now)
                        assert sender.refusal is None or self.world.lost, message

    def stands(self, sender: Sender, standing: Standing) -> None:
        """Take where a destination stands; go on with another identity where it has more than there is here."""
        sender.stands(standing)
        flow = sender.flow
        if sender.refusal is not None and sender.refusal.reason is Reason.BEHIND and self.accepts:
            self.world.renewals += 1
            self.disk.renewed[flow] = f"{self.disk.identity}+{self.world.renewals}"
            sender.begin_anew(self.disk.renewed[flow])
        elif self.world.random.random() < 0.5:
            self.disk.acked[flow] = max(self.disk.acked[flow], sender.acked)

    def done(self) -> bool:
        """Tell whether nothing is left to do: all that left was acked, and nothing passes here that can."""
        passes = {FLOWS[flow].destination for flow in self.carrier.relay.flows} & set(self.carrier.open)
        left = any((sender.unacked or sender.due is not None) and not self.may_go(sender) for sender in self.senders)
        return not passes and not left and not self.storing

    def may_go(self, sender: Sender) -> bool:
        """Tell whether a destination that has ended has all rows of a flow: a site ends then, too, after a while."""
        return FLOWS[sender.flow].destination in self.world.finished and sender.acked == self.disk.cuts

    def ended(self) -> bool:
        """Tell whether it ends: that was told to others, and all of them have said so in this run."""
        told = all(sender.told_end or self.may_go(sender) for sender in self.senders)
        heard = all(
            site in parts and parts[site].ended for flow, parts in self.heard.items() for site in FLOWS[flow].sources
        )
        return self.done() and told and heard

    def fix(self, order: Fix) -> None:
        if order.upto > order.after:
            self.disk.shipped[order.flow].append((order.after, order.upto, order.tick))
        sender = next(each for each in self.senders if each.flow == order.flow)
        sender.fixed(order.parcel(self.body(order.after, order.upto), at(order.upto)))

    def has_room(self, parcel: Parcel, now: int) -> bool:
        """Tell whether the rows of a flow's open windows are few enough, or a window waits for the parcel."""
        inbox = self.disk.inbox[parcel.flow]
        newest = last(inbox)
        got = [newest[site].upto if site in newest else 0 for site in FLOWS[parcel.flow].sources]
        closed = min(got) // WINDOW * WINDOW
        full = sum(max(0, upto - closed) for upto in got) > self.world.memory
        taken = self.rooms[parcel.flow].takes(parcel, newest, Awaited(closed + WINDOW) if full else None, now)
        self.world.refused += not taken
        return taken

    def perform(self, actions) -> None:
        for action in actions:
            if not isinstance(action, Store):
                self.carrier.answer(action.peer, action.message)
                continue
            self.storing.append(action)
            at = max(self.world.now + self.world.random.randrange(1, 60) * MS, self.disk.full_until)
            self.world.at(at, lambda: self.world.is_up(self) and self.store())

    def store(self) -> None:
        """Make the first of what is to be stored durable; a crash may come before anybody hears of it."""
        if self.world.now < self.disk.full_until:
            self.world.at(self.disk.full_until, lambda: self.world.is_up(self) and self.store())
            return
        store = self.storing.pop(0)
        self.disk.inbox[store.parcel.flow].append(store.parcel)
        self.heard[store.parcel.flow].update({part.site: part for part in store.parcel.parts})
        if self.world.random.random() < self.world.crash_between:
            self.world.crash(self.name)
            return
        self.perform(self.receivers[store.parcel.flow].stored(store))
        self.take()
        self.speak()

    def speak(self) -> None:
        """Give to connections what may be given."""
        for peer in self.carrier.open:
            for frame in self.carrier.frames(peer, self.world.now):
                self.world.say(self.name, peer, "up", frame, len(frame.payload))
        for peer, message in self.carrier.answers():
            self.world.say(peer, self.name, "down", message, 50)


def at(cut: int) -> tuple[PartitionProgress, ...]:
    return (PartitionProgress(cut, None),)


def standings(inbox: list[Parcel], flow: str) -> list[Standing]:
    return [Standing(flow, site, part.incarnation, part.place) for site, part in last(inbox).items()]


def last(inbox: list[Parcel]) -> dict[str, Part]:
    """Return the newest part of each site."""
    return {part.site: part for parcel in inbox for part in parcel.parts}


def anew(inbox: list[Parcel]) -> list[str]:
    """Return the sites of which rows were lost, and no row has come since."""
    return [site for site, part in last(inbox).items() if part.anew and part.empty]
