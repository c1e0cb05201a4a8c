"""The first row of each key within a time, and unions: the same whatever the cuts, the crashes and the snapshots."""

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
from pyspark.sql import SparkSession

import transom as tm
from transom.api.app import App
from transom.errors import DefinitionError
from transom.sinks.inmemory import MemorySink

pytestmark = pytest.mark.usefixtures("compiled_once")

SCHEMA = "k string, x bigint, at timestamp"
WITHIN = 7 * SECOND
Row = tuple[Any, ...]


def define(app: App, sink: MemorySink, one: PiecewiseSource, other: PiecewiseSource) -> None:
    """The first rows of a union of two streams, one of which has a condition."""
    watermark = tm.watermark("3 seconds", max_ahead=None)
    left = app.stream(one, event_time="at", watermark=watermark, name="left")
    right = app.stream(other, event_time="at", watermark=watermark, name="right")
    both = left.union(right.where("x > 0"))
    both.group_by("k").window("10 seconds").agg(rows=tm.collect_list(text())).to(sink, "both")
    first = both.deduplicate("k", WITHIN)
    first.where("x < 8").group_by("k").window("10 seconds").agg(rows=tm.collect_list(text())).to(sink, "first")


def text() -> str:
    return "to_json(struct(k, x, unix_micros(at) as at))"


