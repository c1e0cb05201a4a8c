"""Parcels on a link: they come as they were sent, in whatever order they are read, and nothing else is believed."""

from __future__ import annotations

import contextlib
import json
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packed import bits, parcel, rows_of, table

from transom.errors import SiteError
from transom.sites import codec, remembered
from transom.sites.codec import LinkPacking
from transom.sites.columns import Reader, Writer
from transom.widearea.bodies import from_body, to_body
from transom.widearea.parcels import Delays, Parcel, Part, PartitionProgress, RowCounts

WHOLE = st.integers(-(2**63), 2**63 - 1)
COLUMNS = {
    pa.int64(): WHOLE,
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.bool_(): st.booleans(),
    pa.float64(): st.floats() | st.integers(-1000, 1000).map(lambda n: n / 100),
    pa.float32(): st.floats(width=32),
    pa.string(): st.text(max_size=5),
    pa.large_string(): st.text(max_size=5),
    pa.binary(): st.binary(max_size=20),
    pa.decimal128(38, 2): st.integers(-(10**20), 10**20).map(lambda n: Decimal(n).scaleb(-2)),
    pa.timestamp("us", "UTC"): WHOLE,
    pa.timestamp("us"): WHOLE,
    pa.date32(): st.integers(-(2**31), 2**31 - 1),
    pa.null(): st.none(),
    pa.list_(pa.int64()): st.lists(WHOLE | st.none(), max_size=3),
    pa.list_(pa.list_(pa.string())): st.lists(st.lists(st.text(max_size=3), max_size=2), max_size=3),
    pa.struct([("a", pa.int64()), ("b", pa.string())]): st.fixed_dictionaries(
        {"a": WHOLE | st.none(), "b": st.text(max_size=3)}
    ),
}


@st.composite
def columns(draw):
    kind = draw(st.sampled_from(list(COLUMNS)))
    values = draw(st.lists(COLUMNS[kind] | st.none(), max_size=12))
    if pa.types.is_temporal(kind):
        plain = pa.array(values, pa.int64() if kind.bit_width == 64 else pa.int32())
        return plain.view(kind)
    array = pa.array(values, kind)
    return array[draw(st.integers(0, len(array))) :]


@given(columns())
def test_a_column_is_read_as_it_was_written(array: pa.Array) -> None:
    writer = Writer()
    writer.column(array)
    notes = json.loads(json.dumps(writer.notes))
    read = Reader(notes, writer.data, 10_000).column(array.type, len(array))
    read.validate(full=True)
    assert read.type == array.type
    if pa.types.is_float32(array.type):
        assert read.fill_null(0).equals(array.fill_null(0)) or any(v != v for v in array.to_pylist())
    else:
        assert bits(read) == bits(array)


def test_whole_numbers_take_the_bytes_of_their_range() -> None:
    sizes = []
    for values in ([7, 7, 7], [1000, 1255, 1000], [1000, 1256, 1000], [-(2**63), 2**63 - 1, 0]):
        writer = Writer()
        writer.ints(np.array(values))
        sizes.append(len(writer.data))
    assert sizes == [0, 3, 6, 24]


words = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["a", "b", "cc", None, "ddd", "e"]), st.integers(0, 300)), max_size=8
)


@given(st.lists(st.tuples(words, st.integers(0, 3), st.booleans()), max_size=8), st.integers(0, 200))
@settings(max_examples=40)
def test_parcels_come_as_they_were_sent(parcels, dictionary) -> None:
    """Read in another order, with connections that break between, and dictionaries that are full."""
    here, there = LinkPacking(dictionary), LinkPacking(dictionary)
    under_way: list[tuple[int, bytes, Parcel]] = []
    for number, (rows, read, breaks) in enumerate(parcels, 1):
        sent = parcel(table(rows), number)
        under_way.append((number, here.pack(sent, False), sent))
        here.named(number)
        for _ in range(min(read, len(under_way))):
            each, data, expected = under_way.pop(read % len(under_way))
            came = there.unpack(data)
            if came is None:  # the connection broke twice since
                came = there.unpack(here.pack(expected, True))
                here.named(each + 1000)
            assert came is not None
            here.confirmed(each)
            assert came.parts == expected.parts
            assert rows_of(came) == rows_of(expected)
        if breaks:
            here.broken()


def test_keys_that_the_other_end_has_are_not_sent_again() -> None:
    here, there = LinkPacking(), LinkPacking()
    rows = [(0, f"a long word number {n * 7919 % 10007}", n % 3) for n in range(1000)]
    first = here.pack(parcel(table(rows), 1), False)
    here.named(1)
    again = here.pack(parcel(table(rows), 2), False)  # nobody has confirmed the first yet
    here.named(2)
    assert there.unpack(first) is not None
    here.confirmed(1)
    third = here.pack(parcel(table(rows), 3), False)
    assert len(third) * 4 < len(again)
    read = there.unpack(third)
    assert read is not None
    assert rows_of(read) == sorted(rows, key=repr)
    here.broken()
    assert len(here.pack(parcel(table(rows), 4), False)) > 4 * len(third)


