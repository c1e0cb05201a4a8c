"""Messages and parcels as bytes, and what two sites say of themselves: what is none is an error of ours."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.widearea.made import parcel, part

from transom.errors import SiteError
from transom.model.time import MAX_TIME, MIN_TIME
from transom.widearea.hellos import Hello
from transom.widearea.links import MOST_FRAME, Frame, Receipt
from transom.widearea.messages import MOST_COST, Abandon, Opened, Opening, Unreadable, from_bytes, to_bytes
from transom.widearea.parcels import Ack, Delays, Parcel, PartitionProgress, Place, Reason, Refusal, RowCounts, Standing

WHOLE = st.integers(-(1 << 63), (1 << 63) - 1)
STANDINGS = st.builds(Standing, *[st.text(max_size=5)] * 3, st.builds(Place, *[WHOLE] * 3))
MESSAGES = st.one_of(
    st.builds(Frame, *[st.integers(0, 2**32 - 1)] * 4, st.binary(max_size=20)),
    st.builds(Receipt, *[st.integers(0, 2**64 - 1)] * 2, *[WHOLE] * 2),
    st.builds(Abandon, st.integers(0, 2**64 - 1)),
    st.builds(Unreadable, st.integers(0, 2**64 - 1)),
    st.builds(Ack, STANDINGS, st.integers(0, MOST_COST), st.none() | st.integers(MIN_TIME, MAX_TIME)),
    st.builds(
        Refusal,
        st.text(max_size=5),
        WHOLE,
        st.lists(st.tuples(st.text(max_size=3), st.builds(Place, *[WHOLE] * 3)), max_size=2).map(tuple),
        st.sampled_from(Reason),
        st.lists(STANDINGS, max_size=2).map(tuple),
        st.text(max_size=5),
    ),
    st.builds(
        Opening,
        st.text(max_size=5),
        st.lists(WHOLE, max_size=3).map(tuple),
        st.lists(STANDINGS, max_size=2).map(tuple),
    ),
    st.builds(
        Opened,
        st.text(max_size=5),
        st.dictionaries(WHOLE, WHOLE, max_size=3),
        st.lists(STANDINGS, max_size=2).map(tuple),
    ),
)


@given(MESSAGES)
def test_messages_are_read_as_they_were_written(message) -> None:
    assert from_bytes(to_bytes(message)) == message


@given(MESSAGES, st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3), st.integers(0, 200))
def test_garbage_is_an_error_of_ours(message, changes, end) -> None:
    data = bytearray(to_bytes(message))
    for at, value in changes:
        data[at % len(data)] = value
    with suppress(SiteError):
        from_bytes(bytes(data[:end]))


@given(st.binary(max_size=60) | st.just(parcel(part("a", 0, 1)).to_bytes()), st.integers(0, 200), st.integers(1, 255))
def test_a_parcel_that_was_changed_is_refused(data: bytes, at: int, by: int) -> None:
    changed = bytearray(data)
    if changed:
        changed[at % len(changed)] ^= by
    with pytest.raises(SiteError):
        Parcel.from_bytes(bytes(changed))


def test_parcels_are_read_as_they_were_written() -> None:
    whole = replace(
        part("a", 1, 2, since=1, acked=1), partitions=(PartitionProgress(5, None), PartitionProgress(None, 7)),
        failed={"q": "no"}, injected=4, ended=True,
    )  # fmt: skip
    for sent in (parcel(whole, part("b", 0, 0)), parcel(part("b", 0, 3))):
        assert Parcel.from_bytes(sent.to_bytes()) == sent


def test_parcels_with_a_next_departure_are_read() -> None:
    """Sites of earlier versions tell it, inboxes hold it, and such sites read what is sent in its place."""
    sent = parcel(replace(part("a", 1, 2), injected=4, ended=True))
    header = sent.header()
    assert header[2][0][13:] == [None, 4, 1]
    header[2][0][13] = 1_764_450_000
    assert Parcel.of(header, sent.body) == sent


GARBAGE = (None, "x", -1, 1.5, float("nan"), 1 << 63, -(10**30), 10**400, [], [1], {}, {"x": 1}, [10**400], [[0, 1]])


@given(st.data())
def test_a_header_with_anything_else_in_it_is_an_error_of_ours_or_harmless(data) -> None:
    """What is taken can be reckoned with: 64 bits, times that are some, no number of rows below 0."""
    header = parcel(replace(part("a", 1, 2), counts=RowCounts(1), delays=Delays(1, 2.0, 3.0))).header()
    at = data.draw(st.integers(0, len(header[2][0]) - 1))
    header[2][0][at] = data.draw(st.sampled_from(GARBAGE))
    with suppress(SiteError):
        (got,) = Parcel.of(json.loads(json.dumps(header)), b"").parts
        assert all(abs(each) < 1 << 63 for each in (*got.place, got.after, got.since, got.acked))
        assert all(MIN_TIME <= each <= MAX_TIME for each in (got.arrived or 0, got.injected or 0))
        assert min(got.counts) >= 0 == min(0, got.delays.records)


@pytest.mark.parametrize("delays", [[1, 1e300, 0], [1, 0, 1e300], [0, 1.0, 0.0], [1, 0.0, -1.0]])
def test_delays_of_more_than_64_bits_are_none(delays) -> None:
    """Two of the largest floats are none any more when they are added up."""
    header = parcel(replace(part("a", 1, 2), delays=Delays(1, 2.0, 3.0))).header()
    (at,) = [at for at, each in enumerate(header[2][0]) if each == [1, 2.0, 3.0]]
    header[2][0][at] = delays
    with pytest.raises(SiteError, match="of no delays"):
        Parcel.of(header, b"")


@pytest.mark.parametrize(
    "text",
    [
        f'K[["f","a","i",[1,1,1]],{10**400},null]',
        f'K[["f","a","i",[{1 << 63},1,1]],0,null]',
        'K[["f","a","i",[1,1,1]],Infinity,null]',
        'K[["f","a","i",[1,1]],0,null]',
        "K" + "[" * 100_000,
        "P[1,2]",
    ],
    ids=["a large number", "65 bits", "infinity", "a short place", "deep", "two of three"],
)
def test_what_nobody_can_reckon_with_is_no_message(text) -> None:
    with pytest.raises(SiteError, match="no message"):
        from_bytes(text.encode())


def test_what_differs_between_two_sites() -> None:
    one, two = {"keys": "one"}, {"keys": "two"}
    here = Hello("a", spark="4.3", flows={"f": one, "g": two, "h": one})
    there = replace(here, site="b", transom="0.9", flows={"f": one, "g": one, "i": two})
    here.check(there)
    assert set(here.differs(there)) == {"g", "h", "i"}
    assert Hello.from_json(there.to_json()) == there
    with pytest.raises(SiteError, match=r"a has spark 4.3, b has 4.4") as error:
        here.check(replace(there, spark="4.4"))
    assert "same minor version" in error.value.remedy
    for value in (None, [], {"site": "a"}, {**here.to_json(), "flows": 3}, {**here.to_json(), "protocol": inf}):
        with pytest.raises(SiteError, match="no opening"):
            Hello.from_json(value)


def test_a_frame_is_no_larger_than_links_make_them() -> None:
    assert from_bytes(to_bytes(Frame(1, 0, 1 << 20, 0, bytes(MOST_FRAME))))
    with pytest.raises(SiteError, match="a frame has"):
        from_bytes(to_bytes(Frame(1, 0, 1 << 20, 0, bytes(MOST_FRAME + 1))))


def test_what_remains_is_at_most_a_day_however_many_hops_add_to_it() -> None:
    for told, known in ((-5, 0), (2**63 - 1, MOST_COST), (7, 7)):
        data = to_bytes(Ack(Standing("f", "a", "i", Place(1, 1, 1)), told))
        found = from_bytes(data)
        assert isinstance(found, Ack)
        assert found.cost == known


def test_the_opening_of_the_first_version_is_read_to_tell_that_it_is_another() -> None:
    assert from_bytes(b'O["boot",[1]]') == Opening("boot", (1,))


@pytest.mark.parametrize("field", range(2, 8))
def test_numbers_of_cuts_and_runs_beyond_all_reason_are_no_parcel(field: int) -> None:
    header = json.loads(json.dumps(parcel(part("a", 0, 1)).header()))
    assert Parcel.of(header, b"")
    header[2][0][field] = 1 << 48
    with pytest.raises(SiteError):
        Parcel.of(header, b"")
