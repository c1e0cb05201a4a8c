"""Payloads of messages as rows: each is a line, or Spark judges them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.native.lines import LineReader
from transom.native.messages import rows_of_messages
from transom.native.values import UncertainError

LINES = LineReader(pa.schema([("s", pa.string()), ("a", pa.int64())]))
GOOD = b'{"s":"p","a":1}'
ODD = [None, b"", b"\n", GOOD + b"\n", b"\n" + GOOD, GOOD + b"\n" + GOOD, b'{"s":"p",\n"a":1}', b"{", b"\xff"]


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=9))
def test_each_message_is_a_row(numbers: list[int]) -> None:
    found = rows_of_messages(LINES, [b'{"s":"p","a":%d}' % number for number in numbers])
    assert found.to_pylist() == [{"s": "p", "a": number} for number in numbers]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_odd_ones_are_for_spark_to_judge(odd: bytes | None, place: int) -> None:
    """Wherever they are: two lines in one message are no two rows, nor do they make up for an empty one."""
    payloads = [GOOD, GOOD]
    payloads.insert(place, odd)  # type: ignore[arg-type]
    for some in (payloads, [*payloads, b""], [*payloads, GOOD + b"\n" + GOOD]):
        with pytest.raises(UncertainError):
            rows_of_messages(LINES, some)
