"""The last runs of a stream by themselves: what they cost, how sure that is, and how large a run can be foretold."""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from transom.model.slopes import Floats
from transom.scheduling.costs import RUNS
from transom.scheduling.limits import ENOUGH

LATELY = 8
"""So many runs tell what is usual now."""
APART = 1.25
"""Costs that differ by more from what the last runs had are not those of now."""
MOST_SLOW = 2.0
"""No run is taken to be longer than expected by more."""
FIRST_ROWS = 1_000
"""The first run of all is over no more rows."""
GROWTH = 4
"""And none is over so many times more rows than those before: nobody knows what they cost."""


class RecentRuns:
    """Learns from runs one by one, and at once from larger ones than before; all times are microseconds.

    A line through many runs of one size says little of larger ones, and follows them only when they are many: under
    overload that is too late.
    """

    def __init__(self) -> None:
        self._lasted: deque[int] = deque(maxlen=LATELY)
        self._read: deque[int] = deque(maxlen=RUNS)
        self._known: deque[tuple[float, float]] = deque(maxlen=RUNS)
        self._count = 0

    def ran(self, rows: int, weighed: float, took: int) -> None:
        """Note a run.

        Args:
            rows: That it read.
            weighed: The same, as if all work was done for each.
            took: Its time.
        """
        self._count += 1
        self._lasted.append(took)
        self._read.append(rows)
        if self._count > ENOUGH:  # the first ones are slow, since the JVM compiles
            self._known.append((weighed, float(max(1, took))))

    @property
    def tried(self) -> int:
        """Rows of a run whose time can be told from the runs before."""
        return max(FIRST_ROWS, GROWTH * max(self._read, default=0))

    @property
    def longest(self) -> int:
        """Time of the longest of the last few runs; 0 before the first."""
        return max(self._lasted, default=0)

    def costs(self, fixed: float, row: float) -> tuple[float, float]:
        """Return the time of a job without rows and of a row as the last runs had them.

        Args:
            fixed: Time of a job without rows, as the line through all runs has it.
            row: Time of a row, as well.
        """
        if not self._known:
            return fixed, row
        rows, took = np.array(list(self._known)[-LATELY:]).T
        rows = np.maximum(1.0, rows)
        level = _quantile(took / (fixed + row * rows), rows, 0.5)
        if level > APART:
            return fixed, _quantile(np.maximum(0.0, took - fixed) / rows, rows, 0.5)
        return (fixed * level, row * level) if level < 1 / APART else (fixed, row)

    def slowness(self, fixed: float, row: float, quantile: float, runs: float = 1.0) -> float:
        """Return by how many times runs may be longer than is expected, with this probability; at least 1.

        Args:
            fixed: Time of a job without rows.
            row: Time of a row.
            quantile: The probability.
            runs: So many, one after the other, whose differences from the mean add up by their squares.
        """
        if len(self._known) < ENOUGH:
            return 1.0
        rows, took = np.array(self._known).T
        expected = fixed + row * rows
        one, mean = _quantile(took / expected, expected, quantile), float(took.sum() / expected.sum())
        return float(np.clip(mean + (one - mean) / math.sqrt(max(1.0, runs)), 1.0, MOST_SLOW))


def _quantile(values: Floats, weights: Floats, quantile: float) -> float:
    """Return the least value at or below which so large a part of all weights is.

    >>> _quantile(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 8.0]), 0.5)
    2.0
    """
    order = np.argsort(values, kind="stable")
    part = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][min(len(order) - 1, int(np.searchsorted(part, quantile)))])
