"""How large parcels are at one site: hashes of their rows, and sketches as the library makes them value by value."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from datasketches import compact_theta_sketch, theta_union, update_theta_sketch
from hypothesis import given, settings
from hypothesis import strategies as st

from transom.sites.measuring import FlowSizes, hashes_of, sketch_of, theta_of
from transom.widearea.sizes import NOMINAL

WORDS = st.integers(0, 2**64 - 1) | st.integers(2**63 - 2000, 2**63 + 2000) | st.integers(0, 300)
KEYS = {
    "whole": pa.array([1, -2, 2**62, 1], pa.int64()),
    "small": pa.array([1, -2, 3, 1], pa.int16()),
    "unsigned": pa.array([1, 2**64 - 1, 3, 1], pa.uint64()),
    "missing": pa.array([1, None, 2**40, 1], pa.int64()),
    "word": pa.array(["a", "ä", None, "a"]),
    "real": pa.array([1.5, float("nan"), None, 1.5]),
    "flag": pa.array([True, False, None, True]),
    "day": pa.array([dt.date(2024, 1, 1), None, dt.date(1960, 1, 1), dt.date(2024, 1, 1)]),
    "moment": pa.array([1, None, 3, 1], pa.timestamp("us", "UTC")),
    "money": pa.array([Decimal("1.50"), None, Decimal("-3.25"), Decimal("1.50")]),
}


def one_by_one(values):
    sketch = update_theta_sketch(NOMINAL)
    for value in values:
        sketch.update(value)
    return sketch.compact()


@settings(max_examples=60, deadline=None)
@given(st.lists(WORDS, max_size=700), st.integers(0, 3))
def test_a_sketch_has_what_one_made_value_by_value_has(values, more):
    values += np.random.default_rng(more).integers(0, 2**64, 700 * more, np.uint64).tolist()
    made, expected = theta_of(np.array(values, np.uint64)), one_by_one(values)
    assert list(made) == sorted(expected)[: 1 << NOMINAL]
    assert made.is_estimation_mode() == (made.num_retained < len({*values}) and len({*values}) > 1 << NOMINAL)
    assert made.get_estimate() == pytest.approx(expected.get_estimate(), rel=0.3)
    union = theta_union(NOMINAL)
    for each in (made, expected):  # one adds nothing to the other
        union.update(each)
    assert union.get_result().get_estimate() == pytest.approx(made.get_estimate(), rel=0.3)


@given(st.lists(st.sampled_from(list(KEYS)), min_size=1, max_size=4, unique=True), st.integers(0, 4))
def test_a_row_has_one_hash_wherever_it_is(names, at):
    """Also where no other one of a column is null, and where all are."""
    table = pa.table({name: KEYS[name] for name in names})
    hashes = hashes_of(table.columns).tolist()
    assert hashes_of(pa.concat_tables([table.slice(0, at), table.slice(at)]).columns).tolist() == hashes
    assert [hashes_of(table.slice(row, 1).columns)[0] for row in range(len(table))] == hashes
    rows = list(map(str, table.to_pylist()))
    assert [hashes.index(each) for each in hashes] == [rows.index(each) for each in rows]


def test_other_rows_have_other_hashes():
    moments = np.repeat(np.arange(300) * 1_000_000, 300)
    counts = np.tile(np.arange(300), 300)
    for other in (counts, moments[::-1], counts * 1_000_000):
        assert len(np.unique(hashes_of([pa.chunked_array([moments]), pa.chunked_array([other])]))) == len(
            np.unique(np.stack([moments, other]), axis=1).T
        )


def test_a_sketch_is_of_panes_and_keys():
    table = pa.table({"_pane": [0, 0, 60, 60], "word": ["a", "b", "a", "a"], "_s0_count": [1, 2, 3, 4]})
    assert sketch_of(table).get_estimate() == 3
    assert sketch_of(table.slice(0, 0)).get_estimate() == 0


def test_sketches_of_the_last_parcels_are_united():
    sizes = FlowSizes()
    for tick in range(1, 9):
        sizes.fixed(tick, pa.table({"_pane": [tick, 0], "_s0_count": [1, 1]}))
    found = {span: compact_theta_sketch.deserialize(each) for span, each in sizes.sketches().items()}
    assert {span: each.get_estimate() for span, each in found.items()} == {1: 2, 6: 7}
