"""Sources that the engine itself feeds: streams whose rows come from other streams of the application."""

from __future__ import annotations

import bisect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from transom.engine.partials.results import WINDOW_END, result_table
from transom.engine.spark.compile import Compiled
from transom.engine.state.closing import Closing
from transom.engine.streams.feed import Feed
from transom.errors import DefinitionError, SourceError
from transom.model.expression import Expression
from transom.model.time import MAX_TIME, MIN_TIME, Clock, Micros
from transom.model.watermark import WatermarkPolicy
from transom.sources.base import Cut, Mark, Offset, Waiting
from transom.sources.schemas import check_reserved, position
from transom.storage.places import Place
from transom.windows.partials import Partial
from transom.windows.query import WindowedQuery
from transom.windows.store import PaneStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from transom.engine.streams.definition import StreamDefinition
    from transom.engine.streams.stream import RunningStream

WINDOW_TIME = Expression(f"timestamp_micros(unix_micros({WINDOW_END}) - 1)")
"""Event time of rows that stand for a whole window: its last microsecond, so that they fall into the windows around."""
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


class DerivedSource(Feed, ABC):
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

    def unfit(self, start: Offset, end: Offset) -> dict[str, str]:
        """Return nothing: all rows have the schema."""
        return {}

    def unreadable(self, spark: SparkSession, start: Offset, end: Offset) -> dict[str, str]:
        """Return nothing: the engine's own rows are readable."""
        return {}

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


class ResultsSource(DerivedSource):
    """The results of a query as rows, each window once, when no row can change it any more.

    The position of an item is the number of the parent's cut that completed its windows; the watermark is how far
    the parent's windows are final, so that no row is ever late.

    Args:
        stream: Name of the parent's stream.
        query: Name of the query.
    """

    def __init__(self, stream: str, query: str) -> None:
        super().__init__([stream], 0)
        self.query = query

    def describe(self) -> str:
        """Return what it is and reads, in one line for people."""
        return f"results of {self.query}"

    def learn(self, parents: Mapping[str, tuple[StreamDefinition, Compiled]], session: SparkSession) -> None:
        """Find out the columns of the results."""
        from pyspark.sql.pandas.types import from_arrow_schema

        _, compiled = parents[self.parents[0]]
        schema = result_schema(compiled, self.query)
        check_reserved(schema.names, f"results of {self.query}")
        self._schema = from_arrow_schema(schema, prefer_timestamp_ntz=True)

    def bind(self, stream: RunningStream, streams: Mapping[str, RunningStream]) -> None:
        """Connect with the running parent."""
        super().bind(stream, streams)
        self._streams[0].readers.append(self)
        self._streams[0].state.feeding |= {self.query}

    @property
    def behind(self) -> Micros:
        """The distance of its watermark behind the parent's: as long as windows that end there can change."""
        query = self._streams[0].state.compiled[self.query].query
        return query.lateness + query.margin

    last_end = MIN_TIME
    """It waits for no other stream."""

    def wants(self, watermark: Micros, now: Micros) -> bool:
        """Tell whether the parent's watermark without rows would close something here or further down."""
        return watermark < MAX_TIME and self.orphaned() is None and self._would_close(watermark - self.behind, now)

    def has_read(self, cut: int, offset: Offset) -> bool:
        """Tell whether the results of a cut of the parent lie before an offset."""
        return cut <= position(offset)

    def closed(self, cut: int, closings: Sequence[Closing], closed: Micros, ingested: Micros) -> None:
        """Take the windows that no row can change any more since a logged cut of the parent."""
        if self.orphaned() is not None:
            return
        for closing in closings:
            if closing.query != self.query:
                continue
            if closing.passed:
                self._push(cut, 0)
            elif closing.final is not None and closing.final.num_rows:
                self._push(cut, closing.final.num_rows, closing.final)
        self._advance(closed - self.behind, ingested)

    def complete_from(self) -> Micros:
        """Return the moment after the windows of the parent that are closed, or that the parent does not have whole."""
        stream = self._streams[0]
        if self.query not in stream.state.queries:
            return self._watermark
        whole = stream.state.queries[self.query].complete_from
        if whole <= MIN_TIME:
            return self._watermark
        query = stream.state.compiled[self.query].query
        return max(self._watermark, *(window.last_end(whole - 1) for window in query.windows))

    def orphaned(self) -> str | None:
        """Return why the query gives no more results."""
        state = self._streams[0].state.queries.get(self.query)
        if state is None:
            return f"it reads the results of {self.query}, which was removed"
        return None if state.failure is None else f"it reads the results of {self.query}, which failed"

    def reads(self, query: str) -> bool:
        """Tell whether it needs the results of a query."""
        return query == self.query

    def read(self, spark: SparkSession, start: Offset, end: Offset, skip: Sequence[str] = ()) -> DataFrame:
        """Return the results that the parent's cuts in (start, end] completed."""
        from pyspark.sql.pandas.types import to_arrow_schema

        arrow = to_arrow_schema(self.schema, timezone="UTC")
        tables = [item.table.cast(arrow) for item in self._between(start, end) if item.table is not None]
        whole = pa.concat_tables(tables) if tables else arrow.empty_table()
        return spark.createDataFrame(whole.combine_chunks(), self.schema)


def result_schema(compiled: Compiled, name: str) -> pa.Schema:
    """Return the columns of a query's results."""
    query: WindowedQuery = compiled.queries[name].query
    if name not in compiled.store_of:
        raise DefinitionError(f"results: {name!r} computes nothing.", "Give it an aggregate.")
    key_set, _, keys, primitives = compiled.store_of[name]
    store = PaneStore(key_set.grid, keys, primitives)
    nothing = Partial(np.empty(0, np.int64), {p: p.empty(0, types) for p, types in primitives.items()})
    return result_table(query, store, [((0, 0), nothing)], compiled.queries[name].input_types, ansi=True).schema
