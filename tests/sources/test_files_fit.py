"""Which Parquet files fit a schema: the table of types, Spark's own answer, and the same whatever is beside them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from transom.model.time import ManualClock
from transom.sources.filesets.factory import files
from transom.sources.filesets.fit import fit, misfit
from transom.sources.filesets.source import FileSource
from transom.sources.schemas import as_struct

EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001
FOUND = {
    "bool": pa.array([True]),
    **{f"int{n}": pa.array([1], f"int{n}") for n in (8, 16, 32, 64)},
    **{f"uint{n}": pa.array([1], f"uint{n}") for n in (8, 16, 32, 64)},
    "float": pa.array([1], pa.float32()),
    "double": pa.array([1], pa.float64()),
    "decimal(5, 2)": pa.array([Decimal("1.00")], pa.decimal128(5, 2)),
    "decimal(25, 0)": pa.array([Decimal(1)], pa.decimal128(25, 0)),
    "string": pa.array(["1"]),
    "dictionary": pa.array(["1"]).dictionary_encode(),
    "binary": pa.array([b"1"]),
    "date": pa.array([dt.date(1970, 1, 2)]),
    "micros": pa.array([1], pa.timestamp("us")),
    "micros UTC": pa.array([1], pa.timestamp("us", "UTC")),
    "millis": pa.array([1], pa.timestamp("ms")),
    "nanos": pa.array([1], pa.timestamp("ns")),
    "time": pa.array([1], pa.time64("us")),
    "list": pa.array([[1]], pa.list_(pa.int32())),
    "struct": pa.array([{"x": 1}], pa.struct([("x", pa.int32())])),
    "map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32())),
}
WANTED = {
    "boolean": "bool",
    "tinyint": "int8",
    "smallint": "int8 int16 uint8",
    "int": "int8 int16 int32 uint8 uint16",
    "bigint": "int8 int16 int32 int64 uint8 uint16 uint32",
    "float": "float",
    "double": "float double int8 int16 int32 uint8 uint16 uint32",
    "decimal(5,2)": "decimal(5, 2)",
    "decimal(12,2)": "decimal(5, 2), int8 int16 int32",
    "decimal(30,2)": "decimal(5, 2), decimal(25, 0), int8 int16 int32 int64",
    "decimal(20,0)": "int8 int16 int32 int64 uint64",
    "string": "string dictionary binary",
    "binary": "string dictionary binary",
    "date": "date",
    "timestamp": "micros, micros UTC, millis",
    "timestamp_ntz": "micros, micros UTC, millis date",
    "array<int>": "list",
    "array<bigint>": "list",
    "array<string>": "",
    "struct<x:bigint>": "struct",
    "struct<x:string>": "",
    "struct<x:bigint,y:int>": "struct",
    "map<string,bigint>": "map",
    "map<int,int>": "",
}


@pytest.mark.parametrize("wanted", WANTED)
def test_what_fits_and_that_spark_reads_it(spark: Any, tmp_path: Path, wanted: str) -> None:
    schema = as_struct(f"c {wanted}")
    fits = {name for name, array in FOUND.items() if misfit(schema["c"].dataType, array.type) is None}
    words = WANTED[wanted]
    expected = set()
    for name in sorted(FOUND, key=len, reverse=True):
        if name in words.replace(",", " ").split() or (" " in name and name in words):
            expected.add(name)
            words = words.replace(name, " ") if " " in name else words
    assert fits == expected
    for name in fits:
        pq.write_table(pa.table({"c": FOUND[name]}), tmp_path / f"{name}.parquet")
        footer = pq.read_schema(tmp_path / f"{name}.parquet")
        assert fit(1, schema, footer, False).why_not is None
        (row,) = spark.read.schema(schema).parquet(f"file://{tmp_path}/{name}.parquet").collect()
        assert row.c is not None


def test_names() -> None:
    schema = as_struct("V bigint, w struct<A: int>")
    column = pa.field("v", pa.int64())
    assert fit(3, schema, pa.schema([column]), False).why_not is None
    assert fit(3, schema, pa.schema([column, pa.field("V", pa.int32())]), False).why_not == "there are 2 columns V"
    assert fit(3, schema, pa.schema([column, pa.field("V", pa.int32())]), True).why_not is None
    text = pa.field("w", pa.struct([("a", pa.string())]))
    assert fit(3, schema, pa.schema([text]), False).why_not == "column w.A is string, not int"
    assert fit(3, schema, pa.schema([text]), True).why_not is None


def opened(spark: Any, tmp_path: Path, schema: str) -> FileSource:
    (tmp_path / "checkpoint").mkdir(exist_ok=True)
    source = files(tmp_path / "in/*.parquet", schema)
    source.open(spark, tmp_path / "checkpoint", ManualClock(0))
    return source


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "in"
    made.mkdir()
    return made


def test_nanoseconds_and_columns_of_type_null(spark: Any, tmp_path: Path, folder: Path) -> None:
    nanos = pa.array([1_999, -1, 10**18 + 1_500, None], pa.timestamp("ns"))
    pq.write_table(pa.table({"t": nanos, "n": nanos, "s": pa.nulls(4), "i": [1, 2, 3, 4]}), folder / "a.parquet")
    micros = pa.array([5], pa.timestamp("us"))
    pq.write_table(pa.table({"t": micros, "n": micros, "s": ["x"], "i": [5]}), folder / "b.parquet")
    source = opened(spark, tmp_path, "t timestamp, n timestamp_ntz, s string, i bigint")
    assert source.latest() == 2
    assert source.unfit(0, 2) == {}
    rows = source.read(spark, 0, 2).selectExpr("unix_micros(t) t", "n", "s", "i").orderBy("i").collect()
    expected = [1, -1, 10**15 + 1, None, 5]
    assert [row.t for row in rows] == expected
    assert [row.n for row in rows] == [None if t is None else EPOCH + dt.timedelta(microseconds=t) for t in expected]
    assert [row.s for row in rows] == [None] * 4 + ["x"]


def test_nested_nanoseconds_name_the_remedy(spark: Any, tmp_path: Path, folder: Path) -> None:
    pq.write_table(pa.table({"l": pa.array([[1]], pa.list_(pa.timestamp("ns")))}), folder / "a.parquet")
    source = opened(spark, tmp_path, "l array<timestamp>")
    assert source.latest() == 1
    (why,) = source.unfit(0, 1).values()
    assert why == "column l[] is timestamp[ns], not timestamp: write it in microseconds"
    assert source.read(spark, 0, 1).count() == 0


def test_a_damaged_column_is_found_whatever_is_used(spark: Any, tmp_path: Path, folder: Path) -> None:
    for name in ("a", "b", "c"):
        pq.write_table(pa.table({"i": [1], "s": ["x" * 1_000]}), folder / f"{name}.parquet", compression="none")
    damaged = (folder / "b.parquet").read_bytes()
    at = damaged.index(b"xxxx") - 30
    (folder / "b.parquet").write_bytes(damaged[:at] + bytes(200) + damaged[at + 200 :])
    source = opened(spark, tmp_path, "i bigint, s string")
    assert source.latest() == 3
    with pytest.raises(Exception, match=r"."):
        source.read(spark, 0, 3).select("i").count()
    assert list(source.unreadable(spark, 0, 3)) == [str(folder / "b.parquet")]
    assert source.read(spark, 0, 3, skip=[str(folder / "b.parquet")]).count() == 2
