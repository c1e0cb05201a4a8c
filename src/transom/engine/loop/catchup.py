"""The distance of a stream from what comes now: pure arithmetic on what is left to read."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from transom.model.time import MICROS_PER_SECOND, Micros

OVER: Micros = 10 * MICROS_PER_SECOND
"""Time over which the speed is taken."""


@dataclass
class CatchUp:
    """One stream of one run, from its start until it has once read all that there was.

    >>> at = CatchUp()
    >>> for second, rows in enumerate([1000, 990, 890, 790]):
    ...     at.left(second * 1_000_000, rows)
    >>> at.time_left
    7900000
    """

    since: Micros | None = None
    """Wall time of the look that first found no more than one micro-batch takes; None before. Rows that arrived earlier
    waited for the application, and what their results took says nothing of how fast it is."""
    _levels: deque[tuple[Micros, int]] = field(default_factory=deque)
    """Monotonic times, and the rows that were left then; each number once."""
    _warm: bool = False
    """Whether a micro-batch has ended: the first is far slower than those that follow, and says nothing of them."""

    def looked(self, wall: Micros, more: bool) -> None:
        """Take a look at the source: whether it had more rows than the next micro-batch takes."""
        if self.since is None and not more:
            self.since = wall
            self._levels.clear()

    def left(self, now: Micros, rows: int) -> None:
        """Take the rows that are left at a monotonic time."""
        if not self._levels or self._levels[-1][1] != rows:
            if self._levels and not self._warm:
                self._levels.clear()
                self._warm = True
            self._levels.append((now, rows))
        while len(self._levels) > 2 and self._levels[1][0] < now - OVER:
            self._levels.popleft()

    @property
    def time_left(self) -> Micros | None:
        """The time that the rest takes at the speed of the last seconds; None while unknown, or the rest grows."""
        if len(self._levels) < 2:
            return None
        (begin, most), (end, rows) = self._levels[0], self._levels[-1]
        return None if rows >= most else rows * (end - begin) // (most - rows)
