"""A site in virtual time: what it keeps, and the pure machines that run on it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from transom.widearea.carriers import Carrier
from transom.widearea.parcels import Ack, Parcel, Part, PartitionProgress, Place, Standing
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

    epoch: int = 0
    cuts: int = 0
    shipped: dict[str, list[tuple[int, int, int]]] = field(default_factory=lambda: {flow: [] for flow in FLOWS})
    acked: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FLOWS, 0))
    """As logged: may be older than what is known."""
    inbox: dict[str, list[Parcel]] = field(default_factory=lambda: {flow: [] for flow in FLOWS})
    full_until: int = 0


class Node:
    """A site: pure machines in the hands of the world."""

    def __init__(self, world: World, name: str, disk: Disk) -> None:
        self.world, self.name, self.disk = world, name, disk
        disk.epoch += 1
        boot = f"{name}{disk.epoch}"
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
            )
            for flow, ends in FLOWS.items()
            if ends.destination == name
        }
        self.senders = [self.restored(flow) for flow, ends in FLOWS.items() if name in ends.sources]
        self.carrier.leaving = lambda: [sender.standing for sender in self.senders]
        self.ticked = 0
        self.storing: list[Store] = []

    def restored(self, flow: str) -> Sender:
        ranges = [each for each in self.disk.shipped[flow] if each[1] > self.disk.acked[flow]]
        sender = Sender(flow, self.name, f"ck-{self.name}", self.disk.epoch, self.disk.cuts)
        after = self.disk.shipped[flow][-1][1] if self.disk.shipped[flow] else 0
        parcels = [
            Parcel(
                flow,
                tick,
                (Part(self.name, f"ck-{self.name}", 0, low, high, 1, partitions=at(high)),),
                self.body(low, high),
            )
            for low, high, tick in ranges
        ]
        sender.restored(after, parcels)
        return sender

    def body(self, after: int, upto: int) -> bytes:
        rows = [[self.name, cut] for cut in range(after + 1, upto + 1)]
        return json.dumps(rows).encode() + b" " * (self.world.padding * len(rows)) if rows else b""

    def commit(self) -> None:
        self.disk.cuts += 1
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
        carrier.expired(now)
        for receiver in self.receivers.values():
            self.perform(receiver.expired(now))
        for peer, forgot in carrier.reopened:
            for sender in self.senders:
                sender.reopened(peer, forgot)
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
                for sender in self.senders:
                    if isinstance(message, Ack):
                        if (message.standing.flow, message.standing.site) == (sender.flow, self.name):
                            sender.stands(message.standing)
                            if self.world.random.random() < 0.5:
                                self.disk.acked[sender.flow] = max(self.disk.acked[sender.flow], sender.acked)
                    elif message.flow == sender.flow:
                        for standing in message.standings:
                            if standing.site == self.name:
                                sender.stands(standing)
                        sender.refused(message, now)
                        assert sender.refusal is None, message

    def fix(self, order: Fix) -> None:
        if order.upto > order.after:
            self.disk.shipped[order.flow].append((order.after, order.upto, order.tick))
        sender = next(each for each in self.senders if each.flow == order.flow)
        sender.fixed(order.parcel(self.body(order.after, order.upto), at(order.upto)))

    def has_room(self, parcel: Parcel, now: int) -> bool:
        """Tell whether the rows of a flow's open windows are few enough, or a window waits for the parcel."""
        inbox = self.disk.inbox[parcel.flow]
        last = {part.site: part for each in inbox for part in each.parts}
        got = [last[site].upto if site in last else 0 for site in FLOWS[parcel.flow].sources]
        closed = min(got) // WINDOW * WINDOW
        full = sum(max(0, upto - closed) for upto in got) > self.world.memory
        taken = self.rooms[parcel.flow].takes(parcel, last, Awaited(closed + WINDOW) if full else None, now)
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
    found: dict[str, Place] = {}
    for parcel in inbox:
        for part in parcel.parts:
            found[part.site] = max(part.place, found.get(part.site, part.place))
    return [Standing(flow, site, f"ck-{site}", place) for site, place in found.items()]
