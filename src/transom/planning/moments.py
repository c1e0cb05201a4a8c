"""Times as their mean and variance, and the quantiles that follow from those."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from transom.errors import DefinitionError

ENOUGH = 200
"""Residuals from which on their own quantile is taken instead of the normal one."""
NORMAL = NormalDist()


@dataclass(frozen=True)
class Moments:
    """Mean and variance of a time, seconds and seconds squared.

    >>> Moments(1.0, 4.0) + Moments(2.0, 1.0)
    Moments(mean=3.0, variance=5.0)
    """

    mean: float = 0.0
    variance: float = 0.0

    def __add__(self, other: Moments) -> Moments:
        """Return the moments of the sum of two independent times."""
        return Moments(self.mean + other.mean, self.variance + other.variance)

    @property
    def finite(self) -> bool:
        """Whether it ends."""
        return math.isfinite(self.mean)

    @property
    def square(self) -> float:
        """Mean of its square, seconds squared."""
        return self.variance + self.mean**2

    @property
    def sigma(self) -> float:
        """Standard deviation, seconds."""
        return math.sqrt(self.variance)

    def in_share(self, share: float) -> Moments:
        """Return the moments of a time that is this one in a share of the cases, and nothing in the others.

        >>> Moments(2.0, 0.0).in_share(0.5)
        Moments(mean=1.0, variance=1.0)
        """
        mean = share * self.mean
        return Moments(mean, max(0.0, share * self.square - mean**2))

    @classmethod
    def spread(cls, length: float) -> Moments:
        """Return the moments of a time that is anything from 0 to `length` with equal chance."""
        return cls(length / 2, length**2 / 12)

    @classmethod
    def with_scv(cls, mean: float, scv: float) -> Moments:
        """Return moments from the mean and the squared coefficient of variation, variance / mean^2."""
        return cls(mean, scv * mean**2)


NEVER = Moments(math.inf, math.inf)
"""What does not end, as more comes than can be done."""


def mixed(parts: Sequence[tuple[float, Moments]]) -> Moments:
    """Return the moments of a time that is one of several, each with its weight; the weights need not sum to 1.

    The law of total variance: the mean of the variances, and the variance of the means.
    """
    if not all(part.finite for _, part in parts):
        return NEVER
    total = sum(weight for weight, _ in parts)
    mean = sum(weight * part.mean for weight, part in parts) / total
    return Moments(mean, sum(weight * (part.variance + (part.mean - mean) ** 2) for weight, part in parts) / total)


def cantelli(time: Moments, share: float) -> float:
    """Return a bound that a time keeps with at least the probability `share`, whatever its distribution.

    Li, Diao and Shenoy (2015), Eq. 4: mean + sigma sqrt(x / (1 - x)).
    """
    return time.mean + time.sigma * math.sqrt(share / (1 - share))


@dataclass(frozen=True)
class Residuals:
    """What was seen of latencies beside what was expected of them: (seen - mean) / sigma, in order.

    From 200 of them on the quantile is theirs; of fewer, but some, the normal one; with none it is the bound of
    Cantelli, which provisions enough for any distribution.
    """

    values: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(sorted(self.values)))

    def quantile(self, time: Moments, share: float) -> float:
        """Return the quantile of a time with these moments, seconds.

        Raises:
            DefinitionError: `share` is not between 0 and 1.
        """
        if not 0 < share < 1:
            raise DefinitionError(f"quantile: {share} is no share.", "Give a number between 0 and 1, such as 0.99.")
        if not self.values:
            return cantelli(time, share)
        if len(self.values) < ENOUGH:
            return time.mean + time.sigma * NORMAL.inv_cdf(share)
        return time.mean + time.sigma * float(np.quantile(self.values, share))

    @property
    def form(self) -> str:
        """How quantiles are found, in a word: measured, normal or Cantelli."""
        return "Cantelli" if not self.values else "normal" if len(self.values) < ENOUGH else "measured"
