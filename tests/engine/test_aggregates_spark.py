"""Spark's partials, merged here, against Spark's own batch aggregates: values and types."""

from __future__ import annotations

import math
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from tests.interpreting import interpreting

from transom.errors import QueryFailedError
from transom.windows.aggregates import functions as tm
from transom.windows.aggregates.base import Aggregate, Primitive, ResultContext, State, executor_function_of
from transom.windows.aggregates.reduce import Reduction

TYPES = {
    "b": "tinyint",
    "i": "int",
    "l": "bigint",
    "f": "float",
    "d": "double",
    "w": "double",
    "dec": "decimal(12,3)",
    "big": "decimal(38,8)",
    "s": "string",
    "bin": "binary",
    "flag": "boolean",
    "day": "date",
    "ts": "timestamp",
    "ntz": "timestamp_ntz",
    "gap": "interval day to second",
    "arr": "array<int>",
    "st": "struct<a: double, b: string>",
}


def values(r: random.Random) -> dict[str, Any]:
    moment = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(microseconds=r.randrange(10**12))
    return {
        "b": r.randrange(-128, 128),
        "i": r.randrange(-100, 100),
        "l": r.randrange(-(2**55), 2**55),
        "f": r.uniform(-1, 1),
        "d": r.uniform(-1000, 1000),
        "w": r.choice([math.inf, -math.inf, math.nan, 0.0, 1.5]),
        "dec": Decimal(r.randrange(-(10**12) + 1, 10**12)) / 1000,
        "big": Decimal(r.randrange(-(10**27), 10**27)) / 10**8,
        "s": r.choice(["", "a", "é", "\U0001f600", "Z", "zz"]),
        "bin": r.choice([b"", b"\x00", b"\xff", b"a"]),
        "flag": r.random() < 0.5,
        "day": date(2024, 1, 1) + timedelta(days=r.randrange(1000)),
        "ts": moment,
        "ntz": moment.replace(tzinfo=None),
        "gap": timedelta(microseconds=r.randrange(10**9)),
        "arr": [r.randrange(3) for _ in range(r.randrange(3))],
        "st": {"a": r.choice([math.nan, 1.0, None]), "b": r.choice(["x", None])},
    }