def first_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that stay: by time, then by value."""
    last: dict[Any, int] = {}
    found = []
    for row in sorted(rows, key=lambda row: (row[2], row[1])):
        if row[0] not in last or row[2] - last[row[0]] >= WITHIN:
            last[row[0]] = row[2]
            found.append(row)
    return found


def in_time(rows: Sequence[Row], cuts: Sequence[Any], length: int) -> list[Row]:
    """Return the rows whose window of a length was open."""
    seen = [(row, cut) for cut in cuts for row in rows[cut.start : cut.end]]
    return [row for row, cut in seen if row[2] // length * length + length > cut.watermark]


def read(bench: Bench, query: str) -> list[Row]:
    import json

    values = [json.loads(each) for *_, texts in bench.rows(query) for each in texts]
    return sorted(((row.get("k"), row["x"], row["at"]) for row in values), key=repr)


def check(bench: Bench, rows: Sequence[Sequence[Row]]) -> int:
    """Compare with what Python makes of the cuts that the log has; return how many rows stayed."""
    # The cuts of the union say in which order it took the rows of either side, and which watermark it had.
    cut_rows: dict[str, list[Row]] = {}
    union = bench.cuts_of("union1")
    parts = {1: bench.cuts_of("left"), 2: bench.cuts_of("right")}
    given = [kept_of(bench, number, cut, rows[number - 1]) for number, cut in commits(bench, parts)]
    items = [kept for kept in given if kept]
    both: list[Row] = []
    slices: list[Row] = []
    for cut in union:
        read_now = [row for kept in items[cut.start : cut.end] for row in kept]
        both += [row for row in read_now if row[2] // (10 * SECOND) * 10 * SECOND + 10 * SECOND > cut.watermark]
        slices += [row for row in read_now if row[2] // SECOND * SECOND + SECOND > cut.watermark]
    assert read(bench, "both") == sorted(both, key=repr)
    stay = first_rows(slices)
    assert read(bench, "first") == sorted((row for row in stay if row[1] < 8), key=repr)
    assert cut_rows == {}
    return len(stay)


def commits(bench: Bench, parts: dict[int, Any]) -> list[tuple[int, Any]]:
    """Return the cuts of both sides in the order in which they were committed."""
    names = {"left": 1, "right": 2}
    found = []
    for record in bench.history:
        if record["type"] == "commit" and record["stream"] in names:
            number = names[record["stream"]]
            cut = next(cut for cut in parts[number] if cut.number == record["number"])
            if (number, cut) not in found:
                found.append((number, cut))
    return found


def kept_of(bench: Bench, number: int, cut: Any, rows: Sequence[Row]) -> list[Row]:
    seen = rows[cut.start : cut.end]
    return [row for row in seen if number == 1 or (row[1] is not None and row[1] > 0)]


MOMENTS = st.integers(0, 60 * SECOND)
ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(-1, 9), MOMENTS), max_size=25)
CRASHES = st.one_of(st.none(), st.tuples(st.sampled_from(STEPS + SNAPSHOTS), st.integers(0, 5)))


@dataclass(frozen=True)
class Example:
    """Rows of both sides and the crash of each run; only the last one closes all windows."""

    runs: Sequence[tuple[Any, Any, tuple[str, int] | None]]
    pieces: Sequence[int]
    snapshots: bool


EXAMPLES = st.builds(
    Example,
    st.lists(st.tuples(ROWS, ROWS, CRASHES), min_size=1, max_size=3),
    st.lists(st.integers(3, 15), min_size=1, max_size=3),
    st.booleans(),
)


def run(spark: SparkSession, example: Example, directory: Path) -> int:
    sources = PiecewiseSource(SCHEMA, example.pieces), PiecewiseSource(SCHEMA, [5])

    def make(app: App, sink: MemorySink) -> None:
        if example.snapshots:
            app.settings = replace(app.settings, snapshot_bytes=1)
        define(app, sink, *sources)

    bench = Bench(spark, directory, make)
    rows: tuple[list[Any], list[Any]] = ([], [])
    for left, right, crash in example.runs:
        for source, held, added in zip(sources, rows, (left, right), strict=True):
            source.add(added)
            held += added
        bench.run(close_all=False, crash_at=crash)
    progress = bench.run()
    assert progress is not None
    assert [q.failure for q in progress.queries if q.failure] == []
    assert [*bench.checkpoint.glob("sources/*1/*/*/*.parquet"), *bench.checkpoint.glob("sources/first1/rows/*")] == []
    return check(bench, rows)


@few_examples(1)
@given(EXAMPLES)
def test_first_rows_do_not_depend_on_cuts(interpreted: SparkSession, example: Example) -> None:
    with tempfile.TemporaryDirectory() as directory:
        run(interpreted, example, Path(directory))


@pytest.mark.slow
@examples(30)
@given(EXAMPLES)
def test_first_rows_do_not_depend_on_cuts_at_length(interpreted: SparkSession, example: Example) -> None:
    with tempfile.TemporaryDirectory() as directory:
        run(interpreted, example, Path(directory))


@pytest.mark.slow
@pytest.mark.parametrize("snapshots", [False, True])
def test_killed_at_every_step(interpreted: SparkSession, tmp_path: Path, snapshots: bool) -> None:
    steps = STEPS + SNAPSHOTS if snapshots else STEPS

    def sample(late: int) -> list[Row]:
        keys = ["a", "b", "c", None]
        return [(keys[i % 4], i % 10, i * SECOND - (late * SECOND if i % 9 == 8 else 0)) for i in range(len(steps) * 8)]

    rows = sample(15), sample(4)
    runs = [(*(side[i * 8 : i * 8 + 8] for side in rows), (step, 2 + i % 2)) for i, step in enumerate(steps)]
    assert run(interpreted, Example(runs, [6], snapshots), tmp_path) > 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("z", "1 hour"), "deduplicate: there is no column 'z'.*k, x, at, m"),
        (([], "1 hour"), r"deduplicate: \[\] names no columns"),
        (("k", "0 seconds"), "within is '0 seconds'"),
        (("k", "often"), "deduplicate within: 'often' is not a duration"),
        (("k", "1 hour"), "deduplicate 'first1': .*map"),
    ],
)
def test_what_has_no_first_row(spark: SparkSession, tmp_path: Path, arguments: Any, message: str) -> None:
    app = App(spark, tmp_path / "checkpoint")
    rows = app.stream(PiecewiseSource(f"{SCHEMA}, m map<string, int>"), event_time="at", name="rows")

    def plan() -> None:
        rows.deduplicate(*arguments).window("10 seconds").agg(n=tm.count()).to(MemorySink(), "q")
        app.explain()

    with pytest.raises(DefinitionError, match=message):
        plan()


def test_a_union_of_other_columns(spark: SparkSession, tmp_path: Path) -> None:
    app = App(spark, tmp_path / "checkpoint")
    one = app.stream(PiecewiseSource(SCHEMA), event_time="at")
    other = app.stream(PiecewiseSource("k string, y bigint, at timestamp"), event_time="at")
    with pytest.raises(DefinitionError, match="union: no other stream"):
        one.union()
    one.union(other).window("10 seconds").agg(n=tm.count()).to(MemorySink(), "q")
    with pytest.raises(DefinitionError, match=r"union 'union1': .*Give both sides the same columns"):
        app.explain()


def test_explain_shows_what_is_first_of_what(spark: SparkSession, tmp_path: Path) -> None:
    app = App(spark, tmp_path / "checkpoint")
    define(app, MemorySink(), PiecewiseSource(SCHEMA), PiecewiseSource(SCHEMA))
    explained = app.explain()
    streams = {operator["name"]: operator["stream"] for operator in explained.graph["operators"]}
    flows = {(streams[edge["from"]], streams[edge["to"]]) for edge in explained.graph["edges"]}
    assert {pair for pair in flows if len(set(pair)) > 1} == {
        ("left", "union1"),
        ("right", "union1"),
        ("union1", "first1"),
    }
    sources = {stream["name"]: stream["source"] for stream in explained.streams}
    assert sources["union1"] == "union of left and right"
    assert sources["first1"] == "first row of each k of union1 within 7 seconds"
