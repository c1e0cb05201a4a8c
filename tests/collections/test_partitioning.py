"""How rows become partitions: by hash, by order, with heavy keys spread."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import transom as tm
from transom.collections.partitioning import Partitioning, heavy_keys


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"keys": ()}, "keys is empty"),
        ({"partitions": 0}, "partitions is 0"),
        ({"bounds": (1,)}, "There are 1 bounds"),
        ({"bounds": (1, 1, 2)}, "not ascending"),
        ({"keys": ("a", "b"), "bounds": (1, 2, 3)}, "bounds for 2 keys"),
    ],
)
def test_a_partitioning_that_cannot_be_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(tm.DefinitionError, match=message):
        Partitioning(**{"keys": ("a",), "partitions": 4, **values})


def test_heavy_keys_are_those_above_their_share() -> None:
    table = pa.table({"a": [1] * 60 + [2] * 30 + [None] * 10})
    assert heavy_keys(table, ["a"], 1_000, 250) == {(1,): 600, (2,): 300}
    assert heavy_keys(table, ["a"], 1_000, 50) == {(1,): 600, (2,): 300, (None,): 100}
    assert heavy_keys(table, ["a"], 1_000, 600) == {}


def test_salts_only_grow() -> None:
    plain = Partitioning(("a",), 16)
    once = plain.salted({(1,): 1_000}, 400)
    assert once.salts == {(1,): 3}
    assert once.salted({(1,): 800}, 400) is once
    assert once.salted({(1,): 10**6}, 400).salts == {(1,): 16}, "there are no more partitions"


def test_ordered_keys_are_in_ordered_partitions_and_null_in_the_last(spark: SparkSession) -> None:
    bounds = (3, 4, 9, 20)
    frame = spark.range(30).selectExpr("IF(id = 29, NULL, id) AS id")
    rows = frame.select("id", Partitioning(("id",), 5, bounds).of(frame).alias("p")).collect()
    assert all(row.p == (4 if row.id is None else sum(bound <= row.id for bound in bounds)) for row in rows)


def test_a_salted_key_is_spread_evenly_and_the_same_each_time(spark: SparkSession) -> None:
    frame = spark.range(4_000).selectExpr("id AS row", "IF(id % 2 = 0, 'hot', CAST(id % 7 AS string)) AS key")
    salted = Partitioning(("key",), 8, salts={("hot",): 4})
    found = [frame.select("key", salted.of(frame).alias("p")).collect() for _ in range(2)]
    assert found[0] == found[1]
    hot = Counter(row.p for row in found[0] if row.key == "hot")
    assert len(hot) == 4
    assert max(hot.values()) < 1.2 * 500
    plain = frame.select("key", Partitioning(("key",), 8).of(frame).alias("p")).where("key <> 'hot'").collect()
    assert [row for row in found[0] if row.key != "hot"] == plain


def test_a_key_too_large_for_a_task_is_salted_and_its_partials_merge(spark: SparkSession) -> None:
    def dataset(hour: int, hot: int) -> Any:
        key = F.when(F.col("id") < hot, 7).otherwise(F.col("id") % 40)
        return spark.range(6_000).select(key.alias("cell"), ((F.col("id") * 31 + hour) % 97).alias("fare"))

    bounds = list(range(2, 32, 2))
    with tm.Collection(spark, "crowd", keys=["cell"], partitions=16, elastic=(10_000, 60_000), bounds=bounds) as made:
        made.add(0, dataset(0, 0))
        assert made.all().salted == {}
        assert made.all().aggregate(["cell"], {"fare": "count_distinct"}).num_rows == 40
        made.add(1, dataset(1, 4_000))
        assert list(made.all().salted) == [(7,)]
        assert made._namespace.grouping.sizes([f.bytes for f in made._datasets[1].files]).max() < 40_000
        found = made.all().aggregate(["cell"], {"fare": ["count", "mean", "max"]}).sort_by("cell")
        plain = dataset(0, 0).union(dataset(1, 4_000)).groupBy("cell")
        wanted = plain.agg(F.count("fare"), F.mean("fare"), F.max("fare")).orderBy("cell")
        assert [tuple(row.values()) for row in found.to_pylist()] == [tuple(row) for row in wanted.collect()]
        with pytest.raises(tm.DefinitionError, match="keys are salted"):
            made.all().aggregate(["cell"], {"fare": "count_distinct"})
        with pytest.raises(tm.DefinitionError, match=r"\(7,\) is salted"):
            made[0].join(made[1])
        assert made[0].join(made[0], suffix="_r").count() > 0, "the dataset from before is not"
        with pytest.raises(tm.DefinitionError, match="bounds is None; in the namespace 'crowd'"):
            tm.Collection(spark, "other", keys=["cell"], partitions=16, namespace="crowd")


def test_a_range_of_ordered_keys_is_in_its_partitions_and_where_its_salted_keys_are() -> None:
    plain = Partitioning(("a",), 5, (3, 4, 9, 20))
    for first in range(-1, 24):
        for last in range(-1, 24):
            keys = range(first, last)
            wanted = {sum(bound <= key for bound in plain.bounds or ()) for key in keys}
            assert plain.between(first, last) == wanted
    salted = plain.salted({(3,): 1_000, (None,): 1_000}, 300)
    assert salted.between(3, 4) == {1, 2, 3, 4}
    assert salted.between(4, 9) == {2}
    assert Partitioning(("a",), 5).between(3, 4) is None
