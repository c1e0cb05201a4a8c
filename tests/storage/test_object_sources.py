"""The source of files on stores of objects: listing, footers, and what Spark reads."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.storage.disk_objects import disk_place
from tests.storage.memory_objects import Faults, memory_place

from transom.errors import SourceError
from transom.model.time import ManualClock
from transom.sources import files
from transom.sources.filesets.listing import PAUSE, ObjectScanner, parse_object_pattern
from transom.sources.filesets.rows import estimate_rows, parquet_footer, why_unreadable
from transom.storage.durable import replacing
from transom.storage.places import ObjectPath

NOON = 1_700_000_000_000_000


def scanner(*paths: ObjectPath, clock: ManualClock | None = None) -> ObjectScanner:
    patterns = [pattern for path in paths for pattern in parse_object_pattern(str(path))]
    return ObjectScanner(patterns, clock or ManualClock(NOON))


def names(found: list[tuple[str, int, int]], folder: ObjectPath) -> list[str]:
    return sorted(path.removeprefix(f"{folder}/") for path, _, _ in found)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.json", ["a.json", "b.json"]),
        ("", ["a.json", "b.json", "c.csv"]),
        ("a.json", ["a.json"]),
        ("{a,c}.*", ["a.json", "c.csv"]),
        ("day=*/*.json", ["day=1/x.json", "day=2/x.json"]),
        ("**/*.json", ["a.json", "b.json", "day=1/deep/y.json", "day=1/x.json", "day=2/x.json"]),
        ("day=1/**", ["day=1/deep/y.json", "day=1/x.json"]),
        ("not-yet", []),
    ],
)
def test_what_patterns_find(pattern: str, expected: list[str]) -> None:
    _, folder = memory_place()
    for name in ("a.json", "b.json", "c.csv", "day=1/x.json", "day=1/deep/y.json", "day=2/x.json"):
        folder.joinpath(*name.split("/")).put(b"{}")
    for name in ("_SUCCESS", ".hidden", "d.json.tmp", "_temporary/0/e.json"):
        folder.joinpath(*name.split("/")).put(b"{}")
    assert names(scanner(folder / pattern if pattern else folder).poll((), None), folder) == expected


def test_a_file_that_a_listing_shows_later_is_found_later_and_once() -> None:
    store, folder = memory_place(Faults(lag=3))
    clock = ManualClock(NOON)
    looking = scanner(folder / "*.json", clock=clock)
    known: set[str] = set()
    for n in (5, 1, 3):
        (folder / f"{n}.json").put(b"{}")
    taken = []
    for _ in range(6):
        clock.advance(PAUSE)
        found = looking.poll(known, None)
        known |= {path for path, _, _ in found}
        taken += names(found, folder)
    assert sorted(taken) == ["1.json", "3.json", "5.json"]
    assert store.now < 20


def test_looks_are_apart_and_young_files_wait() -> None:
    store, folder = memory_place()
    (folder / "a.json").put(b"{}")
    clock = ManualClock(NOON)
    looking = scanner(folder / "*.json", clock=clock)
    assert looking.poll((), young=0) == []
    assert (looking.looked, looking.pending) == (True, {str(folder)})
    assert looking.poll((), None) == []
    assert not looking.looked
    clock.advance(PAUSE)
    assert names(looking.poll((), None), folder) == ["a.json"]
    (folder / "a.json").unlink()
    (folder / "b.json").put(b"{}")
    paths = [str(folder / "a.json"), str(folder / "b.json")]
    assert looking.gone_of(paths) == set(), "the last look showed the one, and the other is there"
    clock.advance(PAUSE)
    looking.poll((), None)
    assert looking.gone_of(paths) == {paths[0]}
    store.faults = Faults(refused=1.0)
    assert looking.gone_of(paths) == set()


def test_facts_of_files_without_reading_all_of_them(s3_place: Callable[[], ObjectPath]) -> None:
    folder = s3_place()
    with replacing(folder / "a.parquet") as file:
        pq.write_table(pa.table({"n": list(range(1000)), "t": ["x" * 100] * 1000}), file)
    rows, columns = parquet_footer(str(folder / "a.parquet")) or (0, None)
    assert (rows, columns.names) == (1000, ["n", "t"])
    assert parquet_footer(str(folder / "none.parquet")) is None
    text = b'{"a": 1}\n' * 100_000
    (folder / "a.json").put(text)
    (folder / "a.json.gz").put(gzip.compress(text))
    (folder / "bad.json.gz").put(gzip.compress(text)[:-9])
    assert estimate_rows(str(folder / "a.json"), len(text)) == pytest.approx(100_000, rel=0.01)
    assert estimate_rows(str(folder / "a.json.gz"), len(gzip.compress(text))) == pytest.approx(100_000, rel=0.5)
    assert why_unreadable(str(folder / "a.json.gz"), "json") is None
    assert why_unreadable(str(folder / "a.parquet"), "parquet") is None
    assert "EOFError" in (why_unreadable(str(folder / "bad.json.gz"), "json") or "")
    assert why_unreadable(str(folder / "none"), "json") == "the file no longer exists"


def test_a_store_that_does_not_answer_says_nothing_of_a_file() -> None:
    store, folder = memory_place()
    with replacing(folder / "a.parquet") as file:
        pq.write_table(pa.table({"n": [1]}), file)
    store.faults = Faults(refused=1.0)
    with pytest.raises(SourceError, match="503"):
        parquet_footer(str(folder / "a.parquet"))


def test_spark_reads_what_was_found(spark: Any, tmp_path: Path) -> None:
    folder, clock = disk_place(tmp_path, spark), ManualClock(NOON)
    (folder / "in" / "day 1" / "a [1].json").put(b'{"n": 1}\n{"n": 2}\noops\n')
    (folder / "in" / "day 2" / "b.json").put(b'{"n": 3}\n')
    source = files(f"{folder}/in/*/*.json", "n bigint", partition_by="directory")
    (tmp_path / "source").mkdir()
    source.open(spark, tmp_path / "source", clock)
    end = source.latest()
    assert end == 2
    assert source.cut(0, 100).rows == 4
    rows = source.read(spark, 0, end).collect()
    assert sorted((row.n or 0, row._corrupt_record, row["_source_partition"]) for row in rows) == [
        (0, "oops", 0),
        (1, None, 0),
        (2, None, 0),
        (3, None, 1),
    ]
    assert list(source.partitions) == [f"{folder}/in/day 1", f"{folder}/in/day 2"]
    (folder / "in" / "day 2" / "b.json").unlink()
    with pytest.raises(SourceError, match="can no longer be read"):
        source.read(spark, 0, end)
    source.close()


def test_spark_reads_parquet_that_was_found(spark: Any, tmp_path: Path) -> None:
    folder, clock = disk_place(tmp_path, spark), ManualClock(NOON)
    for name, values in (("a", [1, 2]), ("b", ["other"])):
        with replacing(folder / "in" / f"{name}.parquet") as file:
            pq.write_table(pa.table({"n": values}), file)
    source = files(f"{folder}/in", "n bigint", format="parquet")
    (tmp_path / "source").mkdir()
    source.open(spark, tmp_path / "source", clock)
    end = source.latest()
    assert source.unfit(0, end) == {f"{folder}/in/b.parquet": "column n is string, not bigint"}
    assert sorted(row.n for row in source.read(spark, 0, end).collect()) == [1, 2]
    source.close()


def test_spark_without_the_jar_says_which(spark: Any, s3_place: Callable[[], ObjectPath], tmp_path: Path) -> None:
    source = files(f"{s3_place()}/*.json", "n bigint")
    with pytest.raises(SourceError, match="no file system for s3a://") as error:
        source.open(spark, tmp_path, ManualClock(NOON))
    assert "--packages org.apache.hadoop:hadoop-aws:" in error.value.remedy


def test_paths_here_and_there_are_two_streams(spark: Any, tmp_path: Path) -> None:
    _, folder = memory_place()
    source = files([f"{folder}/*.json", str(tmp_path / "*.json")], "n bigint")
    with pytest.raises(SourceError, match="two streams"):
        source.open(spark, tmp_path, ManualClock(NOON))
