"""The text of the log: what damage is dropped, and what is an error."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transom.checkpoint.log import parse
from transom.errors import CheckpointCorruptError
from transom.model.lines import START, Link, decode, encode

PATH = Path("log/e000001-000001.log")
HEADER = {"epoch": 1, "number": 1}
RECORDS = ({"cut": 1, "end": {"0": 10}}, {"note": 'a "quoted"\nline {}'}, {"cut": 2, "end": {"0": 20}})


def chained(*records, after=START):
    """Return the lines of records, and the link of the last one."""
    lines = []
    for record in records:
        line, after = encode(record, after)
        lines.append(line)
    return lines, after


LINES, LINK = chained(HEADER, *RECORDS)
DATA = b"".join(LINES)
LAST = len(DATA) - len(LINES[-1])

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.dictionaries(st.text(), json_values, max_size=4))
def test_a_line_holds_any_json(record):
    line, link = encode(record, Link(7, 123))
    assert line.count(b"\n") == 1
    found = decode(line)
    assert found is not None
    assert (found.value, found.link, found.before) == (record, link, 123)
    assert link.number == 8


def test_what_json_cannot_hold_is_refused():
    with pytest.raises(TypeError):
        encode({"a": object()}, START)


def test_complete_data_is_read_whole():
    segment = parse(DATA, PATH, START, may_be_torn=False)
    assert (segment.header, segment.records) == (HEADER, RECORDS)
    assert (segment.length, segment.torn) == (len(DATA), 0)


@pytest.mark.parametrize("length", range(LAST, len(DATA)))
def test_a_last_record_that_was_not_completed_is_dropped(length):
    segment = parse(DATA[:length], PATH, START, may_be_torn=True)
    assert segment.records == RECORDS[:-1]
    assert (segment.length, segment.torn) == (LAST, length - LAST)


def test_an_incomplete_record_is_an_error_where_appending_had_ended():
    with pytest.raises(CheckpointCorruptError, match=r"Line 4 of .*e000001-000001\.log"):
        parse(DATA[:-1], PATH, START, may_be_torn=False)


@pytest.mark.parametrize("mask", [1, 0x20, 0x80, 0xFF])
def test_a_changed_byte_is_never_believed(mask):
    ends = [sum(map(len, LINES[: n + 1])) for n in range(len(LINES))]
    for position in range(len(DATA)):
        damaged = bytearray(DATA)
        damaged[position] ^= mask
        if position >= LAST:
            segment = parse(bytes(damaged), PATH, START, may_be_torn=True)
            assert segment.records == RECORDS[:-1]
        else:
            line = next(n for n, end in enumerate(ends, 1) if position < end)
            with pytest.raises(CheckpointCorruptError, match=f"Line {line} of"):
                parse(bytes(damaged), PATH, START, may_be_torn=True)


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_rubbish_at_the_end_is_dropped(rubbish):
    segment = parse(DATA + rubbish, PATH, START, may_be_torn=True)
    assert segment.records == RECORDS
    assert segment.torn == len(rubbish)


def test_zeros_at_the_end_are_dropped():
    """Some file systems lengthen a file before its content is on disk."""
    assert parse(DATA[:LAST] + bytes(4096), PATH, START, may_be_torn=True).records == RECORDS[:-1]


@pytest.mark.parametrize("data", [b"", LINES[0][:-1], b"\n" + DATA])
def test_a_segment_has_a_header(data):
    with pytest.raises(CheckpointCorruptError):
        parse(data, PATH, START, may_be_torn=True)


@pytest.mark.parametrize(
    ("lines", "place", "problem"),
    [
        ([0, 2, 3], 2, "a line is missing"),
        ([0, 3], 2, "2 are missing"),
        ([1, 2, 3], 1, "a line is missing"),
        ([0, 1, 1, 2, 3], 3, "was there before"),
        ([0, 2, 1, 3], 2, "a line is missing"),
        ([0, 1, 2, 3, 2], 5, "was there before"),
        ([0, 1, 2, 3, 0], 5, "was there before"),
    ],
)
@pytest.mark.parametrize("may_be_torn", [False, True])
def test_lines_that_are_missing_doubled_or_moved_are_named(lines, place, problem, may_be_torn):
    data = b"".join(LINES[i] for i in lines)
    with pytest.raises(CheckpointCorruptError, match=f"Line {place} of .*{problem}"):
        parse(data, PATH, START, may_be_torn=may_be_torn)


def test_a_line_of_another_log_is_named():
    others, _ = chained(HEADER, RECORDS[0], {"cut": 7}, RECORDS[2])
    with pytest.raises(CheckpointCorruptError, match=r"Line 4 of .* from another line"):
        parse(b"".join([*LINES[:3], others[3]]), PATH, START, may_be_torn=True)


def test_the_chain_goes_on_over_segments():
    more, _ = chained({"epoch": 1, "number": 2}, {"n": 1}, after=LINK)
    segment = parse(b"".join(more), PATH, LINK, may_be_torn=True)
    assert segment.last.number == len(LINES) + 2
    assert segment.records == ({"n": 1},)
    with pytest.raises(CheckpointCorruptError, match=r"Line 1 of .*4 are missing"):
        parse(b"".join(more), PATH, START, may_be_torn=True)
    parse(b"".join(more), PATH, None, may_be_torn=True)
