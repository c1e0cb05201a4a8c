"""Which parcels a destination takes, in which order, and what it tells of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.widearea.made import S, parcel, part, standing

from transom.widearea.parcels import Parcel, Part, PartitionProgress, Reason, Refusal, Standing, Tell
from transom.widearea.receivers import Receiver, Store


class Inbox:
    """Stores at once."""

    def __init__(self, *standings: Standing, **options: Any) -> None:
        self.receiver, self.stored = Receiver("f", standings, **options), []

    def __call__(self, sent: Parcel, now: int = 0) -> list:
        return self.do(self.receiver.received(sent, "via", now))

    def do(self, actions) -> list:
        told = []
        for action in actions:
            if isinstance(action, Store):
                self.stored.append(action.parcel.body.decode())
                told += self.do(self.receiver.stored(action))
            else:
                message = action.message
                told.append(message.reason if isinstance(message, Refusal) else message.standing.place.upto)
        return told


def test_ranges_are_taken_in_order_and_acked_again() -> None:
    inbox = Inbox()
    assert inbox(parcel(part("a", 0, 2))) == [2]
    assert inbox(parcel(part("a", 0, 2))) == [2]
    assert inbox(parcel(part("a", 2, 3))) == [3]
    assert inbox(parcel(part("a", 0, 2, epoch=2, acked=0))) == [3]
    assert inbox.stored == ["a1,a2", "a3"]


def test_what_is_ahead_is_held_until_the_rest_has_come() -> None:
    inbox = Inbox()
    assert inbox(parcel(part("a", 2, 3))) == []
    assert inbox(parcel(part("a", 3, 4))) == []
    assert inbox(parcel(part("a", 3, 4))) == []
    assert inbox(parcel(part("a", 0, 2))) == [2, 3, 4]
    assert inbox.stored == ["a1,a2", "a3", "a4"]
    assert inbox.receiver.held == 0


def test_what_there_is_no_room_for_is_refused_and_nothing_else() -> None:
    """Whoever has lost an ack has to hear what is here, or would send it for ever."""
    room = [True]
    inbox = Inbox(has_room=lambda sent, now: room[0])
    assert inbox(parcel(part("a", 0, 1))) == [1]
    room[0] = False
    assert inbox(parcel(part("a", 2, 3))) == []
    assert inbox(parcel(part("a", 0, 1))) == [1]
    assert inbox(parcel(part("a", 1, 1, step=5))) == [1]
    assert inbox(parcel(part("a", 1, 2))) == [Reason.FULL]
    (told,) = inbox.receiver.received(parcel(part("a", 1, 2)), "via", 0)
    assert [each.place.upto for each in told.message.standings] == [1]
    room[0] = True
    assert inbox(parcel(part("a", 1, 2))) == [2, 3]
    assert [each for each in inbox.stored if each] == ["a1", "a2", "a3"]


def test_what_is_ahead_is_refused_beyond_a_bound_and_after_a_while() -> None:
    inbox = Inbox(held_bytes=400, patience=S)
    assert inbox(parcel(part("a", 2, 3)), 0) == []
    assert inbox(parcel(part("a", 3, 4)), 0) == [Reason.AHEAD]
    assert inbox.do(inbox.receiver.expired(S - 1)) == []
    assert inbox.do(inbox.receiver.expired(S)) == [Reason.AHEAD]
    assert inbox.receiver.held == 0


def test_a_merged_parcel_is_taken_as_a_whole_or_not_at_all() -> None:
    inbox = Inbox()
    assert inbox(parcel(part("a", 0, 1), part("b", 0, 2))) == [1, 2]
    assert inbox(parcel(part("a", 1, 2))) == [2]
    merged = parcel(part("a", 1, 2), part("b", 2, 3))
    (action,) = inbox.receiver.received(merged, "via", 0)
    assert action.message.reason is Reason.OVERLAP
    assert set(action.message.standings) == {standing("a", 2), standing("b", 2)}
    assert inbox(parcel(part("b", 2, 3))) == [3]
    assert inbox(merged) == [2, 3]
    assert inbox.stored == ["a1,b1,b2", "a2", "b3"]


def test_of_a_merged_parcel_that_is_ahead_in_one_part_nothing_is_taken() -> None:
    inbox = Inbox()
    assert inbox(parcel(part("a", 0, 1), part("b", 1, 2))) == []
    assert inbox(parcel(part("b", 0, 1))) == [1, 1, 2]
    assert inbox.stored == ["b1", "a1,b2"]


def test_progress_alone_is_taken_in_order_and_stops_no_rows() -> None:
    inbox = Inbox()
    assert inbox(parcel(part("a", 0, 1, step=1))) == [1]
    assert inbox(parcel(part("a", 1, 1, step=3))) == [1]
    assert inbox(parcel(part("a", 1, 1, step=2))) == [1]  # older: known
    assert inbox.receiver.standings == (standing("a", 1, step=3),)
    assert inbox(parcel(part("a", 1, 1, step=2), part("b", 0, 1))) == [1, 1]
    assert inbox.stored == ["a1", "", "b1"]
    assert inbox(parcel(part("a", 2, 2, step=5))) == []  # of rows that have not come


def test_rows_that_come_again_from_a_new_run_bring_its_progress() -> None:
    inbox = Inbox()
    inbox(parcel(part("a", 0, 1)))
    again = replace(part("a", 0, 1, epoch=2), partitions=(PartitionProgress(5, 7),))
    (store,) = inbox.receiver.received(parcel(again), "via", 0)
    assert store.parcel.body == b""
    assert store.parcel.part == replace(again, after=1)


def test_nothing_is_acked_before_it_is_durable() -> None:
    receiver = Receiver("f")
    (store,) = receiver.received(parcel(part("a", 0, 1)), "via", 0)
    assert receiver.received(parcel(part("a", 0, 1)), "other", 0) == []
    assert receiver.standings == ()
    assert said(receiver.stored(store)) == [("via", 1), ("other", 1)]


@pytest.mark.parametrize(
    "wrong",
    [part("a", 0, 1), part("a", 1, 2, epoch=2, acked=5), replace(part("a", 1, 2, epoch=2), incarnation="another")],
    ids=["an older run", "lost", "another checkpoint"],
)
def test_no_refusal_says_more_than_is_durable(wrong: Part) -> None:
    """A source forgets what a refusal says is there."""
    receiver = Receiver("f")
    (store,) = receiver.received(parcel(part("a", 0, 1, epoch=2)), "via", 0)
    (tell,) = receiver.received(parcel(wrong), "via", 0)
    assert isinstance(tell.message, Refusal)
    assert tell.message.standings == ()
    receiver.stored(store)
    (tell,) = receiver.received(parcel(wrong), "via", 0)
    assert [each.place.upto for each in tell.message.standings] == [1]


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (replace(part("a", 5, 6), incarnation="another"), Reason.INCARNATION),
        (part("a", 5, 6, epoch=1), Reason.EPOCH),
        (part("a", 8, 9, epoch=2, acked=7), Reason.LOST),
        (part("b", 3, 4, acked=3), Reason.LOST),
    ],
)
def test_what_would_leave_a_gap_or_come_twice_is_refused(sent: Part, reason: Reason) -> None:
    inbox = Inbox(standing("a", 5, epoch=2))
    (action,) = inbox.receiver.received(parcel(sent), "via", 0)
    assert action.message.reason is reason
    assert reason.remedy
    assert not reason.passes
    inbox.receiver.accept_loss(sent.site)
    assert inbox(parcel(replace(sent, after=sent.acked, acked=sent.acked))) == [sent.upto]


LOSSES = [
    (replace(part("a", 5, 6), incarnation="another"), "another checkpoint"),
    (part("a", 5, 6, epoch=1, acked=5), "run 1 after 2"),
    (part("a", 7, 9, epoch=2, acked=7), "up to cut 7"),
    (part("b", 3, 4, acked=3), "up to cut 3"),
]


@pytest.mark.parametrize(("sent", "says"), LOSSES)
def test_a_loss_is_accepted_once_and_what_comes_behind_it_says_so(sent: Part, says: str) -> None:
    receiver = Receiver("f", [standing("a", 5, epoch=2)], accepts_loss=True)
    sent = replace(sent, acked=sent.after)
    progress = replace(sent, upto=sent.after)
    (empty,) = receiver.received(parcel(progress), "via", 0)
    receiver.stored(empty)
    (first,) = receiver.received(parcel(replace(sent, step=2)), "via", 0)
    receiver.stored(first)
    (second,) = receiver.received(parcel(replace(sent, after=sent.upto, upto=12, step=3, anew=True)), "via", 0)
    # Until rows have come nobody knows what was lost.
    assert [each.parcel.part.anew for each in (empty, first, second)] == [True, True, False]
    assert len(receiver.losses) == 1
    assert says in receiver.losses[0]
    receiver.stored(second)
    (again,) = receiver.received(parcel(replace(sent, incarnation="yet another")), "via", 0)
    assert again.message.reason is Reason.INCARNATION


def test_a_run_that_begins_before_rows_have_come_again_knows_that_they_are_the_first() -> None:
    receiver = Receiver("f", [standing("a", 5)], anew=["a"])
    (store,) = receiver.received(parcel(part("a", 5, 6)), "via", 0)
    assert store.parcel.part.anew


def test_of_a_merged_parcel_each_loss_is_accepted() -> None:
    receiver = Receiver("f", [standing("a", 5)], accepts_loss=True)
    merged = parcel(replace(part("a", 0, 1), incarnation="another"), part("b", 3, 4, acked=3), part("c", 0, 1))
    (store,) = receiver.received(merged, "via", 0)
    assert [each.anew for each in store.parcel.parts] == [True, True, False]
    assert len(receiver.losses) == 2


def test_a_flow_that_is_new_at_a_site_begins_later() -> None:
    inbox = Inbox()
    assert inbox(parcel(part("a", 9, 10, since=7, acked=7))) == []
    assert inbox(parcel(part("a", 7, 9, since=7, acked=7))) == [9, 10]


def said(actions) -> list[tuple[str, object]]:
    """Return whom something is told, and what: the last cut that is here, or why a parcel is refused."""
    return [
        (each.peer, each.message.reason if isinstance(each.message, Refusal) else each.message.standing.place.upto)
        for each in actions
        if isinstance(each, Tell)
    ]


def test_whoever_brings_what_is_ahead_is_told_what_becomes_of_it() -> None:
    """A relay keeps a parcel until it hears of it: the source had sent the same one straight, and heard alone."""
    receiver = Receiver("f")
    ahead = parcel(part("a", 1, 2))
    for via in ("a", "relay", "a"):
        assert receiver.received(ahead, via, 0) == []
    one, two = receiver.received(parcel(part("a", 0, 1)), "a", 0)
    assert said(receiver.stored(one)) == [("a", 1)]
    assert said(receiver.stored(two)) == [("a", 2), ("relay", 2)]


def test_whoever_brings_what_is_ahead_for_too_long_is_told_so() -> None:
    receiver = Receiver("f", patience=S)
    for via in ("a", "relay"):
        receiver.received(parcel(part("a", 1, 2)), via, 0)
    assert said(receiver.expired(S)) == [("a", Reason.AHEAD), ("relay", Reason.AHEAD)]


def test_whoever_brings_what_is_being_stored_is_told_when_that_is_done() -> None:
    receiver = Receiver("f")
    first, second = parcel(part("a", 0, 1)), parcel(part("a", 1, 2), part("b", 0, 1))
    (one,) = receiver.received(first, "a", 0)
    (two,) = receiver.received(second, "relay", 0)
    assert receiver.received(first, "relay", 0) == []
    assert receiver.received(second, "b", 0) == []
    assert said(receiver.stored(one)) == [("a", 1), ("relay", 1)]
    assert said(receiver.received(first, "b", 0)) == [("b", 1)]
    assert sorted(said(receiver.stored(two))) == [("b", 1), ("b", 2), ("relay", 1), ("relay", 2)]


def test_whoever_brought_what_is_given_up_with_a_loss_is_told() -> None:
    receiver = Receiver("f", [standing("a", 1)], accepts_loss=True)
    ahead = parcel(part("a", 2, 3))
    assert receiver.received(ahead, "relay", 0) == []
    (store,) = receiver.received(parcel(replace(part("a", 0, 1), incarnation="another")), "a", 0)
    assert said(receiver.stored(store)) == [("a", 1)]
    assert said(receiver.expired(0)) == [("relay", Reason.AHEAD)]
    assert receiver.expired(0) == []
