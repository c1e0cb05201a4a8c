"""How long receipts take on their way back, and so how far the clock of the other end is ahead of ours.

The way back may be full: a link carries receipts beside the parcels of the other direction. The receipt that came
fastest tells how far the clock is ahead; it is remembered for a minute or two, as the way back may be full for long.
"""

from __future__ import annotations

from transom.model.time import Micros

KEPT: Micros = 60_000_000
"""The fastest receipt is that of this long, and of as long before."""
SMOOTH = 0.125
"""The share of the last receipt in how long they take."""
MOST_BACK: Micros = 250_000
"""What waits before them is bounded by who sends it, to as much; and both directions would drive each other up."""


class Returning:
    """What receipts tell of the way back."""

    def __init__(self) -> None:
        self._since: Micros = 0
        self._fastest: Micros | None = None
        """When the fastest receipt since then was said by the other end's clock, less when it came by ours."""
        self._fastest_before: Micros | None = None
        """The same of the time before."""
        self.back: Micros = 0
        """How much longer than the fastest one receipts take now, smoothed; at most `MOST_BACK`."""

    def came(self, said: Micros, now: Micros) -> None:
        """Take note of a receipt.

        Args:
            said: When it was said, by the other end's clock.
            now: When it came, monotonic.
        """
        if self._fastest is not None and now - self._since >= KEPT:
            self._fastest_before, self._fastest = self._fastest, None
        if self._fastest is None:
            self._since, self._fastest = now, said - now
        self._fastest = max(self._fastest, said - now)
        late = min(MOST_BACK, self.ahead - (said - now))
        self.back += round(SMOOTH * (late - self.back))

    @property
    def ahead(self) -> Micros:
        """How far the other end's clock is ahead, less what the fastest receipt took; 0 before the first one."""
        return max((each for each in (self._fastest, self._fastest_before) if each is not None), default=0)
