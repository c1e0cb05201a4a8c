"""One key group of a store in memory: panes, windows and pieces of sessions, and of which files."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np
import pyarrow as pa

from transom.engine.cluster.messages import Feed, GroupWork, MergeRequest, SessionRows, StoreSpec
from transom.engine.partials.tables import LENGTH, PANE, PartialTable, direct_table, partial_table, store_table
from transom.model.time import MIN_TIME, Micros
from transom.windows.intervals import TIMES
from transom.windows.partials import restricted
from transom.windows.pieces import SessionPieces
from transom.windows.reusable import Span
from transom.windows.store import PaneStore

SESSION = "_session"
"""Column with the number of a session among those that were asked for."""

Seen = tuple[Feed, str, int]
"""A slice: what is taken of it, file and offset."""


class HeldGroup:
    """The panes and sessions of one key group.

    What it holds follows from the slices that it has taken in and from what may not be asked for any more, and from
    nothing that it was asked: the same question twice has the same answer.

    Args:
        spec: What the store merges.
    """

    def __init__(self, spec: StoreSpec) -> None:
        self.spec = spec
        self.store = PaneStore(spec.grid, spec.keys, spec.types, spec.kinds)
        types = spec.types
        self.sessions = {
            sessions.key: SessionPieces(sessions, spec.keys, {p: types[p] for p in primitives})
            for sessions, primitives in spec.sessions
        }
        self.seen: dict[Seen, tuple[Micros, Micros]] = {}
        """Slices that it holds, with the last start and the last end in them."""
        self._forgot = (MIN_TIME, MIN_TIME, MIN_TIME)
        """`floor`, `ended` and `begun` of the last request: what is before them is gone."""

    def serves(self, request: MergeRequest, wanted: Collection[Seen]) -> bool:
        """Tell whether a request can be answered from what it holds and some slices; forget what is not asked for.

        It cannot when what was merged or written elsewhere is held here, too, or when an application began again where
        it had been before.
        """
        now = request.floor, request.ended, request.begun
        if any(gone > asked for gone, asked in zip(self._forgot, now, strict=True)):
            return False
        self.drop_before(request)
        return all(slice_ in wanted for slice_ in self.seen)

    def drop_before(self, request: MergeRequest) -> None:
        """Forget what is not asked for from a request on."""
        self._forgot = request.floor, request.ended, request.begun
        self.store.drop_before(request.floor, request.ended)
        for pieces in self.sessions.values():
            pieces.drop_before(request.begun)
        self.seen = {slice_: times for slice_, times in self.seen.items() if _needed(slice_[0], *times, request)}

    def take_in(self, slice_: Seen, table: PartialTable) -> None:
        """Add the rows of a slice."""
        self.seen[slice_] = self._take_in(slice_[0], table)

    def _take_in(self, feed: Feed, table: PartialTable) -> tuple[Micros, Micros]:
        """Add what is taken of a table; return the last start and the last end in it."""
        rows = table.of_condition(feed.condition)
        states = rows.states({p: name for p, name in self.spec.names.items() if name in feed.wanted}, self.spec.types)
        starts = rows.panes()
        ends = starts
        if rows.direct:
            lengths = rows.lengths()
            ends = starts + lengths
            self.store.add_windows(starts, lengths, rows.table, states)
        elif feed.has_panes and self.spec.kinds:
            self.store.add(starts, rows.table, states)
        for kind, pieces in self.sessions.items():
            if feed.sessions is not None and feed.is_for(kind):
                pieces.add(rows.table, states, feed.sessions.closed)
        return (int(starts.max()), int(ends.max())) if len(starts) else (MIN_TIME, MIN_TIME)

    def windows(self, work: GroupWork, until: Micros, only: Mapping[Span, pa.Table]) -> pa.Table | None:
        """Return the merged windows that are asked for in the form of directly computed ones; None without any row.

        Args:
            work: Names the windows.
            until: The watermark.
            only: The keys that are needed of some windows.
        """
        store = self.store
        merged = store.consolidate(work.spans, until) if work.spans else {}
        for span in merged.keys() & only.keys():
            merged[span] = restricted(merged[span], store.keys.intern(only[span]), len(store.keys))
        starts, lengths, keys, states = store.window_rows(merged)
        if not len(starts):
            return None
        return partial_table(store.primitives, self.spec.origin, {PANE: starts, LENGTH: lengths}, keys, states)

    def states_of(self, kind: str, asked: PartialTable, work: GroupWork) -> pa.Table | None:
        """Return the merged states of those of some sessions that have rows here, by SESSION; None if none has any."""
        times = asked.states({TIMES: self.spec.names[TIMES]}, {})[TIMES]
        mine = np.flatnonzero((times["first"] >= work.starts[0]) & (times["first"] < work.starts[1]))
        keys = asked.table if len(mine) == asked.table.num_rows else asked.table.take(pa.array(mine))
        pieces = self.sessions[kind]
        numbers, states = pieces.within(keys, times["first"][mine], times["last"][mine])
        if not len(numbers):
            return None
        columns = {PANE: times["first"][mine][numbers], SESSION: mine[numbers]}
        kept = {p: types for p, types in pieces.primitives.items() if p != TIMES}
        return partial_table(kept, self.spec.origin, columns, pa.table({}), states)

    def sessions_of(self, kind: str, asked: PartialTable) -> pa.Table:
        """Return what is here of some sessions as one table of partials, joined by session."""
        times = asked.states({TIMES: self.spec.names[TIMES]}, {})[TIMES]
        pieces = self.sessions[kind]
        numbers, states = pieces.within(asked.table, times["first"], times["last"])
        keys = asked.table.select(self.spec.keys.names).take(pa.array(numbers))
        first = states[TIMES]["first"]
        return partial_table(pieces.primitives, self.spec.origin, {PANE: first - first % pieces.spec.gap}, keys, states)

    def tables(self) -> Iterator[tuple[pa.Table, bool, SessionRows | None]]:
        """Yield all that it holds as tables for `add`, each with whether it is windows, and what it is for sessions."""
        yield store_table(self.store, self.spec.origin), False, None
        yield direct_table(self.store, self.spec.origin), True, None
        for kind, pieces in self.sessions.items():
            for first, keys, states in pieces.pieces():
                rows = SessionRows(MIN_TIME, int(first.max()), kind)
                table = partial_table(pieces.primitives, self.spec.origin, {PANE: first}, keys, states)
                yield table, False, rows

    def add(self, table: pa.Table, direct: bool, rows: SessionRows | None) -> None:
        """Take in a table that `tables` of another one gave; of which slices it was is for the caller to say."""
        if table.num_rows:
            primitives = self.spec.types if rows is None or rows.kind is None else self.spec.of_sessions(rows.kind)
            contents = self.spec.contents(primitives, direct)
            feed = Feed(contents, self.spec.origin.condition, frozenset(contents.primitives), rows)
            self._take_in(feed, PartialTable(table, contents))

    def compact(self) -> None:
        """Forget the keys that nothing holds any more, where they are many."""
        self.store.compact()
        for pieces in self.sessions.values():
            pieces.compact()

    @property
    def nbytes(self) -> int:
        """Bytes that it takes; those of sketches are estimated."""
        return self.store.nbytes + sum(pieces.nbytes for pieces in self.sessions.values())


def _needed(feed: Feed, start: Micros, end: Micros, request: MergeRequest) -> bool:
    """Tell whether windows or sessions may be asked for that have rows of a slice."""
    if feed.sessions is not None and feed.sessions.last >= request.begun:
        return True
    return start >= request.floor and (not feed.contents.direct or end > request.ended)
