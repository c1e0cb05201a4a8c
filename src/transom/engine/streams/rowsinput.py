"""Streams whose rows become those of another: what their queries see is kept as files until nothing needs it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from transom.engine.spark import rows as kept_rows
from transom.engine.spark.compile import Compiled
from transom.engine.spark.rowfiles import KeptRows
from transom.engine.state.closing import Closing
from transom.engine.streams.derived import DerivedSource
from transom.model.time import MIN_TIME, Micros
from transom.sources.base import Offset
from transom.storage.places import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from transom.engine.streams.cuts import LoggedCut
    from transom.engine.streams.definition import StreamDefinition
    from transom.engine.streams.stream import RunningStream


def columns_seen(
    parents: Mapping[str, tuple[StreamDefinition, Compiled]], stream: str, query: str, session: SparkSession
) -> StructType:
    """Return the columns of the rows that a query sees.

    Args:
        parents: For each stream its definition, and that compiled.
        stream: Name of the stream.
        query: Name of the query on it.
        session: Analyses the rows.
    """
    definition, compiled = parents[stream]
    raw = session.createDataFrame([], definition.rows.columns(definition.source.schema))
    found = next(each for each in definition.queries if each.name == query)
    return kept_rows.columns_of(kept_rows.rows_of(raw, compiled.plan, found, None))


class InputsSource(DerivedSource, ABC):
    """A derived source that keeps the rows of its inputs."""

    @property
    @abstractmethod
    def inputs(self) -> Sequence[RowsInput]:
        """What it reads."""

    @abstractmethod
    def input_wants(self, one: RowsInput, watermark: Micros, now: Micros) -> bool:
        """Tell whether something would close further down if an input's watermark came so far."""

    def bind(self, stream: RunningStream, streams: Mapping[str, RunningStream]) -> None:
        """Connect with the running parents."""
        super().bind(stream, streams)
        for each in self.inputs:
            each.running = streams[each.stream]
            each.running.readers.append(each)
            each.running.buffers.append(each)

    def reads(self, query: str) -> bool:
        """Tell whether it needs the rows of a query."""
        return any(each.query == query for each in self.inputs)

    def orphaned(self) -> str | None:
        """Return why not all rows come any more."""
        for each in self.inputs:
            if each.lost is not None:
                return f"it reads the rows of {each.query}, which {each.lost}"
        return None


class RowsInput(ABC):
    """One input: reads the watermark of its stream, keeps the rows of its query.

    Args:
        source: The whole.
        number: Its place in it.
        stream: Name of the stream.
        query: Name of the query on it.
    """

    late_of: str | None = None
    """It needs all rows that it keeps, not those that are late for a query."""
    held_bytes = 0
    """The rows wait on disk."""

    def __init__(self, source: InputsSource, number: int, stream: str, query: str) -> None:
        self.number, self.stream, self.query = number, stream, query
        self.directory: Place = Path()
        self.columns: StructType
        self.running: RunningStream
        self.until: Micros = MIN_TIME
        """Its watermark: windows up to here are closed."""
        self._whole = source

    @property
    def child(self) -> RunningStream:
        """The stream of the whole."""
        return self._whole.child

    def wants(self, watermark: Micros, now: Micros) -> bool:
        """Tell whether a watermark without rows would close something further down."""
        return self._whole.input_wants(self, watermark, now)

    @property
    def lost(self) -> str | None:
        """Why the rows are not whole any more; None while they are."""
        state = self.running.state.queries.get(self.query)
        if state is None:
            return "was removed"
        return None if state.failure is None else "failed"

    @property
    def complete_from(self) -> Micros:
        """The moment from which on its rows are all there."""
        state = self.running.state.queries.get(self.query)
        return MIN_TIME if state is None else state.complete_from

    def piece(self, cut: int) -> Place:
        """Return where the rows of a cut are kept."""
        return self.directory / f"{cut:012d}"

    @property
    @abstractmethod
    def behind(self) -> Micros:
        """How far the watermark of the whole may be behind."""

    @property
    @abstractmethod
    def last_end(self) -> Micros:
        """The end of the last window that must be closed at the end of the input."""

    @abstractmethod
    def has_read(self, cut: int, offset: Offset) -> bool:
        """Tell whether the results of a cut are of no more use once the child has committed an offset."""

    @abstractmethod
    def closed(self, cut: int, closings: Sequence[Closing], closed: Micros, ingested: Micros) -> None:
        """Take what a logged cut closed."""

    @abstractmethod
    def store(self, seen: DataFrame, cut: LoggedCut, late_before: Mapping[str, Micros]) -> KeptRows | None:
        """Keep the rows of a cut; None when there are none."""

    @abstractmethod
    def keep(self, cut: int, rows: KeptRows) -> None:
        """Take note of a commit: the rows of its cut are kept."""
