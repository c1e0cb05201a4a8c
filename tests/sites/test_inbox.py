"""The inbox of a flow: what came is there after a restart, in order, and indices of partitions never change."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from transom.errors import CheckpointCorruptError, CheckpointFencedError, CheckpointFullError, SourceLostError
from transom.sites import inbox as inboxes
from transom.sites.inbox import Inbox
from transom.widearea.parcels import Parcel, Part, PartitionProgress, RowCounts

SITES = ("north", "south")


def parcel(site, after, upto, partitions=1, arrived=None, body=b"x"):
    progress = tuple(PartitionProgress(100 * upto + number, None) for number in range(partitions))
    part = Part(site, f"ck-{site}", 1, after, upto, upto + 1, partitions=progress, arrived=arrived, counts=RowCounts(5))
    return Parcel("fares", upto, (part,), body if upto > after else b"")


def told(inbox):
    return [*inbox.known.partitions], {site: part.place.upto for site, part in inbox.known.last.items()}


def test_what_came_is_there_after_a_restart(tmp_path):
    inbox = Inbox("fares", tmp_path, SITES)
    assert (inbox.newest, inbox.standings(), [*inbox.known.partitions]) == (0, [], [("north", 0), ("south", 0)])
    inbox.append(parcel("south", 0, 3, partitions=2, arrived=7))
    inbox.append(parcel("north", 0, 1, body=b"partials"))
    inbox.append(parcel("north", 1, 1))
    again = Inbox("fares", tmp_path, SITES)
    assert told(again) == told(inbox) == ([("north", 0), ("south", 0), ("south", 1)], {"south": 3, "north": 1})
    assert again.newest == 3
    assert [again.body(entry) for entry in again.between(0, 3)] == [b"x", b"partials", b""]
    assert [entry.position for entry in again.between(1, 2)] == [2]
    assert again.known_at(1).arrived == 7
    assert {(each.site, each.place.upto) for each in again.standings()} == {("south", 3), ("north", 1)}


def test_a_site_that_comes_later_keeps_its_index(tmp_path):
    inbox = Inbox("fares", tmp_path, ["north"])
    inbox.append(parcel("north", 0, 1, partitions=2))
    later = Inbox("fares", tmp_path, ["east", "north"])
    later.append(parcel("north", 1, 2, partitions=3))
    later.append(parcel("east", 0, 1))
    expected = [("north", 0), ("north", 1), ("east", 0), ("north", 2)]
    assert later.known.partitions == {each: index for index, each in enumerate(expected)}
    assert Inbox("fares", tmp_path, ["east", "north", "west"]).known.partitions.keys() == {*expected, ("west", 0)}
    assert Inbox("fares", tmp_path, ["west", "east", "north"]).known.partitions.keys() == {*expected, ("west", 0)}


def test_what_is_committed_goes_many_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(inboxes, "KEPT", 4)
    inbox = Inbox("fares", tmp_path, SITES)
    for cut in range(1, 12):
        inbox.append(parcel("south", cut - 1, cut, partitions=1 + cut % 3))
        before = told(inbox)
        inbox.release(cut - 1)
        assert told(inbox) == before
        assert told(Inbox("fares", tmp_path, SITES)) == before
    left = sorted(path.name for path in tmp_path.glob("*.parcel"))
    assert len(left) < 9
    again = Inbox("fares", tmp_path, SITES)
    assert again.newest == inbox.newest == 11
    assert again.nbytes == inbox.nbytes == len(left)
    # Killed between the note of what goes and its going.
    (tmp_path / "000000000001.parcel").write_bytes(parcel("south", 0, 1).to_bytes())
    assert told(Inbox("fares", tmp_path, SITES)) == before
    assert sorted(path.name for path in tmp_path.glob("*.parcel")) == left


def test_what_cannot_be_written_changes_nothing(tmp_path, monkeypatch):
    """A disk that is full for a while: parcels that come afterwards are behind those that are there."""
    monkeypatch.setattr(inboxes, "KEPT", 2)
    inbox = Inbox("fares", tmp_path, SITES)
    for cut in range(1, 8):
        inbox.append(parcel("south", cut - 1, cut))
    before = told(inbox), inbox.newest, inbox.nbytes
    with monkeypatch.context() as patch:
        patch.setattr(inboxes, "write_atomically", Mock(side_effect=CheckpointFullError("The disk is full.", "")))
        with pytest.raises(CheckpointFullError):
            inbox.release(7)
        with pytest.raises(CheckpointFullError):
            inbox.append(parcel("south", 7, 8))
    assert (told(inbox), inbox.newest, inbox.nbytes) == before
    inbox.release(7)
    inbox.append(parcel("south", 7, 8))
    assert told(inbox) == told(Inbox("fares", tmp_path, SITES))
    assert inbox.newest == 8


def test_what_came_is_read_from_memory_while_there_is_room(tmp_path):
    fresh = inboxes.Fresh(most=10)
    for position, body in enumerate([b"12345678", b"ab", b"cd", b"x" * 11, b"efg"], 1):
        fresh.put(position, body)
    assert [fresh.take(position) for position in range(1, 7)] == [None, None, None, None, b"efg", None]
    fresh.put(6, b"1234567890")
    assert [fresh.take(6), fresh.take(6)] == [b"1234567890", None]
    inbox = Inbox("fares", tmp_path, SITES)
    inbox.append(parcel("south", 0, 1, body=b"rows"))
    (entry,) = inbox.between(0, 1)
    assert [inbox.body(entry), inbox.body(entry)] == [b"rows", b"rows"]


def test_damage_is_found(tmp_path):
    inbox = Inbox("fares", tmp_path, SITES)
    for cut in (1, 2, 3):
        inbox.append(parcel("south", cut - 1, cut))
    second = tmp_path / "000000000002.parcel"
    whole = second.read_bytes()
    second.write_bytes(whole[:-1] + b"y")
    assert inbox.body(inbox.between(1, 2)[0]) == b"x"  # as it came
    with pytest.raises(CheckpointCorruptError, match="000000000002"):
        Inbox("fares", tmp_path, SITES)
    with pytest.raises(SourceLostError, match="fares"):
        inbox.body(inbox.between(1, 2)[0])
    second.unlink()
    with pytest.raises(CheckpointCorruptError, match="missing"):
        Inbox("fares", tmp_path, SITES)
    second.write_bytes(whole)
    (tmp_path / "before").write_bytes(b"{}")
    with pytest.raises(CheckpointCorruptError, match="before"):
        Inbox("fares", tmp_path, SITES)


def test_who_was_overtaken_says_nothing(tmp_path):
    inbox = Inbox("fares", tmp_path, SITES)

    def check():
        raise CheckpointFencedError("overtaken")

    inbox.check = check
    with pytest.raises(CheckpointFencedError):
        inbox.append(parcel("south", 0, 1))
    assert inbox.standings() == []
