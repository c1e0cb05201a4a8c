"""Every aggregate is a commutative monoid: how rows are split and merged does not matter."""

from __future__ import annotations

import functools
import math
import operator
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from datasketches import frequent_strings_sketch, hll_sketch, kll_doubles_sketch, tgt_hll_type
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from transom.windows.aggregates import functions as tm
from transom.windows.aggregates.base import Aggregate, Primitive, ResultContext, State, Types, executor_function_of
from transom.windows.aggregates.best import Best
from transom.windows.aggregates.bits import Bits
from transom.windows.aggregates.collect import FirstOf, Smallest
from transom.windows.aggregates.count import Count
from transom.windows.aggregates.edges import Edge
from transom.windows.aggregates.extremes import Extreme
from transom.windows.aggregates.filtered import Filtered
from transom.windows.aggregates.mean import MeanSum
from transom.windows.aggregates.moments import Moments
from transom.windows.aggregates.pairs import PairMoments
from transom.windows.aggregates.reduce import Reduction
from transom.windows.aggregates.shape import HigherMoments
from transom.windows.aggregates.sketches import Hll, Kll
from transom.windows.aggregates.sums import Sum
from transom.windows.aggregates.topk import FrequentItems, HeavyItems, map_size
from transom.windows.aggregates.udaf import UserStates
from transom.windows.aggregates.values import order_key

Row = tuple[int, Any]
"""Event time and value."""
DECIMAL = pa.decimal128(30, 2)
LONGS = st.one_of(st.integers(-9, 9), st.integers(-(2**63), 2**63 - 1))
DOUBLES = st.one_of(st.sampled_from([0.0, -0.0, 1.0, math.inf, -math.inf, math.nan]), st.floats(-1e6, 1e6))
DECIMALS = st.integers(-(10**30) + 1, 10**30 - 1).map(lambda v: Decimal(f"{v}E-2"))
STRINGS = st.text(alphabet="aé\U0001f600zZ\x00", max_size=3)
INPUTS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "whole": (pa.float64(), st.integers(-20, 20).map(float)),
    "long": (pa.int64(), LONGS),
    "double": (pa.float64(), DOUBLES),
    "decimal": (DECIMAL, DECIMALS),
    "string": (pa.string(), STRINGS),
    "binary": (pa.binary(), st.binary(max_size=3)),
    "bool": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), st.dates()),
    "timestamp": (pa.timestamp("us", tz="UTC"), st.integers(-(2**50), 2**50)),
    "array": (pa.list_(pa.int64()), st.lists(st.integers(0, 3) | st.none(), max_size=3)),
}


def total_and_number(rows: pa.Table) -> dict[str, Any]:
    values = [v for v in rows["x"].to_pylist() if v is not None]
    return {"total": math.fsum(map(float, values)), "n": len(values)}


def add_up(states: pa.Table) -> dict[str, Any]:
    return {"total": math.fsum(states["total"].to_pylist()), "n": sum(states["n"].to_pylist())}


def ratio(state: Any) -> float | None:
    return state["total"] / state["n"] if state["n"] else None


USER = tm.udaf("x", total_and_number, add_up, ratio, "total double, n bigint", "double", name="ratio")

ORDERED = ("long", "double", "decimal", "string", "binary", "bool", "date", "timestamp", "array")
CASES: list[tuple[Aggregate, str]] = [
    *((f("x"), kind) for f in (tm.min, tm.max, tm.first, tm.last) for kind in ORDERED),
    *((tm.collect_list("x", 4), kind) for kind in ORDERED),
    *((tm.collect_set("x", 4), kind) for kind in ORDERED),
    *((f("x"), kind) for f in (tm.sum, tm.avg) for kind in ("long", "double", "decimal")),
    *((f("x"), "double") for f in (tm.var_samp, tm.var_pop, tm.stddev_samp, tm.stddev_pop)),
    (tm.count(), "long"),
    (tm.count("x"), "long"),
    (tm.any_("x"), "bool"),
    (tm.all_("x"), "bool"),
    (tm.approx_count_distinct("x"), "long"),
    (tm.quantile("x", [0, 0.3, 1]), "double"),
    (tm.quantile("x", 0.5), "double"),
    (tm.top_k("x", 2), "string"),
    (tm.top_k("x", 2), "long"),
    (USER, "long"),
    *((tm.first("x", ignore_nulls=True), kind) for kind in ("long", "string")),
    *((tm.max_by("x", "t"), kind) for kind in ("double", "decimal", "string")),
    *((tm.min_by("t", "x"), kind) for kind in ("double", "decimal", "array")),
    *((f("x"), "long") for f in (tm.bit_and, tm.bit_or, tm.bit_xor)),
    *((f("x", "t"), "whole") for f in (tm.corr, tm.covar_pop, tm.covar_samp)),
    *((f("x"), "whole") for f in (tm.skewness, tm.kurtosis)),
    (tm.collect_list("x", 3, order_by="t"), "string"),
    (tm.collect_list("x", 3, order_by="t desc"), "long"),
    *((tm.count_distinct("x", at_most=50), kind) for kind in ("double", "string")),
    (tm.count_if("even"), "long"),
    *((f("x").where("even"), "long") for f in (tm.sum, tm.last)),
    (tm.top_k("x", 2).where("even"), "string"),
    (tm.top_k("x", 2, weight="t"), "string"),
    (USER.where("even"), "long"),
]


