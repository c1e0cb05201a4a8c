"""Queries that come, rest and go while the application runs: each window that they emit equals plain Spark batch."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from changes import AGGREGATES, SCHEMA, WINDOWS, Changing, Drawn
from exact_helpers import SECOND, PiecewiseSource, examples, few_examples
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("compiled_once")

ROWS = st.tuples(
    st.sampled_from(["p", "q", None]),
    st.integers(0, 2),
    st.integers(-9, 9),
    st.integers(-40, 40).map(lambda i: i / 8),
    st.integers(0, 60 * 4).map(lambda i: i * SECOND // 4),
)
QUERIES = st.builds(
    Drawn,
    st.sampled_from([("a",), ("a",), ("a", "b"), ()]),
    st.lists(st.sampled_from(WINDOWS), min_size=1, max_size=2, unique=True).map(tuple),
    st.lists(st.sampled_from(sorted(AGGREGATES)), min_size=1, max_size=3, unique=True).map(tuple),
    st.sampled_from([False, False, False, True]),
)
STEPS = ["cut logged", "windows closed", "job done", "committed", "delivered", "change logged", "change logged"]


@dataclass(frozen=True)
class Run:
    """One life of the application."""

    rows: tuple[tuple[Any, ...], ...]
    acts: tuple[tuple[int, str, int], ...]
    """At which commit, what, and with which query."""
    crash_at: tuple[str, int] | None
    keeps_removed: bool
    """Whether the job of the next run still has what was removed."""


RUNS = st.builds(
    Run,
    st.lists(ROWS, min_size=15, max_size=50).map(lambda rows: tuple(sorted(rows, key=lambda r: r[4]))),
    st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from(["add", "add", "pause", "resume", "remove"]), st.integers(0, 4)),
        min_size=1,
        max_size=6,
    ).map(tuple),
    st.one_of(st.none(), st.tuples(st.sampled_from(STEPS), st.integers(0, 2))),
    st.booleans(),
)


@dataclass(frozen=True)
class Example:
    """What Hypothesis draws."""

    queries: tuple[Drawn, ...]
    runs: tuple[Run, ...]
    pieces: tuple[int, ...]
    delay: int


EXAMPLES = st.builds(
    Example,
    st.lists(QUERIES, min_size=5, max_size=5).map(tuple),
    st.lists(RUNS, min_size=1, max_size=3).map(tuple),
    st.lists(st.integers(6, 20), min_size=1, max_size=3).map(tuple),
    st.sampled_from([0, 3 * SECOND]),
)


def check(spark: SparkSession, example: Example) -> None:
    source = PiecewiseSource(SCHEMA, example.pieces)
    with tempfile.TemporaryDirectory() as directory:
        changing = Changing(spark, Path(directory), source, example.queries, example.delay)
        rows: list[tuple[Any, ...]] = []
        for number, run in enumerate(example.runs):
            added = [(*row[:4], row[4] + number * 20 * SECOND) for row in run.rows]
            source.add(added)
            rows += added
            changing.run(run.acts, run.crash_at, run.keeps_removed, close_all=False)
        changing.run()
        changing.check(spark, rows)


@few_examples(3)
@given(EXAMPLES)
def test_random_changes(interpreted: SparkSession, example: Example) -> None:
    check(interpreted, example)


@pytest.mark.slow
@examples(30)
@given(EXAMPLES)
def test_random_changes_at_length(interpreted: SparkSession, example: Example) -> None:
    check(interpreted, example)
