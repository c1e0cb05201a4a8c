"""Partials that left before columns got wider types leave again with those of now: destinations take no others."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from tests.windows.test_aggregates_laws import partial, types_of

import transom as tm
from transom.engine.partials.contents import Origin
from transom.engine.partials.tables import PANE, PartialTable, partial_table
from transom.engine.spark.cutstats import CutStats
from transom.engine.streams.sending import FlowSender
from transom.errors import JobChangedError
from transom.model.expression import Expression
from transom.model.window import WindowSpec
from transom.sites.agreement import difference
from transom.windows.components import key_sets_of
from transom.windows.query import Key, WindowedQuery

LONG, INT, SECOND = pa.int64(), pa.int32(), 1_000_000
QUERY = WindowedQuery(
    "words",
    0,
    (Key("word", Expression("word")),),
    (WindowSpec(4 * SECOND, 4 * SECOND, 0),),
    (("n", tm.count()), ("x", tm.max("x"))),
)
KEY_SET, ORIGIN = key_sets_of([QUERY])[0], Origin("rows", ("word",))


def sender(kind: pa.DataType) -> FlowSender:
    kept = {primitive: types_of(primitive, kind) for primitive in KEY_SET.primitives}
    return FlowSender("words", (KEY_SET, ORIGIN, pa.schema([("word", kind)]), kept))


def restored(kind: pa.DataType, state, tables) -> FlowSender:
    found = sender(kind)
    found.restore(state, tables)
    return found


def made(kind: pa.DataType) -> PartialTable:
    """Return partials of two words."""
    kept, states = {primitive: types_of(primitive, kind) for primitive in KEY_SET.primitives}, {}
    for primitive, types in kept.items():
        rows = [partial(primitive, [(value, value)], kind) for value in (5, 7)]
        states[primitive] = primitive.decode({name: pa.concat_arrays([each[name] for each in rows]) for name in types})
    panes = np.array([0, 4 * SECOND])
    return PartialTable.of(
        partial_table(kept, ORIGIN, {PANE: panes}, pa.table({"word": pa.array([1, 2], kind)}), states)
    )


def test_what_was_fixed_leaves_again_with_the_types_of_now():
    before = sender(INT)
    before.take(1, [made(INT)], CutStats(rows=2), None)
    before.fix(1, 7)
    before.take(2, [made(INT)], CutStats(rows=2), None)
    held = before.held()
    same, wider = restored(INT, *held), restored(LONG, *held)
    assert same.ranges[1].table.equals(before.ranges[1].table, check_metadata=True)
    fixed = wider.ranges[1].table
    assert difference([wider.shape], PartialTable.of(before.ranges[1].table))
    assert difference([wider.shape], PartialTable.of(fixed)) == ""
    assert fixed.to_pylist() == before.ranges[1].table.to_pylist() != []
    assert (wider.ranges[1].upto, wider.ranges[1].tick, wider.left, wider.committed) == (1, 7, 1, 2)
    assert wider.fix(2, 9).table.to_pylist() == fixed.to_pylist()
    with pytest.raises(JobChangedError, match="as int; now it is smallint"):
        restored(pa.int16(), *held)
