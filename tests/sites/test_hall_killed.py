"""Sites of one process, of which the destination is killed at any step: all arrives once, and nobody waits for ever."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from transom.sites.inprocess import Hall
from transom.widearea.carriers import Carrier
from transom.widearea.parcels import Ack, Parcel, Part, Standing
from transom.widearea.receivers import Receiver, Store
from transom.widearea.routes import Ends, Routes
from transom.widearea.senders import Fix, Sender

SITES = ("north", "south", "home")
FLOWS = {"f": Ends(("north", "south"), "home")}
MS = 1_000
TICK = 20 * MS
CUTS = 8


class Killed(BaseException):
    """Ends a run: nothing is written after it."""


@dataclass
class Disk:
    """What a site keeps."""

    epoch: int = 0
    shipped: list[tuple[int, int]] = field(default_factory=list)
    acked: int = 0
    inbox: list[Parcel] = field(default_factory=list)


class Run:
    """A run of a site, turn by turn as its loop."""

    def __init__(self, story: Story, site: str) -> None:
        self.story, self.site, self.disk = story, site, story.disks[site]
        self.disk.epoch += 1
        rates = dict.fromkeys((other for other in SITES if other != site), 1e6)
        self.carrier = Carrier(site, f"{site} {self.disk.epoch}", Routes(site, TICK, FLOWS), lambda *_: b"", rates)
        last = {part.site: part for parcel in self.disk.inbox for part in parcel.parts}
        self.receiver = Receiver("f", [Standing("f", name, "ck", part.place) for name, part in last.items()])
        self.senders = [self.restored()] if site in FLOWS["f"].sources else []
        self.carrier.leaving = lambda: [sender.standing for sender in self.senders]
        self.cuts = 0
        self.desk = story.hall.desk(site)
        self.desk.begin(self.carrier, lambda: self.receiver.standings, lambda: None, {})

    def restored(self) -> Sender:
        left = [
            Parcel("f", 1, (Part(self.site, "ck", 0, low, high, 1),), b"x")
            for low, high in self.disk.shipped
            if high > self.disk.acked
        ]
        sender = Sender("f", self.site, "ck", self.disk.epoch)
        sender.restored(self.disk.shipped[-1][1] if self.disk.shipped else 0, left)
        return sender

    def turn(self) -> None:
        now = self.story.now
        self.desk.look(now)
        self.carrier.expired(now)
        self.do(self.receiver.expired(now))
        self.take(now)
        for sender in self.senders:
            if self.cuts < CUTS and self.story.random.random() < 0.2:
                self.cuts += 1
                sender.committed(self.cuts)
            sender.departs(now // TICK)
        while orders := self.carrier.dispatch(self.senders, now):
            for order in orders:
                self.ship(order)
        self.take(now)
        self.desk.look(now)

    def ship(self, order: Fix) -> None:
        if order.upto > order.after:
            self.disk.shipped.append((order.after, order.upto))
            self.story.step(self.site)
        self.senders[0].fixed(order.parcel(b"x" if order.upto > order.after else b""))

    def take(self, now: int) -> None:
        while self.carrier.arrivals or self.carrier.news or self.carrier.reopened:
            arrivals, self.carrier.arrivals = self.carrier.arrivals, []
            for parcel, via in arrivals:
                self.do(self.receiver.received(parcel, via, now))
            news, self.carrier.news = self.carrier.news, []
            for message in news:
                told = (message.standing,) if isinstance(message, Ack) else message.standings
                for standing in told:
                    if standing.site == self.site:
                        self.senders[0].stands(standing)
                        self.disk.acked = max(self.disk.acked, self.senders[0].acked)
                if not isinstance(message, Ack):
                    self.senders[0].refused(message, now)
            reopened, self.carrier.reopened = self.carrier.reopened, []
            for peer, forgot in reopened:
                for sender in self.senders:
                    sender.reopened(peer, forgot)

    def do(self, actions) -> None:
        for action in actions:
            if isinstance(action, Store):
                self.disk.inbox.append(action.parcel)
                self.story.step(self.site)
                self.do(self.receiver.stored(action))
            else:
                self.carrier.answer(action.peer, action.message)

    def done(self) -> bool:
        """Tell whether all that left has arrived, and nothing passes here; see `transom.sites.shipping`."""
        there = "home" in self.carrier.open
        arrived = all(sender.acked == CUTS and not sender.unacked for sender in self.senders)
        return arrived and not (there and self.carrier.relay.nbytes)


class Story:
    """All sites, in virtual time, in an order that is drawn."""

    def __init__(self, seed: int) -> None:
        self.random, self.now, self.hall = random.Random(seed), 10**9, Hall()
        self.disks = {site: Disk() for site in SITES}
        self.kills = self.random.randrange(1, 9)
        """How often the destination is killed yet."""
        self.runs = {site: Run(self, site) for site in SITES}
        self.back: int | None = None

    def step(self, site: str) -> None:
        if site == "home" and self.kills and self.random.random() < 0.3:
            self.kills -= 1
            raise Killed

    def go(self, until: int) -> bool:
        """Go on for so long; tell whether all was done."""
        end = self.now + until
        while self.now < end:
            self.now += self.random.choice([1, 5, 20, 300]) * MS
            if self.back is not None and self.now >= self.back:
                self.runs["home"], self.back = Run(self, "home"), None
            site = self.random.choice(SITES)
            if site in self.runs:
                try:
                    self.runs[site].turn()
                except Killed:
                    self.runs.pop(site).desk.end()
                    self.back = self.now + self.random.choice([10, 500, 3_000]) * MS
            if len(self.runs) == len(SITES) and all(run.done() for run in self.runs.values()):
                return True
        return False


def told(seeds: range) -> None:
    for seed in seeds:
        story = Story(seed)
        assert story.go(600_000 * MS), f"seed {seed}: somebody waits for ever"
        for site in FLOWS["f"].sources:
            parts = [part for parcel in story.disks["home"].inbox for part in parcel.parts if part.site == site]
            rows = [cut for part in parts for cut in range(part.after + 1, part.upto + 1)]
            assert rows == [*range(1, CUTS + 1)], seed


def test_all_arrives_once_and_nobody_waits_for_ever() -> None:
    told(range(400))


@pytest.mark.slow
def test_all_arrives_once_and_nobody_waits_for_ever_at_length() -> None:
    told(range(400, 2_000))
