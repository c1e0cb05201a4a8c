"""Collections with one executor: what they answer equals what Spark answers, what they refuse and why."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import transom as tm
from transom.collections import namespaces, workers
from transom.collections import registry as known_namespaces
from transom.engine.placed import placed
from transom.model.time import ManualClock


def trips(spark: SparkSession, hour: int, rows: int = 500) -> DataFrame:
    number = (F.col("id") * 31 + hour) % 40
    cell = F.when(number == 0, None).otherwise(F.concat(F.lit("c"), number))
    return spark.range(rows).select(
        cell.alias("cell"), ((F.col("id") + hour) % 7).alias("fare"), F.lit(hour).alias("h")
    )


@pytest.fixture(scope="module")
def collection(spark: SparkSession) -> Any:
    with tm.Collection(spark, "trips", keys=["cell"], partitions=8) as made:
        for hour in range(4):
            made.add(hour, trips(spark, hour))
        yield made


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def spark_rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def union(spark: SparkSession, *hours: int) -> DataFrame:
    frames = [trips(spark, hour) for hour in hours]
    return frames[0] if len(frames) == 1 else frames[0].unionByName(union(spark, *hours[1:]))


def test_aggregates_by_the_keys_equal_spark_s(spark: SparkSession, collection: tm.Collection) -> None:
    found = collection.between(1, 3).aggregate(["cell"], {"fare": ["count", "mean", "max"], "h": "count_distinct"})
    plain = union(spark, 1, 2).groupBy("cell")
    wanted = plain.agg(F.count("fare"), F.avg("fare"), F.max("fare"), F.countDistinct("h"))
    assert found.column_names == ["cell", "fare_count", "fare_mean", "fare_max", "h_count_distinct"]
    assert rows_of(found) == spark_rows(wanted)


def test_aggregates_by_other_columns_are_merged(spark: SparkSession, collection: tm.Collection) -> None:
    found = collection.all().where(pc.field("fare") > 2).aggregate(["h"], {"fare": ["sum", "mean"], "cell": "count"})
    plain = union(spark, 0, 1, 2, 3).where("fare > 2").groupBy("h")
    assert rows_of(found) == spark_rows(plain.agg(F.sum("fare"), F.avg("fare"), F.count("cell")))
    total = collection.all().aggregate([], {"fare": ["sum", "min"]})
    assert total.to_pylist() == [{"fare_sum": union(spark, 0, 1, 2, 3).agg(F.sum("fare")).first()[0], "fare_min": 0}]
    with pytest.raises(tm.DefinitionError, match="count_distinct of cell by"):
        collection.all().aggregate(["h"], {"cell": "count_distinct"})


def test_rows_are_united_counted_and_given_as_a_dataframe(spark: SparkSession, collection: tm.Collection) -> None:
    view = collection.between(0, 2)
    plain = union(spark, 0, 1)
    assert view.count() == plain.count()
    assert rows_of(view.table()) == spark_rows(plain) == spark_rows(view.df())
    assert view.df().dtypes == plain.dtypes
    assert spark_rows(view.select("fare").where(pc.field("fare") == 6).df()) == spark_rows(
        plain.select("fare").where("fare = 6")
    )


def test_cogrouped_tables_hold_all_rows_of_their_keys(spark: SparkSession, collection: tm.Collection) -> None:
    def both(tables: list[pa.Table]) -> pa.Table:
        cells = [set(table["cell"].to_pylist()) for table in tables]
        return pa.table({"cell": sorted(cells[0] & cells[1], key=repr)}, schema=pa.schema([("cell", pa.string())]))

    found = collection.between(0, 2).cogroup(both)
    wanted = trips(spark, 0).select("cell").intersect(trips(spark, 1).select("cell"))
    assert rows_of(found) == spark_rows(wanted)


def test_collections_of_one_namespace_are_joined(spark: SparkSession, collection: tm.Collection) -> None:
    names = spark.range(1, 30).select(F.concat(F.lit("c"), "id").alias("zone"), (F.col("id") * 2).alias("size"))
    with tm.Collection(spark, "zones", keys=["zone"], partitions=8, namespace="trips") as zones:
        zones.add("2024", names)
        found = collection[1].join(zones["2024"])
        wanted = trips(spark, 1).join(names.withColumnRenamed("zone", "cell"), "cell")
        assert found.schema.names == wanted.columns
        assert rows_of(found.table()) == spark_rows(wanted)
        left = collection[1].join(zones["2024"], how="left_anti")
        assert (
            left.count() == trips(spark, 1).join(names.withColumnRenamed("zone", "cell"), "cell", "left_anti").count()
        )


def test_other_partitioners_and_types_are_refused(spark: SparkSession, collection: tm.Collection) -> None:
    with pytest.raises(tm.DefinitionError, match="partitions is 16; in the namespace 'trips' it is 8"):
        tm.Collection(spark, "other", keys=["cell"], partitions=16, namespace="trips")
    with tm.Collection(spark, "numbers", keys=["cell"], partitions=8, namespace="trips") as numbers:
        with pytest.raises(tm.DefinitionError, match="keys cell are bigint"):
            numbers.add(0, spark.range(3).withColumnRenamed("id", "cell"))
        with pytest.raises(tm.DefinitionError, match="no column cell"):
            numbers.add(0, spark.range(3))
    with pytest.raises(tm.DefinitionError, match="columns of 9"):
        collection.add(9, trips(spark, 9).drop("h"))
    with pytest.raises(tm.DefinitionError, match="there is a dataset 1"):
        collection.add(1, trips(spark, 1))
    with pytest.raises(tm.DefinitionError, match="cannot be compared"):
        collection.add("noon", trips(spark, 12))
    with pytest.raises(tm.DefinitionError, match="no dataset 7"):
        collection[7]
    with pytest.raises(tm.DefinitionError, match="no column far"):
        collection.all().aggregate(["cell"], {"far": "sum"})
    with tm.Collection(spark, "apart", keys=["cell"], partitions=8) as apart:
        apart.add(0, trips(spark, 0))
        with pytest.raises(tm.DefinitionError, match="partitioned apart"):
            collection.all().join(apart.all())


def test_a_closed_collection_takes_nothing_and_frees_its_name(spark: SparkSession) -> None:
    with tm.Collection(spark, "again", keys=["cell"], partitions=2) as first, first:
        pass
    first.close()
    with pytest.raises(tm.DefinitionError, match="closed"):
        first.add(0, trips(spark, 0))
    with tm.Collection(spark, "again", keys=["cell"], partitions=3) as second:
        assert second._namespace.spec.partitions == 3


def groups_asked(view: Any) -> list[int]:
    return [part.group for part in view._namespace.parts(view._datasets, view._terms.partitions)]


@pytest.mark.slow
def test_ranges_of_ordered_keys_ask_only_the_groups_that_have_them(spark: SparkSession) -> None:
    frame = spark.range(1_000).selectExpr("id % 100 AS cell", "id AS fare")
    names = spark.range(0, 100, 3).selectExpr("id AS cell", "id * 2 AS size")
    with (
        tm.Collection(spark, "ranges", ["cell"], 4, bounds=[25, 50, 75], locality_wait="50 ms") as ordered,
        tm.Collection(spark, "names", ["cell"], 4, bounds=[25, 50, 75], namespace="ranges") as others,
        tm.Collection(spark, "hashed", ["cell"], 4) as hashed,
    ):
        for made in (ordered, hashed):
            made.add(0, frame)
        others.add(0, names)
        assert groups_asked(ordered.all()) == groups_asked(hashed.all().key_range(30, 40)) == [0, 2]
        assert groups_asked(ordered.all().key_range(30, 40)) == [0]
        for first, last in ((24, 26), (7, 7), (80, 300)):
            for made in (ordered, hashed):
                assert made.all().key_range(first, last).within("1 s").count() == 10 * len(range(first, min(last, 100)))
        assert ordered.all().key_range(7, 7).aggregate(["cell"], {"fare": "sum"}).column_names == ["cell", "fare_sum"]
        left, right = ordered.all().key_range(10, 60), others.all().key_range(40, 90)
        rows = [frame.where("cell >= 10 AND cell < 60"), names.where("cell >= 40 AND cell < 90")]
        for how in ("inner", "full", "left_anti", "leftouter", "right_outer", "outer", "semi"):
            plain = rows[0].join(rows[1], "cell", how)
            assert left.join(right, how).count() == plain.count(), how
    with tm.Collection(spark, "two", ["a", "b"], 2) as two:
        two.add(0, spark.range(3).selectExpr("id AS a", "id AS b"))
        with pytest.raises(tm.DefinitionError, match="keys are a, b"):
            two.all().key_range(1, 2)
        with pytest.raises(tm.DefinitionError, match="within is"):
            two.all().within("0 s")


@pytest.mark.parametrize(
    ("order", "evicted"), [("oldest", [0]), pytest.param("least_used", [1], marks=pytest.mark.slow)]
)
def test_the_limit_evicts_and_what_is_evicted_is_computed_again(
    spark: SparkSession, order: Any, evicted: list[int]
) -> None:
    with tm.Collection(spark, f"limited-{order}", keys=["cell"], partitions=2, eviction=order) as made:
        for hour in range(3):
            made.add(hour, trips(spark, hour))
        before = made[0].count()
        made.limit_bytes = made.bytes
        made.add(3, trips(spark, 3))
        assert [each for each in made if not made._datasets[each].files] == evicted
        assert "1 of them evicted" in repr(made)
        assert "2 partitions by cell, groups: 2 at executor driver" in repr(made._namespace)
        assert made[evicted[0]].count() == before
        made.evict(3)
        assert made[3].count() == before
        made.drop(3)
        assert 3 not in made


@pytest.mark.slow
def test_groups_follow_the_sizes(spark: SparkSession) -> None:
    with tm.Collection(spark, "elastic", keys=["cell"], partitions=8, elastic=(30_000, 40_000)) as made:
        made.add(0, trips(spark, 0, 20))
        assert len(made._namespace.grouping) == 1
        made.add(1, trips(spark, 1, 10_000))
        assert len(made._namespace.grouping) > 4
        assert made.all().count() == 10_020


def test_no_session_is_refused() -> None:
    with pytest.raises(tm.SessionError, match="spark is NoneType"):
        tm.Collection(None, "wrong", ["cell"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda c: c.add(9, c[0].df().toPandas()), "frame is pandas.DataFrame"),
        (lambda c: c.add([9], None), r"The label is \[9\]"),
        (lambda c: c.add(float("nan"), None), "The label is nan"),
        (lambda c: c[[1]], r"no dataset \[1\]"),
        (lambda c: c.between("a", "b"), "'a' cannot be compared with 0"),
        (lambda c: c.all().where("far > 3"), "where: far > 3: .*Columns are cell, fare"),
        (lambda c: c.all().where(pc.field("far") > 3), "where: No match.*Columns are cell string, fare"),
        (lambda c: c.all().key_range(1, 3), r"key_range: first is 1 \(int\), and the key is string"),
        (lambda c: c.all().select(["cell"]), r"select\[0\] is"),
        (lambda c: c[0].join(c[1], how="left anti"), "how='left anti' is unknown.*left_anti"),
        (lambda c: c[0].join(c[1], how="cross"), "how='cross' cannot be had here"),
        (lambda c: c[0].join(c[1].df()), "join: the other side is of type DataFrame"),
        (lambda c: c[0].join(c[1], suffix=""), "join: columns has 'fare' twice"),
        (lambda c: c.all().aggregate(["cell"], {"fare": "avg"}), "aggregate: .*avg.*sum, count"),
        (lambda c: c.all().aggregate("cell", {"fare": "sum"}), "Give a list"),
        (lambda c: c.all().aggregate(["cell"], ["fare"]), "aggregates is"),
        (lambda c: c.derive(9, None, [c[0]]), "function is None"),
        (lambda c: c.derive(9, len, c[0]), "Give a list of views"),
        (lambda c: c.derive(9, len, [0]), "Give a list of views"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_runs(
    collection: tm.Collection, ask: Any, message: str
) -> None:
    with pytest.raises(tm.DefinitionError, match=message):
        ask(collection)


@pytest.mark.slow
def test_a_function_that_fails_at_an_executor_is_named_in_a_line(collection: tm.Collection) -> None:
    with pytest.raises(tm.QueryFailedError, match="trips: a question failed at an executor: ZeroDivisionError"):
        collection[0].run(lambda table: len(table) // 0)
    with pytest.raises(tm.QueryFailedError, match=r"gave int, not a pyarrow\.Table"):
        collection[0].run(lambda table: 5)  # type: ignore[arg-type, return-value]
    with pytest.raises(tm.QueryFailedError, match="deriving 9 failed at an executor: ZeroDivisionError"):
        collection.derive(9, lambda tables: len(tables) // 0, [collection[0]])  # type: ignore[arg-type, return-value]
    assert 9 not in collection


@pytest.mark.slow
def test_a_name_is_any_text(spark: SparkSession) -> None:
    with tm.Collection(spark, "a/b c", keys=["id"], partitions=2) as made:
        made.add(0, spark.range(3))
        assert made.all().count() == 3


def test_what_is_refused_keeps_no_name(spark: SparkSession) -> None:
    with pytest.raises(tm.DefinitionError, match="partitions is 0"):
        tm.Collection(spark, "free", ["cell"], 0)
    with tm.Collection(spark, "free", ["cell"], 2), pytest.raises(tm.DefinitionError, match="partitions is 3"):
        tm.Collection(spark, "other", ["cell"], 3, namespace="free")
    with tm.Collection(spark, "free", ["cell"], 3) as made:
        assert made._namespace.spec.partitions == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"keys": "cell"}, "Give a list"),
        ({"keys": []}, "keys is empty"),
        ({"keys": ["cell"], "partitions": 0}, "at least 1"),
        ({"keys": ["cell"], "eviction": "newest"}, "oldest"),
        ({"keys": ["cell"], "limit_bytes": 0}, "limit_bytes"),
        ({"keys": ["cell"], "elastic": (5, 1)}, "elastic"),
        ({"keys": ["cell"], "locality_wait": "-1 s"}, "locality_wait"),
        ({"keys": ["cell"], "recovery": "5 s"}, "Give tm.Recovery"),
        ({"keys": ["cell"], "limit_bytes": "1 MB"}, r"limit_bytes is '1 MB' \(str\)"),
        ({"keys": ["cell"], "partitions": 2.5}, "partitions is 2.5"),
        ({"keys": ["cell"], "elastic": 5}, "elastic is 5"),
        ({"keys": ["cell"], "elastic": ("1", "2")}, "elastic is"),
        ({"keys": ["cell"], "bounds": 5}, "bounds is 5"),
        ({"keys": ["cell"], "partitions": 3, "bounds": [1, "a"]}, "bounds cannot be compared"),
        ({"keys": 5}, "keys is 5"),
        ({"keys": ["cell", "cell"]}, "'cell' twice"),
        ({"keys": ["cell"], "namespace": ""}, "namespace is ''"),
    ],
)
def test_values_that_cannot_be_are_refused(spark: SparkSession, arguments: Any, message: str) -> None:
    with pytest.raises(tm.DefinitionError, match=message):
        tm.Collection(spark, "wrong", **arguments)


@pytest.mark.slow
def test_a_dataset_whose_source_is_gone_is_named(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(2):
        trips(spark, number).write.parquet(f"{tmp_path}/{number}")
    with tm.Collection(spark, "gone", keys=["cell"], partitions=4) as made:
        for number in range(2):
            made.add(number, spark.read.parquet(f"{tmp_path}/{number}"))
        shutil.rmtree(tmp_path / "1")
        made.evict(0, 1)
        with pytest.raises(tm.SourceError, match=r"gone: the dataset 1 was evicted.*drop the dataset"):
            made.all().count()
        assert made[0].count() == trips(spark, 0).count()
        made.drop(1)
        assert made.all().count() == trips(spark, 0).count()


def test_questions_wait_for_executors_and_not_for_ever(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    known, missing = placed.executors, [True] * 3

    def executors(session: SparkSession) -> Any:
        if missing:
            missing.pop()
            raise placed.NoExecutorError("Spark has no executor.")
        return known(session)

    monkeypatch.setattr(placed, "executors", executors)
    clock = ManualClock(1)
    monkeypatch.setattr(namespaces, "SystemClock", lambda: clock)
    monkeypatch.setattr(known_namespaces, "SystemClock", lambda: clock)
    workers._KNOWN.clear()
    with tm.Collection(spark, "patient", keys=["cell"], partitions=4, patience="10 s") as made:
        missing += [True] * 3
        clock.advance(10_000_000)
        made.add(0, trips(spark, 0))
        missing += [True] * 3
        clock.advance(10_000_000)
        assert made[0].count() == trips(spark, 0).count()
        assert not missing
        missing += [True] * 1_000
        clock.advance(10_000_000)
        with pytest.raises(tm.SessionError, match="For 10 seconds executors were missing"):
            made[0].count()
        missing.clear()
        with pytest.raises(tm.DefinitionError, match=r"patience is 5 seconds; in the namespace 'patient' it is 10"):
            tm.Collection(spark, "other", keys=["cell"], partitions=4, namespace="patient", patience="5 s")


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (
            lambda c, s: c.add(5, s.range(3).selectExpr("'a' AS cell", "1 div (id - id) AS fare", "1 AS h")),
            "computing 5",
        ),
        (lambda c, s: c.add(5, s.sql("SELECT INTERVAL '1' MONTH AS cell")), "columns of 5 cannot be"),
        (lambda c, s: c.add(5, s.range(1).selectExpr("id AS cell", "id AS Cell")), "."),
        (lambda c, s: c[0].run(lambda t: pa.table({f"n{len(t)}": [1]})), "answers of the groups together"),
        pytest.param(lambda c, s: c[0].run(lambda t: {}[1]), "failed at an executor: KeyError", marks=pytest.mark.slow),
        (lambda c, s: c[0].run(lambda t: Path("/none").read_bytes()), "failed at an executor: FileNotFoundError"),
        (lambda c, s: c[0].where(pc.field("fare") / 0 > 1).count(), "divide by zero"),
        (lambda c, s: c[0].where(pc.field("fare").cast("date32") > 1), "where"),
        (lambda c, s: c[0].key_range("a", None), "key_range: last"),
        (lambda c, s: c[0].select("fare").key_range("a", "b"), "cell"),
        (lambda c, s: c[0].select("fare").join(c[1]), "join"),
        (lambda c, s: c[0].aggregate(["cell"], {"fare": 7}), "aggregate"),
        (lambda c, s: c[0].aggregate([7], {"fare": "sum"}), "by"),
        (lambda c, s: c[0].within(None), "within"),
        (lambda c, s: c.between(None, "a"), "compared"),
        (lambda c, s: c[[1]], "no dataset"),
        (lambda c, s: c.drop(None), "no dataset"),
        (
            lambda c, s: c.derive(5, lambda tables: tables[0].select(["fare"]), [c[0]]),
            "gave the columns fare",
        ),
        pytest.param(lambda c, s: c.derive(5, lambda tables: {}[1], [c[0]]), "deriving 5", marks=pytest.mark.slow),
    ],
)
def test_whatever_fails_does_so_with_an_error_of_ours(
    spark: SparkSession, collection: tm.Collection, call: Any, error: str
) -> None:
    with pytest.raises(tm.TransomError, match=error):
        call(collection, spark)
    assert list(collection) == [0, 1, 2, 3]
    assert collection[0].count() == 500
