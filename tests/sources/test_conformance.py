"""Every source passes the suite that packages with sources of their own use."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from transom.model.time import ManualClock
from transom.sources.filesets.factory import files
from transom.sources.filesets.factory import text as text_source
from transom.sources.generated import generator
from transom.sources.inmemory import memory
from transom.sources.lakes import delta
from transom.testing import SourceCase, SourceSuite

SECOND = 1_000_000
SCHEMA = "id bigint, name string"
FILES = 6
ROWS_PER_FILE = 5


def rows_of(number: int) -> list[dict[str, Any]]:
    first = number * ROWS_PER_FILE
    return [{"id": i, "name": f"n{i}"} for i in range(first, first + ROWS_PER_FILE)]


def text(number: int, kind: str) -> bytes:
    if kind in ("csv", "log"):
        lines = [f"{row['id']},{row['name']}" for row in rows_of(number)]
    else:
        lines = [json.dumps(row) for row in rows_of(number)]
    return "".join(line + "\n" for line in lines).encode()


def put(folder: Path, number: int, kind: str) -> None:
    path = folder / f"{number:03d}.{kind}"
    temporary = folder / f".{path.name}.tmp"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows_of(number)), temporary)
    elif kind.endswith(".zst"):
        temporary.write_bytes(pa.compress(text(number, kind.removesuffix(".zst")), "zstd", asbytes=True))
    elif kind.endswith(".gz"):
        temporary.write_bytes(gzip.compress(text(number, kind.removesuffix(".gz"))))
    else:
        temporary.write_bytes(text(number, kind))
    temporary.rename(path)


def directories_case(tmp_path: Path) -> SourceCase:
    count = 0
    for name in "ab":
        (tmp_path / name).mkdir()

    def grow(_: ManualClock) -> None:
        nonlocal count
        for _i in range(FILES // 2):
            put(tmp_path / "aab"[count % 3], count, "json")
            count += 1

    return SourceCase(lambda: files(f"{tmp_path}/[ab]/*.json", SCHEMA, partition_by="directory"), grow, ROWS_PER_FILE)


def file_case(kind: str, tmp_path: Path, spark: object) -> SourceCase:
    folder = tmp_path / "in put"
    folder.mkdir()
    count = 0

    def grow(_: ManualClock) -> None:
        nonlocal count
        for _i in range(FILES // 2):
            put(folder, count, kind)
            count += 1

    if kind == "log":
        return SourceCase(
            lambda: text_source(f"{folder}/*.log", r"(?P<id>\d+),(?P<name>.*)", SCHEMA), grow, ROWS_PER_FILE
        )
    return SourceCase(lambda: files(f"{folder}/*.{kind}", SCHEMA), grow, ROWS_PER_FILE)


def generator_case(partitions: int) -> SourceCase:
    columns = {"id": "id", "name": "concat('n', id)", "at": "event_time"}

    def grow(clock: ManualClock) -> None:
        clock.advance(5 * SECOND)

    return SourceCase(lambda: generator(columns, 3, start=0, partitions=partitions), grow, 1, generated=True)


def delta_case(tmp_path: Path) -> SourceCase:
    deltalake = pytest.importorskip("deltalake")
    where = str(tmp_path / "table")
    deltalake.DeltaTable.create(where, pa.schema([("id", pa.int64()), ("name", pa.string())]))
    count = 0

    def grow(_: ManualClock) -> None:
        nonlocal count
        for _i in range(FILES // 2):
            deltalake.write_deltalake(where, pa.Table.from_pylist(rows_of(count)), mode="append")
            count += 1

    return SourceCase(lambda: delta(where), grow, ROWS_PER_FILE)


def memory_case(partitions: int) -> SourceCase:
    source = memory(SCHEMA, partitions)
    count = 0

    def grow(_: ManualClock) -> None:
        nonlocal count
        for _i in range(FILES // 2):
            source.add(rows_of(count), partition=count % partitions)
            count += 1

    return SourceCase(lambda: source, grow, 1)


def kafka_case(broker: Any, partitions: int) -> SourceCase:
    from transom.model.formats import json as json_format
    from transom.sources.topics.factory import kafka

    topic = broker.topic(partitions)
    count = 0

    def grow(clock: ManualClock) -> None:
        nonlocal count
        clock.advance(5 * SECOND)
        for _i in range(FILES // 2):
            values = [json.dumps(row) for row in rows_of(count)]
            broker.put(topic, values, count % partitions, timestamp=clock.now() // 1_000)
            count += 1

    return SourceCase(lambda: kafka(broker.servers, topic, json_format(SCHEMA)), grow, 1)


KINDS = [
    *("delta", "json", "csv", "log", "parquet", "generator", "generator/2", "memory", "memory/2"),
    *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("directories", "json.gz", "csv.zst")),
    pytest.param("kafka/1", marks=pytest.mark.kafka),
    pytest.param("kafka/2", marks=[pytest.mark.kafka, pytest.mark.slow]),
]


class TestSources(SourceSuite):
    """Every source of ours."""

    @pytest.fixture(params=KINDS)
    def case(self, request: pytest.FixtureRequest, tmp_path: Path, spark: object) -> SourceCase:
        name, _, partitions = request.param.partition("/")
        if name == "generator":
            return generator_case(int(partitions or 1))
        if name == "memory":
            return memory_case(int(partitions or 1))
        if name == "kafka":
            return kafka_case(request.getfixturevalue("kafka"), int(partitions))
        if name == "delta":
            return delta_case(tmp_path)
        if name == "directories":
            return directories_case(tmp_path)
        return file_case(name, tmp_path, spark)
