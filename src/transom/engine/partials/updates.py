"""Results before and after a window's close: what changed since a window was last emitted, and as which revision."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from transom.engine.partials.results import Span
from transom.model.time import MAX_TIME, MIN_TIME, Micros
from transom.windows.aggregates.base import Slots
from transom.windows.panes import closing_windows
from transom.windows.partials import Partial, restricted
from transom.windows.query import WindowedQuery

Touched = tuple[Micros, Micros, Slots]
"""Start of a pane, or start and end of a window that is computed directly, and the ids of the keys that changed in it.
For a pane the start counts as its end, too."""


@dataclass(frozen=True, eq=False)
class Emission:
    """A window to emit now."""

    span: Span
    ids: Slots | None
    """Keys that changed since the window was last emitted; None for all."""
    revision: int
    """0 for the first result of the window, then counted up."""

    def of(self, partial: Partial, keys: int) -> Partial:
        """Return what it emits of the merged rows of its window, given the number of ids in use."""
        return partial if self.ids is None else restricted(partial, self.ids, keys)


@dataclass(frozen=True)
class _Emitted:
    revision: int
    change: int | None
    """Number of the last change that the emission holds; None when what changed since then is not known."""


class Updates:
    """The updates of one query that gives early results or corrects late ones.

    Changed only by `changed`, `take`, `rest` and `restore`, on the loop's thread. All follows from the log: early
    results are given at the first logged cut that is `early` after the last ones.

    Args:
        query: The query.
    """

    def __init__(self, query: WindowedQuery) -> None:
        self.query = query
        self.held_back = False
        """Whether it gives no early results for now, as those that it reads are not known; it follows from them."""
        self._last_early: Micros | None = None
        """Wall time of the cut that gave the last early results; the first cut counts as one."""
        self._count = 0
        self._changes: list[tuple[int, Touched]] = []
        self._emitted: dict[Span, _Emitted] = {}

    def changed(self, changes: Iterable[Touched], closed: Micros) -> None:
        """Note what a commit changed.

        Args:
            changes: Panes with their keys.
            closed: The watermark in force.
        """
        for change in changes:
            if self.query.early is not None or self._spans([change], closed - self.query.lateness, closed):
                self._count += 1
                self._changes.append((self._count, change))

    def due(self, now: Micros) -> bool:
        """Tell whether there is something to emit besides the windows that close."""
        return bool(self._changes) and self._early_is_due(now)

    @property
    def next_early(self) -> Micros | None:
        """Wall time of the next early results, if there are rows for them; None for a query without."""
        early, last = self.query.early, self._last_early
        return None if early is None or last is None or self.held_back else last + early

    def _early_is_due(self, now: Micros) -> bool:
        """Tell whether early results are due at a wall time; a clock that was set back must not make them wait."""
        early, last = self.query.early, self._last_early
        return early is None or (last is not None and not self.held_back and not 0 <= now - last < early)

    def take(
        self, closing: Sequence[Span], after: Micros, watermark: Micros, now: Micros, complete_from: Micros
    ) -> list[Emission]:
        """Return what a logged cut emits, ordered by end and start.

        Windows that close are emitted in any case, with all keys the first time and with the changed ones after
        early results. Open windows and corrections of closed ones are emitted when early results are due, or at every
        cut for a query without them; corrections also when the window becomes final.

        Args:
            closing: Windows that the cut closes.
            after: The watermark in force before the cut.
            watermark: The watermark in force now.
            now: Wall time of the cut.
            complete_from: Windows that start earlier are not emitted.
        """
        lateness, fires = self.query.lateness, self._early_is_due(now)
        changes = [change for _, change in self._changes]
        spans = set(closing)
        reach = MAX_TIME if fires and self.query.early is not None else after
        for span in self._spans(changes, after - lateness, reach):
            if span[0] >= complete_from and (fires or span[1] + lateness <= watermark):
                spans.add(span)
        emissions = []
        for span in sorted(spans, key=lambda span: (span[1], span[0])):
            last = self._emitted.get(span)
            ids = None if last is None or last.change is None else self._changed_in(span, last.change)
            if ids is None or len(ids):
                revision = 0 if last is None else last.revision + 1
                emissions.append(Emission(span, ids, revision))
                self._emitted[span] = _Emitted(revision, self._count)
        open_from = MAX_TIME if fires else self.query.late_before(watermark)
        self._changes = [(number, change) for number, change in self._changes if change[0] >= open_from]
        if fires or self._last_early is None:
            self._last_early = now
        for span in [span for span in self._emitted if span[1] + lateness <= watermark]:
            del self._emitted[span]
        return emissions

    def rest(self) -> None:
        """Forget what changed: the query is paused, and others may go on to change its panes.

        Windows that it emits when it is resumed have all keys, under the next revision.
        """
        self._changes.clear()
        self._emitted = {span: _Emitted(emitted.revision, None) for span, emitted in self._emitted.items()}

    def _spans(self, changes: Sequence[Touched], after: Micros, until: Micros) -> set[Span]:
        """Return the windows that hold a change and end in (after, until]."""
        if not changes:
            return set()
        starts = np.unique(np.array([start for start, _, _ in changes], dtype=np.int64))
        return {
            span
            for window in self.query.windows
            for span in closing_windows(window, starts, max(after, MIN_TIME), until)
        }

    def _changed_in(self, span: Span, since: int) -> Slots:
        found = [
            ids
            for number, (start, end, ids) in self._changes
            if number > since and span[0] <= start < span[1] and end <= span[1]
        ]
        return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)

    def snapshot(self) -> tuple[dict[str, Any], pa.Table]:
        """Return everything as JSON and a table."""
        state = {
            "last_early": self._last_early,
            "emitted": [[*span, e.revision, e.change] for span, e in self._emitted.items()],
            "count": self._count,
        }
        lengths = [len(ids) for _, (_, _, ids) in self._changes]
        columns = {
            "number": np.repeat(np.array([number for number, _ in self._changes], np.int64), lengths),
            "start": np.repeat(np.array([start for _, (start, _, _) in self._changes], np.int64), lengths),
            "end": np.repeat(np.array([end for _, (_, end, _) in self._changes], np.int64), lengths),
            "id": np.concatenate([np.empty(0, np.int64), *(ids for _, (_, _, ids) in self._changes)]),
        }
        return state, pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})

    def restore(self, state: Mapping[str, Any], table: pa.Table) -> None:
        """Take in what `snapshot` returned."""
        self._last_early, self._count = state["last_early"], state["count"]
        self._emitted = {(start, end): _Emitted(revision, change) for start, end, revision, change in state["emitted"]}
        numbers, starts, ends, ids = (table.column(i).to_numpy() for i in range(4))
        edges = np.flatnonzero(np.diff(numbers, prepend=0, append=0)).tolist()
        self._changes = [
            (int(numbers[a]), (int(starts[a]), int(ends[a]), ids[a:b])) for a, b in itertools.pairwise(edges)
        ]
