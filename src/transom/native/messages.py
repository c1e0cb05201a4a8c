"""Payloads of messages as rows."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from transom.native.lines import LineReader
from transom.native.values import UncertainError


def rows_of_messages(lines: LineReader, payloads: Sequence[bytes | None]) -> pa.RecordBatch:
    """Return the rows of messages, each of which holds one line of JSON without its newline.

    Raises:
        UncertainError: Spark has to judge: of no payload, of empty ones, and of any with a newline in it, too.
    """
    if None in payloads:
        raise UncertainError("a message without a value")
    rows = lines.read(b"\n".join([*payloads, b""]))  # type: ignore[list-item]
    if rows is None or rows.num_rows != len(payloads):
        raise UncertainError("payloads of messages")
    return rows
