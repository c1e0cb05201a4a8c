"""How far predictions are off what was measured: errors beyond half the range of the repeats, trends, bounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import fmean

APART = 0.1
"""Relative difference from which on the better of two settings should be told."""


@dataclass(frozen=True)
class Compared:
    """A number that was predicted, and what it was in each repeat."""

    predicted: float
    measured: Sequence[float]

    @property
    def mean(self) -> float:
        """The mean of the repeats."""
        return fmean(self.measured)

    @property
    def raw(self) -> float:
        """By which part of the mean of the repeats the prediction is off.

        >>> Compared(1.2, [0.9, 1.1]).raw
        0.2
        """
        return round(abs(self.predicted - self.mean) / self.mean, 12)

    @property
    def error(self) -> float:
        """The same beyond half the range of the repeats.

        >>> Compared(1.2, [0.9, 1.1]).error
        0.1
        """
        half = (max(self.measured) - min(self.measured)) / 2
        return round(max(0.0, abs(self.predicted - self.mean) - half) / self.mean, 12)


@dataclass(frozen=True)
class Outcome:
    """A setting: what was predicted of it, and what was seen."""

    job: str
    label: str
    mean: Compared
    naive: float
    """The mean by the scheduler's line and half the trigger."""
    quantile: Compared | None = None
    """Of 0.99; None if there were too few results."""
    bound: float = 0.0
    """That of Cantelli."""
    phases: dict[str, Compared] = field(default_factory=dict)


def share(values: Iterable[bool]) -> float:
    """Return which share of some statements holds; NaN of none.

    >>> share([True, False])
    0.5
    """
    known = list(values)
    return sum(known) / len(known) if known else float("nan")


def trends(outcomes: Sequence[Outcome]) -> list[bool]:
    """Return of each two settings of a job that differ whether the better one was told.

    They differ if their means do by more than a tenth of the smaller, and no repeat of one lies among those of the
    other.
    """
    told = []
    for one, other in combinations(outcomes, 2):
        if one.job != other.job:
            continue
        low, high = sorted((one, other), key=lambda each: each.mean.mean)
        differ = high.mean.mean > (1 + APART) * low.mean.mean and min(high.mean.measured) > max(low.mean.measured)
        if differ:
            told.append(low.mean.predicted < high.mean.predicted)
    return told


def figures(outcomes: Sequence[Outcome], least: float = 0.005) -> dict[str, float]:
    """Return the figures of the benchmark.

    Args:
        outcomes: Of all settings.
        least: Seconds from which on a phase counts.
    """
    quantiles = [one for one in outcomes if one.quantile is not None]
    phases = [each for one in outcomes for each in one.phases.values() if each.mean > least]
    naive = [Compared(one.naive, one.mean.measured) for one in outcomes]
    bounds = [one.bound / one.quantile.mean for one in quantiles if one.quantile is not None]
    return {
        "mean.settings": float(len(outcomes)),
        "mean.within15": share(one.mean.error <= 0.15 for one in outcomes),
        "mean.raw15": share(one.mean.raw <= 0.15 for one in outcomes),
        "naive.within15": share(one.error <= 0.15 for one in naive),
        "p99.settings": float(len(quantiles)),
        "p99.within20": share(one.quantile.error <= 0.20 for one in quantiles if one.quantile is not None),
        "cantelli.factor": min(bounds, default=float("nan")),
        "trend_right": share(trends(outcomes)),
        "phase.within10": share(each.error <= 0.10 for each in phases),
    }
