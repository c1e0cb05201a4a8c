"""Keeps the rows of a cut as files for what needs rows and not partials: joins, taps and streams of late rows."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING

from transom.engine.spark.compile import Compiled
from transom.engine.spark.rowfiles import KeptRows
from transom.engine.spark.rows import rows_of
from transom.engine.streams.cuts import LoggedCut
from transom.engine.streams.readers import RowBuffer
from transom.errors import CheckpointError, CheckpointFullError
from transom.failures import FailureKind, classify, is_of_files, require_blame
from transom.model.time import Micros
from transom.windows.query import WindowedQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def keep_rows(
    buffers: Sequence[RowBuffer],
    raw: DataFrame,
    compiled: Compiled,
    cut: LoggedCut,
    late_before: Mapping[str, Micros],
    late: Container[str],
) -> tuple[dict[str, KeptRows], dict[str, str]]:
    """Write the rows of a cut, one job for each buffer; durable when it returns.

    Args:
        buffers: Those whose query failed already are left out.
        raw: The rows of the cut.
        compiled: The queries.
        cut: The cut.
        late_before: For each query, the moment before which its rows are late.
        late: The queries for which there are such rows.

    Returns:
        What tells of the rows that are kept, by query; and the queries whose rows cannot be kept, with
        the reason.

    Raises:
        CheckpointFullError: The disk is full.
        CheckpointError: The file system does not take the rows, or rows that are late for a query cannot be kept.
        TransomError: Something else that no query is to blame for.
    """
    kept: dict[str, KeptRows] = {}
    failures: dict[str, str] = {}
    for buffer in buffers:
        if buffer.query not in compiled.queries or (buffer.late_of is not None and buffer.late_of not in late):
            continue
        query = compiled.queries[buffer.query].query
        try:
            seen = rows_of(raw, compiled.plan, query, cut.ahead)
            rows = buffer.store(seen, cut, late_before)
        except Exception as error:
            failure = classify(error)
            if failure.kind is FailureKind.DISK_FULL:
                raise CheckpointFullError(
                    f"Could not keep the rows of {query.name} in {buffer.piece(cut.number)}: {failure.reason}.",
                    "Nothing of this cut was committed: free some space on that disk and run again.",
                ) from error
            require_blame(error, f"Keeping the rows of {query.name!r}")
            if buffer.late_of is not None or (is_of_files(error) and not _fails(raw, compiled, query, cut)):
                raise CheckpointError(
                    f"Could not keep the rows of {query.name} in {buffer.piece(cut.number)}: {failure.reason}.",
                    "Nothing of this cut was committed: repair that, and run again.",
                ) from error
            failures[query.name] = failure.reason
            continue
        if rows is not None:
            kept[query.name] = rows
    return kept, failures


def _fails(raw: DataFrame, compiled: Compiled, query: WindowedQuery, cut: LoggedCut) -> bool:
    """Tell whether rows that could not be kept cannot be computed either, so that the query is to blame.

    A file of the source that went away meanwhile is found by the next try.
    """
    try:
        rows_of(raw, compiled.plan, query, cut.ahead).write.format("noop").mode("overwrite").save()
    except Exception as error:
        require_blame(error, f"Computing the rows of {query.name!r}")
        return classify(error).kind is not FailureKind.FILE_MISSING
    return False
