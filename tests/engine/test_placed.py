"""Placed partitions with the one executor that local mode has."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import transom as tm
from transom.engine.placed import placed
from transom.engine.placed.mapped import open_table


def test_rows_come_back_by_partition(spark: SparkSession) -> None:
    tasks = placed.Tasks(spark, ["driver"] * 4)
    frame = spark.range(100).selectExpr("id", "CAST(id % 10 AS string) AS key")
    files = placed.place(frame, placed.partition_of(["key"], 4), tasks, "t")
    assert sum(file.rows for file in files) == 100
    paths = [file.path for file in files]
    tables = [open_table(path) for path in paths]
    keys = [set(table["key"].to_pylist()) for table in tables]
    assert sum(map(len, keys)) == 10, "a key is in one partition"
    assert pa.concat_tables(tables).sort_by("id")["id"].to_pylist() == list(range(100))
    counts = [int(answer) for answer in tasks.run(lambda number: str(open_table(paths[number]).num_rows).encode())]
    assert counts == [file.rows for file in files]
    assert tasks.run(lambda number: str(number).encode(), tasks=[2]) == [b"2"]
    rows = tasks.frame(lambda number: open_table(paths[number]).to_batches(), frame.schema)
    assert rows.where("id < 50").count() == 50
    placed.remove(files, spark)
    assert not any(Path(path).exists() for path in paths)


def test_partitions_without_rows_keep_their_columns(spark: SparkSession) -> None:
    frame = (
        spark.range(1)
        .selectExpr("id", "TIMESTAMP'2024-01-01' AS at", "CAST(1.50 AS DECIMAL(10, 2)) AS price")
        .where("id > 5")
    )
    tasks = placed.Tasks(spark, ["driver"] * 2)
    files = placed.place(frame, placed.partition_of(["id"], 2), tasks, "none")
    assert [file.rows for file in files] == [0, 0]
    whole = spark.range(10).selectExpr("id", "TIMESTAMP'2024-01-01' AS at", "CAST(1.50 AS DECIMAL(10, 2)) AS price")
    full = placed.place(whole, placed.partition_of(["id"], 2), tasks, "some")
    paths = [file.path for file in full]
    back = tasks.frame(lambda number: open_table(paths[number]).to_batches(), whole.schema)
    assert sorted(map(tuple, back.collect())) == sorted(map(tuple, whole.collect()))
    assert open_table(paths[0]).schema == open_table(files[0].path).schema
    placed.remove(full, spark)
    assert open_table(files[1].path).schema.names == ["id", "at", "price"]
    placed.remove(files, spark)


def test_an_executor_that_is_none_is_refused(spark: SparkSession) -> None:
    with pytest.raises(tm.TransomError, match="no executor 7"):
        placed.Tasks(spark, ["driver", "7"])
