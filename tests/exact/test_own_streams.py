"""Streams that read one source, each at its own pace: results are those of one stream, also after a crash."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from exact_helpers import NOON, SECOND, Bench, PiecewiseSource
from pyspark.sql import SparkSession

import transom as tm
from transom.api.app import App
from transom.model.time import ManualClock
from transom.sinks.inmemory import MemorySink
from transom.sources.shared import SharedSource, SourceReader, least

pytestmark = pytest.mark.usefixtures("compiled_once")


def rows_source() -> PiecewiseSource:
    source = PiecewiseSource("k int, x bigint, at timestamp", (30,))
    source.add([(i % 4, i, NOON + i * SECOND) for i in range(200)])
    return source


def define(source: PiecewiseSource, apart: bool) -> Any:
    def defined(app: App, sink: MemorySink) -> None:
        stream = app.stream(source, event_time="at", watermark=tm.watermark(0, max_ahead=None), name="events")
        other = stream.apart("heavy") if apart else stream
        stream.group_by("k").window("10 seconds").agg(n=tm.count()).to(sink, "light")
        heavy = other.where("x % 2 = 0").group_by("k").window("30 seconds")
        heavy.agg(m=tm.max("x")).within("10 seconds").to(sink, "heavy")

    return defined


def results(spark: SparkSession, place: Path, apart: bool, crashes: Sequence[tuple[str, int]] = ()) -> Any:
    bench = Bench(spark, place, define(rows_source(), apart))
    for crash in crashes:
        assert bench.run(crash_at=crash) is None
    progress = bench.run()
    return {name: bench.rows(name) for name in ("light", "heavy")}, progress


def test_an_own_stream_gives_the_same(spark: SparkSession, tmp_path: Path) -> None:
    together, _ = results(spark, tmp_path / "one", apart=False)
    crashes = [("committed", 3), ("cut logged", 4), ("windows closed", 2)]
    assert results(spark, tmp_path / "three", apart=True, crashes=crashes)[0] == together
    alone, progress = results(spark, tmp_path / "two", apart=True)
    assert alone == together
    assert [(stream.name, stream.rows) for stream in progress.streams] == [("events", 200), ("heavy", 200)]
    assert len(alone["heavy"]) > 10


def test_a_query_keeps_its_stream_while_the_checkpoint_is_used(spark: SparkSession, tmp_path: Path) -> None:
    results(spark, tmp_path, apart=False)
    with pytest.raises(tm.JobChangedError, match="stream: heavy"):
        results(spark, tmp_path, apart=True)


def test_files_are_discovered_once_and_released_by_the_slower_reader(spark: SparkSession, tmp_path: Path) -> None:
    incoming = tmp_path / "in"
    incoming.mkdir()
    for number in range(3):
        lines = [f'{{"x": {i}, "at": "2026-01-01T00:00:{number * 10 + i:02d}Z"}}' for i in range(10)]
        (incoming / f"{number}.json").write_text("\n".join(lines))
    source = tm.sources.files(f"{incoming}/*.json", schema="x int, at timestamp", max_files_per_cut=1)
    app, sink = tm.App(spark, tmp_path / "checkpoint"), tm.sinks.memory()
    stream = app.stream(source, event_time="at", name="events")
    for name, rows in (("a", stream), ("b", stream.apart("again"))):
        rows.window("10 seconds").agg(n=tm.count()).to(sink, name)
    app.run(once=True, close_all=True)
    assert [row["n"] for row in sink.rows("a")] == [row["n"] for row in sink.rows("b")] == [10, 10, 10]
    directories = [path.parent.name for path in (tmp_path / "checkpoint").rglob("oldest-needed.json")]
    assert directories == ["events"]


def test_looks_are_shared_and_nothing_is_released_that_a_reader_may_need(tmp_path: Path) -> None:
    released: list[Any] = []

    class Source:
        looks = 0

        def open(self, *_: Any) -> None:
            pass

        def start(self) -> int:
            return 0

        def latest(self) -> int:
            self.looks += 1
            return self.looks

        def release(self, oldest_needed: Any) -> None:
            released.append(oldest_needed)

    source: Any = Source()
    shared = SharedSource(source)
    one, other = cast("Sequence[SourceReader]", [make() for make in [shared.read_by("a"), shared.read_by("b")]])
    for reader in (one, other):
        reader.open(None, tmp_path, ManualClock(NOON))  # type: ignore[arg-type]
    one.needed = lambda: 5
    one.release(5)
    other.needed = lambda: 3
    other.release(3)
    one.needed = lambda: 9
    one.release(9)
    other.needed = lambda: None  # its queries failed
    one.release(9)
    assert released == [0, 3, 3, 9]
    looks = [each.latest() for each in (one, other, other, one, one, one, other)]
    assert looks == [1, 1, 2, 2, 3, 4, 4], "who has seen the last look makes another"


def test_the_least_offset_leaves_out_partitions_that_a_reader_has_not_come_to() -> None:
    assert least([7, 3, 5]) == 3
    assert least([{"a": 4, "b": 1}, {"a": 2, "b": 9, "c": 1}]) == {"a": 2, "b": 1}


@pytest.mark.slow
def test_a_stream_that_comes_at_a_restart_starts_where_the_other_one_is(spark: SparkSession, tmp_path: Path) -> None:
    """What was read before may be deleted by then."""
    source = PiecewiseSource("k int, x bigint, at timestamp", (5,))
    source.add([(0, i, NOON + i * SECOND) for i in range(25)])
    names = ["first"]

    def defined(app: App, sink: MemorySink) -> None:
        stream = app.stream(source, event_time="at", watermark=tm.watermark(0, max_ahead=None), name="events")
        for rows, name in zip((stream, stream.apart("more")), names, strict=False):
            rows.group_by("k").window("10 seconds").agg(n=tm.count(), s=tm.sum("x")).to(sink, name)

    bench = Bench(spark, tmp_path, defined)
    bench.run(close_all=False)
    source.add([(0, i, NOON + i * SECOND) for i in range(25, 60)])
    names.append("second")
    assert bench.run(crash_at=("before snapshot", 0)) is None  # the query is logged, the place where it starts is not
    assert bench.run(crash_at=("committed", 3)) is None
    progress = bench.run()
    assert progress is not None
    assert bench.cuts_of("more")[0].start == 25
    assert bench.rows("second") == [row for row in bench.rows("first") if row[0] >= NOON + 30 * SECOND]
    assert len(bench.rows("second")) == 3


def test_a_stream_read_apart_may_be_the_only_one_and_be_read_by_others(spark: SparkSession, tmp_path: Path) -> None:
    def defined(app: App, sink: MemorySink) -> None:
        stream = app.stream(rows_source(), event_time="at", watermark=tm.watermark(0, max_ahead=None), name="a/b")
        tens = stream.apart("own").window("10 seconds").agg(n=tm.count())
        tens.results("tens").window("20 seconds").agg(n=tm.sum("n")).to(sink, "twenties")

    bench = Bench(spark, tmp_path, defined)
    streams = bench.app().explain().streams
    assert [(stream["name"], stream["shares_source_with"]) for stream in streams] == [
        ("own", "a/b"),
        ("tens.results", None),
    ]
    bench.run()
    assert [row[-1] for row in bench.rows("twenties")] == [20] * 10
    directories = {path.name for path in (bench.checkpoint / "sources").iterdir()}
    assert "own" not in directories, "the source is where it is when the first stream has queries, too"
    assert len(directories) == 2


def test_results_of_others_are_read_once(spark: SparkSession, tmp_path: Path) -> None:
    app = tm.App(spark, tmp_path)
    stream = app.stream(rows_source(), event_time="at", name="events")
    derived = stream.window("10 seconds").agg(n=tm.count()).results("counts")
    with pytest.raises(tm.DefinitionError, match="apart"):
        derived.apart("more")
    with pytest.raises(tm.DefinitionError, match="two streams"):
        stream.apart("events")
