"""Rows of a stream kept as files."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from transom.engine.spark.columns import TIME, to_condition
from transom.engine.spark.eventtimes import good_rows
from transom.engine.spark.plan import StreamPlan
from transom.engine.spark.rowfiles import KeptRows, files_in
from transom.model.time import Micros
from transom.sources.filesets.read import escape_glob
from transom.storage.durable import make_directory, names_in, remove_tree, sync_directory, sync_file
from transom.storage.places import Place, spark_uri
from transom.windows.query import WindowedQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_WRITING = {"parquet.page.write-checksum.enabled": "true"}
_READING = {
    "parquet.page.verify-checksum.enabled": "true",
    "parquet.filter.columnindex.enabled": "false",  # the one part of a file that nobody checks
}
"""Spark compares the checksum of each page, so that damage fails the job, whenever it comes; see `rowfiles.Whole`."""

IN_FORCE = "_in_force"
"""Column of kept rows with the watermark in force at their cut: the row is in time for windows that end later."""


def rows_of(raw: DataFrame, stream: StreamPlan, query: WindowedQuery, ahead: Micros | None) -> DataFrame:
    """Return the rows that a query sees, with TIME."""
    seen = stream.branches[query.branch](good_rows(stream.timed(raw), ahead, raw.columns))
    return seen if query.condition is None else seen.where(to_condition(query.condition))


def _numbered(seen: DataFrame) -> DataFrame:
    """Return the columns but TIME as c0, c1, ..., which any file can hold, and TIME."""
    names = [f"c{i}" for i in range(len(seen.columns))]
    at = seen.columns.index(TIME)
    names[at:] = [TIME, *names[at:-1]]
    return seen.toDF(*names)


def columns_of(seen: DataFrame) -> StructType:
    """Return the columns of a query's rows without TIME."""
    from pyspark.sql.types import StructType

    return StructType([field for field in seen.schema if field.name != TIME])


def write_rows(seen: DataFrame, condition: str, watermark: Micros, piece: Place) -> KeptRows | None:
    """Keep rows of a cut as Parquet files, durably.

    Args:
        seen: What `rows_of` returned.
        condition: Which ones, as SQL over TIME.
        watermark: In force for the cut; microseconds.
        piece: Where; each try has a directory of its own there, since what was killed or overtaken may still write.

    Returns:
        What tells of them; None when no row is left, and nothing is kept.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    attempt = uuid.uuid4().hex
    make_directory(piece)
    directory, observation = piece / attempt, Observation()
    counts = F.max(TIME).alias("newest"), F.count(F.lit(1)).alias("rows")
    numbered = _numbered(seen).where(condition)
    kept = numbered.withColumn(IN_FORCE, F.lit(watermark).cast("bigint")).observe(observation, *counts)
    kept.write.options(**_WRITING).parquet(spark_uri(directory))
    newest: Micros | None = observation.get["newest"]
    if newest is None:
        remove_tree(piece)
        return None
    for hidden in [name for name in names_in(directory) if name.startswith((".", "_"))]:
        (directory / hidden).unlink()  # checksums of Hadoop's and the like
    files = files_in(directory)
    for name in files:
        sync_file(directory / name)
    sync_directory(directory)
    sync_directory(piece)
    named = {f"{attempt}/{name}": written for name, written in files.items()}
    return KeptRows(newest, named, rows=observation.get["rows"])


def write_files(seen: DataFrame, kind: str, partition_by: Sequence[str], directory: Place) -> bool:
    """Write the rows of a cut as they are; return whether there are any.

    Args:
        seen: What `rows_of` returned.
        kind: `parquet`, `json` or `csv`.
        partition_by: Columns whose values become directories.
        directory: Where; not there yet, and nobody else has the name.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    observation = Observation()
    rows = seen.drop(TIME).observe(observation, F.count(F.lit(1)).alias("rows"))
    options = {"json": {"ignoreNullFields": "false"}, "csv": {"header": "true", "escape": '"', "emptyValue": '""'}}
    writer = rows.write.partitionBy(*partition_by)
    writer.format(kind).options(**options.get(kind, {})).save(spark_uri(directory))
    return bool(observation.get["rows"])


def read_rows(spark: SparkSession, paths: Sequence[Place], columns: StructType) -> DataFrame:
    """Return the kept rows of some files: their columns, TIME and IN_FORCE."""
    from pyspark.sql.types import LongType, StructField, StructType

    stored = StructType([StructField(f"c{i}", field.dataType) for i, field in enumerate(columns)])
    stored = StructType([*stored, StructField(TIME, LongType()), StructField(IN_FORCE, LongType())])
    rows = (
        spark.read.schema(stored).options(**_READING).parquet(*[escape_glob(spark_uri(path)) for path in paths])
        if paths
        else spark.createDataFrame([], stored)
    )
    return rows.toDF(*columns.names, TIME, IN_FORCE)
