"""When the next sweeping watermark arrives: what past ones tell, as a distribution, an interval and an expected slack.

A window that ends at `end` is completed by its sweeping watermark, which arrives at end + lag. Two things are known of
the lag (papers/NOTES.md, section 1): the lags of past sweeping watermarks, and the delays of all records. Watermarks
that the source injects travel like records, so that both have one law; a watermark derived from the largest event time
read comes from the fastest records, whose lag is far below the mean delay, and only its own past tells it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from transom.model.time import Micros

Floats = npt.NDArray[np.float64]

EPOCHS = 400
"""Sweeping watermarks that are remembered (h in the paper)."""
ENOUGH = 40
"""With fewer lags than this the moments decide, which say more than so few quantiles."""
PACE = 0.02
"""Rate at which the level of the intervals follows their hits; see `LagHistory.seen`."""

_ROOT_HALF = math.sqrt(0.5)


@dataclass(frozen=True)
class DelayMoments:
    """Moments of the delays of the records of one epoch: what a cut's own job brings back.

    The second one is central: delays of years, as when old data is replayed, would leave nothing of a difference of
    sums of squares.
    """

    records: int = 0
    total: float = 0.0
    """Sum of the delays, microseconds."""
    spread: float = 0.0
    """Sum of the squares of their differences from their mean."""

    @classmethod
    def of(cls, delays: np.ndarray[tuple[int], np.dtype[np.float64]]) -> DelayMoments:
        """Return the moments of some delays, microseconds."""
        return cls(len(delays), float(delays.sum()), float(((delays - delays.mean()) ** 2).sum()))

    def __add__(self, other: DelayMoments) -> DelayMoments:
        if not self.records or not other.records:
            return self if self.records else other
        apart = other.mean - self.mean
        records = self.records + other.records
        between = apart * apart * self.records * other.records / records  # Chan, Golub and LeVeque 1979
        return DelayMoments(records, self.total + other.total, self.spread + other.spread + between)

    @property
    def mean(self) -> float:
        """Mean delay (mu_n in the paper), microseconds; at least one record."""
        return self.total / self.records

    @property
    def variance(self) -> float:
        """Variance of the delays: chi_n - mu_n^2, chi_n being the mean of their squares."""
        return self.spread / self.records


@dataclass(frozen=True)
class Arrival:
    """When a sweeping watermark arrives; microseconds since the epoch."""

    mean: float
    sigma: float
    """Predictive standard deviation, of one arrival."""

    def expected(self, after: Micros | None = None) -> float:
        """Return the expected arrival, given that it has not happened by `after`.

        The mean of a normal distribution truncated below at `after`: mu + sigma phi(a) / (1 - Phi(a)) with
        a = (after - mu) / sigma. It replaces the sum of Klink's Equations 8 to 10, whose loop makes an overdue query
        look relaxed; the Mills ratio keeps it right where 1 - Phi underflows.
        """
        if after is None:
            return self.mean
        if self.sigma <= 0:
            return max(self.mean, float(after))
        a = (after - self.mean) / self.sigma
        return self.mean + self.sigma * inverse_mills(a)

    def slack(self, now: Micros, newest_read: Micros | None, limit: Micros, cost: float) -> float:
        """Return the expected time to spare before the window's result is late, microseconds; negative when overdue.

        Args:
            now: Wall time.
            newest_read: Arrival of the newest record read: the watermark has not come by then, and what is known ends
                there, since an overdue watermark may wait in the unread backlog.
            limit: The query's latency limit.
            cost: Expected time to run what is to be run before the result, microseconds.
        """
        return self.expected(newest_read) + limit - now - cost


def inverse_mills(a: float) -> float:
    """Return phi(a) / (1 - Phi(a)), also where 1 - Phi(a) underflows.

    >>> round(inverse_mills(0.0), 6)
    0.797885
    >>> inverse_mills(1e6) - 1e6 < 1e-5
    True
    """
    if a < 25:
        return math.exp(-a * a / 2) / math.sqrt(2 * math.pi) / (0.5 * math.erfc(a * _ROOT_HALF))
    return a + 1 / a - 2 / a**3  # asymptotic series, relative error below 1e-6 from here on


_GRID = np.arange(-9.0, 30.0, 0.01)
_MILLS = np.array([inverse_mills(a) for a in _GRID.tolist()])


def expected_arrivals(mean: Floats, sigma: Floats, after: Floats) -> Floats:
    """Return `Arrival.expected` of many, to 1e-4 of a standard deviation, of at least one microsecond each; any shape.

    Args:
        mean: Of each arrival, microseconds.
        sigma: Its predictive standard deviation.
        after: When it has not happened yet.
    """
    spread = np.maximum(sigma, 1.0)
    a = (after - mean) / spread
    mills = np.where(a < _GRID[-1], np.interp(a, _GRID, _MILLS), a + 1 / np.maximum(a, 1.0))
    return np.asarray(mean + spread * mills)


class LagHistory:
    """The lags of past sweeping watermarks and the delays of past records of one stream.

    Args:
        epochs: How many are remembered.
        injected: Whether the source injects the watermarks, so that they are delayed as records are.
        behind: How far the watermark is behind the event times, or behind what the source injects; microseconds.
    """

    def __init__(self, epochs: int = EPOCHS, injected: bool = False, behind: Micros = 0) -> None:
        self.injected, self.behind = injected, behind
        self._lags: deque[int] = deque(maxlen=epochs)
        self._sum = self._squares = 0
        """Of the lags; whole numbers, so that nothing is lost as they come and go."""
        self._delays: deque[DelayMoments] = deque(maxlen=epochs)
        self._levels: dict[float, float] = {}

    @property
    def needs_delays(self) -> bool:
        """Whether the delays of records tell anything here: of injected watermarks, and before two lags are known."""
        return self.injected or len(self._lags) < 2

    def __len__(self) -> int:
        return len(self._lags)

    def to_json(self) -> dict[str, Any]:
        """Return what is remembered as JSON."""
        delays = [[each.records, each.total, each.spread] for each in self._delays]
        return {"lags": list(self._lags), "delays": delays, "levels": list(self._levels.items())}

    def restore(self, value: Mapping[str, Any]) -> None:
        """Take in what `to_json` returned, in place of what is remembered."""
        self._lags.clear()
        self._sum = self._squares = 0
        for lag in value["lags"]:
            self._remember(round(lag))
        self._delays = deque((DelayMoments(*each) for each in value["delays"]), maxlen=self._delays.maxlen)
        self._levels = dict(value["levels"])

    def seen(self, lag: Micros, delays: DelayMoments) -> None:
        """Note a sweeping watermark that has arrived.

        The levels at which intervals are read from the past are moved by each hit and miss (adaptive conformal
        inference, Gibbs and Candes 2021), so that the share of hits tends to what was asked for even when the law of
        the lags drifts.

        Args:
            lag: Its arrival minus the end of the window that it completed, microseconds.
            delays: Of the records since the sweeping watermark before.
        """
        if len(self._lags) >= ENOUGH:
            for confidence in self._levels:
                low, high = self._span(confidence)
                miss = 0.0 if low <= lag <= high else 1.0
                moved = self._levels[confidence] + PACE * (miss - (1 - confidence))
                self._levels[confidence] = min(1.0, max(0.5 * confidence, moved))
        self._remember(round(lag))
        if delays.records:
            self._delays.append(delays)

    def _remember(self, lag: int) -> None:
        oldest = self._lags[0] if len(self._lags) == self._lags.maxlen else 0
        self._sum += lag - oldest
        self._squares += lag * lag - oldest * oldest
        self._lags.append(lag)

    def arrival(self, end: Micros, delays: DelayMoments | None = None) -> Arrival | None:
        """Return when the watermark that completes a window ending at `end` comes; None when nothing is known.

        Args:
            end: The window's end, event time.
            delays: Of the records of the present epoch, for the first epoch of all.
        """
        moments = self._moments(delays)
        return None if moments is None else Arrival(end + moments[0], moments[1])

    def interval(self, end: Micros, confidence: float) -> tuple[float, float] | None:
        """Return an interval that holds the arrival with this confidence; None when nothing is known.

        The shortest interval over the past lags, or, while these are few, the normal one with the predictive variance
        (Klink's Equation 7 with z = Phi^-1((1 + f) / 2); Equation 6 as printed is the variance of the mean).

        Raises:
            ValueError: The confidence is not in (0, 1).
        """
        if not 0 < confidence < 1:
            raise ValueError(f"confidence: {confidence} is not between 0 and 1.")
        self._levels.setdefault(confidence, confidence)
        if len(self._lags) >= ENOUGH:
            low, high = self._span(confidence)
            return end + low, end + high
        moments = self._moments(None)
        if moments is None:
            return None
        half = NormalDist().inv_cdf((1 + confidence) / 2) * moments[1]
        return end + moments[0] - half, end + moments[0] + half

    def _span(self, confidence: float) -> tuple[float, float]:
        return shortest_span(np.array(self._lags), self._levels[confidence])

    def _moments(self, delays: DelayMoments | None) -> tuple[float, float] | None:
        """Return mean and standard deviation of a lag: of past lags, or of records where these tell more or alone."""
        known = [*self._delays, *([delays] if delays is not None and delays.records else [])]
        if known and self.needs_delays:
            means = np.array([moments.mean for moments in known])
            within = sum(moments.variance for moments in known) / len(known)
            return self.behind + float(means.mean()), math.sqrt(within + float(means.var()))
        count = len(self._lags)
        if count < 2:  # one lag has no spread, and may be years when old data is replayed
            return None
        variance = (count * self._squares - self._sum * self._sum) / (count * (count - 1))
        return self._sum / count, math.sqrt(variance)


def shortest_span(values: np.ndarray[tuple[int], np.dtype[np.float64]], level: float) -> tuple[float, float]:
    """Return the shortest interval that holds the next value with this probability; O(n log n).

    It holds ceil(level (n + 1)) of the values and a few more: choosing the shortest of all such intervals favours
    those that hold too much by chance, by about 0.7 standard deviations of that number (measured for uniform, normal,
    exponential and Zipf values).
    """
    count = len(values)
    held = level * (count + 1) + 0.7 * math.sqrt(count * level * (1 - level))
    inside = min(count, math.ceil(held))
    ordered = np.sort(values)
    widths = ordered[inside - 1 :] - ordered[: count - inside + 1]
    first = int(np.argmin(widths))
    return float(ordered[first]), float(ordered[first + inside - 1])
