"""What is filled in against the sentence that says it, one key after the other, in any batches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import transom as tm
from transom.model.expression import Expression
from transom.model.time import MAX_TIME, MIN_TIME
from transom.model.window import WindowKind
from transom.windows.filling import Filling
from transom.windows.panes import windows_between
from transom.windows.query import WINDOW_END, WINDOW_START, Fill, Key, WindowedQuery

MINUTE = 60_000_000
STAMP = pa.timestamp("us", "UTC")
KINDS = [tm.tumbling("1 minute"), tm.sliding("3 minutes", every="1 minute"), tm.tumbling("2 minutes")]
KEYS = {"k": pa.string(), "l": pa.int32()}
Span = tuple[int, int]
Rows = dict[Span, dict[Any, int]]
"""Results by window and keys."""


def query_of(windows: list[WindowKind], fill: Fill, keys: int) -> WindowedQuery:
    names = tuple(Key(name, Expression(name)) for name in list(KEYS)[:keys])
    return WindowedQuery("q", 0, names, tuple(windows), (("n", tm.count()),), fill=fill)


def table_of(results: Rows, spans: list[Span], keys: int) -> pa.Table:
    rows = [(span, key, value) for span in spans for key, value in results.get(span, {}).items()]
    columns = {
        WINDOW_START: pa.array([span[0] for span, _, _ in rows], pa.int64()).cast(STAMP),
        WINDOW_END: pa.array([span[1] for span, _, _ in rows], pa.int64()).cast(STAMP),
    }
    for place, (name, kind) in enumerate(list(KEYS.items())[:keys]):
        columns[name] = pa.array([key[place] for _, key, _ in rows], kind)
    return pa.table({**columns, "n": pa.array([value for _, _, value in rows], pa.int64())})


def wanted(results: Rows, every: list[Span], fill: Fill) -> list[tuple[Any, ...]]:
    """Take window after window: a key without rows in it gets what it had in its last one, if that is not too old."""
    found: list[tuple[Any, ...]] = []
    last: dict[Any, tuple[int, int]] = {}
    for span in every:
        mine = results.get(span, {})
        last |= {key: (span[1], value) for key, value in mine.items()}
        for key, (end, value) in last.items():
            if fill.for_at_most is None or span[1] <= end + fill.for_at_most:
                found.append((*span, *key, 0 if fill.zero and key not in mine else value))
    return sorted(found, key=repr)


@st.composite
def jobs(draw: st.DrawFn) -> tuple[WindowedQuery, Rows, list[Span], list[int]]:
    zero = draw(st.booleans())
    windows = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3 if zero else 1, unique=True))
    most = draw(st.sampled_from([MINUTE * 3, MINUTE * 7] + [None] * zero))
    keys = draw(st.integers(0, 2))
    last = draw(st.integers(3, 25))
    rows = draw(st.lists(st.tuples(st.integers(0, last * 2), st.sampled_from(["a", None, "b"]), st.integers(0, 1))))
    every = sorted(
        {span for kind in windows for span in windows_between(kind, -5 * MINUTE, last * MINUTE)},
        key=lambda span: (span[1], span[0]),
    )
    results: Rows = {}
    for start, end in every:
        for time, *key in rows:
            if start <= time * MINUTE / 2 < end:
                of = results.setdefault((start, end), {})
                of[tuple(key[:keys])] = of.get(tuple(key[:keys]), 0) + 1
    marks = draw(st.lists(st.integers(-5, last), max_size=6))
    return query_of(windows, Fill(zero, most), keys), results, every, sorted({*marks, last})


@given(jobs(), st.booleans())
def test_keys_go_on_whatever_the_batches(
    job: tuple[WindowedQuery, Rows, list[Span], list[int]], restarts: bool
) -> None:
    query, results, every, marks = job
    assert query.fill is not None
    filling, found, closed, taken = Filling(query, query.fill), [], MIN_TIME, MIN_TIME
    for mark in marks:
        until = mark * MINUTE
        held = [span for span in every if closed < span[1] <= until and span in results]
        spans = filling.due(held, closed, until)
        if spans:
            taken = until
            zeros = pa.table({"n": pa.array([0], pa.int64())})
            table = filling.take(table_of(results, spans, len(query.keys)), spans, until, zeros)
            assert table.schema == table_of({}, [], len(query.keys)).schema
            ends = table.column(WINDOW_END).to_pylist()
            assert ends == sorted(ends)
            moments = [table.column(name).cast(pa.int64()).to_pylist() for name in (WINDOW_START, WINDOW_END)]
            found += zip(*moments, *(column.to_pylist() for column in table.columns[2:]), strict=True)
        closed = until
        if restarts:
            held_table = filling.snapshot()
            filling = Filling(query, query.fill)
            filling.restore(held_table, None, closed)
    assert sorted(found, key=repr) == wanted(results, every, query.fill)
    if query.fill.for_at_most is not None:  # keys are forgotten when windows are emitted
        assert all(
            end + query.fill.for_at_most > taken
            for end in filling.snapshot().column(WINDOW_END).cast(pa.int64()).to_pylist()
        )


def test_nothing_is_emitted_long_after_the_last_rows() -> None:
    """A watermark that leaps a year asks for the windows of an hour only."""
    query = query_of([KINDS[0]], Fill(zero=False, for_at_most=60 * MINUTE), 1)
    filling = Filling(query, query.fill or Fill(zero=True))
    year = 365 * 1_440 * MINUTE
    spans = filling.due([(0, MINUTE)], MIN_TIME, year)
    assert spans == [(n * MINUTE, (n + 1) * MINUTE) for n in range(61)]
    results: Rows = {(0, MINUTE): {("a",): 4}}
    table = filling.take(table_of(results, spans, 1), spans, year, pa.table({}))
    assert table.column("n").to_pylist() == [4] * 61
    assert filling.snapshot().num_rows == 0
    assert filling.due([], year, 2 * year) == []
    assert filling.due([], year, MAX_TIME) == []


def test_keys_of_older_states_are_filled_in() -> None:
    query = query_of([KINDS[0]], Fill(zero=True), 1)
    filling = Filling(query, query.fill or Fill(zero=True))
    filling.restore(None, pa.table({"k": ["a", "b"], "more": [1, 2]}), 3 * MINUTE)
    spans = filling.due([], 3 * MINUTE, 5 * MINUTE)
    table = filling.take(table_of({}, spans, 1), spans, 5 * MINUTE, pa.table({"n": pa.array([0], pa.int64())}))
    assert list(zip(table.column("k").to_pylist(), table.column("n").to_pylist(), strict=True)) == [
        *(("a", 0), ("b", 0)),
        *(("a", 0), ("b", 0)),
    ]
