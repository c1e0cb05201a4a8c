"""Datasets that are derived from others: what they hold, what is refused, and how lost ones come back."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import transom as tm

STEPS = 7


def trips(spark: SparkSession, hour: int) -> DataFrame:
    number = (F.col("id") * 31 + hour) % 40
    cell = F.when(number == 0, None).otherwise(F.concat(F.lit("c"), number))
    return spark.range(500).select(cell.alias("cell"), ((F.col("id") + hour) % 7).alias("fare"))


def merging() -> Any:
    """Return what makes the sums of the fares by cell, of sums before and of new trips; sent to tasks by value."""

    def merged(tables: list[pa.Table]) -> pa.Table:
        rows = pa.concat_tables([table.rename_columns(["cell", "fare"]) for table in tables])
        return rows.group_by("cell", use_threads=False).aggregate([("fare", "sum")])

    return merged


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def sums(spark: SparkSession, hours: range) -> list[tuple[Any, ...]]:
    rows = trips(spark, hours[0])
    for hour in hours[1:]:
        rows = rows.unionAll(trips(spark, hour))
    return sorted((tuple(row) for row in rows.groupBy("cell").agg(F.sum("fare")).collect()), key=repr)


class Running:
    """Hourly trips, and their sums so far."""

    def __init__(self, spark: SparkSession, **options: Any) -> None:
        self.spark = spark
        options = {"namespace": "running", **options}
        self.hourly = tm.Collection(spark, "hourly", ["cell"], 6, **options)
        self.sums = tm.Collection(spark, "sums", ["cell"], 6, namespace=options["namespace"])

    def step(self, hour: int) -> None:
        self.hourly.add(hour, trips(self.spark, hour))
        before = [self.sums[hour - 1]] if hour else []
        self.sums.derive(hour, merging(), [*before, self.hourly[hour]])

    def lose(self, *labels: int, partitions: tuple[int, ...] = (1, 4)) -> None:
        """Let some partitions of all datasets be gone."""
        for collection in (self.hourly, self.sums):
            for label in labels:
                for number in partitions:
                    os.unlink(collection._datasets[label].files[number].path)

    def close(self) -> None:
        self.hourly.close()
        self.sums.close()


@pytest.fixture
def running(spark: SparkSession) -> Iterator[Running]:
    made = Running(spark)
    for hour in range(3):
        made.step(hour)
    yield made
    made.close()


@pytest.fixture(scope="module")
def first_step(spark: SparkSession) -> Iterator[Running]:
    """For what is refused: it stays as it is."""
    made = Running(spark, namespace="first step")
    made.step(0)
    yield made
    made.close()


def test_a_running_result_equals_spark_s_over_everything(spark: SparkSession, running: Running) -> None:
    assert rows_of(running.sums[2].table()) == sums(spark, range(3))
    assert sorted(map(tuple, running.sums[2].df().collect()), key=repr) == sums(spark, range(3))
    assert running.sums.all().count() == 3 * len(sums(spark, range(3)))
    assert running.hourly[2].join(running.sums[2]).count() == trips(spark, 2).where("cell IS NOT NULL").count()


def test_only_what_is_lost_is_made_again_from_what_is_there(spark: SparkSession, running: Running) -> None:
    files = [file.path for file in running.sums._datasets[2].files]
    running.lose(2)
    running.sums._datasets[1].files[1] = replace(running.sums._datasets[1].files[1], executor="gone")
    assert rows_of(running.sums[2].table()) == sums(spark, range(3))
    again = [file.path for file in running.sums._datasets[2].files]
    assert [a != b for a, b in zip(files, again, strict=True)] == [n in (1, 4) for n in range(6)]
    assert all(Path(file.path).exists() for file in running.hourly._datasets[2].files)


def test_what_is_evicted_or_dropped_comes_back_from_the_beginning(spark: SparkSession, running: Running) -> None:
    running.sums.evict(0, 1, 2)
    running.hourly.drop(0, 1)
    running.sums.drop(0)
    assert rows_of(running.sums[2].table()) == sums(spark, range(3))
    assert running.sums._datasets[1].files == [], "nobody asked for it"
    assert rows_of(running.sums[1].where(pc.field("fare_sum") > 5).table()) == [
        each for each in sums(spark, range(2)) if each[1] > 5
    ]


def test_views_are_filtered_and_joined_before_they_are_given(spark: SparkSession, running: Running) -> None:
    with tm.Collection(spark, "few", ["cell"], 6, namespace="running") as few:
        large = running.hourly.between(0, 2).where(pc.field("fare") == 6).join(running.sums[1])
        few.derive("large", lambda tables: tables[0].select(["cell", "fare", "fare_sum"]), [large])
        found = rows_of(few["large"].table())
        few.evict("large")
        assert found == rows_of(few["large"].table())
    both = trips(spark, 0).unionAll(trips(spark, 1))
    wanted = both.where("fare = 6").join(both.groupBy("cell").agg(F.sum("fare")), "cell")
    assert found == sorted((tuple(row) for row in wanted.collect()), key=repr)


def one_bad_partition() -> Any:
    def cast(tables: list[pa.Table]) -> pa.Table:
        other = pa.int32() if "c31" in tables[0]["cell"].to_pylist() else pa.int64()
        return tables[0].set_column(1, "fare", tables[0]["fare"].cast(other))

    return cast


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda tables: tables[0].to_pydict(), "gave dict, not a table"),
        (lambda tables: tables[0].select(["fare"]), "without the key cell"),
        (
            lambda tables: tables[0].set_column(0, "cell", pc.binary_join_element_wise(tables[0]["cell"], "x", "")),
            "c.*x",
        ),
        (lambda tables: tables[0].set_column(0, "cell", pa.nulls(len(tables[0]), pa.string())), "None"),
        (one_bad_partition(), "for one partition"),
    ],
)
def test_what_is_no_partition_is_refused(first_step: Running, function: Any, message: str) -> None:
    with (
        tm.Collection(first_step.spark, "bad", ["cell"], 6, namespace="first step") as bad,
        pytest.raises(tm.DefinitionError, match=message),
    ):
        bad.derive(0, function, [first_step.hourly[0]])


def test_other_columns_and_namespaces_are_refused(spark: SparkSession, first_step: Running) -> None:
    running = first_step
    with pytest.raises(tm.DefinitionError, match="the collection has cell string, fare_sum int64"):
        running.sums.derive(9, lambda tables: tables[0], [running.hourly[0]])
    with pytest.raises(tm.DefinitionError, match="derived from nothing"):
        running.sums.derive(9, merging(), [])
    with pytest.raises(tm.DefinitionError, match="there is a dataset 0"):
        running.sums.derive(0, merging(), [running.hourly[0]])
    with tm.Collection(spark, "elsewhere", ["cell"], 6) as other, pytest.raises(tm.DefinitionError, match="apart"):
        other.derive(0, merging(), [running.hourly[0]])


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["lookahead", "cut", "edge"])
def test_checkpoints_keep_the_bound_and_old_ones_go(spark: SparkSession, tmp_path: Path, policy: Any) -> None:
    recovery = tm.Recovery("1 hour", str(tmp_path), policy)
    running = Running(spark, recovery=recovery)
    checkpointer: Any = running.sums._namespace.checkpointer
    for hour in range(STEPS):
        running.hourly.add(hour, trips(spark, hour))
        # As if it had been measured, but the same on every machine.
        node = checkpointer.lineage.datasets[running.hourly._datasets[hour].name]
        checkpointer._lineage = type(checkpointer.lineage)(
            {**checkpointer.lineage.datasets, node.name: replace(node, reading=1400.0)}
        )
        running.sums.derive(hour, merging(), [*([running.sums[hour - 1]] if hour else []), running.hourly[hour]])
        assert checkpointer.lineage.work(running.sums._datasets[hour].name) <= 3600
        if hour > 1:
            running.sums.drop(hour - 2)
            running.hourly.drop(hour - 2)
    kept = list(tmp_path.rglob("*.arrow"))
    assert checkpointer.checkpoints >= 2
    assert 6 <= len(kept) < 6 * checkpointer.checkpoints, "old checkpoints are deleted"
    assert len(checkpointer.lineage.datasets) <= 6, "what is before the checkpoint is forgotten"
    running.lose(STEPS - 1)
    running.sums.evict(STEPS - 2)
    assert rows_of(running.sums[STEPS - 1].table()) == sums(spark, range(STEPS))
    assert rows_of(running.sums[STEPS - 2].table()) == sums(spark, range(STEPS - 1))
    running.close()
    assert list(tmp_path.rglob("*.arrow")) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bound": "0 s"}, "above 0"),
        ({"policy": "best"}, "policy is 'best'"),
        ({"relax": 0.5}, "at least 1"),
        ({"relax": "3"}, "relax is '3'"),
        ({"path": None}, "path is None"),
        ({"path": "nowhere://x"}, "path is 'nowhere"),
    ],
)
def test_recoveries_that_cannot_be_are_refused(tmp_path: Path, arguments: Any, message: str) -> None:
    with pytest.raises(tm.DefinitionError, match=message):
        tm.Recovery(**{"bound": "5 s", "path": str(tmp_path), **arguments})


def test_a_namespace_has_one_bound(spark: SparkSession, tmp_path: Path) -> None:
    with tm.Collection(spark, "one", ["cell"], 6, namespace="b", recovery=tm.Recovery("5 s", str(tmp_path))):
        with pytest.raises(tm.DefinitionError, match="to one collection"):
            tm.Collection(spark, "two", ["cell"], 6, namespace="b", recovery=tm.Recovery("6 s", str(tmp_path)))
        tm.Collection(spark, "three", ["cell"], 6, namespace="b").close()


def test_the_libraries_of_recovery_are_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "scipy" else found(name))
    with pytest.raises(tm.DefinitionError, match=r'scipy, not installed here\. Run: pip install "transom\[recovery\]"'):
        tm.Recovery(bound="10 seconds", path="/nowhere")
    assert tm.Recovery(bound="10 seconds", path="/nowhere", policy="edge").seconds == 10


@pytest.mark.slow
def test_it_does_not_matter_whether_spark_knows_that_values_are_never_null(spark: SparkSession) -> None:
    """Of `id` it does, and of what is made of it; not so of what Arrow's functions give."""

    def rows(hour: int, nullable: bool) -> DataFrame:
        number = F.when(F.col("id") >= 0, F.col("id")) if nullable else F.col("id")
        values = [(number % 5).alias("cell"), number.alias("n"), F.array(number).alias("a")]
        return spark.range(hour, 20).select(*values, F.struct(number.alias("x")).alias("s"))

    def together(tables: list[pa.Table]) -> pa.Table:
        return pa.concat_tables(tables).sort_by("n")

    with (
        tm.Collection(spark, "maybe null", ["cell"], 3, namespace="null") as hourly,
        tm.Collection(spark, "ever", ["cell"], 3, namespace="null") as ever,
    ):
        for hour, nullable in enumerate([False, True, False]):
            hourly.add(hour, rows(hour, nullable))
            before = [ever[hour - 1]] if hour else []
            ever.derive(hour, together, [*before, hourly[hour]])
        numbers = sorted(number for hour in range(3) for number in range(hour, 20))
        assert sorted(ever[2].table()["n"].to_pylist()) == numbers
        assert sorted(row["s"]["x"] for row in hourly.all().df().collect()) == numbers
        assert ever.all().run(lambda table: table.select(["n", "a"])).num_rows == 20 + 39 + 57
        os.unlink(hourly._datasets[0].files[1].path)
        assert hourly.all().count() == 57
