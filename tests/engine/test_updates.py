"""Early results and corrections without Spark: what is emitted, as which revision, and that it survives a restart."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import transom as tm
from transom.engine.partials.contents import Origin, TableNote
from transom.engine.partials.tables import PANE, PartialTable, describe_table, state_name
from transom.engine.state.queries import CompiledQuery
from transom.engine.state.state import StreamState
from transom.engine.state.watermarks import WatermarkState
from transom.model.expression import Expression
from transom.model.time import MIN_TIME
from transom.model.window import WindowSpec
from transom.windows.components import ROWS, KeySet
from transom.windows.query import Key, WindowedQuery

ORIGIN = Origin("rows", ("k",))
COUNTS = {ROWS: {"count": pa.int64()}}
UNIT = 1_000

Row = tuple[int, int]
"""Event time and key."""


def query_of(windows: tuple[WindowSpec, ...], early: int | None, lateness: int) -> WindowedQuery:
    key = Key("k", Expression("k"))
    return WindowedQuery("q", 0, (key,), windows, (("n", tm.count()),), early=early, lateness=lateness)


@dataclass
class Machine:
    """A stream's state that is told of cuts, beside the rows that each window should hold."""

    query: WindowedQuery
    rows: list[tuple[Row, int]] = field(default_factory=list)
    """Rows with the watermark that was in force for them."""
    cut: int = 0
    emitted: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    final: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = self.fresh()

    def fresh(self) -> StreamState:
        state = StreamState({"q": CompiledQuery(self.query, {"n": ()})}, WatermarkState.start(1), 0, ansi=True)
        key_set = KeySet(0, frozenset(self.query.keys), (self.query,))
        state.arrange([(key_set, ORIGIN, pa.schema([("k", pa.int64())]), COUNTS)])
        state.feeding = frozenset({"q"})
        return state

    def step(self, rows: list[Row], watermark: int, now: int) -> None:
        """Log a cut with this watermark, then commit its rows."""
        self.cut += 1
        for closing in self.state.close(watermark, self.cut, now, self.state.closed_by(watermark)):
            assert closing.error is None
            if closing.results is not None:
                assert closing.results.keys == ("window_start", "window_end", "k")
                self.emitted += [(self.cut, row) for row in plain(closing.results.table)]
            if closing.final is not None:
                self.final += plain(closing.final)
        counts = Counter((int(self.state.stores[0].store.here.grid.start(np.array([t]))[0]), k) for t, k in rows)
        columns = {
            PANE: pa.array([pane for pane, _ in counts], pa.int64()),
            "k": pa.array([k for _, k in counts], pa.int64()),
            state_name(0, "count"): pa.array(list(counts.values()), pa.int64()),
        }
        table = describe_table(pa.table(columns), TableNote(ORIGIN, (ROWS,)))
        self.state.commit([PartialTable.of(table)], self.cut, self.state.watermark)
        self.rows += [(row, watermark) for row in rows]

    def restart(self) -> None:
        """Go on with a state that knows only what a snapshot holds."""
        state, tables = self.state.snapshot()
        self.state = self.fresh()
        self.state.restore(json.loads(json.dumps(state)), tables)

    def expected(self) -> dict[tuple[int, int, int], int]:
        """Return the counts by window and key over the rows in time."""
        found: Counter[tuple[int, int, int]] = Counter()
        for (time, key), in_force in self.rows:
            spans = set()
            for window in self.query.windows:
                start = window.last_start(time)
                while start + window.length > time:
                    spans.add((start, start + window.length))
                    start -= window.slide
            found.update((*span, key) for span in spans if span[1] + self.query.lateness > in_force)
        return dict(found)


def plain(table: pa.Table) -> list[dict[str, Any]]:
    columns = {name: table.column(name) for name in table.column_names}
    for name in ("window_start", "window_end"):
        columns[name] = columns[name].cast(pa.int64())
    return pa.table(columns).to_pylist()


def latest(machine: Machine) -> dict[tuple[int, int, int], int]:
    """Return the last revision of each window and key; revisions of a window count up by one."""
    values: dict[tuple[int, int, int], int] = {}
    revisions: dict[tuple[int, int], int] = {}
    cuts: dict[tuple[int, int], int] = {}
    for cut, row in machine.emitted:
        span = row["window_start"], row["window_end"]
        if cuts.get(span) != cut:
            assert row["revision"] == revisions.get(span, -1) + 1
            revisions[span], cuts[span] = row["revision"], cut
        assert row["revision"] == revisions[span]
        assert values.get((*span, row["k"])) != row["n"], "a row was emitted that had not changed"
        values[(*span, row["k"])] = row["n"]
    return values


