"""Panes: the spans between neighbouring window edges, over all windows that share them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from transom.model.calendar import CalendarSpec
from transom.model.time import MAX_TIME, MIN_TIME, Micros
from transom.model.window import SessionSpec, WindowKind, WindowSpec
from transom.windows.calendars import calendar_start_sql

Times: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"


@dataclass(frozen=True)
class Grid:
    """The edges of some windows, and the panes between them.

    One rule (no gcd, no "pairs" case): the pane of time t starts at the greatest edge <= t. Fixed windows have the
    edges o + k S and o + L + k S for length L, slide S, offset o; calendar windows begin and end where the calendar
    says; sessions need panes of at most one grain, so that the rows of a key in one pane are in one session.
    """

    edges: tuple[tuple[Micros, Micros], ...]
    """Pairs (slide, offset modulo slide), without repetitions."""
    calendars: tuple[CalendarSpec, ...] = ()
    """Calendar windows, each once; their edges are irregular, so none is left out because of others."""

    @classmethod
    def of(cls, kinds: Iterable[WindowKind]) -> Grid:
        """Return the grid of some windows, dropping edges that another pair already has."""
        pairs: set[tuple[Micros, Micros]] = set()
        calendars: set[CalendarSpec] = set()
        for kind in kinds:
            if isinstance(kind, CalendarSpec):
                calendars.add(kind)
            elif isinstance(kind, SessionSpec):
                pairs.add((kind.grain, 0))
            else:
                pairs.update((kind.slide, edge % kind.slide) for edge in (kind.offset, kind.offset + kind.length))
        kept = [
            (slide, offset)
            for slide, offset in sorted(pairs)
            if not any(
                (other, at) != (slide, offset) and slide % other == 0 and offset % other == at for other, at in pairs
            )
        ]
        return cls(tuple(kept), tuple(sorted(calendars, key=str)))

    def start_sql(self, time: str, moments: Iterable[Micros] = ()) -> str:
        """Return the pane's start as Spark SQL.

        Args:
            time: A bigint column of microseconds.
            moments: Edges besides those of the windows.
        """
        starts = [f"({time} - pmod({time} - {offset}L, {slide}L))" for slide, offset in self.edges]
        starts += [calendar_start_sql(calendar, time) for calendar in self.calendars]
        starts += [f"IF({time} >= {moment}L, {moment}L, NULL)" for moment in moments]
        return starts[0] if len(starts) == 1 else f"greatest({', '.join(starts)})"

    def start(self, times: Times) -> Times:
        """Return the start of the pane of each time; O(times x edges)."""
        starts = [times - (times - offset) % slide for slide, offset in self.edges]
        starts += [calendar.windows(times)[0] for calendar in self.calendars]
        result = starts[0]
        for start in starts[1:]:
            result = np.maximum(result, start)
        return result

    def end(self, moment: Micros) -> Micros:
        """Return the end of the pane that holds the moment."""
        ends = [moment - (moment - offset) % slide + slide for slide, offset in self.edges]
        return min([*ends, *(calendar.last_end(moment) for calendar in self.calendars)])


def closing_windows(
    kind: WindowKind, panes: Sequence[Micros] | Times, after: Micros, until: Micros
) -> list[tuple[Micros, Micros]]:
    """Return the windows that hold a pane and whose end lies in (after, until], ordered by end; microseconds.

    Args:
        kind: The windows; sessions are no spans of panes, so there is none of theirs.
        panes: Starts of the panes that hold rows, ascending; the windows' edges are edges of the panes.
        after: Previous watermark: windows up to here are closed already.
        until: Watermark now.
    """
    starts = np.asarray(panes, dtype=np.int64)
    if not len(starts) or until <= after or isinstance(kind, SessionSpec):
        return []
    if isinstance(kind, CalendarSpec):
        # They do not overlap: those that end in (after, until] lie between the open ones of the two moments.
        low, high = np.searchsorted(starts, [kind.late_before(after), kind.late_before(until)])
        begins, ends = kind.windows(starts[low:high])
        return sorted(set(zip(begins.tolist(), ends.tolist(), strict=True)))
    return _closing_fixed(kind, starts, after, until)


def windows_between(kind: WindowSpec | CalendarSpec, after: Micros, until: Micros) -> list[tuple[Micros, Micros]]:
    """Return every window that ends in (after, until], rows or not, ordered by end; microseconds."""
    if until <= after:
        return []
    if isinstance(kind, CalendarSpec):
        edges = kind.edges_between(after, until)
        low, high = edges[:-1], edges[1:]
        keep = (high > after) & (high <= until)
        return list(zip(low[keep].tolist(), high[keep].tolist(), strict=True))
    earliest = after - kind.length + 1
    first = earliest + (kind.offset - earliest) % kind.slide
    return [(start, start + kind.length) for start in range(first, until - kind.length + 1, kind.slide)]


def _closing_fixed(spec: WindowSpec, starts: Times, after: Micros, until: Micros) -> list[tuple[Micros, Micros]]:
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
