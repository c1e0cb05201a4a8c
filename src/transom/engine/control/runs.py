"""The runs of one stream: what their jobs cost, and how much they make of the rows that they read."""

from __future__ import annotations

from collections import deque

import numpy as np

from transom.engine.spark.columns import STEPS
from transom.engine.streams.arriving import ALL_ROWS
from transom.engine.streams.cuts import CutOutcome
from transom.model.slopes import SPREAD
from transom.model.time import MICROS_PER_SECOND, Micros
from transom.scheduling.costs import RUNS, CostHistory
from transom.scheduling.limits import ENOUGH
from transom.scheduling.recent import RecentRuns

BEHIND = 0.8
"""Part of the time of a row that costly transformations take, until it is measured."""
FITTED = 4
"""Costs are fitted after each of so many runs, then after every so many: one of 32 hardly moves a line."""


class RunEstimate:
    """Learns from the runs of a stream; all times are monotonic.

    Args:
        now: The time.
    """

    def __init__(self, now: Micros) -> None:
        self.costs = CostHistory()
        self.recent: deque[Micros] = deque(maxlen=RUNS)
        """Durations of the last runs that took all there was."""
        self.started_at: Micros = 0
        """Start of the last job that reads rows."""
        self.partials = 0.0
        """Rows of the partials of the windows that fall due together."""
        self.kept = 0.1
        """Rows of partials for each row read."""
        self.partial_bytes = 32.0
        """Size of a row of partials."""
        self._thinned: deque[tuple[float, float, float]] = deque(maxlen=RUNS)
        """Of the last runs the part of the rows that went on, the time of a row, and their number."""
        self.behind = BEHIND
        """Part of the time of a row that is spent behind the place where rows are thinned, if there is one."""
        self.last = RecentRuns()
        self._count = 0
        self._submitted: Micros = now
        self._results = self._rows = 1.0
        self._take_costs()

    def _take_costs(self) -> None:
        """Take over what the costs are now: microseconds of a job, of a row, of a row of results."""
        costs = self.costs.costs
        self.fixed, self.row, self.partial = (
            MICROS_PER_SECOND * float(each) for each in (costs.fixed, costs.row, costs.partial)
        )

    def started(self, reads: bool, now: Micros) -> None:
        """Note that a job was submitted."""
        self._submitted = now
        if reads:
            self.started_at = now

    def finished(self, outcome: CutOutcome, took_all: bool, now: Micros) -> None:
        """Note that a job is done and its rows are in the state.

        Args:
            outcome: Its outcome.
            took_all: Whether it took all rows that there were.
            now: The time.
        """
        rows, shed = outcome.stats.rows, outcome.cut.shed
        self._count += 1
        seconds = max(1, now - self._submitted) / MICROS_PER_SECOND
        part = 1.0 if shed is None else shed.sixteenths / STEPS
        whole = rows * self.weight(part)
        self.last.ran(rows, whole, now - self._submitted)
        if shed is not None and rows:
            self._learn(part, max(0.0, MICROS_PER_SECOND * seconds - self.fixed) / rows, rows)
        self.costs.ran(whole, seconds, fit=self._count < FITTED or self._count % FITTED == 0)
        if took_all:
            self.recent.append(now - self._submitted)
        self._take_costs()
        self._rows = 0.9 * self._rows + rows
        if rows:
            kept = sum(table.num_rows for table in outcome.tables)
            self.kept += 0.3 * (kept / rows - self.kept)
            if kept:
                size = sum(table.nbytes for table in outcome.tables) / kept
                self.partial_bytes += 0.3 * (size - self.partial_bytes)

    def merged(self, results: int, took: Micros) -> None:
        """Note that windows were consolidated into so many rows of results, and the time that this took."""
        self.costs.merged(float(results), max(1, took) / MICROS_PER_SECOND)
        self._take_costs()
        self._results = 0.9 * self._results + results
        self.partials += 0.5 * (results - self.partials) if self.partials else results

    def weight(self, part: float) -> float:
        """Return the time of a row over that of one that goes on, where so many rows do."""
        return 1.0 - self.behind * (1.0 - part)

    def _learn(self, part: float, row: float, rows: int) -> None:
        """Fit a line through the times of rows over the part that went on, if that has differed."""
        self._thinned.append((part, row, float(rows)))
        parts, times, weights = np.array(self._thinned).T
        if np.ptp(parts) < SPREAD:
            return
        slope, least = np.polyfit(parts, times, 1, w=np.sqrt(weights))
        if slope + least > 0:
            self.behind = float(np.clip(slope / (slope + least), 0.0, 0.98))

    @property
    def is_known(self) -> bool:
        """Whether enough runs were seen; the first ones are slow, since the JVM compiles."""
        return self._count >= ENOUGH

    @property
    def output_rate(self) -> float:
        """Rows of results for each microsecond of work."""
        return min(1.0, self._results / self._rows) / max(self.row, 1e-6)

    def cost(self, rows: int) -> Micros:
        """Return the expected time of a run over so many rows, and of the windows that it completes."""
        return round(self.fixed + self.row * rows + self.partial * self.partials)

    def fitting(self, seconds: float) -> int:
        """Return the rows of the largest job that takes so long; at least one."""
        left = MICROS_PER_SECOND * seconds - self.fixed
        return max(1, int(left / self.row)) if self.row > 0 else ALL_ROWS
