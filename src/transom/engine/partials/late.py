"""Rows of a cut that came too late, as its partials tell: late rows are whole partials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from transom.engine.partials.tables import LENGTH, PANE, TAG, state_name
from transom.model.time import MIN_TIME, Micros
from transom.model.window import WindowSpec
from transom.windows.components import ROWS, Component
from transom.windows.intervals import TIMES
from transom.windows.panes import Times
from transom.windows.query import WindowedQuery


def late_moments(queries: Sequence[WindowedQuery], watermark: Micros) -> dict[str, Micros]:
    """Return, for each query, the moment before which its rows are late; MIN_TIME when none is."""
    return {query.name: max(MIN_TIME, query.late_before(watermark)) for query in queries}


def late_for_sessions(component: Component, watermark: Micros) -> tuple[Micros, ...]:
    """Return the moments before which rows are late for the sessions of a component, ascending."""
    return tuple(sorted({s.late_before(watermark) for key_set in component.key_sets for s in key_set.sessions}))


def straddled(tables: Sequence[pa.Table], components: Sequence[Component], watermark: Micros) -> tuple[Micros, ...]:
    """Return the moments before which rows are late for sessions and that lie between the rows of a partial.

    Panes need no edge there, since a moment that moves with the watermark would make every plan a new one; only when
    rows on both sides of it are in one pane of a key, which is rare, the job must run again with that edge.

    Args:
        tables: The components' partials.
        components: The components.
        watermark: The watermark in force.
    """
    found: set[Micros] = set()
    for table, component in zip(tables, components, strict=True):
        moments = late_for_sessions(component, watermark)
        if moments:
            first, last = _times(table, component)
            found.update(moment for moment in moments if ((first < moment) & (moment <= last)).any())
    return tuple(sorted(found))


def _times(table: pa.Table, component: Component) -> tuple[Times, Times]:
    """Return the first and the last event time of each partial; its pane's start where that is as good."""
    if TIMES not in component.primitives:
        panes = table.column(PANE).to_numpy()
        return panes, panes
    index = component.primitives.index(TIMES)
    first, last = (table.column(state_name(index, name)).to_numpy() for name in ("first", "last"))
    return first, last


def late_rows(table: pa.Table, component: Component, before: Mapping[str, Micros]) -> dict[str, int]:
    """Return how many rows of a cut came too late for each query.

    Late rows are whole partials, since the moment is a window's edge or lies between the rows of none (`straddled`). Of
    windows that were computed directly, those are counted that lie one after the other up to the moment.

    Args:
        table: The component's partials.
        component: The component.
        before: Moment per query.
    """
    starts, last = table.column(PANE).to_numpy(), _times(table, component)[1]
    counts = state_name(component.primitives.index(ROWS), "count")
    rows = table.column(counts).to_numpy()
    tags = table.column(TAG).to_numpy() if TAG in table.column_names else np.zeros(len(starts), np.int32)
    late: dict[str, int] = {}
    for key_set in component.key_sets:
        mine = tags == component.conditions.index(key_set.condition)
        for query in key_set.queries:
            moment = before[query.name]
            if moment > MIN_TIME:
                chosen = mine & (last < moment)
                if component.direct:
                    length = _length_up_to(query, moment)
                    chosen &= (table.column(LENGTH).to_numpy() == length) & ((moment - starts) % length == 0)
                late[query.name] = int(rows[chosen].sum())
    return late


def _length_up_to(query: WindowedQuery, moment: Micros) -> Micros:
    """Return the length of windows that lie one after the other up to the moment, which is an edge of theirs."""
    fixed = [window for window in query.windows if isinstance(window, WindowSpec)]
    return next(window.length for window in fixed if (moment - window.offset) % window.slide == 0)
