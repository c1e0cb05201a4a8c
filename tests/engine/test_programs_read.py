"""Programs read from Spark's plans: each function gives what Spark gives, on edges and on random values."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from transom.engine.spark.programs import OnlySparkError, empty_rows, runner_of
from transom.native.evaluate import Runner
from transom.native.program import Judge, Program, Project

VALUES = [
    *("timestamp_seconds(i)", "timestamp_millis(i)", "timestamp_micros(j)"),
    *("unix_seconds(at)", "unix_millis(at)", "unix_micros(at)"),
    *("d + e", "d - e", "d * e", "-d", "abs(d)", "d / 7.0D", "if(e = 0, NULL, d / e)"),
    *("i % 7", "j % -5L", "j div 3", "pmod(i, 7)", "pmod(j, -5L)", "i & 12", "j | 5L", "i ^ -3", "sqrt(d)"),
    *("double(i)", "double(j)", "double(f)", "float(i)", "bigint(i)", "int(b)", "boolean(d)", "boolean(i)"),
    *("greatest(i, 3)", "least(j, bigint(i), 5L)", "greatest(at, timestamp_seconds(i))"),
    *("length(s)", "coalesce(s, t)", "nullif(d, e)", "nvl2(s, i, 4)", "p.x", "p.y"),
    *("CASE WHEN d > e THEN d WHEN s < t THEN e END", "if(i > 0, s, t)", "if(b, NULL, s)"),
    *("d < e", "d <= e", "d = e", "d <=> e", "f > 0", "i >= 7", "j < i", "s < t", "s = t", "s >= t"),
    *("at > timestamp_seconds(i)", "s LIKE 'a%'", "s LIKE '%_b'", "contains(s, 'b')", "startswith(s, 'é')"),
    *("endswith(s, 'a')", "s IN ('a', 'é', '')", "i IN (0, 1, NULL)", "d IN (0.0D, double('NaN'))"),
    *("i NOT IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)", "j BETWEEN -7 AND i", "i > 1.5", "p.x = 7"),
    *("NOT (d > e AND s IS NULL)", "isnan(d)", "d IS NOT NULL OR i > 0", "b AND i > 0", "b OR NOT (d < 1)"),
]
"""Terms that have a value for every row."""
TRIED = {
    "i + 7": "try_add(i, 7)",
    "i - j": "try_subtract(i, j)",
    "i * i": "try_multiply(i, i)",
    "j * 3L": "try_multiply(j, 3L)",
    "d / e": "try_divide(d, e)",
    "-j": "try_subtract(0L, j)",
    "smallint(i)": "try_cast(i AS smallint)",
    "int(j)": "try_cast(j AS int)",
    "int(d)": "try_cast(d AS int)",
    "bigint(d)": "try_cast(d AS bigint)",
    "tinyint(f)": "try_cast(f AS tinyint)",
}
"""Terms for which some rows are Spark's to judge, and what has the same values for the others."""


