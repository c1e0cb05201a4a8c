"""Joins of two streams within windows: each side keeps its rows as files until no window needs them any more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from transom.engine.partials.results import WINDOW_END
from transom.engine.spark import rows as kept_rows
from transom.engine.spark.columns import TIME, first_line
from transom.engine.spark.compile import Compiled
from transom.engine.spark.rowfiles import Files, KeptRows, checked, files_from_json, files_in, files_to_json, keep_only
from transom.engine.spark.rows import WindowJoin
from transom.engine.state.closing import Closing
from transom.engine.streams.derived import DerivedSource
from transom.errors import DefinitionError
from transom.model.joinkind import INNER
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

ROWS = "rows"
"""The one aggregate of a side's query: how many rows a window holds."""


@dataclass(frozen=True)
class Piece:
    """Rows of one cut that are kept."""

    last_end: Micros
    """The end of the last window that holds one."""
    files: Files | None
    """Where they are; None if nobody has noted that (format 1)."""


class JoinInput:
    """One input of a join: reads its query's windows, keeps its rows.

    The query counts the rows of each window, so that lateness, dead letters and failures are those of any query.

    Args:
        source: The join.
        name: `left` or `right`.
        stream: Name of the stream.
        query: Name of the query.
    """

    late_of: str | None = None
    """It needs the rows that are in time."""
    held_bytes = 0
    """The rows wait on disk."""
    behind = 0
    """The join closes windows as its sides do."""

    def __init__(self, source: JoinSource, name: str, stream: str, query: str) -> None:
        self.name, self.stream, self.query = name, stream, query
        self.directory: Place = Path()
        self.columns: StructType
        self.running: RunningStream
        self.until: Micros = MIN_TIME
        """Windows up to here are closed."""
        self.windows: dict[Micros, int] = {}
        """Rows of the closed windows that wait for the other side, by their end."""
        self.pieces: dict[int, Piece] = {}
        """The rows that are kept, by cut."""
        self._source = source

    @property
    def child(self) -> RunningStream:
        """The stream of the joined rows."""
        return self._source.child

    @property
    def lost(self) -> str | None:
        """Why the rows are not whole any more; None while they are."""
        state = self.running.state.queries.get(self.query)
        if state is None:
            return "was removed"
        return None if state.failure is None else "failed"

    def piece(self, cut: int) -> Place:
        """Return where the rows of a cut are kept."""
        return self.directory / f"{cut:012d}"

    def store(self, seen: DataFrame, cut: LoggedCut, late_before: Mapping[str, Micros]) -> KeptRows | None:
        """Keep the rows that are not late for all windows; None when there are none."""
        in_time = f"{TIME} >= {late_before[self.query]}L"
        return kept_rows.write_rows(seen, in_time, cut.watermark, cut.rows, self.piece(cut.number))

    def keep(self, cut: int, rows: KeptRows) -> None:
        """Remember that the rows of a committed cut are kept."""
        self.pieces[cut] = Piece(self._source.join.window.last_end(rows.newest), rows.files)

    def files(self, first_end: Micros) -> list[Place]:
        """Return the files, checked, with all rows of windows that end at a moment or later."""
        needed = [cut for cut, piece in list(self.pieces.items()) if piece.last_end >= first_end]
        return [path for cut in needed for path in checked(self.piece(cut), self._named(cut))]

    def _named(self, cut: int) -> Files:
        """Return the files with the rows of a cut; those that are there where the log names none."""
        files = self.pieces[cut].files
        return files_in(self.piece(cut)) if files is None else files

    def held(self) -> dict[str, Any]:
        """Return what the snapshot must hold, as JSON."""
        pieces = [[cut, piece.last_end, files_to_json(self._named(cut))] for cut, piece in self.pieces.items()]
        return {"until": self.until, "windows": list(self.windows.items()), "pieces": pieces}

    def restore(self, values: Mapping[str, Any]) -> None:
        """Take in what `held` returned."""
        self.until, self.windows = values["until"], dict(values["windows"])
        self.pieces = {cut: Piece(end, files_from_json(*files)) for cut, end, *files in values["pieces"]}

    def wants(self, watermark: Micros, now: Micros) -> bool:
        """Tell whether a watermark without rows would complete a window."""
        return self._source.side_wants(self, watermark, now)

    @property
    def last_end(self) -> Micros:
        """The end of the last window that must be closed at the end of the input."""
        return self._source.last_end

    def has_read(self, cut: int, offset: Offset) -> bool:
        """Return False: which windows there are depends on both sides; that is a few numbers."""
        return False

    def closed(self, cut: int, closings: Sequence[Closing], closed: Micros, ingested: Micros) -> None:
        """Take the windows that a logged cut closed."""
        for closing in closings:
            if closing.query == self.query and closing.final is not None:
                ends = closing.final.column(WINDOW_END).cast(pa.int64()).to_pylist()
                self.windows.update(zip(ends, closing.final.column(ROWS).to_pylist(), strict=True))
        self.until = max(self.until, closed)
        self._source.moved(ingested)


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
