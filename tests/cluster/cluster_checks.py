"""What is looked at on a cluster of three executors; a program of its own, since a process has one Spark context.

`python cluster_checks.py NAME...` makes the checks of these names on one cluster, in the order of `CHECKS`, and prints
what they saw as one JSON object, by name.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
import time
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from collection_checks import copies, killed, moving, placement
from executors import PARTITIONS, drained, next_stage, stages, words
from kill_checks import collection_kills, window_kills
from pyspark.sql import DataFrame, SparkSession
from tier_checks import elastic, growing, migrating, tier

import transom as tm
from transom.placement.lineage import Lineage

STEPS = 3


class Running:
    """Datasets, and running counts that are derived from them, the last ones from a checkpoint."""

    def __init__(self, spark: SparkSession, directory: str) -> None:
        self.spark, self.directory = spark, directory
        recovery = tm.Recovery("30 s", directory)
        self.news = tm.Collection(spark, "news", ["key"], PARTITIONS, namespace="derived", recovery=recovery)
        self.counts = tm.Collection(spark, "counts", ["key"], PARTITIONS, namespace="derived")
        self.shuffled = 0
        """Bytes that were exchanged to derive."""
        for step in range(STEPS):
            self.news.add(step, words(spark, step))
            if step == STEPS - 1:
                self._age()
            first = next_stage(spark)
            before = [self.counts[step - 1]] if step else []
            self.counts.derive(step, _added, [*before, self.news[step]])
            drained(spark)
            self.shuffled += stages(spark, first).get("shuffle", 0)

    def _age(self) -> None:
        """Let it be as if what there is had taken longer than the bound."""
        checkpointer: Any = self.counts._namespace.checkpointer
        made = [*self.news._datasets.values(), *self.counts._datasets.values()]
        nodes = checkpointer.lineage.datasets
        slow = {each.name: replace(nodes[each.name], reading=20.0, delay=20.0) for each in made}
        checkpointer._lineage = Lineage({**nodes, **slow})

    @property
    def files(self) -> list[list[Any]]:
        """Files of each dataset."""
        return [each.files for made in (self.news, self.counts) for each in made._datasets.values()]

    def found(self) -> list[Any]:
        """Return how many rows of all datasets have a text, and the last counts."""
        rows = self.news.all().where(pc.match_substring(pc.field("text"), "77"))
        return [rows.count(), self.counts[STEPS - 1].table().sort_by("key").to_pydict()]

    def checkpoints(self) -> int:
        """Return the number of files of checkpoints."""
        return len(list(Path(self.directory).rglob("*.arrow")))


def _added(tables: list[pa.Table]) -> pa.Table:
    ones = [each if "n" in each.column_names else each.set_column(1, "n", pa.repeat(1, len(each))) for each in tables]
    found = pa.concat_tables([each.select(["key", "n"]) for each in ones])
    return found.group_by("key", use_threads=False).aggregate([("n", "sum")]).rename_columns(["key", "n"])


def together(spark: SparkSession) -> dict[str, Any]:
    """Collections beside an application with its partials at the executors, one of which is killed under both."""
    with tempfile.TemporaryDirectory() as directory:
        running = Running(spark, directory)
        first = next_stage(spark)
        before = running.found()
        drained(spark)
        seen, alike = stages(spark, first), list(zip(*running.files, strict=True))
        written = running.checkpoints()
        windows = tier(spark)
        lost = [file for files in running.files for file in files if file.executor == windows["victim"]]
        for file in lost:  # as when its host is gone, too
            os.unlink(file.path)
        begun = time.monotonic()
        after = running.found()
        seconds = time.monotonic() - begun
        running.counts.evict(STEPS - 1)
        again = running.found()
        homes = running.counts._namespace.homes
        running.counts.close()
        running.news.close()
        plain = reduce(DataFrame.unionAll, (words(spark, step) for step in range(STEPS)))
        counts = plain.groupBy("key").count().orderBy("key").toArrow().rename_columns(["key", "n"]).to_pydict()
        return {
            "tier": windows,
            "executors": len({files[0].executor for files in alike}),
            "processes": len({files[0].process for files in alike}),
            "alike": all(len({(file.executor, file.process) for file in files}) == 1 for files in alike),
            "stages": seen,
            "shuffled": running.shuffled,
            "plain": before == [plain.where("text LIKE '%77%'").count(), counts],
            "same": before == after == again,
            "lost": len(lost),
            "written": written,
            "left": running.checkpoints(),
            "seconds": seconds,
            "homes": windows["victim"] not in homes,
        }


CHECKS = {
    "placement": placement,
    "moving": moving,
    "migrating": migrating,
    "together": together,
    "killed": killed,
    "copies": copies,
    "growing": growing,
    "elastic": elastic,
    "collection_kills": collection_kills,
    "window_kills": window_kills,
}
"""In order; those that kill executors come last."""


def main(names: list[str]) -> None:
    """Make some checks on one cluster."""
    spark = (
        tm.session_builder()
        .master("local-cluster[3,1,1024]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.executor.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")  # the first job waits for all executors
        .config("spark.deploy.maxExecutorRetries", "-1")  # it gives up nobody whose executors die
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    spark.sparkContext.parallelize(range(3), 3).count()
    drained(spark)
    with contextlib.redirect_stdout(io.StringIO()):
        found = {name: check(spark) for name, check in CHECKS.items() if name in names}
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
