"""Footers and page headers of Parquet files, strictly: what damages them is found before another reader sees it.

Arrow takes much that Spark's reader refuses, and ends the process for some of what it refuses.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from transom.native.thrift import CompactReader, OddThriftError, Struct
from transom.native.values import UncertainError

MOST_BYTES = 1 << 20
"""Of a footer: larger ones would take too long to read here."""
_MAGIC = b"PAR1"
_HEADER = 16 << 10
"""Bytes in which the header of a page ends."""
_DATA, _DICTIONARY, _DATA_2 = 0, 2, 3
_EMPTY = Struct({})
_TYPE, _REPETITION, _CONVERTED = frozenset(range(8)), frozenset(range(3)), frozenset(range(22))
_CODECS = frozenset([0, 1, 2, 6])
"""Compressions that are certain: none, Snappy, gzip, Zstandard."""
_ENCODINGS = frozenset([0, 2, 3, 8])
"""Encodings that are certain: plain, of dictionaries (old and new), of runs."""
_PAGES = frozenset([_DATA, _DICTIONARY, _DATA_2])
_STATISTICS = Struct(
    {**dict.fromkeys((1, 2, 5, 6), "binary"), **dict.fromkeys((3, 4), "i64"), **dict.fromkeys((7, 8), "bool")}
)
_DECIMAL, _TIMESTAMP, _INTEGER = 5, 8, 10
_CONVERSIONS = {1: 0, 2: 1, 3: 3, 4: 4, _DECIMAL: 5, 6: 6, 12: 19, 13: 20}
"""Types in the old way of saying them, by the new one: texts, maps, lists, enumerations, decimals, dates, documents."""
_TIMESTAMPS = {1: 9, 2: 10}
"""By the unit."""
_INTEGERS = {(bits, signed): 11 + place + 4 * signed for place, bits in enumerate((8, 16, 32, 64)) for signed in (0, 1)}
_UNIT = Struct(dict.fromkeys((1, 2, 3), _EMPTY), union=True)
_TIME = Struct({1: "bool", 2: _UNIT}, frozenset([1, 2]))
_LOGICAL = Struct(
    {
        **dict.fromkeys((1, 2, 3, 4, 6, 11, 12, 13, 14, 15), _EMPTY),
        5: Struct({1: "i32", 2: "i32"}, frozenset([1, 2])),
        **dict.fromkeys((7, 8), _TIME),
        10: Struct({1: "i8", 2: "bool"}, frozenset([1, 2])),
    },
    union=True,
)
_ELEMENT = Struct(
    {1: _TYPE, 2: "i32", 3: _REPETITION, 4: "binary", 5: "i32", 6: _CONVERTED}
    | {7: "i32", 8: "i32", 9: "i32", 10: _LOGICAL},
    frozenset([4]),
)
_NAMED = Struct({1: "binary", 2: "binary"}, frozenset([1]))
_COLUMN = Struct(
    {1: _TYPE, 2: [_ENCODINGS], 3: ["binary"], 4: _CODECS, 5: "i64", 6: "i64", 7: "i64", 8: [_NAMED], 9: "i64"}
    | {10: "i64", 11: "i64", 12: _STATISTICS, 14: "i64", 15: "i32"}
    | {13: [Struct({1: _PAGES, 2: _ENCODINGS, 3: "i32"}, frozenset([1, 2, 3]))]}
    | {16: Struct({1: "i64", 2: ["i64"], 3: ["i64"]})},
    frozenset([1, 2, 3, 4, 5, 6, 7, 9]),
)
_CHUNK = Struct({2: "i64", 3: _COLUMN, 4: "i64", 5: "i32", 6: "i64", 7: "i32"}, frozenset([2, 3]))
_GROUP = Struct(
    {1: [_CHUNK], 2: "i64", 3: "i64", 4: [Struct({1: "i32", 2: "bool", 3: "bool"}, frozenset([1, 2, 3]))]}
    | {5: "i64", 6: "i64", 7: "i16"},
    frozenset([1, 2, 3]),
)
_FOOTER = Struct(
    {1: "i32", 2: [_ELEMENT], 3: "i64", 4: [_GROUP], 5: [_NAMED], 6: "binary", 7: [Struct({1: _EMPTY}, union=True)]},
    frozenset([1, 2, 3, 4]),
)
_PAGE = Struct(
    {
        1: _PAGES,
        **dict.fromkeys((2, 3, 4), "i32"),
        5: Struct(
            {1: "i32", 2: _ENCODINGS, 3: _ENCODINGS, 4: _ENCODINGS | {4}, 5: _STATISTICS}, frozenset([1, 2, 3, 4])
        ),
        7: Struct({1: "i32", 2: _ENCODINGS, 3: "bool"}, frozenset([1, 2])),
        8: Struct(
            {1: "i32", 2: "i32", 3: "i32", 4: _ENCODINGS, 5: "i32", 6: "i32", 7: "bool", 8: _STATISTICS},
            frozenset([1, 2, 3, 4, 5, 6]),
        ),
    },
    frozenset([1, 2, 3]),
)


@dataclass(frozen=True)
class Chunk:
    """A column of a row group."""

    name: str
    """Its path, the parts joined by dots."""
    start: int
    size: int
    unpacked: int
    """Bytes when it is unpacked, with the headers of its pages."""
    values: int
    """Their number, nulls included."""


@dataclass(frozen=True)
class Group:
    """A row group."""

    rows: int
    chunks: tuple[Chunk, ...]

    @property
    def start(self) -> int:
        """Its first byte."""
        return min(chunk.start for chunk in self.chunks)


def groups_of(file: int) -> tuple[Group, ...]:
    """Return the row groups of an open file, each of which is where the one before ends.

    Args:
        file: The number of the open file.

    Raises:
        UncertainError: The footer is damaged, or has something in it that not every reader may know.
    """
    size = os.fstat(file).st_size
    end = os.pread(file, 8, max(size - 8, 0))
    length = int.from_bytes(end[:4], "little")
    if os.pread(file, 4, 0) != _MAGIC or end[4:] != _MAGIC or not 0 < length <= min(size - 12, MOST_BYTES):
        raise UncertainError("it is no Parquet file, or its footer is large")
    reader = CompactReader(os.pread(file, length, size - 8 - length))
    try:
        footer = reader.struct(_FOOTER)
        groups = tuple(Group(group[3], tuple(map(_chunk, group[1]))) for group in footer[4])
        names = _leaves(footer[2])
    except (OddThriftError, UnicodeDecodeError) as error:
        raise UncertainError(f"its footer: {error}") from error
    place, last = len(_MAGIC), size - 8 - length
    for group in groups:
        if [chunk.name for chunk in group.chunks] != names or not names or group.rows < 0:
            raise UncertainError("the columns of a row group")
        for chunk in group.chunks:
            if chunk.start != place or chunk.size < 0:
                raise UncertainError("where columns are")
            place += chunk.size
    if place > last or footer[3] != sum(group.rows for group in groups) or reader.place != length:
        raise UncertainError("the end of the rows")
    return groups


def _chunk(of: dict[int, Any]) -> Chunk:
    column = of[3]
    start = min(column[9], column.get(11) or column[9])
    return Chunk(_path(column[3]), start, column[7], column[6], column[5])


def _path(parts: Iterable[bytes]) -> str:
    return ".".join(part.decode() for part in parts)


def _leaves(elements: Sequence[dict[int, Any]]) -> list[str]:
    """Return the paths of the columns of a schema, which is a tree of which each node says how many parts it has."""
    found: list[str] = []
    waiting: list[tuple[str, int]] = []
    """Groups that are not at their end, with what is still to come of each."""
    for number, element in enumerate(elements):
        name, children = element[4].decode(), element.get(5, 0)
        if not number:
            waiting.append(("", children))
            continue
        if not waiting or (children > 0) == (1 in element) or children < 0 or 3 not in element:
            raise OddThriftError("the schema")
        if 6 in element and 10 in element and not _is_converted(element, element[10]):
            raise OddThriftError("a type that is said in two ways")
        path = waiting[-1][0] + name
        waiting[-1] = waiting[-1][0], waiting[-1][1] - 1
        if children:
            waiting.append((f"{path}.", children))
        else:
            found.append(path)
        while waiting and not waiting[-1][1]:
            waiting.pop()
    if waiting:
        raise OddThriftError("the schema")
    return found


def _is_converted(element: dict[int, Any], logical: dict[int, Any]) -> bool:
    """Tell whether a type is the same in the old way of saying it, of which readers may take either."""
    ((kind, details),) = logical.items()
    if kind == _DECIMAL and (element.get(7), element.get(8)) != (details[1], details[2]):
        return False
    if kind == _TIMESTAMP:
        converted = _TIMESTAMPS.get(*details[2])
    elif kind == _INTEGER:
        converted = _INTEGERS.get((details[1], details[2]))
    else:
        converted = _CONVERSIONS.get(kind)
    return bool(element[6] == converted)


def check_pages(file: int, chunk: Chunk, rows: int) -> None:
    """See that a column that is not nested is pages one behind the other, of as many values as there are rows.

    Raises:
        UncertainError: It is something else.
    """
    place, end, values, unpacked = chunk.start, chunk.start + chunk.size, 0, 0
    while place < end:
        reader = CompactReader(os.pread(file, _HEADER, place))
        try:
            page = reader.struct(_PAGE)
        except OddThriftError as error:
            raise UncertainError(f"a page of the column {chunk.name}: {error}") from error
        kind = {_DATA: 5, _DICTIONARY: 7, _DATA_2: 8}[page[1]]
        if not page.keys() <= {1, 2, 3, 4, kind} or kind not in page or min(page[2], page[3], page[kind][1]) < 0:
            raise UncertainError(f"a page of the column {chunk.name}")
        if page[1] == _DICTIONARY and place > chunk.start:
            raise UncertainError(f"a dictionary of the column {chunk.name}")
        values += 0 if page[1] == _DICTIONARY else page[kind][1]
        unpacked += reader.place + page[2]
        place += reader.place + page[3]
    if place != end or values != rows or chunk.values != rows or unpacked != chunk.unpacked:
        raise UncertainError(f"the pages of the column {chunk.name}")
