"""Joins of two streams within windows: each side keeps its rows as files until no window needs them any more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from transom.engine.spark import rows as kept_rows
from transom.engine.spark.columns import TIME, first_line
from transom.engine.spark.compile import Compiled
from transom.engine.spark.rowfiles import keep_only
from transom.engine.spark.rows import WindowJoin
from transom.engine.streams.derived import DerivedSource
from transom.engine.streams.joininput import JoinInput
from transom.errors import DefinitionError
from transom.model.joinkind import INNER
from transom.model.time import MAX_TIME, MIN_TIME, Clock, Micros
from transom.sources.base import Offset
from transom.sources.schemas import check_reserved, position
from transom.storage.durable import remove_tree
from transom.storage.places import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from transom.engine.streams.definition import StreamDefinition
    from transom.engine.streams.stream import RunningStream


class JoinSource(DerivedSource):
    """The joined rows of the windows that both sides have closed.

    The position of an item is the end of its window: the rows of a window, with all that was in time for it on either
    side, are the same whenever they are read. The watermark is the lower one of both sides.

    Args:
        name: Name of the joined stream.
        join: How they are joined.
        left: Names of the stream and of the query on it.
        right: The same of the other side.
    """

    def __init__(self, name: str, join: WindowJoin, left: tuple[str, str], right: tuple[str, str]) -> None:
        super().__init__([left[0], right[0]], MIN_TIME)
        self.name, self.join = name, join
        self.sides = JoinInput(self, "left", *left), JoinInput(self, "right", *right)

    def describe(self) -> str:
        """Return what it is and reads, in one line for people."""
        left, right = self.parents
        return f"{self.join.how} join of {left} and {right} on {', '.join(self.join.on)} within {self.join.window}"

    def learn(self, parents: Mapping[str, tuple[StreamDefinition, Compiled]], session: SparkSession) -> None:
        """Find out the columns of the joined rows.

        Raises:
            DefinitionError: A key is missing, two columns would have one name, or keys cannot be compared.
        """
        from pyspark.errors import AnalysisException
        from pyspark.sql import functions as F

        frames = []
        for side in self.sides:
            definition, compiled = parents[side.stream]
            raw = session.createDataFrame([], definition.source.schema)
            query = next(query for query in definition.queries if query.name == side.query)
            side.columns = kept_rows.columns_of(kept_rows.rows_of(raw, compiled.plan, query, None))
            frames.append(kept_rows.read_rows(session, [], side.columns))
        windows = session.range(0).select(F.col("id"), F.col("id").alias("end"))
        try:
            self._schema = self.join.apply(frames[0], frames[1], windows).schema
        except AnalysisException as error:
            raise DefinitionError(
                f"join {self.name!r}: {first_line(error)}.", "Give the keys the same type on both sides with map()."
            ) from error
        check_reserved(self._schema.names, f"join {self.name!r}")

    def open(self, spark: SparkSession, directory: Place, clock: Clock) -> None:
        """Keep the rows below the directory."""
        for side in self.sides:
            side.directory = directory / side.name

    def bind(self, stream: RunningStream, streams: Mapping[str, RunningStream]) -> None:
        """Connect with the running parents."""
        super().bind(stream, streams)
        for side in self.sides:
            side.running = streams[side.stream]
            side.running.readers.append(side)
            side.running.buffers.append(side)
            side.running.state.feeding |= {side.query}

    def reads(self, query: str) -> bool:
        """Tell whether it needs the rows of a query."""
        return any(side.query == query for side in self.sides)

    def orphaned(self) -> str | None:
        """Return why there are no more whole windows."""
        for side in self.sides:
            if side.lost is not None:
                return f"it reads the rows of {side.query}, which {side.lost}"
        return None

    def complete_from(self) -> Micros:
        """Return the moment after the windows that are joined, or that a side does not have whole."""
        moments = [self._watermark]
        for side in self.sides:
            known = side.running.state.queries.get(side.query)
            if known is not None and known.complete_from > MIN_TIME:
                moments.append(self.join.window.last_end(known.complete_from - 1))
        return max(moments)

    # ---- windows

    @property
    def joint(self) -> Micros:
        """Windows up to here are closed on both sides."""
        return min(side.until for side in self.sides)

    @property
    def last_end(self) -> Micros:
        """The end of the last window that a side has closed and the other one may not have."""
        return max((end for side in self.sides for end in side.windows), default=MIN_TIME)

    def side_wants(self, side: JoinInput, watermark: Micros, now: Micros) -> bool:
        """Tell whether a watermark of one side completes a window, or closes one further down."""
        if self.orphaned() is not None:
            return False
        if any(side.until < end <= watermark for other in self.sides for end in other.windows):
            return True
        joint = min(watermark if other.running is side.running else other.until for other in self.sides)
        return watermark < MAX_TIME and self._would_close(joint, now)

    def moved(self, ingested: Micros) -> None:
        """Give out the windows that both sides have closed, and forget the rows that nothing needs any more."""
        if self.orphaned() is not None:
            return
        joint = self.joint
        left, right = (side.windows for side in self.sides)
        whole = self._whole_from()
        for end in sorted(end for end in left.keys() | right.keys() if end <= joint):
            rows = left.pop(end, 0), right.pop(end, 0)
            wanted = all(rows) if self.join.how == INNER else rows[0] > 0
            if wanted and end > self._newest and self.join.start_of(end) >= whole:
                self._push(end, sum(rows))
        self._advance(joint, ingested)
        self._tidy()

    def _whole_from(self) -> Micros:
        states = [side.running.state.queries[side.query] for side in self.sides]
        return max(state.complete_from for state in states)

    def _tidy(self) -> None:
        """Remove the files of which every window is joined and committed."""
        done = self._items[0].position - 1 if self._items else self.joint
        for side in self.sides:
            for cut in [cut for cut, piece in side.pieces.items() if piece.last_end <= done]:
                del side.pieces[cut]
                remove_tree(side.piece(cut))

    def release(self, oldest_needed: Offset) -> None:
        """Forget the windows that are committed, and their rows."""
        super().release(oldest_needed)
        for side in self.sides:
            for end in [end for end in side.windows if end <= position(oldest_needed)]:
                del side.windows[end]
        self._tidy()

    def settle(self, offset: Offset, check: Callable[[], None]) -> None:
        """Forget what is committed, and remove rows of cuts that were not, or that nothing needs."""
        self.release(offset)
        for side in self.sides:
            keep_only(side.directory, {side.piece(cut).name for cut in side.pieces}, check)

    # ---- the checkpoint

    def held(self) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        """Return what the snapshot must hold, as JSON and tables."""
        state, tables = super().held()
        state["sides"] = [side.held() for side in self.sides]
        return state, tables

    def restore(self, state: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
        """Take in what `held` returned."""
        super().restore(state, tables)
        for side, values in zip(self.sides, state["sides"], strict=True):
            side.restore(values)

    def read(self, spark: SparkSession, start: Offset, end: Offset, skip: Sequence[str] = ()) -> DataFrame:
        """Return the joined rows of the windows that end in (start, end]."""
        ends = [item.position for item in self._between(start, end)]
        spans = pa.table(
            {"start": pa.array(map(self.join.start_of, ends), pa.int64()), "end": pa.array(ends, pa.int64())}
        )
        windows = spark.createDataFrame(spans, "start bigint, end bigint")
        frames = []
        for side in self.sides:
            paths = side.files(ends[0]) if ends else []
            rows = kept_rows.read_rows(spark, paths, side.columns)
            if paths:
                first = self.join.start_of(ends[0])
                rows = rows.where(f"{TIME} >= {first}L AND {TIME} < {ends[-1]}L")
            frames.append(rows)
        return self.join.apply(frames[0], frames[1], windows)
