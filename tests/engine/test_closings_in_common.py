"""What many queries have in common when windows close is made once: rows of a condition, times, keys and states."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import transom as tm
from transom.engine.partials import results, tables
from transom.engine.partials.contents import Origin, TableNote
from transom.engine.partials.results import Frames, result_table
from transom.engine.partials.tables import PANE, TAG, PartialTable, describe_table, state_name
from transom.model.expression import Expression
from transom.windows.components import ROWS
from transom.windows.panes import Grid
from transom.windows.partials import Partial, restricted
from transom.windows.query import Key, WindowedQuery
from transom.windows.store import PaneStore

CONDITIONS = ("", "a > 1", "a > 2", "a > 3")
layouts = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 200)), max_size=12)
"""Numbers of conditions, each with how many rows one behind the other have it."""


@pytest.mark.parametrize("grouped", [0, 1 << 30])
@pytest.mark.parametrize(("neighbours", "taken"), [(64, 1 << 30), (1, 1 << 30), (1 << 30, 1 << 30), (1 << 30, 0)])
@given(layout=layouts, cuts=st.sets(st.integers(0, 600)))
def test_the_rows_of_a_condition_are_those_that_a_filter_finds(
    grouped: int, neighbours: int, taken: int, layout: list[tuple[int, int]], cuts: set[int]
) -> None:
    tags = [tag for tag, times in layout for _ in range(times)]
    numbers = pa.array(range(len(tags)), pa.int64())
    columns = {PANE: numbers, TAG: pa.array(tags, pa.int32()), "zone": numbers.cast(pa.string())}
    columns[state_name(0, "count")] = numbers
    edges = sorted({0, len(tags), *(cut for cut in cuts if cut < len(tags))})
    whole = pa.table(columns)
    pieces = [whole.slice(a, b - a) for a, b in pairwise(edges)] or [whole]
    note = TableNote(Origin("rows", ("zone",)), (ROWS,), CONDITIONS)
    made = PartialTable.of(describe_table(pa.concat_tables(pieces), note))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "_NEIGHBOURS", neighbours)
        patch.setattr(tables, "_TAKEN", taken)
        patch.setattr(tables, "_GROUPED", grouped)
        for number, condition in enumerate(CONDITIONS):
            mine = made.of_condition(condition)
            assert mine.contents.conditions == (condition,)
            right = whole.filter(pc.equal(whole[TAG], number)).drop_columns([TAG])
            assert mine.table.to_pydict() == right.to_pydict()
            assert mine.panes().tolist() == right[PANE].to_pylist()
            states = mine.states({ROWS: ROWS.key}, {ROWS: {"count": pa.int64()}})
            assert states[ROWS]["count"].tolist() == right[PANE].to_pylist()


def _query(name: str, **aggregates: Any) -> WindowedQuery:
    return WindowedQuery(name, 0, (Key("k", Expression("k")),), (tm.tumbling("1 second"),), tuple(aggregates.items()))


COUNT, SUM = tm.count(), tm.sum("x")
PRIMITIVES = {
    COUNT.primitives[0]: {"count": pa.int64()},
    SUM.primitives[0]: {"sum": pa.int64(), "count": pa.int64(), "carry": pa.int64()},
}
QUERIES = (_query("n", n=COUNT), _query("both", n=COUNT, total=SUM), _query("total", total=SUM))
TYPES = {"n": (), "total": (pa.int64(),)}


def _filled() -> tuple[PaneStore, dict[tuple[int, int], Partial]]:
    specs = [tm.tumbling("1 second")]
    store = PaneStore(Grid.of(specs), pa.schema([("k", pa.string())]), PRIMITIVES, specs)
    times = np.array([0, 0, 1_000_000, 1_000_000, 2_000_000], np.int64)
    keys = pa.table({"k": ["a", "b", "a", "b", None]})
    ones = np.ones(5, np.int64)
    states = {COUNT.primitives[0]: {"count": ones}}
    states[SUM.primitives[0]] = {"sum": np.arange(5), "count": ones, "carry": 0 * ones}
    store.add(times, keys, states)
    return store, store.consolidate([(n * 1_000_000, (n + 1) * 1_000_000) for n in range(3)])


@given(
    asked=st.lists(
        st.tuples(
            st.sampled_from(QUERIES),
            st.lists(st.sampled_from(range(3)), min_size=1, unique=True),
            st.booleans(),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_results_in_common_are_those_that_each_query_has_alone(
    asked: list[tuple[WindowedQuery, list[int], bool]],
) -> None:
    store, merged = _filled()
    frames = Frames()
    for query, places, some in asked:
        windows = [(span, merged[span]) for span in (list(merged)[place] for place in places)]
        if some:  # an emission of a few keys
            windows = [(span, restricted(part, part.ids[:1], len(store.keys))) for span, part in windows]
        revisions = list(range(len(windows))) if some else None
        together = result_table(query, store, windows, TYPES, True, revisions, frames)
        alone = result_table(query, store, windows, TYPES, True, revisions)
        assert together.equals(alone)
        assert together.schema == alone.schema
        ids = np.concatenate([part.ids for _, part in windows])
        assert together["k"].to_pylist() == store.keys.take(ids)[0].to_pylist()
        starts = [span[0] for span, part in windows for _ in part.ids]
        assert together["window_start"].cast(pa.int64()).to_pylist() == starts
        if "n" in together.column_names:
            assert together["n"].to_pylist() == [1] * len(ids)
        if "total" in together.column_names:
            totals = {0: {"a": 0, "b": 1}, 1_000_000: {"a": 2, "b": 3}, 2_000_000: {None: 4}}
            found = zip(starts, together["k"].to_pylist(), strict=True)
            assert together["total"].to_pylist() == [totals[start][key] for start, key in found]


def test_keys_of_one_window_are_looked_up_once(monkeypatch: Any) -> None:
    store, merged = _filled()
    frames, looked = Frames(), list[int]()
    original = type(store.keys).take
    monkeypatch.setattr(type(store.keys), "take", lambda self, ids: looked.append(len(ids)) or original(self, ids))
    for query in QUERIES:
        for span in list(merged)[:2]:
            result_table(query, store, [(span, merged[span])], TYPES, True, None, frames)
    assert looked == [2], "two windows have the same keys, and three queries ask for them"
    assert results.Frames().of(store, list(merged.items())).counts.tolist() == [2, 2, 1]
