"""Parquet files without Spark: each row once in any parts, and as Spark reads it, or not at all."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.native import parquet
from transom.native.parquet import ParquetReader, is_read
from transom.native.thrift import CompactReader, OddThriftError, Struct
from transom.native.values import UncertainError

UTC = pa.timestamp("us", "UTC")
NOW = 1_700_000_000_000_000
SCHEMA = pa.schema(
    [
        *(("s", pa.string()), ("x", pa.int32()), ("l", pa.int64()), ("y", pa.float64()), ("ok", pa.bool_())),
        *(("d", pa.decimal128(9, 2)), ("on", pa.date32()), ("at", UTC), ("b", pa.binary())),
    ]
)
DECLARED = "s string, x int, l bigint, y double, ok boolean, d decimal(9,2), on date, at timestamp, b binary"
ROW = st.fixed_dictionaries(
    {
        "s": st.none() | st.text("abé\U00010000", max_size=3),
        "x": st.none() | st.integers(-(2**31), 2**31 - 1),
        "l": st.none() | st.integers(-(2**63), 2**63 - 1),
        "y": st.none() | st.floats(allow_nan=False),
        "ok": st.none() | st.booleans(),
        "d": st.none() | st.integers(-(10**9) + 1, 10**9 - 1).map(lambda d: Decimal(d).scaleb(-2)),
        "on": st.none() | st.integers(-20_000, 90_000),
        "at": st.none() | st.integers(-(10**15), 10**16),
        "b": st.none() | st.binary(max_size=3),
    }
)
WRITING: list[dict[str, Any]] = [
    {},
    {"use_dictionary": False, "compression": "none", "store_schema": False},
    {"data_page_version": "2.0", "compression": "zstd"},
    {"data_page_version": "2.0", "compression": "none", "use_dictionary": ["s", "y"], "write_page_checksum": True},
    {"compression": "gzip", "store_decimal_as_integer": True, "write_page_index": True},
    {"version": "1.0", "data_page_size": 16, "write_batch_size": 2},
    {"row_group_size": 4, "data_page_size": 9, "write_batch_size": 1, "column_encoding": None},
]
"""Ways in which Arrow writes files that are read."""


def as_numbers(rows: pa.Table | pa.RecordBatch) -> list[str]:
    """Return rows as texts, dates and times as numbers: Python has not all years."""
    columns = {}
    for field in rows.schema:
        column = rows.column(field.name)
        number = {"date32[day]": pa.int32(), "timestamp[us, tz=UTC]": pa.int64()}.get(str(field.type))
        columns[field.name] = column.cast(number) if number is not None else column
    return [repr(row) for row in pa.table(columns).to_pylist()]


def read(path: Path, schema: pa.Schema = SCHEMA) -> list[str] | None:
    """Return the rows of a file; None if Spark has to judge."""
    try:
        return [row for batch in ParquetReader(schema).read(str(path)) for row in as_numbers(batch)]
    except (UncertainError, OSError):
        return None


@given(
    st.lists(ROW, min_size=1, max_size=20),
    st.sampled_from(WRITING),
    st.integers(1, 30),
    st.lists(st.integers(1, 3_000)),
)
def test_rows_are_read_once_in_any_parts(
    tmp_path_factory: Any, rows: list[dict[str, Any]], writing: dict[str, Any], group: int, edges: list[int]
) -> None:
    """As they were written, in their order; row groups belong to the part in which they begin."""
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    table = pa.Table.from_pylist(rows, SCHEMA)
    pq.write_table(
        table.append_column("other", pa.nulls(len(rows), pa.list_(pa.int8()))),
        path,
        **{"row_group_size": group, **writing},
    )
    reader = ParquetReader(SCHEMA)
    parts = itertools.pairwise([0, *sorted(edges), None])
    found = [
        row for start, end in parts for batch in reader.read(str(path), start or 0, end) for row in as_numbers(batch)
    ]
    assert found == as_numbers(table)


def test_types_that_only_spark_reads_are_refused() -> None:
    """So that nobody expects them to be read."""
    for kind in (pa.timestamp("us"), pa.list_(pa.int8()), pa.struct([("a", pa.int8())]), pa.uint8(), pa.time64("us")):
        assert not is_read(kind)
        with pytest.raises(ValueError, match=r"not read without Spark: .*t: "):
            ParquetReader(pa.schema([("t", kind)]))


VALUES: dict[str, pa.Array] = {
    "int8": pa.array([1, -128, None], pa.int8()),
    "int16": pa.array([1, -(2**15)], pa.int16()),
    "int32": pa.array([1, 2**31 - 1, None], pa.int32()),
    "int64": pa.array([1, -(2**63), None], pa.int64()),
    "uint8": pa.array([1, 255], pa.uint8()),
    "uint32": pa.array([1, 2**32 - 1], pa.uint32()),
    "uint64": pa.array([1, 2**64 - 1], pa.uint64()),
    "half": pa.array([1.0, 0.5]).cast(pa.float16()),
    "float": pa.array([1.5, float("nan"), -0.0, None], pa.float32()),
    "double": pa.array([1.5, float("inf"), -0.0, None], pa.float64()),
    "bool": pa.array([True, False, None]),
    "text": pa.array(["a", "", "é", None]),
    "large text": pa.array(["a", None], pa.large_string()),
    "text of a dictionary": pa.array(["a", "a", None]).dictionary_encode(),
    "text that is none": pa.array([b"a", b"\xff"]).view(pa.string()),
    "bytes": pa.array([b"a", b"\xff", None]),
    "fixed bytes": pa.array([b"ab", b"cd"], pa.binary(2)),
    "decimal(9,2)": pa.array([Decimal("1.25"), None], pa.decimal128(9, 2)),
    "decimal(20,2)": pa.array([Decimal("1.25"), Decimal("-123456789012345678.99")], pa.decimal128(20, 2)),
    "decimal(9,0)": pa.array([Decimal(5)], pa.decimal128(9, 0)),
    "decimal(40,2)": pa.array([Decimal("1.25")], pa.decimal256(40, 2)),
    "date": pa.array([0, 20_000, None], pa.date32()),
    "date before 1900": pa.array([-200_000], pa.date32()),
    "date in milliseconds": pa.array([86_400_000], pa.date64()),
    "time": pa.array([5], pa.time64("us")),
    "duration": pa.array([5], pa.duration("us")),
    "seconds": pa.array([5], pa.timestamp("s", "UTC")),
    "milliseconds": pa.array([5, None], pa.timestamp("ms", "UTC")),
    "milliseconds that are too many": pa.array([2**62], pa.timestamp("ms", "UTC")),
    "microseconds": pa.array([NOW, 2**62, None], UTC),
    "microseconds elsewhere": pa.array([NOW], pa.timestamp("us", "Asia/Tokyo")),
    "microseconds before 1900": pa.array([-(2**52)], UTC),
    "nanoseconds": pa.array([NOW * 1_000 + 1], pa.timestamp("ns", "UTC")),
    "wall clock": pa.array([NOW], pa.timestamp("us")),
    "nothing": pa.nulls(2),
    "list": pa.array([[1], None]),
    "struct": pa.array([{"a": 1}, None]),
}
NAMED = {"same": ["a"], "case": ["A"], "twice": ["a", "A"], "missing": ["b"], "inside": ["a.b"]}
KINDS = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "decimal(9,2)": pa.decimal128(9, 2),
    "decimal(20,2)": pa.decimal128(20, 2),
    "date": pa.date32(),
    "timestamp": UTC,
}


def test_types_are_read_as_spark_reads_them_or_left_to_it(interpreted: Any, tmp_path: Path) -> None:
    """Each type that Arrow writes, against each that can be declared; names in another case, twice, or not there."""
    readable: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for kind, values in VALUES.items():
        for how, names in NAMED.items():
            path = tmp_path / f"{kind} {how}.parquet"
            pq.write_table(pa.table([values] * len(names), names), path, compression="none")
            for declared, wanted in KINDS.items():
                found = read(path, pa.schema([("a", wanted)]))
                if found is not None:
                    assert how == "same"
                    readable[declared][path.name] = found
    assert {f"{kind} same.parquet" for kind in ("int8", "int32", "int64")} == readable["bigint"].keys() - {
        "int16 same.parquet"
    }
    assert readable["timestamp"].keys() == {
        f"{kind} same.parquet" for kind in ("seconds", "milliseconds", "microseconds", "microseconds elsewhere")
    }
    for declared, files in readable.items():
        assert of_spark(interpreted, f"a {declared}", [tmp_path / name for name in files]) == files


def of_spark(spark: Any, declared: str, paths: list[Path]) -> dict[str, list[str]]:
    """Return the rows that Spark reads of files that it can read, by their names."""
    from pyspark.sql import functions as F

    rows = (
        spark.read.schema(declared).option("ignoreCorruptFiles", "true").parquet(*(f"file://{path}" for path in paths))
    )
    numbers = {"date": F.unix_date, "timestamp": F.unix_micros}
    columns = [numbers.get(kind, F.col)(name).alias(name) for name, kind in rows.dtypes]
    found: dict[str, list[str]] = defaultdict(list)
    for row in rows.select(F.col("_metadata.file_name").alias("file name"), *columns).toArrow().to_pylist():
        found[unquote(row.pop("file name"))].append(repr(row))
    return dict(found)


@pytest.mark.parametrize("damaged", [40, pytest.param(400, marks=pytest.mark.slow)])
def test_damaged_files_are_read_as_spark_reads_them_or_left_to_it(
    interpreted: Any, tmp_path: Path, damaged: int
) -> None:
    """Whatever bytes are others: nothing is read otherwise, and what Spark cannot read is not read.

    But for damage among values that have no sums, which takes none of them away: Spark's decoder finds some of it.
    """
    draw = random.Random(damaged)
    rows = [
        {
            "s": [None, "a", "bé", "", "long text"][n % 5],
            "x": None if n % 4 == 1 else n * 7919 - 30,
            "l": n * 10**12,
            "y": None if n % 7 == 3 else n / 3,
            "ok": [None, True, False][n % 3],
            "d": Decimal(n) / 4,
            "on": 19_000 + n,
            "at": NOW + n,
            "b": b"x" * (n % 3),
        }
        for n in range(14)
    ]
    read_rows: dict[str, list[str]] = {}
    whole = 0
    for number, writing in enumerate(WRITING):
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), tmp_path / "good", **writing)
        good = (tmp_path / "good").read_bytes()
        for case in range(damaged):
            path = tmp_path / f"{number}-{case}.parquet"
            content = bytearray(good)
            for _ in range(draw.choice([1, 1, 1, 3])):
                place = draw.randrange(len(content))
                content[place] = draw.choice([content[place] ^ 1 << draw.randrange(8), draw.randrange(256)])
            path.write_bytes(content if draw.random() < 0.95 else content[: draw.randrange(len(content))])
            mine = read(path)
            if mine is not None:
                read_rows[path.name] = mine
                whole += len(mine) == len(rows)
    assert whole > len(WRITING) * damaged // 20
    found = of_spark(interpreted, DECLARED, [tmp_path / name for name in read_rows])
    others = [name for name, mine in read_rows.items() if found.get(name) != mine]
    assert all(len(found.get(name, [])) < len(rows) for name in others), others
    assert len(others) <= len(read_rows) // 300, others


@pytest.mark.parametrize(
    "content",
    [b"", b"PAR1PAR1", b"PAR1" + bytes(4) + b"PAR1", b"PAR1\0\1\0\0\0PAR1", b"x" * 100],
    ids=["empty", "short", "no footer", "an empty footer", "another format"],
)
def test_what_is_no_parquet_file_is_sparks(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.parquet").write_bytes(content)
    assert read(tmp_path / "x.parquet") is None
    assert read(tmp_path / "not there.parquet") is None


@pytest.mark.parametrize(
    "writing",
    [
        {"column_encoding": {"l": "DELTA_BINARY_PACKED"}},
        {"column_encoding": {"y": "BYTE_STREAM_SPLIT"}},
        {"compression": "brotli"},
        {"compression": "lz4"},
    ],
    ids=["differences", "split bytes", "brotli", "lz4"],
)
def test_what_spark_may_not_unpack_is_sparks(tmp_path: Path, writing: dict[str, Any]) -> None:
    """It knows some of them, of some versions."""
    table = pa.Table.from_pylist([{"l": 1, "y": 0.5}] * 5, SCHEMA)
    pq.write_table(table, tmp_path / "x.parquet", **writing, use_dictionary=False)
    assert read(tmp_path / "x.parquet") is None
    pq.write_table(table, tmp_path / "x.parquet", use_dictionary=False)
    assert read(tmp_path / "x.parquet") == as_numbers(table)


def test_an_encrypted_file_is_sparks(tmp_path: Path) -> None:
    """As only it has the keys; a damaged end is none of its forms."""
    pq.write_table(pa.Table.from_pylist([{"l": 1}], SCHEMA), tmp_path / "x.parquet")
    content = (tmp_path / "x.parquet").read_bytes()
    (tmp_path / "x.parquet").write_bytes(b"PARE" + content[4:-4] + b"PARE")
    assert read(tmp_path / "x.parquet") is None


def test_batches_have_few_rows(tmp_path: Path) -> None:
    """Whatever the row groups are, so that memory is bounded."""
    table = pa.table({"l": pa.array(range(parquet.ROWS * 2 + 1))})
    pq.write_table(table, tmp_path / "x.parquet")
    batches = list(ParquetReader(table.schema).read(str(tmp_path / "x.parquet")))
    assert max(batch.num_rows for batch in batches) <= parquet.ROWS
    assert pa.Table.from_batches(batches).equals(table)


PAIR = Struct({1: "i32", 2: "bool", 3: ["binary"], 4: frozenset([0, 7]), 5: "i8"}, frozenset([1]))


def test_structures_of_thrift() -> None:
    """Numbers of fields are differences, whole numbers are folded, truths are types."""
    reader = CompactReader(b"\x15\x03\x11\x19\x28\x01a\x00\x15\x0e\x13\xff\x00rest")
    assert reader.struct(PAIR) == {1: -2, 2: True, 3: [b"a", b""], 4: 7, 5: -1}
    assert reader.place == 13


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"\x00", b"\x15", b"\x15\x03", b"\x16\x03\x00", b"\x15\x03\x05\x02\x03\x00", b"\x15\x03\x65\x00\x00"),
        *(
            b"\x15\x80\x00\x00",
            b"\x15\xff\xff\xff\xff\xff\x01\x00",
            b"\x15\x03\x35\x02\x00",
            b"\x15\x03\x29\x25\x02\x02\x00",
        ),
        *(b"\x15\x03\x29\xf8\xff\xff\xff\x7f", b"\x15\x03\x29\x18\x05a\x00"),
    ],
)
def test_structures_of_thrift_that_are_others(data: bytes) -> None:
    """Fields that are missing, unknown, there twice or of other types; numbers that are too long; early ends."""
    with pytest.raises(OddThriftError):
        CompactReader(data).struct(PAIR)
