"""The rows that come too late for a query, as a stream: files from the commit of their cut until it has read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from transom.engine.spark import rows as kept_rows
from transom.engine.spark.columns import TIME
from transom.engine.spark.compile import Compiled
from transom.engine.spark.rowfiles import Files, KeptFiles, KeptRows, checked, files_from_json, files_to_json, keep_only
from transom.engine.state.closing import Closing
from transom.engine.streams.derived import DerivedSource
from transom.engine.streams.rowsinput import columns_seen
from transom.model.expression import Expression
from transom.model.time import MAX_TIME, MIN_TIME, Clock, Micros
from transom.sources.base import Offset
from transom.sources.schemas import check_reserved, position
from transom.storage.durable import remove_tree
from transom.storage.places import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from transom.engine.streams.cuts import LoggedCut
    from transom.engine.streams.definition import StreamDefinition
    from transom.engine.streams.stream import RunningStream

LATE_TIME = Expression(f"timestamp_micros({TIME})")
"""Event time of late rows: the one that they had for the query; it comes with them."""


class LateRowsSource(DerivedSource):
    """The rows that a query sees and that come too late for all its windows, each once.

    The position of an item is the number of the parent's cut that read its rows. The watermark is the parent's, further
    behind: of rows that are late for the query, those are in time here that are not late by more than that.

    Args:
        stream: Name of the parent's stream.
        query: Name of the query.
        behind: The distance of the watermark behind the parent's; microseconds.
    """

    def __init__(self, stream: str, query: str, behind: Micros) -> None:
        super().__init__([stream], 0)
        self.query = query
        self.late_of: str | None = query
        self.behind = behind
        self._directory: Place = Path()
        self._pieces: dict[int, Files] = {}
        """The files with the rows of each cut."""
        self._columns: StructType

    def describe(self) -> str:
        """Return what it is and reads, in one line for people."""
        return f"late rows of {self.query}"

    # ---- as a source

    def learn(self, parents: Mapping[str, tuple[StreamDefinition, Compiled]], session: SparkSession) -> None:
        """Find out the columns of the rows; their event time is one more."""
        from pyspark.sql.types import LongType, StructField, StructType

        self._columns = columns_seen(parents, self.parents[0], self.query, session)
        check_reserved(self._columns.names, self.describe())
        self._schema = StructType([*self._columns, StructField(TIME, LongType())])

    def open(self, spark: SparkSession, directory: Place, clock: Clock) -> None:
        """Keep the rows below the directory."""
        self._directory = directory

    def bind(self, stream: RunningStream, streams: Mapping[str, RunningStream]) -> None:
        """Connect with the running parent."""
        super().bind(stream, streams)
        self._streams[0].readers.append(self)
        self._streams[0].buffers.append(self)

    def reads(self, query: str) -> bool:
        """Tell whether it needs the rows of a query."""
        return query == self.query

    def orphaned(self) -> str | None:
        """Return why no more rows are late for the query."""
        state = self._streams[0].state.queries.get(self.query)
        if state is None:
            return f"it reads the late rows of {self.query}, which was removed"
        return None if state.failure is None else f"it reads the late rows of {self.query}, which failed"

    def complete_from(self) -> Micros:
        """Return the moment from which on no row has been late before now, nor for a query that was not there."""
        state = self._streams[0].state.queries.get(self.query)
        whole = MIN_TIME if state is None else state.complete_from
        return whole if self._watermark <= MIN_TIME else max(whole, self._watermark + self.behind)

    def read(self, spark: SparkSession, start: Offset, end: Offset, skip: Sequence[str] = ()) -> DataFrame:
        """Return the rows that were late in the parent's cuts in (start, end]."""
        paths = [path for piece in self.kept(start, end) for path in checked(*piece)]
        return kept_rows.read_rows(spark, paths, self._columns).drop(kept_rows.IN_FORCE)

    def kept(self, start: Offset, end: Offset) -> list[KeptFiles]:
        """Return the files with the rows that were late in the parent's cuts in (start, end]."""
        cuts = [item.position for item in self._between(start, end)]
        return [(self.piece(cut), self._pieces[cut]) for cut in cuts]

    def release(self, oldest_needed: Offset) -> None:
        """Forget the rows that are committed."""
        super().release(oldest_needed)
        for cut in [cut for cut in self._pieces if cut <= position(oldest_needed)]:
            del self._pieces[cut]
            remove_tree(self.piece(cut))

    def settle(self, offset: Offset, check: Callable[[], None]) -> None:
        """Forget what is committed, and remove rows of cuts that were not."""
        self.release(offset)
        keep_only(self._directory, {self.piece(cut).name for cut in self._pieces}, check)

    def held(self) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        """Return what the snapshot must hold, as JSON and tables."""
        state, tables = super().held()
        return state | {"pieces": [[cut, files_to_json(files)] for cut, files in self._pieces.items()]}, tables

    def restore(self, state: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
        """Take in what `held` returned."""
        super().restore(state, tables)
        self._pieces = {cut: files_from_json(files) or {} for cut, files in state["pieces"]}

    # ---- as a reader of the parent

    last_end = MIN_TIME
    """It waits for no other stream."""

    def wants(self, watermark: Micros, now: Micros) -> bool:
        """Tell whether the parent's watermark without rows would close something here or further down."""
        return watermark < MAX_TIME and self.orphaned() is None and self._would_close(watermark - self.behind, now)

    def has_read(self, cut: int, offset: Offset) -> bool:
        """Return True: it needs no results."""
        return True

    def closed(self, cut: int, closings: Sequence[Closing], closed: Micros, ingested: Micros) -> None:
        """Take the parent's watermark."""
        if self.orphaned() is None:
            self._advance(closed - self.behind, ingested)

    # ---- as a buffer of the parent

    def piece(self, cut: int) -> Place:
        """Return where the rows of a cut are kept."""
        return self._directory / f"{cut:012d}"

    def store(self, seen: DataFrame, cut: LoggedCut, late_before: Mapping[str, Micros]) -> KeptRows | None:
        """Keep the rows that are late for all windows; None when there are none."""
        late = f"{TIME} < {late_before[self.query]}L"
        return kept_rows.write_rows(seen, late, cut.watermark, self.piece(cut.number))

    def keep(self, cut: int, rows: KeptRows) -> None:
        """Let the rows of a committed cut be read."""
        self._push(cut, rows.rows)
        if self._newest == cut:
            self._pieces[cut] = rows.files or {}
        else:  # nobody runs who would read them
            remove_tree(self.piece(cut))
