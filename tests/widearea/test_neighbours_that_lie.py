"""Whatever a neighbour with a certificate says: an error of ours that closes its connection, or it does no harm here.

Messages are well-formed, and their numbers are any: what is not well-formed is no message (`test_messages`).
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import pytest
from tests.widearea.made import S

from transom.errors import SiteError
from transom.widearea.carriers import Carrier
from transom.widearea.links import Frame, Receipt
from transom.widearea.messages import Opened, Opening, Unreadable, to_bytes
from transom.widearea.parcels import Ack, Parcel, Part, PartitionProgress, Place, Reason, Refusal, RowCounts, Standing
from transom.widearea.plans import Plan, Route
from transom.widearea.receivers import Action, Receiver, Store
from transom.widearea.routes import Ends, Routes
from transom.widearea.senders import Sender
from transom.widearea.trees import Tree

SITES, FLOWS = ("a", "b", "home", "relay", "other"), ("f", "g")
NUMBERS = (0, 0, 1, 1, 2, 2, 3, 3, 4, 5, 7, 100, 2**62, 2**63 - 1)
TREE = Tree("home", (("a", "relay"), ("b", "relay")))
STEPS = 60


class Liar:
    """Says anything."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def number(self) -> int:
        return self.chance.choice(NUMBERS)

    def place(self) -> Place:
        return Place(self.number(), self.number(), self.number())

    def standing(self) -> Standing:
        return Standing(self.chance.choice(FLOWS), self.chance.choice(SITES), self.chance.choice("ij"), self.place())

    def part(self, site: str) -> Part:
        chance = self.chance
        since = chance.choice([0, 0, 0, self.number()])
        after = max(since, self.number())
        return Part(
            site,
            chance.choice("ij"),
            self.number(),
            after,
            min(2**63 - 1, after + chance.choice([0, 0, 1, 2, self.number()])),
            max(1, self.number()),
            since,
            self.number(),
            tuple(PartitionProgress(chance.choice([None, 5]), None) for _ in range(chance.randrange(3))),
            counts=RowCounts(chance.choice([0, 5])),
            ended=chance.random() < 0.3,
            anew=chance.random() < 0.2,
        )

    def parcel(self) -> Parcel:
        sites = sorted(self.chance.sample(SITES, self.chance.choice([1, 1, 1, 2, 3])))
        parts = tuple(map(self.part, sites))
        return Parcel(self.chance.choice(FLOWS), self.number(), parts, self.chance.choice([b"", b"x", b"yy"]))

    def frame(self) -> Frame:
        data = self.parcel().to_bytes()
        return Frame(self.number(), 0, len(data), zlib.crc32(data), data)

    def refusal(self) -> Refusal:
        places = tuple((self.chance.choice(SITES), self.place()) for _ in range(self.chance.randrange(4)))
        standings = tuple(self.standing() for _ in range(self.chance.randrange(3)))
        reason = self.chance.choice(list(Reason))
        return Refusal(self.chance.choice(FLOWS), self.number(), places, reason, standings)

    def answer(self) -> Receipt | Ack | Refusal | Unreadable:
        kinds: list[Callable[[], Receipt | Ack | Refusal | Unreadable]] = [
            lambda: Receipt(self.number(), self.number(), self.number(), self.number()),
            lambda: Ack(self.standing(), self.number(), self.chance.choice([None, self.number()])),
            self.refusal,
            lambda: Unreadable(self.number()),
        ]
        return self.chance.choice(kinds)()


def _joined(flow: str, bodies: Sequence[bytes]) -> bytes:
    return b"".join(bodies)


