"""Queries over the results of queries: each level equals plain Spark batch over the level below."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from exact_helpers import SECOND, SNAPSHOTS, STEPS, Bench, PiecewiseSource, examples, few_examples
from hypothesis import given
from hypothesis import strategies as st
from levels import LEVELS, SCHEMA, Level, check, define, seconds
from oracle import logged_rows
from pyspark.sql import SparkSession

from transom.api.app import App
from transom.model.window import WindowSpec
from transom.sinks.inmemory import MemorySink

pytestmark = pytest.mark.usefixtures("compiled_once")

MOMENTS = st.integers(0, 40 * SECOND)
ROWS = st.tuples(
    st.sampled_from(["u", "v", None]), st.sampled_from(["a", "b"]), st.one_of(st.none(), st.integers(-9, 9)), MOMENTS
)


@st.composite
def window_specs(draw: st.DrawFn) -> WindowSpec:
    length = draw(st.sampled_from([1, 2, 3, 7, 10]))
    return seconds(length, draw(st.sampled_from([length, max(1, length // 2)])), draw(st.sampled_from([0, 0, 1])))


@st.composite
def level_sets(draw: st.DrawFn) -> Mapping[str, Level]:
    levels: dict[str, Level] = {}
    columns = ("user", "area")
    for i in range(draw(st.integers(2, 5))):
        parent = None if not i else draw(st.sampled_from([None, *levels, *levels]))
        names = columns if parent is None else levels[parent].keys
        levels[f"q{i}"] = Level(
            parent,
            tuple(name for name in names if draw(st.booleans())),
            tuple(draw(st.lists(window_specs(), min_size=1, max_size=2, unique=True))),
            parent is not None and draw(st.booleans()),
            early=draw(st.sampled_from([False, False, True])),
            lateness=draw(st.sampled_from([0, 0, 1, 5])),
        )
    for name, level in levels.items():  # what is final does not depend on it
        parent = None if level.parent is None else levels[level.parent]
        if level.early and not level.mapped and parent is not None and (parent.early or parent.lateness):
            levels[name] = replace(level, reads_early=draw(st.booleans()))
    read = {level.parent for level in levels.values()}
    return {name: replace(level, sink=name not in read or draw(st.booleans())) for name, level in levels.items()}


@dataclass(frozen=True)
class Example:
    """Rows and crash of each run; only the last one closes all windows."""

    levels: Mapping[str, Level]
    runs: Sequence[tuple[Sequence[tuple[Any, ...]], tuple[str, int] | None]]
    pieces: Sequence[int]
    snapshots: bool


EXAMPLES = st.builds(
    Example,
    level_sets(),
    st.lists(
        st.tuples(
            st.lists(ROWS, min_size=3, max_size=30),
            st.one_of(st.none(), st.tuples(st.sampled_from(STEPS + SNAPSHOTS), st.integers(0, 5))),
        ),
        min_size=1,
        max_size=3,
    ),
    st.lists(st.integers(3, 15), min_size=1, max_size=3),
    st.booleans(),
)


def run(spark: SparkSession, example: Example) -> None:
    source = PiecewiseSource(SCHEMA, example.pieces)

    def make(app: App, sink: MemorySink) -> None:
        if example.snapshots:
            app.settings = replace(app.settings, snapshot_bytes=1)
        define(app, sink, source, example.levels)

    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(spark, Path(directory), make)
        rows: list[tuple[Any, ...]] = []
        for added, crash in example.runs:
            source.add(added)
            rows += added
            bench.run(close_all=False, crash_at=crash)
        progress = bench.run()
        assert progress is not None
        assert [q.late_rows for q in progress.queries if q.stream != "stream1" and q.late_rows] == []
        check(spark, bench, logged_rows(source._from_python(rows), bench.cuts_of()), example.levels)


@few_examples(2)
@given(EXAMPLES)
def test_each_level_equals_plain_spark_batch_over_the_level_below(interpreted: SparkSession, example: Example) -> None:
    run(interpreted, example)


@pytest.mark.slow
@examples(30)
@given(EXAMPLES)
def test_each_level_equals_plain_spark_batch_at_length(interpreted: SparkSession, example: Example) -> None:
    run(interpreted, example)


def sample_rows(count: int = 60) -> list[tuple[Any, ...]]:
    """Rows in disorder, some of them late for the first level."""
    return [
        ("uv"[i % 2], "ab"[i // 2 % 2], i, (i * 700_000 - (8 * SECOND if i % 11 == 10 else 0))) for i in range(count)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("snapshots", [False, True])
def test_killed_at_every_step(interpreted: SparkSession, tmp_path: Path, snapshots: bool) -> None:
    """One checkpoint is killed at each step in turn, in runs that always find a little more to do."""
    steps = STEPS + SNAPSHOTS if snapshots else STEPS
    levels = {name: LEVELS[name] for name in ("fine", "middle", "sibling", "day")} if snapshots else LEVELS
    source = PiecewiseSource(SCHEMA, [4])
    rows = sample_rows(len(steps) * 8)

    def make(app: App, sink: MemorySink) -> None:
        app.settings = replace(app.settings, snapshot_bytes=1 if snapshots else 1 << 20)
        define(app, sink, source, levels)

    bench = Bench(interpreted, tmp_path, make)
    killed = 0
    for number, step in enumerate(steps):
        source.add(rows[number * 8 : number * 8 + 8])
        killed += bench.run(close_all=False, crash_at=(step, 2)) is None
    in_files = bench.settings.get("tier") == "cluster"  # no partials are written then
    assert killed >= len(steps) - 1 - in_files
    progress = bench.run()
    assert progress is not None
    check(interpreted, bench, logged_rows(source._from_python(rows), bench.cuts_of()), levels)
