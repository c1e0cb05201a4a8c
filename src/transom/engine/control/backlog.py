"""The backlog of one stream: the rows that wait in its source, and the rate at which they arrive."""

from __future__ import annotations

import math

from transom.engine.streams.stream import RunningStream
from transom.model.time import MICROS_PER_SECOND, Micros

RATE_OVER: Micros = 2 * MICROS_PER_SECOND
"""Time constant of the arrival rate."""


class BacklogEstimate:
    """Follows the rows that wait; all times are monotonic.

    Args:
        stream: The stream.
        now: The time.
    """

    def __init__(self, stream: RunningStream, now: Micros) -> None:
        self._stream = stream
        self.rows = 0
        """Rows that wait in the source, as far as it knows."""
        self.since: Micros | None = None
        """Arrival of the oldest of them."""
        self.rate = 0.0
        """Rows that arrive per microsecond."""
        self.looked_at: tuple[object, object] | None = None
        """Offset of the stream, and of the source's newest row, at the last look."""
        self._committed = 0
        self._arrived, self._arrived_at = 0, now

    def read(self, rows: int) -> None:
        """Note rows that do not wait any more."""
        self._committed += rows

    def looked(self, ahead: Micros, now: Micros) -> bool:
        """Take in what the source has; return whether another row is the oldest.

        Args:
            ahead: By how much the wall clock, which dates rows, is ahead of the monotonic one.
            now: The time.
        """
        stream, offset = self._stream, self._stream.state.offset
        seen = offset, stream.seen.latest
        if seen == self.looked_at:
            return False
        before, self.looked_at = self.looked_at, seen
        self.rows = stream.backlog()
        self._measure_rate(before is None, now)
        waiting = self.since
        if offset == stream.seen.latest:
            self.since = None
        elif before is None or before[0] != offset or self.since is None:  # more rows make the oldest no other
            oldest = stream.source.ingested_at(offset, stream.source.cut(offset, 1).end)
            self.since = min(now, oldest - ahead) if oldest else now
        return self.since != waiting

    def _measure_rate(self, first: bool, now: Micros) -> None:
        arrived = self._committed + self.rows
        passed = now - self._arrived_at
        if not first and passed > 0:
            share = 1 - math.exp(-passed / RATE_OVER)
            self.rate += share * (max(0, arrived - self._arrived) / passed - self.rate)
        if first or passed > 0:
            self._arrived, self._arrived_at = arrived, now

    def oldest(self, now: Micros) -> Micros:
        """Return the arrival of the oldest row that waits; now if none does."""
        return now if self.since is None else self.since
