"""How much was left out of each window, as far as can be told: by estimated event times, from what the log says."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from transom.engine.partials.results import Span
from transom.model.time import MICROS_PER_SECOND, MIN_TIME, Micros
from transom.model.window import WindowSpec
from transom.windows.query import WINDOW_END, WINDOW_START, WindowedQuery

SHED_ROWS, SHED_SHARE = "shed_rows", "shed_share"
CELLS = 4
"""Into so many cells the time is divided from one window of a kind to the next."""
LONGEST_CELL: Micros = 600 * MICROS_PER_SECOND


def cell_of(queries: Iterable[WindowedQuery]) -> Micros:
    """Return the length of the cells in which rows are counted for the windows of some queries."""
    windows = {window for query in queries for window in query.pane_windows}
    slides = [window.slide // CELLS for window in windows if isinstance(window, WindowSpec)]
    return max(1, min([*slides, LONGEST_CELL]))


class Stretch(NamedTuple):
    """Rows that are taken to be spread evenly over [first, last), event time."""

    first: Micros
    last: Micros
    kept: float
    dropped: float


class Shares:
    """The rows of a stream that were read and left out, over event time."""

    def __init__(self) -> None:
        self._firsts: list[Micros] = []
        self._cells: list[Stretch] = []
        """In the order of their beginnings; they may overlap."""
        self._longest: Micros = 1
        """No cell is longer."""
        self.until = MIN_TIME
        """No row that happened then or later was left out: a bound, and no estimate as the rest is."""

    def add(self, stretches: Iterable[Stretch], step: Micros) -> None:
        """Take in the rows of a cut.

        Args:
            stretches: When they were.
            step: They are kept in cells of this length, so that their number does not grow with that of the cuts.
        """
        for first, last, kept, dropped in stretches:
            last, at = max(last, first + 1), first
            while at < last:
                end = min(last, (at // step + 1) * step)
                part = (end - at) / (last - first)
                self._put(at // step * step, step, kept * part, dropped * part)
                at = end

    def _put(self, first: Micros, step: Micros, kept: float, dropped: float) -> None:
        place = bisect.bisect_left(self._firsts, first)
        while place < len(self._cells) and self._cells[place].first == first:
            old = self._cells[place]
            if old.last == first + step:
                self._cells[place] = Stretch(first, old.last, old.kept + kept, old.dropped + dropped)
                return
            place += 1
        self._firsts.insert(place, first)
        self._cells.insert(place, Stretch(first, first + step, kept, dropped))
        self._longest = max(self._longest, step)

    def of(self, span: Span) -> tuple[float, float]:
        """Return the rows of a span that were read, and those that were left out."""
        start, end = span
        kept = dropped = 0.0
        low = bisect.bisect_left(self._firsts, start - self._longest)
        for cell in self._cells[low : bisect.bisect_left(self._firsts, end)]:
            part = (min(end, cell.last) - max(start, cell.first)) / (cell.last - cell.first)
            if part > 0:
                kept, dropped = kept + part * cell.kept, dropped + part * cell.dropped
        return kept, dropped

    def forget(self, before: Micros) -> None:
        """Forget what no window that begins at a moment or later holds."""
        place = 0
        while place < len(self._cells) and self._cells[place].last <= before:
            place += 1
        if place:
            del self._firsts[:place], self._cells[:place]

    def share(self, span: Span) -> float:
        """Return which share of the rows of a span was left out; 0 only where nothing was."""
        kept, dropped = self.of(span)
        return dropped / (kept + dropped) if dropped else 0.0

    def to_json(self) -> dict[str, Any] | None:
        """Return all as JSON; None while there is nothing to tell."""
        cells = [list(cell) for cell in self._cells]
        return {"cells": cells, "until": self.until} if cells or self.until > MIN_TIME else None

    def restore(self, value: Mapping[str, Any] | None) -> None:
        """Take in what `to_json` returned."""
        if value is None:
            return
        self._cells, self.until = [Stretch(*cell) for cell in value["cells"]], value["until"]
        self._firsts = [cell.first for cell in self._cells]
        self._longest = max((cell.last - cell.first for cell in self._cells), default=1)


def with_shares(table: pa.Table, shares: Shares) -> pa.Table:
    """Return results that tell what was left out: rows of the window and key, and the share of the window's rows.

    Nobody knows the keys of what was not read: the number of rows is null where anything was left out, else 0.
    """
    edges = [table.column(name).cast(pa.int64()).to_numpy() for name in (WINDOW_START, WINDOW_END)]
    spans, which = np.unique(np.stack(edges, axis=1), axis=0, return_inverse=True)
    share = np.array([shares.share((start, end)) for start, end in spans.tolist()], np.float64)[which.reshape(-1)]
    rows = pa.array(np.zeros(len(share), np.int64), mask=share > 0)
    return table.append_column(SHED_ROWS, rows).append_column(SHED_SHARE, pa.array(share))
