"""Sources that the engine itself feeds: streams whose rows come from other streams of the application."""

from __future__ import annotations

import bisect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from transom.engine.spark.columns import quoted
from transom.engine.spark.compile import Compiled
from transom.engine.streams.feed import Feed
from transom.errors import SourceError
from transom.model.expression import Expression
from transom.model.time import MIN_TIME, Clock, Micros
from transom.model.watermark import WatermarkPolicy
from transom.sources.base import Cut, Mark, Offset, OwnRows, Waiting
from transom.sources.schemas import position
from transom.storage.places import Place
from transom.windows.query import WINDOW_END

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from transom.engine.streams.definition import StreamDefinition
    from transom.engine.streams.stream import RunningStream


def window_time(end: str) -> Expression:
    """Return the event time of rows that stand for a whole window: its last microsecond.

    So they fall into the windows around.

    Args:
        end: The column with the window's end.
    """
    return Expression(f"timestamp_micros(unix_micros({end if end == WINDOW_END else quoted(end)}) - 1)")


WINDOW_TIME = window_time(WINDOW_END)
FED = WatermarkPolicy(delay=0, from_source=True)
"""Watermarks come with the rows; they are never late, never too far ahead, and never idle on their own."""


@dataclass(frozen=True)
class Item:
    """Rows that arrived together; they are read together."""

    position: int
    rows: int
    watermark: Micros
    """In force before them: no row that comes after it, these included, is older."""
    ingested: Micros
    """When what decided that watermark had arrived."""
    table: pa.Table | None = None
    """The rows, where the driver has them."""


