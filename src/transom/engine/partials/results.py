"""From merged partials to the rows that a sink gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.model.time import Micros
from transom.sinks.base import REVISION
from transom.windows.aggregates.base import Primitive, ResultContext, Slots, State, Types
from transom.windows.keys import KeyIndex
from transom.windows.panes import Times
from transom.windows.partials import Partial
from transom.windows.query import WINDOW_END, WINDOW_START, WindowedQuery
from transom.windows.store import PaneStore

_TIMESTAMP = pa.timestamp("us", "UTC")

Span = tuple[Micros, Micros]


@dataclass(frozen=True, eq=False)
class ResultRows:
    """Rows of results before their values are computed; all columns have the shape (rows,)."""

    starts: Times
    ends: Times
    ids: Slots
    """Key ids."""
    states: Mapping[Primitive, State]
    """A primitive that is missing is neutral."""


@dataclass(frozen=True, eq=False)
class Frame:
    """What the results of some windows of a store have in common, whatever is computed of their states."""

    windows: Sequence[tuple[Span, Partial]]
    counts: Slots
    """Rows of each window."""
    columns: Mapping[str, pa.Array]
    """window_start, window_end, and the keys of the store."""


class Frames:
    """The frames of windows that several queries ask for at one moment, each made once; to be forgotten with it.

    Windows and keys are told by the objects that they are, which stay as long as this does.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[Any, ...], Frame] = {}
        self._keys: dict[tuple[int, int], tuple[Slots, Mapping[str, pa.Array]]] = {}

    def of(self, store: PaneStore, windows: Sequence[tuple[Span, Partial]]) -> Frame:
        """Return the frame of some windows, at least one, in the order of the result."""
        known = id(store), *((span, id(partial)) for span, partial in windows)
        if known not in self._made:
            counts = np.array([len(partial) for _, partial in windows], dtype=np.int64)
            edges = (np.repeat(np.array([span[side] for span, _ in windows], np.int64), counts) for side in (0, 1))
            times = dict(zip((WINDOW_START, WINDOW_END), map(_moments, edges), strict=True))
            ids = [partial.ids for _, partial in windows]
            keys = self._keys_of(store, ids[0] if len(ids) == 1 else np.concatenate(ids))
            self._made[known] = Frame(windows, counts, {**times, **keys})
        return self._made[known]

    def _keys_of(self, store: PaneStore, ids: Slots) -> Mapping[str, pa.Array]:
        known = id(store), id(ids)
        if known not in self._keys:
            self._keys[known] = ids, dict(zip(store.keys.schema.names, store.keys.take(ids), strict=True))
        return self._keys[known][1]


def _moments(micros: Times) -> pa.Array:
    return pa.array(micros, pa.int64()).view(_TIMESTAMP)


def result_table(
    query: WindowedQuery,
    store: PaneStore,
    windows: Sequence[tuple[Span, Partial]],
    input_types: dict[str, tuple[pa.DataType, ...]],
    ansi: bool,
    revisions: Sequence[int] | None = None,
    frames: Frames | None = None,
) -> pa.Table:
    """Return the results of some windows: window_start, window_end, keys, values, and the revision if there is one.

    Args:
        query: The query.
        store: Where the partials come from.
        windows: Spans and their merged partials, in the order of the result.
        input_types: Arrow types of each aggregate's inputs, by result column.
        ansi: Whether overflow is an error.
        revisions: Which result of its window each one is, from 0; None when there is only one.
        frames: What other queries have made of the same windows.

    Raises:
        QueryFailedError: A value cannot be computed, e.g. overflow under ANSI.
    """
    frame = (Frames() if frames is None else frames).of(store, windows)
    states: dict[Primitive, State] = {}
    for primitive in dict.fromkeys(p for _, aggregate in query.aggregates for p in aggregate.primitives):
        parts = [p.states.get(primitive) or primitive.empty(len(p), store.primitives[primitive]) for _, p in windows]
        states[primitive] = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    columns = {name: frame.columns[name] for name in query.identity}
    columns |= _values(query, store.primitives, states, int(frame.counts.sum()), input_types, ansi)
    table = pa.table(columns)
    if revisions is not None:
        table = table.append_column(REVISION, pa.array(np.repeat(np.array(revisions, np.int64), frame.counts)))
    return table


