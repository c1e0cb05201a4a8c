"""What `map`, conditions, keys and aggregates may be: each row by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window

import transom as tm
from transom.api.app import App
from transom.engine.spark.plantext import plan_text
from transom.engine.spark.rowwise import parse
from transom.errors import DefinitionError


@pytest.fixture
def app(spark: SparkSession, tmp_path: Any) -> App:
    """Its lane is auto: what is row by row is also known without Spark SQL, or only Spark does it."""
    return App(spark, tmp_path / "checkpoint", lane="auto")


@pytest.fixture(scope="module")
def static(spark: SparkSession) -> DataFrame:
    made = spark.createDataFrame([("x", 1), ("y", 2)], "k string, w int")
    made.createOrReplaceTempView("static_table")
    return made


def stream_of(app: App) -> Any:
    source = tm.sources.memory("at timestamp, k string, v int, a array<int>")
    return app.stream(source, event_time="at", watermark=tm.watermark("1 second"))


def explained(app: App, rows: Any, **keys: Any) -> None:
    rows.group_by(**keys).window("10 seconds").agg(n=tm.count()).to(tm.sinks.memory(), "q")
    app.explain()


def timed(static: DataFrame) -> DataFrame:
    return static.withColumn("at", F.timestamp_seconds("w"))


ROWS = Callable[[DataFrame, DataFrame], DataFrame]
GOOD: dict[str, ROWS] = {
    "filter": lambda d, s: d.where("v > 1").withColumn("x", F.expr("v + 1")),
    "explode": lambda d, s: d.withColumn("e", F.explode("a")),
    "join": lambda d, s: d.join(s, "k"),
    "left": lambda d, s: d.join(F.broadcast(s), "k", "left"),
    "right of it": lambda d, s: s.join(d, "k", "right"),
    "semi": lambda d, s: d.join(s, "k", "semi"),
    "anti": lambda d, s: d.join(s, "k", "anti"),
    "aggregated static": lambda d, s: d.join(s.groupBy("k").agg(F.max("w").alias("w")).sort("w").limit(3), "k"),
    "distinct static": lambda d, s: d.join(s.distinct(), "k"),
    "union with itself": lambda d, s: d.union(d),
    "unpivot": lambda d, s: d.unpivot(["k", "at"], ["v"], "name", "value"),
    "subqueries": lambda d, s: d.where("v > (select max(w) from static_table) OR v in (select w from static_table)"),
    "repartition": lambda d, s: d.repartition(3, "k"),
    "pandas": lambda d, s: d.mapInPandas(lambda batches: batches, d.schema),
    "sql": lambda d, s: d.sparkSession.sql(
        "with c as (select * from {d}) select c.*, s.w from c left join static_table s on s.k = c.k", d=d
    ),
}
BAD: dict[str, tuple[ROWS, str]] = {
    "drop duplicates": (lambda d, s: d.dropDuplicates(["k"]), "distinct"),
    "distinct": (lambda d, s: d.distinct(), "distinct"),
    "aggregate": (lambda d, s: d.groupBy("k", "at").agg(F.sum("v").alias("v")), "aggregate"),
    "limit": (lambda d, s: d.limit(2), "limit"),
    "offset": (lambda d, s: d.offset(1), "offset"),
    "sort": (lambda d, s: d.sort("v"), "sort"),
    "sample": (lambda d, s: d.sample(0.5), "sample"),
    "window": (lambda d, s: d.withColumn("r", F.row_number().over(Window.orderBy("v"))), "a window function"),
    "self join": (lambda d, s: d.join(d.groupBy("k").count(), "k"), "aggregate"),
    "plain self join": (lambda d, s: d.join(d.select(F.col("k").alias("o")), F.col("k") == F.col("o")), "with itself"),
    "right": (lambda d, s: d.join(s, "k", "right"), "static table in every micro-batch"),
    "full": (lambda d, s: d.join(s, "k", "full"), "static table in every micro-batch"),
    "semi on it": (lambda d, s: timed(s).join(d, "k", "semi"), "static table in every micro-batch"),
    "union": (lambda d, s: d.select("k", "v", "at").union(timed(s)), "static table"),
    "except": (lambda d, s: d.exceptAll(d.where("v > 1")), "except"),
    "groups in Python": (lambda d, s: d.groupBy("k").applyInPandas(lambda p: p, d.schema), "flatMapGroupsInPandas"),
    "only static": (lambda d, s: timed(s), "do not come from the stream"),
    "its rdd": (lambda d, s: d.sparkSession.createDataFrame(d.rdd, d.schema), "do not come from the stream"),
    "subquery": (
        lambda d, s: d.sparkSession.sql("select * from {d} where v = (select max(v) from {d})", d=d),
        "reads the rows of the stream again",
    ),
    "table expression": (
        lambda d, s: d.sparkSession.sql("with c as (select distinct * from {d}) select * from c", d=d),
        "distinct",
    ),
}
UNREPEATABLE: dict[str, ROWS] = {
    "rand": lambda d, s: d.where(F.rand() < 0.5),
    "uuid": lambda d, s: d.withColumn("x", F.expr("uuid()")),
    "number": lambda d, s: d.withColumn("x", F.monotonically_increasing_id()),
    "file": lambda d, s: d.withColumn("x", F.input_file_name()),
    "now": lambda d, s: d.where(F.col("at") > F.current_timestamp()),
    "date": lambda d, s: d.where("date(at) = current_date()"),
    "unix": lambda d, s: d.withColumn("x", F.expr("unix_timestamp()")),
    "many columns": lambda d, s: d.select("*", *(F.lit(i).alias(f"c{i}") for i in range(40)), F.now().alias("x")),
    "python": lambda d, s: d.withColumn("x", F.udf(lambda v: v, "int").asNondeterministic()("v")),
    "static": lambda d, s: d.join(s.withColumn("x", F.rand()), "k"),
}


@pytest.mark.parametrize("name", GOOD)
def test_row_by_row(app: App, static: DataFrame, name: str) -> None:
    explained(app, stream_of(app).map(lambda df: GOOD[name](df, static)))


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("deterministic", [True, False])
def test_what_depends_on_several_rows(app: App, static: DataFrame, name: str, deterministic: bool) -> None:
    function, what = BAD[name]
    with pytest.raises(DefinitionError, match=what) as caught:
        explained(app, stream_of(app).map(lambda df: function(df, static), deterministic=deterministic))
    assert caught.value.message.startswith("map: ")
    assert caught.value.remedy


@pytest.mark.parametrize("name", UNREPEATABLE)
def test_what_differs_when_it_is_read_again(spark: Any, tmp_path: Any, static: DataFrame, name: str) -> None:
    def rows(df: DataFrame) -> DataFrame:
        return UNREPEATABLE[name](df, static)

    app = App(spark, tmp_path / "one")
    with pytest.raises(DefinitionError, match="deterministic=False"):
        explained(app, stream_of(app).map(rows))
    app = App(spark, tmp_path / "other")
    explained(app, stream_of(app).map(rows, deterministic=False))


EXPRESSIONS: dict[str, Callable[[], Column]] = {
    "row_number() over (order by v)": lambda: F.row_number().over(Window.orderBy("v")),
    "rand() < 0.5": lambda: F.rand() < 0.5,
    "explode(a) > 1": lambda: F.explode("a") > 1,
    "now() > at": lambda: F.now() > F.col("at"),
    "max(v) > 1": lambda: F.max("v") > 1,
}


@pytest.mark.parametrize("text", EXPRESSIONS)
@pytest.mark.parametrize("as_column", [False, True])
@pytest.mark.parametrize("place", ["key", "where", "aggregate"])
def test_expressions(app: App, text: str, as_column: bool, place: str) -> None:
    given = EXPRESSIONS[text]() if as_column else text
    stream = stream_of(app)
    rows = stream.where(given) if place == "where" else stream
    grouped = rows.group_by(x=given) if place == "key" else rows.group_by("k")
    aggregate = tm.collect_list(given) if place == "aggregate" else tm.count()
    grouped.window("10 seconds").agg(n=aggregate).to(tm.sinks.memory(), "q")
    with pytest.raises(DefinitionError):
        app.explain()


@pytest.mark.parametrize("text", ["max(at) over (order by v)", "current_timestamp()", "(select max(at) from x)"])
def test_event_times(app: App, text: str) -> None:
    stream = app.stream(tm.sources.memory("at timestamp, v int"), event_time=text, watermark=tm.watermark("1 second"))
    with pytest.raises(DefinitionError, match="event_time"):
        explained(app, stream)


def test_a_plan_with_subqueries_and_several_children() -> None:
    text = """Filter (v > scalar-subquery [] + scalar-subquery [])
:  :- Aggregate [max(w)]
:  :  +- LocalRelation [w]
:  +- Aggregate [min(w)]
:     +- LocalRelation [w]
+- Join Inner, (k = k)
   :- Project [k]
   :  +- LocalRelation [k]
   +- LocalRelation [k]"""
    root = parse(text)
    assert [query.text for query in root.subqueries] == ["Aggregate [max(w)]", "Aggregate [min(w)]"]
    (join,) = root.children
    assert [child.name for child in join.children] == ["Project", "LocalRelation"]
    assert len(list(root.walk())) == 9


def test_sql_over_a_dataframe_has_the_same_plan_every_time(spark: SparkSession, app: App) -> None:
    def made(rows: DataFrame) -> str:
        return plan_text(rows.sparkSession.sql("SELECT *, v + 1 AS w FROM {rows} WHERE v > 1", rows=rows))

    rows = spark.createDataFrame([], "at timestamp, k string, v int")
    assert made(rows) == made(rows)
    mapped = stream_of(app).map(lambda d: d.sparkSession.sql("SELECT * FROM {d} WHERE v > 1", d=d))
    explained(app, mapped, k="k")