def test_what_is_never_confirmed_takes_no_more_and_more_memory(monkeypatch) -> None:
    monkeypatch.setattr(codec, "_MOST_NEWS", 5)
    here, there = LinkPacking(), LinkPacking()
    for number in range(1, 20):
        data = here.pack(parcel(table([(0, f"w{number}", number)]), number), False)
        here.named(number)
        read = there.unpack(data)
        assert read is not None
        assert rows_of(read) == [(0, f"w{number}", number)]
    for number in (3, 19):  # the first of them is forgotten
        here.confirmed(number)
    assert len(here._news) == 4
    last = there.unpack(here.pack(parcel(table([(0, "w3", 1), (0, "w19", 2)]), 20), False))
    assert last is not None
    assert rows_of(last) == [(0, "w19", 2), (0, "w3", 1)]


def test_what_is_forgotten_is_asked_for_in_full() -> None:
    here, there, anew = LinkPacking(), LinkPacking(), LinkPacking()
    assert there.unpack(here.pack(parcel(table([(0, "a", 1)])), False)) is not None
    here.named(1)
    here.confirmed(1)
    second = parcel(table([(0, "a", 2)]), 2)
    assert anew.unpack(here.pack(second, False)) is None
    read = anew.unpack(here.pack(second, True))
    assert read is not None
    assert rows_of(read) == [(0, "a", 2)]


def test_a_flow_without_keys_and_one_whose_columns_change() -> None:
    here, there = LinkPacking(), LinkPacking()
    for number, made in enumerate([table([(3, "x", 1)]).drop_columns(["word"]), table([(3, "x", 1)], "name")] * 2, 1):
        read = there.unpack(here.pack(parcel(made, number), False))
        here.named(number)
        here.confirmed(number)
        assert read is not None
        assert from_body(read.body).equals(made)


def test_progress_alone_is_small() -> None:
    part = Part(
        "a-site-with-a-long-name",
        "0123456789abcdef",
        3,
        1234567,
        1234567,
        1234567,
        partitions=tuple(PartitionProgress(1764450000000000 + n, 60_000_000 if n % 2 else None) for n in range(8)),
        counts=RowCounts(),
        delays=Delays(),
    )
    sent = Parcel("a flow with a name of some length, as flows have", 1764450000, (part,))
    here = LinkPacking()
    assert len(here.pack(sent, False)) <= 300


@given(st.data())
@settings(max_examples=100)
def test_garbage_is_refused(data) -> None:
    """Whatever bytes are changed: a parcel, a question for it in full, or an error of ours; and no large memory."""
    here, there = LinkPacking(), LinkPacking(most=1 << 20)
    good = bytearray(here.pack(parcel(table([(n % 3, f"w{n % 7}", n) for n in range(50)])), False))
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(good)) | st.just(len(good)))
    with contextlib.suppress(SiteError):
        there.unpack(bytes(good[:end]))


def repacked(change, *rows) -> bytes:
    """Return a parcel whose table says something else of itself."""
    here = LinkPacking()
    data = here.pack(parcel(table([*rows] or [(0, "a", 1), (0, "b", 2)])), False)
    at = len(here.pack(parcel(None), False))
    plain = bytearray(pa.decompress(data[at + 8 :], int.from_bytes(data[at : at + 8], "big"), "zstd", asbytes=True))
    size = int.from_bytes(plain[:4], "big")
    notes = json.loads(plain[4 : 4 + size])
    rest = bytes(plain[4 + size :])
    changed = json.dumps(change(notes)).encode()
    made = len(changed).to_bytes(4, "big") + changed + rest
    return data[:at] + len(made).to_bytes(8, "big") + pa.compress(made, "zstd", asbytes=True)


@pytest.mark.parametrize(
    "change",
    [
        lambda notes: [notes[0], notes[1], 1 << 40, notes[3]],
        lambda notes: [notes[0], 1 << 40, *notes[2:]],
        lambda notes: [notes[0], notes[1], -1, notes[3]],
        lambda notes: [*notes[:3], []],
        lambda notes: [*notes[:3], [[0, 99], *notes[3][1:]]],
        lambda notes: [*notes[:3], [[0, 0], [0, 0], [1 << 40, 2], *notes[3][3:]]],
        lambda notes: [*notes[:3], [[0, 0], [0, 0], [0, 1 << 40], *notes[3][3:]]],
        lambda notes: {"a": 1},
        lambda notes: None,
    ],
)
def test_a_table_that_lies_about_itself_is_refused(change) -> None:
    with pytest.raises(SiteError):
        LinkPacking(most=1 << 20).unpack(repacked(change))


def test_numbers_that_leave_gaps_do_not_take_more_and_more_memory() -> None:
    """One key more in each parcel, and a million numbers that none has."""
    there, gap = LinkPacking(), 1 << 20

    def at(number):
        def change(notes):
            assert notes[3][1:3] == [[0, 0], [0, 1]]
            return [*notes[:3], [notes[3][0], [number, 0], [number, 1], *notes[3][3:]]]

        return repacked(change, (0, "a", 1))

    assert there.unpack(at(gap)) is not None
    with pytest.raises(SiteError, match="too high"):
        there.unpack(at(2 * gap))


