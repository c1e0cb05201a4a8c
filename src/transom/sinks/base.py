"""The contract of a sink: it takes each window's results once, identified by query and cut."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from transom.errors import SinkError, TransomError
from transom.sinks.owner import Claim

REVISION = "revision"
"""Result column of queries whose windows are emitted more than once: 0 for a window's first result, then counted up."""


@dataclass(frozen=True)
class WindowResults:
    """The results of one query that one cut gave."""

    query: str
    cut: int
    """Number of the cut that closed the windows; (query, cut) identifies the results for ever."""
    table: pa.Table
    """window_start, window_end (timestamp[us, UTC], end exclusive), keys, values; by window_end, window_start. Or the
    columns that the query selects. A query
    with early results or lateness has the column `revision` at the end; a row replaces those of the same window and
    keys with a lower one."""
    keys: tuple[str, ...] = ()
    """Names of the columns that identify a row: window_start, window_end and the grouping keys, as the query names
    them; none if it selects only some of them."""

    @property
    def updates(self) -> bool:
        """Whether rows may replace earlier ones."""
        return REVISION in self.table.column_names


class Sink(Protocol):
    """A destination of results. Called from one thread at a time per query.

    Provisional: may change in a minor version.

    It may have an attribute `key`, a text that says which place it writes to and never changes, by which checkpoints
    tell the sinks of a query apart; else what `describe` returns is taken. Neither may hold a secret.
    """

    def describe(self) -> str:
        """Return what it is and writes, in one line for people."""

    def open(self, query: str) -> None:
        """Prepare for the query; called at every start of the application.

        Raises:
            SinkError: It can never work, e.g. the path is a file.
        """

    def claim(self, claim: Claim) -> None:
        """Take the place of the results for a query of a checkpoint, durably; called after `open`, at every start.

        Raises:
            SinkError: It belongs to another query or checkpoint, or holds results of unknown origin. Nothing was read,
                removed or written there.
        """

    def recover(self, query: str, next_cut: int) -> None:
        """Remove what an interrupted run left behind: temporary files, and results of cuts >= `next_cut`.

        Those cuts are not in the checkpoint's log, or their results are written again.

        Args:
            query: The query.
            next_cut: Number of the first cut that this run will log.

        Raises:
            SinkError: It holds results that are not of this checkpoint.
        """

    def write(self, results: WindowResults) -> None:
        """Make the results durable and visible, all or nothing; writing the same (query, cut) again replaces it.

        Raises:
            Exception: Anything; the engine retries with back-off while other queries go on.
        """

    def close(self) -> None:
        """Let go of everything."""


@contextmanager
def explained(query: str, sink: Sink) -> Iterator[None]:
    """Name query and sink in any error of the body.

    Raises:
        SinkError: Instead of any error that is not Transom's own.
    """
    try:
        yield
    except TransomError:
        raise
    except Exception as error:
        raise SinkError(
            f"query {query!r}: its sink ({sink.describe()}) cannot be used: {type(error).__name__}: {error}.",
            "Repair it, or send the results elsewhere.",
        ) from error
