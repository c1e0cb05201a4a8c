"""Tables beside streams, in which rows are looked up: what `Stream.lookup` takes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from transom.errors import DefinitionError, SourceError, require_extra
from transom.model.signatures import checked
from transom.sources.filesets.deltalog import DeltaLog
from transom.sources.filesets.read import escape_glob
from transom.storage.places import Place, place, spark_uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Table", "delta", "parquet", "sql"]


class Table(Protocol):
    """A table that is small enough for each executor to hold, and may change."""

    def read(self, spark: SparkSession) -> DataFrame:
        """Return its rows as they are now; lazy: runs no job."""

    def describe(self) -> str:
        """Return what it is, in a few words for people."""


@checked
def parquet(path: str | os.PathLike[str]) -> Table:
    """Name a table of Parquet files.

    Args:
        path: A directory or file, local or a URI: s3://, gs://, abfs://, hdfs://.

    Raises:
        SourceError: Another kind of URI.
    """
    where = place(path, "parquet", SourceError)
    return ParquetTable(where.absolute() if isinstance(where, Path) else where)


@checked
def delta(uri: str | os.PathLike[str]) -> Table:
    """Name a Delta table.

    Args:
        uri: A local directory or file:// URI.

    Raises:
        DefinitionError: deltalake is not installed.
        SourceError: Another kind of path.
    """
    require_extra("delta", ["deltalake"], "tm.tables.delta")
    where = place(uri, "delta", SourceError)
    if not isinstance(where, Path):
        raise SourceError(f"delta: {where} is not on a local file system.", "Give a directory, or a SQL query.")
    return DeltaLakeTable(where)


@checked
def sql(query: str) -> Table:
    """Name the result of a SQL query, over what Spark's catalog has: tables, views, other databases.

    Args:
        query: For example "SELECT id, name FROM zones WHERE open".
    """
    if not isinstance(query, str) or not query.strip():
        raise DefinitionError(f"sql: {query!r} is no query.", 'Write for example sql("SELECT id, name FROM zones").')
    return SqlTable(query)


@dataclass(frozen=True)
class ParquetTable:
    """See `parquet`, which makes it."""

    path: Place

    def read(self, spark: SparkSession) -> DataFrame:
        """Return the rows of its files."""
        return spark.read.parquet(escape_glob(spark_uri(self.path)))

    def describe(self) -> str:
        """Return its path."""
        return f"Parquet {self.path}"


@dataclass(frozen=True)
class DeltaLakeTable:
    """See `delta`, which makes it."""

    path: Path

    def read(self, spark: SparkSession) -> DataFrame:
        """Return the rows of its newest version."""
        log = DeltaLog(self.path, None, False)
        columns, files = log.columns.struct(), [escape_glob(f"file://{file}") for file, _, _ in log.poll((), None)]
        if not files:
            return spark.createDataFrame([], columns)
        return spark.read.schema(columns).option("basePath", f"file://{self.path}").parquet(*files)

    def describe(self) -> str:
        """Return its path."""
        return f"Delta table {self.path}"


@dataclass(frozen=True)
class SqlTable:
    """See `sql`, which makes it."""

    query: str

    def read(self, spark: SparkSession) -> DataFrame:
        """Return the result of the query."""
        return spark.sql(self.query)

    def describe(self) -> str:
        """Return the query in one line."""
        return f"SQL {' '.join(self.query.split())}"


@dataclass(frozen=True)
class FrameTable:
    """A DataFrame that the user made, or a function that makes one, given the session."""

    made: Any

    def read(self, spark: SparkSession) -> DataFrame:
        """Return the DataFrame, planned anew: it then reads what is there now."""
        if not callable(self.made):
            return self.made.select("*")  # type: ignore[no-any-return]
        frame = self.made(spark)
        if not hasattr(frame, "groupBy"):
            raise DefinitionError(
                f"lookup: {getattr(self.made, '__name__', self.made)!r} returned {type(frame).__name__}, not a "
                "DataFrame.",
                "Return a DataFrame of the session that it gets.",
            )
        return frame  # type: ignore[no-any-return]

    def describe(self) -> str:
        """Return the name of the function."""
        return f"{getattr(self.made, '__name__', 'function')}()" if callable(self.made) else "a DataFrame"


def table_of(given: Any) -> Table:
    """Return the table that a user means.

    Raises:
        DefinitionError: It is none.
    """
    if isinstance(given, ParquetTable | DeltaLakeTable | SqlTable):
        return given
    if hasattr(given, "groupBy") or callable(given):
        return FrameTable(given)
    raise DefinitionError(
        f"lookup: {given!r} is no table.",
        "Give tm.tables.parquet(path), tm.tables.delta(path), tm.tables.sql(query), a DataFrame, or a function that "
        "gets a session and returns one.",
    )
