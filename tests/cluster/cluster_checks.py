"""What is looked at on a cluster of three executors; a program of its own, since a process has one Spark context.

Each function returns what it saw as JSON; `python cluster_checks.py` prints all of it as one object, by name.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
import time
import unittest.mock
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from executors import await_executors, kill
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tier_checks import elastic, migrating, tier

import transom as tm
from transom.engine.spark import exchange, placed, workers
from transom.model.time import MICROS_PER_SECOND, SystemClock
from transom.placement.lineage import Lineage
from transom.placement.locality import Assignment

PARTITIONS = 12


def words(spark: SparkSession, seed: int) -> Any:
    """Return 20,000 rows with a key and a text."""
    number = (F.col("id") * 7919 + seed) % 1000
    return spark.range(20_000).select(number.cast("string").alias("key"), F.concat(F.lit("GET /"), "id").alias("text"))


def spread(spark: SparkSession) -> placed.Tasks:
    """Return one task for each partition, evenly over the executors."""
    alive = [each.id for each in placed.executors(spark)]
    homes = Assignment.nowhere(PARTITIONS).settled(alive, [1.0] * PARTITIONS).homes
    return placed.Tasks(spark, homes)


def stages(spark: SparkSession, since: int) -> dict[str, int]:
    """Return shuffle bytes and how many tasks were at which locality, of the stages from a number on."""
    store = spark.sparkContext._jsc.sc().statusStore()
    found: Counter[str] = Counter()
    stage = since
    while True:
        try:
            tasks = store.taskList(stage, 0, 1000)
            data = store.stageData(stage, False, None, False, None).apply(0)
        except Exception:  # the store has no such stage yet
            return dict(found)
        found["shuffle"] += data.shuffleReadBytes() + data.shuffleWriteBytes()
        for place in range(tasks.size()):
            found[tasks.apply(place).taskLocality()] += 1
        stage += 1


def next_stage(spark: SparkSession) -> int:
    """Return the number that the next stage gets."""
    return int(spark.sparkContext._jsc.sc().dagScheduler().nextStageId())


def drained(spark: SparkSession) -> None:
    """Let the status store take in all that has happened."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()


def placement(spark: SparkSession) -> dict[str, Any]:
    """Three datasets, counted together: where the tasks ran, and what was moved."""
    tasks = spread(spark)
    files = [placed.place(words(spark, n), placed.partition_of(["key"], PARTITIONS), tasks, f"d{n}") for n in range(3)]
    paths = [[dataset[number].path for dataset in files] for number in range(PARTITIONS)]
    processes = [file.process for file in files[0]]

    def count(number: int) -> bytes:
        found = sum(pc.sum(pc.match_substring(placed.open_table(p)["text"], "77")).as_py() or 0 for p in paths[number])
        return json.dumps([found, placed.here() == processes[number]]).encode()

    first = next_stage(spark)
    answers = [json.loads(answer) for answer in tasks.run(count)]
    drained(spark)
    seen = stages(spark, first)
    rows = tasks.frame(
        lambda i: (b for p in paths[i] for b in placed.open_table(p).to_batches()), words(spark, 0).schema
    )
    plain = sum(words(spark, n).where("text LIKE '%77%'").count() for n in range(3))
    return {
        "executors": len({file.executor for file in files[0]}),
        "processes": len(set(processes)),
        "alike": all(a.process == b.process for a, b in zip(files[0], files[2], strict=True)),
        "found": sum(answer[0] for answer in answers),
        "frame": rows.where("text LIKE '%77%'").count(),
        "plain": plain,
        "local": all(answer[1] for answer in answers),
        "preferred": [tasks.preferred(number) for number in range(PARTITIONS)],
        "homes": list(tasks.homes),
        "stages": seen,
    }


