"""The panes of one key set on the driver: partials come in, windows are merged out, old panes go."""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from transom.model.time import Micros
from transom.windows.aggregates.base import Primitive, Slots, State, Types
from transom.windows.aggregates.reduce import reduce_slots
from transom.windows.keys import KeyIndex
from transom.windows.panes import Grid, Times
from transom.windows.partials import Partial, merge, rows_of

PARTS_PER_PANE = 4
"""A pane with more partials than this is merged, so that later windows merge fewer."""


class PaneStore:
    """Partials by pane and key.

    Args:
        grid: The panes.
        keys: Names and types of the key columns.
        primitives: What is kept for each key, with the types of the columns.
    """

    def __init__(self, grid: Grid, keys: pa.Schema, primitives: Mapping[Primitive, Types]) -> None:
        self.grid = grid
        self.keys = KeyIndex(keys)
        self.primitives = dict(primitives)
        self.starts: list[Micros] = []
        """Starts of the panes that hold rows, ascending."""
        self._start_times: Times | None = None
        self._panes: dict[Micros, list[Partial]] = {}

    def add(self, times: Times, keys: pa.Table, states: Mapping[Primitive, State]) -> list[tuple[Micros, Slots]]:
        """Merge rows into the panes; return the start of each pane that changed, with the ids of its keys.

        Args:
            times: A moment in each row's pane (of this grid or a finer one), shape (rows,).
            keys: Key columns, at least those of the store; n rows. Rows may share pane and key, as happens when the
                rows come from a finer key set or grid.
            states: Columns of shape (rows,) for each primitive.
        """
        if not len(times):
            return []
        panes = self.grid.start(times)
        ids = self.keys.intern(keys.select(self.keys.schema.names))
        order = np.lexsort((ids, panes))
        panes, ids = panes[order], ids[order]
        first = np.ones(len(panes), np.bool_)
        first[1:] = (panes[1:] != panes[:-1]) | (ids[1:] != ids[:-1])
        chosen = {p: states[p] for p in self.primitives if p in states}
        if first.all():
            chosen = {p: rows_of(state, order) for p, state in chosen.items()}
        else:
            slots = np.empty(len(order), np.int64)
            slots[order] = np.cumsum(first) - 1
            count = int(first.sum())
            chosen = {p: reduce_slots(p, s, slots, count, self.primitives[p]) for p, s in chosen.items()}
            panes, ids = panes[first], ids[first]
        edges = np.flatnonzero(np.concatenate(([True], panes[1:] != panes[:-1], [True])))
        changes = []
        for begin, end in itertools.pairwise(edges.tolist()):
            rows = slice(begin, end)
            part = Partial(ids[rows], {p: {n: c[rows] for n, c in s.items()} for p, s in chosen.items()})
            self._append(int(panes[begin]), part)
            changes.append((int(panes[begin]), part.ids))
        return changes

    def start_times(self) -> Times:
        """Return `starts` as an array."""
        if self._start_times is None:
            self._start_times = np.array(self.starts, dtype=np.int64)
        return self._start_times

    def _append(self, start: Micros, part: Partial) -> None:
        parts = self._panes.get(start)
        if parts is None:
            insort(self.starts, start)
            self._start_times = None
            self._panes[start] = [part]
            return
        parts.append(part)
        if len(parts) > PARTS_PER_PANE:
            self._panes[start] = [merge(parts, self.primitives, len(self.keys))]

    def window(self, start: Micros, end: Micros) -> Partial:
        """Return the merged partials of the panes in [start, end); microseconds."""
        held = self.starts[bisect_left(self.starts, start) : bisect_left(self.starts, end)]
        parts = [part for pane in held for part in self._panes[pane]]
        if not parts:
            return Partial(np.empty(0, np.int64), {p: p.empty(0, t) for p, t in self.primitives.items()})
        return merge(parts, self.primitives, len(self.keys))

    def drop_before(self, moment: Micros) -> None:
        """Forget the panes that start before the moment; the caller knows that no window needs them."""
        count = bisect_left(self.starts, moment)
        for start in self.starts[:count]:
            del self._panes[start]
        if count:
            del self.starts[:count]
            self._start_times = None

    def __len__(self) -> int:
        return sum(len(part) for parts in self._panes.values() for part in parts)

    def compact(self) -> None:
        """Forget keys that no pane holds any more, when they are the majority."""
        live = np.zeros(len(self.keys), np.bool_)
        for parts in self._panes.values():
            for part in parts:
                live[part.ids] = True
        kept = np.flatnonzero(live)
        if not len(self.keys.schema) or 2 * len(kept) >= len(self.keys):
            return
        index = KeyIndex(self.keys.schema)
        index.intern(pa.Table.from_arrays(self.keys.take(kept), schema=self.keys.schema))
        renumbered = np.empty(len(self.keys), np.int64)
        renumbered[kept] = np.arange(len(kept))
        self.keys = index
        self._panes = {
            start: [Partial(renumbered[part.ids], part.states) for part in parts]
            for start, parts in self._panes.items()
        }

    def rows(self) -> tuple[Times, pa.Table, dict[Primitive, State]]:
        """Return everything that is held in the form that `add` takes, one row per pane and key."""
        starts, parts = [], []
        for start in self.starts:
            part = merge(self._panes[start], self.primitives, len(self.keys))
            starts.append(np.full(len(part), start, np.int64))
            parts.append(part)
        if not parts:
            return np.empty(0, np.int64), self.keys.schema.empty_table(), {}
        ids: Slots = np.concatenate([part.ids for part in parts])
        states: dict[Primitive, State] = {}
        for primitive, types in self.primitives.items():
            neutral = [part.states.get(primitive) or primitive.empty(len(part), types) for part in parts]
            states[primitive] = {name: np.concatenate([state[name] for state in neutral]) for name in neutral[0]}
        columns = self.keys.take(ids) if len(self.keys.schema) else []
        keys = pa.Table.from_arrays(columns, schema=self.keys.schema)
        return np.concatenate(starts), keys, states
