"""The cheapest cover of a window: which spans to merge, chosen by shortest path over the time boundaries.

Enorm, section 6.1: every way to form a window is a path from its start to its end, each edge a pane or a span that is
complete already, weighted with the keys it holds at run time. Edges only go forward, and panes connect every boundary
with the next one. So the length of an edge can be measured against the panes that it replaces (a potential: the cost
of all panes up to a boundary), and only spans remain to be searched: a schedule of intervals that saves most.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

OVERHEAD = 512
"""Cost of one more part besides its rows, in rows: calls per merge against nanoseconds per row (measured)."""


@dataclass(frozen=True, order=True)
class CoverPart:
    """A span that may be merged instead of the panes in it.

    Raises:
        ValueError: It holds no pane, or its cost is negative.
    """

    end: int
    """Number of the boundary at its end; boundary i is the start of pane i, of those that hold rows."""
    start: int
    """Number of the boundary at its start."""
    cost: int
    """Rows in it plus `OVERHEAD`."""

    def __post_init__(self) -> None:
        if self.start >= self.end or self.cost < 0:
            raise ValueError(f"no part of a cover: {self}")


def cheapest_cover(costs: Sequence[int], parts: Iterable[CoverPart]) -> tuple[CoverPart, ...]:
    """Return the parts of the cheapest cover in order of time; panes fill the gaps between them.

    O(s log s) for s parts, whatever the number of panes: panes without rows do not exist, and those with rows are
    known by their running total.

    Args:
        costs: Cost of the panes before each boundary, ascending: panes a, ..., b - 1 cost `costs[b] - costs[a]`.
        parts: Spans inside the window. Those that save nothing are not used.
    """
    ends: list[int] = [-1]
    saved: list[int] = [0]
    chains: list[tuple[CoverPart, int] | None] = [None]
    """Per entry of `ends`: the last part of the best choice up to that boundary, and the entry it builds on."""
    for part in sorted(parts):
        before = bisect_right(ends, part.start) - 1
        total = saved[before] + costs[part.end] - costs[part.start] - part.cost
        if total <= saved[-1]:
            continue
        if ends[-1] == part.end:
            saved[-1], chains[-1] = total, (part, before)
        else:
            ends.append(part.end)
            saved.append(total)
            chains.append((part, before))
    chosen: list[CoverPart] = []
    at = chains[-1]
    while at is not None:
        chosen.append(at[0])
        at = chains[at[1]]
    return tuple(reversed(chosen))
