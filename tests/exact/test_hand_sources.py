"""Files that are not what they should be: each row that can be read counts once, the others are dead letters."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from exact_helpers import SECOND, Bench
from pyspark.sql import SparkSession

import transom as tm
from transom.api.app import App
from transom.sinks.inmemory import MemorySink


def line(zone: str, second: int) -> str:
    return json.dumps({"zone": zone, "at": f"1970-01-01T00:00:{second:02d}Z"}) + "\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "input"
    made.mkdir()
    return made


def bench_of(spark: SparkSession, tmp_path: Path, pattern: str, **options: Any) -> Bench:
    def define(app: App, sink: MemorySink) -> None:
        source = tm.sources.files(f"{tmp_path}/input/{pattern}", "zone string, at timestamp", **options)
        stream = app.stream(source, event_time="at", watermark=tm.watermark("5 seconds", max_ahead=None))
        stream.group_by("zone").window("10 seconds").agg(n=tm.count()).to(sink, "q")

    return Bench(spark, tmp_path, define)


def test_a_file_that_appears_twice_counts_once(spark, tmp_path, folder):
    bench = bench_of(spark, tmp_path, "*.json")
    (folder / "b.json").write_text(line("x", 1))
    bench.run(close_all=False)
    (folder / "b.json").write_text(line("x", 1))
    (folder / "a.json").write_text(line("x", 2))
    bench.run(close_all=False)
    bench.run()
    assert bench.rows("q") == [(0, 10 * SECOND, "x", 2)]


def test_a_truncated_gzip_loses_itself_only(spark, tmp_path, folder):
    (folder / "a.json.gz").write_bytes(gzip.compress(line("x", 1).encode()))
    whole = gzip.compress("".join(line(f"y{i}", i % 10) for i in range(2_000)).encode())
    (folder / "b.json.gz").write_bytes(whole[: len(whole) // 2])
    (folder / "c.json.gz").write_bytes(gzip.compress(line("z", 2).encode()))
    bench = bench_of(spark, tmp_path, "*.json.gz")
    bench.run()
    assert bench.rows("q") == [(0, 10 * SECOND, "x", 1), (0, 10 * SECOND, "z", 1)]
    (letter,) = bench.letters()
    assert letter["reason"].startswith("unreadable: ")
    assert letter["record"].endswith("b.json.gz")


def test_a_row_that_is_not_json_is_a_dead_letter(spark, tmp_path, folder):
    (folder / "a.json").write_text(line("x", 1) + "{no json\n" + line("x", 2) + '{"zone": "t", "at": "never"}\n')
    bench = bench_of(spark, tmp_path, "*.json")
    progress = bench.run()
    assert bench.rows("q") == [(0, 10 * SECOND, "x", 2)]
    assert sorted((letter["reason"], letter["record"]) for letter in bench.letters()) == [
        ("corrupt", '{"zone": "t", "at": "never"}'),
        ("corrupt", "{no json"),
    ]
    assert progress is not None
    assert progress.streams[0].dead_letters["corrupt"] == 2


def test_empty_files_and_files_without_any_good_row(spark, tmp_path, folder):
    (folder / "a.json").write_text("")
    (folder / "b.json").write_text("\n\n")
    (folder / "c.json").write_text("nothing\n")
    bench = bench_of(spark, tmp_path, "*.json", max_files_per_cut=1)
    bench.run()
    assert bench.rows("q") == []
    assert [letter["record"] for letter in bench.letters()] == ["nothing"]


@pytest.mark.parametrize("one_by_one", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "queries",
    [*(pytest.param(queries, marks=pytest.mark.slow) for queries in (("total",), ("rows",))), ("total", "rows")],
)
def test_a_file_of_other_types_counts_for_nobody(spark, tmp_path, folder, one_by_one, queries):
    for name, values in {"a": [1, 2], "b": ["x", "y"], "c": [3, 4]}.items():
        at = pa.array([1, 2], pa.timestamp("s", "UTC"))
        pq.write_table(pa.table({"at": at, "v": values}), folder / f"{name}.parquet")
    (folder / "d.parquet").write_text("no parquet")

    def define(app: App, sink: MemorySink) -> None:
        source = tm.sources.files(
            folder / "*.parquet", "at timestamp, v bigint", max_files_per_cut=1 if one_by_one else None
        )
        windowed = app.stream(source, event_time="at", watermark=tm.watermark(0, max_ahead=None)).window("10 seconds")
        for name in queries:
            windowed.agg(n=tm.sum("v") if name == "total" else tm.count()).to(sink, name)

    bench = Bench(spark, tmp_path, define)
    bench.run()
    assert {name: bench.rows(name) for name in queries} == {
        name: [(0, 10 * SECOND, {"total": 10, "rows": 4}[name])] for name in queries
    }
    reasons = {Path(letter["record"]).name: letter["reason"] for letter in bench.letters()}
    assert reasons["b.parquet"] == "unreadable: column v is string, not bigint"
    assert reasons["d.parquet"].startswith("unreadable: ")
    assert len(reasons) == 2
