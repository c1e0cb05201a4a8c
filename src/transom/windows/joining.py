"""Which windows a join of two streams gives out when, and which rows it needs for them; pure."""

from __future__ import annotations

import bisect
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from transom.model.calendar import CalendarSpec
from transom.model.joinkind import ANTI, FULL, INNER, LEFT, RIGHT, SEMI
from transom.model.time import MICROS_PER_SECOND, MIN_TIME, Micros
from transom.model.window import SessionSpec, WindowKind, WindowSpec, tumbling

WINDOW, LEFT_SIDE, RIGHT_SIDE = "window", "left", "right"
"""Whose event time a joined row has."""
Counts = Sequence[Mapping[Micros, int]]
"""How many rows each side has in each closed window, by its end."""


class JoinTimes(ABC):
    """The windows of a join. Rows are counted, and late, by `window`; each is given out once, by its end."""

    window: WindowKind
    """That of the rows of either side."""

    def start_of(self, end: Micros) -> Micros:
        """Return the start of the window with this end."""
        assert not isinstance(self.window, SessionSpec)
        return self.window.late_before(end - 1) if isinstance(self.window, CalendarSpec) else end - self.window.length

    @abstractmethod
    def ends(self, counts: Counts, after: Micros, until: Micros) -> Iterator[tuple[Micros, int]]:
        """Yield the windows in (after, until], in order, that may give rows, with the rows that lie in them."""

    @abstractmethod
    def pending(self, counts: Counts, after: Micros) -> Iterator[Micros]:
        """Yield the ends after a moment of windows that need the rows which were counted."""

    @abstractmethod
    def is_done(self, side: int, end: Micros, joint: Micros) -> bool:
        """Tell whether the number of rows in a window is of no use any more when all up to a moment are given out."""

    @abstractmethod
    def needed_from(self, side: int, end: Micros) -> Micros:
        """Return the event time from which on a window needs rows of a side."""

    def needed_before(self, side: int, end: Micros) -> Micros:
        """Return the event time before which the rows of a side lie that windows up to one need."""
        return end

    @abstractmethod
    def needed_until(self, side: int, moment: Micros) -> Micros:
        """Return the end of the last window that needs a row of a moment."""

    @property
    @abstractmethod
    def behind(self) -> Micros:
        """How far the event times of rows may be before the end of what both sides have closed."""

    @abstractmethod
    def watermark(self, joint: Micros) -> Micros:
        """Return the moment that no row is before which comes when both sides have closed all up to `joint`."""


@dataclass(frozen=True)
class WindowTimes(JoinTimes):
    """Rows that meet in a window."""

    window: WindowKind
    how: str = INNER
    time: str = WINDOW

    def ends(self, counts: Counts, after: Micros, until: Micros) -> Iterator[tuple[Micros, int]]:
        """Yield the windows in which there are rows of the sides that the kind of the join needs."""
        for end in sorted({end for side in counts for end in side if after < end <= until}):
            rows = [side.get(end, 0) for side in counts]
            left, right = rows[0] > 0, rows[-1] > 0
            if {LEFT: left, ANTI: left, RIGHT: right, FULL: True}.get(self.how, left and right):
                yield end, sum(rows)

    def pending(self, counts: Counts, after: Micros) -> Iterator[Micros]:
        """Yield the windows that have rows."""
        return (end for side in counts for end in side if end > after)

    def is_done(self, side: int, end: Micros, joint: Micros) -> bool:
        """Tell whether the window is given out."""
        return end <= joint

    def needed_from(self, side: int, end: Micros) -> Micros:
        """Return the start of the window."""
        return self.start_of(end)

    def needed_until(self, side: int, moment: Micros) -> Micros:
        """Return the end of the last window that holds the moment."""
        return self.window.last_end(moment)

    @property
    def behind(self) -> Micros:
        """Nothing, or the length of a window."""
        if self.time == WINDOW:
            return 0
        return self.window.length if isinstance(self.window, WindowSpec) else self.window.last_end(0)

    def watermark(self, joint: Micros) -> Micros:
        """Return what is closed; or the start of the first window that is not."""
        return joint if self.time == WINDOW else self.window.late_before(joint)


FEW_SLICES, MOST_SLICES = 32, 2_880
"""Slices within the bounds: so few as long as a slice is no longer than this, so many at most, as each is counted."""
LONGEST_SLICE: Micros = 60 * MICROS_PER_SECOND