def partial(primitive: Primitive, rows: list[Row], kind: pa.DataType) -> dict[str, pa.Array]:
    """What Spark's aggregation gives for one key, written down in Python."""
    values = [value for _, value in rows if value is not None]
    if isinstance(primitive, Count):
        counted = len(rows) if primitive.x is None else len(values)
        return {"count": pa.array([counted], pa.int64())}
    if isinstance(primitive, Sum):
        return {"sum": spark_sum(values, kind), "count": longs(len(values)), "carry": longs(0)}
    if isinstance(primitive, MeanSum):
        doubles = [float(v) for v in values]
        exact = spark_sum(values, kind) if pa.types.is_decimal(kind) else pa.nulls(1, kind)
        total = pa.array([sum(doubles) if doubles else None], pa.float64())
        return {"count": longs(len(values)), "sum": total, "exact": exact}
    if isinstance(primitive, Extreme):
        pick = max if primitive.function in ("max", "bool_or") else min
        return {"value": pa.array([pick(values, key=order_key) if values else None], kind)}
    if isinstance(primitive, Edge):
        pick = max if primitive.last else min
        rows = [row for row in rows if row[1] is not None] if primitive.ignore_nulls else rows
        edge = pick(rows, key=order_key) if rows else (None, None)
        return {"time": pa.array([edge[0]], pa.int64()), "value": pa.array([edge[1]], kind)}
    if isinstance(primitive, Filtered):
        return partial(primitive.of, [row for row in rows if row[0] % 2 == 0], kind)
    if isinstance(primitive, Best):
        pick = max if primitive.largest else min
        by_time = primitive.y.text == "t"
        pairs = [(t, v) if by_time else (v, t) for t, v in rows if by_time or v is not None]
        by, value = pick(pairs, key=order_key) if pairs else (None, None)
        kinds = (pa.int64(), kind) if by_time else (kind, pa.int64())
        return {"by": pa.array([by], kinds[0]), "value": pa.array([value], kinds[1])}
    if isinstance(primitive, Bits):
        join = {"bit_and": operator.and_, "bit_or": operator.or_, "bit_xor": operator.xor}[primitive.function]
        return {"value": pa.array([functools.reduce(join, values) if values else None], kind)}
    if isinstance(primitive, PairMoments):
        return pair_moments([(v, float(t)) for t, v in rows if v is not None])
    if isinstance(primitive, HigherMoments):
        return higher_moments(values)
    if isinstance(primitive, FirstOf):
        found = [{"o": t, "x": v} for t, v in rows if v is not None]
        found.sort(key=order_key, reverse=primitive.descending)
        rows_type = pa.list_(pa.struct([("o", pa.int64()), ("x", kind)]))
        return {"rows": pa.array([found[: primitive.limit]], rows_type)}
    if isinstance(primitive, Moments):
        n, array = len(values), np.array(values)
        with np.errstate(all="ignore"):
            mean = float(np.mean(array)) if n else None
            m2 = float(np.sum((array - mean) ** 2)) if n else None
        return {"n": longs(n), "mean": pa.array([mean], pa.float64()), "m2": pa.array([m2], pa.float64())}
    if isinstance(primitive, Smallest):
        ordered = sorted(values, key=order_key)
        if primitive.unique:
            ordered = [v for i, v in enumerate(ordered) if not i or order_key(v) != order_key(ordered[i - 1])]
        return {"values": pa.array([ordered[: primitive.limit]], pa.list_(kind))}
    if isinstance(primitive, UserStates):
        function = executor_function_of(primitive)
        assert function is not None
        lists = pa.array([[{"x": value} for _, value in rows]], pa.list_(pa.struct([("x", kind)])))
        return {"state": function.function(lists)}
    if isinstance(primitive, HeavyItems):
        rows_of_key = [{"x": None if v is None else str(v), "w": t} for t, v in rows if t > 0]
        function = executor_function_of(primitive)
        assert function is not None
        kinds = pa.list_(pa.struct([("x", pa.string()), ("w", pa.int64())]))
        return {"sketch": function.function(pa.array([rows_of_key], kinds))}
    return {"sketch": pa.array([sketch(primitive, rows, values)], pa.binary())}


