"""Complete windows that are kept because longer windows can be made of them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from transom.model.time import Micros
from transom.windows.aggregates.base import Slots
from transom.windows.partials import Partial, renumbered

Span = tuple[Micros, Micros]
"""Start and end, half-open."""


class PanedWindows(Protocol):
    """Windows of any kind that are made of panes."""

    def last_end(self, moment: Micros) -> Micros:
        """Return the end of the last window that holds a row at the moment."""


def is_window(kind: PanedWindows, span: Span) -> bool:
    """Tell whether a span is a window of some kind."""
    start, end = span
    return kind.last_end(start) == end and kind.last_end(start - 1) < end


def has_longer(kinds: Sequence[PanedWindows], span: Span) -> bool:
    """Tell whether a longer window holds the span."""
    start, end = span
    return any(kind.last_end(start) > end or kind.last_end(start - 1) >= end for kind in kinds)


@dataclass
class _Family:
    """Spans of one length, none overlapping another, ascending."""

    starts: list[Micros] = field(default_factory=list)
    ends: list[Micros] = field(default_factory=list)
    rows: list[Partial] = field(default_factory=list)

    def delete(self, first: int, last: int) -> None:
        del self.starts[first:last], self.ends[first:last], self.rows[first:last]


class ReusableWindows:
    """Windows as parts of longer ones, each only as long as none of its panes changes.

    Of overlapping windows of one length only every so many are kept, as many as are enough to form longer ones.
    """

    def __init__(self) -> None:
        self._families: dict[Micros, _Family] = {}

    def has_room(self, span: Span) -> bool:
        """Tell whether no window of its length overlaps it; O(log windows)."""
        family = self._families.get(span[1] - span[0])
        if family is None:
            return True
        place = bisect_right(family.ends, span[0])
        return place == len(family.starts) or family.starts[place] >= span[1]

    def add(self, span: Span, rows: Partial) -> None:
        """Keep a window for which there is room."""
        family = self._families.setdefault(span[1] - span[0], _Family())
        place = bisect_left(family.starts, span[0])
        family.starts.insert(place, span[0])
        family.ends.insert(place, span[1])
        family.rows.insert(place, rows)

    def changed(self, pane: Micros) -> None:
        """Forget the windows that hold a pane, which got late rows; O(lengths x log windows)."""
        for family in self._families.values():
            place = bisect_right(family.ends, pane)
            if place < len(family.starts) and family.starts[place] <= pane:
                family.delete(place, place + 1)

    def inside(self, span: Span) -> Iterator[tuple[Span, Partial]]:
        """Yield the windows inside a span, itself included."""
        start, end = span
        for family in self._families.values():
            first, last = bisect_left(family.starts, start), bisect_right(family.ends, end)
            yield from (((family.starts[i], family.ends[i]), family.rows[i]) for i in range(first, last))

    def drop_before(self, moment: Micros) -> None:
        """Forget the windows that start before the moment: no open window holds them."""
        for family in self._families.values():
            family.delete(0, bisect_left(family.starts, moment))

    def clear(self) -> None:
        """Forget all windows."""
        self._families.clear()

    def renumber(self, numbers: Slots) -> None:
        """Change the key ids, as `partials.renumbered` does."""
        for family in self._families.values():
            family.rows = [renumbered(part, numbers) for part in family.rows]

    def __len__(self) -> int:
        """Return the number of windows kept."""
        return sum(len(family.starts) for family in self._families.values())