def test_numbers_of_keys_take_memory_too() -> None:
    """One key in each parcel, of another schema and with a million numbers before it that none has."""
    there = LinkPacking(most=20 << 20)
    for number in range(1, 9):

        def change(notes, number=number):
            return [number, *notes[1:3], [notes[3][0], [1 << 20, 0], [1 << 20, 1], *notes[3][3:]]]

        assert there.unpack(repacked(change, (0, "a", 1))) is not None
    assert sum(rows.nbytes for got in there._got.values() for rows in got.rows.values()) <= 20 << 20


def test_what_is_null_counts_too() -> None:
    """A bit for each of them is nothing when it is packed, and eight bytes when it is not."""
    writer = Writer()
    for _ in range(10):
        writer.column(pa.nulls(1_000, pa.int64()))
    columns = Reader(writer.notes, bytes(writer.data), 10_000)
    assert [columns.column(pa.int64(), 1_000).null_count for _ in range(10)] == [1_000] * 10
    columns = Reader(writer.notes, bytes(writer.data), 9_999)
    for _ in range(9):
        columns.column(pa.int64(), 1_000)
    with pytest.raises(SiteError, match="more values"):
        columns.column(pa.int64(), 1_000)


def test_what_takes_too_much_memory_is_forgotten_and_asked_for() -> None:
    here, there = LinkPacking(), LinkPacking(most=2_700)
    asked = []
    for number, flow in enumerate("abcab", 1):
        sent = parcel(table([(0, f"{number} {n}" * 4, n) for n in range(40)], f"word of {flow}"), number, flow)
        read = there.unpack(here.pack(sent, False))
        if read is None:
            asked.append(flow)
            read = there.unpack(here.pack(sent, True))
        here.named(number)
        here.confirmed(number)
        assert read is not None
        assert rows_of(read) == rows_of(sent)
        assert sum(sum(got.bytes.values()) for got in there._got.values()) < 2_700
    assert asked == ["a"]  # whose keys went when those of c came


def test_a_declared_size_is_checked_before_anything_is_unpacked() -> None:
    body = bytes(to_body(table([(0, "a", 1)])))
    with pytest.raises(SiteError, match="allowed"):
        from_body((1 << 40).to_bytes(8, "big") + body[8:])
    here = LinkPacking()
    at = len(here.pack(parcel(None), False))
    data = LinkPacking().pack(parcel(table([(0, "a", 1)])), False)
    assert LinkPacking().unpack(data) is not None
    with pytest.raises(SiteError, match="allowed"):
        LinkPacking().unpack(data[:at] + (1 << 40).to_bytes(8, "big") + data[at + 8 :])
    with pytest.raises(SiteError):
        LinkPacking().unpack(data[:at] + (20).to_bytes(8, "big") + data[at + 8 :])


def test_keys_of_before_are_not_taken_for_those_of_now() -> None:
    """A relay sends what two sites made of different kinds by turns; what confirms one of them says nothing of both."""
    here, there = LinkPacking(), LinkPacking()

    def kind(words: str, name: str) -> pa.Table:
        made = table([(0, word, number) for number, word in enumerate(words)])
        return made.replace_schema_metadata({"transom": name})

    for number, made in enumerate((kind("abc", "one"), kind("zyk", "two")), 1):
        assert there.unpack(here.pack(parcel(made, number), False)) is not None
        here.named(number)
    here.confirmed(1)
    read = there.unpack(here.pack(parcel(kind("zyk", "two"), 3), False))
    assert read is not None
    assert rows_of(read) == [(0, "k", 2), (0, "y", 1), (0, "z", 0)]


def test_headers_of_many_flows_are_remembered_up_to_a_bound(monkeypatch) -> None:
    flows = [f"flow {number}" for number in range(200)]

    def asked(here: LinkPacking, there: LinkPacking) -> int:
        """Return how many parcels of the second turn could not be read."""
        found = 0
        for turn in range(2):
            for number, flow in enumerate(flows, 1 + 200 * turn):
                found += there.unpack(here.pack(parcel(None, number, flow), False)) is None
                here.named(number)
                here.confirmed(number)
        return found

    there = LinkPacking()
    assert asked(LinkPacking(), there) == 0
    monkeypatch.setattr(remembered, "MOST_HEADERS", 2_000)
    there = LinkPacking()
    assert asked(LinkPacking(), there) > 150
    (got,) = there._got.values()
    assert sum(map(len, got.headers.values())) == got.header_bytes <= 2_000


def test_what_is_said_of_columns_is_bounded_before_it_is_read(monkeypatch) -> None:
    data = LinkPacking().pack(parcel(table([(0, "a", 1)])), False)
    assert LinkPacking().unpack(data) is not None
    for bound, words in (("_MOST_NOTES", "more to say"), ("_MOST_SCHEMA", "too long names")):
        with monkeypatch.context() as patched:
            patched.setattr(codec, bound, 20)
            with pytest.raises(SiteError, match=words):
                LinkPacking().unpack(data)
