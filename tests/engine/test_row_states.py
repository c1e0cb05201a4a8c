"""States of sketches that are made without Spark: of the same hashes and values as its own, with which they merge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from datasketches import hll_sketch, kll_doubles_sketch
from tests.engine.test_programs_read import table_of

from transom.model.expression import Expression
from transom.windows.aggregates.hashes import xxhash64
from transom.windows.aggregates.rowstates import FrequentOf, HllOf, KllOf
from transom.windows.aggregates.sketches import HLL_LG_K, Hll, Kll
from transom.windows.aggregates.topk import FrequentItems, TopK, map_size

HASHED = {
    **{name: name for name in ("i", "j", "d", "f", "s", "n", "b", "at", "day")},
    "tiny": "try_cast(i % 100 AS tinyint)",
    "long": "concat(s, n, w, repeat(t, 30))",
}
"""Values of all types, texts of all lengths."""
X = Expression("x")


@pytest.mark.parametrize("rows", [300, pytest.param(20_000, marks=pytest.mark.slow)])
def test_hashes_and_sketches_are_those_of_spark(interpreted: Any, rows: int) -> None:
    """Sketches of one part have the same estimates, in the order of the rows; merged ones stay what they are."""
    kll, items = Kll(X, 4_096), FrequentItems(X, 1_000)
    frame = interpreted.createDataFrame(table_of(rows)).selectExpr(
        *(f"{text} AS {name}" for name, text in HASHED.items())
    )
    values = frame.toArrow().combine_chunks()
    hashes = frame.selectExpr(*(f"xxhash64({name}) AS {name}" for name in HASHED)).toArrow()
    for name in HASHED:
        known = values[name].is_valid()
        found = xxhash64(values[name].combine_chunks().filter(known.combine_chunks()))
        assert found.tolist() == hashes[name].filter(known).to_pylist(), name
    sketches = [
        (Hll(X), "s", HllOf(HLL_LG_K), lambda data: hll_sketch.deserialize(data).get_estimate()),
        (kll, "d", KllOf(4_096), lambda data: kll_doubles_sketch.deserialize(data).get_quantiles([0.1, 0.5, 0.9])),
        (items, "i", FrequentOf(map_size(1_000)), lambda data: TopK(X, 99, 1_000)._top(data, True)),
    ]
    asked = [f"{primitive.sql([name], '')['sketch']} AS {name}" for primitive, name, _, _ in sketches]
    (theirs,) = interpreted.createDataFrame(values.slice(0, 300)).coalesce(1).selectExpr(*asked).toArrow().to_pylist()
    for primitive, name, made, said in sketches:
        check(primitive, values[name].slice(0, 300).combine_chunks(), bytes(theirs[name]), made, said)


def check(primitive: Any, x: pa.Array, theirs: bytes, made: Callable[[pa.Array], pa.Array], said: Any) -> None:
    """Compare the sketch of rows, and that of their halves, with Spark's."""
    nulls = isinstance(primitive, FrequentItems)
    halves = [part if nulls else part.drop_null() for part in (x[:100], x[100:], x[:0])]
    whole = pa.concat_arrays(halves)
    ends = [0, len(halves[0]), len(whole), len(whole)]
    lists = [pa.array(edges, pa.int32()) for edges in ([0, len(whole)], ends)]
    structs = pa.StructArray.from_arrays([whole], ["x"])
    (mine,), parts = (made(pa.ListArray.from_arrays(edges, structs)).to_pylist() for edges in lists)
    assert said(mine) == said(theirs), primitive
    primitive.check(mine)
    merged = said(primitive.combine(tuple(part for part in parts if part is not None)))
    if not isinstance(primitive, Hll):  # of one part it knows in which order values came
        assert merged == said(theirs), primitive
    assert said(primitive.combine((mine, theirs))) == said(primitive.combine((theirs, theirs))), primitive
