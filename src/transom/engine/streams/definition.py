"""A stream as the application defines it."""

from __future__ import annotations

from dataclasses import dataclass

from transom.engine.spark.plan import Rows
from transom.engine.streams.derived import DerivedSource
from transom.engine.streams.feed import OUTSIDE, Feed
from transom.model.watermark import WatermarkPolicy
from transom.sources.base import Source
from transom.windows.query import WindowedQuery


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

    @property
    def feed(self) -> Feed:
        """Its ties to other streams of the application."""
        return self.source if isinstance(self.source, DerivedSource) else OUTSIDE

    @property
    def source_name(self) -> str:
        """Name of the stream that its source belongs to."""
        return self.origin or self.name
