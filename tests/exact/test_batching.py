"""Micro-batches decide nothing: rows that are never behind the watermark give the same results however they are cut."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from exact_helpers import SECOND, Bench, PiecewiseSource
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from test_session_windows import by_spark

import transom as tm
from transom.api.app import App
from transom.sinks.inmemory import MemorySink

SCHEMA = "k string, j int, x int, at timestamp"
QUERIES = ("sessions", "mixed", "fixed", "of_sessions", "busy", "joined")


def drawn(draw: random.Random, count: int) -> list[tuple[Any, ...]]:
    """Rows on whole seconds and somewhat out of order, so that many lie a gap apart or at the watermark."""
    now, rows = 0, []
    for _ in range(count):
        now += draw.choice([0, 1, 1, 2, 5])
        rows.append((draw.choice("ab"), draw.randrange(2), draw.randrange(9), (now - draw.randrange(4)) * SECOND))
    return rows


def least_delay(rows: Sequence[tuple[Any, ...]]) -> int:
    """Return the least delay with which no row is behind the watermark if each row is a cut; some rows are at it."""
    newest, delay = rows[0][-1], 0
    for row in rows:
        newest = max(newest, row[-1])
        delay = max(delay, newest - row[-1])
    return delay


def played(
    spark: SparkSession, directory: Path, rows: Sequence[tuple[Any, ...]], pieces: Sequence[int], **settings: Any
) -> dict[str, Any]:
    source, other = PiecewiseSource(SCHEMA, pieces), PiecewiseSource(SCHEMA, (*pieces[::-1], 6))
    watermark = tm.watermark(least_delay(rows), max_ahead=None)
    for each in (source, other):
        each.add(rows)

    def define(app: App, sink: MemorySink) -> None:
        stream = app.stream(source, event_time="at", watermark=watermark)
        right = app.stream(other, event_time="at", watermark=watermark).where("j = 1")
        grouped, n = stream.group_by("k"), {"n": tm.count(), "s": tm.sum("x")}
        sessions = grouped.window(tm.session_window("5 seconds")).agg(**n)
        sessions.to(sink, "sessions")
        grouped.window(tm.session_window("3 seconds"), "5 seconds", "8 seconds").agg(**n).to(sink, "mixed")
        fixed = grouped.window(tm.sliding("6 seconds", every="2 seconds")).agg(**n)
        fixed.to(sink, "fixed")
        sessions.results().group_by("k").window("10 seconds").agg(m=tm.sum("n"), c=tm.count()).to(sink, "of_sessions")
        fixed.results().group_by("k").window(tm.session_window("2 seconds")).agg(m=tm.sum("n")).to(sink, "busy")
        joined = app.join(stream, right.map(renamed), on=["k"], window=tm.tumbling("4 seconds"))
        joined.group_by("k").window(tm.session_window("4 seconds")).agg(n=tm.count()).to(sink, "joined")

    bench = Bench(spark, directory, define, **settings)
    progress = bench.run()
    assert progress is not None
    assert [query.late_rows for query in progress.queries] == [0] * len(progress.queries)
    for name in QUERIES:
        windows = [row[:3] for row in bench.rows(name)]
        assert len(set(windows)) == len(windows), f"{name}: a window came twice"
    return {name: bench.rows(name) for name in QUERIES}


WHOLE: dict[int, dict[str, Any]] = {}
"""Results of each seed's rows."""


def in_one_cut(spark: SparkSession, seed: int, rows: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """Return the results of all rows in one cut, found once; the sessions are those of a batch job."""
    if seed not in WHOLE:
        with tempfile.TemporaryDirectory() as directory:
            found = played(spark, Path(directory), rows, (len(rows),))
        values = {"n": F.count("*"), "s": F.sum("x")}
        sessions = by_spark(spark, PiecewiseSource(SCHEMA), rows, 5 * SECOND, ["k"], **values)
        assert found["sessions"] == sorted(sessions, key=repr)
        WHOLE[seed] = found
    return WHOLE[seed]


def renamed(df: Any) -> Any:
    return df.select("k", F.col("x").alias("y"), "_event_micros")


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_once")
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="driver"),
        pytest.param({"tier": "cluster", "key_groups": 2}, id="cluster"),
    ],
)
@pytest.mark.parametrize("seed", range(8))
def test_results_do_not_depend_on_how_rows_are_cut(
    interpreted: SparkSession, tmp_path: Path, seed: int, settings: dict[str, Any]
) -> None:
    draw = random.Random(seed)
    rows = drawn(draw, 24)
    whole = in_one_cut(interpreted, seed, rows)
    cut = [draw.choice([1, 2, 5]) for _ in range(9)]
    assert played(interpreted, tmp_path / "cut", rows, cut, **settings) == whole
