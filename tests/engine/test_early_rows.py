"""Early results of a query over early results without Spark: each is that of what was read then, and survives."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.test_updates import UNIT, WINDOWS, Machine, plain, query_of

import transom as tm
from transom.engine.partials.contents import Origin, TableNote
from transom.engine.partials.early import EarlyPartials
from transom.engine.partials.tables import LENGTH, PANE, PartialTable, describe_table, state_name
from transom.engine.state.queries import CompiledQuery
from transom.engine.state.state import StreamState
from transom.engine.state.watermarks import WatermarkState
from transom.engine.streams.earlyresults import EarlyResultsSource
from transom.model.expression import Expression
from transom.model.time import MIN_TIME
from transom.model.window import WindowSpec
from transom.windows.components import KeySet
from transom.windows.partials import Partial, changed_ids
from transom.windows.query import Key, WindowedQuery

ORIGIN = Origin("results", ("k",))
Value = tuple[int, int]
"""How many results there are, and the largest count."""


@dataclass
class Chain:
    """A query over the early results of that of a `Machine`."""

    below: Machine
    windows: tuple[WindowSpec, ...]
    direct: bool
    """Whether its job gives windows instead of panes."""
    cut: int = 0
    marks: dict[int, int] = field(default_factory=dict)
    """For each cut of the query below, the rows that were committed before it."""
    emitted: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    """Results, with the position that had been read then."""

    def __post_init__(self) -> None:
        self.state, self.source = self.fresh()

    def fresh(self) -> tuple[StreamState, EarlyResultsSource]:
        key, aggregates = Key("k", Expression("k")), (("rows", tm.count()), ("most", tm.max("n")))
        query = WindowedQuery("top", 0, (key,), self.windows, aggregates, early=1)
        types: dict[str, tuple[pa.DataType, ...]] = {"rows": (), "most": (pa.int64(),)}
        state = StreamState({"top": CompiledQuery(query, types)}, WatermarkState.start(1), 0, ansi=True)
        key_set = KeySet(0, frozenset(query.keys), (query,))
        primitives = {p: {name: pa.int64()} for p, name in zip(key_set.primitives, ("count", "value"), strict=True)}
        state.arrange([(key_set, ORIGIN, pa.schema([("k", pa.int64())]), primitives)])
        state.previews = True
        self.below.state.previewed = frozenset({"q"})
        source = EarlyResultsSource("rows", "q")
        source._child = cast(Any, SimpleNamespace(state=state))
        source._streams = (cast(Any, SimpleNamespace(state=self.below.state)),)
        return state, source

    def step_below(self, rows: list[tuple[int, int]], watermark: int, now: int) -> None:
        """Let the query below have a cut, as `Machine.step`, and give on what came of it."""
        self.marks[self.below.cut + 1] = len(self.below.rows)
        close = self.below.state.close

        def closing(*arguments: Any) -> Any:
            closings = close(*arguments)
            self.source.closed(self.below.cut, closings, self.below.state.closed, now)
            return closings

        self.below.state.close = closing  # type: ignore[method-assign]
        self.below.step(rows, watermark, now)
        self.below.state.close = close  # type: ignore[method-assign]

    def step(self, most: int, now: int) -> None:
        """Log a cut of the upper query, which reads at most so many rows, or one item, and commit it."""
        self.cut += 1
        position, end = int(self.state.offset), self.source.cut(self.state.offset, most).end
        watermark = max(self.state.closed, self.source.watermark(position) or MIN_TIME)
        for closing in self.state.close(watermark, self.cut, now, self.state.closed_by(watermark)):
            assert closing.error is None
            assert closing.results is not None
            self.emitted += [(position, row) for row in plain(closing.results.table)]
        items = self.source._between(position, end)
        final = [row for item in items if item.table is not None for row in plain(item.table)]
        early = None
        if self.source.early(end) is not None:
            early = EarlyPartials((self.partials(plain(self.source._early[int(end)])),))
        assert (early is not None) == (end != position)
        self.state.commit([PartialTable.of(self.partials(final))], end, self.state.watermark, early)
        self.source.release(end)

    def partials(self, results: Iterable[dict[str, Any]]) -> pa.Table:
        """Return what the job makes of results."""
        grid = self.state.stores[0].store.here.grid
        found: dict[tuple[int, int, int], Value] = {}
        for row in results:
            time = row["window_end"] - 1
            start = int(grid.start(np.array([time]))[0])
            for span in spans_of(self.windows, time) if self.direct else [(start, start)]:
                rows, largest = found.get((*span, row["k"]), (0, 0))
                found[(*span, row["k"])] = rows + 1, max(largest, row["n"])
        columns = {
            PANE: pa.array([start for start, _, _ in found], pa.int64()),
            "k": pa.array([k for *_, k in found], pa.int64()),
            state_name(0, "count"): pa.array([rows for rows, _ in found.values()], pa.int64()),
            state_name(1, "value"): pa.array([largest for _, largest in found.values()], pa.int64()),
        }
        if self.direct:
            columns[LENGTH] = pa.array([end - start for start, end, _ in found], pa.int64())
        primitives = self.state.stores[0].key_set.primitives
        return describe_table(pa.table(columns), TableNote(ORIGIN, primitives, made_for=(ORIGIN,)))

    def restart(self) -> None:
        """Go on with what snapshots hold."""
        self.below.restart()
        state, tables = self.state.snapshot()
        fed, waiting = self.source.held()
        self.source._schema = None
        self.state, source = self.fresh()
        self.state.restore(json.loads(json.dumps(state)), tables)
        source._schema = cast(Any, SimpleNamespace(names=["window_start", "window_end", "k", "n"]))
        source.restore(json.loads(json.dumps(fed)), waiting)
        self.source = source

    def expected(self, position: int) -> dict[tuple[int, int, int], Value]:
        """Return the results over all rows that the query below had committed before a cut."""
        everything, self.below.rows = self.below.rows, self.below.rows[: self.marks.get(position, 0)]
        results, self.below.rows = self.below.expected(), everything
        found: dict[tuple[int, int, int], Value] = {}
        for (_, end, k), n in results.items():
            for span in spans_of(self.windows, end - 1):
                rows, largest = found.get((*span, k), (0, 0))
                found[(*span, k)] = rows + 1, max(largest, n)
        return found

    def latest(self) -> dict[tuple[int, int, int], Value]:
        return {(r["window_start"], r["window_end"], r["k"]): (r["rows"], r["most"]) for _, r in self.emitted}


def spans_of(windows: Iterable[WindowSpec], time: int) -> set[tuple[int, int]]:
    spans = set()
    for window in windows:
        start = window.last_start(time)
        while start + window.length > time:
            spans.add((start, start + window.length))
            start -= window.slide
    return spans


@settings(deadline=None)
@given(
    st.builds(query_of, WINDOWS, st.sampled_from([None, 1, 5]), st.sampled_from([0, UNIT, 3 * UNIT + 7])).filter(
        lambda query: query.updates
    ),
    st.lists(
        st.sampled_from([WindowSpec(8 * UNIT, 4 * UNIT, 0), WindowSpec(5 * UNIT, 5 * UNIT, UNIT)]),
        min_size=1,
        unique=True,
    ).map(tuple),
    st.booleans(),
    st.lists(
        st.tuples(
            st.lists(st.tuples(st.integers(0, 20 * UNIT), st.integers(0, 2)), max_size=5),
            st.integers(0, 3 * UNIT),
            st.integers(1, 4),
            st.sampled_from([0, 0, 1, 2, 100]),
            st.booleans(),
        ),
        max_size=12,
    ),
)
def test_each_result_is_that_of_a_batch_over_what_was_read(query, windows, direct, steps):
    """Count and maximum, the second of which cannot be subtracted; how much is read when does not matter."""
    chain, watermark, now = Chain(Machine(query), windows, direct), 0, 0
    for rows, progress, passed, most, restart in steps:
        chain.step_below(rows, watermark, now)
        watermark, now = watermark + progress, now + passed
        if most:
            before = len(chain.emitted)
            chain.step(most, now)
            assert_known(chain, before)
        if restart:
            chain.restart()
    for moment in (100 * UNIT, 200 * UNIT):
        chain.step_below([], moment, now := now + 1)
    for _ in range(2 * len(steps) + 6):
        before = len(chain.emitted)
        chain.step(1, now := now + 1)
        assert_known(chain, before)
    assert chain.latest() == chain.expected(chain.below.cut)
    assert chain.latest() or not chain.below.expected()


def assert_known(chain: Chain, before: int) -> None:
    """Check what the last step emitted, and what is left unsaid because it did not change."""
    for position, row in chain.emitted[before:]:
        wanted = chain.expected(position)[row["window_start"], row["window_end"], row["k"]]
        assert (row["rows"], row["most"]) == wanted
    if len(chain.emitted) > before:
        assert chain.latest() == chain.expected(chain.emitted[-1][0])


def tens_into_twenties() -> Chain:
    tens, twenties = (WindowSpec(length * UNIT, length * UNIT) for length in (10, 20))
    return Chain(Machine(query_of((tens,), 1, 0)), (twenties,), direct=False)


def test_early_results_that_are_not_known_are_not_shown_and_windows_close_all_the_same():
    chain = Chain(
        Machine(query_of((WindowSpec(10 * UNIT, 10 * UNIT),), 1, 0)), (WindowSpec(20 * UNIT, 20 * UNIT),), False
    )
    chain.step_below([(1, 0)], 0, 0)
    chain.step(9, 1)
    for moment in (2, 4):
        chain.step_below([(2, 0)], 0, moment)
        chain.step(9, moment + 1)
    assert [row["most"] for _, row in chain.emitted] == [1]
    chain.state.commit([], chain.state.offset, chain.state.watermark, EarlyPartials(failure="division by zero"))
    assert chain.state.next_early() is None
    chain.step(9, 7)
    assert len(chain.emitted) == 1
    chain.restart()
    chain.step(9, 8)
    assert len(chain.emitted) == 1
    chain.step_below([], 30 * UNIT, 9)
    chain.step(9, 10)
    chain.step(9, 11)
    assert [row["most"] for _, row in chain.emitted] == [1, 3]
    assert chain.emitted[-1][1]["revision"] == 1


def test_a_checkpoint_without_early_results_shows_none_until_there_are_some():
    chain = Chain(
        Machine(query_of((WindowSpec(10 * UNIT, 10 * UNIT),), 1, 0)), (WindowSpec(20 * UNIT, 20 * UNIT),), False
    )
    chain.step_below([(1, 0)], 0, 0)
    chain.step_below([(1, 0)], 0, 2)
    chain.step(9, 3)
    state, tables = chain.state.snapshot()
    del state["early"]
    chain.state.restore(state, tables)
    chain.step(9, 5)
    assert chain.emitted == []


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        ([1.0, np.nan], [1.0, np.nan], []),
        ([0.0, 1.0], [-0.0, 1.0], [3]),
        ([b"a", None], [b"a", b"c"], [5]),
        ([(1, 2), "x"], [(1, 2), "x"], []),
        ([np.array([1, 2]), "x"], [np.array([1, 2]), "x"], [3, 5]),
    ],
)
def test_what_changed_is_told_by_bits_and_in_doubt_it_did(before, after, changed):
    def part(ids: list[int], values: list[Any]) -> Partial:
        column = np.empty(len(values), object) if not isinstance(values[0], float) else np.array(values)
        column[:] = values
        return Partial(np.array(ids, np.int64), cast(Any, {"p": {"value": column}}))

    assert changed_ids(part([3, 5], before), part([3, 5], after)).tolist() == changed
    nothing = part([3, 5], before)
    nothing = Partial(nothing.ids[:0], {p: {n: c[:0] for n, c in s.items()} for p, s in nothing.states.items()})
    assert changed_ids(nothing, part([3, 5], after)).tolist() == [3, 5]
