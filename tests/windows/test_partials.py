"""Merging of partials: whatever keys the parts hold, and none of the parts changes."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_helpers import LIST, LONG

from transom.windows.aggregates import functions as tm
from transom.windows.aggregates.base import ALL
from transom.windows.partials import Partial, merge, ordered

DOUBLE, FLAG, DECIMAL = pa.float64(), pa.bool_(), pa.decimal128(24, 2)
PRIMITIVES = {
    tm.count().primitives[0]: {"count": LONG},
    tm.sum("x").primitives[0]: {"sum": LONG, "count": LONG, "carry": LONG},
    tm.sum("d").primitives[0]: {"sum": DECIMAL, "count": LONG, "carry": LONG},
    tm.avg("x").primitives[0]: {"count": LONG, "sum": DOUBLE, "exact": pa.null()},
    tm.min("x").primitives[0]: {"value": LONG},
    tm.max("s").primitives[0]: {"value": pa.string()},
    tm.first("x").primitives[0]: {"time": LONG, "value": LONG},
    tm.stddev_pop("x").primitives[0]: {"n": LONG, "mean": DOUBLE, "m2": DOUBLE},
    LIST: {"values": pa.list_(LONG)},
}
KEYS = 2000


def column(kind, rng, n):
    if kind == pa.string():
        return pa.array([None if rng.random() < 0.2 else str(rng.integers(20)) for _ in range(n)], kind)
    if pa.types.is_list(kind):
        return pa.array([rng.integers(0, 9, rng.integers(0, 3)).tolist() for _ in range(n)], kind)
    if pa.types.is_null(kind):
        return pa.nulls(n)
    if kind == LONG:
        return pa.array(np.where(rng.random(n) < 0.1, 2**62, rng.integers(0, 9, n)))
    return pa.array(rng.integers(0, 9, n)).cast(kind)


def partial(ids, seed):
    rng = np.random.default_rng(seed)
    ids = np.array(sorted(ids), np.int64)
    states = {}
    for primitive, types in PRIMITIVES.items():
        columns = {name: column(kind, rng, len(ids)) for name, kind in types.items()}
        if "n" in columns or "count" in columns:
            counts = pa.array(rng.integers(1, 3, len(ids)))
            columns["n" if "n" in columns else "count"] = counts
        if "carry" in columns:
            columns["carry"] = pa.array(np.zeros(len(ids), np.int64))
        states[primitive] = primitive.decode(columns)
    return Partial(ids, states)


def rows(part):
    found = {}
    for primitive, state in part.states.items():
        for row, key in enumerate(part.ids.tolist()):
            values = [
                tuple(np.ravel(x).tolist() for x in v) if isinstance(v, tuple) else v
                for v in (state[name][row] for name in sorted(state))
            ]
            found[key, primitive] = repr(values)
    return found


def one_by_one(parts):
    """Merge without any shortcut: neutral slots, one call per part, slots looked up; the longest part first."""
    parts = sorted(parts, key=len, reverse=True)
    ids = np.unique(np.concatenate([part.ids for part in parts]))
    states = {}
    for primitive, types in PRIMITIVES.items():
        states[primitive] = primitive.empty(len(ids), types)
        for part in parts:
            primitive.merge_into(states[primitive], np.searchsorted(ids, part.ids), part.states[primitive])
    return Partial(ids, states)


ID_SETS = st.one_of(
    st.lists(st.sets(st.integers(0, 8), min_size=1), min_size=1, max_size=4),
    st.lists(st.sets(st.integers(0, KEYS - 1), min_size=1, max_size=3), min_size=1, max_size=3),
    st.builds(lambda ids, n: [ids] * n, st.sets(st.integers(0, KEYS - 1), min_size=1, max_size=20), st.integers(2, 4)),
)


@settings(deadline=None)
@given(ID_SETS, st.integers(0, 1000))
def test_all_ways_of_merging_give_the_same_and_leave_the_parts_alone(id_sets, seed):
    parts = [partial(ids, seed + number) for number, ids in enumerate(id_sets)]
    before = [rows(part) for part in parts]
    merged = merge(parts, PRIMITIVES, KEYS)
    assert rows(merged) == rows(one_by_one(parts))
    assert np.array_equal(merged.ids, np.unique(merged.ids))
    merge([merged, parts[0]], PRIMITIVES, KEYS)
    assert rows(merged) == rows(one_by_one(parts))
    assert [rows(part) for part in parts] == before


@pytest.mark.parametrize("primitive", PRIMITIVES)
def test_all_slots_are_the_slots_in_order(primitive):
    left, right = partial(range(40), 1), partial(range(40), 2)
    results = []
    for slots in (ALL, np.arange(40)):
        into = primitive.empty(40, PRIMITIVES[primitive])
        primitive.merge_into(into, slots, left.states[primitive])
        primitive.merge_into(into, slots, right.states[primitive])
        results.append(rows(Partial(left.ids, {primitive: into})))
    assert results[0] == results[1]


def test_a_primitive_that_a_part_lacks_is_neutral():
    whole = partial([1, 2], 3)
    without = Partial(np.array([2, 3]), {})
    for parts in ([whole, without], [without, whole]):
        merged = merge(parts, PRIMITIVES, KEYS)
        assert merged.ids.tolist() == [1, 2, 3]
        assert {k: v for k, v in rows(merged).items() if k[0] != 3} == rows(whole)


_near = st.integers(-3, 3)
_any = _near | st.integers(-(2**63), 2**63 - 1)


@given(st.integers(1, 3).flatmap(lambda width: st.lists(st.tuples(*[_near | _any] * width), max_size=30)))
def test_rows_are_in_order_of_their_columns_and_equal_ones_in_theirs(rows: list[tuple[int, ...]]) -> None:
    columns = [np.array(column, np.int64) for column in zip(*rows, strict=True)] or [np.array([], np.int64)]
    places = ordered(columns).tolist()
    assert places == sorted(range(len(rows)), key=lambda place: (rows[place], place))
