"""How rows become partitions: by hash, by order, with heavy keys spread; and questions that share a job."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import transom as tm
from transom.engine.spark import sharing
from transom.engine.spark.partitioning import Partitioning, heavy_keys
from transom.engine.spark.sharing import SharedJobs


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
        assert made.groups.grouping.sizes([f.bytes for f in made._datasets[1].files]).max() < 40_000
        found = made.all().aggregate(["cell"], {"fare": ["count", "mean", "max"]}).sort_by("cell")
        plain = dataset(0, 0).union(dataset(1, 4_000)).groupBy("cell")
        wanted = plain.agg(F.count("fare"), F.mean("fare"), F.max("fare")).orderBy("cell")
        assert [tuple(row.values()) for row in found.to_pylist()] == [tuple(row) for row in wanted.collect()]
        with pytest.raises(tm.DefinitionError, match="keys are salted"):
            made.all().aggregate(["cell"], {"fare": "count_distinct"})
        with pytest.raises(tm.DefinitionError, match=r"\(7,\) is salted"):
            made[0].join(made[1])
        assert made[0].join(made[0], suffix="_r").count() > 0, "the dataset from before is not"
        with pytest.raises(tm.DefinitionError, match="or other bounds"):
            tm.Collection(spark, "other", keys=["cell"], partitions=16, namespace="crowd")


class SlowTasks:
    """Two tasks; the first job waits until it is let go."""

    def __init__(self) -> None:
        self.go, self.begun, self.jobs = threading.Event(), threading.Semaphore(0), 0

    def run(self, function: Any) -> list[bytes]:
        self.jobs += 1
        self.begun.release()
        assert self.go.wait(10)
        return [function(0), function(1)]


def failing(task: int) -> bytes:
    raise ValueError(f"task {task}")


def test_questions_during_jobs_share_the_next_and_a_failing_one_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "RUNNING", 1)
    tasks: Any = SlowTasks()
    shared = SharedJobs()
    answers: dict[int, Any] = {}

    def ask(number: int) -> None:
        try:
            answers[number] = shared.run(tasks, failing if number == 3 else lambda task: f"{number} {task}".encode())
        except ValueError as error:
            answers[number] = str(error)

    first = threading.Thread(target=ask, args=(0,))
    first.start()
    assert tasks.begun.acquire(timeout=10)
    others = [threading.Thread(target=ask, args=(number,)) for number in range(1, 6)]
    for other in others:
        other.start()
    while shared.questions < 6:
        first.join(0.01)
    tasks.go.set()
    for thread in (first, *others):
        thread.join(10)
    good = {number: [f"{number} 0".encode(), f"{number} 1".encode()] for number in range(6) if number != 3}
    assert answers == {**good, 3: "task 0"}
    assert shared.jobs == 2
    assert tasks.jobs == 3, "the failing one was run again by itself"