WINDOWS = st.lists(
    st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(0, 3)).map(
        lambda t: WindowSpec(max(t[:2]) * UNIT, min(t[:2]) * UNIT, t[2] * UNIT)
    ),
    min_size=1,
    max_size=3,
    unique=True,
).map(tuple)
QUERIES = st.builds(
    query_of, WINDOWS, st.sampled_from([None, 1, 5]), st.sampled_from([0, UNIT, 3 * UNIT + 7, 20 * UNIT])
).filter(lambda query: query.updates)
STEPS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 20 * UNIT), st.integers(0, 2)), max_size=5),
        st.integers(0, 3 * UNIT),
        st.integers(0, 4),
        st.booleans(),
    ),
    max_size=12,
)


@settings(deadline=None)
@given(QUERIES, STEPS)
def test_the_last_revisions_are_what_a_batch_over_the_rows_in_time_gives(query, steps):
    machine, watermark, now = Machine(query), 0, 0
    for rows, progress, passed, restart in steps:
        machine.step(rows, watermark, now)
        watermark, now = watermark + progress, now + passed
        if restart:
            machine.restart()
    machine.step([], 100 * UNIT, now)
    machine.step([], 200 * UNIT, now + 1)
    assert latest(machine) == machine.expected()
    final = {(row["window_start"], row["window_end"], row["k"]): row["n"] for row in machine.final}
    assert len(final) == len(machine.final), "a final row came twice"
    assert final == machine.expected()
    assert all("revision" not in row for row in machine.final)
    assert not machine.state.has_due(200 * UNIT, now + 100)


@given(QUERIES, STEPS)
def test_early_results_hold_all_rows_so_far(query, steps):
    machine, watermark, now = Machine(query), 0, 0
    for rows, progress, passed, _ in steps:
        machine.step(rows, watermark, now)
        watermark, now = watermark + progress, now + passed
        if query.early is not None and machine.cut > 1:
            machine.step([], machine.state.closed, now + query.early)
            now += query.early
            live = {k: n for k, n in machine.expected().items() if k[1] + query.lateness > machine.state.closed}
            values = latest(machine)
            assert {k: values.get(k) for k in live} == live


def test_early_results_wait_for_their_time_and_for_changes():
    machine = Machine(query_of((WindowSpec(10 * UNIT, 10 * UNIT),), early=5, lateness=0))
    machine.step([(1, 0)], MIN_TIME, 100)
    assert not machine.state.has_due(MIN_TIME, 104)
    assert machine.state.has_due(MIN_TIME, 105)
    machine.step([(2, 1)], MIN_TIME, 104)
    assert machine.emitted == []
    machine.step([], MIN_TIME, 105)
    assert [(row["k"], row["n"], row["revision"]) for _, row in machine.emitted] == [(0, 1, 0), (1, 1, 0)]
    machine.step([(3, 1)], MIN_TIME, 106)
    machine.step([], 10 * UNIT, 107)
    assert [(row["k"], row["n"], row["revision"]) for _, row in machine.emitted[2:]] == [(1, 2, 1)]
    assert not machine.state.has_due(10 * UNIT, 1_000)


def test_a_correction_is_due_at_once_and_ends_with_the_lateness():
    machine = Machine(query_of((WindowSpec(10 * UNIT, 10 * UNIT),), early=None, lateness=5 * UNIT))
    machine.step([(1, 0), (1, 1)], MIN_TIME, 0)
    machine.step([(2, 0)], 10 * UNIT, 1)
    assert machine.state.has_due(10 * UNIT, 1)
    machine.step([], 10 * UNIT, 2)
    machine.step([(2, 0)], 15 * UNIT, 3)
    assert not machine.state.has_due(15 * UNIT, 3)
    machine.step([], 30 * UNIT, 4)
    rows = [(row["k"], row["n"], row["revision"]) for _, row in machine.emitted]
    assert rows == [(0, 1, 0), (1, 1, 0), (0, 2, 1)]
    assert [(row["k"], row["n"]) for row in machine.final] == [(0, 2), (1, 1)]


def test_a_query_that_rested_goes_on_with_the_next_revision_and_all_keys():
    machine = Machine(query_of((WindowSpec(10 * UNIT, 10 * UNIT),), early=1, lateness=0))
    machine.step([(1, 0), (1, 1)], MIN_TIME, 0)
    machine.step([], MIN_TIME, 1)
    machine.state._revisions._updates["q"].rest()
    machine.restart()
    assert not machine.state.has_due(MIN_TIME, 100)
    machine.step([(2, 1)], MIN_TIME, 100)
    machine.step([], 10 * UNIT, 101)
    rows = [(row["k"], row["n"], row["revision"]) for _, row in machine.emitted]
    assert rows == [(0, 1, 0), (1, 1, 0), (0, 1, 1), (1, 2, 1)]
