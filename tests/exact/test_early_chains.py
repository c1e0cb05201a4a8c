"""Early results over early results in whole applications: each is that of a batch over what was read by then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from exact_helpers import NOON, SECOND, SNAPSHOTS, STEPS, Bench, PiecewiseSource, examples
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import transom as tm
from transom.api.app import App
from transom.sinks.inmemory import MemorySink

pytestmark = pytest.mark.usefixtures("compiled_once")

START = NOON - NOON % (60 * SECOND)
TEN, MINUTE = 10 * SECOND, 60 * SECOND
Values = Mapping[tuple[int, Any], tuple[Any, ...]]
"""Results by start of the minute and key."""


def at(second: float) -> int:
    return START + int(second * SECOND)


def minutes_of(rows: Any, **timing: str) -> Any:
    """Return a query of aggregates of which only the first could be subtracted."""
    grouped = rows.group_by("k").window("1 minute", **timing)
    return grouped.agg(n=tm.sum("n"), top=tm.max("top"), tens=tm.count(), kinds=tm.collect_set("n"), last=tm.last("n"))


def bench_of(spark: SparkSession, directory: Path, source: PiecewiseSource, lateness: str = "0 seconds") -> Bench:
    def define(app: App, sink: MemorySink) -> None:
        stream = app.stream(source, event_time="at", watermark=tm.watermark(0, max_ahead=None))
        tens = stream.group_by("k").window("10 seconds", early="1 us", lateness=lateness)
        tens = tens.agg(n=tm.count(), top=tm.max("x"))
        minutes_of(tens.results("tens", early=True), early="1 us").to(sink, "live")
        minutes_of(tens.results()).to(sink, "final")

    return Bench(spark, directory, define)


def run(bench: Bench, **options: Any) -> None:
    """Let a millisecond pass with each commit, so that early results are always due."""
    bench.run(on_step=lambda step: bench.clock.advance(1_000) if step == "committed" else None, **options)


@dataclass(frozen=True)
class Read:
    """A row with the watermark that was in force when it was read."""

    k: Any
    x: int
    at: int
    watermark: int


def batch(rows: Sequence[Read], lateness: int) -> Values:
    """Return what a batch job makes of some rows."""
    tens: dict[tuple[int, Any], tuple[int, int]] = {}
    for row in rows:
        start = row.at - row.at % TEN
        if start + TEN + lateness > row.watermark:
            n, top = tens.get((start, row.k), (0, row.x))
            tens[start, row.k] = n + 1, max(top, row.x)
    found: dict[tuple[int, Any], tuple[Any, ...]] = {}
    for (start, k), (n, top) in sorted(tens.items(), key=lambda item: item[0][0]):
        minute = start - start % MINUTE
        total, most, count, kinds, _ = found.get((minute, k), (0, top, 0, frozenset(), None))
        found[minute, k] = total + n, max(most, top), count + 1, kinds | {n}, n
    return found


def values_of(table: pa.Table) -> Values:
    return {
        (int(row["window_start"].timestamp()) * SECOND, row["k"]): (
            row["n"],
            row["top"],
            row["tens"],
            frozenset(row["kinds"]),
            row["last"],
        )
        for row in table.to_pylist()
    }


def check(bench: Bench, rows: Sequence[tuple[Any, ...]], lateness: int = 0) -> int:
    """Compare each result with that of a batch over the rows that had been read; return how many came early."""
    read = [
        Read(*row, cut.watermark) for cut in bench.cuts_of() for row in rows[cut.start : cut.end] if cut.end > cut.start
    ]
    upper = {cut.number: cut for cut in bench.cuts_of("tens.early")}
    lower = {cut.number: cut for cut in bench.cuts_of()}
    known: dict[tuple[int, Any], tuple[Any, ...]] = {}
    early = 0
    for (query, number), table in bench.sink.tables.items():
        if query == "live":
            position = upper[number].start  # what the upper cuts before it have read
            wanted = batch(read[: lower[position].start] if position else [], lateness)
            known |= values_of(table)
            assert known == wanted, f"in cut {number}, which has read what cut {position} of the rows gave"
            early += sum(start + MINUTE > upper[number].watermark for start, _ in values_of(table))
    assert known == batch(read, lateness)
    final, latest = bench.sink.to_table("final"), bench.sink.latest("live")
    assert final is not None
    assert latest is not None
    assert values_of(final) == values_of(latest) == known
    return early


def test_each_early_result_is_that_of_a_batch_over_what_was_read(spark: SparkSession, tmp_path: Path) -> None:
    """Killed once on the way; a row is late for its ten seconds."""
    rows = [("ab"[i % 2], i * 7 % 10, at(i * 4 % 70 if i != 12 else 3)) for i in range(18)]
    source = PiecewiseSource("k string, x int, at timestamp", (4,))
    source.add(rows)
    bench = bench_of(spark, tmp_path, source)
    run(bench, close_all=False, crash_at=("committed", 7))
    run(bench)
    assert check(bench, rows) > 0


ROWS = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), st.integers(-5, 5), st.integers(0, 130).map(at)),
    min_size=4,
    max_size=20,
)


@pytest.mark.slow
@examples(12)
@given(
    st.lists(
        st.tuples(ROWS, st.one_of(st.none(), st.tuples(st.sampled_from(STEPS + SNAPSHOTS), st.integers(0, 8)))),
        min_size=1,
        max_size=3,
    ),
    st.integers(2, 9),
    st.sampled_from([0, 5, 20]),
)
def test_each_early_result_at_length(
    interpreted: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    runs: Sequence[tuple[Sequence[tuple[Any, ...]], tuple[str, int] | None]],
    piece: int,
    lateness: int,
) -> None:
    source = PiecewiseSource("k string, x int, at timestamp", (piece,))
    bench = bench_of(interpreted, tmp_path_factory.mktemp("early"), source, f"{lateness} seconds")
    rows: list[tuple[Any, ...]] = []
    for some, crash in runs:
        source.add(some)
        rows += some
        run(bench, close_all=False, crash_at=crash)
    run(bench)
    check(bench, rows, lateness * SECOND)


def test_a_value_that_cannot_be_computed_yet_ends_no_query(spark: SparkSession, tmp_path: Path) -> None:
    source = PiecewiseSource("k string, x int, at timestamp", (1,))
    rows = [("a", 1, at(1)), ("a", 1, at(2)), ("a", 1, at(11)), ("a", 1, at(12)), ("a", 1, at(70)), ("a", 1, at(71))]
    source.add(rows)

    def define(app: App, sink: MemorySink) -> None:
        stream = app.stream(source, event_time="at", watermark="0 seconds")
        tens = stream.group_by("k").window("10 seconds", early="1 us").agg(n=tm.count())
        minutes = tens.results("tens", early=True).window("1 minute", early="1 us")
        minutes.agg(whole=tm.sum("10 / (n - 1)")).to(sink, "live")

    bench = Bench(spark, tmp_path, define)
    progress = bench.run(on_step=lambda step: bench.clock.advance(1_000) if step == "committed" else None)
    assert progress is not None
    reasons = [record["early"]["failure"] for record in bench.history if record.get("early")]
    assert any("zero" in reason.lower() for reason in reasons if reason)
    assert None in reasons
    assert [query.failure for query in progress.queries] == [None, None]
    latest = bench.sink.latest("live")
    assert latest is not None
    assert latest.column("whole").to_pylist() == [20.0, 10.0]