def pair_moments(pairs: list[tuple[float, float]]) -> dict[str, pa.Array]:
    if not pairs:
        return {"n": longs(0), **{name: doubles(None) for name in ("mx", "my", "sx", "sy", "sxy")}}
    x, y = np.array(pairs).T
    dx, dy = x - x.mean(), y - y.mean()
    sums = {"sx": dx @ dx, "sy": dy @ dy, "sxy": dx @ dy}
    found = {"mx": x.mean(), "my": y.mean(), **sums}
    return {"n": longs(len(x)), **{name: doubles(float(value)) for name, value in found.items()}}


def higher_moments(values: list[float]) -> dict[str, pa.Array]:
    if not values:
        return {"n": longs(0), **{name: doubles(None) for name in ("mean", "m2", "m3", "m4")}}
    array = np.array(values)
    powers = {f"m{power}": float(np.sum((array - array.mean()) ** power)) for power in (2, 3, 4)}
    return {"n": longs(len(array)), "mean": doubles(float(array.mean())), **{n: doubles(v) for n, v in powers.items()}}


def doubles(value: float | None) -> pa.Array:
    return pa.array([value], pa.float64())


def sketch(primitive: Primitive, rows: list[Row], values: list[Any]) -> bytes:
    if isinstance(primitive, Hll):
        hll = hll_sketch(12, tgt_hll_type.HLL_8)
        for value in values:
            hll.update(value)
        return bytes(hll.serialize_compact())
    if isinstance(primitive, Kll):
        kll = kll_doubles_sketch(primitive.k)
        for value in values:
            kll.update(value)
        return bytes(kll.serialize())
    assert isinstance(primitive, FrequentItems)
    frequent = frequent_strings_sketch(map_size(primitive.max_items))
    for value in values:
        frequent.update(str(value))
    return bytes(frequent.serialize()) + (len(rows) - len(values)).to_bytes(8, "big")