class Site:
    """A source, relay or destination among liars, as its loop drives it."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.liar, self.name, self.now = Liar(chance), chance.choice(["a", "relay", "home"]), 0
        routes = Routes(self.name, 20_000, {"f": Ends(("a", "b"), "home", 3 * S), "g": Ends(("a",), "home", 0)})
        if chance.random() < 0.7:
            routes.adopt(Plan(1, 0, "latency", 1.0, 1.0, (Route("f", TREE, chance.choice([1, 5]), 0, 0.1),), ()))
        rates = {site: chance.choice([0.0, 1e6]) for site in SITES[:4]}
        self.most = chance.choice([10, 1_000, 1_000_000])
        self.carrier = Carrier(self.name, "boot", routes, _joined, rates, relay_bytes=self.most)
        self.held = chance.choice([0, 400, 1_000_000])
        accepts = chance.random() < 0.5
        known = [self.liar.standing() for _ in range(3)]
        self.receivers = {
            flow: Receiver(flow, [each for each in known if each.flow == flow], self.held, accepts_loss=accepts)
            for flow in FLOWS
        }
        self.senders = {flow: Sender(flow, self.name, "i", 1) for flow in FLOWS}

    def step(self) -> None:
        """Let a neighbour say something, or time pass; and do what follows."""
        self.now += self.chance.choice([0, 1_000, S, 100 * S])
        peer = self.chance.choice([site for site in SITES if site != self.name])
        carrier, liar, now = self.carrier, self.liar, self.now
        with suppress(SiteError):
            match self.chance.randrange(8):
                case 0:
                    carrier.closed(peer)
                    carrier.opening(peer)
                    answer = Opened(self.chance.choice("pq"), {liar.number(): liar.number()}, (liar.standing(),))
                    carrier.opened(peer, answer, now)
                case 1:
                    carrier.accept(peer, Opening(self.chance.choice("pq"), (liar.number(), liar.number())))
                case 2 | 3 | 4:
                    carrier._of(peer)
                    carrier.came(peer, liar.frame(), now)
                case 5 if peer in carrier.open:
                    carrier.heard(peer, liar.answer(), now)
                case 6:
                    for sender in self.senders.values() if self.name == "a" else ():
                        sender.committed(sender.gathered + 1)
                        sender.departs(self.chance.randrange(50))
                case 7 if self.chance.random() < 0.1:
                    carrier.forget(self.chance.choice(FLOWS))
        self._look()
        assert 0 <= carrier.relay.nbytes <= self.most
        assert len(carrier.relay._standings) <= 4  # two flows with three sources, and what is said of itself
        assert len(carrier.relay._via) <= 4
        assert all(receiver.held <= self.held for receiver in self.receivers.values())

    def _look(self) -> None:
        carrier, now = self.carrier, self.now
        carrier.expired(now)
        carrier.probe(now)
        carrier.silent(now)
        for fix in carrier.dispatch(self.senders.values(), now) if self.name == "a" else ():
            self.senders[fix.flow].fixed(fix.parcel(b"x"))
        arrivals, carrier.arrivals = carrier.arrivals, []
        for parcel, via in arrivals:
            self._do(parcel.flow, self.receivers[parcel.flow].received(parcel, via, now))
        for flow, receiver in self.receivers.items():
            self._do(flow, receiver.expired(now))
        news, carrier.news = carrier.news, []
        for each in news:
            for standing in each.standings if isinstance(each, Refusal) else (each.standing,):
                self.senders[standing.flow].stands(standing)
            if isinstance(each, Refusal):
                self.senders[each.flow].refused(each, now)
        reopened, carrier.reopened = carrier.reopened, []
        for peer, forgot in reopened:
            for sender in self.senders.values():
                sender.reopened(peer, forgot)
        for peer in carrier.open:
            carrier.frames(peer, now)
        for _, answer in carrier.answers():
            to_bytes(answer)

    def _do(self, flow: str, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Store):
                self._do(flow, self.receivers[flow].stored(action))
            else:
                self.carrier.answer(action.peer, action.message)


def lived(seeds: range) -> None:
    for seed in seeds:
        site = Site(seed)
        for _ in range(STEPS):
            site.step()


def test_no_lie_ends_a_site() -> None:
    lived(range(100))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(4))
def test_no_lie_ends_a_site_at_length(block: int) -> None:
    lived(range(100 + 1_500 * block, 100 + 1_500 * (block + 1)))


def test_what_is_old_of_a_site_of_which_nothing_is_known_is_not_acked() -> None:
    """It says that it had an ack of what is yet to come, and the destination begins anew with it."""
    receiver = Receiver("f", [Standing("f", "b", "i", Place(1, 1, 1))], accepts_loss=True)
    receiver.accept_loss("a")
    old = Part("a", "i", 1, 1, 1, 1, acked=5)
    (store,) = receiver.received(Parcel("f", 1, (old, Part("b", "i", 1, 1, 2, 2)), b""), "relay", 0)
    assert isinstance(store, Store)
    assert [action.message.standing.site for action in receiver.stored(store)] == ["b"]


def test_acks_of_sites_that_are_no_sources_are_not_remembered() -> None:
    """Nor is the way back of what nobody sent."""
    routes = Routes("relay", 20_000, {"f": Ends(("a", "b"), "home", 3 * S)})
    carrier = Carrier("relay", "boot", routes, _joined, {"home": 1e6, "a": 1e6})
    carrier.opened("home", Opened("x", {}, (Standing("f", "nobody", "i", Place(1, 1, 1)),)), 0)
    for number in range(100):
        place = Place(number, 1, 1)
        carrier.heard("home", Ack(Standing("f", f"nobody {number}", "i", place)), 0)
        carrier.heard("home", Ack(Standing("f", "a", "i", place)), 0)
        known = (Standing("f", f"nobody {number}", "i", place),)
        carrier.heard("home", Refusal("f", 1, (("a", place),), Reason.FULL, known), 0)
    assert list(carrier.relay._standings) == [("f", "a")]


def test_what_a_parcel_says_counts_as_its_bytes() -> None:
    few = Part("a", "i", 1, 0, 1, 1)
    many = replace(few, partitions=(PartitionProgress(5, None),) * 1_000, failed={"query": "why" * 1_000})
    assert Parcel("f", 1, (many,)).nbytes > Parcel("f", 1, (few,)).nbytes + 100_000
