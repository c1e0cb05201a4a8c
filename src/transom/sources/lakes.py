"""A Delta table as a stream: the rows that are appended to it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from transom.errors import DefinitionError, SourceError, require_extra
from transom.model.signatures import checked
from transom.model.time import Clock
from transom.sources.filesets.deltalog import DeltaLog
from transom.sources.filesets.known import FileSet
from transom.sources.filesets.read import checked_schema
from transom.sources.filesets.scanners import AnyScanner
from transom.sources.filesets.source import FileSource
from transom.storage.places import Place, place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


@checked
def delta(
    uri: str | os.PathLike[str], ignore_changes: bool = False, *, max_files_per_cut: int | None = None
) -> DeltaSource:
    """Read the rows that are appended to a Delta table: first those that it has, then version by version.

    Files that are only rewritten (OPTIMIZE) are not read again. The columns are those that the table has at the start.

    Args:
        uri: The table: a local directory or file:// URI.
        ignore_changes: Pass over whole versions that remove or rewrite rows (DELETE, UPDATE, MERGE, overwrites), also
            what they add; without, the first of them ends the run.
        max_files_per_cut: Most files in one micro-batch.

    Raises:
        DefinitionError: deltalake is not installed.
        SourceError: Another kind of path; when the stream starts, also: there is no table, or it has deletion vectors,
            column mapping or another feature that is not read.
    """
    require_extra("delta", ["deltalake"], "tm.sources.delta")
    if max_files_per_cut is not None and max_files_per_cut < 1:
        raise DefinitionError("delta: max_files_per_cut must be at least 1.", "Leave it out for no limit.")
    where = place(uri, "delta", SourceError)
    if not isinstance(where, Path):
        raise SourceError(f"delta: {where} is not on a local file system.", "Give a directory, or read it as files.")
    return DeltaSource(where, ignore_changes, max_files_per_cut)


class DeltaSource(FileSource):
    """See `delta`, which makes it. Files of the table in the order in which its log tells of them."""

    def __init__(self, table: Path, ignore_changes: bool, max_files: int | None) -> None:
        options = {"basePath": f"file://{table}"}
        super().__init__(FileSet((str(table),), "parquet", options, max_files=max_files), "")
        self._table = table
        self._ignore_changes = ignore_changes

    @property
    def schema(self) -> StructType:
        """The columns of the table, all of them nullable."""
        if self._schema is None:
            self._schema = checked_schema(DeltaLog(self._table, None, self._ignore_changes).columns.struct())
        return self._schema

    def describe(self) -> str:
        """Return what it is and reads, in one line for people."""
        return f"Delta table {self._table}"

    def _look_for_files(self, spark: SparkSession, directory: Place, clock: Clock) -> AnyScanner:
        log = DeltaLog(self._table, directory, self._ignore_changes)
        self._schema = checked_schema(log.columns.struct())
        return log
