"""When the records of partitions arrived: the newest time stamp at each look, up to the end that it had then."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field

from transom.model.time import Micros

MOST = 1_000
"""Looks that are remembered of a partition; of older ones every other one is forgotten."""


@dataclass
class Arrivals:
    """The looks at one partition."""

    _ends: list[int] = field(default_factory=list)
    _times: list[Micros] = field(default_factory=list)

    def saw(self, end: int, newest: Micros) -> None:
        """Take the end of the partition and the newest time stamp in it; nothing changes when there is nothing new."""
        if self._ends and end <= self._ends[-1]:
            return
        self._ends.append(end)
        self._times.append(max(newest, self._times[-1]) if self._times else newest)
        if len(self._ends) > MOST:  # a record is then dated by a later look
            del self._ends[: MOST // 2 : 2]
            del self._times[: MOST // 2 : 2]

    def before(self, end: int) -> Micros:
        """Return when the last record before an offset had arrived at the latest; 0 if nobody looked."""
        index = bisect.bisect_left(self._ends, end)
        return self._times[min(index, len(self._times) - 1)] if self._times else 0

    def forget(self, before: int) -> None:
        """Forget the looks that saw only records before an offset."""
        index = bisect.bisect_left(self._ends, before)
        del self._ends[:index]
        del self._times[:index]
