"""Results as Parquet, JSON or CSV files, one file for each cut that closed windows."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Literal, TypeAlias

import pyarrow.parquet as pq

from transom.errors import SinkError
from transom.model.signatures import checked
from transom.sinks.base import WindowResults
from transom.sinks.csv_lines import write_csv
from transom.sinks.json_lines import write_json_lines
from transom.sinks.owner import Claim, refuse_results_ahead, take_directory
from transom.sinks.parts import (
    ResultFile,
    compaction_lock,
    directory_of,
    list_parts,
    remove_temporaries,
)
from transom.sinks.switching import finish_switch, may_have_begun
from transom.storage.durable import make_directory, replacing, sync_directory
from transom.storage.places import Place

Kind: TypeAlias = Literal["parquet", "json", "csv"]


@checked
def parquet(path: str | os.PathLike[str]) -> FileSink:
    """Write results as Parquet files into a directory that belongs to one query.

    Args:
        path: A local directory, created when it does not exist, or a URI: file://, s3://, gs://, abfs://, hdfs://. Read
            it with any tool, for example `spark.read.parquet(path)` or `SELECT * FROM 'path/*.parquet'` in DuckDB.

    Raises:
        SinkError: Another kind of path, or a URI with credentials.

    >>> parquet("/data/fares").describe()
    'parquet files in /data/fares'
    """
    return FileSink(directory_of(path, "parquet"), "parquet")


@checked
def json(path: str | os.PathLike[str]) -> FileSink:
    """Write results as JSON lines into a directory that belongs to one query.

    Times are ISO 8601 in UTC, decimals are numbers, NaN and the infinities are the texts "NaN", "Infinity"
    and "-Infinity", binary values are base64.

    Args:
        path: A local directory, created when it does not exist, or a URI: file://, s3://, gs://, abfs://, hdfs://.

    Raises:
        SinkError: Another kind of path, or a URI with credentials.
    """
    return FileSink(directory_of(path, "json"), "json")


@checked
def csv(path: str | os.PathLike[str]) -> FileSink:
    """Write results as CSV files, each with the names of the columns, into a directory that belongs to one query.

    Null is an empty field, an empty text is `""`. Times are ISO 8601 in UTC, NaN and the infinities are NaN, Infinity
    and -Infinity, binary values are base64, structs and lists JSON. Quotes are doubled, which Spark's reader takes with
    the option `escape='"'`; texts with line breaks need its option `multiLine`, too.

    Args:
        path: A local directory, created when it does not exist, or a URI: file://, s3://, gs://, abfs://, hdfs://.

    Raises:
        SinkError: Another kind of path, or a URI with credentials.
    """
    return FileSink(directory_of(path, "csv"), "csv")


class FileSink:
    """See `parquet`, `json` and `csv`, which make it. A file is whole and durable when it has its name."""

    def __init__(self, directory: Place, kind: Kind) -> None:
        self.directory = directory
        """Where the files are; no two queries may share it."""
        self.kind = kind
        """The format of the files."""
        self._next_cut = 0
        self._check: Callable[[], None] = lambda: None

    @property
    def key(self) -> str:
        """The place that it writes to, for checkpoints."""
        return f"{self.kind}:{self.directory}"

    def describe(self) -> str:
        """Return what it is and writes, in one line for people."""
        return f"{self.kind} files in {self.directory}"

    def open(self, query: str) -> None:
        """Create the directory.

        Raises:
            SinkError: The path, or one above it, is a file, or the directory cannot be written.
        """
        try:
            make_directory(self.directory)
        except (FileExistsError, NotADirectoryError) as error:
            raise SinkError(
                f"{query}: results cannot go to {self.directory}, because it is or lies in a file.",
                "Choose another directory.",
            ) from error
        except PermissionError as error:
            raise SinkError(
                f"{query}: the directory {self.directory} cannot be created: {error.strerror}.",
                "Create it, or choose another directory.",
            ) from error

    def claim(self, claim: Claim) -> None:
        """Make the directory the query's, or raise SinkError because it is not; see `take_directory`."""
        take_directory(self.directory, claim)
        self._check = claim.check

    def recover(self, query: str, next_cut: int) -> None:
        """Finish an interrupted compaction; remove temporary files and the files of cuts >= `next_cut`.

        Raises:
            SinkError: A merged file holds such cuts: directory and checkpoint do not belong together. Nothing is
                removed then.
        """
        if may_have_begun(self.directory):
            with compaction_lock(self.directory) as held:
                if held:
                    finish_switch(self.directory)
        self._next_cut = next_cut
        newer = [part for part in list_parts(self.directory, self.kind) if part.last >= next_cut]
        merged = [part for part in newer if part.first != part.last]
        if merged:
            file = merged[-1]
            refuse_results_ahead(query, str(self.directory / file.name), "directory", file.last, next_cut)
        remove_temporaries(self.directory)
        if newer:
            self._check()  # what was listed before is none of a run that took over since
        for part in newer:
            (self.directory / part.name).unlink(missing_ok=True)
        if newer:
            sync_directory(self.directory)

    def write(self, results: WindowResults) -> None:
        """Write the file of the cut, durably; it replaces an earlier one of the same cut, merged ones excepted.

        A merged file that spans the cut has its results already, since they are written in the order of the cuts.

        Raises:
            OSError: The disk is full or the permission is missing; nothing is left behind.
        """
        if results.cut < self._next_cut and self._is_merged(results.cut):
            return
        name = ResultFile(results.cut, results.cut, self.kind).name
        with replacing(self.directory / name, unique=True) as file:
            if self.kind == "json":
                write_json_lines(results.table, file)
            elif self.kind == "csv":
                write_csv(results.table, file)
            else:
                pq.write_table(results.table, file, compression="zstd")

    def _is_merged(self, cut: int) -> bool:
        return any(part.first <= cut <= part.last != part.first for part in list_parts(self.directory, self.kind))

    def close(self) -> None:
        """Do nothing: no file is kept open."""
