"""Which queries of a stream emit windows more than once, and what changed for each since. No effects."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from transom.engine.partials.results import Span
from transom.engine.partials.updates import Emission, Touched, Updates
from transom.engine.state.early import EarlyRows
from transom.engine.state.stores import StoreEntry
from transom.model.time import Micros
from transom.windows.query import WindowedQuery


class Revisions:
    """The updates of all queries of a stream; changed only by `arrange`, `take`, `changed`, `follow` and `restore`."""

    def __init__(self) -> None:
        self._updates: dict[str, Updates] = {}

    def __len__(self) -> int:
        """Return the number of queries that emit windows more than once."""
        return len(self._updates)

    def arrange(self, entries: Iterable[StoreEntry], known: Collection[str]) -> None:
        """Have the queries that there are; those that rest forget what changed.

        Args:
            entries: The stores of those that run.
            known: Names of all queries, also of those that rest.
        """
        running = {query.name: query for entry in entries for query in entry.key_set.queries if query.updates}
        for name, query in running.items():
            self._updates.setdefault(name, Updates(query))
        self._updates = {name: updates for name, updates in self._updates.items() if name in known}
        for name, updates in self._updates.items():
            if name not in running:
                updates.rest()

    def follow(self, early: EarlyRows, entries: Iterable[StoreEntry]) -> None:
        """Let those queries give no early results for now for which the early results that they read are not known."""
        for entry in entries:
            for query in entry.key_set.queries:
                if query.name in self._updates:
                    self._updates[query.name].held_back = early.lacks(entry)

    def take(
        self,
        query: WindowedQuery,
        closing: Sequence[Span],
        after: Micros,
        watermark: Micros,
        now: Micros,
        complete_from: Micros,
    ) -> list[Emission]:
        """Return what a logged cut emits of a query; see `Updates.take`."""
        updates = self._updates.get(query.name)
        if updates is None:
            return [Emission(span, None, 0) for span in closing]
        return updates.take(closing, after, watermark, now, complete_from)

    def changed(self, entry: StoreEntry, changes: Sequence[Touched], closed: Micros) -> None:
        """Note what a commit changed in a store."""
        for query in entry.key_set.queries:
            if query.name in self._updates:
                self._updates[query.name].changed(changes, closed)

    def due(self, now: Micros) -> bool:
        """Tell whether there is something to emit besides the windows that close."""
        return any(updates.due(now) for updates in self._updates.values())

    def next_early(self) -> Micros | None:
        """Return the wall time of the next early results of any query; None when no query gives any."""
        return min((at for updates in self._updates.values() if (at := updates.next_early) is not None), default=None)

    def snapshot(self) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        """Return everything as JSON by query, and as tables."""
        states, tables = {}, {}
        for name, updates in self._updates.items():
            states[name], tables[f"changes:{name}"] = updates.snapshot()
        return states, tables

    def restore(
        self, states: Mapping[str, Any], tables: Mapping[str, pa.Table], queries: Mapping[str, WindowedQuery]
    ) -> None:
        """Take in what `snapshot` returned, of the queries that there are."""
        for name, state in states.items():
            if name in queries:
                self._updates.setdefault(name, Updates(queries[name])).restore(state, tables[f"changes:{name}"])
