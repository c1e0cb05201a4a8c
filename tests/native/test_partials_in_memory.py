"""Partials of rows in memory: those that the aggregates' own merging makes of single rows, or none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.model.expression import Expression
from transom.native.groups import Bits, Chosen, Groups, Moments, PairMoments, Sorted, State
from transom.native.partials import Grouping, Reduced
from transom.native.values import UncertainError
from transom.windows.aggregates.base import Primitive
from transom.windows.aggregates.best import Best
from transom.windows.aggregates.bits import Bits as BitsOfValues
from transom.windows.aggregates.collect import FirstOf, Smallest
from transom.windows.aggregates.count import Count
from transom.windows.aggregates.edges import Edge
from transom.windows.aggregates.extremes import Extreme
from transom.windows.aggregates.mean import MeanSum
from transom.windows.aggregates.sums import Sum

X, Y, S = Expression("x"), Expression("y"), Expression("s")
COLUMNS = pa.schema(
    [
        *(("time", pa.int64()), ("k", pa.string()), ("b", pa.bool_()), ("x", pa.int32()), ("y", pa.float64())),
        *(("s", pa.string()), ("c0", pa.bool_()), ("c1", pa.bool_()), ("w", pa.bool_())),
    ]
)
COUNT = Reduced("count", "count", "x")
TEXTS = pa.list_(pa.field("element", pa.string(), False))
LATEST = pa.list_(pa.struct([("o", pa.int64()), ("x", pa.string())]))
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
PAIRS = {
    Edge(S, last=True): (
        Chosen("time", "time", "s", largest=True),
        {"time": pa.int64(), "value": pa.string()},
        lambda row: [row["time"], row["s"]],
    ),
    Edge(S, last=False, ignore_nulls=True): (
        Chosen("time", "time", "s", largest=False, known="s"),
        {"time": pa.int64(), "value": pa.string()},
        lambda row: [None if row["s"] is None else row["time"], row["s"]],
    ),
    Best(S, X, largest=False): (
        Chosen("by", "x", "s", largest=False, known="x"),
        {"by": pa.int32(), "value": pa.string()},
        lambda row: [row["x"], None if row["x"] is None else row["s"]],
    ),
    Best(X, S, largest=True): (
        Chosen("by", "s", "x", largest=True, known="s"),
        {"by": pa.string(), "value": pa.int32()},
        lambda row: [row["s"], None if row["s"] is None else row["x"]],
    ),
    Smallest(S, 3, unique=True): (
        Sorted("values", "s", TEXTS, 3, unique=True),
        {"values": TEXTS},
        lambda row: [[row["s"]] if row["s"] is not None else []],
    ),
    Smallest(Y, 2, unique=False): (
        Sorted("values", "y", pa.list_(pa.float64()), 2),
        {"values": pa.list_(pa.float64())},
        lambda row: [[row["y"]] if row["y"] is not None else []],
    ),
    FirstOf(S, Expression("time"), descending=True, limit=2): (
        Sorted("rows", "s", LATEST, 2, by="time", descending=True),
        {"rows": LATEST},
        lambda row: [[{"o": row["time"], "x": row["s"]}] if row["s"] is not None else []],
    ),
    BitsOfValues(X, "bit_xor"): (Bits("bit_xor", "x"), {"value": pa.int32()}, lambda row: [row["x"]]),
    BitsOfValues(X, "bit_and"): (Bits("bit_and", "x"), {"value": pa.int32()}, lambda row: [row["x"]]),
}
"""States of all rows of a group at once, and what they are of one row."""
OTHERS: dict[Primitive, tuple[State, dict[str, pa.DataType], Callable[[dict[str, Any]], list[Any]]]] = PAIRS
KINDS = {**{p: kinds for p, (_, kinds) in STATES.items()}, **{p: kinds for p, (_, kinds, _) in OTHERS.items()}}
"""Of the columns of all states."""
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
            "w": st.sampled_from([True, False, None]),
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
    others = [
        ({name: f"_s{number}_{name}" for name in kinds}, replace(made, where=where))  # type: ignore[type-var]
        for number, (made, kinds, _) in enumerate(OTHERS.values(), len(STATES))
    ]
    columns = [f"_s{number}_{name}" for number, kinds in enumerate(KINDS.values()) for name in kinds]
    fields = [("_pane", pa.int64()), *([("_tag", pa.int32())] if len(conditions) > 1 else []), ("key", pa.string())]
    return Grouping(
        pa.schema([*fields, *zip(columns, (kind for kinds in KINDS.values() for kind in kinds.values()), strict=True)]),
        lambda times: times - times % 7,
        "time",
        ("k",),
        conditions,
        tuple(replace(each, name=name) for name, each, _ in states),
        tuple(others),
    )


def merged(tables: list[pa.Table]) -> dict[Any, Any]:
    """Return the states of each pane, condition and key, merged as the engine merges them."""
    found: dict[Any, dict[Primitive, Any]] = {}
    for table in tables:
        for row in range(table.num_rows):
            one = table.slice(row, 1)
            tag = one["_tag"][0].as_py() if "_tag" in one.column_names else 0
            mine = found.setdefault((one["_pane"][0].as_py(), tag, one["key"][0].as_py()), {})
            for number, (primitive, kinds) in enumerate(KINDS.items()):
                state = primitive.decode({name: one[f"_s{number}_{name}"].combine_chunks() for name in kinds})
                into = mine.setdefault(primitive, primitive.empty(1, kinds))
                primitive.merge_into(into, np.zeros(1, np.int64), state)
    return {key: {p.key: known_part(p, state) for p, state in states.items()} for key, states in found.items()}


def known_part(primitive: Primitive, state: Any) -> Any:
    """Return what a state says; lists as they are when they are joined."""
    if isinstance(primitive, (Smallest, FirstOf)):
        found = primitive.combined(state)[0]
        return None if found is None else list(found)
    return {name: column.tolist() for name, column in state.items()}


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
                *(value for _, _, alone in OTHERS.values() for value in alone(seen)),
            ]
            kinds = [(f"_s{n}_{name}", kind) for n, of in enumerate(KINDS.values()) for name, kind in of.items()]
            columns.update((name, pa.array([v], kind)) for (name, kind), v in zip(kinds, values, strict=True))
            tables.append(pa.table(columns))
    return merged(tables)


@given(ROWS, st.sampled_from([(None,), ("c0",), (None, "c0", "c1")]), st.sampled_from(["", "w"]), st.data())
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
        (Reduced("s", "sum", "x", summed_as=pa.decimal128(3, 1)), [Decimal("50"), Decimal("50")], pa.decimal128(3, 1)),
        (Reduced("s", "sum", "x", summed_as=pa.int64()), [2**62, 2**62], pa.int64()),
        (Reduced("s", "sum", "x", summed_as=pa.int64()), [-(2**63), None], pa.int64()),
    ],
)
def test_what_may_be_otherwise_in_spark_is_not_made(state: Reduced, values: list[Any], kind: pa.DataType) -> None:
    """Sums that may be out of range."""
    with pytest.raises(UncertainError):
        one(pa.array(values, kind), state)
    assert one(pa.array(values[:1] if values[0] != -(2**63) else [5], kind), state)


def test_nan_is_the_largest_and_of_zeros_the_first_is_kept() -> None:
    """As Spark has it: `min` and `max` of all triples of these were asked of it."""
    fields = pa.schema([("_pane", pa.int64()), ("k", pa.int64()), ("least", pa.float64()), ("most", pa.float64())])
    states = (Reduced("least", "min", "x"), Reduced("most", "max", "x"))
    of = Grouping(fields, lambda times: times * 0, "time", ("k",), (None,), states)
    nan, triples = float("nan"), list(product([0.0, -0.0, float("nan"), 1.0, -1.0, None], repeat=3))
    keys = pa.array(np.repeat(np.arange(len(triples)), 3))
    batch = pa.record_batch(
        {"time": pa.array(np.zeros(len(keys), np.int64)), "k": keys, "x": [x for triple in triples for x in triple]}
    )

    def best(choose: Any, triple: tuple[float | None, ...], if_nan: bool) -> float | None:
        known = [x for x in triple if x is not None]
        numbers = [x for x in known if x == x]
        if not known:
            return None
        return nan if not numbers or (if_nan and len(numbers) < len(known)) else float(choose(numbers))

    made = of.of(batch).sort_by("k").to_pylist()
    found = [(row["least"], row["most"]) for row in made]
    assert repr(found) == repr([(best(min, each, False), best(max, each, True)) for each in triples])


@pytest.mark.parametrize("kind", [pa.int64(), pa.decimal128(19, 0)])
def test_a_sum_may_be_as_large_as_its_group_allows(kind: pa.DataType) -> None:
    """However many rows all groups have together: whoever sums hashes has large values and few of each key."""
    beyond, given = (2**63, int) if pa.types.is_integer(kind) else (10**19, Decimal)
    state = Reduced("s", "sum", "x", summed_as=kind)
    fields = pa.schema([("_pane", pa.int64()), ("k", pa.int64()), ("s", kind)])
    of = Grouping(fields, lambda times: times * 0, "time", ("k",), (None,), (state,))

    def summed(groups: list[list[int]]) -> dict[int, int]:
        rows = [(place, x) for place, group in enumerate(groups) for x in group]
        keys, values = pa.array([key for key, _ in rows], pa.int64()), pa.array([given(x) for _, x in rows], kind)
        times = pa.array(np.zeros(len(rows), np.int64))
        made = of.of(pa.RecordBatch.from_arrays([times, keys, values], names=["time", "k", "x"])).to_pylist()
        return {row["k"]: int(row["s"]) for row in made}

    large = [[beyond // 4, -beyond // 4, beyond // 4]] * 7
    assert summed(large) == dict.fromkeys(range(7), beyond // 4)
    for wrong in ([beyond // 2, beyond // 2], [-beyond // 2, -beyond // 2, 5], [beyond - 1, 1, -2]):
        with pytest.raises(UncertainError):
            summed([*large, wrong])


def test_times_are_states_like_others() -> None:
    """Of sessions: when the first row was, and the last."""
    found = one(pa.array([5, 5, 5]), Reduced("first", "min", "time"), Reduced("last", "max", "time"))
    assert found == [{"_pane": 0, "first": 0, "last": 2}]


def test_moments_are_those_of_the_values() -> None:
    """Of equal values there is no spread, and their mean is one of them; what is not finite is Spark's."""
    draw = np.random.default_rng(7)
    x, group = draw.normal(5, 3, 300), draw.integers(0, 3, 300)
    x[group == 2] = 0.1
    rows = pa.record_batch({"x": pa.array(x, mask=draw.random(300) < 0.1), "y": pa.array(draw.normal(size=300))})
    found = Moments("x", (2, 3)).columns(rows, Groups(group, 4))
    pairs = PairMoments("x", "y").columns(rows, Groups(group, 4))
    known = rows.column("x").is_valid().to_numpy(zero_copy_only=False)
    for number in range(3):
        of = x[known & (group == number)]
        assert found["n"][number].as_py() == len(of) == pairs["n"][number].as_py()
        wanted = [of.mean(), ((of - of.mean()) ** 2).sum(), ((of - of.mean()) ** 3).sum()]
        assert [found[name][number].as_py() for name in ("mean", "m2", "m3")] == pytest.approx(wanted, abs=1e-9)
        y = rows.column("y").to_numpy()[known & (group == number)]
        assert pairs["sxy"][number].as_py() == pytest.approx(((of - of.mean()) * (y - y.mean())).sum(), abs=1e-9)
    assert (found["mean"][2].as_py(), found["m2"][2].as_py(), pairs["mx"][2].as_py()) == (0.1, 0.0, 0.1)
    assert [found[name][3].as_py() for name in ("n", "mean", "m2")] == [0, None, None]
    for value in (float("nan"), float("inf"), 1e200):
        with pytest.raises(UncertainError):
            Moments("x", (2,)).columns(pa.record_batch({"x": [value, 1.0]}), Groups(np.zeros(2, np.int64), 1))


