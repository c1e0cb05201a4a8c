"""Log mining over hourly datasets: cogroup some of them and count a keyword (Stark, Figure 11)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import transom as tm
from benchmarks.cluster import Stages, networked_cluster, spilled_bytes, watched
from benchmarks.harness import Run, benchmark, paired_ratio
from benchmarks.plots import Figure, Form, Panel, Series
from benchmarks.results import differences

LOG = Path(__file__).parents[1] / ".." / "shared" / "data" / "apache_access_10k.log"
EXECUTORS = 3
MEGABYTES = 3_072
"""Of each executor: the datasets are cached in three forms beside one another, and none of them may be on disk."""
DATASETS = 6
COPIES, QUICK_COPIES = 40, 12
"""How often the 10,000 lines are in a dataset, each time from other clients."""
PARTITIONS = 12
KEYWORDS = ("favicon", "logstash", "Googlebot", "kibana", "Firefox/2", "robots.txt", "images")
REPEATS, QUICK_REPEATS = 7, 3
REDUCED = (
    f"{QUICK_COPIES} instead of {COPIES} times 10,000 lines a dataset, {QUICK_REPEATS} instead of {REPEATS} repeats"
)
SCHEMA = "client string, count_all bigint"

Question = Callable[[int, str], pa.Table]
"""A number of datasets and a keyword give, for each client that has any, its lines with the keyword."""


def lines(spark: SparkSession, dataset: int, copies: int) -> DataFrame:
    """Return the log of one hour, two thirds of whose clients were there in the hour before: client, line."""
    if LOG.exists():
        text = spark.read.text(str(LOG.resolve())).select(F.col("value").alias("line")).repartition(PARTITIONS)
    else:
        page = F.element_at(F.array(*map(F.lit, KEYWORDS)), (F.col("id") % len(KEYWORDS) + 1).cast("int"))
        padding = F.lit(' HTTP/1.1" 200 203023 "http://example.org/blog" "Mozilla/5.0 (Macintosh; Intel Mac OS X)"')
        address = F.concat(F.lit("10.0.0."), F.col("id") % 1_700, F.lit(' - - "GET /'))
        text = spark.range(10_000).select(F.concat(address, page, F.lit("/"), "id", padding).alias("line"))
    copy = F.col("id") + F.lit(dataset * copies // 3)
    client = F.concat(F.substring_index("line", " ", 1), F.lit("."), copy)
    whole = F.concat(client, F.expr("substr(line, instr(line, ' '))"))
    return text.crossJoin(F.broadcast(spark.range(copies))).select(client.alias("client"), whole.alias("line"))


def counting(keyword: str) -> Callable[[pa.Table], pa.Table]:
    """Return the function that all forms apply to the cogrouped lines of some clients.

    Arrow's regular expressions (RE2) find a text of these lines in a fifth of the time that `match_substring` takes.
    """
    pattern = re.escape(keyword)

    def count(rows: pa.Table) -> pa.Table:
        clients = rows.select(["client"]).filter(pc.match_substring_regex(rows["line"], pattern))
        return clients.group_by("client", use_threads=False).aggregate([([], "count_all")])

    return count


def union(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the rows of all."""
    return reduce(DataFrame.unionAll, frames)


def cogrouped(frame: DataFrame, keyword: str) -> pa.Table:
    """Apply the function to the rows of each partition."""
    count = counting(keyword)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = list(batches)
        if held:
            yield from count(pa.Table.from_batches(held)).to_batches()

    return frame.mapInArrow(run, SCHEMA).toArrow()


class Forms:
    """The datasets in every form, in memory, and the question to the first of them."""

    def __init__(self, spark: SparkSession, sources: Sequence[DataFrame]) -> None:
        level = StorageLevel.MEMORY_AND_DISK
        self.raw = [each.persist(level) for each in sources]
        self.ranged = [each.repartitionByRange(PARTITIONS, "client").persist(level) for each in sources]
        self.hashed = [each.repartition(PARTITIONS, "client").persist(level) for each in sources]
        for each in (*self.raw, *self.ranged, *self.hashed):
            each.count()
        self.collection = tm.Collection(spark, "log", keys=["client"], partitions=PARTITIONS)
        for hour, each in enumerate(self.raw):
            self.collection.add(hour, each)

    def questions(self) -> dict[str, Question]:
        """Return the forms by name; the last but one does not cogroup, as this question does not need it."""
        return {
            "range": lambda n, keyword: cogrouped(self._common(self.ranged[:n]), keyword),
            "hash": lambda n, keyword: cogrouped(union(self.raw[:n]).repartition(PARTITIONS, "client"), keyword),
            "cached": lambda n, keyword: cogrouped(union(self.hashed[:n]), keyword),
            "cached_sql": lambda n, keyword: _sql(union(self.hashed[:n]), keyword),
            "sql": lambda n, keyword: _sql(union(self.raw[:n]), keyword),
            "transom": lambda n, keyword: self.collection.between(0, n).run(counting(keyword)),
        }

    def _common(self, ranged: Sequence[DataFrame]) -> DataFrame:
        """Return ranged datasets under one partitioner: hash, as Spark's operators choose, which needs no sample.

        One dataset alone has its clients together already.
        """
        return ranged[0] if len(ranged) == 1 else union(ranged).repartition(PARTITIONS, "client")