def whole_table(
    query: WindowedQuery,
    store: PaneStore,
    spans: Sequence[Span],
    merged: Mapping[Span, Partial],
    input_types: dict[str, tuple[pa.DataType, ...]],
    ansi: bool,
) -> pa.Table:
    """Return the results of some windows, all keys and without revisions; see `result_table`."""
    windows = [(span, merged[span]) for span in spans]
    return result_table(query, store, windows, input_types, ansi) if windows else no_results(query, store, input_types)


def no_results(query: WindowedQuery, store: PaneStore, input_types: dict[str, tuple[pa.DataType, ...]]) -> pa.Table:
    """Return the aggregates of no window."""
    nothing = Partial(np.empty(0, np.int64), {p: p.empty(0, types) for p, types in store.primitives.items()})
    return result_table(query, store, [((0, 0), nothing)], input_types, ansi=True)


def table_of(
    query: WindowedQuery,
    keys: KeyIndex,
    primitives: Mapping[Primitive, Types],
    rows: ResultRows,
    input_types: dict[str, tuple[pa.DataType, ...]],
    ansi: bool,
) -> pa.Table:
    """Return results: window_start, window_end, keys, values.

    Args:
        query: The query.
        keys: The keys that the ids stand for.
        primitives: Types of the states' columns.
        rows: The results' rows.
        input_types: Arrow types of each aggregate's inputs, by result column.
        ansi: Whether overflow is an error.

    Raises:
        QueryFailedError: A value cannot be computed, e.g. overflow under ANSI.
    """
    columns = {WINDOW_START: _moments(rows.starts), WINDOW_END: _moments(rows.ends)}
    values = dict(zip(keys.schema.names, keys.take(rows.ids), strict=True))
    columns.update({key.name: values[key.name] for key in query.keys})
    columns.update(_values(query, primitives, rows.states, len(rows.ids), input_types, ansi))
    return pa.table(columns)


def zeros_of(
    query: WindowedQuery,
    primitives: Mapping[Primitive, Types],
    input_types: dict[str, tuple[pa.DataType, ...]],
    ansi: bool,
) -> pa.Table:
    """Return the values of a query's aggregates where there is no row, as one row: zero, where that is no lie."""
    columns = _values(query, primitives, {}, 1, input_types, ansi)
    for name, aggregate in query.aggregates:
        if aggregate.zero is not None:
            columns[name] = pa.array([aggregate.zero]).cast(columns[name].type)
    return pa.table(columns)


def _values(
    query: WindowedQuery,
    primitives: Mapping[Primitive, Types],
    states: Mapping[Primitive, State],
    rows: int,
    input_types: dict[str, tuple[pa.DataType, ...]],
    ansi: bool,
) -> dict[str, pa.Array]:
    """Return the values of a query's aggregates by name; a primitive that is missing is neutral."""
    columns: dict[str, pa.Array] = {}
    for name, aggregate in query.aggregates:
        types = tuple(primitives[p] for p in aggregate.primitives)
        of = [states.get(p) or p.empty(rows, kinds) for p, kinds in zip(aggregate.primitives, types, strict=True)]
        columns[name] = aggregate.result(of, ResultContext(input_types[name], types, ansi))
    return columns


def in_order(tables: Sequence[pa.Table], query: WindowedQuery) -> pa.Table:
    """Return the results of several kinds of windows as one table, ordered by the windows' ends and starts.

    A session can be the span of a fixed window, or of a session with another gap. It has the same rows then and is one
    result, as a span is that belongs to two kinds of fixed windows.
    """
    if len(tables) == 1:
        return tables[0]
    table = pa.concat_tables(tables)
    identity = table.select(query.identity)
    _, first = np.unique(KeyIndex(identity.schema).intern(identity), return_index=True)
    table = table.take(pa.array(first))
    return table.take(pc.sort_indices(table, [(WINDOW_END, "ascending"), (WINDOW_START, "ascending")]))
