"""What is looked at of placed partitions and collections, one thing at a time; see `cluster_checks.py`."""

from __future__ import annotations

import json
import os
import time
import unittest.mock
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from executors import PARTITIONS, await_executors, drained, kill, next_stage, stages, words
from pyspark.sql import DataFrame, SparkSession

import transom as tm
from transom.collections import workers
from transom.engine.placed import exchange, placed
from transom.engine.placed.files import here
from transom.engine.placed.mapped import open_table
from transom.model.time import MICROS_PER_SECOND, SystemClock
from transom.placement.locality import Assignment


def spread(spark: SparkSession) -> placed.Tasks:
    """Return one task for each partition, evenly over the executors."""
    alive = [each.id for each in placed.executors(spark)]
    homes = Assignment.nowhere(PARTITIONS).settled(alive, [1.0] * PARTITIONS).homes
    return placed.Tasks(spark, homes)


def placement(spark: SparkSession) -> dict[str, Any]:
    """Three datasets, counted together: where the tasks ran, and what was moved."""
    conf, wait = spark.sparkContext._jsc.sc().conf(), "spark.locality.wait.process"
    usual = conf.get(wait)
    conf.set(wait, "10min")  # where an executor is slow, as its machine is busy, tasks go elsewhere after the usual one
    tasks = spread(spark)
    files = [placed.place(words(spark, n), placed.partition_of(["key"], PARTITIONS), tasks, f"d{n}") for n in range(3)]
    paths = [[dataset[number].path for dataset in files] for number in range(PARTITIONS)]
    processes = [file.process for file in files[0]]

    def count(number: int) -> bytes:
        found = sum(pc.sum(pc.match_substring(open_table(p)["text"], "77")).as_py() or 0 for p in paths[number])
        return json.dumps([found, here() == processes[number]]).encode()

    first = next_stage(spark)
    answers = [json.loads(answer) for answer in tasks.run(count)]
    conf.set(wait, usual)
    drained(spark)
    seen = stages(spark, first)
    rows = tasks.frame(lambda i: (b for p in paths[i] for b in open_table(p).to_batches()), words(spark, 0).schema)
    plain = reduce(DataFrame.unionAll, (words(spark, n) for n in range(3))).where("text LIKE '%77%'").count()
    return {
        "executors": len({file.executor for file in files[0]}),
        "processes": len(set(processes)),
        "alike": all(a.process == b.process for a, b in zip(files[0], files[2], strict=True)),
        "found": sum(answer[0] for answer in answers),
        "frame": rows.where("text LIKE '%77%'").count(),
        "plain": plain,
        "local": all(answer[1] for answer in answers),
        "preferred": [preferred(tasks, number) for number in range(PARTITIONS)],
        "homes": list(tasks.homes),
        "stages": seen,
    }


def preferred(tasks: placed.Tasks, task: int) -> list[str]:
    """Return the preferred locations that Spark's scheduler sees for a task."""
    found = tasks.spark.sparkContext._jsc.sc().getPreferredLocs(tasks.rdd._jrdd.rdd(), task)
    return [found.apply(place).toString() for place in range(found.size())]


def moving(spark: SparkSession) -> dict[str, Any]:
    """A dataset goes to other executors, and the old files away."""
    tasks = spread(spark)
    files = placed.place(words(spark, 5), placed.partition_of(["key"], PARTITIONS), tasks, "m")
    other = placed.Tasks(spark, tasks.homes[1:] + tasks.homes[:1])
    moved = exchange.move(files, other, "m")
    alike = [open_table(a.path).equals(open_table(b.path)) for a, b in zip(files, moved, strict=True)]
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
            "homes": victim.executor not in collection._namespace.homes,
        }


class LaterClock(SystemClock):
    """The machine's clock, on which more time has passed."""

    ahead = 0

    def monotonic(self) -> int:
        return super().monotonic() + self.ahead


def copies(spark: SparkSession) -> dict[str, Any]:
    """Many ask for one group, on executors that cannot read one another's files; later nobody does; its home dies."""
    clock, context = LaterClock(), spark.sparkContext
    workers._KNOWN[context.applicationId] = workers.Workers(spark, clock, site=lambda each: each.id)
    rows = [spark.range(30_000).selectExpr(f"(id * 7919 + {n}) % 1000 AS key", "id AS value") for n in range(2)]
    plain = [each.where("key < 100").selectExpr("count(*)", "sum(value)").first() for each in rows]
    wanted = [sum(each[0] for each in plain), sum(each[1] for each in plain)]

    def slow(table: pa.Table) -> pa.Table:
        np.sort(np.random.default_rng(0).random(500_000))
        values = [[len(table)], [pc.sum(table["value"]).as_py()], [here()]]
        return pa.table(values, names=["rows", "sum", "here"])

    bounds = list(range(100, 1000, 100))
    with tm.Collection(spark, "copies", keys=["key"], partitions=10, bounds=bounds, locality_wait="0 s") as collection:
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

        def copied() -> bool:
            """Ask until there are copies, ten times at most; tell whether all answers were right."""
            for _ in range(10):  # on a busy machine questions may come so far apart that the home is free for each
                right, _ = places(12)
                known.copies.adapt()
                if not right or all(each.copies for each in datasets):
                    return right
            return True

        known, before, datasets = collection._namespace, collection.bytes, hot._datasets
        waits = known.workers.waits()
        first, at_home = ask(0)
        busy = copied()
        held = [dict(each.copies) for each in datasets]
        grown = collection.bytes - before
        shared = next((found for found in (places(12) for _ in range(10)) if not found[0] or found[1] > 1), (True, 1))
        victim, homes = datasets[0].files[0], known.homes
        kill(victim.process)
        await_executors(spark, victim.executor, 2)
        for file in datasets[0].files + datasets[1].files:
            if file.executor == victim.executor and os.path.exists(file.path):  # as when its host is gone, too
                os.unlink(file.path)
        with unittest.mock.patch.object(placed, "place", wraps=placed.place) as computing:
            after = ask(0)[0]
        remade = copied()
        left = [file for each in datasets for file in each.copies.values()]
        clock.ahead = 3_600 * MICROS_PER_SECOND
        known.copies.adapt()
        collection.add(2, rows[0])  # what was left behind is deleted
        return {
            "idle": set(waits.values()) == {0.0},
            "equal": [first == wanted, busy, shared[0], after == wanted, remade],
            "executors": [len({at_home}), shared[1]],
            "copied": [{number for number, _ in each} == set(known.grouping.ranges[0]) for each in held],
            "bytes": grown == sum(file.bytes for each in held for file in each.values()),
            "elsewhere": all(home != homes[number] for each in held for number, home in each),
            "computed": computing.call_count,
            "home": known.homes[0] != victim.executor,
            "cold": [bool(left), sum(map(len, (each.copies for each in datasets)))],
            "deleted": not any(os.path.exists(file.path) for file in left),
        }
