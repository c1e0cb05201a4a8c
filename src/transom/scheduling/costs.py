"""The cost of a stream's next run, learned from the runs before.

A run is one Spark job, whose time is a fixed part and a part per row, and then the driver merges the partials of the
windows that fall due. Both are timed apart, so each is learned apart. Compilation by the JVM and garbage collection
make single runs several times slower, which is why lines are fitted through medians.

Everything takes arrays with any leading axes: one stream in the engine, thousands at once in the simulator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from transom.errors import DefinitionError
from transom.model.slopes import Floats, line, median

Ints = npt.NDArray[np.int64]

RUNS = 32
"""Runs of a stream that are remembered."""


@dataclass(frozen=True)
class RunCosts:
    """The costs of runs; each field is an array over the streams, all of the same shape."""

    fixed: Floats
    """Seconds of a job without rows."""
    row: Floats
    """Seconds of a job per row."""
    partial: Floats
    """Seconds of the driver per row of the partials that it consolidates."""

    def job(self, rows: Floats) -> Floats:
        """Return the seconds of a job over so many rows."""
        return self.fixed + self.row * rows

    def run(self, rows: Floats, partials: Floats | float = 0.0) -> Floats:
        """Return the seconds from the start of a job until the windows that it completes are merged.

        Args:
            rows: Rows of the cut.
            partials: Rows of the partials of the windows that fall due.
        """
        return self.fixed + self.row * rows + self.partial * partials

    def fitting(self, seconds: Floats | float) -> Floats:
        """Return the rows of the largest job that takes so long; at least one, infinite where rows cost nothing."""
        with np.errstate(divide="ignore", invalid="ignore"):
            rows = np.floor((seconds - self.fixed) / self.row)
        return np.asarray(np.maximum(1.0, np.where(self.row > 0, rows, np.inf)))


CYCLE = 10.0
"""Least length of a cycle over the fixed cost of a job: a tenth of the work is overhead then."""
LONGEST_CYCLE = 30.0
"""No cycle is longer, seconds."""


def cycle_seconds(fixed: Floats, busy: Floats) -> Floats:
    """Return the length of a cycle, seconds: runs of full length leave room for all the rows that come.

    With the rows alone using a share b of the cores, jobs may spend no more than 1 - b on their fixed cost, so that a
    full run must be at least fixed / (1 - b) long; twice that leaves half of the room free. Above a load of 1 a stream
    then takes in several windows at once instead of falling behind for ever.

    Args:
        fixed: Seconds of a job without rows.
        busy: Cores that the rows alone keep busy, rate x cost per row, over the slots.
    """
    room = np.maximum(1e-6, 1.0 - busy)
    return np.asarray(np.minimum(LONGEST_CYCLE, np.maximum(0.01, fixed) * np.maximum(CYCLE, 2.0 / room)))


def offered(costs: RunCosts, rate: Floats, period: Floats, cores: float) -> Floats:
    """Return the work that comes over what the cores can do: all rows, and for each window one job.

    Args:
        costs: Of each stream, (..., streams).
        rate: Rows per second of each stream.
        period: Seconds from one window of each stream to the next; infinite where none is known.
        cores: That run jobs.
    """
    return np.asarray((rate * costs.row + costs.fixed / period).sum(axis=-1) / cores)


class CostHistory:
    """The last runs of streams, and the costs that follow from them.

    Args:
        shape: Of the streams: () for one.
        fixed: Seconds of a job without rows, believed until runs say otherwise.
        row: Seconds per row, believed until then, too.
        partial: Seconds of consolidation per row of a partial, believed until then, too.
        runs: How many runs are remembered; even.

    Raises:
        DefinitionError: A number is not finite and positive, or `runs` is odd.
    """

    def __init__(
        self,
        shape: tuple[int, ...] = (),
        fixed: float = 0.15,
        row: float = 5e-6,
        partial: float = 1e-6,
        runs: int = RUNS,
    ) -> None:
        for name, value in {"fixed": fixed, "row": row, "partial": partial, "runs": runs}.items():
            if not 0 < value < math.inf:
                raise DefinitionError(f"costs: {name} is {value}.", "Give more than 0.")
        if runs % 2:
            raise DefinitionError(f"costs: runs is {runs}.", "Give an even number.")
        believed = np.geomspace(1_000.0, 1_000_000.0, runs)
        self._rows = np.broadcast_to(believed, (*shape, runs)).copy()
        self._seconds = fixed + row * self._rows
        self._partial = np.full((*shape, runs), partial)
        self._count = np.zeros(shape, dtype=np.int64)
        self._merges = np.zeros(shape, dtype=np.int64)
        self._runs, self._fixed = runs, fixed
        self.costs = RunCosts(np.full(shape, fixed), np.full(shape, row), np.full(shape, partial))

    def ran(self, rows: Floats | float, seconds: Floats | float, where: tuple[Any, ...] = (), fit: bool = True) -> None:
        """Take in finished jobs.

        Args:
            rows: Rows of each.
            seconds: Seconds of each.
            where: Index of their streams, each at most once.
            fit: Whether the costs follow now; otherwise when jobs are taken in next.
        """
        count = np.asarray(self._count[where])
        at = count % self._runs
        self._rows[(*where, at)], self._seconds[(*where, at)] = rows, seconds
        self._count[where] = count + 1
        if not fit:
            return
        if (count < self._runs).any():
            self._believe(where, count + 1)
        self.costs.fixed[where], self.costs.row[where] = line(
            self._rows[where], self._seconds[where], self.costs.row[where]
        )

    def _believe(self, where: tuple[Any, ...], count: Ints) -> None:
        """Let what is believed in place of runs not yet seen follow the runs that were: the median cost per row."""
        rows, seconds = self._rows[where], self._seconds[where]
        seen = np.arange(self._runs) < count[..., None]
        per_row = np.maximum(0.0, seconds - self._fixed) / np.maximum(rows, 1.0)
        slopes = np.sort(np.where(seen, per_row, np.inf), axis=-1)
        middle = np.minimum(count, self._runs)[..., None] // 2
        slope = np.take_along_axis(slopes, np.minimum(middle, self._runs - 1), -1)
        believed = self._fixed + np.where(np.isfinite(slope), slope, 0.0) * rows
        self._seconds[where] = np.where(seen, seconds, believed)

    def merged(self, partials: Floats | float, seconds: Floats | float, where: tuple[Any, ...] = ()) -> None:
        """Take in finished consolidations.

        Args:
            partials: Rows of the partials of each, more than 0.
            seconds: Seconds of each.
            where: Index of their streams, each at most once.
        """
        at = self._merges[where] % self._runs
        self._partial[(*where, at)] = np.divide(seconds, partials)
        self._merges[where] += 1
        self.costs.partial[where] = median(self._partial[where])
