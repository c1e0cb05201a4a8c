"""Questions about the past hours: what is asked, the datasets in each form, and how each form is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import transom as tm
from benchmarks.harness import Run
from benchmarks.results import differences
from benchmarks.workloads import hotspots

EXECUTORS = 3
PARTITIONS = 12
LIMIT_S = 0.8
"""In which an answer is wanted."""
KINDS = {
    "count": "count(*) AS trips",
    "fares": "cell, count(*) AS trips, sum(fare) AS fares, max(tip) AS tip",
    "median": "cell, count(*) AS trips, median(fare) AS median",
}
"""Kinds of questions, a third each, as Spark is asked them."""


@dataclass(frozen=True)
class Question:
    """What is asked of the cells in a region, over some of the datasets."""

    kind: str
    start: int
    end: int
    first: int
    """First cell."""
    last: int
    """The cell after the last one."""


Ask = Callable[[Question], pa.Table]


def questions(rng: np.random.Generator, count: int, steps: int, cells: np.ndarray) -> list[Question]:
    """Return questions about random ranges of times and random regions, the kinds in turn."""
    found = []
    for number in range(count):
        start, end = sorted(rng.choice(steps + 1, 2, replace=False))
        low, high = np.quantile(cells, sorted(rng.random(2)), method="lower")
        found.append(Question(list(KINDS)[number % len(KINDS)], int(start), int(end), int(low), int(high) + 1))
    return found


class Forms:
    """The datasets in memory in each form, and how each answers."""

    def __init__(
        self, run: Run, session: SparkSession, tag: str, sources: Sequence[DataFrame], cells: np.ndarray
    ) -> None:
        run.say(f"{tag}: loading {len(sources)} datasets")
        self.tag, self.session, self.steps = tag, session, len(sources)
        self.frames = {
            "hash": [each.persist() for each in sources],
            "cached": [_together(each).persist() for each in sources],
        }
        for name, frames in self.frames.items():
            reduce(DataFrame.unionAll, frames).count()  # one job fills the caches of all
            for step, each in enumerate(frames):
                each.createOrReplaceTempView(f"{name}_{step}")
        bounds = hotspots.bounds(cells, PARTITIONS, int(cells.max()))
        self.collection = tm.Collection(session, tag, keys=["cell"], partitions=PARTITIONS, bounds=bounds)
        for step, each in enumerate(sources):
            self.collection.add(step, each)

    def asks(self) -> dict[str, Ask]:
        """Return how to ask each form."""
        return {
            "hash": lambda q: self.sql("hash", q).toArrow(),
            "cached": lambda q: self.sql("cached", q).toArrow(),
            "transom": self.placed,
        }

    def sql(self, name: str, q: Question) -> DataFrame:
        """Ask Spark: only the cells of the region are exchanged, or nothing where a cell's trips lie together."""
        union = " UNION ALL ".join(f"SELECT cell, fare, tip FROM {name}_{step}" for step in range(q.start, q.end))
        grouped = "" if q.kind == "count" else " GROUP BY cell"
        region = f"cell >= {q.first} AND cell < {q.last}"
        return self.session.sql(f"SELECT {KINDS[q.kind]} FROM ({union}) WHERE {region}{grouped}")

    def placed(self, q: Question) -> pa.Table:
        """Ask the collection."""
        view = self.collection.between(q.start, q.end).key_range(q.first, q.last).within(f"{LIMIT_S} s")
        if q.kind == "count":
            return pa.table({"trips": [view.count()]})
        if q.kind == "median":
            return view.run(hotspots.medians)
        found = view.aggregate(["cell"], {"fare": ["count", "sum"], "tip": "max"})
        return found.rename_columns(["cell", "trips", "fares", "tip"])

    def close(self) -> None:
        """Free the memory."""
        for name, frames in self.frames.items():
            for step, each in enumerate(frames):
                each.unpersist()
                self.session.catalog.dropTempView(f"{name}_{step}")
        self.collection.close()


def _together(frame: DataFrame) -> DataFrame:
    """Return the rows with those of a cell together.

    A filter makes a nullable key not null; then Spark no longer sees that filtered datasets are partitioned alike, and
    exchanges their union. So the key is not nullable from the start.
    """
    key = F.coalesce("cell", F.lit(0).cast("bigint"))
    return frame.withColumn("cell", key).repartition(EXECUTORS, "cell").sortWithinPartitions("cell")


def datasets(run: Run, session: SparkSession, steps: int, rows: int, tag: str) -> tuple[list[DataFrame], np.ndarray]:
    """Write the datasets, whose rate rises; return them and the cells of the last."""
    rng = np.random.default_rng(3)
    frames, cells = [], np.zeros(0, np.int64)
    for step in range(steps):
        cells = hotspots.taxi_cells(rng, int(rows * (2 / 3) * (1 + step / max(1, steps - 1))), 0) >> 8
        path = run.work / f"{tag}-{step}.parquet"
        pq.write_table(hotspots.trips(cells, rng, 5 * step), path)
        frames.append(session.read.schema(hotspots.TRIPS).parquet(str(path)))
    return frames, cells


def compare(run: Run, asks: Mapping[str, Ask], asked: Sequence[Question]) -> None:
    """Compare the answers of all forms, which also warms them."""
    for question in asked:
        answers = {name: ask(question) for name, ask in asks.items()}
        if question.kind != "count":
            answers = {name: answer.sort_by("cell") for name, answer in answers.items()}
        for name in ("cached", "transom"):
            found = differences(answers[name], answers["hash"])
            run.check([f"{name}, {question}: {found}"] if found else [])