def moving(spark: SparkSession) -> dict[str, Any]:
    """A dataset goes to other executors, and the old files away."""
    tasks = spread(spark)
    files = placed.place(words(spark, 5), placed.partition_of(["key"], PARTITIONS), tasks, "m")
    other = placed.Tasks(spark, tasks.homes[1:] + tasks.homes[:1])
    moved = exchange.move(files, other, "m")
    alike = [placed.open_table(a.path).equals(placed.open_table(b.path)) for a, b in zip(files, moved, strict=True)]
    placed.remove(files, spark)
    return {
        "alike": all(alike),
        "homes": [file.executor for file in moved] == list(other.homes),
        "left": sum(os.path.exists(file.path) for file in files),
        "there": sum(os.path.exists(file.path) for file in moved),
    }


def killed(spark: SparkSession) -> dict[str, Any]:
    """An executor of a collection is killed; the same is asked before and after, and once more when all is settled."""
    with tm.Collection(spark, "killed", keys=["key"], partitions=PARTITIONS) as collection:
        for number in range(3):
            collection.add(number, words(spark, number))
        ask = lambda: collection.all().aggregate(["key"], {"text": "count"}).sort_by("key").to_pylist()  # noqa: E731
        before = ask()
        files = [file for dataset in collection.all()._datasets for file in dataset.files]
        victim = files[0]
        lost = [file for file in files if file.executor == victim.executor]
        kill(victim.process)
        await_executors(spark, victim.executor, 2)
        for file in lost:  # as when its host is gone, too
            os.unlink(file.path)
        begun = time.monotonic()
        after = ask()
        return {
            "same": before == after == ask(),
            "rows": sum(each["text_count"] for each in before),
            "lost": len(lost),
            "seconds": time.monotonic() - begun,
            "homes": victim.executor not in collection.groups.homes,
        }


class LaterClock(SystemClock):
    """The machine's clock, some time ahead."""

    ahead = 0

    def now(self) -> int:
        return super().now() + self.ahead


def copies(spark: SparkSession) -> dict[str, Any]:
    """Many ask for one group, on executors that cannot read one another's files; later nobody does; its home dies."""
    clock, context = LaterClock(), spark.sparkContext
    workers._KNOWN[context.applicationId] = workers.Workers(spark, clock, site=lambda each: each.id)
    rows = [spark.range(30_000).selectExpr(f"(id * 7919 + {n}) % 1000 AS key", "id AS value") for n in range(2)]
    plain = [each.where("key < 100").selectExpr("count(*)", "sum(value)").first() for each in rows]
    wanted = [sum(each[0] for each in plain), sum(each[1] for each in plain)]

    def slow(table: pa.Table) -> pa.Table:
        np.sort(np.random.default_rng(0).random(500_000))
        values = [[len(table)], [pc.sum(table["value"]).as_py()], [placed.here()]]
        return pa.table(values, names=["rows", "sum", "here"])

    bounds = list(range(100, 1000, 100))
    with tm.Collection(spark, "copies", keys=["key"], partitions=10, bounds=bounds, wait="0 s") as collection:
        for number, each in enumerate(rows):
            collection.add(number, each)
        hot = collection.all().key_range(0, 100)

        def ask(_: int) -> tuple[list[int], str]:
            answer = hot.within("10 s").run(slow).to_pylist()[0]
            return [answer["rows"], answer["sum"]], answer["here"]

        def places(questions: int) -> tuple[bool, int]:
            with ThreadPoolExecutor(4) as pool:
                answers = list(pool.map(ask, range(questions)))
            return all(answer == wanted for answer, _ in answers), len({here for _, here in answers})

        known, before = collection.groups, collection.bytes
        waits = known.workers.waits()
        first, at_home = ask(0)
        busy = places(12)
        known.copies.adapt()
        datasets = hot._datasets
        held = [dict(each.copies) for each in datasets]
        grown = collection.bytes - before
        shared = places(12)
        victim, homes = datasets[0].files[0], known.homes
        kill(victim.process)
        await_executors(spark, victim.executor, 2)
        for file in datasets[0].files + datasets[1].files:
            if file.executor == victim.executor and os.path.exists(file.path):  # as when its host is gone, too
                os.unlink(file.path)
        with unittest.mock.patch.object(placed, "place", wraps=placed.place) as computing:
            after = ask(0)[0]
        remade = places(12)
        known.copies.adapt()
        left = [file for each in datasets for file in each.copies.values()]
        clock.ahead = 3_600 * MICROS_PER_SECOND
        known.copies.adapt()
        collection.add(2, rows[0])  # what was left behind is deleted
        return {
            "idle": set(waits.values()) == {0.0},
            "equal": [first == wanted, busy[0], shared[0], after == wanted, remade[0]],
            "executors": [len({at_home}), shared[1], remade[1]],
            "copied": [{number for number, _ in each} == set(known.grouping.ranges[0]) for each in held],
            "bytes": grown == sum(file.bytes for each in held for file in each.values()),
            "elsewhere": all(home != homes[number] for each in held for number, home in each),
            "computed": computing.call_count,
            "home": known.homes[0] != victim.executor,
            "cold": [bool(left), sum(map(len, (each.copies for each in datasets)))],
            "deleted": not any(os.path.exists(file.path) for file in left),
        }


