"""The store of one key set at run time: panes and open sessions, how cuts feed it, and what was measured of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa

from transom.engine.cluster.files import PartialFiles
from transom.engine.cluster.merges import GroupExecutors, Merge
from transom.engine.cluster.messages import Done, SessionRows
from transom.engine.cluster.store import TieredStore
from transom.engine.partials.contents import Origin, lacking, taken_from
from transom.engine.partials.history import Held, Sources
from transom.engine.partials.results import Span
from transom.engine.partials.sessions import Ended, Sessions
from transom.engine.partials.tables import PartialTable, direct_table, store_table
from transom.engine.partials.updates import Touched
from transom.model.time import MAX_TIME, MIN_TIME, Micros
from transom.windows.aggregates.base import Primitive, Slots, Types
from transom.windows.aggregates.former import current_key
from transom.windows.arranging import Flow
from transom.windows.components import KeySet
from transom.windows.partials import Partial
from transom.windows.query import WindowedQuery
from transom.windows.store import PaneStore

StoreShape: TypeAlias = "tuple[KeySet, Origin, pa.Schema, Mapping[Primitive, Types]]"
"""Key set, origin, schema of its keys, and its primitives with their types."""


def new_store(shape: StoreShape) -> PaneStore:
    """Return a store without panes."""
    key_set, _, keys, primitives = shape
    return PaneStore(key_set.grid, keys, primitives)


@dataclass
class StoreEntry:
    """A key set's store and who uses it."""

    key_set: KeySet
    origin: Origin
    store: TieredStore
    names: dict[Primitive, str] = field(default_factory=dict)
    """Lasting names of the store's primitives."""
    dropped: Micros = MIN_TIME
    """Panes that start earlier may be gone."""
    flow: Flow = field(default_factory=Flow)
    """The measurements since the last `take_flow`."""

    @classmethod
    def arranged(
        cls,
        shape: StoreShape,
        sources: Sources,
        before: Mapping[Origin, StoreEntry],
        scope: str,
        executors: GroupExecutors,
    ) -> StoreEntry:
        """Return the store of a key set, with the panes that are there for it.

        Args:
            shape: The key set.
            sources: The stores whose panes its primitives take over, besides those of its own origin.
            before: The stores that there are, by origin.
            scope: Distinguishes it from stores of the same origin in other streams and applications.
            executors: Where partials in files are merged.
        """
        key_set, origin, keys, primitives = shape
        old, windows = before.get(origin), key_set.pane_windows
        taken: dict[Origin, list[Primitive]] = {}
        for primitive, source in sources.items():
            if source.origin != origin:
                taken.setdefault(source.origin, []).append(primitive)
        names = {primitive: primitive.key for primitive in primitives}
        if old is not None and old.store.here.grid == key_set.grid and not taken:
            store = old.store
            store.rename(names)
            store.arrange(primitives, windows)
        else:
            store = TieredStore(
                key_set.grid, keys, primitives, windows, origin, names, f"{scope}/{origin.name}", executors
            )
            if old is not None:
                if len(keys):
                    store.here.keys.intern(old.store.here.keys.table())  # keys keep their numbers
                store.take_over(old.store)
            for other, wanted in taken.items():
                store.take_history(before[other].store, wanted)
        if key_set.remembers_keys and (taken or old is None or not old.key_set.remembers_keys):
            store.know_keys()
        store.arrange_sessions(key_set)
        return cls(key_set, origin, store, names, MIN_TIME if old is None else old.dropped)

    @property
    def sessions(self) -> Sessions:
        """Its open sessions."""
        return self.store.sessions

    def held(self, complete_from: Mapping[str, Micros]) -> Held:
        """Return its panes as a source of history for queries that come; sessions leave none.

        Args:
            complete_from: For each query the start of its first complete window.
        """
        queries = [query for query in self.key_set.queries if query.pane_windows]
        return Held(self.origin, tuple((query, complete_from[query.name]) for query in queries), self.dropped)

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
                changes += self._attach(some, names, closed)
            if some.contents.direct:  # the panes miss these rows
                self.dropped = max(self.dropped, newest + 1)
        return changes

    def _attach(self, files: PartialFiles, names: Mapping[Primitive, str], closed: Micros) -> list[Touched]:
        """Take in partials in files; of what is in them only keys and times are read, and only if those are needed."""
        condition, wanted = self.origin.condition, set(names.values())
        shape = self._shape()
        changes: list[Touched] = []
        last = MIN_TIME
        for table in self.store.read(files, condition) if shape or self.key_set.remembers_keys else ():
            last = max(last, self.sessions.feed(table, shape, closed, elsewhere=True))
            changes += self.store.touched(table) if self.key_set.remembers_keys else []
        sessions = SessionRows(closed, last) if last > MIN_TIME else None
        self.store.attach(files, condition, wanted.union(shape.values()), sessions)
        if self.key_set.pane_windows:
            spans = len(files.panes_of(condition)) + len(files.windows_of(condition))
            self.flow += Flow(fed=files.rows, kept=files.rows, spans=spans)
        return changes

    def _feed(self, table: PartialTable, names: Mapping[Primitive, str], closed: Micros) -> list[Touched]:
        mine = table.of_condition(self.origin.condition)
        states = mine.states(names, self.store.here.primitives)
        shape = self._shape()
        self.sessions.feed(mine, {**names, **shape} if shape else {}, closed)
        if not self.key_set.pane_windows:
            return []
        if mine.direct:
            windows = self.store.here.add_windows(mine.panes(), mine.lengths(), mine.table, states)
            changes = [(start, end, ids) for (start, end), ids in windows]
        else:
            changes = [(start, start, ids) for start, ids in self.store.here.add(mine.panes(), mine.table, states)]
        kept = sum(len(ids) for _, _, ids in changes)
        self.flow += Flow(fed=mine.table.num_rows, kept=kept, spans=len(changes))
        return changes

    def _shape(self) -> dict[Primitive, str]:
        """Return the lasting names of what its sessions are found from; nothing without sessions."""
        return {primitive: self.names[primitive] for primitive in self.sessions.shape}

    def take_flow(self) -> Flow:
        """Return what was measured since the last time."""
        flow, self.flow = self.flow, Flow()
        return flow

    # ---- windows

    def due(self, query: WindowedQuery, after: Micros, until: Micros, complete_from: Micros) -> list[Span]:
        """Return the windows of a query that hold rows and end in (after, until], ordered by end and start.

        Args:
            query: One of the key set.
            after: Watermark before.
            until: Watermark now.
            complete_from: Windows that start earlier are not emitted.
        """
        spans: set[Span] = set()
        for window in query.pane_windows:
            spans.update(self.store.due(window, after, until))
        return sorted((span for span in spans if span[0] >= complete_from), key=lambda span: (span[1], span[0]))

    def first_end(self, query: WindowedQuery, closed: Micros) -> Micros | None:
        """Return the watermark that completes the next window of a query; None while there is no row."""
        starts = self.store.starts
        after = closed if closed > MIN_TIME else starts[0] if starts else None
        ends = [] if after is None else [window.first_end(after) for window in query.pane_windows]
        first = min([*ends, self.sessions.first_end(query)], default=MAX_TIME)
        return None if first >= MAX_TIME else first + query.margin

    def last_end(self) -> Micros:
        """Return the watermark from which on no window that holds a row can change; about MIN_TIME without one."""
        queries = self.key_set.queries
        ends = [self.store.last_end(query.pane_windows) + query.lateness + query.margin for query in queries]
        return max([*ends, self.sessions.last_end() + max(query.margin for query in queries)])

    def ask(self, spans: Mapping[Span, Slots | None], ended: Ended, watermark: Micros) -> Merge | None:
        """Return what `close` needs of the executors; None for nothing.

        Args:
            spans: The windows, with the ids of the keys that are needed at least; None for all.
            ended: The sessions that the watermark ended (`Sessions.take`).
            watermark: The watermark in force.
        """
        only = {span: ids for span, ids in spans.items() if ids is not None}
        return self.store.ask(spans, ended, watermark, only)

    def close(
        self, spans: Iterable[Span], ended: Ended, watermark: Micros, done: Sequence[Done]
    ) -> tuple[dict[Span, Partial], Ended]:
        """Return the rows of windows, each merged from its parts, and sessions with all that belongs to them.

        Args:
            spans: The windows.
            ended: The sessions that the watermark ended.
            watermark: The watermark in force.
            done: What came of `ask`.
        """
        before = self.store.here.work.inputs
        windows, ended = self.store.close(spans, ended, watermark, done)
        if windows:
            rows, inputs = sum(len(partial) for partial in windows.values()), self.store.here.work.inputs - before
            self.flow += Flow(windows=len(windows), window_rows=rows, inputs=inputs)
        return windows, ended

    def expire(self, closed: Micros) -> None:
        """Drop the panes that are in closed windows only."""
        queries = self.key_set.queries
        ended = max(MIN_TIME, closed - max(query.lateness for query in queries))
        needed = min(query.late_before(closed) for query in queries)
        if self.store.starts and self.store.starts[0] < needed:
            self.dropped = max(self.dropped, needed)
        self.store.drop_before(needed, ended, self.sessions.begun(closed))
        if self.store.parts and not self.key_set.remembers_keys:
            self.store.here.compact()

    # ---- snapshot

    def files(self) -> list[Any]:
        """Return as JSON which partials in files it is made of."""
        found: list[Any] = []
        for part in self.store.parts:
            sessions = None if part.feed.sessions is None else part.feed.sessions.to_json()
            found.append([part.files.to_json(), part.feed.condition, sorted(part.feed.wanted), sessions])
        return found

    def tables(self) -> dict[str, pa.Table]:
        """Return what is in memory as tables by name; keys that no pane needs are forgotten where that can be."""
        name, found = self.origin.name, {}
        if self.key_set.remembers_keys:
            found[f"keys:{name}"] = self.store.here.keys.table()
        else:
            self.store.here.compact()
        found[f"panes:{name}"] = store_table(self.store.here, self.origin)
        windows = direct_table(self.store.here, self.origin)
        if windows.num_rows:
            found[f"direct:{name}"] = windows
        return {**found, **self.sessions.tables(self.origin)}

    def restore(self, tables: Mapping[str, pa.Table], files: Iterable[Any]) -> None:
        """Take in what `tables` and `files` returned; what it does not need any more is left out.

        Args:
            tables: The tables, perhaps those of other stores, too.
            files: Its files.

        Raises:
            CheckpointCorruptError: States are missing.
        """
        name = self.origin.name
        known = tables.get(f"keys:{name}")
        if known is not None and self.store.here.keys.schema.names:
            self.store.here.keys.intern(known)
        if (held := tables.get(f"panes:{name}")) is None:
            raise lacking(self.origin, self.names.values())
        table = PartialTable.of(held)
        table.contents.require(self.origin, self.names.values())
        self.store.here.add(table.panes(), table.table, table.states(self.names, self.store.here.primitives))
        if (direct := tables.get(f"direct:{name}")) is not None:
            table = PartialTable.of(direct)
            table.contents.require(self.origin, self.names.values())
            self.store.here.add_windows(
                table.panes(), table.lengths(), table.table, table.states(self.names, self.store.here.primitives)
            )
        for written, condition, wanted, *rest in files:  # nothing follows in older checkpoints
            sessions = SessionRows.from_json(rest[0]) if rest and rest[0] is not None else None
            part, taken = PartialFiles.from_json(written), set(map(current_key, wanted))
            part.contents.require(self.origin, taken)
            self.store.attach(part, condition, taken, sessions)
        if self.key_set.remembers_keys and known is None:
            self.store.know_keys()
        self.sessions.restore(tables, self.origin, self.names)
