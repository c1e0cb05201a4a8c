"""Z-order: keys are bits interleaved, ranges cover rectangles, the SQL form gives the same."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from benchmarks.workloads.zorder import ZOrder, deinterleave, interleave
from hypothesis import given
from hypothesis import strategies as st

from transom.errors import DefinitionError

CELL = st.integers(0, 2**31 - 1)


def by_bits(x: int, y: int) -> int:
    return sum(((x >> i) & 1) << 2 * i | ((y >> i) & 1) << 2 * i + 1 for i in range(31))


@given(st.lists(st.tuples(CELL, CELL), min_size=1))
def test_bits_are_interleaved_and_found_again(cells) -> None:
    x, y = np.array(cells).T
    keys = interleave(x, y)
    assert keys.tolist() == [by_bits(a, b) for a, b in cells]
    assert [part.tolist() for part in deinterleave(keys)] == [x.tolist(), y.tolist()]


COORDINATE = st.integers(-2, 18).map(float)


@given(COORDINATE, COORDINATE, COORDINATE, COORDINATE, st.integers(1, 20))
def test_ranges_hold_the_rectangle_and_are_exact_where_there_are_enough(west, south, east, north, most) -> None:
    order = ZOrder(0, 0, 16, 16, 4)
    ranges = order.ranges(west, south, east, north, most)
    keys = [key for one in ranges for key in one]
    assert len(ranges) <= most
    assert all(a.stop < b.start for a, b in pairwise(ranges))
    if west > east or south > north:
        assert not ranges
        return
    xs = range(int(np.clip(west, 0, 15)), int(np.clip(east, 0, 15)) + 1)
    ys = range(int(np.clip(south, 0, 15)), int(np.clip(north, 0, 15)) + 1)
    inside = {by_bits(x, y) for x in xs for y in ys}
    assert inside <= set(keys)
    if most >= len(order.ranges(west, south, east, north, 256)):
        assert inside == set(keys)


def test_points_outside_belong_to_the_edge() -> None:
    order = ZOrder(-74.3, 40.4, -73.6, 41.0, 8)
    assert order.key([-200.0, 0.0], [0.0, 90.0]).tolist() == [0, order.keys - 1]
    assert order.ranges(-180, -90, 180, 90) == [range(order.keys)]


def test_the_sql_form_gives_the_same_keys(spark) -> None:
    order = ZOrder(-74.3, 40.4, -73.6, 41.0, 12)
    rng = np.random.default_rng(5)
    points = np.stack([rng.uniform(-74.5, -73.4, 500), rng.uniform(40.2, 41.2, 500)])
    rows = spark.createDataFrame([(float(a), float(b)) for a, b in points.T], "x double, y double")
    found = [row.z for row in rows.selectExpr(f"{order.sql('x', 'y')} AS z").collect()]
    assert found == order.key(*points).tolist()
    nothing, nan = order.sql("NULL", "y"), order.sql("x", "double('NaN')")
    missing = rows.limit(1).selectExpr(f"{nothing} AS a", f"{nan} AS b")
    assert missing.collect() == [(None, None)]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: ZOrder(1, 0, 1, 1),
        lambda: ZOrder(0, 0, float("inf"), 1),
        lambda: ZOrder(0, 0, 1, 1, 32),
        lambda: ZOrder(0, 0, 1, 1).key([float("nan")], [0.0]),
        lambda: ZOrder(0, 0, 1, 1).ranges(0, 0, 1, 1, 0),
    ],
)
def test_what_makes_no_sense_is_refused(wrong) -> None:
    with pytest.raises(DefinitionError):
        wrong()
