"""The state of one stream: what the log decides, replayed the same way live and after a restart. No effects."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from transom.engine.cluster.files import PartialFiles
from transom.engine.cluster.work import Executors, Here, Merge
from transom.engine.history import Held, Sources
from transom.engine.results import Span, in_order, result_keys, result_table
from transom.engine.sessions import Ended
from transom.engine.stores import StoreEntry, StoreShape
from transom.engine.tables import PartialTable
from transom.engine.updates import Emission, Updates
from transom.engine.watermarks import WatermarkState
from transom.errors import QueryFailedError
from transom.failures import classify, require_blame
from transom.model.query import Query
from transom.model.time import MAX_TIME, MIN_TIME, Micros
from transom.model.window import SessionSpec
from transom.sinks.base import WindowResults
from transom.sources.base import Offset
from transom.windows.aggregates.base import Slots
from transom.windows.arranging import Flow
from transom.windows.partials import Partial, restricted

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class QueryState:
    """How far one query has come."""

    complete_from: Micros = MIN_TIME
    """Windows that start earlier miss rows read before the query was added; they are not emitted."""
    failure: str | None = None
    paused: bool = False

    @property
    def runs(self) -> bool:
        """Whether rows count for it."""
        return self.failure is None and not self.paused


@dataclass(frozen=True)
class Closing:
    """What a cut gave for a query: results of windows that closed or changed, or the failure of the query."""

    query: str
    windows: int
    results: WindowResults | None = None
    """What the sink gets."""
    final: pa.Table | None = None
    """For queries that others read (`StreamState.feeding`): the windows that no row can change any more, all keys and
    without revisions."""
    passed: bool = False
    """Whether such windows became final at a replay, but all readers have read them already."""
    error: QueryFailedError | None = None


def failure_of(query: str, error: Exception) -> QueryFailedError:
    """Return why a query fails of whose windows an error came; what is not for its user to mend goes to the log, too.

    Raises:
        TransomError: The query is not to blame.
    """
    require_blame(error, f"Merging the windows of {query!r}")
    if isinstance(error, QueryFailedError):
        return error
    logger.error("The windows of %s could not be merged.", query, exc_info=error)
    return QueryFailedError(f"{query}: its windows cannot be merged: {classify(error).reason}.", "The log has more.")


@dataclass(frozen=True)
class CompiledQuery:
    """What the engine needs to know about a query's types."""

    query: Query
    input_types: dict[str, tuple[pa.DataType, ...]]
    """Arrow types of each aggregate's inputs, by result column."""


