"""Popular keys and their contents, step after step: the application of Stark's Figure 16, and the same in plain Spark.

Each step takes raw lines of the access log (`kv`: a fixed-length prefix of the requested URL, and the line). Its
counts (`cnt`) and contents (`ctt`: pairs of neighbouring words in the lines, and how often) are added to what is left
of those before (`dec`, `res`), which gives `ccnt` and `cctt`. Keys with many counts are popular (`acnt`); their
contents (`jall`) are cleaned (no pairs with numbers; half the weight) and handed on (`res`), as are the decayed counts
(`dec`). All numbers are integers, so that both forms can be compared exactly.

`kv` comes from an exchange. In the paper that ends an un-checkpointed path at no cost, as if its shuffle files outlived
an executor. Here they are lost with it: the lines are read and exchanged again, and the bound leaves time for that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import transom as tm
from benchmarks.colocality import lines

KINDS = ("kv", "cnt", "ctt", "ccnt", "dec", "cctt", "acnt", "jall", "res")
"""In the order in which a step makes them; `kv` by an exchange, the others from those before. As in the paper `dec` and
`cctt` are there, but `acnt` is not, when the chain behind `cctt` is looked at."""
ORIGINS: dict[str, tuple[str, ...]] = {
    "kv": (),
    "cnt": ("kv",),
    "ctt": ("kv",),
    "ccnt": ("cnt", "dec-"),
    "acnt": ("ccnt",),
    "dec": ("ccnt",),
    "cctt": ("ctt", "res-"),
    "jall": ("cctt", "acnt"),
    "res": ("jall",),
}
"""What each is made from; - stands for the step before."""
PARTITIONS = 6
PREFIX = 10
"""Characters of the URL that are the key."""
POPULAR = 20
"""Counts of a popular key."""
SEPARATORS = "[^A-Za-z0-9]+"
"""Between words."""
NUMERIC = "[0-9]"
"""What is cleaned away."""
DAY, QUIETEST = 24, 0.5
"""Steps in a day; share of the lines in its quietest step."""
KEPT = 4
"""Steps whose datasets are kept; older ones are dropped."""
SORTED = {"res": ["key", "content"], "dec": ["key"]}
"""What the next step takes, and its order for comparisons."""


def parsed(spark: SparkSession, path: Path) -> None:
    """Write the lines of the log as key and content, once for all steps."""
    url = F.element_at(F.split(F.element_at(F.split("line", '"'), 2), " "), 2)
    rows = lines(spark, 0, 1).select(F.substring(url, 1, PREFIX).alias("key"), F.col("line").alias("content"))
    rows.fillna("").coalesce(3).write.parquet(str(path))


def raw(spark: SparkSession, path: Path, step: int, copies: int) -> DataFrame:
    """Return the rows of a step: so many copies of the log, two thirds of whose keys were there in the step before.

    Of each copy a random part, as large as the time of day says.
    """
    first = step * copies // 3
    copy = F.explode(F.sequence(F.lit(first), F.lit(first + copies - 1)))
    rows = spark.read.parquet(str(path)).select("key", "content", copy.alias("copy"))
    share = QUIETEST + (1 - QUIETEST) * (1 + math.cos(2 * math.pi * step / DAY)) / 2
    drawn = F.pmod(F.xxhash64("content", "copy", F.lit(step)), F.lit(1_000)) < int(1_000 * share)
    return rows.where(drawn).select(F.concat_ws("#", "key", "copy").alias("key"), "content")


Function = Callable[[list[pa.Table]], pa.Table]


def functions() -> dict[str, Function]:
    """Return what makes each dataset from its parents; closures, so that tasks get them by value."""
    popular, separators, numeric = POPULAR, SEPARATORS, NUMERIC

    def pairs(rows: pa.Table) -> pa.Table:
        words = pc.split_pattern_regex(rows["content"].combine_chunks(), separators)
        line, word = pc.list_parent_indices(words), pc.list_flatten(words)
        both = pc.equal(line[:-1], line[1:])
        pair = pc.binary_join_element_wise(word[:-1].filter(both), word[1:].filter(both), " ")
        keys = rows["key"].combine_chunks().take(line[1:].filter(both))
        return pa.table({"key": keys, "content": pair})

    def total(tables: list[pa.Table], by: list[str], value: str) -> pa.Table:
        found = pa.concat_tables(tables).group_by(by, use_threads=False).aggregate([(value, "sum")])
        return found.select([*by, f"{value}_sum"]).rename_columns([*by, value])

    def counted(rows: pa.Table, by: list[str], value: str) -> pa.Table:
        found = rows.group_by(by, use_threads=False).aggregate([([], "count_all")])
        return found.select([*by, "count_all"]).rename_columns([*by, value])

    def halved(rows: pa.Table, value: str) -> pa.Table:
        half = rows.set_column(rows.schema.get_field_index(value), value, pc.divide(rows[value], 2))
        return half.filter(pc.field(value) > 0)

    def joined(tables: list[pa.Table]) -> pa.Table:
        return (
            tables[0].join(tables[1], "key", join_type="inner", use_threads=False).select(["key", "content", "m", "n"])
        )

    def cleaned(rows: pa.Table) -> pa.Table:
        return rows.select(["key", "content", "m"]).filter(
            pc.invert(pc.match_substring_regex(rows["content"], numeric))
        )

    return {
        "cnt": lambda tables: counted(tables[0], ["key"], "n"),
        "ctt": lambda tables: counted(pairs(tables[0]), ["key", "content"], "m"),
        "ccnt": lambda tables: total(tables, ["key"], "n"),
        "acnt": lambda tables: tables[0].filter(pc.field("n") >= popular),
        "dec": lambda tables: halved(tables[0], "n"),
        "cctt": lambda tables: total(tables, ["key", "content"], "m"),
        "jall": joined,
        "res": lambda tables: halved(cleaned(tables[0]), "m"),
    }


class Trends:
    """The application on collections of one namespace.

    Args:
        spark: A session.
        name: Of the namespace.
        options: More for the collections.
    """

    def __init__(self, spark: SparkSession, name: str, **options: Any) -> None:
        self.spark = spark
        self.collections: dict[str, tm.Collection] = {}
        for kind in KINDS:
            self.collections[kind] = tm.Collection(spark, kind, ["key"], PARTITIONS, namespace=name, **options)
        self.namespace: Any = self.collections["kv"]._namespace
        self._functions = functions()

    def __enter__(self) -> Trends:
        return self

    def __exit__(self, *_: object) -> None:
        for collection in self.collections.values():
            collection.close()

    def dataset(self, kind: str, step: int) -> Any:
        """Return what the engine knows of a dataset: sizes, delay, files."""
        return self.collections[kind]._datasets[step]

    def origins(self, kind: str, step: int) -> list[tuple[str, int]]:
        """Return kinds and steps of what a dataset is made from."""
        return [
            (name.rstrip("-"), step - name.endswith("-"))
            for name in ORIGINS[kind]
            if step > 0 or not name.endswith("-")
        ]

    def make(self, kind: str, step: int, rows: DataFrame) -> None:
        """Make one dataset of a step."""
        if kind == "kv":
            self.collections[kind].add(step, rows)
        else:
            views = [self.collections[parent][one] for parent, one in self.origins(kind, step)]
            self.collections[kind].derive(step, self._functions[kind], views)

    def drop(self, step: int) -> None:
        """Drop the datasets of a step."""
        for collection in self.collections.values():
            collection.drop(step)

    def state(self, step: int) -> dict[str, pa.Table]:
        """Return what the next step takes."""
        return {kind: self.collections[kind][step].table() for kind in SORTED}


class PlainTrends:
    """The same in plain Spark: each step writes what the next one takes to files.

    Args:
        spark: A session.
        base: Parsed lines.
        copies: Of them in a step.
        work: An empty directory.
    """

    def __init__(self, spark: SparkSession, base: Path, copies: int, work: Path) -> None:
        self.spark, self.base, self.copies, self.work = spark, base, copies, work
        self.steps = 0

    def _path(self, kind: str, step: int) -> str:
        return str(self.work / f"{kind}-{step}")

    def state(self, step: int) -> Mapping[str, pa.Table]:
        """Return what the step after this one takes, computing all steps until then."""
        while self.steps <= step:
            self._step(self.steps)
            self.steps += 1
        return {kind: self.spark.read.parquet(self._path(kind, step)).toArrow() for kind in SORTED}

    def _step(self, step: int) -> None:
        kv = raw(self.spark, self.base, step, self.copies)
        ccnt = kv.groupBy("key").agg(F.count("*").alias("n"))
        words = kv.select("key", F.split("content", SEPARATORS).alias("w"))
        joint = "transform(sequence(2, size(w)), i -> concat(w[i - 2], ' ', w[i - 1]))"
        pairs = words.where("size(w) > 1").select("key", F.explode(F.expr(joint)).alias("content"))
        cctt = pairs.groupBy("key", "content").agg(F.count("*").alias("m"))
        if step:
            before = {kind: self.spark.read.parquet(self._path(kind, step - 1)) for kind in SORTED}
            ccnt = ccnt.unionByName(before["dec"]).groupBy("key").agg(F.sum("n").alias("n"))
            cctt = cctt.unionByName(before["res"]).groupBy("key", "content").agg(F.sum("m").alias("m"))
        dec = ccnt.withColumn("n", F.expr("n div 2")).where("n > 0")
        jall = cctt.join(ccnt.where(F.col("n") >= POPULAR), "key")
        clean = jall.where(~F.col("content").rlike(NUMERIC))
        res = clean.select("key", "content", F.expr("m div 2").alias("m")).where("m > 0")
        dec.write.parquet(self._path("dec", step))
        res.write.parquet(self._path("res", step))
