"""Which keys are equal, as Spark has it, and what users may write for one."""

from __future__ import annotations

import math
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import transom as tm
from transom.collections.keyvalues import key_value, plain_table
from transom.collections.partitioning import Partitioning

OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000001))[0]
NOON = datetime(2024, 1, 1, 12)  # noqa: DTZ001


def bits(value: float | None) -> str:
    return "NULL" if value is None else struct.pack("<d", value).hex()


@pytest.mark.parametrize("kind", ["double", pytest.param("float", marks=pytest.mark.slow)])
def test_keys_that_spark_takes_for_equal_are_one_key(kind: str, spark: SparkSession) -> None:
    values = [0.0, -0.0, math.nan, OTHER_NAN, None, 1.5, 1.5]
    frame = spark.createDataFrame([(value, 1.0) for value in values], f"k {kind}, v double")
    with tm.Collection(spark, f"keys {kind}", keys=["k"], partitions=4) as made:
        made.add(0, frame)
        made.add(1, frame)
        assert counts(made[0].aggregate(["k"], {"v": "count"})) == spark_counts(frame)
        assert counts(made[0].aggregate(["v", "k"], {"v": "count"}).select(["k", "v_count"])) == spark_counts(frame)
        assert made[0].join(made[1]).count() == frame.join(frame.withColumnRenamed("v", "w"), "k").count()

        def negated(tables: list[pa.Table]) -> pa.Table:  # the same keys for Spark
            keys = [each if each != 0 else -each for each in tables[0]["k"].to_pylist()]
            return tables[0].set_column(0, "k", pa.array(keys, tables[0].schema.field("k").type))

        made.derive(2, negated, [made[0]])
        assert counts(made[2].aggregate(["k"], {"v": "count"})) == spark_counts(frame)


def counts(table: pa.Table) -> list[tuple[str, int]]:
    return sorted((bits(row["k"]), row["v_count"]) for row in table.to_pylist())


def spark_counts(frame: DataFrame) -> list[tuple[str, int]]:
    return sorted((bits(row.k), row.n) for row in frame.groupBy("k").agg(F.count("v").alias("n")).collect())


def test_other_columns_are_grouped_and_counted_as_spark_does(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, 0.0), (1, -0.0), (2, 3.0)], "k int, v double")
    with tm.Collection(spark, "others", keys=["k"], partitions=4) as made:
        made.add(0, frame)
        found = made.all().aggregate(["v"], {"k": "count"}).sort_by("v").to_pylist()
        assert found == [{"v": 0.0, "k_count": 2}, {"v": 3.0, "k_count": 1}]
        distinct = made.all().aggregate(["k"], {"v": "count_distinct"}).sort_by("k")
        assert distinct["v_count_distinct"].to_pylist() == [1, 1]


@pytest.mark.parametrize("kind", ["string collate UTF8_LCASE", "struct<a:double>", "array<float>", "map<int,int>"])
def test_keys_whose_equality_executors_do_not_know_are_refused(kind: str, spark: SparkSession) -> None:
    with (
        tm.Collection(spark, f"refused {kind}", keys=["k"], partitions=4) as made,
        pytest.raises(tm.DefinitionError, match="The key k has type"),
    ):
        made.add(0, spark.createDataFrame([], f"k {kind}, v int"))


def test_dots_in_names_of_keys_are_only_dots(spark: SparkSession) -> None:
    with tm.Collection(spark, "dots", keys=["a.b"], partitions=4, bounds=[1.0, 2.0, 3.0]) as made:
        made.add(0, spark.createDataFrame([(-0.0, 1), (2.5, 2)], "`a.b` double, `a` int"))
        assert made[0].key_range(0, 1).table().to_pylist() == [{"a.b": 0.0, "a": 1}]


def test_a_first_dataset_that_fails_decides_nothing(spark: SparkSession) -> None:
    with tm.Collection(spark, "first", keys=["k"], partitions=4) as made:
        with pytest.raises(tm.TransomError):
            made.add(0, spark.range(3).select((F.col("id") / F.lit(0)).cast("int").alias("k")))
        made.add(0, spark.range(3).select(F.col("id").alias("k")))
        assert made[0].count() == 3


def test_plain_columns_keep_type_and_place() -> None:
    table = pa.table({"a": pa.array([-0.0, None], pa.float32()), "b": [1, 2], "c": ["x", "y"]})
    plain = plain_table(table, ["a", "c", "none"])
    assert plain.schema == table.schema
    assert [bits(value) for value in plain["a"].to_pylist()] == [bits(0.0), "NULL"]


@pytest.mark.parametrize(
    ("value", "kind", "found"),
    [
        (2.5, pa.int64(), 3),
        (float(2**53), pa.int64(), 2**53),
        (math.inf, pa.int32(), math.inf),
        (3, pa.float64(), 3.0),
        (Decimal("1.5"), pa.decimal128(10, 2), Decimal("1.50")),
        (1, pa.decimal128(10, 2), Decimal("1.00")),
        ("a", pa.string(), "a"),
        (date(2024, 1, 1), pa.date32(), date(2024, 1, 1)),
        (NOON, pa.timestamp("us"), NOON),
        (NOON.replace(tzinfo=UTC), pa.timestamp("us", "Asia/Tokyo"), NOON.replace(tzinfo=UTC)),
    ],
)
def test_bounds_are_values_of_the_key(value: Any, kind: pa.DataType, found: Any) -> None:
    assert key_value(value, kind, "first") == found


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, pa.int64()),
        (math.nan, pa.float64()),
        (math.nan, pa.int64()),
        (2**64, pa.int64()),
        (True, pa.int64()),
        ("1", pa.int64()),
        (b"a", pa.string()),
        (1.005, pa.decimal128(10, 2)),
        (NOON, pa.date32()),
        (NOON, pa.timestamp("us", "UTC")),
        (NOON.replace(tzinfo=UTC), pa.timestamp("us")),
    ],
)
def test_others_are_refused_by_name(value: Any, kind: pa.DataType) -> None:
    with pytest.raises(tm.DefinitionError, match=r"^first is .*, and the key is "):
        key_value(value, kind, "first")


def test_bounds_that_are_no_keys_are_refused(spark: SparkSession) -> None:
    with pytest.raises(tm.DefinitionError, match=r"bounds\[1\] is 2.5 \(float\)"):
        Partitioning(("k",), 3, (1, 2.5)).check([pa.int64()])
    Partitioning(("k",), 3, (1.0, 2)).check([pa.int64()])


def test_ordered_times_are_found_in_any_zone_of_the_machine(spark: SparkSession) -> None:
    for zone, kind in ((UTC, "timestamp"), (None, "timestamp_ntz")):
        bounds = [datetime(2024, 1, day, tzinfo=zone) for day in (2, 3)]
        rows = [(datetime(2024, 1, day, hour, tzinfo=zone),) for day in (1, 2, 3) for hour in (0, 12)]
        with tm.Collection(spark, f"times {kind}", keys=["at"], partitions=3, bounds=bounds) as made:
            made.add(0, spark.createDataFrame(rows, f"at {kind}"))
            assert [file.rows for file in made._datasets[0].files] == [2, 2, 2]
            assert made[0].key_range(bounds[0], bounds[1]).count() == 2


def test_a_heavy_nan_is_salted_once() -> None:
    once = Partitioning(("k",), 16).salted({(float("nan"),): 1_000}, 400)
    assert once.salted({(float("nan"),): 1_000}, 400) is once
