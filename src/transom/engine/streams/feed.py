"""Feeds: the ties of a stream to other streams of the application, none where its rows come from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from transom.engine.spark.compile import Compiled
from transom.engine.spark.rowfiles import KeptFiles, checked
from transom.model.time import MIN_TIME, Micros
from transom.sources.base import Offset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from transom.engine.spark.plan import Rows
    from transom.engine.streams.definition import StreamDefinition
    from transom.engine.streams.stream import RunningStream
    from transom.windows.query import WindowedQuery


@dataclass(frozen=True)
class EarlyResults:
    """All early results that a stream reads, as of a cut; they take the place of those of the cut before."""

    count: int
    read: Callable[[SparkSession], DataFrame]


class Feed:
    """A stream's ties to other streams. Of this class itself: none, its rows come from outside."""

    is_derived = False
    """Whether the rows come from other streams of the application."""

    @property
    def held_bytes(self) -> int:
        """Size of the rows that wait in the driver."""
        return 0

    def learn(self, parents: Mapping[str, tuple[StreamDefinition, Compiled]], session: SparkSession) -> None:
        """Find out the schema from the compiled parents, before `schema` is asked for.

        Raises:
            DefinitionError: The rows cannot be made of them.
        """

    def bind(self, stream: RunningStream, streams: Mapping[str, RunningStream]) -> None:
        """Connect the running stream with its running parents; called once, after they were made."""

    def reads(self, query: str) -> bool:
        """Tell whether it needs a query of a parent."""
        return False

    def orphaned(self) -> str | None:
        """Return why no more rows will ever come, e.g. because the query failed; None while they can."""
        return None

    def starved(self, offset: Offset) -> str | None:
        """Return why no row after `offset` comes in this run, e.g. because a parent is stuck; None while one can."""
        return None

    def complete_from(self) -> Micros:
        """Return the moment from which on it will have all rows, whatever it misses now."""
        return MIN_TIME

    def decided_at(self, offset: Offset, arrived: Micros) -> Micros:
        """Return when the row arrived that decided the watermark in force at an offset; 0 if that is not known.

        Args:
            offset: The offset.
            arrived: When the newest row before it arrived, as far as its own source tells.
        """
        return arrived

    def check(self, rows: Rows, queries: Sequence[WindowedQuery], session: SparkSession) -> None:
        """Return when queries can be made of the rows.

        Args:
            rows: What becomes of them before the queries see them.
            queries: The queries.
            session: Analyses expressions.

        Raises:
            DefinitionError: They cannot.
        """

    def early(self, end: Offset) -> EarlyResults | None:
        """Return the early results known at the end of a cut, besides its rows; None where none are read."""
        return None

    def kept(self, start: Offset, end: Offset) -> Iterable[KeptFiles]:
        """Return the files in the checkpoint that the rows in (start, end] are made of."""
        return ()

    def require_whole(self, start: Offset, end: Offset) -> None:
        """Return if these files are what was written. Asked when a job failed, before others are blamed.

        Raises:
            CheckpointCorruptError: One is missing, or not what was written.
            CheckpointError: The file system does not let us read it.
        """
        for directory, files in self.kept(start, end):
            checked(directory, files)

    def held(self) -> tuple[dict[str, Any], dict[str, pa.Table]] | None:
        """Return what the snapshot must hold, as JSON and tables; None for nothing."""
        return None

    def restore(self, state: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
        """Take in what `held` returned."""

    def settle(self, offset: Offset, check: Callable[[], None]) -> None:
        """Forget what is committed, and remove what earlier runs left behind; called after the log was replayed.

        Args:
            offset: What is before it is committed.
            check: Returns while no other application has taken over the checkpoint; what was found before is of none.
        """


OUTSIDE = Feed()
"""That of every stream whose source is not the engine's own."""
