"""The readers of a stream: what it gives to other streams, results of windows, or rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from transom.engine.spark.rowfiles import KeptRows
from transom.engine.state.closing import Closing
from transom.model.time import Micros
from transom.sources.base import Offset
from transom.storage.places import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from transom.engine.streams.cuts import LoggedCut
    from transom.engine.streams.stream import RunningStream


class Reader(Protocol):
    """Another stream of the application that is fed with what this one gives."""

    query: str
    """The query of this stream whose results it takes."""

    @property
    def child(self) -> RunningStream:
        """The stream that is fed."""

    @property
    def behind(self) -> Micros:
        """The distance of its watermark behind this stream's."""

    @property
    def held_bytes(self) -> int:
        """Size of what waits to be read."""

    @property
    def last_end(self) -> Micros:
        """The end of the last window that waits for this stream's watermark."""

    def wants(self, watermark: Micros, now: Micros) -> bool:
        """Tell whether something would close if it knew that this stream's watermark has come so far."""

    def has_read(self, cut: int, offset: Offset) -> bool:
        """Tell whether the results of a cut are of no more use once the child has committed an offset."""

    def closed(self, cut: int, closings: Sequence[Closing], closed: Micros, ingested: Micros) -> None:
        """Take what a logged cut closed.

        Args:
            cut: Its number.
            closings: The windows that it closed.
            closed: The watermark in force: windows up to it are closed.
            ingested: When the row arrived that completed them.
        """


class RowBuffer(Protocol):
    """Needs the rows that a query sees."""

    query: str
    late_of: str | None
    """The query, if it needs nothing of cuts without rows that are late for that."""

    def piece(self, cut: int) -> Place:
        """Return where the rows of a cut are kept."""

    def store(self, seen: DataFrame, cut: LoggedCut, late_before: Mapping[str, Micros]) -> KeptRows | None:
        """Write the rows of a cut, durably; None when none is to be kept.

        Args:
            seen: What the query sees of the cut, with TIME.
            cut: The cut.
            late_before: For each query, the moment before which its rows are late.
        """

    def keep(self, cut: int, rows: KeptRows) -> None:
        """Take note of a commit: the rows of its cut are kept."""
