"""Golden checkpoints: one of each format that was ever written, committed for ever, and the results they must lead to.

    python tests/checkpoint/golden_helpers.py    writes golden/format-N, N being the format that this Transom writes

Each has been left by a crash: a snapshot, a log that goes on after it, a micro-batch that is logged and not committed,
results that no sink has taken. Nothing in it depends on where it lies: the sources name their files by relative paths.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import transom as tm
from transom.api.app import App
from transom.checkpoint import describe
from transom.checkpoint.log import FORMAT
from transom.model.time import ManualClock
from transom.sinks.base import WindowResults
from transom.sinks.inmemory import MemorySink
from transom.sources.base import Offset
from transom.sources.filesets.known import FileSet
from transom.sources.filesets.log import FileEntry
from transom.sources.filesets.source import FileSource

GOLDEN = Path(__file__).parent / "golden"
SECOND = 1_000_000
NOON = 1_700_000_000 * SECOND
SCHEMA = "k string, v bigint, at timestamp"
STREAMS = ("left", "right")
FILES = 8
CASES: dict[str, dict[str, Any]] = {
    "driver": {"tier": "driver", "policy": "round_robin"},
    "cluster": {"tier": "cluster", "policy": "round_robin", "key_groups": 2},
}
"""Settings of the application that left each checkpoint."""
UPDATES = frozenset({"corrected"})
"""Queries with revisions: only the last one of each row counts, and when there is one depends on the clock. So what is
expected of them are all windows, of which those may be missing that were there before the restart."""


class Crash(BaseException):
    """Stands for the end of the process."""


class RelativeFiles(FileSource):
    """Files below the working directory, named by relative paths."""

    def _between(self, start: Offset, end: Offset) -> list[FileEntry]:
        return [replace(entry, path=os.path.abspath(entry.path)) for entry in super()._between(start, end)]


class Picky(MemorySink):
    """Takes nothing of some queries."""

    def __init__(self, refused: Sequence[str] = ()) -> None:
        super().__init__()
        self._refused = refused

    def write(self, results: WindowResults) -> None:
        if results.query in self._refused:
            raise OSError("full")
        super().write(results)


def lines(stream: str, number: int) -> list[str]:
    """Return the lines of an input file: some seconds, some rows late, one line that is no JSON."""
    found = []
    for i in range(8):
        second = number * 6 + i - (25 if i == 3 and number % 3 == 2 else 0) - (5 if i == 7 else 0)
        key = "abc"[(number + i * (1 if stream == "left" else 2)) % 3]
        at = f"2023-11-14T22:{15 + second // 60:02d}:{second % 60:02d}.{i}00Z"
        found.append(json.dumps({"k": key, "v": number * 10 + i, "at": at}))
    return [*found, *(['{"k": "a", '] if stream == "left" and number == 3 else [])]


def write_inputs(directory: Path, numbers: Sequence[int]) -> None:
    for stream in STREAMS:
        (directory / stream).mkdir(exist_ok=True)
        for number in numbers:
            path = directory / stream / f"{number}.json"
            path.write_text("".join(line + "\n" for line in lines(stream, number)))
            os.utime(path, (NOON // SECOND, NOON // SECOND))


def define(app: App, sink: MemorySink) -> None:
    """Add the streams and queries; called in the directory with the inputs."""
    streams = {}
    for name in STREAMS:
        source = RelativeFiles(FileSet((name,), "json", max_files=1), SCHEMA)
        streams[name] = app.stream(source, event_time="at", watermark=tm.watermark("4 seconds"), name=name)
    left, right = streams["left"], streams["right"]
    by_key = left.group_by("k")
    by_key.window("10 seconds").agg(
        n=tm.count(), total=tm.sum("v"), mean=tm.mean("v"), least=tm.min("v"), most=tm.max("v")
    ).to(sink, "tumbling")
    by_key.window(tm.sliding("12 seconds", "4 seconds")).agg(
        twice=tm.sum(F.col("v") * 2), first=tm.first("v"), last=tm.last("v"), kinds=tm.approx_count_distinct("v")
    ).to(sink, "sliding")
    by_key.window(tm.session_window("2 seconds")).agg(n=tm.count(), vs=tm.collect_list("v")).to(sink, "sessions")
    left.where("v % 2 = 0").window("10 seconds", tm.calendar("day")).agg(
        n=tm.count(), spread=tm.stddev("v"), half=tm.percentile_approx("v", 0.5), often=tm.top_k("k", 2)
    ).to(sink, "even")
    by_key.window("10 seconds", early="1 second", lateness="20 seconds").agg(n=tm.count()).to(sink, "corrected")
    left.window("5 seconds").agg(some=tm.any("v > 20"), every=tm.all("v > 20"), n=tm.count()).to(sink, "pending")
    left.window("5 seconds").agg(n=tm.sum("1 / (v - 3)")).to(sink, "failed")
    by_key.window("6 seconds").agg(n=tm.count()).to(sink, "paused")
    chained = by_key.window("5 seconds").agg(n=tm.count(), total=tm.sum("v")).results("fives")
    chained.group_by("k").window("15 seconds").agg(n=tm.sum("n"), total=tm.sum("total")).to(sink, "chained")
    joined = app.join(
        left.map(lambda df: df.select("k", "v", "at")),
        right.map(lambda df: df.select("k", F.col("v").alias("w"), "_event_micros")),
        on="k",
        window="10 seconds",
        how="left",
        name="pairs",
    )
    joined.group_by("k").window("10 seconds").agg(n=tm.count(), w=tm.sum("w"), vs=tm.collect_set("v")).to(
        sink, "joined"
    )


@contextmanager
def working_directory(path: Path) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)


def run(
    spark: SparkSession,
    directory: Path,
    sink: MemorySink,
    on_step: Callable[[str], None] = lambda step: None,
    first: bool = False,
    last: bool = True,
    **settings: Any,
) -> None:
    """Run on directory/checkpoint and the inputs in the directory, until the end of the input or a Crash."""
    clock = ManualClock(NOON)

    def step(name: str) -> None:
        if name == "committed":
            clock.advance(SECOND)
        on_step(name)

    with working_directory(directory):
        app = App(spark, directory / "checkpoint", clock=clock, **settings)
        define(app, sink)
        if first:
            app.pause("paused")
        app._on_step = step
        with suppress(Crash):
            app.run(once=True, close_all=last)


def restore(case: Path, directory: Path) -> None:
    """Copy a golden checkpoint into a directory, with all the inputs."""
    shutil.copytree(case / "checkpoint", directory / "checkpoint")
    (directory / "checkpoint" / "epochs").mkdir(exist_ok=True)  # git keeps no empty directories
    write_inputs(directory, range(FILES))


def last_cut(checkpoint: Path) -> int:
    """Return the number of the last cut of the left stream in the log."""
    records = describe(checkpoint, last=1_000)["last_records"]
    return max(record["cut"]["number"] for record in records if record["type"] == "cut" and record["stream"] == "left")


def results(sink: MemorySink, after: int = 0) -> dict[str, list[str]]:
    """Return what came out: the rows of each query as JSON, sorted; of those with revisions only that of later cuts."""
    found: dict[str, list[str]] = {}
    for query, cut in sink.tables:
        if query in UPDATES and cut <= after:
            del sink._tables[query, cut]
    for query in sorted({query for query, _ in sink.tables}):
        table = sink.latest(query) if query in UPDATES else sink.to_table(query)
        assert table is not None
        for i, field in enumerate(table.schema):
            if pa.types.is_timestamp(field.type):
                table = table.set_column(i, field.name, table.column(i).cast(pa.int64()))
        rows = table.drop_columns(["revision"] if query in UPDATES else []).to_pylist()
        if query == "joined":
            rows = [{**row, "vs": sorted(row["vs"])} for row in rows]
        found[query] = sorted(json.dumps(row, sort_keys=True) for row in rows)
    return found


# ---- making them


def _worth_keeping(state: Mapping[str, Any], tables: Sequence[str]) -> bool:
    """Tell whether a snapshot holds one of each: waiting results, rows for a chain, files for a join."""
    waiting = any("fives.results/fed:" in name for name in tables)
    return bool(state["pending"] and waiting and state["streams"]["pairs"]["fed"]["sides"][0]["pieces"])


def make(spark: SparkSession, target: Path, scratch: Path, settings: Mapping[str, Any]) -> None:
    """Write target/checkpoint and target/expected.json."""
    write_inputs(scratch, range(4))
    counts = {"committed": 0, "ended": 0}

    def end_at_snapshot(step: str) -> None:
        counts["committed"] += step == "committed"
        if step == "after snapshot" and counts["committed"] > 4:
            snapshot = describe(scratch / "checkpoint")["snapshot"]
            if _worth_keeping(snapshot["state"], list(snapshot["rows"])):
                counts["ended"] = 1
                raise Crash

    def end_in_a_cut(step: str) -> None:
        counts["committed"] += step == "committed"
        if step == "job done" and counts["committed"] > 4:
            raise Crash

    before = Picky(["pending"])
    run(spark, scratch, before, end_at_snapshot, first=True, last=False, snapshot_bytes=1, **settings)
    assert counts["ended"], "no snapshot was worth keeping"
    counts["committed"] = 0
    write_inputs(scratch, range(4, 7))
    run(spark, scratch, before, end_in_a_cut, last=False, **settings)
    assert counts["committed"] == 5
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(scratch / "checkpoint", target / "checkpoint", ignore=shutil.ignore_patterns("dead-letters"))
    (target / "checkpoint" / "lock").unlink()
    after = MemorySink()
    write_inputs(scratch, range(FILES))
    run(spark, scratch, after, **settings)
    whole = MemorySink()
    other = scratch / "whole"
    other.mkdir()
    write_inputs(other, range(FILES))
    run(spark, other, whole, first=True, **settings)
    for key, table in before.tables.items():
        if key not in after.tables:
            after.write(WindowResults(key[0], key[1], table, before._keys[key[0]]))
    assert results(after) == results(whole), "crashes changed the results"
    kept = MemorySink()
    for key, table in after.tables.items():
        if key not in before.tables:
            kept.write(WindowResults(key[0], key[1], table, after._keys[key[0]]))
    expected = {**results(kept), **{query: results(whole)[query] for query in UPDATES}}
    (target / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def main() -> None:
    import tempfile

    from transom.engine.spark.session import session_builder

    spark = session_builder().master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    try:
        for case, settings in CASES.items():
            with tempfile.TemporaryDirectory() as scratch:
                make(spark, GOLDEN / f"format-{FORMAT}" / case, Path(scratch), settings)
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
