"""Rows that other streams gave, window by window: each side keeps its rows as files until no window needs them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from transom.engine.spark import rows as kept_rows
from transom.engine.spark.columns import TIME
from transom.engine.spark.compile import Compiled
from transom.engine.spark.rowfiles import KeptFiles, keep_only
from transom.engine.streams.joininput import JoinInput
from transom.engine.streams.rowsinput import InputsSource, RowsInput, columns_seen
from transom.model.time import MAX_TIME, MIN_TIME, Clock, Micros
from transom.sources.base import Offset
from transom.sources.schemas import position
from transom.storage.durable import remove_tree
from transom.storage.places import Place
from transom.windows.joining import JoinTimes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from transom.engine.streams.definition import StreamDefinition
    from transom.engine.streams.stream import RunningStream


class WindowedSource(InputsSource):
    """Rows made of those of the windows that all sides have closed.

    The position of an item is the end of its window: the rows of a window, with all that was in time for it on either
    side, are the same whenever they are read. The watermark follows from the lowest one of the sides.

    Args:
        times: Which windows are given out when, and need which rows.
        sides: For each side its name, and the names of the stream and of the query on it.
    """

    def __init__(self, times: JoinTimes, sides: Sequence[tuple[str, str, str]]) -> None:
        super().__init__([stream for _, stream, _ in sides], MIN_TIME)
        self.times = times
        self.sides = tuple(JoinInput(self, number, *side) for number, side in enumerate(sides))
        self._given: Micros = MIN_TIME
        """Windows up to here were given out."""

    @property
    def inputs(self) -> Sequence[RowsInput]:
        """The sides."""
        return self.sides

    def _empty_sides(
        self, parents: Mapping[str, tuple[StreamDefinition, Compiled]], session: SparkSession
    ) -> list[DataFrame]:
        """Find out the columns of the sides, and return no rows of them."""
        frames = []
        for side in self.sides:
            side.columns = columns_seen(parents, side.stream, side.query, session)
            frames.append(kept_rows.read_rows(session, [], side.columns))
        return frames

    def open(self, spark: SparkSession, directory: Place, clock: Clock) -> None:
        """Keep the rows below the directory."""
        for side in self.sides:
            side.directory = directory / side.name

    def bind(self, stream: RunningStream, streams: Mapping[str, RunningStream]) -> None:
        """Connect with the running parents, which tell when their windows close."""
        super().bind(stream, streams)
        for side in self.sides:
            side.running.state.feeding |= {side.query}

    def complete_from(self) -> Micros:
        """Return the moment after the windows that are joined, or that a side does not have whole."""
        moments = [self._given]
        for side in self.sides:
            if side.complete_from > MIN_TIME:
                moments.append(self.times.needed_until(side.number, side.complete_from - 1))
        return max(moments)

    # ---- windows

    @property
    def joint(self) -> Micros:
        """Windows up to here are closed on both sides."""
        return min(side.until for side in self.sides)

    @property
    def _counts(self) -> tuple[Mapping[Micros, int], ...]:
        return tuple(side.windows for side in self.sides)

    @property
    def last_end(self) -> Micros:
        """The end of the last window that may give rows and that both sides have not closed."""
        return max(self.times.pending(self._counts, self._given), default=MIN_TIME)

    def input_wants(self, one: RowsInput, watermark: Micros, now: Micros) -> bool:
        """Tell whether a watermark of one side completes a window, or closes one further down."""
        if self.orphaned() is not None:
            return False
        if any(end <= watermark for end in self.times.pending(self._counts, max(one.until, self._given))):
            return True
        joint = min(watermark if other.running is one.running else other.until for other in self.sides)
        return watermark < MAX_TIME and self._would_close(self.times.watermark(joint), now)

    def moved(self, ingested: Micros) -> None:
        """Give out the windows that both sides have closed, and forget the rows that nothing needs any more."""
        if self.orphaned() is not None:
            return
        joint, whole = self.joint, self._whole_from()
        for end, rows in self.times.ends(self._counts, self._given, joint):
            first = min(self.times.needed_from(side.number, end) for side in self.sides)
            if end > self._newest and first >= whole:
                self._push(end, rows)
        self._given = max(self._given, joint)
        self._advance(self.times.watermark(joint), ingested)
        self._forget(joint)
        self._tidy()

    def _forget(self, joint: Micros) -> None:
        for side in self.sides:
            for end in [end for end in side.windows if self.times.is_done(side.number, end, joint)]:
                del side.windows[end]

    def _whole_from(self) -> Micros:
        return max(side.complete_from for side in self.sides)

    def _tidy(self) -> None:
        """Remove the files of which every window is joined and committed."""
        done = self._items[0].position - 1 if self._items else self._given
        for side in self.sides:
            for cut in [cut for cut, piece in side.pieces.items() if piece.last_end <= done]:
                del side.pieces[cut]
                remove_tree(side.piece(cut))

    def release(self, oldest_needed: Offset) -> None:
        """Forget the windows that are committed, and their rows."""
        super().release(oldest_needed)
        self._forget(position(oldest_needed))
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
        state["given"] = self._given
        state["sides"] = [side.held() for side in self.sides]
        return state, tables

    def restore(self, state: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
        """Take in what `held` returned."""
        super().restore(state, tables)
        self._given = state.get("given", self._watermark)
        for side, values in zip(self.sides, state["sides"], strict=True):
            side.restore(values)

    def kept(self, start: Offset, end: Offset) -> list[KeptFiles]:
        """Return the files with the rows that the windows which end in (start, end] need."""
        windows = self._between(start, end)
        return [files for side in self.sides for files in side.kept(windows[0].position)] if windows else []

    @abstractmethod
    def _made(self, frames: Sequence[DataFrame], windows: DataFrame, ends: Sequence[Micros]) -> DataFrame:
        """Return the rows that some windows give.

        Args:
            frames: The rows of each side: columns, TIME and IN_FORCE.
            windows: Columns `start` and `end` (bigint, microseconds).
            ends: The ends of the windows, in order.
        """

    def read(self, spark: SparkSession, start: Offset, end: Offset, skip: Sequence[str] = ()) -> DataFrame:
        """Return the rows of the windows that end in (start, end]."""
        ends = [item.position for item in self._between(start, end)]
        spans = pa.table(
            {"start": pa.array(map(self.times.start_of, ends), pa.int64()), "end": pa.array(ends, pa.int64())}
        )
        windows = spark.createDataFrame(spans, "start bigint, end bigint")
        frames = []
        for side in self.sides:
            paths = side.files(ends[0]) if ends else []
            rows = kept_rows.read_rows(spark, paths, side.columns)
            if paths:
                first = self.times.needed_from(side.number, ends[0])
                before = self.times.needed_before(side.number, ends[-1])
                rows = rows.where(f"{TIME} >= {first}L AND {TIME} < {before}L")
            frames.append(rows)
        return self._made(frames, windows, ends)
