"""How many executors there should be: enough for the limits with some to spare, and the same as now for a little."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import TypeAlias

from transom.planning.drift import GAIN
from transom.planning.solve import first

AHEAD = 1.25
"""Executors that are asked for do so many times the rates: more than rates move before there is another plan."""
SPARE = 1.5
"""Those that are left do so many times the rates, so that none come and go with what is known of costs."""

Ratio: TypeAlias = Callable[[int, float], float]
"""Returns the latency over the limit, with the margin, with so many executors at so many times the rates."""


@dataclass(frozen=True)
class Fleet:
    """The executors of an application."""

    asked: int
    """That were asked for last, or were there."""
    least: int
    """That there were before any were asked for; fewer there never are."""
    most: int
    """That may be asked for."""
    cores: int
    """Of each."""
    gives_back: bool = True
    """Whether some may go now."""
    room: int | None = None
    """That there are, where more were asked for and did not come: the cluster has no more now; None if it may have."""


def wanted(fleet: Fleet, ratio: Ratio) -> int:
    """Return how many executors there should be.

    More, if those that there are do not keep the limits; then so many as keep them with rates that rise by a quarter,
    or, where no number does, as few as do about as well as the most, and keep them now if any do. Fewer, if the limits
    are kept, and would be with rates that rise by half. O(log most) ratios, two where nothing changes.

    Args:
        fleet: The executors that there are and may be.
        ratio: What so many lead to; falls with their number.

    >>> wanted(Fleet(asked=2, least=2, most=8, cores=1), lambda executors, times: 4 * times / executors)
    5
    """
    low, high = fleet.least, max(fleet.least, fleet.most)
    now = min(max(fleet.asked, low), high)

    def enough(low: int, high: int, times: float, bound: float = 1.0) -> int:
        found = first(lambda number: ratio(low + number - 1, times) <= bound, high - low + 1)
        return high if found is None else low + found - 1

    here = ratio(now, 1.0)
    if here <= 1:
        gives = fleet.gives_back and now > low and ratio(now - 1, SPARE) <= 1
        return enough(low, now - 1, SPARE) if gives else now
    if now == high:
        return now
    top = ratio(high, 1.0)
    if top > 1 and isfinite(here) and here <= top * (1 + GAIN):
        return now
    best = ratio(high, AHEAD)
    if not isfinite(best):
        return high
    if best <= 1:
        return enough(now + 1, high, AHEAD)
    ahead = enough(now + 1, high, AHEAD, best * (1 + GAIN))
    return ahead if top > 1 else max(ahead, enough(now + 1, high, 1.0))
