"""The readers of a stream: what it gives to other streams, results of windows, or rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from transom.engine.spark.rowfiles import KeptRows
from transom.engine.state.closing import Closing
from transom.model.time import Micros
from transom.sources.base import Offset
from transom.storage.places import Place

if TYPE_CHECKING:
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

    def piece(self, cut: int) -> Place:
        """Return where the rows of a cut are kept."""

    def keep(self, cut: int, rows: KeptRows) -> None:
        """Remember that the rows of a committed cut are kept."""
