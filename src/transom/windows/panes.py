"""Panes: the spans between neighbouring window edges, over all windows that share them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from transom.model.time import MAX_TIME, MIN_TIME, Micros
from transom.model.window import WindowSpec

Times: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"


@dataclass(frozen=True)
class Grid:
    """The edges of some window specifications, and the panes between them.

    One rule (no gcd, no "pairs" case): the pane of time t starts at the greatest edge <= t. Edges are o + k S and
    o + L + k S for length L, slide S, offset o.
    """

    edges: tuple[tuple[Micros, Micros], ...]
    """Pairs (slide, offset modulo slide), without repetitions."""

    @classmethod
    def of(cls, specs: Iterable[WindowSpec]) -> Grid:
        """Return the grid of some windows, dropping edges that another pair already has."""
        pairs = {(s.slide, edge % s.slide) for s in specs for edge in (s.offset, s.offset + s.length)}
        kept = [
            (slide, offset)
            for slide, offset in sorted(pairs)
            if not any(
                (other, at) != (slide, offset) and slide % other == 0 and offset % other == at for other, at in pairs
            )
        ]
        return cls(tuple(kept))

    def start_sql(self, time: str) -> str:
        """Return the pane's start as Spark SQL over a bigint column of microseconds."""
        starts = [f"({time} - pmod({time} - {offset}L, {slide}L))" for slide, offset in self.edges]
        return starts[0] if len(starts) == 1 else f"greatest({', '.join(starts)})"

    def start(self, times: Times) -> Times:
        """Return the start of the pane of each time; O(times x edges)."""
        result = times - (times - self.edges[0][1]) % self.edges[0][0]
        for slide, offset in self.edges[1:]:
            np.maximum(result, times - (times - offset) % slide, out=result)
        return result

    def end(self, moment: Micros) -> Micros:
        """Return the end of the pane that holds the moment."""
        return min(moment - (moment - offset) % slide + slide for slide, offset in self.edges)


def closing_windows(
    spec: WindowSpec, panes: Sequence[Micros] | Times, after: Micros, until: Micros
) -> list[tuple[Micros, Micros]]:
    """Return the windows that hold a pane and whose end lies in (after, until], ordered by end; microseconds.

    Args:
        spec: The windows.
        panes: Starts of the panes that hold rows, ascending; edges of `spec` are edges of the panes.
        after: Previous watermark: windows up to here are closed already.
        until: Watermark now.
    """
    if not len(panes) or until <= after:
        return []
    starts = np.asarray(panes, dtype=np.int64)
    highs = starts - (starts - spec.offset) % spec.slide
    # The first window that holds a pane is the first one that ends after the pane's start.
    lows = highs - (spec.length - (starts - highs) - 1) // spec.slide * spec.slide
    first = spec.late_before(after) if after > MIN_TIME else None
    last = spec.late_before(until) - spec.slide if until < MAX_TIME else None
    if first is not None:
        np.maximum(lows, first, out=lows)
    if last is not None:
        np.minimum(highs, last, out=highs)
    keep = lows <= highs
    lows, highs = lows[keep], highs[keep]
    windows: list[tuple[Micros, Micros]] = []
    reached: Micros | None = None
    for low, high in zip(lows.tolist(), highs.tolist(), strict=True):
        begin = low if reached is None else max(low, reached + spec.slide)
        windows.extend((start, start + spec.length) for start in range(begin, high + 1, spec.slide))
        reached = high if reached is None else max(reached, high)
    return windows
