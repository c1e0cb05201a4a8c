"""A store of panes fed with plain rows, and what its windows must hold by an independent count."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pyarrow as pa

from transom.windows.aggregates import functions as tm
from transom.windows.panes import Grid
from transom.windows.store import PaneStore

MS = 1_000
KEYS = pa.schema([("k", pa.int64())])
LONG = pa.int64()
COUNT, SUM, LIST = tm.count().primitives[0], tm.sum("x").primitives[0], tm.collect_list("x", 1000).primitives[0]
PRIMITIVES = {
    COUNT: {"count": LONG},
    SUM: {"sum": LONG, "count": LONG, "carry": LONG},
    LIST: {"values": pa.list_(LONG)},
}
"""Numbers, and a column of objects."""


def new_store(specs, finer=()):
    return PaneStore(Grid.of([*specs, *finer]), KEYS, PRIMITIVES, specs)


def states_of(values, primitives=PRIMITIVES):
    """Return the states of single rows with these values."""
    ones, values = np.ones(len(values), np.int64), np.array(values, np.int64)
    columns = {
        COUNT: {"count": pa.array(ones)},
        SUM: {"sum": pa.array(values), "count": pa.array(ones), "carry": pa.array(0 * ones)},
        LIST: {"values": pa.array([[v] for v in values.tolist()], pa.list_(LONG))},
    }
    return {primitive: primitive.decode(columns[primitive]) for primitive in primitives}


def key_table(keys):
    return pa.table({"k": pa.array(np.array(keys, np.int64), LONG)})


def add(store, rows):
    """Add (time, key, value) rows."""
    times, keys, values = zip(*rows, strict=True)
    return store.add(np.array(times, np.int64), key_table(keys), states_of(values, store.primitives))


def windows_of(spec, t):
    start = spec.last_start(t)
    while start + spec.length > t:
        yield (start, start + spec.length)
        start -= spec.slide


def add_direct(store, specs, rows):
    """Add (time, key, value) rows to each of their windows."""
    wide = [(*w, k, v) for t, k, v in rows for w in sorted({w for spec in specs for w in windows_of(spec, t)})]
    starts, ends, keys, values = (np.array(column, np.int64) for column in zip(*wide, strict=True))
    return store.add_windows(starts, ends - starts, key_table(keys), states_of(values, store.primitives))


def expected(rows, span):
    """Return count, sum and sorted values per key of the rows in a window."""
    found = defaultdict(list)
    for t, k, v in rows:
        if span[0] <= t < span[1]:
            found[k].append(v)
    return {k: (len(v), sum(v), sorted(v)) for k, v in found.items()}


def values_of(store, partial):
    """Return what a partial holds in the form of `expected`."""
    keys = store.keys.take(partial.ids)[0].to_pylist()
    lists = LIST.encode(partial.states[LIST], PRIMITIVES[LIST])["values"].to_pylist()
    counts, sums = partial.states[COUNT]["count"].tolist(), partial.states[SUM]["sum"].tolist()
    return {k: (c, s, list(v)) for k, c, s, v in zip(keys, counts, sums, lists, strict=True)}