@dataclass(frozen=True)
class IntervalTimes(JoinTimes):
    """Rows whose times are within bounds of each other: `low <= right - left <= high`.

    Time is cut into slices. A pair is given out with the slice of its later row, a row that decides alone (with or
    without a match) with the slice in which the last match could lie: then both sides have closed what could match.
    """

    low: Micros
    high: Micros
    how: str = INNER
    time: str = LEFT_SIDE

    @property
    def after(self) -> tuple[Micros, Micros]:
        """For each side how long after a row of it one may come that matches it."""
        return max(self.high, 0), max(-self.low, 0)

    @property
    def deciding(self) -> tuple[bool, bool]:
        """For each side whether its rows are given out alone: those without a match, or in semi joins those with."""
        return self.how in (LEFT, FULL, SEMI, ANTI), self.how in (RIGHT, FULL)

    @property
    def pairs(self) -> bool:
        """Whether pairs are given out."""
        return self.how not in (SEMI, ANTI)

    @cached_property
    def window(self) -> WindowSpec:  # type: ignore[override]
        """The slices."""
        reach = max(*self.after, self.high - self.low)
        length = max(MICROS_PER_SECOND, min(LONGEST_SLICE, reach // FEW_SLICES), reach // MOST_SLICES)
        return tumbling(length // MICROS_PER_SECOND * MICROS_PER_SECOND)

    @property
    def _kept(self) -> tuple[Micros, Micros]:
        """For each side how long rows are needed: for pairs with later rows, and for rows of the other that decide."""
        (left, right), (decides, other_decides) = self.after, self.deciding
        return (
            max(left, right + self.high if other_decides else 0),
            max(right, left - self.low if decides else 0),
        )

    def ends(self, counts: Counts, after: Micros, until: Micros) -> Iterator[tuple[Micros, int]]:
        """Yield the slices in which a later row of a pair may lie, or a row is decided."""
        found: dict[Micros, int] = {}
        bounds = (self.low, self.high), (-self.high, -self.low)
        for side, (low, high) in enumerate(bounds):
            others = sorted(counts[1 - side])
            for end, rows in counts[side].items():
                if self.pairs and after < end <= until and self._meets(end, others, low, high):
                    found[end] = found.get(end, 0) + rows
                for decided in self._decided(side, end):
                    if after < decided <= until:
                        found[decided] = found.get(decided, 0) + rows
        yield from sorted(found.items())

    def pending(self, counts: Counts, after: Micros) -> Iterator[Micros]:
        """Yield the slices of rows, and those in which they are decided."""
        for side, ends in enumerate(counts):
            for end in ends:
                yield from (each for each in (end, *self._decided(side, end)) if each > after)

    def _decided(self, side: int, end: Micros) -> Sequence[Micros]:
        """Return the slices in which the rows of a slice are decided."""
        if not self.deciding[side]:
            return ()
        later = self.after[side]
        first, last = self.start_of(end) + later, end - 1 + later
        return tuple({self.window.last_end(first), self.window.last_end(last)})

    def _meets(self, end: Micros, others: Sequence[Micros], low: Micros, high: Micros) -> bool:
        """Tell whether rows of a slice may match one in a slice of the other side that does not begin later."""
        length = self.window.length
        place = bisect.bisect_right(others, end - length + low)
        return place < len(others) and others[place] <= end and others[place] - length < end + high

    def is_done(self, side: int, end: Micros, joint: Micros) -> bool:
        """Tell whether no later slice has rows that could match those of a slice."""
        return self.needed_until(side, end - 1) <= joint

    def needed_from(self, side: int, end: Micros) -> Micros:
        """Return the time of the oldest row that could matter."""
        return max(MIN_TIME, self.start_of(end) - self._kept[side])

    def needed_before(self, side: int, end: Micros) -> Micros:
        """Return the same: rows of a side that is always the earlier one lie before the bound."""
        return end - max(self.low if side == 0 else -self.high, 0)

    def needed_until(self, side: int, moment: Micros) -> Micros:
        """Return the slice of the last row that could match."""
        return self.window.last_end(moment + self._kept[side])

    @property
    def behind(self) -> Micros:
        """A slice, and what a row can wait for a match."""
        sides = self.time == LEFT_SIDE or self.deciding[0], self.time == RIGHT_SIDE or self.deciding[1]
        return self.window.length + max(after for after, counts in zip(self.after, sides, strict=True) if counts)

    def watermark(self, joint: Micros) -> Micros:
        """Return the time of the oldest row that the next slice could give."""
        if joint <= MIN_TIME:
            return MIN_TIME
        return max(MIN_TIME, self.window.late_before(joint) - (self.behind - self.window.length))
