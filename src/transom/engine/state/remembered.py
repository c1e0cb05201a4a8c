"""What queries remember of windows that have closed: the last results of keys, and totals. No effects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from transom.engine.partials.results import Span, result_table, zeros_of
from transom.engine.partials.totals import Totals
from transom.engine.state.stores import StoreEntry
from transom.model.time import Micros
from transom.windows.filling import Filling
from transom.windows.partials import Partial
from transom.windows.query import WindowedQuery


class Remembered:
    """What the queries of a stream remember; changed only by `arrange`, `results` and `restore`."""

    def __init__(self) -> None:
        self._fillings: dict[str, Filling] = {}
        self._totals: dict[str, Totals] = {}

    def arrange(self, entries: Iterable[StoreEntry], known: Iterable[str]) -> None:
        """Remember for the queries that there are; totals of one that rests are gone, as it misses rows.

        Args:
            entries: The stores of those that run.
            known: Names of all queries, also of those that rest.
        """
        running = {query.name: (query, entry) for entry in entries for query in entry.key_set.queries}
        self._fillings = {
            name: filling
            for name, filling in self._fillings.items()
            if name in known and (name in running or name not in self._totals)
        }
        self._totals = {name: totals for name, totals in self._totals.items() if name in running}
        for name, (query, entry) in running.items():
            if query.fill is not None:
                self._fillings.setdefault(name, Filling(query, query.fill))
            if query.total is not None and name not in self._totals:
                self._totals[name] = Totals(query, query.total, entry.store.here, entry.origin)

    def __contains__(self, query: WindowedQuery) -> bool:
        return query.fill is not None

    @property
    def names(self) -> frozenset[str]:
        """The queries that remember something."""
        return frozenset(self._fillings)

    def due(
        self, query: WindowedQuery, rows: Sequence[Span], after: Micros, until: Micros, complete_from: Micros
    ) -> Sequence[Span]:
        """Return the windows of a query to emit; see `Filling.due`."""
        filling = self._fillings.get(query.name)
        return rows if filling is None else filling.due(rows, after, until, complete_from)

    def results(
        self,
        query: WindowedQuery,
        entry: StoreEntry,
        windows: Sequence[tuple[Span, Partial]],
        types: dict[str, tuple[pa.DataType, ...]],
        ansi: bool,
        closed: Micros,
    ) -> pa.Table:
        """Return the results of windows of a query that remembers something.

        Args:
            query: The query.
            entry: Its store.
            windows: Spans and merged rows, in the order of `due`.
            types: Arrow types of each aggregate's inputs, by result column.
            ansi: Whether overflow is an error.
            closed: Windows up to here are closed.

        Raises:
            QueryFailedError: A value cannot be computed, or there are too many keys.
        """
        store = entry.store.here
        spans = [span for span, _ in windows]
        if (totals := self._totals.get(query.name)) is not None:
            windows, store = totals.take(windows, store), totals.store
        table = result_table(query, store, windows, types, ansi)
        return self._fillings[query.name].take(table, spans, closed, zeros_of(query, store.primitives, types, ansi))

    def tables(self) -> dict[str, pa.Table]:
        """Return what the snapshot must hold."""
        fillings = {f"fill:{name}": filling.snapshot() for name, filling in self._fillings.items()}
        return fillings | {f"totals:{name}": totals.table() for name, totals in self._totals.items()}

    def restore(
        self,
        queries: Iterable[WindowedQuery],
        entries: Mapping[str, StoreEntry],
        tables: Mapping[str, pa.Table],
        closed: Micros,
    ) -> None:
        """Take in what `tables` returned.

        Args:
            queries: The queries that were known.
            entries: The stores of those that run.
            tables: The tables.
            closed: Windows up to here are closed.
        """
        for query in queries:
            name, entry = query.name, entries.get(query.name)
            if query.fill is not None:
                filling = self._fillings.setdefault(name, Filling(query, query.fill))
                origin = "" if entry is None else entry.origin.name
                filling.restore(tables.get(f"fill:{name}"), tables.get(f"keys:{origin}"), closed)
            if entry is not None and name in self._totals and f"totals:{name}" in tables:
                self._totals[name].restore(tables[f"totals:{name}"], entry.names)
