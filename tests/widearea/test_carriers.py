"""What a site makes of what comes up and down its links."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from transom.widearea import carriers
from transom.widearea.carriers import Carrier
from transom.widearea.links import Receipt
from transom.widearea.messages import Opened
from transom.widearea.parcels import Ack, Parcel, Part, Place, Reason, Refusal, Standing
from transom.widearea.plans import Plan, Route
from transom.widearea.routes import Ends, Routes
from transom.widearea.senders import Sender
from transom.widearea.trees import Tree

S = 1_000_000
ENDS = Ends(("a", "b"), "home", 5 * S)


def carrier(site: str = "a", **rates: float) -> Carrier:
    made = Carrier(site, "boot", Routes(site, S, {"f": ENDS, "g": ENDS}), lambda flow, bodies: b"".join(bodies), rates)
    for peer in rates:
        made.opened(peer, Opened("other"), 0)
    return made


def parcel(flow: str = "f", site: str = "a", size: int = 0, upto: int = 1) -> Parcel:
    return Parcel(flow, 1, (Part(site, "ck", 1, 0, upto, 1),), b"x" * size)


def ack(flow: str, site: str = "a", cost: int = 0, upto: int = 0) -> Ack:
    return Ack(Standing(flow, site, "ck", Place(upto, 1, 0)), cost, 77)


def test_of_two_flows_the_one_with_more_left_to_do_goes_first():
    """Klink, section 4: costs go up to those who send."""
    here = carrier(home=10_000.0)
    here.heard("home", ack("g", cost=3 * S), 0)
    here.heard("home", ack("f", cost=1 * S), 0)
    here._queue(parcel("f", size=3_000), "home", 0)
    here._queue(parcel("g", size=3_000), "home", 0)
    (first, _) = here.frames("home", 0)[:2]
    assert first.number == 2


def test_each_hop_adds_its_wait_to_what_remains():
    here = carrier(home=1_000.0, b=1_000.0)
    here._do(here.relay.received(parcel("f", "b"), "b", None, 0), 0)
    here._queue(parcel("g", size=10_000), "home", 0)
    queued = here.link("home").queued
    here.heard("home", ack("f", "b", cost=2 * S), 0)
    ((peer, told),) = here.answers()
    assert (peer, told.deadline) == ("b", 77)
    assert told.cost == 2 * S + round(queued / 1_000.0 * S)


def test_what_the_destination_has_got_another_way_is_not_sent():
    here = carrier(home=1_000.0)
    here._queue(parcel(size=50_000), "home", 0)
    here._queue(parcel("g"), "home", 0)
    here.frames("home", 0)
    here.heard("home", ack("g", upto=1), 0)
    assert len(here._neighbours["home"].parcels) == 1
    here.heard("home", ack("f", upto=1), 0)  # on its way already: it goes on
    assert len(here._neighbours["home"].parcels) == 1


def test_a_neighbour_that_does_not_answer_is_connected_to_anew():
    here = carrier(home=1_000.0)
    assert here.silent(100 * S) == []
    here._queue(parcel(size=10_000), "home", 100 * S)
    (frame, *_) = here.frames("home", 100 * S)
    here.heard("home", Receipt(1, len(frame.payload)), 110 * S)
    assert here.silent(125 * S) == []
    assert here.silent(126 * S) == ["home"]
    here.closed("home")
    assert here.silent(126 * S) == []
    assert here.frames("home", 126 * S) == []


def test_parcels_of_flows_that_are_not_known_or_not_of_the_site_are_refused():
    here = carrier("home", a=1e6)
    there = carrier("a", home=1e6)
    there.routes.flows["z"] = ENDS
    for sent in (parcel("z"), parcel("f", "x"), parcel("g"), parcel("f")):
        there._queue(sent, "home", 0)
    here.accept("a", there.opening("home"), refused={"g": "It differs."})
    for frame in there.frames("home", 0):
        here.came("a", frame, 0)
    told = [message for _, message in here.answers() if isinstance(message, Refusal)]
    assert [(each.flow, each.reason) for each in told] == [("z", Reason.FLOW), ("f", Reason.FLOW), ("g", Reason.FLOW)]
    assert [each.detail for each in told][1:] == ["x has no part in the flow 'f'.", "It differs."]
    assert [came.flow for came, _ in here.arrivals] == ["f"]


def test_what_measures_a_link_is_no_parcel():
    here, home = carrier(home=10_000.0), carrier("home")
    home.accept("a", here.opening("home"))
    for now in (0, 100 * S):
        here.probe(now)
    size = 0
    while frames := here.frames("home", 100 * S):
        size += sum(len(frame.payload) for frame in frames)
        for frame in frames:
            home.came("a", frame, 100 * S)
        for _, receipt in home.answers():
            here.heard("home", receipt, 100 * S)
    assert size == 6_000
    assert home.arrivals == []


def test_what_became_of_a_parcel_is_believed_of_those_who_can_know():
    """To believe another source would be to forget rows that nobody has."""
    here = carrier(home=1e6, relay=1e6, b=1e6)
    refusal = Refusal.of(parcel("f"), Reason.LOST, (ack("f", upto=9).standing,))
    for message in (ack("f", upto=9), refusal):
        here.heard("b", message, 0)
        here.heard("relay", message, 0)
    for peer in ("b", "relay"):
        here.opened(peer, Opened("other", standings=(ack("f", upto=9).standing,)), 0)
    assert here.news == []
    here._queue(parcel("f"), "relay", 0)
    here.heard("relay", ack("f", upto=1), 0)
    here.heard("relay", ack("g", upto=9), 0)
    here.heard("relay", Refusal.of(parcel("f"), Reason.FULL, (ack("g", upto=9).standing,)), 0)
    assert [each.standing for each in here.news] == [ack("f", upto=1).standing]
    here.opened("home", Opened("other", standings=(ack("g", upto=2).standing,)), 0)
    here.heard("home", refusal, 0)
    assert [type(each) for each in here.news] == [Ack, Ack, Refusal]


def sender(flow: str, tick: int = 1) -> Sender:
    made = Sender(flow, "a", "ck", 1)
    made.committed(1)
    made.departs(tick)
    return made


def sent(here: Carrier, senders: list[Sender], sizes: dict[str, int], peer: str = "home") -> list[str]:
    """Let what is due leave, with bodies of some sizes; return the flows whose parcels are through, in order."""
    while orders := here.dispatch(senders, 0):
        for order in orders:
            next(each for each in senders if each.flow == order.flow).fixed(order.parcel(b"x" * sizes[order.flow]))
    found, left = [], {number: each.flow for number, each in here._neighbours[peer].parcels.items()}
    while frames := here.frames(peer, 0):
        for frame in frames:
            here.heard(peer, Receipt(frame.number, frame.offset + len(frame.payload)), 0)
            if frame.offset + len(frame.payload) == frame.total:
                found.append(left[frame.number])
    return found


def planned(here: Carrier, intervals: dict[str, int]) -> None:
    """Let flows leave so often, straight."""
    tree = Tree("home", (("a", "home"), ("b", "home")))
    routes = tuple(Route(flow, tree, ticks, 0, 0.0) for flow, ticks in intervals.items())
    assert here.routes.adopt(Plan(1, 0, "latency", 0.0, 0.0, routes, ()))


SIZES = {"f": 3_000, "g": 3_000, "h": 3_000}


def of_three(limits: dict[str, int], **rates: float) -> Carrier:
    ends = {flow: replace(ENDS, limit=limit) for flow, limit in limits.items()}
    here = Carrier("a", "boot", Routes("a", S, ends), lambda flow, bodies: b"".join(bodies), rates)
    for peer in rates:
        here.opened(peer, Opened("other"), 0)
    return here


@pytest.mark.parametrize("order", [*permutations("fgh")])
def test_of_one_tick_the_least_slack_goes_first_then_what_leaves_often_then_what_is_small(order: tuple[str]) -> None:
    """Whatever queries come first in the job; a limit that nobody states is not the tightest one."""

    def gone(limits: dict[str, int], sizes: dict[str, int], **intervals: int) -> list[str]:
        here = of_three(limits, home=10_000.0)
        planned(here, intervals)
        here.parcel_bytes.update(sizes)
        return sent(here, [sender(flow, 12) for flow in order], sizes)

    alike = dict.fromkeys("fgh", 5 * S)
    assert gone({"f": 0, "g": 5 * S, "h": 60 * S}, SIZES, f=1, g=1, h=1) == ["g", "f", "h"]
    assert gone(alike, SIZES, f=12, g=6, h=1) == ["h", "g", "f"]
    assert gone(alike, {"f": 5_000, "g": 9_000, "h": 1_000}, f=2, g=2, h=2) == ["h", "f", "g"]


def test_what_is_due_sooner_does_not_wait_for_what_waits() -> None:
    """Of what would come behind what waits, more is gathered meanwhile."""
    here = of_three({"f": 60 * S, "g": 60 * S, "h": 2 * S}, home=10_000.0)
    late, urgent = [sender("f"), sender("g")], sender("h")
    for each, order in zip(late, here.dispatch(late, 0), strict=True):
        each.fixed(order.parcel(b"x" * 50_000))
    here.dispatch(late, 0)
    first = here.frames("home", 0)
    late[0].committed(2)
    late[0].departs(2)
    (order,) = here.dispatch([*late, urgent], S)
    assert order.flow == "h"
    urgent.fixed(order.parcel(b"x" * 1_000))
    here.dispatch([urgent], S)
    for frame in first:
        here.heard("home", Receipt(frame.number, frame.offset + len(frame.payload)), S)
    assert [frame.number for frame in here.frames("home", S)][:2] == [3, 1]


def test_parcels_of_one_flow_do_not_overtake_each_other() -> None:
    here = carrier(home=10_000.0)
    here._queue(parcel("f", size=3_000), "home", 0)
    here.heard("home", ack("f", cost=4 * S), 0)
    here._queue(parcel("f", size=3_000, upto=2), "home", S)
    assert [frame.number for frame in here.frames("home", S)] == [1, 2]


def test_what_others_wait_for_at_a_relay_leaves_though_its_link_is_full() -> None:
    """Else it would go alone, and theirs, too, when they have waited long enough."""
    here = carrier(home=1_000.0, b=1_000.0)
    tree = Tree("home", (("a", "home"), ("b", "a")))
    here.routes.adopt(Plan(1, 0, "latency", 0.0, 0.0, (Route("f", tree, 1, 0, 2.0, 1.0),), ()))
    for flow in "gg":
        here._queue(parcel(flow, size=9_000), "home", 0)
    mine = sender("f")
    assert here.dispatch([mine], 0) == []
    here._do(here.relay.received(parcel("f", "b", size=10), "b", here.routes.expected("f", 1), 0), 0)
    (order,) = here.dispatch([mine], 0)
    mine.fixed(order.parcel(b"mine"))
    here.dispatch([mine], 0)
    (*_, last) = here._neighbours["home"].parcels.values()
    assert [part.site for part in last.parts] == ["a", "b"]


def test_what_a_relay_passed_on_is_forgotten_where_nobody_will_say_what_became_of_it(monkeypatch) -> None:
    """Its site would wait for that for ever, when it is to end."""
    here = carrier(home=10_000.0, b=10_000.0)
    for cut in (1, 2):
        here._do(here.relay.received(parcel("f", "b", size=10, upto=cut), "b", None, 0), 0)
    (first, _) = here.frames("home", 0)
    here.heard("home", Receipt(first.number, len(first.payload)), 0)
    here.closed("home")
    here.opened("home", Opened("another run"), 0)
    assert [key[2] for key in here.relay._passed] == [2]  # the other one goes there now
    here.heard("home", ack("f", "b", upto=2), 0)
    assert here.relay.flows == set()
    monkeypatch.setattr(carriers, "QUEUE_BYTES", -1)
    here._do(here.relay.received(parcel("f", "b", upto=3), "b", None, 0), 0)  # no room
    assert here.relay.flows == set()
