"""Rows for keys without rows in a window: made of the results that they had last, window after window. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from transom.model.time import MAX_TIME, MIN_TIME, Micros
from transom.windows.keys import KeyIndex
from transom.windows.panes import Times, windows_between
from transom.windows.query import WINDOW_END, WINDOW_START, Fill, WindowedQuery
from transom.windows.reusable import Span

_TIMESTAMP = pa.timestamp("us", "UTC")


class Filling:
    """The keys of one query with `fill`, each with its last results.

    Windows are taken in the order of their ends and starts, whatever cuts close them. A key is known from its first
    window with rows on, and forgotten when no window can end within `for_at_most` of its last one. So what is filled in
    follows from the windows with rows alone: not from cuts, tiers, or what other queries keep.

    Changed only by `take` and `restore`.

    Args:
        query: The query.
        fill: What it fills in.
    """

    def __init__(self, query: WindowedQuery, fill: Fill) -> None:
        self._query = query
        self._fill = fill
        self._held: pa.Table | None = None
        """The last results of each key, with the end of their window; of the values only those that are needed."""

    def due(self, rows: Sequence[Span], after: Micros, until: Micros, complete_from: Micros = MIN_TIME) -> list[Span]:
        """Return the windows to emit that end in (after, until], ordered by end and start.

        Args:
            rows: Those that hold rows, in this order.
            after: Watermark before.
            until: Watermark now; with MAX_TIME the last window is the last that holds rows.
            complete_from: Windows that start earlier are not emitted.
        """
        ends = [end for _, end in rows]
        begin = after
        if self._held is None or not self._held.num_rows or after <= MIN_TIME:
            if not rows:
                return []
            begin = ends[0] - 1
        else:
            ends.append(int(_times(self._held, WINDOW_END).max()))
        stop = min(until, self._limit(max(ends))) if until < MAX_TIME else max(ends)
        spans = set(rows)
        for window in self._query.pane_windows:
            spans.update(windows_between(window, begin, stop))
        return sorted((span for span in spans if span[0] >= complete_from), key=lambda span: (span[1], span[0]))

    def take(self, table: pa.Table, spans: Sequence[Span], closed: Micros, zeros: pa.Table) -> pa.Table:
        """Return the results of windows with rows for the known keys that have none; remember what comes last.

        O((results + known keys) log), and the rows that are filled in; no loop over either.

        Args:
            table: The results: window_start, window_end, keys, values; ordered by window.
            spans: The windows, in the order of `due`.
            closed: Windows up to here are closed.
            zeros: Values of aggregates without rows, one row.
        """
        keys = [key.name for key in self._query.keys]
        windows = here = _positions(table, spans)
        ends = np.array([end for _, end in spans], np.int64)
        rows = table.select([WINDOW_END, *keys]) if self._fill.zero else table.drop_columns([WINDOW_START])
        if self._held is not None:
            held = self._held.select(rows.column_names).cast(rows.schema)
            windows = np.concatenate([np.full(held.num_rows, -1, np.int64), windows])
            rows = pa.concat_tables([held, rows])
        rows = rows.combine_chunks()
        ids = _ids(rows, keys)
        order = np.lexsort((windows, ids))
        ids, windows = ids[order], windows[order]
        last = _times(rows, WINDOW_END)[order]
        newest = np.append(ids[1:] != ids[:-1], True) if len(ids) else np.empty(0, np.bool_)
        following = np.where(newest, len(spans), np.append(windows[1:], 0)) if len(ids) else windows
        reached = np.searchsorted(ends, self._limits(last), side="right")
        counts = np.maximum(np.minimum(following, reached) - windows - 1, 0)
        of = np.repeat(np.arange(len(ids)), counts)
        into = windows[of] + 1 + np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
        filled = self._filled(rows.take(pa.array(order[of])), [spans[at] for at in into], table.schema, zeros)
        self._remember(rows.take(pa.array(order[newest])), closed)
        by_window = np.argsort(np.concatenate([here, into]), kind="stable")
        return pa.concat_tables([table, filled]).take(pa.array(by_window))

    def snapshot(self) -> pa.Table:
        """Return what is remembered."""
        return pa.table({WINDOW_END: pa.array([], _TIMESTAMP)}) if self._held is None else self._held

    def restore(self, held: pa.Table | None, keys: pa.Table | None, closed: Micros) -> None:
        """Take in what `snapshot` returned; states of older versions had only all known keys, which are filled in.

        Args:
            held: What it returned; None in older states.
            keys: The keys that older states have.
            closed: Windows up to here are closed.
        """
        if held is not None:
            self._held = held if held.num_rows else None
        elif keys is not None and self._fill.zero:
            names = [key.name for key in self._query.keys]
            last = pa.array(np.full(keys.num_rows if names else 1, closed)).cast(_TIMESTAMP)
            self._held = pa.table({WINDOW_END: last} | {name: keys.column(name) for name in names})

    def _filled(self, rows: pa.Table, spans: Sequence[Span], schema: pa.Schema, zeros: pa.Table) -> pa.Table:
        """Return rows as results of these windows, with the values that they have or with zeros."""
        starts, ends = (np.array([span[side] for span in spans], np.int64) for side in (0, 1))
        columns: dict[str, Any] = {name: rows.column(name) for name in rows.column_names}
        columns |= {WINDOW_START: pa.array(starts), WINDOW_END: pa.array(ends)}
        if self._fill.zero:
            nothing = pa.array(np.zeros(len(spans), np.int64))
            columns |= {name: zeros.column(name).combine_chunks().take(nothing) for name in zeros.column_names}
        return pa.table([_cast(columns[field.name], field.type) for field in schema], schema=schema)

    def _remember(self, rows: pa.Table, closed: Micros) -> None:
        alive = self._limits(_times(rows, WINDOW_END)) > closed
        self._held = rows if alive.all() else rows.filter(pa.array(alive))

    def _limit(self, last: Micros) -> Micros:
        return int(self._limits(np.array([last], np.int64))[0])

    def _limits(self, last: Times) -> Times:
        """Return the end of the last window for which keys are filled in that had rows last in windows of these."""
        most = self._fill.for_at_most
        if most is None:
            return np.full(len(last), MAX_TIME, np.int64)
        return np.minimum(last, MAX_TIME - most) + most


def _times(table: pa.Table, name: str) -> Times:
    """Return a column of moments as microseconds."""
    return np.asarray(table.column(name).cast(pa.int64()), np.int64)


def _positions(table: pa.Table, spans: Sequence[Span]) -> Times:
    """Return the place of each row's window among some windows that are ordered by end and start."""
    starts, ends = (np.array([span[side] for span in spans], np.int64) for side in (0, 1))
    different, later = np.unique(starts), np.unique(ends)  # their ranks make one number of a window

    def numbers(starts: Times, ends: Times) -> Times:
        return np.searchsorted(later, ends) * len(different) + np.searchsorted(different, starts)

    mine = numbers(_times(table, WINDOW_START), _times(table, WINDOW_END))
    return np.searchsorted(numbers(starts, ends), mine).astype(np.int64)


def _ids(rows: pa.Table, keys: Sequence[str]) -> Times:
    """Return numbers that tell the keys of rows apart, in the order in which the keys come first."""
    if not keys:
        return np.zeros(rows.num_rows, np.int64)
    chosen = rows.select(keys)
    return KeyIndex(chosen.schema).intern(chosen)


def _cast(column: Any, kind: pa.DataType) -> Any:
    return column if column.type == kind else column.cast(kind)
