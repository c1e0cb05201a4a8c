from __future__ import annotations

import errno
import gzip
import json
import logging
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from transom.errors import CheckpointFullError, DefinitionError, SourceError
from transom.model.time import ManualClock
from transom.sources.base import ARRIVAL, CORRUPT, PARTITION
from transom.sources.filesets.factory import files
from transom.sources.filesets.rows import estimate_rows
from transom.sources.filesets.source import RETAINED_NAME, FileSource

SECOND = 1_000_000
NOW = 1_800_000_000 * SECOND


def put(path: Path, *rows: dict[str, Any], mtime: int | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if mtime is not None:
        os.utime(path, ns=(mtime * 1_000, mtime * 1_000))
    return path


def opened(source: FileSource, spark: Any, tmp_path: Path, clock: ManualClock | None = None) -> FileSource:
    directory = tmp_path / "checkpoint"
    directory.mkdir(exist_ok=True)
    source.open(spark, directory, clock or ManualClock(NOW))
    return source


def ids(source: FileSource, spark: Any, start: int, end: int, **kwargs: Any) -> list[int]:
    return sorted(row.id for row in source.read(spark, start, end, **kwargs).collect())


def test_a_late_file_with_a_small_name_is_read_once(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    put(folder / "b.json", {"id": 2})
    put(folder / "c.json", {"id": 3})
    source = opened(files(folder / "*.json", "id bigint"), spark, tmp_path)
    assert source.latest() == 2
    put(folder / "a.json", {"id": 1})
    assert source.latest() == 3
    assert ids(source, spark, 2, 3) == [1]
    assert ids(source, spark, 0, 3) == [1, 2, 3]


def test_a_file_written_again_is_not_read_again_and_that_is_said(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = put(tmp_path / "in" / "a.json", {"id": 1})
    source = opened(files(tmp_path / "in/*.json", "id bigint"), spark, tmp_path)
    assert source.latest() == 1
    source.close()
    put(path, {"id": 1}, {"id": 2})
    source = opened(files(tmp_path / "in/*.json", "id bigint"), spark, tmp_path)
    assert source.latest() == 1
    with caplog.at_level(logging.WARNING):
        source.read(spark, 0, 1)
    assert "a.json was changed" in caplog.text


@pytest.mark.parametrize(("order", "expected"), [("name", ["a", "b"]), ("modified", ["b", "a"])])
def test_order_and_ingestion_time(order: Any, expected: list[str], spark: Any, tmp_path: Path) -> None:
    put(tmp_path / "in/a.json", {"id": 1}, mtime=NOW - SECOND)
    put(tmp_path / "in/b.json", {"id": 2}, mtime=NOW - 9 * SECOND)
    source = opened(files(tmp_path / "in/*.json", "id bigint", order=order), spark, tmp_path)
    assert source.latest() == 2
    log = (tmp_path / "checkpoint/files.jsonl").read_text().splitlines()[1:]
    assert [Path(json.loads(line.split(" ", 3)[3])["path"]).stem for line in log] == expected
    assert source.ingested_at(0, 2) == NOW - SECOND
    assert source.ingested_at(0, 1) == (NOW - SECOND if order == "name" else NOW - 9 * SECOND)


def test_settle_waits_and_the_source_is_not_exhausted_meanwhile(spark: Any, tmp_path: Path) -> None:
    put(tmp_path / "in/a.json", {"id": 1}, mtime=NOW - SECOND)
    clock = ManualClock(NOW)
    source = files(tmp_path / "in/*.json", "id bigint", settle="2 seconds")
    opened(source, spark, tmp_path, clock)
    assert source.latest() == 0
    assert not source.exhausted(0)
    clock.advance(SECOND)
    assert source.latest() == 1
    assert not source.exhausted(0)
    assert source.exhausted(1)


NAMES = [
    "a b",
    "c,d",
    "e[1]",
    "f{x,y}",
    "g*h",
    "q?",
    "ü ñ日本",
    "e\u0301",
    "back\\s",
    "pct%20x",
    "plus+",
    "nbsp\u00a0x",
    "hash#",
    "semi;",
    "quote'\"`",
    "$&=@!~()^|<>",
]


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_any_file_and_directory_name_works(kind: Any, spark: Any, tmp_path: Path) -> None:
    for i, name in enumerate(NAMES):
        path = tmp_path / "in" / name / f"{name}.{kind}"
        put(path, {"id": i})
        if kind == "parquet":
            pq.write_table(pa.table({"id": [i]}), path)
    put(tmp_path / "in" / "12:00" / f"t.{kind}", {"id": len(NAMES)})
    if kind == "parquet":
        pq.write_table(pa.table({"id": [len(NAMES)]}), tmp_path / "in" / "12:00" / "t.parquet")
    source = opened(files(f"file://{tmp_path}/in/**/*.{kind}", "id bigint", partition_by="directory"), spark, tmp_path)
    end = source.latest()
    assert end == len(NAMES) + 1
    rows = source.read(spark, 0, end).collect()
    assert sorted(row.id for row in rows) == list(range(len(NAMES) + 1))
    names = [*NAMES, "12:00"]
    assert {row.id: os.path.basename(source.partitions[row[PARTITION]]) for row in rows} == dict(enumerate(names))
    assert source.unreadable(spark, 0, end) == {}


def test_partitions_grow_and_keep_their_index(spark: Any, tmp_path: Path) -> None:
    def make() -> FileSource:
        return files(tmp_path / "in/**/*.json", "id bigint", partition_by="directory")

    put(tmp_path / "in/z/1.json", {"id": 1})
    source = opened(make(), spark, tmp_path)
    assert list(source.partitions) == [""]
    source.latest()
    put(tmp_path / "in/a/1.json", {"id": 2})
    put(tmp_path / "in/a/deep/1.json", {"id": 3})
    end = source.latest()
    expected = [str(tmp_path / "in" / name) for name in ("z", "a", "a/deep")]
    assert list(source.partitions) == expected
    source.close()
    source = opened(make(), spark, tmp_path)
    assert list(source.partitions) == expected
    rows = source.read(spark, 0, end).collect()
    assert sorted((row.id, row[PARTITION]) for row in rows) == [(1, 0), (2, 1), (3, 2)]
    assert source.read(spark, 1, 1).columns == ["id", CORRUPT, PARTITION, ARRIVAL]
    assert [row[PARTITION] for row in source.read(spark, 2, 3).collect()] == [2]


def test_whether_a_row_is_corrupt_does_not_depend_on_the_columns_used(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.json").write_text('{"a": 1, "b": 2}\n{"a": 2, "b": "x"}\n{torn\n')
    (tmp_path / "in/a.csv").write_text("1,2\n2,x\n3\n")
    for kind, bad in (("json", 2), ("csv", 2)):
        directory = tmp_path / kind
        directory.mkdir()
        source = files(tmp_path / f"in/*.{kind}", "a int, b int")
        source.open(spark, directory, ManualClock(NOW))
        frame = source.read(spark, 0, source.latest())
        assert frame.where(f"{CORRUPT} IS NOT NULL").count() == bad
        assert frame.where(f"a = 2 AND {CORRUPT} IS NOT NULL").select("a").count() == 1
        assert [row.a for row in frame.where(f"{CORRUPT} IS NULL").select("a").collect()] == [1]


def test_gzip_csv_with_options(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.csv.gz").write_bytes(gzip.compress(b"id;x\n1;a\n2;b\n"))
    source = files(tmp_path / "in/*.csv.gz", "id bigint, x string", options={"header": "true", "sep": ";"})
    opened(source, spark, tmp_path)
    assert source.cut(0, 10).rows == 0, "a cut lies within the last latest()"
    source.latest()
    assert source.cut(0, 10).rows == 2
    assert [tuple(row)[:3] for row in source.read(spark, 0, 1).collect()] == [(1, "a", None), (2, "b", None)]


def test_parquet_columns_may_be_missing_or_added(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"id": [1], "extra": ["x"]}), tmp_path / "in/a.parquet")
    pq.write_table(pa.table({"name": ["n"], "id": [2]}), tmp_path / "in/b.parquet")
    source = opened(files(tmp_path / "in/*.parquet", "id bigint, name string"), spark, tmp_path)
    rows = source.read(spark, 0, source.latest()).collect()
    assert sorted(tuple(row)[:2] for row in rows) == [(1, None), (2, "n")]


def test_unreadable_files_are_named_and_can_be_skipped(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(pa.table({"id": [1]}), folder / "good.parquet")
    (folder / "bad.parquet").write_text("no parquet")
    pq.write_table(pa.table({"id": ["text"]}), folder / "type.parquet")
    pq.write_table(pa.table({"id": [3]}), folder / "gone.parquet")
    source = opened(files(folder / "*.parquet", "id bigint"), spark, tmp_path)
    end = source.latest()
    os.unlink(folder / "gone.parquet")
    with pytest.raises(SourceError, match=r"gone\.parquet was discovered"):
        source.read(spark, 0, end)
    bad = source.unreadable(spark, 0, end)
    assert {Path(path).name for path in bad} == {"bad.parquet", "gone.parquet"}
    assert "no longer exists" in bad[str(folder / "gone.parquet")]
    assert ids(source, spark, 0, end, skip=list(bad)) == [1]


def test_unreadable_text(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    put(folder / "a:1.json", {"id": 1})
    put(folder / "b.json", {"id": 2})
    packed = gzip.compress(os.urandom(100_000))
    (folder / "torn.json.gz").write_bytes(packed[: len(packed) // 2])
    (folder / "no.json.gz").write_bytes(b"{}")
    (folder / "no.json.zst").write_bytes(b"{}")
    source = opened(files(folder, "id bigint", format="json"), spark, tmp_path)
    end = source.latest()
    bad = source.unreadable(spark, 0, end)
    assert {Path(path).name for path in bad} == {"a:1.json", "torn.json.gz", "no.json.gz", "no.json.zst"}
    assert ids(source, spark, 0, end, skip=list(bad)) == [2]


def test_cut_respects_rows_and_files(spark: Any, tmp_path: Path) -> None:
    for i, count in enumerate((2, 2, 9, 1)):
        put(tmp_path / f"in/{i}.json", *[{"id": k} for k in range(count)])
    source = opened(files(tmp_path / "in/*.json", "id bigint"), spark, tmp_path)
    source.latest()
    cuts = [source.cut(start, 4) for start in range(5)]
    assert [(cut.end, cut.rows) for cut in cuts] == [(2, 4), (2, 2), (3, 9), (4, 1), (4, 0)]
    source.close()
    source = opened(files(tmp_path / "in/*.json", "id bigint", max_files_per_cut=3), spark, tmp_path)
    assert source.cut(0, 1000).end == 3


def test_retention(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transom.sources.filesets.source._FORGET_AFTER", 3)
    paths = [put(tmp_path / f"in/{i}.json", {"id": i}) for i in range(6)]
    source = opened(files(tmp_path / "in/*.json", "id bigint"), spark, tmp_path)
    source.latest()
    assert source.retained_from() == str(paths[0])
    source.release(2)
    shown = json.loads((tmp_path / "checkpoint" / RETAINED_NAME).read_text())
    assert shown == {"position": 2, "path": str(paths[2])}
    for path in paths[:2]:
        path.unlink()
    source.release(3)
    assert (source.start(), source.latest()) == (2, 6)
    source.release(6)
    assert source.retained_from() is None
    source.close()
    source = opened(files(tmp_path / "in/*.json", "id bigint"), spark, tmp_path)
    assert (source.start(), source.latest()) == (2, 6)
    assert ids(source, spark, 2, 6) == [2, 3, 4, 5]


def test_many_files_are_read_without_a_job_and_in_one_scan(spark: Any, tmp_path: Path) -> None:
    for i in range(60):
        put(tmp_path / f"in/{i:03d}.json", {"id": i})
    source = opened(files(tmp_path / "in/*.json", "id bigint"), spark, tmp_path)
    end = source.latest()
    tracker = spark.sparkContext.statusTracker()
    before = len(tracker.getJobIdsForGroup(None))
    frame = source.read(spark, 0, end)
    assert len(tracker.getJobIdsForGroup(None)) == before
    assert frame.count() == 60


def test_a_full_disk_says_so_and_the_file_is_found_again(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "in/a.json", {"id": 1})
    source = opened(files(tmp_path / "in/*.json", "id bigint"), spark, tmp_path)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(CheckpointFullError, match="Free some space"):
            source.latest()
    assert source.latest() == 1


def test_definitions_that_cannot_work(tmp_path: Path, spark: Any) -> None:
    for schema in (
        f"{CORRUPT} string",
        f"a int, {PARTITION.upper()} int",
        "a int, A int",
        "a nonsense",
        "int",
    ):
        with pytest.raises(DefinitionError):
            files("x/*.json", schema)
    for kwargs in ({"order": "size"}, {"format": "xml"}, {"partition_by": "x"}, {"settle": "-1 s"}):
        with pytest.raises(DefinitionError):
            files("x/*.json", "a int", **kwargs)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match='Add format="json"'):
        files("x/", "a int")
    with pytest.raises(DefinitionError, match="cannot be told"):
        files(["x/*.json", "x/*.csv"], "a int")
    with pytest.raises(SourceError, match="of a kind that is not known"):
        files("ftp://host/*.json", "a int")
    with pytest.raises(SourceError, match="does not exist"):
        opened(files(tmp_path / "missing/*.json", "a int"), spark, tmp_path)
    with pytest.raises(SourceError, match="is not open"):
        files("x/*.json", "a int").latest()


def test_row_estimates(tmp_path: Path) -> None:
    def estimate(name: str, data: bytes, **kwargs: Any) -> int:
        (tmp_path / name).write_bytes(data)
        return estimate_rows(str(tmp_path / name), len(data), **kwargs)

    assert estimate("empty.csv", b"") == 0
    assert estimate("header.csv", b"a,b\n", header=True) == 0
    assert estimate("open.csv", b"1\n2\n3") == 3
    rows = b"".join(b"%d,%d\n" % (i % 7, 10**9 + i * 7919 % 10**9) for i in range(100_000))
    assert estimate("large.csv", rows) == pytest.approx(100_000, rel=0.01)
    assert estimate("large.csv.gz", gzip.compress(rows)) == pytest.approx(100_000, rel=0.1)
    assert estimate("large.csv.zst", pa.compress(rows, "zstd", asbytes=True)) == pytest.approx(100_000, rel=0.1)
    assert estimate("small.csv.zst", pa.compress(b"1\n2\n", "zstd", asbytes=True)) == 2
    assert estimate("bad.csv.zst", b"no zstd") == 1
    assert estimate("zeros.csv.zst", pa.compress(bytes(10**9), "zstd", asbytes=True)) == 1
    assert estimate("small.csv.gz", gzip.compress(b"1\n2\n")) == 2
    assert estimate("bad.csv.gz", b"no gzip") == 1
    assert estimate("line.csv", b"x" * 200_000) == 1
