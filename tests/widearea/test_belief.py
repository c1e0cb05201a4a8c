"""What a destination believes of a site that somebody else speaks for, and of times that have not come."""

from __future__ import annotations

import zlib
from dataclasses import replace

import pytest
from tests.widearea.made import S, part, standing

from transom.model.time import LAST_EVENT, MAX_TIME
from transom.model.watermark import WatermarkPolicy
from transom.widearea.belief import APART, CUTS, Belief, arrived_by, too_new
from transom.widearea.carriers import Carrier
from transom.widearea.links import Frame
from transom.widearea.messages import Opening
from transom.widearea.parcels import Parcel, Part, PartitionProgress, Reason, Refusal
from transom.widearea.routes import Ends, Routes

ROUTES = Routes("home", S, {"f": Ends(("a", "b"), "home")})
DAY = 86_400 * S


def parcel(*parts: Part) -> Parcel:
    return Parcel("f", 1, parts, b"x")


def believing(upto: int = 5, epoch: int = 2) -> Belief:
    found = Belief("home", ROUTES)
    found.connected("a", [standing("a", upto, epoch), standing("b", 1), replace(standing("a", 9), flow="other")], 0)
    return found


@pytest.mark.parametrize(
    ("upto", "epoch", "now", "words"),
    [
        (5, 2, 0, ""),
        (5, 1, 0, ""),
        (5 + CUTS, 2, 0, ""),
        (6 + CUTS, 2, 0, "brings cuts of a up to 1006, which had 5 just now"),
        (6 + CUTS, 2, S, ""),
        (1 << 47, 2, 3_600 * S, "brings cuts of a"),
        (6, 3, 3_600 * S, "what run 3 of a sent, of which run 2 is here"),
    ],
)
def test_while_a_site_is_heard_others_cannot_know_more_of_it(upto: int, epoch: int, now: int, words: str) -> None:
    doubt = believing().doubt(parcel(part("a", 5, upto, epoch=epoch)), "relay", now)
    assert words in doubt
    assert bool(doubt) == bool(words)


def test_what_it_brings_itself_is_believed_and_known_from_then_on() -> None:
    belief, far = believing(), 10 * CUTS
    assert belief.doubt(parcel(part("a", 5, far)), "relay", 0)
    assert not belief.doubt(parcel(part("a", 5, far, epoch=2)), "a", 0)
    assert not belief.doubt(parcel(part("a", 5, 6, epoch=1)), "a", 0)  # an older one takes nothing back
    assert not belief.doubt(parcel(part("a", far, far + 1, epoch=2)), "relay", 0)
    assert belief.doubt(parcel(part("a", far, 3 * far), part("b", 0, 1)), "relay", 0)
    assert not belief.doubt(parcel(part("b", 0, far)), "relay", 0)  # of b nothing is known


def test_of_a_site_that_is_not_heard_others_may_know_more() -> None:
    belief, sent = believing(), parcel(part("a", 5, 6, epoch=3))
    belief.heard("a", False)
    assert not belief.doubt(sent, "relay", 0)
    belief.heard("a", True)
    assert belief.doubt(sent, "relay", 0)
    belief.left("a")
    assert not belief.doubt(sent, "relay", 0)
    assert believing().doubt(sent, "relay", 0)


def came(carrier: Carrier, peer: str, sent: Parcel, number: int = 1) -> None:
    data = sent.to_bytes()
    carrier.came(peer, Frame(number, 0, len(data), zlib.crc32(data), data), 0)


def test_a_neighbour_does_not_end_the_flow_of_a_site_that_is_there() -> None:
    there = Carrier("a", "1", Routes("a", S, ROUTES.flows), lambda flow, bodies: b"", {"home": 1e6})
    there.leaving = lambda: [standing("a", 5, epoch=2), replace(standing("a", 5), flow="other")]
    opening = there.opening("home")
    assert opening.standings == (standing("a", 5, epoch=2),)
    home = Carrier("home", "1", ROUTES, lambda flow, bodies: b"", {"a": 1e6, "b": 1e6})
    home.accept("a", opening)
    home.accept("b", Opening("2"))
    came(home, "b", parcel(part("a", 5, 5, epoch=1 << 40)))
    assert home.arrivals == []
    ((flow, via, detail),) = home.doubts
    assert (flow, via) == ("f", "b")
    (refusal,) = [message for _, message in home.answers() if isinstance(message, Refusal)]
    assert (refusal.reason, refusal.detail) == (Reason.AHEAD, detail)  # it may be sent again, by itself or another way
    mine = parcel(part("a", 5, 6, epoch=2))
    came(home, "a", mine)
    assert home.arrivals == [(mine, "a")]


@pytest.mark.parametrize(
    ("ahead", "policy", "is_too_new"),
    [
        (DAY, WatermarkPolicy(0, max_ahead=DAY), False),
        (DAY + APART, WatermarkPolicy(0, max_ahead=DAY), False),
        (DAY + DAY // 8, WatermarkPolicy(0, max_ahead=DAY), True),
        (APART + 10 * S, WatermarkPolicy(0, max_ahead=10 * S), False),
        (APART + 12 * S, WatermarkPolicy(0, max_ahead=10 * S), True),
        (100 * 365 * DAY, WatermarkPolicy(0), False),
        (LAST_EVENT, WatermarkPolicy(0), True),
    ],
)
def test_rows_of_a_time_that_has_not_come_are_not_believed(ahead: int, policy: WatermarkPolicy, is_too_new) -> None:
    """The bound is that of rows at their site, with a clock that is a minute ahead."""
    now = 1_764_450_000_000_000
    times = (PartitionProgress(now, None), PartitionProgress(None, None), PartitionProgress(now + ahead, 5))
    assert bool(too_new(replace(part("a", 0, 1), partitions=times), policy, now)) == is_too_new
    assert policy.ahead_limit(now + APART) is None or now + ahead <= policy.ahead_limit(now + APART) or is_too_new


def test_of_progress_without_rows_there_is_no_time() -> None:
    assert too_new(part("a", 0, 0), WatermarkPolicy(0, max_ahead=1), 0) == ""


def test_rows_have_arrived_by_now() -> None:
    sent = parcel(replace(part("a", 0, 1), arrived=MAX_TIME), replace(part("b", 0, 1), arrived=5), part("c", 0, 0))
    assert [each.arrived for each in arrived_by(sent, 100).parts] == [100, 5, None]
    assert arrived_by(parcel(part("a", 0, 1)), 0) == parcel(part("a", 0, 1))


def test_while_a_site_is_heard_nobody_brings_what_another_checkpoint_of_it_had() -> None:
    """Who accepts a loss would begin anew with that, and refuse the site."""
    belief = believing()
    before, now = (parcel(replace(part("a", 5, 6, epoch=1), incarnation=each)) for each in ("before", "now"))
    assert "with another checkpoint than it has" in belief.doubt(before, "relay", 0)
    assert not belief.doubt(now, "a", 0)
    assert not belief.doubt(now, "relay", 0)
    belief.left("a")
    assert not belief.doubt(before, "relay", 0)
