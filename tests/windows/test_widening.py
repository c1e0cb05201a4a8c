"""Which changes of types states and keys survive: every pair of types, for every kind of state."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from transom.engine.partials.contents import Origin
from transom.engine.partials.contents import TableNote as Note
from transom.engine.partials.tables import PANE, PartialTable, describe_table, state_name
from transom.errors import JobChangedError
from transom.windows.aggregates import functions as tm
from transom.windows.aggregates.base import Primitive, Types
from transom.windows.aggregates.widening import goes_on, type_name, widened, widens
from transom.windows.keys import KeyIndex

INTS = ["tinyint", "smallint", "int", "bigint"]
TYPES = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "decimal(10,0)": pa.decimal128(10, 0),
    "decimal(12,2)": pa.decimal128(12, 2),
    "decimal(22,2)": pa.decimal128(22, 2),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "array<int>": pa.list_(pa.int32()),
    "array<bigint>": pa.list_(pa.int64()),
    "struct<a:int>": pa.struct([("a", pa.int32())]),
}
EXACT = {
    "tinyint": "smallint int bigint decimal(10,0) decimal(12,2) decimal(22,2) float double",
    "smallint": "int bigint decimal(10,0) decimal(12,2) decimal(22,2) float double",
    "int": "bigint decimal(10,0) decimal(12,2) decimal(22,2) double",
    "bigint": "decimal(22,2)",
    "decimal(10,0)": "decimal(12,2) decimal(22,2)",
    "decimal(12,2)": "decimal(22,2)",
    "float": "double",
    "array<int>": "array<bigint>",
}
SAMPLES: dict[str, list[Any]] = {
    **{name: [-(2 ** (8 * 2**i - 1)), -1, 0, 2 ** (8 * 2**i - 1) - 1, None] for i, name in enumerate(INTS)},
    "decimal(10,0)": [Decimal(-9_999_999_999), Decimal(0), Decimal(9_999_999_999), None],
    "decimal(12,2)": [Decimal("-9999999999.99"), Decimal("0.01"), Decimal("9999999999.99"), None],
    "float": [float(np.float32(0.1)), -0.0, float("inf"), float(np.finfo(np.float32).max), None],
    "array<int>": [[1, -(2**31)], [], None, [2**31 - 1]],
}
PAIRS = [(old, new) for old in TYPES for new in TYPES]


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_what_is_exact(old: str, new: str) -> None:
    assert type_name(TYPES[old]) == old
    allowed = old == new or new in EXACT.get(old, "").split()
    assert widens(old, new) == allowed
    values = pa.array(SAMPLES.get(old, [None]), TYPES[old])
    index = KeyIndex(pa.schema([("k", TYPES[new])]))
    if not allowed:
        with pytest.raises(JobChangedError, match=rf"max\(x\) as .*now it is {new[:4]}"):
            widened(values, TYPES[new], "max(x)")
        with pytest.raises(JobChangedError, match="the key k"):
            index.intern(pa.table({"k": values}))
        return
    assert widened(values, TYPES[new], "max(x)").to_pylist() == values.to_pylist()
    if pa.types.is_nested(TYPES[new]):  # no keys
        return
    index.intern(pa.table({"k": values}))
    assert index.table()["k"].to_pylist() == values.to_pylist()
    assert index.table().schema.field("k").type == TYPES[new]


def state(primitive: Primitive, types: Types, rows: dict[str, list[Any]]) -> PartialTable:
    columns = {state_name(0, name): pa.array(values, types[name]) for name, values in rows.items()}
    table = pa.table({PANE: pa.array([0] * len(next(iter(rows.values()))), pa.int64()), **columns})
    return PartialTable.of(describe_table(table, Note(Origin("rows", ()), (primitive,))))


@pytest.mark.parametrize(("old", "new"), [pair for pair in PAIRS if widens(*pair) and pair[0] in SAMPLES])
@pytest.mark.parametrize("aggregate", [tm.max("x"), tm.last("x"), tm.collect_list("x", 9)], ids=str)
def test_states_of_values_are_what_they_were(aggregate: Any, old: str, new: str) -> None:
    (primitive,) = aggregate.primitives
    name = "values" if primitive.key.startswith('["smallest') else "value"
    values = [value for value in SAMPLES[old] if value is not None]
    kinds = {kind: pa.list_(TYPES[kind]) if name == "values" else TYPES[kind] for kind in (old, new)}
    stored = [[value] for value in values] if name == "values" else values
    rows: dict[str, list[Any]] = {name: stored}
    times = {"time": pa.int64()} if primitive.key.startswith('["edge') else {}
    rows |= {"time": list(range(len(values)))} if times else {}
    table = state(primitive, {name: kinds[old], **times}, rows)
    now: Types = {name: kinds[new], **times}
    found = table.states({primitive: primitive.key}, {primitive: now})[primitive]
    into = primitive.empty(len(values), now)
    primitive.merge_into(into, np.arange(len(values)), found)
    assert primitive.encode(into, now)[name].to_pylist() == stored


def test_sums_become_decimals_unless_they_have_overflowed() -> None:
    (primitive,) = tm.sum("x").primitives
    kinds: list[Types] = [
        {"sum": kind, "count": pa.int64(), "carry": pa.int64()}
        for kind in (pa.int64(), pa.decimal128(32, 2), pa.decimal128(38, 4))
    ]
    rows: dict[str, list[Any]] = {"sum": [2**62, 5, None], "count": [2, 1, 0], "carry": [0, 0, 0]}
    for old, new in ((0, 1), (0, 2), (1, 2)):
        table = state(primitive, kinds[old], rows)
        found = table.states({primitive: primitive.key}, {primitive: kinds[new]})[primitive]
        assert primitive.encode(found, kinds[new])["sum"].to_pylist() == [Decimal(2**62), Decimal(5), None]
    overflown = state(primitive, kinds[0], rows | {"carry": [1, 0, 0]})
    with pytest.raises(JobChangedError, match="overflowed"):
        overflown.states({primitive: primitive.key}, {primitive: kinds[1]})
    wider: Types = {**kinds[1], "sum": pa.decimal128(38, 2)}
    carried = state(primitive, kinds[1], rows | {"carry": [1, 0, 0]})  # of the same scale: no digit moves
    total = carried.states({primitive: primitive.key}, {primitive: wider})[primitive]["sum"][0]
    assert total == 10**32 + 2**62 * 100


GOES_ON = {
    "count.1": lambda old, new: True,
    "kll.1": lambda old, new: old == new or {old, new} <= NUMBERS,
    "moments.1": lambda old, new: old == new or {old, new} <= NUMBERS,
    "hll.1": lambda old, new: old == new or {old, new} <= {"tinyint", "smallint", "int"},
    "frequent.1": lambda old, new: old == new or {old, new} <= set(INTS),
    "mean.1": lambda old, new: widens(old, new) and ("dec" in old) == ("dec" in new),
    "sum.1": lambda old, new: widens(old, new) and not (old in INTS and new in ("float", "double")),
    "extreme.1": widens,
    "edge.1": widens,
    "smallest.1": widens,
    "user.1": widens,
}
NUMBERS = {name for name in TYPES if name in INTS or name[:3] in ("dec", "flo", "dou")}


@pytest.mark.parametrize("kind", GOES_ON)
def test_what_each_state_goes_on_with(kind: str) -> None:
    for old, new in PAIRS:
        assert goes_on(f'["{kind}", "x"]', old, new) == GOES_ON[kind](old, new), (kind, old, new)
