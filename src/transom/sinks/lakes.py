"""Results in a Delta table, each cut one version of it, noted as an application transaction."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from transom.errors import SinkError, require_extra
from transom.model.arguments import column_names
from transom.model.signatures import checked
from transom.sinks.base import WindowResults
from transom.sinks.owner import Claim, refuse_results_ahead, take_directory
from transom.sinks.parts import directory_of
from transom.storage.durable import make_directory

if TYPE_CHECKING:
    from deltalake import DeltaTable

_WIDER = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)}


@checked
def delta(
    uri: str | os.PathLike[str],
    partition_by: str | Sequence[str] = (),
    storage_options: Mapping[str, str] | None = None,
) -> DeltaSink:
    """Append results to a Delta table that belongs to one query; each cut is one version.

    The version says which cut it holds as an application transaction, in the same commit, so that a cut that is written
    again is found there. Early results and corrections are rows with a higher `revision`: replacing rows would rewrite
    files with each cut. The columns stay as they are: results with others are refused. Delta has no durations and no
    unsigned integers, which become microseconds and wider types.

    Args:
        uri: The table: a local directory or a URI, created with the first results.
        partition_by: Columns of the results, for a table that does not exist yet.
        storage_options: What `deltalake` takes for the store; shown nowhere, and not in the checkpoint.

    Raises:
        DefinitionError: deltalake is not installed.
        SinkError: Another kind of path, or a URI with credentials.
    """
    require_extra("delta", ["deltalake"], "tm.sinks.delta")
    names = column_names([partition_by] if isinstance(partition_by, str) else partition_by, "delta: partition_by")
    return DeltaSink(uri, names, dict(storage_options or {}))


class DeltaSink:
    """See `delta`, which makes it."""

    def __init__(
        self, uri: str | os.PathLike[str], partition_by: Sequence[str], storage_options: Mapping[str, str]
    ) -> None:
        self.directory = directory_of(uri, "delta")
        """Where the table is; no two queries may share it."""
        self.key = f"delta:{self.directory}"
        """The place that it writes to, for checkpoints."""
        self._partition_by = list(partition_by)
        self._options = dict(storage_options)
        self._table: DeltaTable | None = None
        self._application = ""

    def describe(self) -> str:
        """Return what it is and writes, in one line for people."""
        return f"Delta table {self.directory}"

    def open(self, query: str) -> None:
        """Make the directory, and read the table's log if it exists.

        Raises:
            SinkError: The directory cannot be made, or is no Delta table that can be written.
        """
        try:
            make_directory(self.directory)
            self._look()
        except Exception as error:  # whatever the store's client raises
            raise SinkError(
                f"{query}: the Delta table {self.directory} cannot be used: {type(error).__name__}: {error}.",
                "Choose another place, or see whether the store can be reached.",
            ) from error

    def claim(self, claim: Claim) -> None:
        """Make the directory the query's, or raise SinkError because it is not; see `take_directory`."""
        self._application = f"transom-{claim.owner.checkpoint}-{claim.query}"
        take_directory(self.directory, claim, self._look() is not None)

    def recover(self, query: str, next_cut: int) -> None:
        """Check that table and checkpoint belong together; a version is whole, so that there is nothing to clean up.

        Raises:
            SinkError: There are results of cuts that the checkpoint has not made.
        """
        refuse_results_ahead(query, f"the Delta table {self.directory}", "table", self._last_cut(), next_cut)

    def write(self, results: WindowResults) -> None:
        """Append the rows as a version; nothing if the cut is there already.

        Raises:
            SinkError: The table has other columns.
            Exception: The store does not answer, or somebody else was faster; it is tried again.
        """
        from deltalake import CommitProperties, Transaction, write_deltalake
        from deltalake.exceptions import SchemaMismatchError

        if self._last_cut() >= results.cut or not results.table.num_rows:
            return
        self._refuse_empty(results)
        marks = CommitProperties(app_transactions=[Transaction(self._application, results.cut)])
        try:
            write_deltalake(
                self._table or str(self.directory),
                _as_delta_has_it(results.table),
                mode="append",
                partition_by=self._partition_by or None,
                storage_options=self._options or None,
                commit_properties=marks,
            )
        except SchemaMismatchError as error:
            raise SinkError(
                f"{results.query}: the Delta table {self.directory} has other columns: {error}.",
                "Give the query another table, or change the columns of this one (ALTER TABLE).",
            ) from error

    def _refuse_empty(self, results: WindowResults) -> None:
        """Refuse empty texts in columns that the table is partitioned by: Delta does not tell them from null."""
        by = self._partition_by if self._table is None else self._table.metadata().partition_columns
        for name in by:
            if name in results.table.column_names and pc.any(pc.equal(results.table[name].cast("string"), "")).as_py():
                raise SinkError(
                    f"{results.query}: {name} has an empty text, which Delta takes for null in a column that the "
                    "table is partitioned by.",
                    "Leave out such rows, name them otherwise in map(), or partition by another column.",
                )

    def _look(self) -> DeltaTable | None:
        """Return the table at its newest version; None before the first results."""
        from deltalake import DeltaTable

        if self._table is not None:
            self._table.update_incremental()
        elif DeltaTable.is_deltatable(str(self.directory), self._options or None):
            self._table = DeltaTable(str(self.directory), storage_options=self._options or None)
        return self._table

    def _last_cut(self) -> int:
        table = self._look()
        last = None if table is None else table.transaction_version(self._application)
        return -1 if last is None else int(last)

    def close(self) -> None:
        """Let go of the table's log."""
        self._table = None


def _as_delta_has_it(table: pa.Table) -> pa.Table:
    """Return results with types that Delta has; every column may be null."""
    fields = [pa.field(field.name, _type(field.type)) for field in table.schema]
    columns = [_cast(column, field.type) for column, field in zip(table.columns, fields, strict=True)]
    return pa.table(columns, schema=pa.schema(fields))


def _cast(column: Any, kind: pa.DataType) -> Any:
    if pa.types.is_duration(column.type):
        column = column.cast(pa.duration("us"))
    return column if column.type == kind else column.cast(kind)


def _type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _type(kind.value_type)
    if pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_time(kind) or pa.types.is_null(kind):
        return pa.string()
    return _WIDER.get(kind, kind)
