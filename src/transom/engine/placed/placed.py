"""Partitions of datasets as Arrow files at chosen executors, and tasks that run where their partitions are.

Stock Spark has no hook for placement, but a task whose RDD names `executor_<host>_<id>` as its preferred location runs
there. A dataset's partitions are written by such tasks into the executors' own Spark directories, as Arrow IPC files,
and read by others through memory maps: no copy, no exchange, and what was read lately is in memory (the page cache).
The tasks get one small number each; which files belong to it comes with their code. See docs/decisions/0019.

Spark Connect has no RDDs: all of this needs a classic session.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from transom.engine.placed import mapped as kept
from transom.engine.placed.files import PlacedFile, Writer, packed
from transom.engine.placed.plain import plain_schema
from transom.errors import SessionError
from transom.model.sessions import is_connect, is_local, java_class
from transom.placement.locality import ExecutorId

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import Column, DataFrame, SparkSession

PAYLOAD, PARTITION = "_payload", "_partition"
DRIVER = "driver"
"""Spark's name of the executor that is the driver itself."""
WRITERS = 4
"""Tasks for each executor that write its partitions of a dataset."""


@dataclass(frozen=True)
class ExecutorInfo:
    """An executor that is alive; in local mode the only one is the driver."""

    id: ExecutorId
    host: str
    cores: int
    active: int = 0
    """Tasks that it runs."""
    leaving: bool = False
    """Whether Spark has been asked to take it away: it is decommissioned, or about to be killed."""

    @property
    def location(self) -> str:
        """The preferred location that means this executor."""
        return f"executor_{self.host}_{self.id}"


class NoExecutorError(SessionError):
    """No executor is there, or one that was chosen is gone: what passes when the cluster has given others."""


def executors(spark: SparkSession) -> list[ExecutorInfo]:
    """Return the executors that are alive, by id.

    Raises:
        SessionError: The session is not a classic one, or was stopped.
        NoExecutorError: It has no executor at the moment.
    """
    if is_connect(spark):
        raise SessionError(
            "Placed datasets need a classic Spark session; this one is a Spark Connect session.",
            "Make it with session_builder() on the machine of the driver.",
        )
    if spark.sparkContext._jsc is None:
        raise SessionError("The Spark session was stopped.", "Make a new one, and what was kept in it again.")
    context = spark.sparkContext._jsc.sc()
    summaries = context.statusStore().executorList(True)
    local = is_local(spark)
    found = []
    for place in range(summaries.size()):
        summary = summaries.apply(place)
        id, host = summary.id(), summary.hostPort().rsplit(":", 1)[0]
        leaving = not local and id != DRIVER and not context.schedulerBackend().isExecutorActive(id)
        found.append(ExecutorInfo(id, host, summary.totalCores(), summary.activeTasks(), leaving))
    others = [each for each in found if each.id != DRIVER]
    if not others and not local:
        raise NoExecutorError("Spark has no executor.", "Wait until the cluster has given some.")
    return sorted(others or found, key=lambda each: (len(each.id), each.id))


