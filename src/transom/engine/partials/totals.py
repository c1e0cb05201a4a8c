"""Totals of all rows so far, by key: windows one after the other, merged into one that never closes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from transom.engine.partials.contents import Origin
from transom.engine.partials.results import Span
from transom.engine.partials.tables import PartialTable, direct_table
from transom.errors import QueryFailedError
from transom.windows.aggregates.base import Primitive
from transom.windows.partials import Partial, restricted
from transom.windows.query import Total, WindowedQuery
from transom.windows.store import PaneStore

_ALL: Span = (0, 1)
"""Stands for all time."""


class Totals:
    """The totals of one query, one partial for each key; changed only by `take` and `restore`.

    Args:
        query: The query.
        total: How many keys there may be.
        kept: The store whose windows they are made of.
        origin: Where their partials come from.
    """

    def __init__(self, query: WindowedQuery, total: Total, kept: PaneStore, origin: Origin) -> None:
        mine = dict.fromkeys(p for _, aggregate in query.aggregates for p in aggregate.primitives)
        self._query, self._total, self._origin = query, total, origin
        self.store = PaneStore(kept.grid, kept.keys.schema, {p: kept.primitives[p] for p in mine})
        """Has the keys of the totals, and the totals as a window computed directly."""

    def take(self, windows: Sequence[tuple[Span, Partial]], of: PaneStore) -> list[tuple[Span, Partial]]:
        """Return for each window the totals up to its end of the keys with rows in it; ids are those of `store`.

        Args:
            windows: Windows in order of time, each once, with their merged rows.
            of: The store whose ids these have.

        Raises:
            QueryFailedError: There are more keys than were stated.
        """
        found: list[tuple[Span, Partial]] = []
        for span, rows in windows:
            start, length = np.zeros(len(rows), np.int64), np.ones(len(rows), np.int64)
            changes = self.store.add_windows(start, length, of.key_table(rows.ids), rows.states)
            ids = changes[0][1] if changes else rows.ids
            if self._total.keys is not None and len(self.store.keys) > self._total.keys:
                raise QueryFailedError(
                    f"{self._query.name}: unbounded: there are more than keys={self._total.keys:,} keys, each of which "
                    "would be kept for ever.",
                    "Allow more under a new name of the query, group by fewer, or use windows that end.",
                )
            found.append((span, restricted(self.store.panes_of(_ALL), ids, len(self.store.keys))))
        return found

    def table(self) -> pa.Table:
        """Return the totals as a table of partials."""
        return direct_table(self.store, self._origin)

    def restore(self, held: pa.Table, names: Mapping[Primitive, str]) -> None:
        """Take in what `table` returned.

        Args:
            held: It.
            names: Lasting names of the primitives.
        """
        table = PartialTable.of(held)
        mine = {primitive: names[primitive] for primitive in self.store.primitives}
        table.contents.require(self._origin, mine.values())
        self.store.add_windows(table.panes(), table.lengths(), table.table, table.states(mine, self.store.primitives))
