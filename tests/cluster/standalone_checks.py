"""What happens on a standalone cluster of two workers with two cores each; a program of its own.

`python standalone_checks.py NAME DIRECTORY` prints what it saw as one JSON object: of `collections`, while a worker is
lost and another one comes; of an application that is `growing` by what it asks for, and gives back.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from cluster_checks import Running
from executors import await_executors, drained, next_stage, stages
from pyspark.sql import SparkSession
from tests.cluster.drivers import FOUR_EXECUTORS
from tests.cluster.standalone import StandaloneCluster
from tier_checks import grows

import transom as tm
from transom.engine.placed import placed


def exchanged(spark: SparkSession, since: int) -> int:
    """Return the bytes that executors sent one another and read, in all stages from a number on."""
    drained(spark)
    return stages(spark, since).get("shuffle", 0)


def there(running: Running, workers: list[Path]) -> dict[str, Any]:
    """Return where the partitions of all datasets are."""
    by_partition = list(zip(*running.files, strict=True))
    alive = {each.id for each in placed.executors(running.spark)}
    at = [[str(worker) for worker in workers if Path(file.path).is_relative_to(worker)] for (file, *_) in by_partition]
    return {
        "alike": all(len({file.executor for file in files}) == 1 for files in by_partition),
        "executors": sorted(files[0].executor for files in by_partition),
        "alive": {file.executor for files in by_partition for file in files} <= alive,
        "files": all(os.path.exists(file.path) for files in by_partition for file in files),
        "workers": [Path(name).name for (name,) in at],
        "bytes": sum(file.bytes for files in by_partition for file in files),
    }


def ask(running: Running, workers: list[Path]) -> dict[str, Any]:
    """Return what is found, what had to be exchanged for it, and where all is then."""
    first = next_stage(running.spark)
    found = [*running.found(), running.counts.all().count()]
    return {"found": found, "exchanged": exchanged(running.spark, first), **there(running, workers)}


def collections(spark: SparkSession, cluster: StandaloneCluster, directory: Path) -> dict[str, Any]:
    """Datasets and what is derived of them are asked while workers go and come."""
    await_executors(spark, "", 4)
    first = next_stage(spark)
    running = Running(spark, str(directory / "recovery"))
    added = exchanged(spark, first)
    begun = ask(running, cluster.workers)
    cluster.kill_worker(0)
    for lost in [each.name for each in cluster.workers[0].glob("app-*/*")]:  # executors have a directory each
        await_executors(spark, lost, 2)
    # As when its machine is gone, too; what its executors still find time for, they remove themselves.
    shutil.rmtree(cluster.workers[0], ignore_errors=True)
    smaller, again = ask(running, cluster.workers), ask(running, cluster.workers)
    cluster.add_worker()
    await_executors(spark, "", 4)
    larger, settled = ask(running, cluster.workers), ask(running, cluster.workers)
    running.counts.close()
    running.news.close()
    return {"added": added, "derived": running.shuffled, "steps": [begun, smaller, again, larger, settled]}


def growing(spark: SparkSession, cluster: StandaloneCluster, directory: Path) -> dict[str, Any]:
    """An application that is to begin with one executor asks for three, and gives one back while another is killed."""
    there = await_executors(spark, "", 4)
    return {"there": there, **grows(spark, 3, strike=True)}


CHECKS = {
    # On a busy machine tasks shall not go elsewhere either.
    "collections": (collections, {"spark.locality.wait.process": "10min"}),
    "growing": (growing, {"spark.executor.instances": "1"}),
}


def main(name: str, directory: Path) -> None:
    """Run the cluster and look."""
    check, conf = CHECKS[name]
    with StandaloneCluster(directory, workers=2) as cluster:
        builder = tm.session_builder().master(cluster.master).config("spark.driver.host", "127.0.0.1")
        for key, value in {**FOUR_EXECUTORS, **conf}.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        with contextlib.redirect_stdout(io.StringIO()):
            found = check(spark, cluster, directory)
        spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
