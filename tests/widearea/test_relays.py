"""What a relay merges, passes on and forgets."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.widearea.made import S, parcel, part, standing

from transom.errors import SiteError
from transom.widearea.parcels import Ack, Reason, Refusal, Tell
from transom.widearea.relays import Expected, Forward, Relay


def joined(_flow: str, bodies) -> bytes:
    return b",".join(bodies)


ALL = Expected(frozenset("abc"), 2 * S, 10 * S)


def test_a_relay_merges_what_it_waits_for() -> None:
    relay = Relay(joined)
    assert relay.received(parcel(part("b", 0, 1)), "b", ALL, 0) == []
    assert relay.received(parcel(part("b", 0, 1)), "b", ALL, 0) == []
    assert relay.received(parcel(part("a", 0, 1)), "a", ALL, 0) == []
    (forward,) = relay.received(parcel(part("c", 0, 1)), "c", ALL, 0)
    assert [each.site for each in forward.parcel.parts] == ["a", "b", "c"]
    assert forward.parcel.body == b"a1,b1,c1"


@pytest.mark.parametrize("gather", [0, 7 * S])
@pytest.mark.parametrize(("slack", "wait"), [(10 * S, S), (S // 4, S // 4), (0, 0), (-S, 0)])
def test_a_relay_waits_as_planned_and_half_an_interval_while_slack_lasts(slack: int, wait: int, gather: int) -> None:
    """What links bring one after another may take longer than an interval, and has room on the next one merged only."""
    relay, wait = Relay(joined), wait + gather
    expected = replace(ALL, slack=slack, gather=gather)
    assert relay.received(parcel(part("a", 0, 1)), "a", expected, 5) == []
    assert relay.expired(4 + wait) == []
    assert relay.expired(5 + wait) == [Forward(parcel(part("a", 0, 1)))]


def test_for_a_parcel_that_comes_too_late_nobody_is_waited_again() -> None:
    relay = Relay(joined)
    relay.received(parcel(part("a", 0, 1)), "a", ALL, 0)
    assert relay.expired(ALL.wait) == [Forward(parcel(part("a", 0, 1)))]
    assert relay.received(parcel(part("b", 0, 1)), "b", ALL, 2 * S) == [Forward(parcel(part("b", 0, 1)))]
    later = replace(parcel(part("b", 1, 2)), tick=parcel(part("b", 1, 2)).tick + 1)
    assert relay.received(later, "b", ALL, 2 * S) == []
    assert relay.expired(2 * S + ALL.wait - 1) == []
    assert relay.expired(2 * S + ALL.wait) == [Forward(later)]


def test_a_relay_passes_on_at_once_what_it_is_not_to_merge() -> None:
    relay = Relay(joined)
    for expected in (None, Expected(frozenset("bc"), S, S), Expected(frozenset("a"), S, S)):
        assert relay.received(parcel(part("a", 0, 1)), "a", expected, 0) == [Forward(parcel(part("a", 0, 1)))]
    merged = parcel(part("a", 0, 1), part("b", 0, 1))
    assert relay.received(merged, "c", ALL, 0) == [Forward(merged)]


def test_a_relay_sends_apart_what_the_destination_does_not_have() -> None:
    relay = Relay(joined)
    sent = [parcel(part(site, 0, 2)) for site in "abc"]
    for each in sent:
        done = relay.received(each, each.part.site, ALL, 0)
    refusal = Refusal.of(done[0].parcel, Reason.OVERLAP, (standing("a", 2),))
    assert relay.refused(refusal) == [
        Tell("a", Ack(standing("a", 2))),
        Forward(sent[1]),
        Forward(sent[2]),
    ]
    assert relay.acked(Ack(standing("b", 2), 5), 7) == [Tell("b", Ack(standing("b", 2), 12))]
    assert relay.received(sent[1], "b", ALL, 0) == [Tell("b", Ack(standing("b", 2)))]
    relay.acked(Ack(standing("c", 2)))
    assert relay.nbytes == 0


def test_a_refusal_of_a_single_parcel_goes_back_to_its_site() -> None:
    relay = Relay(joined)
    relay.received(parcel(part("a", 0, 1)), "neighbour", None, 0)
    refusal = Refusal.of(parcel(part("a", 0, 1)), Reason.LOST)
    assert relay.refused(refusal) == [Tell("neighbour", refusal)]
    assert relay.nbytes == 0


def test_of_a_merged_parcel_each_site_is_told_of_its_part_alone() -> None:
    """Two relays that have passed on each other's parcels would else tell each other the same for ever."""
    relay = Relay(joined)
    for site in "abc":
        done = relay.received(parcel(part(site, 0, 2)), site, ALL, 0)
    refusal = Refusal.of(done[0].parcel, Reason.FULL, (standing("a", 1),))
    found = relay.refused(refusal)
    assert found[0] == Tell("a", Ack(standing("a", 1)))
    told = [(each.peer, [site for site, _ in each.message.places], each.message.standings) for each in found[1:]]
    assert told == [("a", ["a"], (standing("a", 1),)), ("b", ["b"], ()), ("c", ["c"], ())]
    assert relay.nbytes == 0


def test_a_relay_without_room_forgets_and_passes_on() -> None:
    relay = Relay(joined, most_bytes=700)
    for cut in range(10):
        sent = parcel(part("a", cut, cut + 1))
        assert relay.received(sent, "a", None, 0) == [Forward(sent)]
        assert relay.nbytes <= 700
    large = replace(parcel(part("b", 0, 1)), body=b"x" * 1000)
    assert relay.received(large, "b", ALL, 0) == [Forward(large)]


def test_partials_that_cannot_be_merged_go_apart() -> None:
    def no(_flow, _bodies):
        raise SiteError("They have other columns.")

    relay = Relay(no)
    relay.received(parcel(part("a", 0, 1)), "a", Expected(frozenset("ab"), S, S), 0)
    found = relay.received(parcel(part("b", 0, 1)), "b", Expected(frozenset("ab"), S, S), 0)
    assert [action.parcel for action in found] == [parcel(part("a", 0, 1)), parcel(part("b", 0, 1))]


def test_what_was_said_on_a_connection_that_is_gone_is_not_waited_for() -> None:
    relay = Relay(joined)
    for cut in range(3):
        relay.received(parcel(part("a", cut, cut + 1)), "a", None, 0)
    relay.received(replace(parcel(part("a", 0, 1)), flow="g"), "a", None, 0)
    assert relay.flows == {"f", "g"}
    relay.unanswered("f", [parcel(part("a", 1, 2), part("b", 0, 1))])
    assert [key for key in relay._passed if key[0] == "f"] == [("f", "a", 2)]
    relay.lost(parcel(part("a", 1, 2)))
    relay.unanswered("g")
    assert (relay.flows, relay.nbytes) == (set(), 0)
    relay.received(parcel(part("b", 0, 1)), "b", ALL, 0)
    relay.unanswered("f")  # it has not gone yet
    assert relay.flows == {"f"}
