"""The highest rate that is kept, by a search that doubles, then halves the interval. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Trial:
    """What came of a rate."""

    rate: float
    """Per second."""
    seconds: float
    """The quantile of the latencies that has a limit; infinite if too many never ended."""


@dataclass(frozen=True)
class Search:
    """Which rate to try next: half or twice as much until one is kept and one is not, then between the two.

    It ends when they differ by no more than a factor, or when all rates between the bounds are kept, or none. With
    rates r and bound b it takes O(|log2(r / first)| + log2(1 / log2(ratio))) trials.
    """

    limit: float
    """Seconds."""
    first: float
    """Rate to begin with."""
    ratio: float
    """Of the lowest rate that is not kept to the highest that is."""
    least: float
    """No rate below it is tried."""
    most: float = math.inf
    """No rate above it is tried."""

    def __post_init__(self) -> None:
        if not (0 < self.least <= self.first <= self.most and self.ratio > 1):
            raise ValueError(f"{self}: 0 < least <= first <= most and ratio > 1 are needed.")

    def best(self, trials: Sequence[Trial]) -> Trial | None:
        """Return the highest rate that was kept; None if none was."""
        kept = [trial for trial in trials if trial.seconds <= self.limit]
        return max(kept, key=lambda trial: trial.rate, default=None)

    def next(self, trials: Sequence[Trial]) -> float | None:
        """Return the rate to try after these; None when the search has ended."""
        if not trials:
            return self.first
        kept = self.best(trials)
        lost = min((trial.rate for trial in trials if trial.seconds > self.limit), default=None)
        if kept is None:
            rate = trials[-1].rate / 2
        elif lost is None:
            rate = kept.rate * 2
        elif lost > self.ratio * kept.rate:
            rate = math.sqrt(kept.rate * lost)
        else:
            return None
        return rate if self.least <= rate <= self.most else None
