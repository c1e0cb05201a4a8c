"""What every source must do, whatever it reads."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from transom.model.time import ManualClock
from transom.sources.base import ARRIVAL, CORRUPT, ORIGIN, PARTITION, Source
from transom.sources.filesets.factory import files
from transom.sources.filesets.factory import text as text_source
from transom.sources.generated import generator
from transom.sources.inmemory import memory
from transom.sources.lakes import delta

SECOND = 1_000_000
SCHEMA = "id bigint, name string"
FILES = 6
ROWS_PER_FILE = 5


@dataclass
class Case:
    """A way to make a source over the same data as often as wanted, and to add more data."""

    make: Callable[[], Source]
    grow: Callable[[ManualClock], None]
    unit: int
    """Rows of the largest indivisible unit."""


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
    elif kind.endswith(".gz"):
        temporary.write_bytes(gzip.compress(text(number, kind.removesuffix(".gz"))))
    else:
        temporary.write_bytes(text(number, kind))
    temporary.rename(path)


def directories_case(tmp_path: Path) -> Case:
    count = 0
    for name in "ab":
        (tmp_path / name).mkdir()

    def grow(_: ManualClock) -> None:
        nonlocal count
        for _i in range(FILES // 2):
            put(tmp_path / "aab"[count % 3], count, "json")
            count += 1

    return Case(lambda: files(f"{tmp_path}/[ab]/*.json", SCHEMA, partition_by="directory"), grow, ROWS_PER_FILE)


def file_case(kind: str, tmp_path: Path, spark: object) -> Case:
    folder = tmp_path / "in put"
    folder.mkdir()
    count = 0

    def grow(_: ManualClock) -> None:
        nonlocal count
        for _i in range(FILES // 2):
            put(folder, count, kind)
            count += 1

    if kind == "log":
        return Case(lambda: text_source(f"{folder}/*.log", r"(?P<id>\d+),(?P<name>.*)", SCHEMA), grow, ROWS_PER_FILE)
    return Case(lambda: files(f"{folder}/*.{kind}", SCHEMA), grow, ROWS_PER_FILE)


def generator_case(partitions: int) -> Case:
    columns = {"id": "id", "name": "concat('n', id)", "at": "event_time"}

    def grow(clock: ManualClock) -> None:
        clock.advance(5 * SECOND)

    return Case(lambda: generator(columns, 3, start=0, partitions=partitions), grow, 1)


def delta_case(tmp_path: Path) -> Case:
    deltalake = pytest.importorskip("deltalake")
    where = str(tmp_path / "table")
    deltalake.DeltaTable.create(where, pa.schema([("id", pa.int64()), ("name", pa.string())]))
    count = 0

    def grow(_: ManualClock) -> None:
        nonlocal count
        for _i in range(FILES // 2):
            deltalake.write_deltalake(where, pa.Table.from_pylist(rows_of(count)), mode="append")
            count += 1

    return Case(lambda: delta(where), grow, ROWS_PER_FILE)


def memory_case(partitions: int) -> Case:
    source = memory(SCHEMA, partitions)
    count = 0

    def grow(_: ManualClock) -> None:
        nonlocal count
        for _i in range(FILES // 2):
            source.add(rows_of(count), partition=count % partitions)
            count += 1

    return Case(lambda: source, grow, 1)


def kafka_case(broker: Any, partitions: int) -> Case:
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

    return Case(lambda: kafka(broker.servers, topic, json_format(SCHEMA)), grow, 1)


KINDS = [
    "directories",
    "delta",
    "json",
    "csv",
    "log",
    "parquet",
    "json.gz",
    "generator",
    "generator/2",
    "memory",
    "memory/2",
]
KINDS += [pytest.param(kind, marks=pytest.mark.kafka) for kind in ("kafka/1", "kafka/2")]


@pytest.fixture(params=KINDS)
def case(request: pytest.FixtureRequest, tmp_path: Path, spark: object) -> Case:
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


def collect(source: Source, spark: Any, start: Any, end: Any) -> list[tuple[Any, ...]]:
    frame = source.read(spark, start, end)
    optional = [name for name in frame.columns if name in (CORRUPT, PARTITION, ARRIVAL, ORIGIN)]
    assert frame.columns == [*source.schema.names, *optional]
    fields = [(field.name, field.dataType) for field in frame.schema.fields][: len(source.schema.names)]
    assert fields == [(field.name, field.dataType) for field in source.schema.fields]
    rows = [tuple(row) for row in frame.collect()]
    if PARTITION in optional:
        assert {row[frame.columns.index(PARTITION)] for row in rows} <= set(range(len(source.partitions)))
    else:
        assert len(source.partitions) == 1
    if CORRUPT in optional:
        assert {row[frame.columns.index(CORRUPT)] for row in rows} <= {None}
    if rows:
        newest = max(row[frame.columns.index(ARRIVAL)] for row in rows)
        assert 0 <= source.ingested_at(start, end) - newest < 1_000, "Spark knows a file's time to the millisecond"
    return sorted(rows)


def partitions_of(source: Source, spark: Any, start: Any, end: Any) -> set[int]:
    frame = source.read(spark, start, end)
    column = PARTITION if PARTITION in frame.columns else "0"
    return {row[0] for row in frame.selectExpr(column).distinct().collect()}


def test_conformance(case: Case, tmp_path: Path, spark: Any) -> None:
    directory, clock = tmp_path / "checkpoint", ManualClock(0)
    directory.mkdir()
    source = case.make()
    source.open(spark, directory, clock)
    assert source.describe()
    assert "\n" not in source.describe()

    begin = source.start()
    while source.latest() == begin:
        case.grow(clock)
    middle = source.latest()
    case.grow(clock)
    end = source.latest()
    assert middle != end
    assert source.latest() == end
    assert all(json.loads(json.dumps(offset)) == offset for offset in (begin, middle, end))

    # Ranges of cuts are within the limit, except for one unit, and concatenate to the whole.
    for limit in (1, case.unit, 2 * case.unit + 1, 10**9):
        position, pieces, total = begin, [], 0
        while position != end:
            cut = source.cut(position, limit)
            assert cut.end != position
            assert cut.rows <= max(limit, case.unit)
            total += cut.rows
            pieces.append((position, cut.end))
            position = cut.end
        assert source.cut(position, limit).end == end
        assert source.cut(position, limit).rows == 0
        if limit == 2 * case.unit + 1:
            halves = pieces
    whole = collect(source, spark, begin, end)
    assert total == len(whole) == len(set(whole))
    ids = [row[source.schema.names.index("id")] for row in whole]
    assert ids == list(range(len(whole)))
    parts = [row for first, last in halves[:2] for row in collect(source, spark, first, last)]
    parts += collect(source, spark, halves[1][1], end)
    assert sorted(parts) == whole

    # Which partitions have rows is known without reading them.
    for start in (begin, middle, end):
        assert source.waiting(start).partitions == partitions_of(source, spark, start, end)
        assert source.waiting(start).at == clock.monotonic()

    # Nothing is an empty DataFrame of the same columns.
    assert collect(source, spark, middle, middle) == []
    assert source.unreadable(spark, begin, end) == {}
    assert source.ingested_at(begin, middle) <= source.ingested_at(begin, end)
    assert source.exhausted(end) or "generator" in source.describe()
    assert not source.exhausted(begin) or "generator" in source.describe()
    source.release(middle)
    before = collect(source, spark, middle, end)
    source.close()

    # The same directory gives the same rows for the same offsets.
    again = case.make()
    again.open(spark, directory, clock)
    assert again.latest() == end
    assert collect(again, spark, middle, end) == before
    assert collect(again, spark, begin, end) == whole
    case.grow(clock)
    assert again.latest() != end
    assert collect(again, spark, middle, end) == before
    again.close()
