"""States that came from elsewhere: what has no flaw can be merged, stored and read, whatever made it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from datasketches import kll_doubles_sketch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.windows.test_aggregates_laws import CASES, INPUTS, partial, result, rows_of, types_of

from transom.errors import QueryFailedError
from transom.windows.aggregates import functions as tm
from transom.windows.aggregates.base import Aggregate, Primitive
from transom.windows.aggregates.flaws import MOST_ROWS
from transom.windows.aggregates.kll import check_kll
from transom.windows.aggregates.parts import PartsPrimitive

EXTREME = [0, -1, 1, 7, 2**31, -(2**31), 2**62, -(2**62), 2**63 - 1, -(2**63)]


def states(draw: Any, primitive: Primitive, name: str) -> list[dict[str, pa.Array]]:
    """Return states of some rows, each as one row of columns; the last one of others merged, as a source sends it."""
    kind, strategy = INPUTS[name]
    columns = [partial(primitive, part, kind) for part in draw(rows_of(strategy, kind))]
    types = types_of(primitive, kind)
    into = primitive.empty(1, types)
    for each in columns:
        primitive.merge_into(into, np.array([0]), primitive.decode(each))
    return [*columns, dict(primitive.encode(into, types))]


@st.composite
def bytes_changed(draw: Any, data: bytes) -> bytes:
    how = draw(st.sampled_from(["byte", "head", "cut", "longer", "ones"]))
    at = draw(st.integers(0, max(0, min(len(data), 24 if how == "head" else len(data)) - 1)))
    if how in ("byte", "head"):
        return data[:at] + bytes([draw(st.integers(0, 255))]) + data[at + 1 :]
    if how == "ones":
        return data[:at] + b"\xff" * 8 + data[at + 8 :]
    return data[:at] if how == "cut" else data + draw(st.binary(min_size=1, max_size=9))


def changed(draw: Any, value: Any, kind: pa.DataType) -> Any:
    """Return a value of an Arrow type that damaged memory could hold in place of another one."""
    if value is not None and pa.types.is_struct(kind):
        field = draw(st.sampled_from(list(kind)))
        return None if draw(st.booleans()) else {**value, field.name: changed(draw, value[field.name], field.type)}
    if value and pa.types.is_list(kind):
        at = draw(st.integers(0, len(value) - 1))
        other = [*value[:at], changed(draw, value[at], kind.value_type), *value[at + 1 :]]
        return draw(st.sampled_from([None, value * 3, [*value[:at], None], value[::-1], value[:at], other]))
    if value is not None and pa.types.is_binary(kind):
        return draw(bytes_changed(value) | st.binary(max_size=20) | st.none())
    if pa.types.is_floating(kind):
        return draw(st.sampled_from([math.nan, math.inf, -math.inf, 1e308, -1e308, -1.0, 0.0, None]))
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return draw(st.sampled_from([*EXTREME, None]))
    return draw(st.sampled_from([value, None]))


def array_of(value: Any, kind: pa.DataType) -> pa.Array:
    if pa.types.is_temporal(kind) and isinstance(value, int):
        size = 32 if kind.bit_width == 32 else 64
        return pa.array([value % 2 ** (size - 1)], pa.int32() if size == 32 else pa.int64()).view(kind)
    return pa.array([value], kind)


def require_sound(draw: Any, aggregate: Aggregate, name: str) -> None:
    """Damage a state, and merge, store and read it with others if nothing is seen; those others have no flaw."""
    kind, _ = INPUTS[name]
    merged = []
    for primitive in aggregate.primitives:
        types = types_of(primitive, kind)
        *whole, columns = found = states(draw, primitive, name)
        assert [primitive.flaw(each) for each in found] == [""] * len(found)
        for _ in range(draw(st.integers(1, 2))):
            column = draw(st.sampled_from(list(columns)))
            try:
                array = array_of(changed(draw, columns[column][0].as_py(), types[column]), types[column])
            except (pa.ArrowException, OverflowError, ValueError, TypeError):
                continue  # no value of the type
            columns = {**columns, column: array}
        try:
            if primitive.flaw(columns):
                return
            state = primitive.decode(columns)
        except Exception:  # what cannot be read at all
            return
        into = primitive.empty(1, types)
        for each in (state, state, *map(primitive.decode, whole)):
            primitive.merge_into(into, np.array([0]), each)
        again = primitive.decode(primitive.encode(into, types))
        primitive.merge_into(again, np.array([0]), state)
        merged.append(again)
    try:
        result(aggregate, merged, kind)
    except QueryFailedError:  # as rows can make it fail, too
        pass
    except ValueError:  # texts that are no numbers: items do not tell of which type they are
        assert "top_k" in aggregate.describe()
        assert name == "long"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), st.sampled_from(CASES))
def test_damage_is_a_flaw_or_does_no_harm(data: Any, case: tuple[Aggregate, str]) -> None:
    require_sound(data.draw, *case)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].describe()[:22]} {case[1]}")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_damage_of_each_kind(data: Any, case: tuple[Aggregate, str]) -> None:
    require_sound(data.draw, *case)


@pytest.mark.parametrize(
    ("aggregate", "columns", "says"),
    [
        (tm.count(), {"count": [None]}, "is missing"),
        (tm.count(), {"count": [-1]}, "counts -1 rows"),
        (tm.count(), {"count": [MOST_ROWS + 1]}, "rows"),
        (tm.count_if("x"), {"count": [-1]}, "counts -1 rows"),
        (tm.sum("x"), {"sum": [1], "count": [1], "carry": [2]}, "wrapped"),
        (tm.sum("x"), {"sum": [1], "count": [1], "carry": [-(2**63)]}, "wrapped"),
        (tm.sum("x"), {"sum": [1, 1], "count": [1, 1], "carry": [0, None]}, "wrapped"),
        (tm.avg("x"), {"sum": [1.0], "count": [-1], "exact": [None]}, "counts -1 rows"),
        (tm.stddev_pop("x"), {"n": [None], "mean": [1.0], "m2": [1.0]}, "is missing"),
        (tm.collect_list("x", 2), {"values": [[1, 2, 3]]}, "3 values, of 2"),
        (tm.collect_set("x", 3), {"values": [[1, None]]}, "holds nothing"),
        (tm.collect_list("x", 2, order_by="t"), {"rows": [[{"o": 1, "x": None}]]}, "null"),
        (tm.approx_count_distinct("x"), {"sketch": [b"damaged"]}, ""),
        (tm.quantile("x", 0.5), {"sketch": [b"damaged, and longer than a sketch's first bytes"]}, "no KLL sketch"),
        (tm.top_k("x", 2), {"sketch": [b"\x04\x01\x0a\x1f\x1e" + bytes(40)]}, "no sketch of 10000 items"),
        (tm.top_k("x", 2), {"sketch": [b""]}, "no sketch"),
    ],
)
def test_what_no_rows_make_is_a_flaw(aggregate: Aggregate, columns: dict[str, list[Any]], says: str) -> None:
    (primitive,) = aggregate.primitives
    flaw = primitive.flaw({name: pa.array(values) for name, values in columns.items()})
    assert flaw
    assert says in flaw


values = st.floats(allow_nan=False)


@example([1.0] * 200, 3)
@example([float(n) for n in range(1000)], 5)
@given(st.lists(values, max_size=60), st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_sketches_of_whatever_size_are_known(some: list[float], times: int) -> None:
    """Made by the library itself, which says how large they are by how many levels they have."""
    for k in (8, 200):
        one, whole = kll_doubles_sketch(k), kll_doubles_sketch(k)
        for value in some:
            one.update(value)
        for _ in range(times):
            whole.merge(one)
            check_kll(bytes(whole.serialize()), k)
            with pytest.raises(ValueError, match="k = 9"):
                check_kll(bytes(whole.serialize()), 9)


def test_a_sketch_that_the_library_would_read_beyond_its_end_is_refused() -> None:
    made = kll_doubles_sketch(200)
    for value in range(1000):
        made.update(float(value))
    data = bytes(made.serialize())
    (quantile,) = tm.quantile("x", 0.5).primitives
    assert isinstance(quantile, PartsPrimitive)
    quantile.check(data)
    for at in range(20, 20 + 4 * data[18]):  # where levels begin
        with pytest.raises(ValueError, match="KLL"):
            quantile.check(data[:at] + bytes([data[at] ^ 0x80]) + data[at + 1 :])
