"""The open sessions of a key set: one store for each gap, fed and emptied beside the store of panes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import pyarrow as pa

from transom.engine.partials.contents import Origin, lacking
from transom.engine.partials.results import ResultRows, table_of
from transom.engine.partials.tables import PANE, PartialTable, partial_table
from transom.model.time import MAX_TIME, MIN_TIME, Micros
from transom.model.window import SessionSpec
from transom.windows.aggregates.base import Primitive, Types
from transom.windows.components import KeySet
from transom.windows.intervals import TIMES, Intervals, shape_of
from transom.windows.query import WindowedQuery
from transom.windows.sessions import SessionStore

Ended: TypeAlias = "Mapping[SessionSpec, Intervals]"
"""Sessions that a cut ended, by kind."""


class Sessions:
    """The session stores of one key set."""

    def __init__(self) -> None:
        self.stores: dict[SessionSpec, SessionStore] = {}

    def arrange(self, key_set: KeySet, keys: pa.Schema, primitives: Mapping[Primitive, Types]) -> None:
        """Keep the kinds of sessions that the queries ask for; those that were there before keep their rows.

        Args:
            key_set: The queries.
            keys: Names and types of the keys.
            primitives: All primitives of the queries, with their types.
        """
        before, self.stores = self.stores, {}
        for spec in key_set.sessions:
            needed = {p: primitives[p] for p in key_set.session_primitives(spec)}
            self.stores[spec] = before.get(spec) or SessionStore(spec, keys, needed)
            self.stores[spec].arrange(needed)

    @property
    def shape(self) -> set[Primitive]:
        """The primitives from which all these sessions are found; none without sessions."""
        return {primitive for spec in self.stores for primitive in shape_of(spec)}

    def feed(
        self, table: PartialTable, names: Mapping[Primitive, str], closed: Micros, elsewhere: bool = False
    ) -> Micros:
        """Take in a cut's partials; return the time of the last row, late or not; MIN_TIME without one.

        Partials without times came before the queries.

        Args:
            table: The partials.
            names: Lasting names of the primitives to take, `shape` among them.
            closed: The watermark in force.
            elsewhere: Whether nothing but the shape is taken, as the states stay where they are.
        """
        types = {p: kinds for store in self.stores.values() for p, kinds in store.primitives.items()}
        states = table.states(names, types) if self.stores else {}
        if TIMES not in states or not table.table.num_rows:
            return MIN_TIME
        for store in self.stores.values():
            mine = {p: state for p, state in states.items() if p in store.shape} if elsewhere else states
            store.add(table.table, mine, closed)
        return int(states[TIMES]["last"].max())

    def begun(self, closed: Micros) -> Micros:
        """Return a moment before which no session begins that is open now or comes later; MAX_TIME if none can come.

        It never goes back while the kinds of sessions stay what they are.

        Args:
            closed: The watermark in force.
        """
        return min((store.begun(closed) for store in self.stores.values()), default=MAX_TIME)

    @property
    def nbytes(self) -> int:
        """Bytes that intervals and keys take; those of sketches are estimated."""
        return sum(store.nbytes for store in self.stores.values())

    def last_end(self) -> Micros:
        """Return the end of the last session; MIN_TIME without one."""
        return max((store.last_end() for store in self.stores.values()), default=MIN_TIME)

    def first_end(self, query: WindowedQuery) -> Micros:
        """Return the end of the first session of a query to end unless rows come; MAX_TIME without one."""
        return min((s.first_end() for spec, s in self.stores.items() if spec in query.windows), default=MAX_TIME)

    def due(self, query: WindowedQuery, watermark: Micros, complete_from: Micros) -> bool:
        """Tell whether the watermark ends sessions of a query that are complete."""
        return any(
            bool((store.due(watermark) >= _complete(spec, complete_from)).any())
            for spec, store in self.stores.items()
            if spec in query.windows
        )

    def take(self, watermark: Micros) -> Ended:
        """Take out the sessions that the watermark ends."""
        return {spec: store.take(watermark) for spec, store in self.stores.items()}

    def results(
        self,
        query: WindowedQuery,
        ended: Ended,
        complete_from: Micros,
        input_types: dict[str, tuple[pa.DataType, ...]],
        ansi: bool,
    ) -> list[pa.Table]:
        """Return the results of a query, one table for each of its kinds of sessions with results.

        Args:
            query: The query.
            ended: What `take` returned.
            complete_from: Sessions that miss rows from before are not emitted.
            input_types: Arrow types of each aggregate's inputs, by result column.
            ansi: Whether overflow is an error.

        Raises:
            QueryFailedError: A value cannot be computed.
        """
        tables = []
        for spec, mine in _complete_sessions(query, ended, complete_from):
            if len(mine):
                store = self.stores[spec]
                rows = ResultRows(mine.first, store.ends(mine), mine.ids, mine.states)
                tables.append(table_of(query, store.keys, store.primitives, rows, input_types, ansi))
        return tables

    @staticmethod
    def count(query: WindowedQuery, ended: Ended, complete_from: Micros) -> int:
        """Return the number of rows that `results` would return, of all kinds together."""
        return sum(len(mine) for _, mine in _complete_sessions(query, ended, complete_from))

    def tables(self, origin: Origin) -> dict[str, pa.Table]:
        """Return the open sessions as tables by name; keys without one are forgotten when they are many."""
        for store in self.stores.values():
            store.compact()
        return {_name(spec, origin): sessions_table(store, origin) for spec, store in self.stores.items()}

    def restore(self, tables: Mapping[str, pa.Table], origin: Origin, names: Mapping[Primitive, str]) -> None:
        """Take in what `tables` returned.

        Raises:
            CheckpointCorruptError: Sessions, or states of them, are missing.
        """
        for spec, store in self.stores.items():
            held = tables.get(_name(spec, origin))
            if held is None:
                raise lacking(origin, [_name(spec, origin)])
            table = PartialTable.of(held)
            if table.contents.absent is not None:
                table.contents.require(origin, (names[primitive] for primitive in store.primitives))
            store.add(table.table, table.states(names, store.primitives), MIN_TIME)


def sessions_table(store: SessionStore, origin: Origin) -> pa.Table:
    """Return the open sessions of a store as one table of partials; primitives that it has of none are left out."""
    times, keys, states = store.rows()
    panes = times if store.spec.ends_when is None else times - times % store.spec.gap  # files list their panes
    kept = {p: types for p, types in store.primitives.items() if p in states}
    absent = [p for p in store.primitives if p not in states]
    return partial_table(kept, origin, {PANE: panes}, keys, states, absent)


def _complete_sessions(
    query: WindowedQuery, ended: Ended, complete_from: Micros
) -> Iterator[tuple[SessionSpec, Intervals]]:
    """Yield those of the sessions that ended that are results of a query, by kind."""
    for spec, sessions in ended.items():
        if spec in query.windows:
            complete = sessions.first >= _complete(spec, complete_from)
            yield spec, sessions if complete.all() else sessions.where(complete)


def _name(spec: SessionSpec, origin: Origin) -> str:
    return f"sessions:{spec.key}:{origin.name}"


def _complete(spec: SessionSpec, complete_from: Micros) -> Micros:
    """Return the first start of a session that no row from before `complete_from` can have joined."""
    return complete_from + spec.gap if complete_from > MIN_TIME else MIN_TIME
