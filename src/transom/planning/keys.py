"""How many distinct keys, and rows of partials, so many rows make."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass

from transom.errors import DefinitionError

AGAIN = "Make it again: transom profile JOB --out FILE."
"""The remedy for a profile that cannot be right."""


@dataclass(frozen=True)
class KeyCurve:
    """How many distinct keys so many rows have: points that were measured, straight lines in logarithms between them.

    The first line begins at one row with one key; behind the last point the last line goes on, at most as steep as the
    rows: twice as many have at most twice the keys. There are never more keys than rows.

    >>> round(KeyCurve(((100.0, 10.0), (10_000.0, 100.0))).keys(1_000), 2)
    31.62
    """

    points: tuple[tuple[float, float], ...] = ()
    """(rows, distinct keys), both at least 1, in order of the rows."""

    def __post_init__(self) -> None:
        rows = [point[0] for point in self.points]
        keys = [point[1] for point in self.points]
        ordered = rows == sorted(set(rows)) and keys == sorted(keys)
        if not ordered or any(not 1 <= keys <= rows < math.inf for rows, keys in self.points):
            raise DefinitionError(f"profile: {self.points} is no curve of keys over rows.", AGAIN)

    def keys(self, rows: float) -> float:
        """Return the distinct keys of so many rows; each row is one where nothing was measured."""
        if not self.points or rows <= 1:
            return max(0.0, rows)
        place = min(bisect_left(self.points, (rows, 0.0)), len(self.points) - 1)
        before = self.points[place - 1] if place else (1.0, 1.0)
        return min(rows, _between(before, self.points[place], rows))


def _between(one: tuple[float, float], other: tuple[float, float], rows: float) -> float:
    """Return the keys of so many rows on the line, in logarithms, through two points."""
    if other[0] <= one[0]:
        return other[1]
    slope = math.log(other[1] / one[1]) / math.log(other[0] / one[0])
    if rows > other[0]:
        return float(other[1] * (rows / other[0]) ** min(1.0, slope))
    return float(one[1] * (rows / one[0]) ** slope)


@dataclass(frozen=True)
class PaneKeys:
    """How many rows of partials so many rows make: the keys of each pane that they reach into.

    >>> curve = KeyCurve(((100.0, 10.0), (10_000.0, 100.0)))
    >>> round(PaneKeys(curve, rows=100.0).keys(9_900))  # 100 panes, of which the first and the last are parts
    995
    """

    curve: KeyCurve
    rows: float = math.inf
    """Rows of a pane; endless where all are in one."""
    fanout: float = 1.0
    """Rows that `map` makes of one, at most."""

    def keys(self, rows: float) -> float:
        """Return the rows of partials of so many rows that came one after the other."""
        panes = 1 + rows / self.rows
        return panes * self.curve.keys(self.fanout * rows / panes)
