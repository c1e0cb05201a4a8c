"""Early results that a stream reads: they count in its own early results, and in nothing that is final. No effects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from transom.engine.partials.contents import Origin, taken_from
from transom.engine.partials.early import EarlyPartials
from transom.engine.partials.results import Span
from transom.engine.partials.tables import PartialTable
from transom.engine.partials.updates import Touched
from transom.engine.state.stores import StoreEntry
from transom.errors import CheckpointCorruptError, JobChangedError
from transom.model.time import MAX_TIME, Micros
from transom.windows.partials import Partial, changed_ids, no_rows
from transom.windows.query import WindowedQuery
from transom.windows.store import PaneStore

_TABLE = "early:"


class EarlyRows:
    """Partials of the early results that a stream reads, as of its last commit.

    They take the place of those before as a whole. So nothing is ever subtracted, and each aggregate that merges is
    exact. They lie in panes of their own, beside those of the final results, which end where these begin.
    """

    def __init__(self) -> None:
        self._tables: tuple[PartialTable, ...] | None = ()
        """None while they are not known."""
        self._stores: dict[Origin, PaneStore] = {}
        """By store of final results, the panes; none of those for which they are not known."""

    def arrange(self, entries: Iterable[StoreEntry]) -> None:
        """Have panes beside those of some stores: of queries that give early results, which know all their keys."""
        made = {entry.origin: self._panes(entry) for entry in entries if entry.key_set.remembers_keys}
        self._stores = {origin: panes for origin, panes in made.items() if panes is not None}

    def put(self, early: EarlyPartials, entries: Iterable[StoreEntry]) -> list[tuple[StoreEntry, list[Touched]]]:
        """Take the place of what there was; return what changed, by store.

        Args:
            early: What comes.
            entries: The stores that there are.
        """
        known = tuple(map(PartialTable.of, early.tables))
        self._tables, before = None if early.failure is not None else known, self._stores
        self.arrange(entries)
        return [(entry, list(self._changed(entry, before.get(entry.origin)))) for entry in entries]

    def lacks(self, entry: StoreEntry) -> bool:
        """Tell whether they are not known for a store, so that its windows give no early results for now."""
        return entry.key_set.remembers_keys and entry.origin not in self._stores

    def spans(self, entry: StoreEntry, query: WindowedQuery, after: Micros, complete_from: Micros) -> set[Span]:
        """Return the windows of a query that hold some.

        Args:
            entry: The query's store.
            query: The query.
            after: They end later.
            complete_from: They start then, or later.
        """
        panes = self._stores.get(entry.origin)
        spans = [] if panes is None else [span for w in query.pane_windows for span in panes.due(w, after, MAX_TIME)]
        return {span for span in spans if span[0] >= complete_from}

    def added(self, entry: StoreEntry, merged: Mapping[Span, Partial], closed: Micros) -> dict[Span, Partial]:
        """Return windows as they are with the early results, which those do not have that are closed.

        Args:
            entry: The store.
            merged: Windows of it, as the final results make them.
            closed: Windows up to here are closed.
        """
        windows = dict(merged)
        if (panes := self._stores.get(entry.origin)) is None:
            return windows
        for span in [span for span in merged if span[1] > closed]:
            if len(early := panes.panes_of(span)):
                windows[span] = entry.store.here.merge([merged[span], early])
        return windows

    def _panes(self, entry: StoreEntry) -> PaneStore | None:
        if self._tables is None:
            return None
        here, tables = entry.store.here, self._tables
        panes = PaneStore(here.grid, here.keys.schema, here.primitives, index=here.keys)
        if tables and not any(table.contents.serves(entry.origin) for table in tables):
            return None
        try:
            for some, names in taken_from(entry.origin, entry.names, tables):
                mine = some.of_condition(entry.origin.condition)
                states = mine.states(names, here.primitives)
                if mine.direct:
                    panes.add_windows(mine.panes(), mine.lengths(), mine.table, states)
                else:
                    panes.add(mine.panes(), mine.table, states)
        except (CheckpointCorruptError, JobChangedError):  # made for other queries: the next ones are for these
            return None
        return panes

    def _changed(self, entry: StoreEntry, before: PaneStore | None) -> Iterator[Touched]:
        now = self._stores.get(entry.origin)
        former, present = ({} if panes is None else panes.held() for panes in (before, now))
        nothing = no_rows(entry.store.here.primitives)
        for span in sorted({*former, *present}):
            ids = changed_ids(former.get(span, nothing), present.get(span, nothing))
            if len(ids):
                yield (*span, ids)

    def snapshot(self) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        """Return everything as JSON and tables."""
        if self._tables is None:
            return {"early": None}, {}
        return {"early": len(self._tables)}, {f"{_TABLE}{i}": one.table for i, one in enumerate(self._tables)}

    def restore(self, state: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
        """Take in what `snapshot` returned; where there is nothing, they are not known."""
        count = state.get("early")
        named = [] if count is None else [tables[f"{_TABLE}{i}"] for i in range(count)]
        self._tables = None if count is None else tuple(map(PartialTable.of, named))