class Tasks:
    """Tasks that run at chosen executors; made once for an assignment, used for any number of jobs.

    Args:
        spark: A classic session.
        homes: Executor of each task.

    Raises:
        NoExecutorError: There is no such executor.
    """

    def __init__(self, spark: SparkSession, homes: Sequence[ExecutorId | None]) -> None:
        known = {each.id: each.location for each in executors(spark)}
        gone = sorted({str(home) for home in homes} - known.keys())
        if gone:
            raise NoExecutorError(f"There is no executor {', '.join(gone)}.", f"Executors are {', '.join(known)}.")
        self.spark, self.homes = spark, tuple(str(home) for home in homes)
        self._locations = [known[home] for home in self.homes]

    def __len__(self) -> int:
        return len(self.homes)

    @property
    def application(self) -> str:
        """Id of the Spark application."""
        return str(self.spark.sparkContext.applicationId)

    @cached_property
    def rdd(self) -> RDD[int]:
        """Return the number of each task, one element per partition."""
        from pyspark import RDD
        from pyspark.serializers import BatchedSerializer, CPickleSerializer

        located = self._located([pickle.dumps([number]) for number in range(len(self))], "[B")
        serializer: Any = BatchedSerializer
        return RDD(located, self.spark.sparkContext, serializer(CPickleSerializer(), 1))

    def _located(self, elements: Sequence[Any], kind: str) -> Any:
        pair = java_class(self.spark, "scala.Tuple2")
        sequence = java_class(self.spark, "PythonUtils", "toSeq").toSeq
        pairs = [
            pair(element, sequence([location])) for element, location in zip(elements, self._locations, strict=True)
        ]
        of_kind = java_class(self.spark, "java.lang.Class").forName(kind)
        tag = java_class(self.spark, "scala.reflect.ClassTag").apply(of_kind)
        return self.spark.sparkContext._jsc.sc().makeRDD(sequence(pairs), tag).toJavaRDD()

    def run(self, function: Callable[[int], bytes], tasks: Sequence[int] | None = None) -> list[bytes]:
        """Return what the function gives for the number of each task, at its executor; one job of one stage.

        Args:
            function: Runs in a Python worker there; it comes with all that it refers to.
            tasks: Some of the tasks; None for all.
        """
        context = self.spark.sparkContext

        def run(numbers: Iterable[int]) -> Iterator[bytes]:
            return map(function, numbers)

        return list(context.runJob(self.rdd, run, None if tasks is None else list(tasks)))

    def frame(self, function: Callable[[int], Iterable[pa.RecordBatch]], schema: Any) -> DataFrame:
        """Return the rows that the function gives for the number of each task as a DataFrame; lazy.

        Args:
            function: Runs in a Python worker at the task's executor.
            schema: Spark schema of the rows.
        """
        session: Any = self.spark
        from pyspark.sql import DataFrame

        def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from function(number)

        numbers = DataFrame(session._jsparkSession.createDataFrame(self._numbers, self._number_schema), session)
        return numbers.mapInArrow(rows, schema)

    @cached_property
    def _numbers(self) -> Any:
        gateway: Any = self.spark.sparkContext._gateway
        thing = java_class(self.spark, "java.lang.Object")
        row = java_class(self.spark, "org.apache.spark.sql.RowFactory", "create")
        rows = []
        for number in range(len(self)):
            values = gateway.new_array(thing, 1)
            values[0] = number
            rows.append(row.create(values))
        return self._located(rows, "org.apache.spark.sql.Row")

    @property
    def _number_schema(self) -> Any:
        return java_class(self.spark, "org.apache.spark.sql.types.StructType").fromDDL("number INT")


def partition_of(keys: Sequence[Column | str], partitions: int) -> Column:
    """Return the partition of a row: its keys' hash (Murmur3, as Spark's own) modulo the number of partitions."""
    from pyspark.sql import functions as F

    return F.pmod(F.hash(*keys), F.lit(partitions))


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """Return the plain schema of a DataFrame's rows in Arrow, with timestamps in the session's zone."""
    from pyspark.sql.pandas.types import to_arrow_schema

    zone = frame.sparkSession.conf.get("spark.sql.session.timeZone")
    return plain_schema(to_arrow_schema(frame.schema, timezone=zone))


def place(frame: DataFrame, partition: Column, tasks: Tasks, name: str) -> list[PlacedFile]:
    """Write a DataFrame's rows to the executors, one file per partition, in one job with one exchange.

    A few tasks for each executor write all of its partitions, as a task costs more than a small file.

    Args:
        frame: The rows; a task holds its share of them in memory.
        partition: Number of each row's partition, 0 to the number of tasks - 1.
        tasks: One for each partition.
        name: Of the dataset; begins the names of the files.
    """
    return place_numbered(frame.withColumn(PARTITION, partition.cast("int")), tasks, name)


