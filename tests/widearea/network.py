"""Sites and what is between them, in virtual time: everything that may go wrong does."""

from __future__ import annotations

import heapq
import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.widearea.simulated_site import FLOWS, MS, SITES, WINDOW, Disk, Node, standings

from transom.widearea.parcels import Place
from transom.widearea.plans import Plan, Route
from transom.widearea.trees import Tree, trees

TURN = 200 * MS
ALIVE = 30_000 * MS
"""After so long an end hears that the other one does not say that it is there."""


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


def ends_of(made: Connection) -> tuple[str, str]:
    return made.source, made.target


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
        self.disks = {site: Disk(f"ck-{site}") for site in SITES}
        self.rows = self.renewals = self.boots = 0
        self.accepts: set[str] = set()
        """Sites whose next runs go on where something was lost."""
        self.lost = False
        """Whether anything was lost for ever."""
        self.ends = False
        """Whether runs end with their rows."""
        self.finished: set[str] = set()
        """Sites whose runs have ended."""
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
            made.lost.add(direction)  # and all behind it: for long nobody hears that it has broken
            self.at(
                self.now + ALIVE, lambda: self.connections.get(ends_of(made)) is made and self.cut_off(*ends_of(made))
            )
        if not made.alive or direction in made.lost:
            return
        source, target = self.nodes[made.source], self.nodes[made.target]
        if source is None or (target is None and (direction == "up" or made.target not in self.finished)):
            return  # what was said before the end of a run comes
        if direction == "up":
            assert target is not None
            if not made.open:
                made.open = True
                known = [each for receiver in target.receivers.values() for each in receiver.standings]
                answer = target.carrier.accept(made.source, message, known, now=self.now)
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
            self.at(self.now + self.random.choice([0, 5_000 * MS]), lambda: self.notice(source, target))
        node = self.nodes[source]
        if node is not None:
            node.carrier.closed(target)

    def notice(self, source: str, target: str) -> None:
        """The end that takes connections hears, perhaps late, that one is gone, unless there is a new one."""
        made, node = self.connections.get((source, target)), self.nodes[target]
        if node is not None and (made is None or not made.alive or not made.open):
            node.carrier.belief.left(source)

    # Misfortune

    def crash(self, site: str, away: tuple[int, int] = (100, 3_000)) -> None:
        """End a site; another run of it begins after so many milliseconds, at least and at most."""
        self.nodes[site] = None
        self.disconnect(site)
        self.at(self.now + self.random.randrange(*away) * MS, lambda: self.start(site))

    def disconnect(self, site: str) -> None:
        for peer in SITES:
            if peer != site:
                self.cut_off(site, peer)
                self.cut_off(peer, site)

    def start(self, site: str) -> None:
        """Begin another run of a site; who has ended runs again, too: that run has heard of no end."""
        if self.nodes[site] is None and site not in self.finished:
            self.nodes[site] = Node(self, site, self.disks[site])
            again, self.finished = self.finished, set()
            for each in sorted(again):
                self.disconnect(each)
                self.start(each)

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
            if self.calm and self.ends and node.ended() and self.may_finish(site, node):
                self.finish(site)
        self.at(self.now + TURN, lambda: self.turn(site))

    def has_all(self, site: str) -> bool:
        """Tell whether all that sites have made for one is there."""
        for flow, ends in FLOWS.items():
            got = {each.site: each.place.upto for each in standings(self.disks[site].inbox[flow], flow)}
            if ends.destination == site and any(got.get(there, 0) != self.disks[there].cuts for there in ends.sources):
                return False
        return True

    def may_finish(self, site: str, node: Node) -> bool:
        """Tell whether nothing is lost by bad luck when a run ends: its last ack, or that others do not know its end.

        Nobody can find that out, so people have to run such sites again.
        """
        known = all(
            sender.acked == self.disks[peer].cuts
            for peer, other in self.nodes.items()
            for sender in (other.senders if other is not None else ())
            if FLOWS[sender.flow].destination == site
        )
        ends = {FLOWS[sender.flow].destination for sender in node.senders} - {site, *self.finished}
        return known and ends <= set(node.carrier.open) and self.has_all(site)

    def everything_is_there(self) -> bool:
        return all(map(self.has_all, SITES)) and all(node is not None and node.done() for node in self.nodes.values())

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

    def to_the_end(self, trouble: int, patience: int) -> bool:
        """Let runs end with their rows, of which some come yet while there is trouble; tell whether all of them end."""
        self.ends, self.calm = True, False
        end = self.now + trouble
        while self.now < end:
            self.run(self.now + self.random.randrange(100, 1_500) * MS)
            self.mishap()
        self.calm = True
        end = self.now + patience
        while self.now < end and self.finished != {*SITES}:
            self.run(self.now + 500 * MS)
        return self.finished == {*SITES}

    def finish(self, site: str) -> None:
        """End a run whose work is done; others hear so a little later than what it has said."""
        self.finished.add(site)
        self.nodes[site] = None
        for peer in SITES:
            for ends in ((site, peer), (peer, site)):
                if peer != site:
                    self.at(self.now + 5_000 * MS, lambda ends=ends: self.cut_off(*ends))

    def check(self) -> None:
        """Every cut of every site is merged exactly once, in order."""
        for flow, ends in FLOWS.items():
            inbox = self.disks[ends.destination].inbox[flow]
            rows = Counter(tag for parcel in inbox if parcel.body for _, _, tag in json.loads(parcel.body))
            wanted = {tag: 1 for site in ends.sources for tag in self.disks[site].rows}
            assert rows == wanted
            at: dict[str, Place] = {}
            for parcel in inbox:
                for part in parcel.parts:
                    before = at.get(part.site)
                    assert before is None or before < part.place
                    assert part.empty or part.after == (0 if before is None else before.upto)
                    at[part.site] = part.place