def _sql(frame: DataFrame, keyword: str) -> pa.Table:
    """Ask in Spark's own operators: rows without the keyword are gone before any exchange."""
    found = frame.where(F.contains("line", F.lit(keyword)))
    return found.groupBy("client").agg(F.count("*").alias("count_all")).toArrow()


def timed(question: Question, datasets: int, keyword: str) -> tuple[float, pa.Table]:
    """Return the seconds and the answer, ordered by client."""
    begun = time.perf_counter()
    found = question(datasets, keyword)
    return time.perf_counter() - begun, found.sort_by("client")


def measure(run: Run, questions: dict[str, Question]) -> dict[str, dict[int, list[float]]]:
    """Ask all forms in turn, with a keyword per repeat; compare every answer."""
    seconds: dict[str, dict[int, list[float]]] = {name: {n: [] for n in range(1, DATASETS + 1)} for name in questions}
    repeats = QUICK_REPEATS if run.quick else REPEATS
    for name, question in questions.items():  # compiles, and starts the Python workers
        for datasets in (1, DATASETS, DATASETS):
            question(datasets, KEYWORDS[0])
        run.say(f"{name} is warm")
    for repeat in run.repeats(repeats, reserve=15):
        keyword = KEYWORDS[repeat % len(KEYWORDS)]
        for datasets in range(1, DATASETS + 1):
            names = list(questions)
            answers = {}
            for name in names[repeat % len(names) :] + names[: repeat % len(names)]:
                taken, answers[name] = timed(questions[name], datasets, keyword)
                seconds[name][datasets].append(taken)
            for name in names:
                found = differences(answers[name], answers["sql"])
                run.check([f"{name}, {datasets} datasets, {keyword}: {found}"] if found else [])
    return seconds


def main() -> None:
    """Run the benchmark."""
    with benchmark("colocality", REDUCED, figures=True) as run, networked_cluster(run, EXECUTORS, MEGABYTES) as spark:
        copies = QUICK_COPIES if run.quick else COPIES
        path = run.work / "log"
        for dataset in range(DATASETS):
            lines(spark, dataset, copies).write.parquet(str(path / str(dataset)))
        forms = Forms(spark, [spark.read.parquet(str(path / str(dataset))) for dataset in range(DATASETS)])
        spark.conf.set("spark.sql.shuffle.partitions", PARTITIONS)
        run.say(f"{forms.collection}, log {'real' if LOG.exists() else 'made up'}")
        questions = forms.questions()
        seconds = measure(run, questions)
        spilled = spilled_bytes(spark)
        run.check([f"{spilled} bytes of the baselines' cached data are on disk"] if spilled else [])
        with watched(spark) as stages:
            forms.collection.between(0, DATASETS - 1).run(counting(KEYWORDS[0]))
        report(run, seconds, stages[0])


def report(run: Run, seconds: dict[str, dict[int, list[float]]], stages: Stages) -> None:
    """Keep and print the figures; the stronger of the two cached forms is the baseline."""
    middles = {name: {n: median(each) for n, each in found.items()} for name, found in seconds.items()}
    best = {n: min(("cached", "cached_sql"), key=lambda name, n=n: middles[name][n]) for n in middles["cached"]}  # type: ignore[misc]
    for n in range(1, DATASETS + 1):
        for name in ("range", "hash", "transom", "sql"):
            run.figure(f"d{n}.{name}_s", middles[name][n])
        run.figure(f"d{n}.cached_s", middles[best[n]][n])
    run.figure("shuffle_bytes", stages.shuffle_bytes)
    run.figure("local_share", stages.local_share)
    run.table(
        "seconds for a question to N datasets, median",
        ["form", *map(str, range(1, DATASETS + 1))],
        [[name, *found.values()] for name, found in middles.items()],
    )
    five = seconds["transom"][5]
    for name in ("range", "hash", best[5], "sql"):
        run.say(f"5 datasets, {name} over transom: {paired_ratio(seconds[name][5], five)}")
    series = tuple(Series(name, list(found), list(found.values())) for name, found in middles.items())
    panel = Panel(Form.LINES, "Cogroup and count", "datasets", "seconds", series)
    text = f"Median time of a question to 1 to {DATASETS} datasets; {EXECUTORS} executors with one core each."
    run.draw(Figure("colocality", "Log mining over hourly datasets", text, (panel,), columns=1))


if __name__ == "__main__":
    main()
