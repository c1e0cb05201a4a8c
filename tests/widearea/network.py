"""Sites, their disks and what is between them, in virtual time: everything that may go wrong does."""

from __future__ import annotations

import heapq
import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from transom.widearea.carriers import Carrier
from transom.widearea.parcels import Ack, Parcel, Part, PartitionProgress, Place, Standing
from transom.widearea.plans import Plan, Route
from transom.widearea.receivers import Receiver, Store
from transom.widearea.room import Awaited, Room
from transom.widearea.routes import Ends, Routes
from transom.widearea.senders import Fix, Sender
from transom.widearea.trees import Tree, trees

MS = 1_000
TICK = 500 * MS
TURN = 200 * MS
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


@dataclass
class Connection:
    source: str
    target: str
    alive: bool = True
    open: bool = False
    begun: int = 0
    lost: set[str] = field(default_factory=set)
    """Directions in which nothing comes any more."""
    free: dict[str, int] = field(default_factory=lambda: {"up": 0, "down": 0})
    """When each direction has carried what was given to it."""


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


def node_up(node: Node | None, peer: str) -> bool:
    return node is not None and peer in node.carrier.open


class World:
    """Everything between the sites, and their misfortune, from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        draw = self.random
        self.now, self.count = 1_000_000 * MS, 0
        self.agenda: list[tuple[int, int, Callable[[], object]]] = []
        self.padding = draw.choice([0, 0, 500, 3_000])
        self.relay_bytes = draw.choice([3_000, 1 << 20])
        self.held_bytes = draw.choice([2_000, 1 << 20])
        self.crash_between = draw.choice([0.0, 0.0, 0.02])
        apart = draw.choice([0, 50, 2_500])
        self.skew = {site: draw.randrange(-apart, apart + 1) * MS for site in SITES}
        self.rate = {(a, b): draw.choice([5_000, 50_000, 500_000]) for a in SITES for b in SITES}
        self.blocked: set[tuple[str, str]] = set()
        self.connections: dict[tuple[str, str], Connection] = {}
        self.disks = {site: Disk() for site in SITES}
        self.nodes: dict[str, Node | None] = {site: Node(self, site, self.disks[site]) for site in SITES}
        self.plans = 0
        self.refused = 0
        """Parcels for which there was no room."""
        self.calm = False
        if draw.random() < 0.8:
            self.plan(1.0)
        self.memory = draw.choice([WINDOW // 2, 3 * WINDOW, 1 << 20])
        """Rows of a flow for which there is room."""

    def at(self, moment: int, action: Callable[[], object]) -> None:
        self.count += 1
        heapq.heappush(self.agenda, (moment, self.count, action))

    def is_up(self, node: Node) -> bool:
        return self.nodes[node.name] is node

    def run(self, until: int) -> None:
        while self.agenda and self.agenda[0][0] <= until:
            self.now, _, action = heapq.heappop(self.agenda)
            action()
        self.now = until

    # Connections

    def connect(self, source: str, target: str) -> None:
        """Try to open a connection, as a site does again and again."""
        node = self.nodes[source]
        known = self.connections.get((source, target))
        if known is not None and not node_up(node, target) and self.now - known.begun > 2_000 * MS:
            known.alive = False
        if node is not None and (known is None or not known.alive):
            made = self.connections[source, target] = Connection(source, target, begun=self.now)
            self.transmit(made, "up", node.carrier.opening(target), 50)

    def say(self, source: str, target: str, direction: str, message, size: int) -> None:
        made = self.connections.get((source, target))
        if made is not None and made.alive:
            self.transmit(made, direction, message, size)

    def transmit(self, made: Connection, direction: str, message, size: int) -> None:
        ends = (made.source, made.target) if direction == "up" else (made.target, made.source)
        start = max(self.now, made.free[direction])
        made.free[direction] = start + round(size * 1e6 / self.rate[ends])
        delay = self.random.randrange(1, 80) * MS
        made.free[direction] = max(made.free[direction], self.now + delay)  # in order
        self.at(made.free[direction], lambda: self.deliver(made, direction, message, ends))

    def deliver(self, made: Connection, direction: str, message, ends: tuple[str, str]) -> None:
        if ends in self.blocked:
            made.lost.add(direction)  # and all behind it: nobody hears that it has broken
        if not made.alive or direction in made.lost:
            return
        source, target = self.nodes[made.source], self.nodes[made.target]
        if source is None or target is None:
            return
        if direction == "up":
            if not made.open:
                made.open = True
                known = [each for receiver in target.receivers.values() for each in receiver.standings]
                answer = target.carrier.accept(made.source, message, known)
                self.transmit(made, "down", answer, 50)
            else:
                target.carrier.came(made.source, message, self.now)
                target.take()
                target.speak()
        elif type(message).__name__ == "Opened":
            source.carrier.opened(made.target, message, self.now)
            source.speak()
        elif source.carrier._neighbours[made.target].up:
            source.carrier.heard(made.target, message, self.now)
            source.take()
            source.speak()

    def cut_off(self, source: str, target: str) -> None:
        """Break a connection; what is on its way is lost."""
        made = self.connections.get((source, target))
        if made is not None:
            made.alive = False
        node = self.nodes[source]
        if node is not None:
            node.carrier.closed(target)

    # Misfortune

    def crash(self, site: str, away: tuple[int, int] = (100, 3_000)) -> None:
        """End a site; another run of it begins after so many milliseconds, at least and at most."""
        self.nodes[site] = None
        for peer in SITES:
            if peer != site:
                self.cut_off(site, peer)
                self.cut_off(peer, site)
        self.at(self.now + self.random.randrange(*away) * MS, lambda: self.start(site))

    def start(self, site: str) -> None:
        if self.nodes[site] is None:
            self.nodes[site] = Node(self, site, self.disks[site])

    def block(self, ends: tuple[str, str]) -> None:
        self.blocked.add(ends)
        self.at(self.now + self.random.randrange(200, 6_000) * MS, lambda: self.blocked.discard(ends))

    def plan(self, heard: float = 0.7) -> None:
        """A share of the sites hear of a new plan."""
        self.plans += 1
        routes = []
        for flow, ends in FLOWS.items():
            sources = [site for site in ends.sources if site != ends.destination]
            tree = self.random.choice(list(trees(sources, ends.destination, SITES)))
            interval = self.random.choice([1, 2, 4])
            routes.append(Route(flow, Tree(tree.destination, tree.parents), interval, 0, 0.3))
        plan = Plan(self.plans, 0, "latency", 1.0, 1.0, tuple(routes), ())
        for node in self.nodes.values():
            if node is not None and self.random.random() < heard:
                node.carrier.routes.adopt(plan)

    def mishap(self) -> None:
        draw = self.random
        a, b = draw.sample(SITES, 2)
        kind = draw.choice(["break", "break", "block", "crash", "full", "plan", "plan", "none"])
        if kind == "break":
            self.cut_off(a, b)
        elif kind == "block":
            self.block((a, b))
        elif kind == "crash" and self.nodes[a] is not None:
            self.crash(a)
        elif kind == "full":
            self.disks[a].full_until = self.now + draw.randrange(100, 3_000) * MS
        elif kind == "plan":
            self.plan()

    def turn(self, site: str) -> None:
        node = self.nodes[site]
        if node is not None:
            if not self.calm and self.random.random() < 0.3 and site != "d":
                node.commit()
            for peer in SITES:
                if peer != site and self.random.random() < 0.5:
                    self.connect(site, peer)
            node.turn()
        self.at(self.now + TURN, lambda: self.turn(site))

    def everything_is_there(self) -> bool:
        for flow, ends in FLOWS.items():
            got = {each.site: each.place.upto for each in standings(self.disks[ends.destination].inbox[flow], flow)}
            if any(got.get(site, 0) != self.disks[site].cuts for site in ends.sources):
                return False
        nodes = self.nodes.values()
        return all(
            node and not any(p.part.upto > p.part.after for s in node.senders for p in s.unacked) for node in nodes
        )

    def story(self, trouble: int, patience: int) -> bool:
        """Let trouble last so long, then peace; tell whether everything arrived and was acked."""
        for place, site in enumerate(SITES):
            self.at(self.now + place * 10 * MS, lambda site=site: self.turn(site))
        end = self.now + trouble
        while self.now < end:
            self.run(self.now + self.random.randrange(100, 1_500) * MS)
            self.mishap()
        self.calm, self.crash_between = True, 0.0
        end = self.now + patience
        while self.now < end:
            self.run(self.now + 500 * MS)
            if self.everything_is_there():
                return True
        return False

    def check(self) -> None:
        """Every cut of every site is merged exactly once, in order."""
        for flow, ends in FLOWS.items():
            inbox = self.disks[ends.destination].inbox[flow]
            rows = Counter((site, cut) for parcel in inbox if parcel.body for site, cut in json.loads(parcel.body))
            wanted = {(site, cut): 1 for site in ends.sources for cut in range(1, self.disks[site].cuts + 1)}
            assert rows == wanted
            at: dict[str, Place] = {}
            for parcel in inbox:
                for part in parcel.parts:
                    before = at.get(part.site)
                    assert before is None or before < part.place
                    assert part.empty or part.after == (0 if before is None else before.upto)
                    at[part.site] = part.place