def spark_sum(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(kind):
        with localcontext() as context:
            context.prec = 60
            total = sum(values, Decimal(0)) if values else None
        total_kind = pa.decimal128(min(38, kind.precision + 10), kind.scale)
        return pa.array([total], total_kind)
    if pa.types.is_integer(kind):
        return longs((sum(values) + 2**63) % 2**64 - 2**63 if values else None)
    return pa.array([sum(values) if values else None], pa.float64())


def longs(value: int | None) -> pa.Array:
    return pa.array([value], pa.int64())


def types_of(primitive: Primitive, kind: pa.DataType) -> Types:
    return {name: column.type for name, column in partial(primitive, [], kind).items()}


def result(aggregate: Aggregate, states: list[State], kind: pa.DataType) -> pa.Array:
    types = tuple(types_of(p, kind) for p in aggregate.primitives)
    return aggregate.result(states, ResultContext((kind,) * len(aggregate.inputs), types, ansi=False))


def plain(array: pa.Array) -> list[Any]:
    """Comparable values; NaN equals NaN and -0.0 equals 0.0."""
    return [order_key(value) for value in array.to_pylist()]


def agree(left: pa.Array, right: pa.Array, largest: float) -> None:
    """Equal; doubles within what the rounding of the largest input can move them."""
    assert left.type == right.type
    if pa.types.is_floating(left.type):
        np.testing.assert_allclose(
            left.to_numpy(zero_copy_only=False),
            right.to_numpy(zero_copy_only=False),
            rtol=1e-9,
            atol=max(1e-3, 1e-14 * largest),
        )
    assert left.is_null().to_pylist() == right.is_null().to_pylist()
    if not pa.types.is_floating(left.type):
        assert plain(left) == plain(right)


def rows_of(strategy: st.SearchStrategy[Any], kind: pa.DataType) -> st.SearchStrategy[list[list[Row]]]:
    def clean(rows: list[Row]) -> list[Row]:
        return [(t, pa.scalar(v, kind).as_py()) for t, v in rows]

    row = st.tuples(st.integers(0, 5), st.none() | strategy)
    return st.lists(st.lists(row, max_size=5).map(clean), min_size=1, max_size=6)


@pytest.mark.parametrize(("aggregate", "name"), CASES, ids=lambda v: v if isinstance(v, str) else v.describe()[:22])
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_split_and_order_of_merging_gives_the_same(aggregate: Aggregate, name: str, data: Any) -> None:
    kind, strategy = INPUTS[name]
    parts = data.draw(rows_of(strategy, kind))
    order = data.draw(st.permutations(range(len(parts))))
    stored = data.draw(st.integers(0, len(parts)))
    once, merged, reduced, at_once = [], [], [], []
    for primitive in aggregate.primitives:
        types = types_of(primitive, kind)
        once.append(primitive.decode(partial(primitive, [row for part in parts for row in part], kind)))
        columns = [partial(primitive, part, kind) for part in parts]
        states = [primitive.decode(column) for column in columns]
        into = primitive.empty(3, types)
        for step, index in enumerate(order):
            if step == stored:
                into = primitive.decode(primitive.encode(into, types))
            primitive.merge_into(into, np.array([1]), states[index])
        merged.append({column: values[1:2] for column, values in into.items()})
        for state, column in zip(states, columns, strict=True):
            again = primitive.encode(state, types)
            assert {n: plain(a) for n, a in again.items()} == {n: plain(a) for n, a in column.items()}
            assert {n: a.type for n, a in again.items()} == dict(types)
        stacked = {n: np.concatenate([s[n] for s in states]) for n in states[0]}
        spread = Reduction.of(np.zeros(len(parts), np.int64), 2)(primitive, stacked, types)
        reduced.append({column: values[:1] for column, values in spread.items()})
        at_once.append(Reduction.of(np.zeros(len(parts), np.int64), 1)(primitive, stacked, types))
    expected = result(aggregate, once, kind)
    if isinstance(aggregate.primitives[0], Moments) and not finite(parts):
        return
    numbers = [abs(v) for part in parts for _, v in part if isinstance(v, (int, float)) and math.isfinite(v)]
    agree(result(aggregate, merged, kind), expected, max(numbers, default=0))
    agree(result(aggregate, reduced, kind), expected, max(numbers, default=0))
    agree(result(aggregate, at_once, kind), expected, max(numbers, default=0))


def finite(parts: list[list[Row]]) -> bool:
    return all(v is None or math.isfinite(v) for part in parts for _, v in part)


@settings(max_examples=50, deadline=None)
@example(slots=[0, 0, 0, 1, 0, 3, 3])
@given(slots=st.lists(st.integers(0, 4), max_size=40))
def test_a_reduction_merges_rows_of_equal_slots(slots: list[int]) -> None:
    primitive = tm.sum("x").primitives[0]
    types = types_of(primitive, pa.int64())
    values = np.arange(1, len(slots) + 1)
    ones = np.ones(len(slots), np.int64)
    state = {"sum": values.copy(), "count": ones, "carry": ones * 0}
    reduced = Reduction.of(np.array(slots, np.int64), 5)(primitive, state, types)
    expected = np.bincount(np.array(slots, np.int64), weights=values, minlength=5)
    assert reduced["sum"].tolist() == expected.tolist()
    assert reduced["count"].sum() == len(slots)
    assert state["sum"].tolist() == values.tolist()


def test_sums_that_wrap_are_counted_where_all_slots_have_rows() -> None:
    """Whatever is merged at once: what is the same by any order of merging is the same."""
    primitive = tm.sum("x").primitives[0]
    types, most = types_of(primitive, pa.int64()), 2**63 - 1
    for values in ([most, 1, -2], [most // 2, most // 2, 1], [-most - 1, -1, most], [5, -7, 1]):
        state = {"sum": np.array(values), "count": np.ones(3, np.int64), "carry": np.array([0, 1, 0])}
        found = Reduction.of(np.array([0, 1, 1]), 2)(primitive, state, types)
        totals = [
            carry * 2**64 + total for carry, total in zip(*(found[n].tolist() for n in ("carry", "sum")), strict=True)
        ]
        assert totals == [values[0], 2**64 + values[1] + values[2]]
        assert state["sum"].tolist() == values


def test_many_parts_are_compacted_without_changing_what_others_hold() -> None:
    primitive = tm.quantile("x", 0.5, k=8).primitives[0]
    types = types_of(primitive, pa.float64())
    into = primitive.empty(1, types)
    parts = [primitive.decode(partial(primitive, [(0, float(i))], pa.float64())) for i in range(200)]
    before = [part["sketch"][0] for part in parts]
    for part in parts:
        primitive.merge_into(into, np.array([0]), part)
    assert len(into["sketch"][0]) < 70
    assert [part["sketch"][0] for part in parts] == before
    assert abs(result(tm.quantile("x", 0.5, k=8), [into], pa.float64())[0].as_py() - 100) < 60


def test_aggregates_of_the_same_input_share_primitives() -> None:
    assert tm.var_pop("x").primitives == tm.stddev("x").primitives
    assert tm.quantile("x", 0.5).primitives == tm.quantile("x", [0.1, 0.9]).primitives
    assert tm.avg("x") == tm.mean("x")
    assert len({tm.sum("x"), tm.sum("x"), tm.sum("y")}) == 2
