"""The windows of one key set on the driver: partials come in, windows are merged out, what no window needs goes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from transom.model.time import MAX_TIME, MIN_TIME, Micros
from transom.model.window import WindowKind
from transom.windows.aggregates.base import Primitive, Slots, State, Types
from transom.windows.cover import OVERHEAD
from transom.windows.keys import KeyIndex
from transom.windows.merged import Merger, PaneSpans, Work
from transom.windows.paneindex import MOST_PARTS, PaneIndex
from transom.windows.panes import Grid, Times, closing_windows
from transom.windows.partials import Partial, concatenated, merge, no_rows, renumbered, split_rows
from transom.windows.reusable import PanedWindows, ReusableWindows, Span, has_longer
from transom.windows.sliding import SlidingWindows
from transom.windows.spans import KEEP
from transom.windows.windowpartials import WindowPartials


class PaneStore:
    """Partials by pane and key, and windows made of them along the cheapest cover.

    Args:
        grid: The panes.
        keys: Names and types of the key columns.
        primitives: What is kept for each key, with the types of the columns.
        kinds: The windows that are asked for; their edges are edges of the grid.
        index: Numbers the keys; that of another store, which then must not `compact`. None for one of its own.
    """

    def __init__(
        self,
        grid: Grid,
        keys: pa.Schema,
        primitives: Mapping[Primitive, Types],
        kinds: Iterable[PanedWindows] = (),
        index: KeyIndex | None = None,
    ) -> None:
        self.grid = grid
        self.merge = Merger(KeyIndex(keys) if index is None else index, dict(primitives))
        """Merges its partials into one."""
        self.kinds: tuple[PanedWindows, ...] = ()
        self._panes = PaneIndex(self.merge)
        self._direct = WindowPartials()
        self._complete = ReusableWindows()
        self._span = PaneSpans(self._panes, self._complete, self.merge)
        self._sliding = SlidingWindows(self._span, self.merge)
        self._late: list[tuple[Micros, Partial]] = []
        """Rows that came for panes that are in spans."""
        self.arrange(self.primitives, kinds)

    def arrange(self, primitives: Mapping[Primitive, Types], kinds: Iterable[PanedWindows]) -> None:
        """Change what is kept and asked for; panes stay, and a primitive that is new is neutral in them.

        Args:
            primitives: What is kept for each key, with the types of the columns.
            kinds: The windows that are asked for; their edges are edges of the grid.
        """
        if dict(primitives) != self.primitives:
            self.merge.primitives = dict(primitives)
            self._complete.clear()
            self._sliding.clear()
            self._late.clear()
        self.kinds = tuple(dict.fromkeys(kinds))
        self._sliding.arrange(self.kinds)

    @property
    def keys(self) -> KeyIndex:
        """Its keys and their numbers."""
        return self.merge.keys

    @property
    def primitives(self) -> dict[Primitive, Types]:
        """What it keeps for each key, with the types of the columns."""
        return self.merge.primitives

    @property
    def work(self) -> Work:
        """What consolidation has taken."""
        return self.merge.work

    @property
    def starts(self) -> Sequence[Micros]:
        """Starts of the panes that hold rows, ascending."""
        return self._panes.starts

    def start_times(self) -> Times:
        """Return `starts` as an array."""
        return self._panes.start_times()

    def add(self, times: Times, keys: pa.Table, states: Mapping[Primitive, State]) -> list[tuple[Micros, Slots]]:
        """Merge rows into the panes; return the start of each pane that changed, with the ids of its keys.

        Args:
            times: A moment in each row's pane (of this grid or a finer one), shape (rows,).
            keys: Key columns, at least those of the store; n rows. Rows may share pane and key, as happens when the
                rows come from a finer key set or grid.
            states: Columns of shape (rows,) for each primitive.
        """
        changes = []
        for (start,), part in self.split([self.grid.start(times)], keys, states) if len(times) else ():
            self._panes.append(start, part)
            self._complete.changed(start)
            if self._sliding.holds(start):
                self._late.append((start, part))
            changes.append((start, part.ids))
        return changes

    def add_windows(
        self, starts: Times, lengths: Times, keys: pa.Table, states: Mapping[Primitive, State]
    ) -> list[tuple[Span, Slots]]:
        """Merge rows that were aggregated per window; return each window that changed, with the ids of its keys.

        The records of these rows are in no pane (Enorm, section 5.1: the combined form). A window is its own rows
        merged with its panes, so that each cut may bring either form.

        Args:
            starts: Start of each row's window, shape (rows,).
            lengths: Length of each row's window, shape (rows,).
            keys: Key columns, at least those of the store; n rows.
            states: Columns of shape (rows,) for each primitive.
        """
        changes = []
        for (start, end), part in self.split([starts, starts + lengths], keys, states) if len(starts) else ():
            parts = self._direct.add((start, end), part)
            if len(parts) > MOST_PARTS:
                self._direct.settle((start, end), self.merge(parts))
            changes.append(((start, end), part.ids))
        return changes

    def split(
        self, groups: Sequence[Times], keys: pa.Table, states: Mapping[Primitive, State]
    ) -> Iterable[tuple[tuple[int, ...], Partial]]:
        """Yield the rows of each group with the ids of their keys, and those states that the store keeps.

        Args:
            groups: Arrays of shape (rows,); rows with the same values are one group.
            keys: Key columns, at least those of the store.
            states: Columns of shape (rows,) for each primitive.
        """
        chosen = {p: states[p] for p in self.primitives if p in states}
        return split_rows(groups, self.ids_of(keys, len(groups[0])), chosen, self.primitives)

    def ids_of(self, keys: pa.Table, rows: int) -> Slots:
        """Return the ids of so many rows' keys; a table without columns does not know its number of rows."""
        names = self.keys.schema.names
        return self.keys.intern(keys.select(names)) if names else np.zeros(rows, np.int64)

    def consolidate(self, spans: Iterable[Span], until: Micros = MAX_TIME) -> dict[Span, Partial]:
        """Return the merged rows of some windows, each from its cheapest cover; microseconds.

        Shorter windows come first, so that longer ones can be made of them (Enorm, section 6.1). What is worth keeping
        for later windows is kept, as long as none of its panes changes: complete windows, and spans of sliding windows
        with many overlaps.

        Args:
            spans: The windows, best all of those that close at the same moment.
            until: The watermark. Windows that end later are made, too, but nothing is kept of what may still change.
        """
        if self._late:
            self._sliding.repair(self._late)
            self._late.clear()
        ordered = sorted(set(spans), key=lambda span: (span[1] - span[0], span[0]))
        return {span: self._consolidate(span, span[1] <= until) for span in ordered}

    def _consolidate(self, span: Span, final: bool) -> Partial:
        merges = self.work.merges
        low, high = self._panes.boundary(span[0]), self._panes.boundary(span[1])
        served, rows = self._sliding.window(span, final, high - low, lambda: self._cost(low, high))
        if not served:
            rows = self._span(*span)
        if final and rows is not None:
            self._sliding.note(span, len(rows))
            self._keep(span, rows, self._cost(low, high))
        parts = [*([] if rows is None else [rows]), *self._direct.of(span)]
        if not parts:
            return no_rows(self.primitives)
        window = self.merge(parts)
        self.work.windows += 1
        self.work.inputs += self.work.merges - merges + 1
        self.work.pane_inputs += high - low + len(self._direct.of(span))
        return window

    def _cost(self, low: int, high: int) -> int:
        totals = self._panes.totals()
        return totals[high] - totals[low]

    def _keep(self, span: Span, rows: Partial, cost: int) -> None:
        """Keep a window when a longer one can use it and gains by it."""
        if len(rows) + OVERHEAD <= KEEP * cost and self._complete.has_room(span) and has_longer(self.kinds, span):
            self._complete.add(span, rows)

    def due(self, kind: WindowKind, after: Micros, until: Micros) -> list[Span]:
        """Return the windows of a kind that hold rows and end in (after, until], ordered by end."""
        spans = closing_windows(kind, self.start_times(), after, until)
        direct = self._direct.ending(kind, after, until)
        return sorted({*spans, *direct}, key=lambda span: (span[1], span[0])) if direct else spans

    def last_end(self, kinds: Sequence[PanedWindows]) -> Micros:
        """Return the end of the last window of some kinds that holds rows; MIN_TIME if none does."""
        ends = [kind.last_end(self.starts[-1]) for kind in kinds] if self.starts else []
        ends += [end for kind in kinds for _, end in self._direct.ending(kind, MIN_TIME, MAX_TIME)]
        return max(ends, default=MIN_TIME)

    def panes_of(self, span: Span) -> Partial:
        """Return the merged rows of all panes of a window and of what was computed directly, using no other window."""
        low, high = self._panes.boundary(span[0]), self._panes.boundary(span[1])
        parts = [*(self._panes.pane(place) for place in range(low, high)), *self._direct.of(span)]
        return merge(parts, self.primitives, len(self.keys)) if parts else no_rows(self.primitives)

    def held(self) -> dict[Span, Partial]:
        """Return all rows by start and end of the windows that were computed directly; of panes the start twice."""
        panes = {(start, start): self._panes.pane(place) for place, start in enumerate(self._panes.starts)}
        return panes | {span: self.merge(parts) for span, parts in self._direct.items()}

    def drop_before(self, moment: Micros, ended: Micros = MIN_TIME) -> None:
        """Forget what no window needs.

        Args:
            moment: No window that starts earlier will be asked for.
            ended: No directly computed window that ends by then will be asked for.
        """
        self._panes.drop_before(moment)
        self._complete.drop_before(moment)
        self._sliding.drop_before(moment)
        self._direct.drop(moment, ended)
        self._late = [(start, rows) for start, rows in self._late if start >= moment]

    def clear(self) -> None:
        """Forget all rows; keys stay."""
        self._panes.drop_before(MAX_TIME)
        self._direct.drop(MAX_TIME, MAX_TIME)
        self._complete.clear()
        self._sliding.clear()
        self._late.clear()

    def __len__(self) -> int:
        """Return the number of rows in panes and directly computed windows."""
        return len(self._panes) + sum(map(len, self._direct.partials()))

    def compact(self) -> None:
        """Forget keys that nothing holds any more, when they are the majority."""
        live = np.zeros(len(self.keys), np.bool_)
        for part in (*self._panes.partials(), *self._direct.partials()):
            live[part.ids] = True
        kept = np.flatnonzero(live)
        if not len(self.keys.schema) or 2 * len(kept) >= len(self.keys):
            return
        index = KeyIndex(self.keys.schema)
        index.intern(pa.Table.from_arrays(self.keys.take(kept), schema=self.keys.schema))
        numbers = np.full(len(self.keys), -1, np.int64)
        numbers[kept] = np.arange(len(kept))
        self.merge.keys = index
        for holder in (self._panes, self._direct, self._complete, self._sliding):
            holder.renumber(numbers)
        self._late = [(start, renumbered(rows, numbers)) for start, rows in self._late]

    def rows(self) -> tuple[Times, pa.Table, dict[Primitive, State]]:
        """Return the panes in the form that `add` takes, one row per pane and key."""
        starts = self._panes.start_times()
        parts = [self._panes.pane(place) for place in range(len(starts))]
        if not parts:
            return np.empty(0, np.int64), self.keys.schema.empty_table(), {}
        ids, states = concatenated(parts, self.primitives)
        return np.repeat(starts, [len(part) for part in parts]), self.key_table(ids), states

    def direct_rows(self) -> tuple[Times, Times, pa.Table, dict[Primitive, State]]:
        """Return the directly computed windows in the form that `add_windows` takes."""
        starts, lengths, ids, states = self._direct.rows(self.primitives)
        return starts, lengths, self.key_table(ids), states

    def window_rows(self, windows: Mapping[Span, Partial]) -> tuple[Times, Times, pa.Table, dict[Primitive, State]]:
        """Return merged windows of this store in the form that `add_windows` takes."""
        parts = {span: part for span, part in windows.items() if len(part)}
        if not parts:
            return np.empty(0, np.int64), np.empty(0, np.int64), self.keys.schema.empty_table(), {}
        counts = [len(part) for part in parts.values()]
        starts, ends = (np.repeat(np.array([span[side] for span in parts], np.int64), counts) for side in (0, 1))
        ids, states = concatenated(list(parts.values()), self.primitives)
        return starts, ends - starts, self.key_table(ids), states

    @property
    def nbytes(self) -> int:
        """Bytes that panes, directly computed windows and their keys take; those of sketches are estimated."""
        return self.keys.nbytes + sum(part.nbytes for part in (*self._panes.partials(), *self._direct.partials()))

    def key_table(self, ids: Slots) -> pa.Table:
        """Return the keys that have some ids, one row each."""
        columns = self.keys.take(ids) if len(self.keys.schema) else []
        return pa.Table.from_arrays(columns, schema=self.keys.schema)
