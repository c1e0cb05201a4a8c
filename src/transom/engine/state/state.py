"""The state of one stream: what the log decides, replayed the same way live and after a restart. No effects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from transom.engine.cluster.files import PartialFiles
from transom.engine.cluster.merges import GroupExecutors, Here, Merged
from transom.engine.partials.early import EarlyPartials
from transom.engine.partials.history import Held, Sources
from transom.engine.partials.results import Frames, Span, in_order, result_table, whole_table
from transom.engine.partials.sessions import Ended
from transom.engine.partials.tables import PartialTable
from transom.engine.state.absence import Missing, missing_from_json, missing_to_json, with_missing
from transom.engine.state.closing import Asked, Closing, Closure, Dues, asked, failure_of, merged
from transom.engine.state.early import EarlyRows
from transom.engine.state.queries import CompiledQuery, QueryState
from transom.engine.state.remembered import Remembered
from transom.engine.state.revisions import Revisions
from transom.engine.state.shares import Shares, with_shares
from transom.engine.state.stores import StoreEntry, StoreShape
from transom.engine.state.watermarks import WatermarkState
from transom.errors import QueryFailedError
from transom.model.time import MAX_TIME, MIN_TIME, Micros
from transom.sinks.base import WindowResults
from transom.sources.base import Offset
from transom.windows.arranging import Flow
from transom.windows.partials import Partial
from transom.windows.query import WindowedQuery


class StreamState:
    """Panes, watermark and position of a stream.

    Changed only by `commit`, `close` (or its halves), `arrange`, `drop_query`, `begin_at` and its kin, and `restore`.

    Args:
        compiled: The queries with their types.
        watermark: Watermark at the start.
        offset: Where the stream starts.
        ansi: Whether overflow is an error.
        executors: Where partials in files are merged; None where there are none.
        scope: Distinguishes its stores from those of other streams and applications.
    """

    def __init__(
        self,
        compiled: Mapping[str, CompiledQuery],
        watermark: WatermarkState,
        offset: Offset,
        ansi: bool,
        executors: GroupExecutors | None = None,
        scope: str = "",
    ) -> None:
        self.compiled = dict(compiled)
        self.watermark = watermark
        self.offset = offset
        self.ansi = ansi
        self.executors = executors or Here(Path())
        self._scope = scope
        self.cut = 0
        """Number of the last logged cut; 0 before the first."""
        self.closed: Micros = MIN_TIME
        """Windows up to here are closed: the watermark in force at the last logged cut."""
        self.queries: dict[str, QueryState] = {name: QueryState() for name in compiled}
        self.stores: list[StoreEntry] = []
        self.by_query: dict[str, StoreEntry] = {}
        self.shares = Shares()
        """What was left out of the windows that are open."""
        self.missing: Missing | None = None
        """Sites that are left out of windows as of the last logged cut; None where results do not tell of any."""
        self.feeding: frozenset[str] = frozenset()
        """Queries whose final results other queries read."""
        self.previewed: frozenset[str] = frozenset()
        """Those of them whose early results others read, too."""
        self.previews = False
        """Whether this stream reads early results."""
        self.early = EarlyRows()
        """The early results that this stream reads."""
        self._revisions = Revisions()
        self._remembered = Remembered()
        self._dues: dict[Micros, bool] = {}
        """Watermarks that `has_due` was asked for, and its answers; forgotten with every change."""

    def running(self) -> list[WindowedQuery]:
        """Return the queries that have not failed and are not paused."""
        return [c.query for name, c in self.compiled.items() if self.queries[name].runs]

    @property
    def runs(self) -> bool:
        """Whether any query runs."""
        return any(query.runs for query in self.queries.values())

    def held(self) -> list[Held]:
        """Return the stores of panes as sources of history for queries that come; sessions leave none."""
        complete_from = {name: query.complete_from for name, query in self.queries.items()}
        return [entry.held(complete_from) for entry in self.stores]

    def arrange(self, shapes: Sequence[StoreShape], sources: Sequence[Sources] = ()) -> None:
        """Give each key set a store; stores whose origin was there before keep their panes.

        Args:
            shapes: The key sets.
            sources: For each key set, the stores that there are now whose panes its primitives take over; its own
                store keeps them anyway.
        """
        self._dues = {}
        before = {entry.origin: entry for entry in self.stores}
        self.stores = [
            StoreEntry.arranged(shape, sources[number] if sources else {}, before, self._scope, self.executors)
            for number, shape in enumerate(shapes)
        ]
        self.by_query = {query.name: entry for entry in self.stores for query in entry.key_set.queries}
        self._revisions.arrange(self.stores, self.queries)
        self._remembered.arrange(self.stores, self.queries)
        self._arrange_early()

    def _arrange_early(self) -> None:
        self.early.arrange(self.stores)
        self._revisions.follow(self.early, self.stores)

    def close(
        self, watermark: Micros, cut: int, now: Micros, closed: Micros, settled: Set[str] = frozenset()
    ) -> list[Closing]:
        """Emit what a logged cut completes or changes, waiting for what is merged of files; see `begin_close`."""
        closure = self.begin_close(watermark, cut, now, closed, settled)
        if closure is None:
            return []
        return self.finish_close(closure, self.executors.run(closure.merges) if closure.merges else ())

    def begin_close(
        self, watermark: Micros, cut: int, now: Micros, closed: Micros, settled: Set[str] = frozenset()
    ) -> Closure | None:
        """Begin to emit what a logged cut completes or changes; None for nothing.

        Nothing else may change the state until `finish_close`.

        Args:
            watermark: The watermark in force, at least the previous one. MAX_TIME closes the windows that are open;
                later ones can still come.
            cut: Number of the cut.
            now: Wall time of the cut.
            closed: Windows up to here are closed by it; what `closed_by` returned when it was logged.
            settled: Queries whose results of this cut nobody needs any more, at a replay: their state moves on, and
                nothing is merged for them, unless they remember former ones.
        """
        after, self.cut, self._dues = self.closed, cut, {}
        if watermark <= after and not self._revisions:
            return None
        self.closed = closed
        known: Dues = {}
        wanted = {query.name: self._asked(query, after, watermark, now, known) for query in self.running()}
        return asked(self.stores, wanted, after, watermark, settled - self._remembered.names)

    def finish_close(self, closure: Closure, done: Sequence[Merged]) -> list[Closing]:
        """Return the results of a closure; as of the commits before it began.

        Args:
            closure: What `begin_close` returned.
            done: What came of its merges.
        """
        closings, frames = list[Closing](), Frames()
        windows, ended, failed = merged(closure, done)
        for query in self.running():
            entry, wanted = self.by_query[query.name], closure.wanted[query.name]
            if query.name in closure.settled:
                closings += self._passed(query, entry, wanted, ended[query.name])
                continue
            if not (wanted.some or ended[query.name] or query.name in failed):
                continue
            try:
                if query.name in failed:
                    raise failed[query.name]
                closing = self._closing(query, entry, wanted, windows[query.name], ended[query.name], frames)
            except Exception as error:
                closing = Closing(query.name, len(wanted.emissions), error=failure_of(query.name, error))
            if closing.windows or closing.final is not None or closing.error is not None:
                closings.append(closing)
        if closure.watermark > closure.after:
            for entry in self.stores:
                entry.expire(self.closed)
            self.shares.forget(min((query.late_before(self.closed) for query in self.running()), default=self.closed))
        return closings

    def _asked(self, query: WindowedQuery, after: Micros, watermark: Micros, now: Micros, known: Dues) -> Asked:
        spans, complete_from = self._due(query, after, watermark, known), self.queries[query.name].complete_from
        emissions = self._revisions.take(query, spans, after, watermark, now, complete_from)
        final = self._final(query, after, watermark)
        changed = query.name in self.previewed and (emissions or final)
        return Asked(emissions, final, self._open(query, watermark) if changed else None)

    def _final(self, query: WindowedQuery, after: Micros, watermark: Micros) -> Sequence[Span]:
        """Return the windows of a query that others read which no row can change any more."""
        if query.name not in self.feeding:
            return []
        until = watermark if watermark >= MAX_TIME else watermark - query.lateness
        return self._due(query, max(MIN_TIME, after - query.lateness), until)

    def _open(self, query: WindowedQuery, watermark: Micros) -> Sequence[Span]:
        """Return the windows of a query that hold rows, and that rows can still change."""
        if watermark >= MAX_TIME:
            return []
        after, complete_from = max(MIN_TIME, watermark - query.lateness), self.queries[query.name].complete_from
        early = self.early.spans(self.by_query[query.name], query, after, complete_from)
        return sorted({*self._due(query, after, MAX_TIME), *early}, key=lambda span: (span[1], span[0]))

    def _due(self, query: WindowedQuery, after: Micros, until: Micros, known: Dues | None = None) -> Sequence[Span]:
        complete_from, entry = self.queries[query.name].complete_from, self.by_query[query.name]
        after, until = query.closed_by(after), query.closed_by(until)
        known, asked = {} if known is None else known, (id(entry), query.pane_windows, after, until, complete_from)
        if asked not in known:
            known[asked] = entry.due(query, after, until, complete_from)
        return self._remembered.due(query, known[asked], after, until, complete_from)

    def _passed(self, query: WindowedQuery, entry: StoreEntry, wanted: Asked, ended: Ended) -> list[Closing]:
        """Return what tells the readers of a query whose results nobody needs any more that there were some."""
        number = len(wanted.emissions) + entry.sessions.count(query, ended, self.queries[query.name].complete_from)
        some = wanted.final or wanted.open is not None if query.updates else number
        passed = bool(some) and query.name in self.feeding
        return [Closing(query.name, number, passed=True)] if passed else []

    def _closing(
        self,
        query: WindowedQuery,
        entry: StoreEntry,
        wanted: Asked,
        merged: Mapping[Span, Partial],
        ended: Ended,
        frames: Frames,
    ) -> Closing:
        types, shape = self.compiled[query.name].input_types, self.compiled[query.name].shape
        emissions, results, table, early = wanted.emissions, None, None, None
        merged = self.early.added(entry, merged, self.closed) if self.previews else merged
        complete_from = self.queries[query.name].complete_from
        tables = entry.sessions.results(query, ended, complete_from, types, self.ansi)
        windows_emitted = len(emissions) + sum(table.num_rows for table in tables)
        if emissions:
            keys = len(entry.store.here.keys)
            windows = [(emission.span, emission.of(merged[emission.span], keys)) for emission in emissions]
            if query in self._remembered:
                tables = [self._remembered.results(query, entry, windows, types, self.ansi, self.closed)]
            else:
                revisions = [emission.revision for emission in emissions] if query.updates else None
                tables.insert(0, result_table(query, entry.store.here, windows, types, self.ansi, revisions, frames))
        if tables:
            shaped = shape(self._told(in_order(tables, query), query))
            if shaped.num_rows or not query.steps:
                results = WindowResults(query.name, self.cut, shaped, query.result_keys)
        if results is not None and not query.updates and query.name in self.feeding:
            table = results.table
        elif wanted.final and query.updates:
            table = shape(whole_table(query, entry.store.here, wanted.final, merged, types, self.ansi))
        if wanted.open is not None:
            early = shape(whole_table(query, entry.store.here, wanted.open, merged, types, self.ansi))
        return Closing(query.name, windows_emitted, results, table, early)

    def _told(self, table: pa.Table, query: WindowedQuery) -> pa.Table:
        """Return results with the columns that tell what they lack, where they have any."""
        table = with_shares(table, self.shares) if query.sheds else table
        return table if self.missing is None else with_missing(table, self.missing)

    def first_end(self, query: WindowedQuery) -> Micros | None:
        """Return the end of the next window of a query that a watermark completes; None while there is no row."""
        return self.by_query[query.name].first_end(query, self.closed)

    def next_early(self) -> Micros | None:
        """Return the wall time of the next early results of any query; None when no query gives any."""
        return self._revisions.next_early()

    def closed_by(self, watermark: Micros) -> Micros:
        """Return up to where windows are closed under a watermark; MAX_TIME closes those that hold a row."""
        return watermark if watermark < MAX_TIME else max([self.closed, *(entry.last_end() for entry in self.stores)])

    def has_due(self, watermark: Micros, now: Micros) -> bool:
        """Tell whether a cut with this watermark would emit anything; asked many times between two changes."""
        if self._revisions.due(now):
            return True
        if watermark <= self.closed:
            return False
        if watermark not in self._dues:
            if len(self._dues) > 8:
                self._dues.clear()
            self._dues[watermark] = any(
                self._due(query, self.closed, watermark)
                or self._final(query, self.closed, watermark)
                or self.by_query[query.name].sessions.due(query, watermark, self.queries[query.name].complete_from)
                for query in self.running()
            )
        return self._dues[watermark]

    def commit(
        self,
        partials: Sequence[PartialTable | PartialFiles],
        offset: Offset,
        watermark: WatermarkState,
        early: EarlyPartials | None = None,
    ) -> dict[str, QueryFailedError]:
        """Take in the partials of a cut; return the queries of the stores that cannot, which must be dropped.

        Args:
            partials: Those of the rows.
            offset: Where the cut ended.
            watermark: As the cut left it.
            early: Those of early results, in the place of the former ones; None where these stay.
        """
        self._dues = {}
        failed: dict[str, QueryFailedError] = {}
        newest = max((moment for moment in watermark.newest if moment is not None), default=MIN_TIME)
        for entry in self.stores:
            try:
                changes = entry.take(partials, newest, self.closed)
            except Exception as error:
                failed.update((query.name, failure_of(query.name, error)) for query in entry.key_set.queries)
                continue
            self._revisions.changed(entry, changes, self.closed)
        if early is not None:
            for entry, changes in self.early.put(early, self.stores):
                self._revisions.changed(entry, changes, self.closed)
            self._revisions.follow(self.early, self.stores)
        self.offset, self.watermark = offset, watermark
        return failed

    def take_flows(self) -> dict[str, Flow]:
        """Return what was measured of each key set since the last time, by its name."""
        return {entry.key_set.name: entry.take_flow() for entry in self.stores}

    def drop_query(self, name: str, failure: str) -> None:
        """Take a query out; its panes go when `arrange` is called with the remaining ones."""
        self._dues = {}
        self.queries[name] = replace(self.queries[name], failure=failure)

    def begin_windows(self, moment: Micros) -> None:
        """Give results only of windows that begin at a moment or later."""
        self._dues = {}
        self.queries = {
            name: replace(query, complete_from=max(moment, query.complete_from)) for name, query in self.queries.items()
        }

    def begin_at(self, other: StreamState) -> None:
        """Start where another stream of the same source has come to, without its panes."""
        self._dues = {}
        self.cut, self.closed, self.offset, self.watermark = other.cut, other.closed, other.offset, other.watermark
        self.shares.until = other.shares.until

    def snapshot(self) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        """Return everything as JSON and tables."""
        queries: dict[str, dict[str, Any]] = {
            name: {"complete_from": q.complete_from, "failure": q.failure, "paused": q.paused}
            for name, q in self.queries.items()
        }
        state: dict[str, Any] = {
            "cut": self.cut,
            "closed": self.closed,
            "offset": self.offset,
            "watermark": self.watermark.to_json(),
            "queries": queries,
            "dropped": {entry.origin.name: entry.dropped for entry in self.stores},
            "files": {entry.origin.name: entry.files() for entry in self.stores if entry.store.parts},
        }
        if (shares := self.shares.to_json()) is not None:
            state["shares"] = shares
        if self.missing:
            state["missing"] = missing_to_json(self.missing)
        tables: dict[str, pa.Table] = {}
        for entry in self.stores:
            tables.update(entry.tables())
        updates, changes = self._revisions.snapshot()
        for name, emitted in updates.items():
            queries[name]["updates"] = emitted
        early, held = self.early.snapshot() if self.previews else ({}, {})
        return state | early, tables | changes | held | self._remembered.tables()

    def restore(self, state: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
        """Take in what `snapshot` returned; stores must be arranged. What no store needs any more is left out.

        The states of the queries are not looked at: which of them there are is for the caller to say.
        """
        self._dues = {}
        self.cut, self.closed, self.offset = state["cut"], state["closed"], state["offset"]
        self.watermark = WatermarkState.from_json(state["watermark"])
        self.shares.restore(state.get("shares"))
        self.missing = None if self.missing is None else missing_from_json(state.get("missing", {}))
        for entry in self.stores:
            entry.dropped = state["dropped"].get(entry.origin.name, MIN_TIME)
            entry.restore(tables, state.get("files", {}).get(entry.origin.name, ()))
        updates = {name: query["updates"] for name, query in state["queries"].items() if "updates" in query}
        self._revisions.restore(updates, tables, {name: known.query for name, known in self.compiled.items()})
        if self.previews:
            self.early.restore(state, tables)
        self._arrange_early()
        known = [self.compiled[name].query for name in state["queries"] if name in self.queries]
        self._remembered.restore(known, self.by_query, tables, self.closed)
