"""Joins of two streams: the rows of each window are those of a Spark batch join of what was in time for it."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from exact_helpers import SECOND, SNAPSHOTS, STEPS, Bench, PiecewiseSource, examples, few_examples
from hypothesis import given
from hypothesis import strategies as st
from joined import LEFT, RIGHT, Join, check, define
from pyspark.sql import SparkSession

import transom as tm
from transom.api.app import App
from transom.sinks.inmemory import MemorySink

pytestmark = pytest.mark.usefixtures("compiled_once")

MOMENTS = st.integers(0, 60 * SECOND)
KEYS = st.sampled_from(["a", "b", "c", None])
ROWS = st.lists(st.tuples(KEYS, st.integers(-3, 9), MOMENTS), max_size=20)
WINDOWS = st.sampled_from(
    [tm.tumbling("10 seconds"), tm.sliding("10 seconds", "4 seconds"), tm.tumbling("7 seconds", offset="2 seconds")]
)
KINDS = ["inner", "left", "right", "full", "left_semi", "left_anti"]
IN_WINDOWS = st.builds(
    Join,
    st.one_of(WINDOWS, st.just(tm.calendar("day", zone="Asia/Kolkata"))),
    st.sampled_from(KINDS),
    st.sampled_from([False, False, True]),
    time=st.sampled_from([None, "left"]),
)
BOUNDS = st.lists(st.integers(-15 * SECOND, 15 * SECOND), min_size=2, max_size=2).map(sorted).map(tuple)
NEAR = st.builds(
    Join,
    st.none(),
    st.sampled_from(KINDS),
    st.sampled_from([False, False, True]),
    BOUNDS,
    st.sampled_from([None, "left"]),
)


@dataclass(frozen=True)
class Example:
    """Rows of both sides and the crash of each run; only the last one closes all windows."""

    join: Join
    runs: Sequence[tuple[Any, Any, tuple[str, int] | None]]
    pieces: Sequence[int]
    snapshots: bool


CRASHES = st.one_of(st.none(), st.tuples(st.sampled_from(STEPS + SNAPSHOTS), st.integers(0, 5)))


def examples_of(joins: st.SearchStrategy[Join]) -> st.SearchStrategy[Example]:
    runs = st.lists(st.tuples(ROWS, ROWS, CRASHES), min_size=1, max_size=3)
    return st.builds(Example, joins, runs, st.lists(st.integers(3, 15), min_size=1, max_size=3), st.booleans())


def run(spark: SparkSession, example: Example) -> None:
    sources = PiecewiseSource(LEFT, example.pieces), PiecewiseSource(RIGHT, [5])

    def make(app: App, sink: MemorySink) -> None:
        if example.snapshots:
            app.settings = replace(app.settings, snapshot_bytes=1)
        define(app, sink, *sources, example.join)

    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(spark, Path(directory), make)
        rows: tuple[list[Any], list[Any]] = ([], [])
        for left, right, crash in example.runs:
            for source, held, added in zip(sources, rows, (left, right), strict=True):
                source.add(added)
                held += added
            bench.run(close_all=False, crash_at=crash)
        progress = bench.run()
        assert progress is not None
        assert [q.failure for q in progress.queries if q.failure] == []
        assert [q.late_rows for q in progress.queries if q.stream not in ("left", "right") and q.late_rows] == []
        check(spark, bench, example.join, sources, rows)
        if example.join.between is None:  # else a later row of the other side might need the last ones
            assert list(bench.checkpoint.glob("sources/join1/*/*")) == []


@few_examples(2)
@given(examples_of(IN_WINDOWS))
def test_each_window_equals_a_batch_join(interpreted: SparkSession, example: Example) -> None:
    run(interpreted, example)


@few_examples(1)
@given(examples_of(NEAR))
def test_rows_near_each_other_equal_a_batch_join(interpreted: SparkSession, example: Example) -> None:
    run(interpreted, example)


@pytest.mark.slow
@examples(30)
@given(examples_of(st.one_of(NEAR, IN_WINDOWS)))
def test_rows_equal_a_batch_join_at_length(interpreted: SparkSession, example: Example) -> None:
    run(interpreted, example)


def sample(count: int, step: int, late: int) -> list[tuple[Any, ...]]:
    """Rows over some windows, some of them late."""
    return [
        (["a", "b", "c", None][i % 4], i % 10 - 1, i * step * SECOND // 10 - (late * SECOND if i % 9 == 8 else 0))
        for i in range(count)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("snapshots", [False, True])
@pytest.mark.parametrize(
    "join",
    [
        Join(tm.sliding("6 seconds", "3 seconds"), "left"),
        Join(None, "full", between=(-2 * SECOND, 5 * SECOND), time="right"),
    ],
    ids=["window", "between"],
)
def test_killed_at_every_step(interpreted: SparkSession, tmp_path: Path, snapshots: bool, join: Join) -> None:
    """One checkpoint is killed at each step in turn, in runs that always find a little more to do."""
    steps = STEPS + SNAPSHOTS if snapshots else STEPS
    sources = PiecewiseSource(LEFT, [6]), PiecewiseSource(RIGHT, [5])
    rows = sample(len(steps) * 8, 10, 15), sample(len(steps) * 8, 10, 4)

    def make(app: App, sink: MemorySink) -> None:
        app.settings = replace(app.settings, snapshot_bytes=1 if snapshots else 1 << 20)
        define(app, sink, *sources, join)

    bench = Bench(interpreted, tmp_path, make)
    killed = 0
    for number, step in enumerate(steps):
        for source, added in zip(sources, rows, strict=True):
            source.add(added[number * 8 : number * 8 + 8])
        killed += bench.run(close_all=False, crash_at=(step, 2 + number % 2)) is None
    assert killed >= len(steps) - 1
    progress = bench.run()
    assert progress is not None
    assert {q.name: q.late_rows > 0 for q in progress.queries} | {"join1.left": True} == {
        **dict.fromkeys(["join1.right", "rows", "totals", "chained"], False),
        "join1.left": True,
    }
    assert check(interpreted, bench, join, sources, rows) > 50
    if join.between is None:
        assert list(bench.checkpoint.glob("sources/join1/*/*")) == []
