from __future__ import annotations

import errno
import os
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from transom.errors import SinkError
from transom.sinks.base import WindowResults
from transom.sinks.directories import FileSink, csv, json, parquet
from transom.sinks.owner import MARK
from transom.sinks.parts import ResultFile

EDGE = datetime(2026, 1, 1, tzinfo=UTC)


def results(cut: int, *values: int) -> WindowResults:
    ends = pa.array([EDGE] * len(values), pa.timestamp("us", "UTC"))
    return WindowResults("q", cut, pa.table({"window_end": ends, "n": pa.array(values, pa.int64())}))


def names(directory: Path) -> list[str]:
    return sorted(name for name in os.listdir(directory) if name not in (".compact.lock", MARK))


@pytest.fixture(params=["parquet", "json", "csv"])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> FileSink:
    make = {"parquet": parquet, "json": json, "csv": csv}[request.param]
    made = make(tmp_path / "out put" / "q")
    made.open("q")
    return made


def values(sink: FileSink) -> list[int]:
    duckdb = pytest.importorskip("duckdb")
    kind = sink.describe().split()[0]
    return [row[0] for row in duckdb.sql(f"SELECT n FROM '{sink.directory}/*.{kind}' ORDER BY n").fetchall()]


def test_one_file_per_cut_and_writing_again_replaces(sink: FileSink) -> None:
    sink.write(results(0, 1, 2))
    sink.write(results(7, 3))
    sink.write(results(7, 4))
    assert [ResultFile.parse(name).first for name in names(sink.directory)] == [0, 7]  # type: ignore[union-attr]
    assert values(sink) == [1, 2, 4]


def test_pyarrow_and_spark_read_the_directory(tmp_path: Path, spark: object) -> None:
    sink, text = parquet(tmp_path / "p"), json(tmp_path / "j")
    for one in (sink, text):
        one.open("q")
        one.write(results(0, 1, 2))
        one.write(results(1, 3))
    assert pq.read_table(sink.directory)["n"].to_pylist() == [1, 2, 3]
    frame = spark.read.parquet(str(sink.directory))  # type: ignore[attr-defined]
    assert sorted(row.n for row in frame.collect()) == [1, 2, 3]
    frame = spark.read.schema("window_end timestamp, n bigint").json(str(text.directory))  # type: ignore[attr-defined]
    rows = frame.selectExpr("unix_micros(window_end) t", "n").collect()
    assert sorted((row.t, row.n) for row in rows) == [(int(EDGE.timestamp()) * 10**6, n) for n in (1, 2, 3)]


def test_recover_removes_temporaries_and_newer_cuts_and_nothing_else(sink: FileSink) -> None:
    for cut in range(4):
        sink.write(results(cut, cut))
    kept = sink.directory / "notes.txt"
    kept.write_text("mine")
    kind = names(sink.directory)[1].rsplit(".", 1)[1]
    (sink.directory / f".part-000000000009.{kind}.tmp").write_text("torn")
    sink.recover("q", 2)
    assert names(sink.directory) == ["notes.txt", f"part-000000000000.{kind}", f"part-000000000001.{kind}"]
    sink.recover("q", 2)
    assert values(sink) == [0, 1]


def test_recover_refuses_to_lose_merged_history(sink: FileSink) -> None:
    kind = sink.describe().split()[0]
    merged = sink.directory / f"part-000000000000-000000000005.{kind}"
    merged.write_text("x")
    sink.write(results(6, 6))
    with pytest.raises(SinkError, match="checkpoint continues with cut 3"):
        sink.recover("q", 3)
    assert len(names(sink.directory)) == 2
    sink.recover("q", 6)
    assert names(sink.directory) == [merged.name]


def test_a_full_disk_is_an_oserror_and_leaves_nothing(sink: FileSink, monkeypatch: pytest.MonkeyPatch) -> None:
    sink.write(results(0, 1))
    before = names(sink.directory)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        for cut in (0, 1):
            with pytest.raises(OSError, match="No space left"):
                sink.write(results(cut, 2))
    assert names(sink.directory) == before
    assert values(sink) == [1]


def test_a_missing_directory_is_an_oserror(sink: FileSink) -> None:
    sink.directory.rmdir()
    with pytest.raises(FileNotFoundError):
        sink.write(results(0, 1))


def test_a_path_that_cannot_work_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(SinkError, match="another directory"):
            parquet(path).open("q")
    with pytest.raises(SinkError, match="of a kind that is not known"):
        json("ftp://host/out")
    assert parquet("file:///a%20b/c").directory == Path("/a b/c")


def test_part_names() -> None:
    for part in (
        ResultFile(3, 3, "json"),
        ResultFile(0, 12, "parquet"),
        ResultFile(5, 5, "csv"),
        ResultFile(10**12, 10**12 + 1, "json"),
    ):
        assert ResultFile.parse(part.name) == part
    for name in (".part-000000000001.json.tmp", "part-1.json", "part-000000000001.txt", "x"):
        assert ResultFile.parse(name) is None
