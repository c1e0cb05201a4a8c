"""One source read by several streams, each at its own pace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from transom.model.time import Clock
from transom.sources.base import Offset, Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SharedSource:
    """A source and the streams that read it. It is opened once, in the directory of the first one.

    Args:
        source: The source.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self._names: list[str] = []
        self._needed: dict[str, Offset | None] = {}
        self._opened = False

    def read_by(self, name: str) -> Callable[[], Source]:
        """Note a stream that reads it; return what makes its source when the application starts."""
        self._names.append(name)
        return lambda: self._source_of(name)

    def _source_of(self, name: str) -> Source:
        if len(self._names) == 1:
            return self.source
        self._needed[name] = None
        return cast("Source", _View(self, name))

    def open(self, name: str, spark: SparkSession, directory: Path, clock: Clock) -> None:
        """Open the source for its first reader."""
        if not self._opened:
            home = directory.with_name(self._names[0]) if directory.name == name else directory
            home.mkdir(exist_ok=True)
            self.source.open(spark, home, clock)
            self._opened = True

    def release(self, name: str, oldest_needed: Offset) -> None:
        """Release what none of the streams needs any more; nothing before each of them has committed once."""
        self._needed[name] = oldest_needed
        known = [offset for offset in self._needed.values() if offset is not None]
        if len(known) == len(self._needed):
            self.source.release(least(known))

    def close(self) -> None:
        """Close the source with its first reader."""
        if self._opened:
            self.source.close()
        self._opened = False
        self._needed.clear()


class _View:
    """The source as one of its streams sees it."""

    def __init__(self, shared: SharedSource, name: str) -> None:
        self._shared, self._name = shared, name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shared.source, name)

    def open(self, spark: SparkSession, directory: Path, clock: Clock) -> None:
        """Prepare for reading."""
        self._shared.open(self._name, spark, directory, clock)

    def release(self, oldest_needed: Offset) -> None:
        """Note what this stream does not need any more."""
        self._shared.release(self._name, oldest_needed)

    def close(self) -> None:
        """Let go of everything."""
        self._shared.close()


def least(offsets: list[Offset]) -> Offset:
    """Return the offset before which no reader reads again; of offsets by source partition, that of each.

    >>> least([{"a": 3, "b": 1}, {"a": 2, "b": 4}])
    {'a': 2, 'b': 1}
    """
    first = offsets[0]
    if isinstance(first, int):
        return min(cast("list[int]", offsets))
    by_partition = cast("list[dict[str, int]]", offsets)
    return {name: min(offset.get(name, 0) for offset in by_partition) for name in first}
