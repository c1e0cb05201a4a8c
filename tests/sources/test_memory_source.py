from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from transom.errors import DefinitionError, SourceError
from transom.model.time import ManualClock
from transom.sources.base import ARRIVAL, PARTITION, Cut
from transom.sources.inmemory import memory

UTC = UTC
SCHEMA = "at timestamp, micros bigint, price decimal(10,2), x double, s string, d date, l array<int>"
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
MICROS = (MOMENT - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
FULL = {
    "at": MOMENT,
    "micros": MICROS,
    "price": Decimal("1.5"),
    "x": math.nan,
    "s": "ü",
    "d": date(2026, 1, 2),
    "l": [1, None],
}


def test_python_values_arrive_as_they_are(spark: Any) -> None:
    source = memory(SCHEMA)
    source.add([FULL, {}, {"at": MICROS, "price": 2}])
    source.add([tuple(FULL.values())])
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        frame = source.read(spark, 0, source.latest())
        rows = frame.selectExpr("unix_micros(at) at", "micros", "price", "x", "s", "d", "l").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert [row.at for row in rows] == [MICROS, None, MICROS, MICROS]
    assert [row.price for row in rows] == [Decimal("1.50"), None, Decimal("2.00"), Decimal("1.50")]
    assert math.isnan(rows[0].x)
    assert rows[1].x is None
    assert (rows[0].micros, rows[0].s, rows[0].d, rows[0].l) == (MICROS, "ü", date(2026, 1, 2), [1, None])


def test_tables_and_data_frames_are_taken(spark: Any) -> None:
    table = pa.table({"b": ["x", "y"], "a": pa.array([1, 2], pa.int32())})
    source = memory("a bigint, b string")
    polars = pytest.importorskip("polars")
    for data in (table, table.to_batches()[0], table.to_pandas(), polars.from_arrow(table)):
        source.add(data)
    source.add(spark.createDataFrame([(1, "x"), (2, "y")], "a int, b string"))
    rows = [tuple(row)[:2] for row in source.read(spark, 0, source.latest()).collect()]
    assert rows == [(1, "x"), (2, "y")] * 5


def test_watermarks_take_an_offset_of_their_own(spark: Any) -> None:
    source = memory("a int")
    source.add([(1,), (2,), (3,)])
    source.add_watermark(50)
    source.add([(4,)])
    source.add_watermark(40)
    assert source.latest() == 6
    assert [source.watermark(end) for end in range(7)] == [None] * 4 + [50, 50, 50]
    assert source.cut(0, 2) == Cut(2, 2)
    assert source.cut(2, 1) == Cut(4, 1)
    assert source.cut(2, 9) == Cut(6, 2)
    assert source.cut(3, 9) == Cut(6, 1)
    assert source.cut(5, 9) == Cut(6, 0)
    assert source.exhausted(6)
    assert not source.exhausted(5)


def test_partitions_and_ingestion_time(spark: Any, tmp_path: Path) -> None:
    source, clock = memory("a int", partitions=2), ManualClock(100)
    source.open(spark, tmp_path, clock)
    source.add([(1,), (2,)], partition=1)
    clock.advance(5)
    source.add([(3,)])
    rows = source.read(spark, 1, 3).collect()
    assert [(row.a, row[PARTITION]) for row in rows] == [(2, 1), (3, 0)]
    assert (source.ingested_at(0, 2), source.ingested_at(0, 3)) == (100, 105)
    assert source.read(spark, 1, 1).columns == ["a", PARTITION, ARRIVAL]


def test_rows_that_do_not_fit_are_refused(spark: Any) -> None:
    source = memory("a int")
    for rows in ([("x",)], [(1, 2)], [{"b": 1}], [(2**40,)], 5, pa.table({"b": [1]})):
        with pytest.raises(SourceError, match="do not fit"):
            source.add(rows)
    with pytest.raises(SourceError, match="no partition 1"):
        source.add([(1,)], partition=1)
    with pytest.raises(DefinitionError):
        memory("a int", partitions=0)
    assert source.latest() == 0