def mixed(draw: np.random.Generator, edges: list[Any], random: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Return an array of edges, random values and nulls."""
    chosen = draw.integers(0, 10, len(random))
    values = [
        None if which == 0 else edges[draw.integers(len(edges))] if which < 4 else value
        for which, value in zip(chosen, random.tolist(), strict=True)
    ]
    return pa.array(values, kind)


def table_of(rows: int) -> pa.Table:
    """Return so many rows, always the same."""
    draw = np.random.default_rng(20)
    letters = np.array(["", "a", "b", "A", "é", "\U0001f600", "\uffff", "ab", " ", "\n"])

    def texts() -> npt.NDArray[Any]:
        return np.array(["".join(draw.choice(letters, 3)) for _ in range(rows)], object)

    whole = [0, 1, -1, 7, -7]
    real = [0.0, -0.0, float("nan"), float("inf"), float("-inf"), 5e-324, 1.7976931348623157e308, 0.1]
    near = [2.0**31, -(2.0**31), 2147483647.5, -2147483648.9, 127.9, -128.9, 9.007199254740993e15, 2.0**63, -(2.0**63)]
    doubles = [draw.standard_normal(rows) * 10.0 ** draw.integers(-300, 300, rows) for _ in range(2)]
    moments = draw.integers(-(10**17), 10**17, rows)
    i = mixed(draw, [*whole, 2**31 - 1, -(2**31)], draw.integers(-(2**31), 2**31, rows), pa.int32())
    s = mixed(draw, ["", "a", "é"], texts(), pa.string())
    return pa.table(
        {
            "i": i,
            "j": mixed(draw, [*whole, 2**63 - 1, -(2**63)], draw.integers(-(2**63), 2**63 - 1, rows), pa.int64()),
            "d": mixed(draw, [*real, *near], doubles[0], pa.float64()),
            "e": mixed(draw, real, doubles[1], pa.float64()),
            "f": mixed(draw, real[:5], draw.standard_normal(rows).astype(np.float32) * 100, pa.float32()),
            "s": s,
            "t": mixed(draw, ["", "a", "é"], texts(), pa.string()),
            "b": mixed(draw, [True, False], draw.integers(0, 2, rows).astype(bool), pa.bool_()),
            "at": mixed(draw, [0, -1, 1, -999, -1000, -1001], moments, pa.int64()).cast(pa.timestamp("us", "UTC")),
            "p": pa.StructArray.from_arrays([i, s], ["x", "y"], mask=pa.array(draw.integers(0, 9, rows) == 0)),
        }
    )


def comparable(values: pa.Array) -> list[str]:
    """Return values as texts, which tell zeros apart and take all NaN for one."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    return [repr(value) for value in values.to_pylist()]


def certain(runner: Runner, rows: pa.RecordBatch, begin: int = 0) -> Iterator[tuple[int, str]]:
    """Yield the values of the rows that Spark does not have to judge, with their places."""
    found = runner(rows)
    if not isinstance(found, Judge):
        yield from enumerate(comparable(found.column(0)), begin)
    elif len(rows) > 1:
        half = len(rows) // 2
        yield from certain(runner, rows.slice(0, half), begin)
        yield from certain(runner, rows.slice(half), begin + half)


@pytest.mark.parametrize("rows", [300, pytest.param(100_000, marks=pytest.mark.slow)])
def test_each_function_gives_what_spark_gives(interpreted: Any, rows: int) -> None:
    """Spark plans and computes all of them at once."""
    table = table_of(rows)
    leaf = empty_rows(interpreted, from_arrow_schema(table.schema, prefer_timestamp_ntz=True))
    runner = runner_of(leaf.selectExpr(*(f"{text} AS `{text}`" for text in (*VALUES, *TRIED))), leaf)
    runner = pickle.loads(pickle.dumps(runner))
    made = runner.program.steps[0]
    assert isinstance(made, Project)
    assert len(made.columns) >= len(VALUES) + len(TRIED), "each is a term of one step"
    asked = [*VALUES, *TRIED.values()]
    frame = interpreted.createDataFrame(table)
    wanted = frame.selectExpr(*(f"{text} AS c{place}" for place, text in enumerate(asked))).toArrow().combine_chunks()
    (batch,) = table.combine_chunks().to_batches()
    whole = runner_of(leaf.selectExpr(*(f"{text} AS `{text}`" for text in VALUES)), leaf)(batch)
    assert isinstance(whole, pa.RecordBatch)
    terms = {name.split(": ", 1)[1]: term for name, term in made.columns if ": " in name}
    for text, right in zip([*VALUES, *TRIED], wanted.columns, strict=True):
        expected = comparable(right.combine_chunks())
        if text in VALUES:
            assert whole.schema.field(text).type == right.type, text
            assert comparable(whole[text]) == expected, text
        else:
            alone = Runner(Program(runner.program.columns, (Project(((text, terms[text]),)),)))
            found = list(certain(alone, batch))
            assert len(found) > rows / 10, text
            assert [value for _, value in found] == [expected[place] for place, _ in found], text


def test_filters_and_columns_of_several_steps(interpreted: Any) -> None:
    table = pa.table({"i": pa.array([1, 2, None, 2**31 - 1], pa.int32()), "s": ["a", "b", "c", "a"]})
    leaf = empty_rows(interpreted, "i int, s string")  # type: ignore[arg-type]

    def made(rows: Any) -> Any:
        steps = rows.where("s <> 'c'").withColumn("i", F.expr("i - 1")).withColumn("k", F.col("i") * F.col("i"))
        return steps.where("i < 100").selectExpr("k AS `k.1`", "s", "i AS was")

    runner = runner_of(made(leaf), leaf)
    (batch,) = table.to_batches()
    assert runner(batch).to_pydict() == {"k.1": [0, 1], "s": ["a", "b"], "was": [0, 1]}
    assert runner.program.schema == pa.schema([("k.1", pa.int32()), ("s", pa.string()), ("was", pa.int32())])
    assert runner.program.kept == {"s"}
    overflow = runner_of(made(leaf).selectExpr("was + 2147483647"), leaf)(batch)
    assert isinstance(overflow, Judge)
    assert "overflow" in overflow.why


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda rows: rows.union(rows), "only Spark does a union"),
        (lambda rows: rows.select(F.explode(F.array("i"))), "only Spark does explode"),
        (lambda rows: rows.select(F.udf(lambda i: i, "int")("i")), "only Spark does a Python function"),
        (lambda rows: rows.select(F.rand()), "not deterministic"),
        (lambda rows: rows.select(F.current_timestamp()), "the time at which it runs"),
        (lambda rows: rows.where("levenshtein(s, 'b') > 1"), r"only Spark computes levenshtein\(s, 'b'\)"),
        (lambda rows: rows.selectExpr("i", "s AS i"), "several columns have one name"),
        (lambda rows: rows.selectExpr("s COLLATE UNICODE_CI"), "only Spark computes"),
    ],
)
def test_what_only_spark_does_is_said(interpreted: Any, made: Any, reason: str) -> None:
    leaf = empty_rows(interpreted, "i int, s string")  # type: ignore[arg-type]
    with pytest.raises(OnlySparkError, match=reason):
        runner_of(made(leaf), leaf)
