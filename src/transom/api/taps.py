"""The rows of a stream on their way to files, as users write them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transom.engine.changes.requests import Change
from transom.engine.streams.taps import RowFiles
from transom.errors import DefinitionError
from transom.model.signatures import checked
from transom.model.time import MAX_TIME, MICROS_PER_SECOND
from transom.model.window import window_of
from transom.sinks.base import Sink
from transom.sinks.directories import FileSink
from transom.windows.aggregates.functions import count
from transom.windows.query import WindowedQuery

if TYPE_CHECKING:
    from transom.api.streams import Rowwise

_LONG = window_of(f"{36_525 * 86_400} seconds")
"""The window in which the rows are counted."""
_NEVER_LATE = MAX_TIME - 36_525 * 86_400 * MICROS_PER_SECOND


@dataclass(frozen=True, eq=False)
class RowTap:
    """Rows of a stream, to be written as they are; made by `rows()`."""

    _rows: Rowwise

    @checked
    def to(self, sink: Sink, name: str | None = None, *, partition_by: str | Sequence[str] = ()) -> Change:
        """Write the rows as files, each once; the executors write them, so that they do not go through the driver.

        The files of a micro-batch get their names when it is committed, one after another. Rows with a time that cannot
        be used are dead letters, as ever; rows that are late for windows are not late here.

        Args:
            sink: What `tm.sinks.parquet`, `tm.sinks.json` or `tm.sinks.csv` return, for a directory that the executors
                reach: on a file system that they share, or in a store.
            name: Names it in progress and checkpoint; default query1, query2, ...
            partition_by: Columns whose values become directories, as with Spark's `partitionBy`.

        Raises:
            DefinitionError: Another kind of sink, or the name or the directory is taken. What cannot be written so, as
                an array in CSV, is said when the application starts.
        """
        if not isinstance(sink, FileSink):
            raise DefinitionError(
                "rows: rows are written as files.", 'Write for example rows().to(tm.sinks.parquet("out")).'
            )
        by = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        rows = self._rows
        return rows.stream._register(rows.stream, [RowFiles(sink, by)], name, all_rows(rows))


def all_rows(rows: Rowwise) -> Callable[[str], WindowedQuery]:
    """Return what makes a query, given its name, that sees rows for which none is late."""

    def query(label: str) -> WindowedQuery:
        branch = rows.stream._branch(rows.chain)
        counted = (("rows", count()),)
        return WindowedQuery(
            label, branch, (), (_LONG,), counted, lateness=_NEVER_LATE, condition=rows.condition, keeps_rows=True
        )

    return query
