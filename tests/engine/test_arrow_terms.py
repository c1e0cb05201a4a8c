"""Terms of Spark as expressions of Arrow: each function gives what Spark gives, on edges and on random values."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from pyarrow import acero

from transom.engine.spark.sparkterms import spark_term
from transom.native.functions import arrow_expression

VALUES = {
    "timestamp_seconds(i)": "at",
    "timestamp_millis(i)": "at",
    "timestamp_micros(j)": "at",
    "unix_seconds(at)": "j",
    "unix_millis(at)": "j",
    "unix_micros(at)": "j",
    "d + e": "d",
    "d - e": "d",
    "d * e": "d",
    "-d": "d",
    "abs(d)": "d",
    "d / 7.0D": "d",
    "if(e = 0, NULL, d / e)": "d",
    "i % 7": "i",
    "j % -5L": "j",
    "j div 3": "j",
    "double(i)": "d",
    "double(j)": "d",
    "double(f)": "d",
    "float(i)": "f",
    "bigint(i)": "j",
    "length(s)": "i",
    "coalesce(s, t)": "s",
    "nullif(d, e)": "d",
    "CASE WHEN d > e THEN d WHEN s < t THEN e END": "d",
}
"""Terms that give values, each with a column of the same type."""
TRUTHS = [
    *("d < e", "d <= e", "d = e", "d <=> e", "f > 0", "i >= 7", "j < i", "s < t", "s = t", "s >= t"),
    *("at > timestamp_seconds(i)", "s LIKE 'a%'", "s LIKE '%_b'", "contains(s, 'b')", "startswith(s, 'é')"),
    *("endswith(s, 'a')", "s IN ('a', 'é', '')", "i IN (0, 1, NULL)", "d IN (0.0D, double('NaN'))"),
    *("NOT (d > e AND s IS NULL)", "isnan(d)", "d IS NOT NULL OR i > 0"),
]  # fmt: skip


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
    doubles = [draw.standard_normal(rows) * 10.0 ** draw.integers(-300, 300, rows) for _ in range(2)]
    moments = draw.integers(-(10**17), 10**17, rows)
    return pa.table(
        {
            "i": mixed(draw, [*whole, 2**31 - 1, -(2**31)], draw.integers(-(2**31), 2**31, rows), pa.int32()),
            "j": mixed(draw, [*whole, 2**63 - 1, -(2**63)], draw.integers(-(2**63), 2**63 - 1, rows), pa.int64()),
            "d": mixed(draw, real, doubles[0], pa.float64()),
            "e": mixed(draw, real, doubles[1], pa.float64()),
            "f": mixed(draw, real[:5], draw.standard_normal(rows).astype(np.float32), pa.float32()),
            "s": mixed(draw, ["", "a", "é"], texts(), pa.string()),
            "t": mixed(draw, ["", "a", "é"], texts(), pa.string()),
            "at": mixed(draw, [0, -1, 1, -999, -1000, -1001], moments, pa.int64()).cast(pa.timestamp("us", "UTC")),
        }
    )


def comparable(values: pa.Array) -> list[str]:
    """Return values as texts, which tell zeros apart and take all NaN for one."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    return [repr(value) for value in values.to_pylist()]


@pytest.mark.parametrize("rows", [300, pytest.param(100_000, marks=pytest.mark.slow)])
def test_each_function_gives_what_spark_gives(interpreted: Any, rows: int) -> None:
    """Values as well as conditions."""
    table = table_of(rows)
    frame = interpreted.createDataFrame(table)
    written = [*VALUES, *TRUTHS]
    wanted = frame.selectExpr(*(f"{text} AS c{place}" for place, text in enumerate(written))).toArrow()
    for text, right in zip(written, wanted.columns, strict=True):
        term = spark_term(interpreted, table.schema, f"{text} = {VALUES[text]}" if text in VALUES else text)
        term = term.children[0] if text in VALUES else term
        found = acero.Declaration.from_sequence(
            [
                acero.Declaration("table_source", acero.TableSourceNodeOptions(table)),
                acero.Declaration("project", acero.ProjectNodeOptions([arrow_expression(term, table.schema)], ["c"])),
            ]
        ).to_table(use_threads=False)
        assert comparable(found["c"].combine_chunks()) == comparable(right.combine_chunks()), text
