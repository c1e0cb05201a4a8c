"""Arithmetic of offsets, each a number per partition; a partition at its first offset is left out, so they compare."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from transom.errors import SourceError
from transom.sources.base import Offset

_UNIT = re.compile(r"(.+) offsets (\d+) to (\d+)")


@dataclass(frozen=True)
class Range:
    """Consecutive offsets of a partition."""

    key: str
    begin: int
    end: int
    """Exclusive."""

    def __str__(self) -> str:
        return f"{self.key} offsets {self.begin} to {self.end - 1}"

    @classmethod
    def parse(cls, text: str) -> Range | None:
        """Return what `str` wrote; None for other texts.

        >>> Range.parse(str(Range("orders/0", 5, 40)))
        Range(key='orders/0', begin=5, end=40)
        """
        found = _UNIT.fullmatch(text)
        return None if found is None else cls(found[1], int(found[2]), int(found[3]) + 1)


def numbers(offset: Offset) -> dict[str, int]:
    """Return an offset that has a number per partition.

    Raises:
        SourceError: It is that of another kind of source.
    """
    if isinstance(offset, dict):
        return offset
    raise SourceError(
        f"The offset {offset!r} belongs to another kind of source.",
        "Use a new checkpoint after changing the kind of source.",
    )


def shares(waiting: Mapping[str, int], most: int) -> dict[str, int]:
    """Return how many offsets of each partition a cut takes: in proportion, so that all are done together.

    Args:
        waiting: Offsets that wait, per partition.
        most: The most that are taken in all, at least 1.

    >>> shares({"a": 90, "b": 10, "c": 0}, 10)
    {'a': 9, 'b': 1, 'c': 0}
    >>> shares({"a": 5, "b": 5}, 3)
    {'a': 2, 'b': 1}
    >>> shares({"a": 5, "b": 5}, 100)
    {'a': 5, 'b': 5}
    """
    total = sum(waiting.values())
    if total <= most:
        return dict(waiting)
    taken = {key: count * most // total for key, count in waiting.items()}
    left = most - sum(taken.values())
    for key in waiting:
        if left and taken[key] < waiting[key]:
            taken[key] += 1
            left -= 1
    return taken


def without(ranges: Iterable[Range], left_out: Iterable[Range]) -> list[Range]:
    """Return ranges without what is left out, which can make several of one; empty ones are dropped.

    >>> without([Range("a", 0, 9), Range("b", 0, 3)], [Range("a", 0, 4), Range("b", 0, 3)])
    [Range(key='a', begin=4, end=9)]
    >>> without([Range("a", 0, 9)], [Range("a", 2, 4), Range("a", 4, 5)])
    [Range(key='a', begin=0, end=2), Range(key='a', begin=5, end=9)]
    """
    gaps: dict[str, list[Range]] = {}
    for gap in sorted(left_out, key=lambda each: each.begin):
        gaps.setdefault(gap.key, []).append(gap)
    found = []
    for each in ranges:
        begin = each.begin
        for gap in gaps.get(each.key, ()):
            found.append(Range(each.key, begin, min(gap.begin, each.end)))
            begin = max(begin, gap.end)
        found.append(Range(each.key, begin, each.end))
    return [each for each in found if each.begin < each.end]


def lost_of(ranges: Sequence[Range], earliest: Mapping[str, int], gone: Set[str]) -> list[Range]:
    """Return what is lost of ranges: what is before the earliest offset, and all of partitions that are gone.

    >>> lost_of([Range("a", 0, 9), Range("b", 0, 3), Range("c", 2, 4)], {"a": 4, "c": 1}, {"b"})
    [Range(key='a', begin=0, end=4), Range(key='b', begin=0, end=3)]
    """
    ends = {each.key: each.end if each.key in gone else min(each.end, earliest.get(each.key, 0)) for each in ranges}
    return [Range(each.key, each.begin, ends[each.key]) for each in ranges if ends[each.key] > each.begin]


def why_lost(lost: Range, gone: Set[str]) -> str:
    """Return why a range is lost, in words."""
    return "the topic was deleted" if lost.key in gone else "removed by retention before it was read"
