"""What is taken while memory is full: what windows wait for, and after a while anything."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.widearea.made import S, parcel, part

from transom.widearea.parcels import Part, PartitionProgress
from transom.widearea.room import Awaited, Room

END = Awaited(100)
IDLE = Awaited(100, idle_after=5)


def said(*progress: tuple[int | None, int | None], injected: int | None = None, cut: int = 1) -> Part:
    partitions = tuple(PartitionProgress(*each) for each in progress)
    return replace(part("a", cut - 1, cut), partitions=partitions, injected=injected)


@pytest.mark.parametrize(
    ("awaited", "last", "now", "needed"),
    [
        (END, None, said((200, None)), True),
        (END, said((99, None)), said((200, None)), True),
        (END, said((100, None)), said((200, None)), False),
        (END, said((100, None), (None, None)), said((200, None), (None, 9)), True),
        (END, said((100, None)), said((200, None), (1, None)), True),
        (END, said((100, None)), replace(said((200, None)), after=1, upto=1), True),
        (IDLE, said((100, None), (50, 9)), said((200, None), (50, 12)), False),
        (IDLE, said((100, None), (50, 9)), said((200, None), (60, None)), True),
        (IDLE, said((100, None), (50, 4)), said((200, None), (50, 12)), True),
        (Awaited(100, injected=True), said((1, None), injected=100), said((2, None), injected=110), False),
        (Awaited(100, injected=True), said((1, None), injected=99), said((2, None), injected=110), True),
        (Awaited(100, injected=True), said((1, None)), said((2, None)), True),
    ],
    ids=[
        "a new site",
        "behind",
        "there",
        "a partition without rows",
        "a new partition",
        "progress alone",
        "one that is idle",
        "rows of one that was idle",
        "not idle for long",
        "injected",
        "injected before",
        "not injected yet",
    ],
)
def test_what_a_window_waits_for(awaited: Awaited, last: Part | None, now: Part, needed: bool) -> None:
    assert awaited.needs(now, last) is needed


def test_a_merged_parcel_is_taken_if_one_of_its_sites_is_behind() -> None:
    both = parcel(said((200, None), cut=2), replace(said((60, None)), site="b"))
    last = {"a": said((100, None)), "b": replace(said((50, None)), site="b")}
    assert Room().takes(both, last, END, 0)
    assert not Room().takes(both, {**last, "b": replace(last["b"], partitions=last["a"].partitions)}, END, 0)


def test_nothing_is_refused_for_ever() -> None:
    """What windows wait for may be told behind what is refused, as that somebody is idle."""
    room, last = Room(10 * S), {"a": said((150, None)), "b": replace(said((50, None)), site="b")}
    ahead, behind = parcel(said((200, None), cut=2)), parcel(replace(said((60, None)), site="b"))
    assert room.takes(ahead, last, None, 0)
    assert not room.takes(ahead, last, END, 5 * S)
    assert room.takes(behind, last, END, 14 * S)  # there is progress
    assert not room.takes(ahead, last, END, 15 * S)
    assert not room.takes(ahead, last, Awaited(101), 20 * S)  # a window has closed
    assert not room.takes(ahead, last, Awaited(101), 30 * S - 1)
    assert room.takes(ahead, last, Awaited(101), 30 * S)
    assert not room.takes(ahead, last, Awaited(101), 31 * S)  # one
