"""The store of one key set at run time: panes and open sessions, how cuts feed it, and what was measured of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa

from transom.engine.cluster.files import PartialFiles
from transom.engine.cluster.store import TieredStore
from transom.engine.cluster.work import Executors
from transom.engine.history import Sources
from transom.engine.results import Span
from transom.engine.sessions import Sessions
from transom.engine.tables import Origin, PartialTable, direct_table, primitive_names, store_table, taken_from
from transom.engine.updates import Touched
from transom.model.query import Query
from transom.model.time import MAX_TIME, MIN_TIME, Micros
from transom.windows.aggregates.base import Primitive, Slots, Types
from transom.windows.arranging import Flow
from transom.windows.components import KeySet
from transom.windows.panes import all_windows
from transom.windows.partials import Partial
from transom.windows.sessions import TIMES

StoreShape: TypeAlias = "tuple[KeySet, Origin, pa.Schema, Mapping[Primitive, Types]]"
"""Key set, origin, schema of its keys, and its primitives with their types."""


@dataclass
class StoreEntry:
    """A key set's store and who uses it."""

    key_set: KeySet
    origin: Origin
    store: TieredStore
    names: dict[Primitive, str] = field(default_factory=dict)
    """Lasting names of the store's primitives."""
    sessions: Sessions = field(default_factory=Sessions)
    dropped: Micros = MIN_TIME
    """Panes that start earlier may be gone."""
    flow: Flow = field(default_factory=Flow)
    """What was measured since the last `take_flow`."""

    @classmethod
    def arranged(
        cls, shape: StoreShape, sources: Sources, before: Mapping[Origin, StoreEntry], scope: str, executors: Executors
    ) -> StoreEntry:
        """Return the store of a key set, with the panes that are there for it.

        Args:
            shape: The key set.
            sources: The stores whose panes its primitives take over, besides those of its own origin.
            before: The stores that there are, by origin.
            scope: Tells it from stores of the same origin in other streams and applications.
            executors: Where partials in files are merged.
        """
        key_set, origin, keys, primitives = shape
        old, windows = before.get(origin), key_set.pane_windows
        taken: dict[Origin, list[Primitive]] = {}
        for primitive, source in sources.items():
            if source.origin != origin:
                taken.setdefault(source.origin, []).append(primitive)
        names = dict(zip(primitives, primitive_names(tuple(primitives)), strict=True))
        if old is not None and old.store.grid == key_set.grid and not taken:
            store = old.store
            store.rename(names)
            store.arrange(primitives, windows)
        else:
            store = TieredStore(
                key_set.grid, keys, primitives, windows, origin, names, f"{scope}/{origin.name}", executors
            )
            if old is not None:
                if len(keys):
                    store.keys.intern(old.store.keys.table())  # keys keep their numbers
                store.take_over(old.store)
            for other, wanted in taken.items():
                store.take_history(before[other].store, wanted)
        if key_set.remembers_keys and (taken or old is None or not old.key_set.remembers_keys):
            store.know_keys()
        dropped, sessions = (MIN_TIME, Sessions()) if old is None else (old.dropped, old.sessions)
        sessions.arrange(key_set, keys, primitives)
        return cls(key_set, origin, store, names, sessions, dropped)

    # ---- partials of a cut

    def take(self, partials: Sequence[PartialTable | PartialFiles], newest: Micros, closed: Micros) -> list[Touched]:
        """Take in what it needs of the partials of a cut; return what changed.

        Args:
            partials: All partials of the cut.
            newest: Largest event time read so far.
            closed: The watermark in force.
        """
        changes: list[Touched] = []
        for some, names in taken_from(self.origin, self.names, partials):
            if isinstance(some, PartialTable):
                changes += self._feed(some, names, closed)
            else:
                changes += self._attach(some, names)
            if some.contents.direct:  # the panes miss these rows
                self.dropped = max(self.dropped, newest + 1)
        return changes

    def _attach(self, files: PartialFiles, names: Mapping[Primitive, str]) -> list[Touched]:
        condition = self.origin.condition
        self.store.attach(files, condition, names.values())
        spans = len(files.panes_of(condition)) + len(files.windows_of(condition))
        self.flow += Flow(fed=files.rows, kept=files.rows, spans=spans)
        if not self.key_set.remembers_keys:
            return []
        return [change for table in self.store.read(files, condition) for change in self.store.touched(table)]

    def _feed(self, table: PartialTable, names: Mapping[Primitive, str], closed: Micros) -> list[Touched]:
        mine = table.of_condition(self.origin.condition)
        states = mine.states(names)
        self.sessions.feed(mine, {**names, TIMES: self.names[TIMES]} if TIMES in self.names else {}, closed)
        if not self.key_set.pane_windows:
            return []
        if mine.direct:
            windows = self.store.add_windows(mine.panes(), mine.lengths(), mine.table, states)
            changes = [(start, end, ids) for (start, end), ids in windows]
        else:
            changes = [(start, start, ids) for start, ids in self.store.add(mine.panes(), mine.table, states)]
        kept = sum(len(ids) for _, _, ids in changes)
        self.flow += Flow(fed=mine.table.num_rows, kept=kept, spans=len(changes))
        return changes

    def take_flow(self) -> Flow:
        """Return what was measured since the last time."""
        flow, self.flow = self.flow, Flow()
        return flow

    # ---- windows

    def due(self, query: Query, after: Micros, until: Micros, complete_from: Micros) -> list[Span]:
        """Return the windows of a query to emit that end in (after, until], ordered by end and start.

        Args:
            query: One of the key set.
            after: Watermark before.
            until: Watermark now.
            complete_from: Windows that start earlier are not emitted.
        """
        spans: set[Span] = set()
        for window in query.pane_windows:
            if query.fill_zero:
                spans.update(all_windows(window, self.store.start_times(), after, until))
            else:
                spans.update(self.store.due(window, after, until))
        return sorted((span for span in spans if span[0] >= complete_from), key=lambda span: (span[1], span[0]))

    def first_end(self, query: Query, closed: Micros) -> Micros | None:
        """Return the end of the next window of a query that a watermark completes; None while there is no row."""
        starts = self.store.starts
        after = closed if closed > MIN_TIME else starts[0] if starts else None
        ends = [] if after is None else [window.first_end(after) for window in query.pane_windows]
        first = min([*ends, self.sessions.first_end(query)], default=MAX_TIME)
        return None if first >= MAX_TIME else first

    def last_end(self) -> Micros:
        """Return when the last window that holds a row can change no more; MIN_TIME without one."""
        ends = [self.store.last_end(query.pane_windows) + query.lateness for query in self.key_set.queries]
        return max([*ends, self.sessions.last_end()])

    def consolidate(self, spans: Mapping[Span, Slots | None], watermark: Micros) -> dict[Span, Partial]:
        """Return the rows of windows, each merged from its parts; at least of the keys that are asked for.

        Args:
            spans: The windows, with the ids of the keys; None for all.
            watermark: The watermark in force.
        """
        before = self.store.work.inputs
        windows = self.store.consolidate(spans, watermark, {span: i for span, i in spans.items() if i is not None})
        if windows:
            rows, inputs = sum(len(partial) for partial in windows.values()), self.store.work.inputs - before
            self.flow += Flow(windows=len(windows), window_rows=rows, inputs=inputs)
        return windows

    def expire(self, closed: Micros) -> None:
        """Drop the panes that are in closed windows only."""
        queries = self.key_set.queries
        ended = max(MIN_TIME, closed - max(query.lateness for query in queries))
        needed = min(query.late_before(closed) for query in queries)
        if self.store.starts and self.store.starts[0] < needed:
            self.dropped = max(self.dropped, needed)
        self.store.drop_before(needed, ended)
        if self.store.parts and not self.key_set.remembers_keys:
            self.store.tidy()

    # ---- snapshot

    def files(self) -> list[Any]:
        """Return as JSON which partials in files it is made of."""
        return [[part.files.to_json(), part.feed.condition, sorted(part.feed.wanted)] for part in self.store.parts]

    def tables(self) -> dict[str, pa.Table]:
        """Return what is in memory as tables by name; keys that no pane needs are forgotten where that can be."""
        name, found = self.origin.name, {}
        if self.key_set.remembers_keys:
            found[f"keys:{name}"] = self.store.keys.table()
        else:
            self.store.compact()
        found[f"panes:{name}"] = store_table(self.store, self.origin)
        windows = direct_table(self.store, self.origin)
        if windows.num_rows:
            found[f"direct:{name}"] = windows
        return {**found, **self.sessions.tables(self.origin)}

    def restore(self, tables: Mapping[str, pa.Table], files: Iterable[Any], closed: Micros) -> None:
        """Take in what `tables` and `files` returned; what it does not need any more is left out.

        Args:
            tables: The tables, perhaps those of other stores, too.
            files: Its files.
            closed: The watermark in force.
        """
        name = self.origin.name
        known = tables.get(f"keys:{name}")
        if known is not None and self.store.keys.schema.names:
            self.store.keys.intern(known)
        if (held := tables.get(f"panes:{name}")) is not None:
            table = PartialTable.of(held)
            self.store.add(table.panes(), table.table, table.states(self.names))
        if (direct := tables.get(f"direct:{name}")) is not None:
            table = PartialTable.of(direct)
            self.store.add_windows(table.panes(), table.lengths(), table.table, table.states(self.names))
        for written, condition, wanted in files:
            self.store.attach(PartialFiles.from_json(written), condition, wanted)
        if self.key_set.remembers_keys and known is None:
            self.store.know_keys()
        self.sessions.restore(tables, self.origin, self.names, closed)