def place_numbered(numbered: DataFrame, tasks: Tasks, name: str) -> list[PlacedFile]:
    """Do the same for rows that have the number of their partition in the column `PARTITION`."""
    from pyspark.sql import functions as F

    schema = arrow_schema(numbered.drop(PARTITION))
    bundles = _bundles(tasks.homes)
    bundle_of = {number: place for place, bundle in enumerate(bundles) for number in bundle}
    by_place = numbered.toDF(*(f"c{place}" for place in range(len(numbered.columns))))  # mapInArrow takes no dots
    partition = F.col(f"c{numbered.columns.index(PARTITION)}")
    bundle = F.element_at(F.array(*(F.lit(bundle_of[number]) for number in range(len(tasks)))), partition + 1)
    writer = Writer(tasks.application, name)
    by_task = by_place.repartitionById(len(bundles), bundle)
    written = by_task.mapInArrow(_writing(writer, schema, arrow_schema(numbered)), f"{PAYLOAD} binary")
    homes = Tasks(tasks.spark, [tasks.homes[bundle[0]] for bundle in bundles])

    def complete(payload: bytes, task: int) -> dict[int, PlacedFile]:
        held = pickle.loads(payload)
        for number in set(bundles[task]) - held.keys():
            held[number] = writer.write(packed(schema.empty_table()), f"{number}")
        return {number: file.seen() for number, file in held.items()}

    found = {
        number: replace(file, executor=home)
        for files, home in zip(at_tasks(written, homes, complete), homes.homes, strict=True)
        for number, file in files.items()
    }
    return [found[number] for number in range(len(tasks))]


def _bundles(homes: Sequence[ExecutorId]) -> list[list[int]]:
    """Return the partitions that are written by one task each, all with the same home."""
    by_home: dict[ExecutorId, list[int]] = {}
    for number, home in enumerate(homes):
        by_home.setdefault(home, []).append(number)
    bundles = []
    for held in by_home.values():
        count = min(len(held), WRITERS)
        bundles += [held[len(held) * place // count : len(held) * (place + 1) // count] for place in range(count)]
    return bundles


def remove(files: Sequence[PlacedFile], spark: SparkSession) -> None:
    """Delete files at the executors that are still alive; what is gone already is gone."""
    alive = {each.id for each in executors(spark)}
    by_home: dict[ExecutorId, list[str]] = {}
    for file in files:
        if file.executor in alive:
            by_home.setdefault(file.executor, []).append(file.path)
    if not by_home:
        return
    homes = sorted(by_home)

    def delete(number: int) -> bytes:
        for path in by_home[homes[number]]:
            kept.delete(path)
        return b""

    Tasks(spark, homes).run(delete)


def _writing(
    writer: Writer, schema: pa.Schema, numbered: pa.Schema
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what writes a task's rows, a file for each partition that has any, and gives one row: these files."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        come = list(batches)  # Spark may say of other columns than the plan that they are never NULL
        table = pa.Table.from_batches(come).rename_columns(numbered.names) if come else numbered.empty_table()
        table = table.sort_by(PARTITION)
        files: dict[int, PlacedFile] = {}
        begin = 0
        for each in table[PARTITION].value_counts():
            number, count = each["values"].as_py(), each["counts"].as_py()
            part = table.drop_columns(PARTITION).slice(begin, count).cast(schema)
            files[number] = writer.write(packed(part), f"{number}")
            begin += count
        yield pa.record_batch([pa.array([pickle.dumps(files)], pa.binary())], names=[PAYLOAD])

    return write


def at_tasks(packed: DataFrame, tasks: Tasks, function: Callable[[bytes, int], Any]) -> list[Any]:
    """Return what a function gives for each partition's one payload and its number, at the task of that number.

    The whole stage runs there. So what is large is dealt with before, by whoever gives the payloads: these go to the
    JVM and into a second Python worker.
    """
    from pyspark import RDD
    from pyspark.serializers import PairDeserializer

    payloads = packed.rdd
    pairs = payloads._jrdd.zip(tasks.rdd._jrdd)
    pair: Any = PairDeserializer
    deserializer = pair(payloads._jrdd_deserializer, tasks.rdd._jrdd_deserializer)

    def run(rows: Iterable[Any]) -> Iterator[Any]:
        for row, task in rows:
            yield function(bytes(row[PAYLOAD]), task)

    return RDD(pairs, tasks.spark.sparkContext, deserializer).mapPartitions(run).collect()
