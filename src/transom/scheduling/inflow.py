"""How many rows come: by what came just now, and over a time as long as the one that is asked about."""

from __future__ import annotations

from bisect import bisect_right

from transom.model.time import MICROS_PER_SECOND, Micros

NOW: Micros = 2 * MICROS_PER_SECOND
"""What came in this time is what comes now."""
REMEMBERED = 128
"""Moments that are remembered; when there are more, every second one is forgotten."""


class Inflow:
    """The rows of a stream over time, as they arrived; old moments are known less closely than new ones.

    A short burst says little about the next hour, and the mean of the last hour little once fewer come. So what is
    foretold of some time is what came in as long a time before, or less if less comes now. It is counted from arrival
    to arrival, so that rows that come once a second in a file are no burst.

    >>> inflow = Inflow()
    >>> for second in range(1, 11):
    ...     inflow.came(second * 1_000_000, 50 * second)
    >>> inflow.expected(2_000_000)
    100.0
    """

    def __init__(self) -> None:
        self._at: list[Micros] = []
        self._rows: list[int] = []

    def came(self, moment: Micros, rows: int) -> None:
        """Note how many rows have come in all until the newest one arrived; what is older than known before is nothing.

        Args:
            moment: When it arrived, wall time.
            rows: All that came until then, those that were read or left out included.
        """
        if self._at and (moment < self._at[-1] or rows <= self._rows[-1]):
            return
        if self._at and moment == self._at[-1]:
            self._rows[-1] = rows
            return
        self._at.append(moment)
        self._rows.append(rows)
        if len(self._at) > REMEMBERED:
            old = len(self._at) // 2
            self._at[:old], self._rows[:old] = self._at[:old:2], self._rows[:old:2]

    def expected(self, over: Micros) -> float:
        """Return the rows that come in some time, as far as is known; 0 while nothing is."""
        return over * min(self._rate(NOW), self._rate(over)) if len(self._at) > 1 and over > 0 else 0.0

    def _rate(self, over: Micros) -> float:
        """Return the rows per microsecond in the last of so many microseconds, or of `NOW`, until the last arrival."""
        first = max(0, bisect_right(self._at, self._at[-1] - max(over, NOW)) - 1)
        return (self._rows[-1] - self._rows[first]) / (self._at[-1] - self._at[first])
