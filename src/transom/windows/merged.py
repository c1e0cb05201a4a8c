"""Partials of a store merged: any of them, and the rows of the panes in a span along the cheapest cover.

What reads and merges panes for others is no part of the store that holds these: a store that is not needed any more
goes at once, and does not wait for Python's collector of cycles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from transom.model.time import Micros
from transom.windows.aggregates.base import Primitive, Types
from transom.windows.cover import OVERHEAD, CoverPart, cheapest_cover
from transom.windows.keys import KeyIndex
from transom.windows.paneindex import PaneIndex
from transom.windows.partials import Partial, merge
from transom.windows.reusable import ReusableWindows


@dataclass
class Work:
    """The work of consolidation since the store was made."""

    windows: int = 0
    """Windows with rows."""
    merges: int = 0
    """Merges of two partials, all of them: into panes, spans and windows."""
    inputs: int = 0
    """Partials that windows were made of; each merge takes one more."""
    pane_inputs: int = 0
    """Partials that the same windows would have been made of without complete windows and spans: their panes."""


@dataclass
class Merger:
    """Merges the partials of a store."""

    keys: KeyIndex
    """Numbers the keys."""
    primitives: dict[Primitive, Types]
    """What is kept for each key, with the types of the columns."""
    work: Work = field(default_factory=Work)

    def __call__(self, parts: Sequence[Partial]) -> Partial:
        """Return partials merged into one, and count it as work."""
        self.work.merges += len(parts) - 1
        return merge(parts, self.primitives, len(self.keys))


@dataclass(frozen=True, eq=False)
class PaneSpans:
    """Gives the rows of spans of panes."""

    panes: PaneIndex
    complete: ReusableWindows
    """Complete windows, in the place of their panes."""
    merge: Merger

    def __call__(self, start: Micros, end: Micros) -> Partial | None:
        """Return the rows of the panes in [start, end), merged along the cheapest cover; None without rows."""
        held = self.panes
        low, high = held.boundary(start), held.boundary(end)
        if low == high:
            return None
        rows_of: dict[CoverPart, Partial] = {}
        for (begin, stop), rows in self.complete.inside((start, end)):
            rows_of[CoverPart(held.boundary(stop), held.boundary(begin), len(rows) + OVERHEAD)] = rows
        parts: list[Partial] = []
        at = low
        for part in cheapest_cover(held.totals(), rows_of):
            parts += [held.pane(place) for place in range(at, part.start)]
            parts.append(rows_of[part])
            at = part.end
        parts += [held.pane(place) for place in range(at, high)]
        return self.merge(parts)