def derived(spark: SparkSession) -> dict[str, Any]:
    """Running counts, step after step, with checkpoints; an executor is killed, and what it held is asked for."""

    def add(tables: list[pa.Table]) -> pa.Table:
        ones = [
            each if "n" in each.column_names else each.set_column(1, "n", pa.repeat(1, len(each))) for each in tables
        ]
        found = pa.concat_tables([each.select(["key", "n"]) for each in ones])
        return found.group_by("key", use_threads=False).aggregate([("n", "sum")]).rename_columns(["key", "n"])

    with tempfile.TemporaryDirectory() as directory:
        recovery = tm.Recovery("30 s", directory)
        news = tm.Collection(spark, "news", ["key"], PARTITIONS, namespace="derived", recovery=recovery)
        counts = tm.Collection(spark, "counts", ["key"], PARTITIONS, namespace="derived")
        checkpointer: Any = counts.groups.checkpointer
        shuffled = 0
        for step in range(4):
            news.add(step, words(spark, step))
            if step == 3:  # as if it had taken longer than the bound by now
                made = [*news._datasets.values(), *counts._datasets.values()]
                nodes = checkpointer.lineage.datasets
                slow = {each.name: replace(nodes[each.name], reading=20.0, delay=20.0) for each in made}
                checkpointer._lineage = Lineage({**nodes, **slow})
            first = next_stage(spark)
            counts.derive(step, add, [*([counts[step - 1]] if step else []), news[step]])
            drained(spark)
            shuffled += stages(spark, first).get("shuffle", 0)
        written = len(list(Path(directory).rglob("*.arrow")))
        ask = lambda: counts[3].table().sort_by("key").to_pydict()  # noqa: E731
        before = ask()
        files = [file for each in (*news._datasets.values(), *counts._datasets.values()) for file in each.files]
        victim = files[0]
        kill(victim.process)
        await_executors(spark, victim.executor, 2)
        for file in files:
            if file.executor == victim.executor:
                os.unlink(file.path)
        begun = time.monotonic()
        after = ask()
        seconds = time.monotonic() - begun
        counts.evict(3)
        again = ask()
        counts.close()
        news.close()
        return {
            "same": before == after == again,
            "rows": sum(before["n"]),
            "keys": len(before["n"]),
            "shuffled": shuffled,
            "written": written,
            "left": len(list(Path(directory).rglob("*.arrow"))),
            "seconds": seconds,
        }


CHECKS = {
    "placement": placement,
    "moving": moving,
    "migrating": migrating,
    "killed": killed,
    "copies": copies,
    "derived": derived,
    "tier": tier,
    "elastic": elastic,
}
"""In order; those that kill executors come last."""


def main() -> None:
    """Run all checks on one cluster."""
    spark = (
        tm.session_builder()
        .master("local-cluster[3,1,1024]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.executor.extraJavaOptions", "-XX:TieredStopAtLevel=1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    spark.sparkContext._jsc.sc().schedulerBackend().sufficientResourcesRegistered()
    spark.sparkContext.parallelize(range(3), 3).count()
    for _ in range(600):
        with contextlib.suppress(tm.TransomError):
            if len(placed.executors(spark)) == 3:
                break
        time.sleep(0.05)
    with contextlib.redirect_stdout(io.StringIO()):
        found = {name: check(spark) for name, check in CHECKS.items()}
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    sys.exit(main())