class StreamState:
    """Panes, watermark and position of a stream.

    Changed only by `commit`, `close`, `arrange`, `drop_query`, `begin_at` and `restore`.

    Args:
        compiled: The queries with their types.
        watermark: Watermark at the start.
        offset: Where the stream starts.
        ansi: Whether overflow is an error.
        executors: Where partials in files are merged; None where there are none.
        scope: Tells its stores from those of other streams and applications.
    """

    def __init__(
        self,
        compiled: Mapping[str, CompiledQuery],
        watermark: WatermarkState,
        offset: Offset,
        ansi: bool,
        executors: Executors | None = None,
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
        self.feeding: frozenset[str] = frozenset()
        """Queries whose final results other queries read."""
        self._updates: dict[str, Updates] = {}
        self._asked: dict[Micros, bool] = {}
        """Watermarks that `has_due` was asked for, and its answers; forgotten with every change."""

    def running(self) -> list[Query]:
        """Return the queries that have not failed and are not paused."""
        return [c.query for name, c in self.compiled.items() if self.queries[name].runs]

    def held(self) -> list[Held]:
        """Return the stores of panes as sources of history for queries that come; sessions leave none."""
        return [
            Held(
                entry.origin,
                tuple(
                    (query, self.queries[query.name].complete_from)
                    for query in entry.key_set.queries
                    if not all(isinstance(window, SessionSpec) for window in query.windows)
                ),
                entry.dropped,
            )
            for entry in self.stores
        ]

    def arrange(self, shapes: Sequence[StoreShape], sources: Sequence[Sources] = ()) -> None:
        """Give each key set a store; stores whose origin was there before keep their panes.

        Args:
            shapes: The key sets.
            sources: For each key set, the stores that there are now whose panes its primitives take over; its own
                store keeps them anyway.
        """
        self._asked = {}
        before = {entry.origin: entry for entry in self.stores}
        self.stores = [
            StoreEntry.arranged(shape, sources[number] if sources else {}, before, self._scope, self.executors)
            for number, shape in enumerate(shapes)
        ]
        self.by_query = {query.name: entry for entry in self.stores for query in entry.key_set.queries}
        for entry in self.stores:
            for query in entry.key_set.queries:
                if query.updates:
                    self._updates.setdefault(query.name, Updates(query))
        self._updates = {name: updates for name, updates in self._updates.items() if name in self.queries}
        for name, updates in self._updates.items():
            if name not in self.by_query:
                updates.rest()

    def close(
        self, watermark: Micros, cut: int, now: Micros, closed: Micros, settled: Set[str] = frozenset()
    ) -> list[Closing]:
        """Emit what a logged cut completes or changes; results as of the commits so far.

        Args:
            watermark: The watermark in force, at least the previous one. MAX_TIME closes the windows that are open;
                later ones can still come.
            cut: Number of the cut.
            now: Wall time of the cut.
            closed: Windows up to here are closed by it; what `closed_by` returned when it was logged.
            settled: Queries whose results of this cut nobody needs any more, at a replay: their state moves on, and
                nothing is merged for them.
        """
        after, self.cut, self._asked = self.closed, cut, {}
        if watermark <= after and not self._updates:
            return []
        self.closed = closed
        closings = []
        asked: dict[str, tuple[list[Emission], list[Span]]] = {}
        for query in self.running():
            asked[query.name] = (self._emissions(query, after, watermark, now), self._final(query, after, watermark))
        needed = {name: spans for name, spans in asked.items() if name not in settled}
        merged, ended, failed = self._consolidated(needed, after, watermark)
        for query in self.running():
            entry, (emissions, final) = self.by_query[query.name], asked[query.name]
            if query.name in settled:
                closings += self._passed(query, entry, emissions, final, ended[query.name])
                continue
            try:
                if query.name in failed:
                    raise failed[query.name]
                closing = self._closing(query, entry, emissions, final, merged[query.name], ended[query.name])
            except Exception as error:
                closing = Closing(query.name, len(emissions), error=failure_of(query.name, error))
            if closing.windows or closing.final is not None or closing.error is not None:
                closings.append(closing)
        if watermark > after:
            for entry in self.stores:
                entry.expire(self.closed)
        return closings

    def _consolidated(
        self, asked: Mapping[str, tuple[Sequence[Emission], Sequence[Span]]], after: Micros, watermark: Micros
    ) -> tuple[dict[str, dict[Span, Partial]], dict[str, Ended], dict[str, QueryFailedError]]:
        """Return the rows of the windows that queries ask for, the sessions that end of all queries, and who failed.

        Sessions of queries that ask for nothing can lack all but their times. What is asked of one store is merged
        together, what is in files in one job for all stores.
        """
        asks: list[tuple[StoreEntry, list[str], dict[Span, Slots | None], Ended, Merge | None]] = []
        sessions: dict[str, Ended] = {}
        for entry in self.stores:
            queries = [query for query in entry.key_set.queries if query.name in asked]
            spans = _with_keys(asked[query.name] for query in queries)
            taken = entry.sessions.take(watermark) if watermark > after else {}
            sessions.update((query.name, taken) for query in entry.key_set.queries)
            taken = {spec: some for spec, some in taken.items() if any(spec in query.windows for query in queries)}
            names = [query.name for query in queries]
            asks.append((entry, names, spans, taken, entry.ask(spans, taken, watermark)))
        merges = [merge for *_, merge in asks if merge is not None]
        done = iter(self.executors.run(merges) if merges else ())
        merged: dict[str, dict[Span, Partial]] = {}
        failed: dict[str, QueryFailedError] = {}
        for entry, names, spans, taken, merge in asks:
            found = () if merge is None else next(done)
            try:
                windows, ended = entry.close(spans, taken, watermark, found)
            except Exception as error:
                if len(names) < 2:
                    failed.update((name, failure_of(name, error)) for name in names)
                    continue
                for name in names:  # those that do not fail alone go on
                    try:
                        windows, sessions[name] = entry.close(_with_keys([asked[name]]), taken, watermark, found)
                        merged[name] = windows
                    except Exception as caught:
                        failed[name] = failure_of(name, caught)
                continue
            merged.update((name, windows) for name in names)
            sessions.update((name, ended) for name in names)
        return merged, sessions, failed

    def _emissions(self, query: Query, after: Micros, watermark: Micros, now: Micros) -> list[Emission]:
        spans = self._due(query, after, watermark)
        updates = self._updates.get(query.name)
        if updates is None:
            return [Emission(span, None, 0) for span in spans]
        return updates.take(spans, after, watermark, now, self.queries[query.name].complete_from)

    def _final(self, query: Query, after: Micros, watermark: Micros) -> list[Span]:
        """Return the windows of a query that others read which no row can change any more."""
        if query.name not in self.feeding:
            return []
        until = watermark if watermark >= MAX_TIME else watermark - query.lateness
        return self._due(query, max(MIN_TIME, after - query.lateness), until)

    def _due(self, query: Query, after: Micros, until: Micros) -> list[Span]:
        complete_from = self.queries[query.name].complete_from
        return self.by_query[query.name].due(query, query.closed_by(after), query.closed_by(until), complete_from)

    def _passed(
        self, query: Query, entry: StoreEntry, emissions: Sequence[Emission], final: Sequence[Span], ended: Ended
    ) -> list[Closing]:
        """Return what tells the readers of a query whose results nobody needs any more that there were some."""
        number = len(emissions) + entry.sessions.count(query, ended, self.queries[query.name].complete_from)
        passed = bool(final if query.updates else number) and query.name in self.feeding
        return [Closing(query.name, number, passed=True)] if passed else []

    def _closing(
        self,
        query: Query,
        entry: StoreEntry,
        emissions: Sequence[Emission],
        final: Sequence[Span],
        merged: Mapping[Span, Partial],
        ended: Ended,
    ) -> Closing:
        types = self.compiled[query.name].input_types
        results, table = None, None
        complete_from = self.queries[query.name].complete_from
        tables = entry.sessions.results(query, ended, complete_from, types, self.ansi)
        windows_emitted = len(emissions) + sum(table.num_rows for table in tables)
        if emissions:
            windows = []
            for emission in emissions:
                partial = merged[emission.span]
                if emission.ids is not None:
                    partial = restricted(partial, emission.ids, len(entry.store.keys))
                windows.append((emission.span, partial))
            revisions = [emission.revision for emission in emissions] if query.updates else None
            tables.insert(0, result_table(query, entry.store, windows, types, self.ansi, revisions))
        if tables:
            results = WindowResults(query.name, self.cut, in_order(tables, query), result_keys(query))
        if results is not None and not query.updates and query.name in self.feeding:
            table = results.table
        elif final:
            whole = [(span, merged[span]) for span in final]
            table = result_table(query, entry.store, whole, types, self.ansi)
        return Closing(query.name, windows_emitted, results, table)

    def first_end(self, query: Query) -> Micros | None:
        """Return the end of the next window of a query that a watermark completes; None while there is no row."""
        return self.by_query[query.name].first_end(query, self.closed)

    def next_early(self) -> Micros | None:
        """Return the wall time of the next early results of any query; None when no query gives any."""
        return min((at for updates in self._updates.values() if (at := updates.next_early) is not None), default=None)

    def closed_by(self, watermark: Micros) -> Micros:
        """Return up to where windows are closed under a watermark; MAX_TIME closes those that hold a row."""
        return watermark if watermark < MAX_TIME else max([self.closed, *(entry.last_end() for entry in self.stores)])

    def has_due(self, watermark: Micros, now: Micros) -> bool:
        """Tell whether a cut with this watermark would emit anything; asked many times between two changes."""
        if any(updates.due(now) for updates in self._updates.values()):
            return True
        if watermark <= self.closed:
            return False
        if watermark not in self._asked:
            if len(self._asked) > 8:
                self._asked.clear()
            self._asked[watermark] = any(
                self._due(query, self.closed, watermark)
                or self._final(query, self.closed, watermark)
                or self.by_query[query.name].sessions.due(query, watermark, self.queries[query.name].complete_from)
                for query in self.running()
            )
        return self._asked[watermark]

    def commit(
        self, partials: Sequence[PartialTable | PartialFiles], offset: Offset, watermark: WatermarkState
    ) -> dict[str, QueryFailedError]:
        """Take in the partials of a cut; return the queries of the stores that cannot, which must be dropped."""
        self._asked = {}
        failed: dict[str, QueryFailedError] = {}
        newest = max((moment for moment in watermark.newest if moment is not None), default=MIN_TIME)
        for entry in self.stores:
            try:
                changes = entry.take(partials, newest, self.closed)
            except Exception as error:
                failed.update((query.name, failure_of(query.name, error)) for query in entry.key_set.queries)
                continue
            for query in entry.key_set.queries:
                if query.name in self._updates:
                    self._updates[query.name].changed(changes, self.closed)
        self.offset, self.watermark = offset, watermark
        return failed

    def take_flows(self) -> dict[str, Flow]:
        """Return what was measured of each key set since the last time, by its name."""
        return {entry.key_set.name: entry.take_flow() for entry in self.stores}

    def drop_query(self, name: str, failure: str) -> None:
        """Take a query out; its panes go when `arrange` is called with the remaining ones."""
        self._asked = {}
        self.queries[name] = replace(self.queries[name], failure=failure)

    def begin_at(self, other: StreamState) -> None:
        """Start where another stream of the same source has come to, without its panes."""
        self._asked = {}
        self.cut, self.closed, self.offset, self.watermark = other.cut, other.closed, other.offset, other.watermark

    def snapshot(self) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        """Return everything as JSON and tables."""
        queries: dict[str, dict[str, Any]] = {
            name: {"complete_from": q.complete_from, "failure": q.failure, "paused": q.paused}
            for name, q in self.queries.items()
        }
        state = {
            "cut": self.cut,
            "closed": self.closed,
            "offset": self.offset,
            "watermark": self.watermark.to_json(),
            "queries": queries,
            "dropped": {entry.origin.name: entry.dropped for entry in self.stores},
            "files": {entry.origin.name: entry.files() for entry in self.stores if entry.store.parts},
        }
        tables: dict[str, pa.Table] = {}
        for entry in self.stores:
            tables.update(entry.tables())
        for name, updates in self._updates.items():
            queries[name]["updates"], tables[f"changes:{name}"] = updates.snapshot()
        return state, tables

    def restore(self, state: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
        """Take in what `snapshot` returned; stores must be arranged. What no store needs any more is left out.

        The states of the queries are not looked at: which of them there are is for the caller to say.
        """
        self._asked = {}
        self.cut, self.closed, self.offset = state["cut"], state["closed"], state["offset"]
        self.watermark = WatermarkState.from_json(state["watermark"])
        for entry in self.stores:
            entry.dropped = state["dropped"].get(entry.origin.name, MIN_TIME)
            entry.restore(tables, state.get("files", {}).get(entry.origin.name, ()), self.closed)
        for name, known_query in state["queries"].items():
            if "updates" in known_query and name in self.compiled:
                updates = self._updates.setdefault(name, Updates(self.compiled[name].query))
                updates.restore(known_query["updates"], tables[f"changes:{name}"])


def _with_keys(asked: Iterable[tuple[Sequence[Emission], Sequence[Span]]]) -> dict[Span, Slots | None]:
    """Return the windows that queries emit, or that are final, each with the ids of the keys that are needed."""
    wanted: dict[Span, list[Slots] | None] = {}
    for emissions, final in asked:
        wanted.update(dict.fromkeys(final))
        for emission in emissions:
            keys = wanted.setdefault(emission.span, [])
            if emission.ids is None:
                wanted[emission.span] = None
            elif keys is not None:
                keys.append(emission.ids)
    return {span: None if keys is None else np.unique(np.concatenate(keys)) for span, keys in wanted.items()}
