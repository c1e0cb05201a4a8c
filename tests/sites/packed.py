"""Partials and parcels of them, and what they hold, for tests of what travels."""

from __future__ import annotations

import struct

import pyarrow as pa

from transom.widearea.bodies import from_body, to_body
from transom.widearea.parcels import Parcel, Part, PartitionProgress


def bits(array: pa.Array) -> list:
    """Return values such that equal ones are the same bits."""
    if pa.types.is_float64(array.type):
        return [None if v is None else struct.pack("d", v) for v in array.to_pylist()]
    if pa.types.is_temporal(array.type):  # also of years that Python does not have
        array = array.view(pa.int64() if array.type.bit_width == 64 else pa.int32())
    return array.to_pylist()


def table(rows: list[tuple[int, str | None, int]], name: str = "word") -> pa.Table:
    panes, words, counts = zip(*rows, strict=True) if rows else ((), (), ())
    made = {
        "_pane": pa.array(panes, pa.int64()),
        name: pa.array(words, pa.string()),
        "_s0_count": pa.array(counts, pa.int64()),
    }
    return pa.table(made).replace_schema_metadata({"transom": "{}"})


def parcel(made: pa.Table | None, number: int = 1, flow: str = "words") -> Parcel:
    part = Part("paris", "0123456789abcdef", 3, number - 1, number, number, partitions=(PartitionProgress(5, None),))
    return Parcel(flow, number, (part,), b"" if made is None else to_body(made))


def rows_of(sent: Parcel) -> list[tuple]:
    made = from_body(sent.body)
    return [] if made is None else sorted(zip(*made.to_pydict().values(), strict=True), key=repr)
