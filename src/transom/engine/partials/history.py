"""The panes that can serve queries that come later. Pure: no effects, no Spark.

A store of panes serves another query's aggregate when it comes from the same rows, its keys are the same or finer, and
it has the aggregate's primitives. From when on is known without bookkeeping: a query whose windows are complete from
a moment on has, since that moment, all its primitives in panes that are cut at all its window edges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from transom.engine.partials.contents import Origin
from transom.model.time import MAX_TIME, MIN_TIME, Micros
from transom.model.window import SessionSpec, WindowKind
from transom.windows.aggregates.base import Primitive
from transom.windows.components import KeySet
from transom.windows.panes import Grid
from transom.windows.query import WindowedQuery


@dataclass(frozen=True)
class Held:
    """A store of panes as a source of history."""

    origin: Origin
    queries: tuple[tuple[WindowedQuery, Micros], ...]
    """Its queries, and from when on the windows of each are complete; microseconds."""
    dropped: Micros
    """Panes that start earlier may be gone."""

    def since(self, primitive: Primitive, windows: Iterable[WindowKind]) -> Micros:
        """Return the start of the earliest window that its panes hold whole; MAX_TIME when they never do.

        O(queries x windows of the store), once per change of the set of queries.

        Args:
            primitive: What is needed of each pane.
            windows: The windows; their edges must be edges of the panes.
        """
        computed = min((moment for query, moment in self.queries if primitive in _primitives(query)), default=MAX_TIME)
        return max(self.dropped, computed, *(self._cut_since(window) for window in windows))

    def _cut_since(self, window: WindowKind) -> Micros:
        """Return the moment from which on panes are kept that begin and end where the windows do."""
        if isinstance(window, SessionSpec):
            return MAX_TIME
        known: list[WindowKind] = []
        for query, moment in sorted(self.queries, key=lambda item: item[1]):
            known.extend(query.pane_windows)
            if Grid.of([*known, window]) == Grid.of(known):
                return moment
        return MAX_TIME


Sources = Mapping[Primitive, Held]
"""The store that has the history of each primitive; primitives without any are left out."""


def sources_of(key_set: KeySet, origin: Origin, held: Sequence[Held], added: frozenset[str]) -> Sources:
    """Return where the primitives of a key set come from: its own store, else the finer one that reaches back furthest.

    Args:
        key_set: The queries that are to run, with those that are added.
        origin: Where its partials come from.
        held: The stores that are there.
        added: Names of the queries that are added.
    """
    new = [query for query in key_set.queries if query.name in added]
    found: dict[Primitive, Held] = {}
    serving = [(h, {p for q, _ in h.queries for p in _primitives(q)}) for h in held if h.origin.serves(origin)]
    for primitive in key_set.primitives:
        having = [h for h, has in serving if primitive in has]
        own = [h for h in having if h.origin == origin]
        windows = [window for query in new if primitive in _primitives(query) for window in query.windows]
        if own:
            found[primitive] = own[0]
        elif having:
            best = min(having, key=lambda h: (h.since(primitive, windows), len(h.origin.keys)))
            if best.since(primitive, windows) < MAX_TIME:
                found[primitive] = best
    return found


def complete_from(query: WindowedQuery, sources: Sources, unseen: Micros) -> Micros:
    """Return the start of the earliest window of an added query that is complete.

    Args:
        query: The query.
        sources: What `sources_of` returned for its key set.
        unseen: The moment from which on no row has been read so far; MIN_TIME before the first row.
    """
    if unseen <= MIN_TIME:
        return MIN_TIME
    since = [
        sources[p].since(p, query.windows) if p in sources else MAX_TIME for p in dict.fromkeys(_primitives(query))
    ]
    return min(unseen, max(since, default=MAX_TIME))


def _primitives(query: WindowedQuery) -> list[Primitive]:
    return [primitive for _, aggregate in query.aggregates for primitive in aggregate.primitives]
