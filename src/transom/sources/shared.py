"""One source read by several streams, each at its own pace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from transom.errors import DefinitionError
from transom.model.arguments import shown
from transom.model.time import Clock, Micros
from transom.sources.base import Cut, Divisible, Mark, Offset, Source, Unit, Waiting
from transom.storage.places import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class SharedSource:
    """A source and the streams that read it. It is opened once, and looked at once for all of them.

    Args:
        source: The source.

    Raises:
        DefinitionError: It is none.
    """

    def __init__(self, source: Source) -> None:
        if not hasattr(source, "latest"):
            raise DefinitionError(
                f"stream: {shown(source)} is no source.", 'Write for example tm.sources.files("in", "at timestamp").'
            )
        self.source = source
        self.names: list[str] = []
        """The streams that read it; it belongs to the first one."""
        self._readers: list[SourceReader] = []
        self._opened = False
        self._newest: Offset = 0
        self._looks = 0

    def read_by(self, name: str) -> Callable[[], Source]:
        """Note a stream that reads it; return what makes its source when the application starts."""
        self.names.append(name)
        return lambda: self.source if len(self.names) == 1 else SourceReader(self)

    def open(self, reader: SourceReader, spark: SparkSession, directory: Place, clock: Clock) -> None:
        """Open the source for its first reader."""
        self._readers.append(reader)
        if not self._opened:
            self._opened, self._looks = True, 0
            self.source.open(spark, directory, clock)

    def latest(self, seen: int) -> tuple[Offset, int]:
        """Return the newest offset and the number of the look that found it.

        Args:
            seen: The look that the reader knows already; only who knows the last one makes another.
        """
        if seen == self._looks:
            self._newest = self.source.latest()
            self._looks += 1
        return self._newest, self._looks

    def release(self) -> None:
        """Release what none of the streams needs any more."""
        needed = [offset for offset in (reader.needed() for reader in self._readers) if offset is not None]
        if needed:
            self.source.release(least(needed))

    def close(self) -> None:
        """Close the source with its first reader."""
        if self._opened:
            self._opened = False
            self._readers.clear()
            self.source.close()


class SourceReader:
    """A shared source as one stream sees it; `transom.sources.base.Source` says what the methods do.

    Args:
        shared: The source.
    """

    def __init__(self, shared: SharedSource) -> None:
        self._shared = shared
        self._source = shared.source
        self._seen = 0
        self.needed: Callable[[], Offset | None] = self._source.start
        """Returns the oldest offset that the stream may read again, None for none; set when there is a stream."""

    @property
    def schema(self) -> StructType:
        """The columns of `read`, without the optional ones."""
        return self._source.schema

    @property
    def partitions(self) -> Sequence[str]:
        """Names of the source partitions."""
        return self._source.partitions

    def describe(self) -> str:
        """Return what it is and reads, in one line for people."""
        return self._source.describe()

    def open(self, spark: SparkSession, directory: Place, clock: Clock) -> None:
        """Prepare for reading."""
        self._seen = 0
        self._shared.open(self, spark, directory, clock)

    def start(self) -> Offset:
        """Return the offset before the first row that is still there."""
        return self._source.start()

    def latest(self) -> Offset:
        """Return the offset after the newest row, as this reader or another one has just found it."""
        newest, self._seen = self._shared.latest(self._seen)
        return newest

    def mark(self, offset: Offset) -> Mark:
        """Return what tells the rows before an offset from any others."""
        return self._source.mark(offset)

    def cut(self, start: Offset, max_rows: int) -> Cut:
        """Return the end of a piece from `start`."""
        return self._source.cut(start, max_rows)

    def waiting(self, offset: Offset) -> Waiting:
        """Return which partitions have rows from `offset` on."""
        return self._source.waiting(offset)

    def read(self, spark: SparkSession, start: Offset, end: Offset, skip: Sequence[str] = ()) -> DataFrame:
        """Return the rows in [start, end)."""
        return self._source.read(spark, start, end, skip)

    @property
    def pieces(self) -> int:
        """Into so many parts a range can be divided; 1 where none can be left out."""
        return getattr(self._source, "pieces", 1)

    def units(self, start: Offset, end: Offset) -> Sequence[Unit]:
        """Return the units in [start, end); only of a source that has them."""
        return cast(Divisible, self._source).units(start, end)

    def unfit(self, start: Offset, end: Offset) -> dict[str, str]:
        """Return the units in [start, end) that do not fit the schema."""
        return self._source.unfit(start, end)

    def unreadable(self, spark: SparkSession, start: Offset, end: Offset) -> dict[str, str]:
        """Return the units in [start, end) that cannot be read at all."""
        return self._source.unreadable(spark, start, end)

    def same_rows(self, start: Offset, end: Offset, skip: Sequence[str] = ()) -> bool:
        """Tell whether who has just read [start, end) can have read no other rows."""
        return self._source.same_rows(start, end, skip)

    def ingested_at(self, start: Offset, end: Offset) -> Micros:
        """Return when the newest row of [start, end) arrived."""
        return self._source.ingested_at(start, end)

    def watermark(self, end: Offset) -> Micros | None:
        """Return the watermark that the source injected before `end`."""
        return self._source.watermark(end)

    def exhausted(self, offset: Offset) -> bool:
        """Tell whether no row after `offset` can come any more."""
        return self._source.exhausted(offset)

    def release(self, oldest_needed: Offset) -> None:
        """Release what no stream needs; this one has just committed what is before the offset."""
        self._shared.release()

    def close(self) -> None:
        """Let go of everything."""
        self._shared.close()


def source_of(source: Source) -> Source:
    """Return the source itself, of which a stream may see its own view."""
    return source._source if isinstance(source, SourceReader) else source


def least(offsets: Sequence[Offset]) -> Offset:
    """Return the offset before which none of some readers reads again; at least one is given.

    A source partition that one of them has not come to is left out: nothing of it is released.

    >>> least([7, 3])
    3
    >>> least([{"a": 3, "b": 1}, {"a": 2}])
    {'a': 2}
    """
    numbers = [offset for offset in offsets if isinstance(offset, int)]
    if numbers:
        return min(numbers)
    parts = [offset for offset in offsets if not isinstance(offset, int)]
    return {name: min(each[name] for each in parts) for name in parts[0] if all(name in each for each in parts)}