def rows() -> list[dict[str, Any]]:
    """Groups 0 to 2 are large, 3 has one row, in 4 everything is null, in 5 some numbers never change.

    Three times 0.1, divided by three, is not 0.1: what has no spread must have none, whatever its panes.
    """
    r = random.Random(7)
    result: list[dict[str, Any]] = []
    for row in range(240):
        made = {name: None if r.random() < 0.2 else value for name, value in values(r).items()}
        result.append({"g": row % 3, "pane": r.randrange(6), "t": r.randrange(40), **made})
    result.append({"g": 3, "pane": 0, "t": 1, **values(r)})
    result.extend({"g": 4, "pane": pane, "t": pane, **dict.fromkeys(TYPES)} for pane in (1, 2))
    same = {"d": 0.1, "dec": Decimal("0.1")}
    result.extend({"g": 5, "pane": row // 3, "t": row, **values(r), **same} for row in range(7))
    return result


def user_aggregate() -> Aggregate:
    """Functions inside a function travel to the executors by value, as those of a user's script do."""

    def total_and_number(table: pa.Table) -> dict[str, Any]:
        found = [value for value in table["d"].to_pylist() if value is not None]
        return {"total": sum(found), "n": len(found)}

    def add_up(table: pa.Table) -> dict[str, Any]:
        return {"total": sum(table["total"].to_pylist()), "n": sum(table["n"].to_pylist())}

    def mean_of(state: Any) -> float | None:
        return state["total"] / state["n"] if state["n"] else None

    return tm.udaf("d", total_and_number, add_up, mean_of, "total double, n bigint", "double")


def top(x: str) -> str:
    """Spark leaves the order of items with equal counts open; ours is by item, null last."""
    before = "case when a.count != b.count then sign(b.count - a.count) when a.item is null then 1"
    before += " when b.item is null then -1 when a.item < b.item then -1 else 1 end"
    return f"array_sort(approx_top_k({x}, 100, 10000), (a, b) -> int({before}))"


def newest(x: str, order: str, limit: int) -> str:
    rows = f"collect_list(CASE WHEN {x} IS NOT NULL THEN named_struct('o', {order}, 'x', {x}) END)"
    return f"array_compact(transform(slice(sort_array({rows}, false), 1, {limit}), e -> e.x))"


HASHED = ("i", "d", "s", "day", "dec")
SOME = ("l", "f", "w", "big", "s", "bin", "flag", "day", "ts", "gap", "arr", "st")
NUMBERS = ("b", "i", "l", "f", "d", "w", "dec", "big")
CASES: list[tuple[Aggregate, str]] = [
    (tm.count(), "count(*)"),
    *((tm.count(x), f"count({x})") for x in ("i", "s")),
    *((tm.sum(x), f"sum({x})") for x in NUMBERS),
    *((tm.avg(x), f"avg({x})") for x in NUMBERS),
    *((tm.min(x), f"min({x})") for x in TYPES),
    *((tm.max(x), f"max({x})") for x in TYPES),
    *((tm.first(x), f"min(struct(t, {x})).{x}") for x in SOME),
    *((tm.last(x), f"max(struct(t, {x})).{x}") for x in SOME),
    *((tm.collect_list(x, 5), f"slice(sort_array(collect_list({x})), 1, 5)") for x in SOME),
    *((tm.collect_set(x, 5), f"slice(sort_array(collect_set({x})), 1, 5)") for x in SOME),
    *((tm.approx_count_distinct(x), f"bigint(size(collect_set({x})))") for x in HASHED),
    *((f(x), f"{f.__name__}({x})") for f in (tm.var_samp, tm.var_pop) for x in ("i", "d", "dec")),
    *((f(x), f"{f.__name__}({x})") for f in (tm.stddev_samp, tm.stddev_pop) for x in ("i", "d", "dec")),
    (tm.any_("flag"), "any(flag)"),
    (tm.all_("flag"), "every(flag)"),
    (tm.quantile("d", 0.95), "percentile_approx(d, 0.95)"),
    (tm.quantile("d", [0.0, 0.5, 1.0]), "percentile_approx(d, array(0.0, 0.5, 1.0))"),
    (tm.percentile_approx("d", 0.5), "percentile_approx(d, 0.5)"),
    *((tm.top_k(x, 100), top(x)) for x in ("i", "l", "s")),
    (user_aggregate(), "avg(d)"),
    (tm.count_if("flag"), "count_if(flag)"),
    (tm.max_by("s", "l"), "max_by(s, l)"),
    (tm.min_by("dec", "d"), "min_by(dec, d)"),
    (tm.max_by("st", "w"), "max(CASE WHEN w IS NOT NULL THEN struct(w, st) END).st"),
    (tm.min_by("w", "s"), "min(CASE WHEN s IS NOT NULL THEN struct(s, w) END).w"),
    *((f(x), f"{f.__name__}({x})") for f in (tm.bit_and, tm.bit_or, tm.bit_xor) for x in ("b", "l")),
    *((f("d", "i"), f"{f.__name__}(d, i)") for f in (tm.corr, tm.covar_pop, tm.covar_samp)),
    *((f(x), f"{f.__name__}({x})") for f in (tm.skewness, tm.kurtosis) for x in ("i", "d", "dec")),
    *((f("w"), f"{f.__name__}(w)") for f in (tm.skewness, tm.kurtosis)),
    (tm.last("s", ignore_nulls=True), "max(CASE WHEN s IS NOT NULL THEN struct(t, s) END).s"),
    (tm.any_value("i"), "min(struct(t, i)).i"),
    (tm.collect_list("s", 4, order_by="ts desc"), newest("s", "ts", 4)),
    (tm.collect_list("dec", 4, order_by="w desc"), newest("dec", "w", 4)),
    *((tm.count_distinct(x, at_most=100), f"count(DISTINCT {x})") for x in HASHED),
    (tm.approx_top_k("s"), f"slice({top('s')}, 1, 5)"),
]
SOME_ROWS = [
    *(tm.count(), tm.count("i"), tm.sum("l"), tm.sum("big"), tm.avg("dec"), tm.min("s"), tm.first("s"), tm.last("i")),
    *(tm.stddev_samp("i"), tm.any_("flag"), tm.approx_count_distinct("s"), tm.quantile("d", 0.5), tm.top_k("s", 100)),
    *(tm.collect_list("i", 5), tm.collect_set("s", 5), tm.max_by("s", "l"), tm.bit_xor("l"), tm.skewness("i")),
    *(tm.covar_pop("d", "i"), tm.collect_list("s", 4, order_by="ts"), user_aggregate()),
]
"""Aggregates of every kind, for FILTER."""


def partial_columns(primitives: list[Primitive]) -> list[tuple[str, str, str, Any]]:
    """(alias, state column, SQL, executor function or None) of every column."""
    found = []
    for index, primitive in enumerate(primitives):
        inputs = [f"`{expression}`" for expression in primitive.inputs]
        function = executor_function_of(primitive)
        for name, sql in primitive.sql(inputs, "`t`").items():
            found.append((f"p{index}_{name}", name, sql, function if function and function.column == name else None))
    return found


def run(function: Any) -> Any:
    inner = function.function

    def call(column: pa.Array) -> pa.Array:
        return inner(column)

    call.__annotations__ = {"column": pa.Array, "return": pa.Array}
    return F.arrow_udf(call, function.returns)


def merged(frame: Any, aggregates: list[Aggregate], keys: list[int], ansi: bool) -> list[pa.Array]:
    """Partials of (g, pane) from one Spark job, merged per g, with a round trip through their stored form."""
    primitives = list(dict.fromkeys(p for aggregate in aggregates for p in aggregate.primitives))
    columns = partial_columns(primitives)
    partials = frame.groupBy("g", "pane").agg(*(F.expr(sql).alias(alias) for alias, _, sql, _ in columns))
    for alias, _, _, function in columns:
        if function is not None:
            partials = partials.withColumn(alias, run(function)(F.col(alias)))
    table = partials.toArrow()
    slots = np.array([keys.index(g) for g in table["g"].to_pylist()])
    states: dict[Primitive, State] = {}
    types = {}
    for index, primitive in enumerate(primitives):
        mine = {n: table[a].combine_chunks() for a, n, _, _ in columns if a.startswith(f"p{index}_")}
        types[primitive] = {name: column.type for name, column in mine.items()}
        assert primitive.flaw(mine) == ""
        state = Reduction.of(slots, len(keys))(primitive, primitive.decode(mine), types[primitive])
        stored = primitive.encode(state, types[primitive])
        assert {name: column.type for name, column in stored.items()} == types[primitive]
        states[primitive] = primitive.decode(stored)
    inputs = {name: column.type for name, column in zip(TYPES, frame.select(*TYPES).limit(0).toArrow(), strict=True)}
    results = []
    for aggregate in aggregates:
        given = tuple(inputs[str(expression)] for expression in aggregate.inputs)
        context = ResultContext(given, tuple(types[p] for p in aggregate.primitives), ansi)
        results.append(aggregate.result([states[p] for p in aggregate.primitives], context))
    return results


def comparable(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value
    if isinstance(value, list):
        return [comparable(item) for item in value]
    if isinstance(value, dict):
        return {name: comparable(item) for name, item in value.items()}
    return value


def frame_of(spark: Any, data: list[dict[str, Any]]) -> Any:
    schema = "g int, pane int, t bigint, " + ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
    return spark.createDataFrame([tuple(row.values()) for row in data], schema).repartition(2)


def session_of(spark: Any, ansi: bool) -> Any:
    """A session that does not compile hundreds of expressions for a few rows; that takes a minute."""
    return interpreting(spark, {"spark.sql.ansi.enabled": str(ansi).lower(), "spark.sql.shuffle.partitions": "2"})


def test_every_aggregate_equals_sparks_own(spark: Any) -> None:
    frame = frame_of(session_of(spark, ansi=True), rows())
    aggregates = [aggregate for aggregate, _ in CASES]
    expected = frame.groupBy("g").agg(*(F.expr(sql).alias(f"e{i}") for i, (_, sql) in enumerate(CASES)))
    table = expected.orderBy("g").toArrow()
    results = merged(frame, aggregates, table["g"].to_pylist(), ansi=True)
    wrong = []
    for index, (aggregate, found) in enumerate(zip(aggregates, results, strict=True)):
        wanted = table[f"e{index}"].combine_chunks()
        left, right = found.to_pylist(), wanted.to_pylist()
        if pa.types.is_floating(wanted.type):
            a, b = (np.array(array.to_numpy(zero_copy_only=False)) for array in (found, wanted))
            same = found.is_null() == wanted.is_null() and np.allclose(a, b, rtol=1e-11, atol=1e-12, equal_nan=True)
        else:
            same = comparable(left) == comparable(right)
        if not same or found.type != wanted.type:
            wrong.append(f"{aggregate.describe()}: {found.type} {left} != {wanted.type} {right}")
    assert not wrong, "\n".join(wrong)


def test_any_aggregate_can_be_of_some_rows(spark: Any) -> None:
    frame = frame_of(session_of(spark, ansi=True), rows())
    expected = merged(frame.where("flag AND g < 3"), SOME_ROWS, [0, 1, 2], ansi=True)
    found = merged(frame.where("g < 3"), [aggregate.where("flag") for aggregate in SOME_ROWS], [0, 1, 2], ansi=True)
    for aggregate, one, other in zip(SOME_ROWS, found, expected, strict=True):
        assert one.type == other.type
        if pa.types.is_floating(one.type):
            np.testing.assert_allclose(one.to_numpy(), other.to_numpy(), rtol=1e-11, err_msg=aggregate.describe())
        else:
            assert comparable(one.to_pylist()) == comparable(other.to_pylist()), aggregate.describe()


def test_sums_overflow_as_in_spark(spark: Any) -> None:
    huge, empty = Decimal("9" * 30 + ".5"), dict.fromkeys(TYPES)
    most = 2**63 - 1
    longs = {0: [most, 1, 0], 1: [most, 1, -5], 2: [-most, -most, -most], 3: [most, most, -most]}
    data = [
        {
            "g": g,
            "pane": pane,
            "t": 0,
            **empty,
            "l": value,
            "big": huge if g < 2 or pane else huge.copy_negate(),
        }
        for g, found in longs.items()
        for pane, value in enumerate(found)
    ]
    frame = frame_of(session_of(spark, ansi=False), data)
    aggregates = [tm.sum("l"), tm.avg("l"), tm.sum("big"), tm.avg("big")]
    calls = [F.expr(sql).alias(f"e{i}") for i, sql in enumerate(("sum(l)", "avg(l)", "sum(big)", "avg(big)"))]
    expected = frame.groupBy("g").agg(*calls).orderBy("g").toArrow()
    for index, found in enumerate(merged(frame, aggregates, [0, 1, 2, 3], ansi=False)):
        assert found.to_pylist() == expected[f"e{index}"].to_pylist()
    with pytest.raises(QueryFailedError, match=r"sum\(l\)"):
        merged(frame, aggregates[:1], [0, 1, 2, 3], ansi=True)