class DerivedSource(OwnRows, Feed, ABC):
    """A queue of items between streams. Watermarks that arrive without rows take no offset and so cost no job.

    Offsets are the positions of items, which only grow. What a stream has not committed is in the checkpoint: its
    items are made anew when the log is replayed, and are held in the snapshot (`held`, `restore`).

    Args:
        parents: Names of the streams that feed it.
        start: The offset before the first item.
    """

    is_derived = True

    def __init__(self, parents: Sequence[str], start: int) -> None:
        self.parents = tuple(parents)
        self._start = self._newest = start
        self._items: list[Item] = []
        self._watermark: Micros = MIN_TIME
        self._ingested: Micros = 0
        self._schema: StructType | None = None
        self._streams: tuple[RunningStream, ...] = ()
        self._child: RunningStream

    # ---- what the application does before a run

    @abstractmethod
    def learn(self, parents: Mapping[str, tuple[StreamDefinition, Compiled]], session: SparkSession) -> None:
        """Find out the schema from the compiled parents, before `schema` is asked for.

        Raises:
            DefinitionError: The rows cannot be made of them.
        """

    def bind(self, stream: RunningStream, streams: Mapping[str, RunningStream]) -> None:
        """Connect the running stream of this source with the running parents; called once, after they were made."""
        self._child = stream
        self._streams = tuple(streams[name] for name in self.parents)

    @abstractmethod
    def complete_from(self) -> Micros:
        """Return the moment from which on this source will have all rows, whatever it misses now."""

    @abstractmethod
    def orphaned(self) -> str | None:
        """Return why no more rows will ever come, e.g. because the query failed; None while they can."""

    @property
    def child(self) -> RunningStream:
        """The stream that reads this source."""
        return self._child

    def _would_close(self, watermark: Micros, now: Micros) -> bool:
        return not self._items and watermark > self._watermark and self._child.has_due(watermark, now)

    # ---- the queue

    def _push(self, position: int, rows: int, table: pa.Table | None = None) -> None:
        if self._child.state.running():
            self._items.append(Item(position, rows, self._watermark, self._ingested, table))
            self._newest = position

    def _advance(self, watermark: Micros, ingested: Micros) -> None:
        if watermark > self._watermark:
            self._watermark, self._ingested = watermark, ingested

    def _after(self, offset: Offset) -> int:
        """Return the index of the first item after the offset."""
        return bisect.bisect_right(self._items, position(offset), key=lambda item: item.position)

    def _between(self, start: Offset, end: Offset) -> list[Item]:
        return self._items[self._after(start) : self._after(end)]

    @property
    def held_bytes(self) -> int:
        """Size of the rows that wait in the driver."""
        return sum(item.table.nbytes for item in self._items if item.table is not None)

    def held(self) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        """Return what the snapshot must hold, as JSON and tables."""
        state = {
            "newest": self._newest,
            "watermark": self._watermark,
            "ingested": self._ingested,
            "items": [[i.position, i.rows, i.watermark, i.ingested] for i in self._items],
        }
        return state, {str(i.position): i.table for i in self._items if i.table is not None}

    def restore(self, state: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
        """Take in what `held` returned."""
        self._newest, self._watermark, self._ingested = state["newest"], state["watermark"], state["ingested"]
        self._items = [
            Item(place, rows, watermark, ingested, tables.get(str(place)))
            for place, rows, watermark, ingested in state["items"]
        ]

    # ---- the source, see `transom.sources.base.Source`

    @property
    def schema(self) -> StructType:
        """The columns of `read`."""
        if self._schema is None:
            raise SourceError(f"{self.describe()}: its columns are not known yet.", "Compile its parents first.")
        return self._schema

    @property
    def partitions(self) -> Sequence[str]:
        """One partition without a name."""
        return ("",)

    @abstractmethod
    def describe(self) -> str:
        """Return what it is and reads, in one line for people."""

    def open(self, spark: SparkSession, directory: Place, clock: Clock) -> None:
        """Do nothing: the parents bring everything."""

    def start(self) -> Offset:
        """Return the offset before the first item."""
        return self._start

    def latest(self) -> Offset:
        """Return the position of the newest item."""
        return self._newest

    def mark(self, offset: Offset) -> Mark:
        """Return None: its rows are in log and snapshot."""
        return None

    def cut(self, start: Offset, max_rows: int) -> Cut:
        """Return the end of a piece of at most `max_rows` rows, or of one item; the number of rows is exact."""
        end, rows = position(start), 0
        for item in self._items[self._after(start) :]:
            if rows and rows + item.rows > max_rows:
                break
            end, rows = item.position, rows + item.rows
        return Cut(end, rows)

    def waiting(self, offset: Offset) -> Waiting:
        """Return whether items wait; it is never idle on its own, so that it does not matter when this was found."""
        return Waiting(frozenset({0} if position(offset) < self._newest else ()), 0)

    @abstractmethod
    def read(self, spark: SparkSession, start: Offset, end: Offset, skip: Sequence[str] = ()) -> DataFrame:
        """Return the rows of the items in (start, end]; the same rows every time."""

    def ingested_at(self, start: Offset, end: Offset) -> Micros:
        """Return when the row arrived in the application that decided the watermark at `end`."""
        index = self._after(end)
        return self._items[index].ingested if index < len(self._items) else self._ingested

    def watermark(self, end: Offset) -> Micros | None:
        """Return the newest watermark that came before the next item after `end`."""
        index = self._after(end)
        value = self._items[index].watermark if index < len(self._items) else self._watermark
        return value if value > MIN_TIME else None

    def exhausted(self, offset: Offset) -> bool:
        """Tell whether the parents have ended and everything they gave lies before the offset."""
        return position(offset) >= self._newest and all(stream.ended() for stream in self._streams)

    def starved(self, offset: Offset) -> str | None:
        """Return why no row after `offset` comes in this run: a parent is stuck; None while one can come."""
        if position(offset) < self._newest:
            return None
        reasons = ((stream.name, stream.stuck) for stream in self._streams)
        return next((f"no rows come from {name!r} in this run: {why}" for name, why in reasons if why), None)

    def release(self, oldest_needed: Offset) -> None:
        """Forget the items that are committed."""
        del self._items[: self._after(oldest_needed)]
        self._newest = max(self._newest, position(oldest_needed))

    def decided_at(self, offset: Offset, arrived: Micros) -> Micros:
        """Return when the row of a parent arrived that decided the watermark in force at an offset."""
        return self.ingested_at(offset, offset)

    def settle(self, offset: Offset, check: Callable[[], None]) -> None:
        """Forget the items that are committed."""
        self.release(offset)

    def close(self) -> None:
        """Do nothing: the parents own everything."""