@pytest.mark.parametrize(
    ("values", "mean", "m2"),
    [
        ([1e15 + 0.125, 1e15 + 0.5, 1e15 + 0.875] * 3, 1e15 + 0.5, 0.84375),
        ([-1e15 - 1] * 7 + [-1e15], -1e15 - 0.875, 0.875),
        ([0.1] * 7, 0.1, 0.0),
        ([1e-200, 3e-200], 2e-200, 0.0),
    ],
)
def test_moments_are_those_of_the_differences_between_values(values: list[float], mean: float, m2: float) -> None:
    """Which the sum of large numbers would round away, and of which the squares may be nothing."""
    rows = pa.record_batch({"x": [*values, 5.0, 6.0]})
    groups = Groups(np.array([0] * len(values) + [1, 1]), 2)
    found = Moments("x", (2,)).columns(rows, groups)
    assert (found["mean"][0].as_py(), found["m2"][0].as_py()) == (mean, m2)
    assert (found["mean"][1].as_py(), found["m2"][1].as_py()) == (5.5, 0.5)


def test_moments_of_numbers_that_are_too_far_apart_are_sparks() -> None:
    """As the difference of finite numbers may be none."""
    for values in ([-1e308, 1e308], [1e308, 1e308, 1e308, -1e307]):
        with pytest.raises(UncertainError):
            Moments("x", (2,)).columns(pa.record_batch({"x": values}), Groups(np.zeros(len(values), np.int64), 1))


@pytest.mark.parametrize(
    "state",
    [
        Chosen("by", "x", "y", largest=True, known="x"),
        Sorted("values", "x", pa.list_(pa.float64()), 3),
        Chosen("by", "y", "x", largest=True, known="y"),
    ],
)
def test_the_order_of_odd_floats_is_sparks(state: State) -> None:
    """Where it matters: of a row that is alone in its rank, any value will do."""
    odd = [float("nan"), -0.0, 1.0]
    rows = pa.record_batch({"x": pa.array(odd, pa.float64()), "y": pa.array([7, 7, 7])})
    with pytest.raises(UncertainError):
        state.columns(rows, Groups(np.zeros(3, np.int64), 1))
    alone = Chosen("by", "y", "x", largest=True, known="y").columns(rows.slice(1, 1), Groups(np.zeros(1, np.int64), 1))
    assert repr(alone["value"].to_pylist()) == "[-0.0]"
