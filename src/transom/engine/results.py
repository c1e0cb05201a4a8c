"""From merged partials to the rows that a sink gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.model.query import Query
from transom.model.time import Micros
from transom.sinks.base import REVISION
from transom.windows.aggregates.base import Primitive, ResultContext, State
from transom.windows.partials import Partial
from transom.windows.store import PaneStore

WINDOW_START, WINDOW_END = "window_start", "window_end"
_TIMESTAMP = pa.timestamp("us", "UTC")

Span = tuple[Micros, Micros]


def result_keys(query: Query) -> tuple[str, ...]:
    """Return the names of the columns that identify a result row."""
    return (WINDOW_START, WINDOW_END, *(key.name for key in query.keys))


def result_table(
    query: Query,
    store: PaneStore,
    windows: Sequence[tuple[Span, Partial]],
    input_types: dict[str, tuple[pa.DataType, ...]],
    ansi: bool,
    revisions: Sequence[int] | None = None,
) -> pa.Table:
    """Return the results of some windows: window_start, window_end, keys, values, and the revision if there is one.

    Args:
        query: The query.
        store: Where the partials come from.
        windows: Spans and their merged partials, in the order of the result.
        input_types: Arrow types of each aggregate's inputs, by result column.
        ansi: Whether overflow is an error.
        revisions: Which result of its window each one is, from 0; None when there is only one.

    Raises:
        QueryFailedError: A value cannot be computed, e.g. overflow under ANSI.
    """
    filled = None
    if query.fill_zero:
        filled = np.concatenate([_missing(partial, len(store.keys)) for _, partial in windows])
        windows = [(span, _with_all_keys(partial, store)) for span, partial in windows]
    counts = np.array([len(partial) for _, partial in windows], dtype=np.int64)
    ids = np.concatenate([partial.ids for _, partial in windows])
    starts = np.repeat(np.array([span[0] for span, _ in windows], dtype=np.int64), counts)
    ends = np.repeat(np.array([span[1] for span, _ in windows], dtype=np.int64), counts)
    columns: dict[str, pa.Array] = {
        WINDOW_START: pa.array(starts).cast(_TIMESTAMP),
        WINDOW_END: pa.array(ends).cast(_TIMESTAMP),
    }
    keys = dict(zip(store.keys.schema.names, store.keys.take(ids), strict=True))
    columns.update({key.name: keys[key.name] for key in query.keys})
    for name, aggregate in query.aggregates:
        types = tuple(store.primitives[p] for p in aggregate.primitives)
        states: list[State] = []
        for primitive, kinds in zip(aggregate.primitives, types, strict=True):
            parts = [p.states.get(primitive) or primitive.empty(len(p), kinds) for _, p in windows]
            states.append({c: np.concatenate([part[c] for part in parts]) for c in parts[0]})
        columns[name] = aggregate.result(states, ResultContext(input_types[name], types, ansi))
        if filled is not None and aggregate.zero is not None:
            zero = pa.scalar(aggregate.zero).cast(columns[name].type)
            columns[name] = pc.if_else(pa.array(filled), zero, columns[name])
    if revisions is not None:
        columns[REVISION] = pa.array(np.repeat(np.array(revisions, np.int64), counts))
    return pa.table(columns)


def _missing(partial: Partial, keys: int) -> Any:
    """Return which of the known keys have no row in the window, as booleans by key id."""
    missing = np.ones(keys, np.bool_)
    missing[partial.ids] = False
    return missing


def _with_all_keys(partial: Partial, store: PaneStore) -> Partial:
    """Return the partial with neutral states for the known keys that it lacks."""
    total = len(store.keys)
    states: dict[Primitive, State] = {}
    for primitive, types in store.primitives.items():
        into = primitive.empty(total, types)
        if primitive in partial.states:
            primitive.merge_into(into, partial.ids, partial.states[primitive])
        states[primitive] = into
    return Partial(np.arange(total, dtype=np.int64), states)
