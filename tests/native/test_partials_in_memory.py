"""Partials of rows in memory: those that the aggregates' own merging makes of single rows, or none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.model.expression import Expression
from transom.native.partials import Grouping, Reduced
from transom.native.values import UncertainError
from transom.windows.aggregates.base import Primitive
from transom.windows.aggregates.count import Count
from transom.windows.aggregates.extremes import Extreme
from transom.windows.aggregates.mean import MeanSum
from transom.windows.aggregates.sums import Sum

X, Y, S = Expression("x"), Expression("y"), Expression("s")
COLUMNS = pa.schema(
    [
        *(("time", pa.int64()), ("k", pa.string()), ("b", pa.bool_()), ("x", pa.int32()), ("y", pa.float64())),
        *(("s", pa.string()), ("c0", pa.bool_()), ("c1", pa.bool_())),
    ]
)
COUNT = Reduced("count", "count", "x")
STATES: dict[Primitive, tuple[dict[str, Reduced], dict[str, pa.DataType]]] = {
    Count(): ({"count": Reduced("", "count")}, {"count": pa.int64()}),
    Count(X): ({"count": COUNT}, {"count": pa.int64()}),
    Sum(X): (
        {"sum": Reduced("", "sum", "x", summed_as=pa.int64()), "count": COUNT, "carry": Reduced("", "zero")},
        {"sum": pa.int64(), "count": pa.int64(), "carry": pa.int64()},
    ),
    MeanSum(X): (
        {"count": COUNT, "sum": Reduced("", "sum", "x", summed_as=pa.float64()), "exact": Reduced("", "null")},
        {"count": pa.int64(), "sum": pa.float64(), "exact": pa.int64()},
    ),
    Extreme(X, "max"): ({"value": Reduced("", "max", "x")}, {"value": pa.int32()}),
    Extreme(Y, "min"): ({"value": Reduced("", "min", "y")}, {"value": pa.float64()}),
    Extreme(S, "min"): ({"value": Reduced("", "min", "s")}, {"value": pa.string()}),
    Extreme(Expression("b"), "bool_or"): ({"value": Reduced("", "max", "b")}, {"value": pa.bool_()}),
}
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "time": st.integers(-50, 50),
            "k": st.sampled_from(["a", "b", "", "é", None]),
            "b": st.sampled_from([True, False, None]),
            "x": st.none() | st.integers(-(2**31), 2**31 - 1),
            "y": st.none() | st.floats(-100, 100).map(lambda y: y + 0.0 or 0.0),
            "s": st.none() | st.text("ab\U00010000\uffee", max_size=3),
            "c0": st.sampled_from([True, False, None]),
            "c1": st.sampled_from([True, False, None]),
        }
    ),
    max_size=30,
)


def grouping(conditions: tuple[str | None, ...], where: str = "") -> Grouping:
    """Return panes of 7 microseconds, by k, of all states."""
    states = [
        (f"_s{number}_{name}", replace(reduced[name], of=reduced[name].of or where, where=where), kind)
        for number, (reduced, kinds) in enumerate(STATES.values())
        for name, kind in kinds.items()
    ]
    fields = [("_pane", pa.int64()), *([("_tag", pa.int32())] if len(conditions) > 1 else []), ("key", pa.string())]
    return Grouping(
        pa.schema([*fields, *((name, kind) for name, _, kind in states)]),
        lambda times: times - times % 7,
        "time",
        ("k",),
        conditions,
        tuple(replace(each, name=name) for name, each, _ in states),
    )


def merged(tables: list[pa.Table]) -> dict[Any, Any]:
    """Return the states of each pane, condition and key, merged as the engine merges them."""
    found: dict[Any, dict[Primitive, Any]] = {}
    for table in tables:
        for row in range(table.num_rows):
            one = table.slice(row, 1)
            tag = one["_tag"][0].as_py() if "_tag" in one.column_names else 0
            mine = found.setdefault((one["_pane"][0].as_py(), tag, one["key"][0].as_py()), {})
            for number, (primitive, (_, kinds)) in enumerate(STATES.items()):
                state = primitive.decode({name: one[f"_s{number}_{name}"].combine_chunks() for name in kinds})
                into = mine.setdefault(primitive, primitive.empty(1, kinds))
                primitive.merge_into(into, np.zeros(1, np.int64), state)
    return {
        key: {p.key: {name: column.tolist() for name, column in state.items()} for p, state in states.items()}
        for key, states in found.items()
    }


def by_hand(rows: list[dict[str, Any]], conditions: tuple[str | None, ...], where: str) -> dict[Any, Any]:
    """Return the same, of each row by itself."""
    tables = []
    for row in rows:
        for tag, condition in enumerate(conditions):
            if condition is not None and row[condition] is not True:
                continue
            counts = not where or row[where] is True
            seen = row if counts else dict.fromkeys(row)
            columns: dict[str, pa.Array] = {"_pane": pa.array([row["time"] - row["time"] % 7], pa.int64())}
            if len(conditions) > 1:
                columns["_tag"] = pa.array([tag], pa.int32())
            columns["key"] = pa.array([row["k"]], pa.string())
            known = int(seen["x"] is not None)
            values: list[Any] = [
                *(int(counts), known, seen["x"], known, 0, known, seen["x"], None),
                *(seen["x"], seen["y"], seen["s"], seen["b"]),
            ]
            kinds = [(f"_s{n}_{name}", kind) for n, (_, of) in enumerate(STATES.values()) for name, kind in of.items()]
            columns.update((name, pa.array([v], kind)) for (name, kind), v in zip(kinds, values, strict=True))
            tables.append(pa.table(columns))
    return merged(tables)


@given(ROWS, st.sampled_from([(None,), ("c0",), (None, "c0", "c1")]), st.sampled_from(["", "c1"]), st.data())
def test_any_split_of_rows_gives_what_single_rows_merge_to(
    rows: list[dict[str, Any]], conditions: tuple[str | None, ...], where: str, data: st.DataObject
) -> None:
    """All states, with and without conditions of queries and of aggregates."""
    of = grouping(conditions, where)
    cut = data.draw(st.integers(0, len(rows)))
    tables = [of.of(pa.RecordBatch.from_pylist(some, COLUMNS)) for some in (rows[:cut], rows[cut:])]
    assert all(table.schema == of.schema for table in tables)
    assert merged(tables) == by_hand(rows, conditions, where)


def one(x: pa.Array, *states: Reduced, kind: pa.DataType | None = None) -> list[dict[str, Any]]:
    """Return what states are of a column of rows of one pane without keys."""
    fields = [("_pane", pa.int64()), *((state.name, kind or x.type) for state in states)]
    of = Grouping(pa.schema(fields), lambda times: times * 0, "time", (), (None,), states)
    times = pa.array(np.arange(len(x)), pa.int64())
    return of.of(pa.RecordBatch.from_arrays([times, x], names=["time", "x"])).to_pylist()


def test_floats_are_added_in_the_order_of_the_rows() -> None:
    """As Spark adds them: the last bits depend on it."""
    values = np.random.default_rng(5).normal(size=100_000) * 10.0 ** np.arange(100_000 // 10_000).repeat(10_000)
    total = 0.0
    for value in values.tolist():
        total += value
    assert one(pa.array(values), Reduced("s", "sum", "x", summed_as=pa.float64())) == [{"_pane": 0, "s": total}]


@pytest.mark.parametrize(
    ("state", "values", "kind"),
    [
        (Reduced("s", "sum", "x", summed_as=pa.int64()), [2**62, 2**62], pa.int64()),
        (Reduced("s", "sum", "x", summed_as=pa.int64()), [-(2**63), None], pa.int64()),
        (Reduced("s", "max", "x"), [1.0, float("nan")], pa.float64()),
        (Reduced("s", "min", "x"), [0.0, -0.0], pa.float64()),
    ],
)
def test_what_may_be_otherwise_in_spark_is_not_made(state: Reduced, values: list[Any], kind: pa.DataType) -> None:
    """Sums that may be out of range, and the order of NaN and of -0.0."""
    with pytest.raises(UncertainError):
        one(pa.array(values, kind), state)
    assert one(pa.array(values[:1] if values[0] != -(2**63) else [5], kind), state)


def test_times_are_states_like_others() -> None:
    """Of sessions: when the first row was, and the last."""
    found = one(pa.array([5, 5, 5]), Reduced("first", "min", "time"), Reduced("last", "max", "time"))
    assert found == [{"_pane": 0, "first": 0, "last": 2}]
