"""A stream as the application defines it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from transom.engine.spark.plan import Rows
from transom.engine.streams.derived import DerivedSource
from transom.engine.streams.feed import OUTSIDE, Feed
from transom.engine.streams.sending import Leaving
from transom.model.watermark import WatermarkPolicy
from transom.sources.base import Source
from transom.windows.query import WindowedQuery

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class StreamDefinition:
    """A stream as the application defines it."""

    name: str
    source: Source
    rows: Rows
    policy: WatermarkPolicy
    queries: tuple[WindowedQuery, ...]
    origin: str = ""
    """The stream that its source belongs to; empty for itself."""
    leaving: Leaving | None = None
    """How its partials leave for the sites where windows are made of them; None where they are made here."""
    rows_of: Source | None = None
    """Where the rows come from, if the source brings partials of them; it may be at other sites only."""
    columns: StructType | None = None
    """The columns of those rows, when they are known."""

    @property
    def feed(self) -> Feed:
        """Its ties to other streams of the application."""
        return self.source if isinstance(self.source, DerivedSource) else OUTSIDE

    @property
    def source_name(self) -> str:
        """Name of the stream that its source belongs to."""
        return self.origin or self.name

    @property
    def schema(self) -> StructType:
        """The columns of the rows that its queries are written for."""
        return self.source.schema if self.columns is None else self.columns
