"""What is counted over the rows of a cut. Workers import this: what it imports has to be little."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from transom.model.time import Micros
from transom.scheduling.arrivals import DelayMoments


@dataclass(frozen=True)
class CutStats:
    """Counts over the raw rows of a cut."""

    rows: int = 0
    newest: tuple[Micros | None, ...] = ()
    """Largest believed event time of each source partition; None where the cut had no such row."""
    null_time: int = 0
    ahead: int = 0
    corrupt: int = 0
    out_of_range: int = 0
    delays: DelayMoments = field(default_factory=DelayMoments)
    """Arrival minus event time of the rows that queries see; none where the source does not tell when they arrived."""

    @property
    def bad(self) -> int:
        """Rows that no query sees."""
        return self.null_time + self.ahead + self.corrupt + self.out_of_range

    def with_timeless(self, null_time: int, out_of_range: int) -> CutStats:
        """Return the counts with rows that a transformation left without an event time, or with one out of range."""
        return replace(self, null_time=self.null_time + null_time, out_of_range=self.out_of_range + out_of_range)

    def __add__(self, other: CutStats) -> CutStats:
        """Return the counts over the rows of both."""
        pairs = itertools.zip_longest(self.newest, other.newest)
        return CutStats(
            self.rows + other.rows,
            tuple(max((t for t in pair if t is not None), default=None) for pair in pairs),
            self.null_time + other.null_time,
            self.ahead + other.ahead,
            self.corrupt + other.corrupt,
            self.out_of_range + other.out_of_range,
            self.delays + other.delays,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the counts as JSON."""
        return {
            "rows": self.rows,
            "newest": list(self.newest),
            "null_time": self.null_time,
            "ahead": self.ahead,
            "corrupt": self.corrupt,
            "out_of_range": self.out_of_range,
            "delays": [self.delays.records, self.delays.total, self.delays.spread],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> CutStats:
        """Return what `to_json` wrote."""
        delays = DelayMoments(*value.get("delays", ()))
        return cls(**{**value, "newest": tuple(value["newest"]), "delays": delays})
