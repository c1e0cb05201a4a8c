"""Results that must come out right to the bit: overflow, rounding, odd numbers, order, errors."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from transom.errors import DefinitionError, QueryFailedError
from transom.windows.aggregates import functions as tm
from transom.windows.aggregates.base import Aggregate, ResultContext, executor_function_of
from transom.windows.aggregates.ddl import parse_fields, parse_type
from transom.windows.aggregates.mean import divide
from transom.windows.aggregates.values import from_values, to_values

Columns = dict[str, pa.Array]


def merged(aggregate: Aggregate, parts: list[Columns], given: pa.DataType, ansi: bool = False) -> list[Any]:
    """Merge states of one slot each, in order, and return the result."""
    (primitive,) = aggregate.primitives
    types = {name: column.type for name, column in parts[0].items()}
    into = primitive.empty(1, types)
    for part in parts:
        primitive.merge_into(into, np.array([0]), primitive.decode(part))
    stored = primitive.decode(primitive.encode(into, types))
    found: list[Any] = aggregate.result([stored], ResultContext((given,), (types,), ansi)).to_pylist()
    return found


def a_sum(value: Any, kind: pa.DataType, count: int = 1) -> Columns:
    numbers = {"count": pa.array([count], pa.int64()), "carry": pa.array([0], pa.int64())}
    return {"sum": pa.array([value], kind), **numbers}


def a_mean(total: float | None, exact: pa.Array, count: int) -> Columns:
    return {"sum": pa.array([total], pa.float64()), "exact": exact, "count": pa.array([count], pa.int64())}


def test_a_long_sum_that_overflows_wraps_or_fails() -> None:
    parts = [a_sum(2**63 - 1, pa.int64()), a_sum(1, pa.int64())]
    assert merged(tm.sum("x"), parts, pa.int64()) == [-(2**63)]
    with pytest.raises(QueryFailedError, match=r"sum\(x\) does not fit in int64.*wider type"):
        merged(tm.sum("x"), parts, pa.int64(), ansi=True)


@pytest.mark.parametrize("values", [[2**63 - 1, 1, -5], [-(2**63), -1, 7], [1, -5, 2**63 - 1]])
def test_a_long_sum_that_overflows_on_the_way_only_is_right(values: list[int]) -> None:
    parts = [a_sum(value, pa.int64()) for value in values]
    assert merged(tm.sum("x"), parts, pa.int64(), ansi=True) == [sum(values)]


def test_a_decimal_sum_beyond_its_digits_is_null_or_fails() -> None:
    kind = pa.decimal128(38, 0)
    most = Decimal("9" * 38)
    parts = [a_sum(most, kind), a_sum(Decimal(1), kind)]
    assert merged(tm.sum("x"), parts, kind) == [None]
    with pytest.raises(QueryFailedError, match=r"decimal128\(38, 0\)"):
        merged(tm.sum("x"), parts, kind, ansi=True)
    assert merged(tm.sum("x"), [*parts, a_sum(Decimal(-1), kind)], kind) == [most]


def test_a_decimal_partial_that_overflowed_in_spark_stays_overflowed() -> None:
    kind = pa.decimal128(38, 0)
    lost, none = a_sum(None, kind, count=2), a_sum(None, kind, count=0)
    assert merged(tm.sum("x"), [lost, a_sum(Decimal(1), kind)], kind) == [None]
    assert merged(tm.sum("x"), [none, a_sum(Decimal(1), kind)], kind) == [Decimal(1)]
    with pytest.raises(QueryFailedError):
        merged(tm.sum("x"), [a_sum(Decimal(1), kind), lost], kind, ansi=True)


def test_a_stored_sum_that_exceeds_its_type_is_not_lost() -> None:
    kind = pa.decimal128(38, 0)
    primitive = tm.sum("x").primitives[0]
    types = {name: column.type for name, column in a_sum(Decimal(0), kind).items()}
    state = {"sum": np.array([3 * 10**38 + 5], object), "count": np.array([9]), "carry": np.array([0])}
    assert primitive.decode(primitive.encode(state, types))["sum"][0] == 3 * 10**38 + 5


@pytest.mark.parametrize(
    ("values", "expected"),
    [([math.inf, 1.0, 1.0], math.inf), ([math.inf, -math.inf], math.nan), ([math.nan, 1.0], math.nan)],
)
def test_avg_of_odd_numbers(values: list[float], expected: float) -> None:
    parts = [a_mean(value, pa.nulls(1, pa.float64()), 1) for value in values]
    np.testing.assert_equal(merged(tm.avg("x"), parts, pa.float64()), [expected])


def test_avg_of_decimals_rounds_half_up_at_four_more_digits() -> None:
    given, total = pa.decimal128(4, 2), pa.decimal128(14, 2)
    parts = [a_mean(1.0, pa.array([Decimal("-0.05")], total), 1), a_mean(None, pa.nulls(1, total), 0)]
    parts.append(a_mean(0.0, pa.array([Decimal("0.00")], total), 159_999))
    assert merged(tm.avg("x"), parts, given) == [Decimal("0.000000")]
    assert merged(tm.avg("x"), [a_mean(2.0, pa.array([Decimal("2.00")], total), 3)], given) == [Decimal("0.666667")]
    assert divide(-1, 0, 200, 2) == -1


def test_avg_of_decimals_that_does_not_fit_is_null_or_fails() -> None:
    kind = pa.decimal128(38, 0)
    parts = [a_mean(1e38, pa.array([Decimal("9" * 38)], kind), 1)]
    assert merged(tm.avg("x"), parts, kind) == [None]
    with pytest.raises(QueryFailedError, match=r"avg\(x\)"):
        merged(tm.avg("x"), parts, kind, ansi=True)


def test_variance_of_one_value_split_from_many() -> None:
    def moments(values: list[float]) -> Columns:
        array = np.array(values)
        some = len(array) > 0
        floats = {"mean": array.mean() if some else None, "m2": array.var() * len(array) if some else None}
        columns = {name: pa.array([value], pa.float64()) for name, value in floats.items()}
        return {"n": pa.array([len(array)], pa.int64()), **columns}

    parts = [moments([]), moments([3.0]), moments([1.0, 2.0, 4.0]), moments([])]
    assert merged(tm.var_samp("x"), parts, pa.float64()) == [pytest.approx(np.var([3, 1, 2, 4], ddof=1))]
    assert merged(tm.stddev_pop("x"), parts, pa.float64()) == [pytest.approx(np.std([3, 1, 2, 4]))]
    assert merged(tm.var_samp("x"), parts[:2], pa.float64()) == [None]
    assert merged(tm.var_pop("x"), parts[:2], pa.float64()) == [0.0]
    assert merged(tm.var_pop("x"), parts[:1], pa.float64()) == [None]


def test_nan_is_the_largest_number() -> None:
    parts = [{"value": pa.array([value], pa.float64())} for value in (math.inf, math.nan, None, -1.0)]
    assert merged(tm.min("x"), parts, pa.float64()) == [-1.0]
    assert math.isnan(merged(tm.max("x"), parts, pa.float64())[0])


@pytest.mark.parametrize(
    "array",
    [
        pa.array(
            [Decimal("-0.01"), None, Decimal("9" * 36 + ".99"), Decimal("-" + "9" * 36 + ".98")],
            pa.decimal128(38, 2),
        ),
        pa.array([1, None, -(2**63)], pa.timestamp("us", tz="Europe/Berlin")),
        pa.array([True, None, False]),
        pa.array([{"a": [1, None]}, None]),
        pa.array([2**63 - 1, None]),
    ],
    ids=lambda array: str(array.type),
)
def test_values_survive_the_way_from_arrow_and_back(array: pa.Array) -> None:
    for piece in (array, array.slice(1), array.slice(1, 1), array.slice(0, 0)):
        assert from_values(*to_values(piece), array.type).equals(piece)
    assert from_values(*to_values(pa.chunked_array([array, array])), array.type).equals(pa.concat_arrays([array] * 2))


def states(values: list[int]) -> Columns:
    (primitive,) = failing().primitives
    function = executor_function_of(primitive)
    assert function is not None
    assert function.returns == "struct<value: struct<n bigint>, error: string>"
    rows = pa.array([[{"x": value} for value in values]], pa.list_(pa.struct([("x", pa.int64())])))
    return {function.column: function.function(rows)}


def failing() -> Aggregate:
    def partial(rows: pa.Table) -> dict[str, int]:
        return {"n": 10 // rows["x"][0].as_py()}

    def merge(found: pa.Table) -> dict[str, int]:
        total = sum(found["n"].to_pylist())
        if total > 100:
            raise RuntimeError("too many")
        return {"n": total}

    return tm.udaf("x", partial, merge, lambda state: str(state["n"]), "n bigint", "string", name="mine")


def test_a_users_aggregate() -> None:
    assert merged(failing(), [states([1]), states([]), states([2])], pa.int64()) == ["15"]
    assert merged(failing(), [states([])], pa.int64()) == [None]


@pytest.mark.parametrize(("first", "reason"), [(0, "ZeroDivisionError"), (-2, "mine failed")])
def test_an_error_of_a_users_function_is_raised_by_the_result_only(first: int, reason: str) -> None:
    parts = [states([first])] + [states([1])] * (1 if first == 0 else 0)
    if first == -2:
        parts = [states([1])] * 11
    with pytest.raises(QueryFailedError, match=reason):
        merged(failing(), parts, pa.int64())


def test_a_users_result_must_have_its_declared_type() -> None:
    wrong = tm.udaf("x", dict, dict, lambda state: "text", "n bigint", "double", name="mine")
    with pytest.raises(QueryFailedError, match="declared as double"):
        merged(wrong, [states([1])], pa.int64())


def test_types_are_read_as_spark_writes_them() -> None:
    assert parse_type("map<string, array<int>>", "x") == pa.map_(pa.string(), pa.list_(pa.int32()))
    assert parse_type("struct<a: decimal(5), b: timestamp>", "x").field("a").type == pa.decimal128(5, 0)
    assert [field.name for field in parse_fields("`total sum` double, n bigint", "x")] == ["total sum", "n"]
    for wrong in ("", "number", "array<int", "decimal(50, 2)", "int int", "struct<a: int, a: int>", "int!"):
        with pytest.raises(DefinitionError, match="x: "):
            parse_type(wrong, "x")


BAD: list[tuple[Any, str]] = [
    (lambda: tm.sum(""), "sum: the expression is empty"),
    (lambda: tm.sum(3), r"sum: 3 \(int\) is not a column"),
    (lambda: tm.quantile("x", 95), "p is 95"),
    (lambda: tm.quantile("x", []), "empty list"),
    (lambda: tm.quantile("x", "0.5"), "p is '0.5'"),
    (lambda: tm.quantile("x", 0.5, k=2), "k is 2"),
    (lambda: tm.percentile_approx("x", 0.5, accuracy=0), "accuracy is 0"),
    (lambda: tm.top_k("x", 0), "k is 0"),
    (lambda: tm.top_k("x", 10, max_items=5), "max_items is 5"),
    (lambda: tm.collect_list("x", limit=True), "limit is True"),
    (lambda: tm.median("x"), r"quantile\(x, 0.5\)"),
    (lambda: tm.percentile("x", 0.5), "quantile"),
    (lambda: tm.mode("x"), "top_k"),
    (lambda: tm.count_distinct("x"), "approx_count_distinct"),
    (lambda: tm.udaf([], dict, dict, dict, "n int", "int"), "inputs is empty"),
    (lambda: tm.udaf(["x", "x"], dict, dict, dict, "n int", "int"), "repeat"),
    (lambda: tm.udaf({"a b": "x"}, dict, dict, dict, "n int", "int"), "not a name"),
    (lambda: tm.udaf("x", "f", dict, dict, "n int", "int"), "partial is 'f'"),
    (lambda: tm.udaf("x", dict, dict, dict, "n", "int"), "udaf: state"),
]


@pytest.mark.parametrize(("make", "message"), BAD, ids=[message for _, message in BAD])
def test_a_bad_argument_is_named(make: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        make()


def test_descriptions_tell_calls_apart() -> None:
    calls = [
        *(tm.quantile("x", 0.5), tm.quantile("x", [0.5]), tm.quantile("x", 0.5, k=300), tm.top_k("x", 3)),
        *(tm.top_k("x", 3, 100), tm.collect_set("x"), tm.collect_list("x"), tm.first("x"), tm.last("x")),
        *(tm.var_pop("x"), tm.var_samp("x"), tm.stddev("x"), tm.count(), tm.count("x"), tm.any_("x")),
    ]
    assert len({call.describe() for call in calls}) == len(calls)


def test_more_different_values_than_allowed_fail() -> None:
    aggregate = tm.count_distinct("x", at_most=2)
    primitive = aggregate.primitives[0]
    types = {"values": pa.list_(pa.int64())}
    states = primitive.decode({"values": pa.array([[1, 2], [1, 2, 3], []], types["values"])})
    context = ResultContext((pa.int64(),), (types,), ansi=True)
    with pytest.raises(QueryFailedError, match=r"count_distinct\(x, at_most=2\): a window has more"):
        aggregate.result([states], context)
    few = {"values": states["values"][[0, 2]]}
    assert aggregate.result([few], context).to_pylist() == [2, 0]


def test_a_second_condition_is_refused() -> None:
    with pytest.raises(DefinitionError, match="has a condition already"):
        tm.count_if("a > 0").where("b > 0")


def test_weights_count_instead_of_rows() -> None:
    aggregate = tm.top_k("x", 2, weight="w")
    function = executor_function_of(aggregate.primitives[0])
    assert function is not None
    kind = pa.list_(pa.struct([("x", pa.string()), ("w", pa.int64())]))
    rows = [[{"x": "a", "w": 3}, {"x": None, "w": 9}], [{"x": "b", "w": 7}, {"x": "a", "w": 5}], []]
    sketches = function.function(pa.array(rows, kind))
    types = {"sketch": pa.binary()}
    state, into = aggregate.primitives[0].decode({"sketch": sketches}), aggregate.primitives[0].empty(1, types)
    for row in range(3):
        one = {name: column[row : row + 1] for name, column in state.items()}
        aggregate.primitives[0].merge_into(into, np.array([0]), one)
    found = aggregate.result([into], ResultContext((pa.string(), pa.int64()), (types,), ansi=True))
    assert found.to_pylist() == [[{"item": None, "count": 9}, {"item": "a", "count": 8}]]
