"""Streams without repetitions: the first row of each key within a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from transom.engine.spark import rows as kept_rows
from transom.engine.spark.columns import TIME, first_line
from transom.engine.spark.compile import Compiled
from transom.engine.spark.firsts import first_rows, keys_in
from transom.engine.spark.joins import in_time
from transom.engine.spark.rowfiles import Files, KeptFiles, KeptRows, Whole, files_from_json, files_to_json, keep_only
from transom.engine.streams.windowed import WindowedSource
from transom.errors import DefinitionError
from transom.model.joinkind import INNER
from transom.model.time import MICROS_PER_SECOND, Clock, Micros, format_duration
from transom.model.window import tumbling
from transom.sources.base import Offset
from transom.sources.schemas import check_reserved
from transom.storage.durable import remove_tree
from transom.storage.places import Place
from transom.windows.joining import LEFT_SIDE, WindowTimes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from transom.engine.streams.cuts import LoggedCut
    from transom.engine.streams.definition import StreamDefinition
    from transom.engine.streams.stream import RunningStream

SLICE = tumbling(MICROS_PER_SECOND)
"""Rows are looked at slice by slice, each when the watermark has passed it: then all are there that are in time."""


class Stayed:
    """The keys and times of the rows that stayed, as files for as long as they keep others away.

    It is a buffer of the very stream that has no repetitions: what a cut kept is in the log with its commit, so that
    the next cut looks at the same, whenever it is done.

    Args:
        query: The query on that stream which sees the keys only.
    """

    late_of: str | None = None
    """It needs all rows."""

    def __init__(self, query: str) -> None:
        self.query = query
        self.directory: Place = Path()
        self.columns: StructType
        self.pieces: dict[int, tuple[Micros, Files]] = {}
        """The time of the newest row of each cut, and its files."""
        self._whole_files = Whole()

    def piece(self, cut: int) -> Place:
        """Return where the rows of a cut are kept."""
        return self.directory / f"{cut:012d}"

    def store(self, seen: DataFrame, cut: LoggedCut, late_before: Mapping[str, Micros]) -> KeptRows | None:
        """Keep the rows of a cut; None when there are none."""
        return kept_rows.write_rows(seen, "true", cut.watermark, self.piece(cut.number))

    def keep(self, cut: int, rows: KeptRows) -> None:
        """Remember that the rows of a committed cut are kept."""
        self.pieces[cut] = rows.newest, rows.files or {}

    def kept(self, moment: Micros) -> list[KeptFiles]:
        """Return the files with the rows after a moment."""
        return [(self.piece(cut), files) for cut, (newest, files) in list(self.pieces.items()) if newest > moment]

    def since(self, spark: SparkSession, moment: Micros) -> DataFrame:
        """Return the rows after a moment."""
        paths = self._whole_files.paths(self.kept(moment))
        return kept_rows.read_rows(spark, paths, self.columns).where(f"{TIME} > {moment}L")

    def tidy(self, moment: Micros) -> None:
        """Remove the pieces that have no row after a moment."""
        for cut in [cut for cut, (newest, _) in self.pieces.items() if newest <= moment]:
            del self.pieces[cut]
            remove_tree(self.piece(cut))


class FirstRowsSource(WindowedSource):
    """The first row of each key within a time, in the order of event times.

    Args:
        name: Name of the stream.
        keys: The columns.
        within: The time.
        parent: Names of the stream whose rows it takes, and of the query on that.
        stayed: Name of the query on this stream that sees the keys.
    """

    def __init__(self, name: str, keys: Sequence[str], within: Micros, parent: tuple[str, str], stayed: str) -> None:
        super().__init__(WindowTimes(SLICE, INNER, LEFT_SIDE), [("rows", *parent)])
        self.name, self.keys, self.within = name, tuple(keys), within
        self.stayed = Stayed(stayed)

    def describe(self) -> str:
        """Return what it is and reads, in one line for people."""
        within = format_duration(self.within)
        return f"first row of each {', '.join(self.keys)} of {self.parents[0]} within {within}"

    def learn(self, parents: Mapping[str, tuple[StreamDefinition, Compiled]], session: SparkSession) -> None:
        """Find out the columns of the rows; their event time is one more.

        Raises:
            DefinitionError: A key is missing, or rows have no order.
        """
        from pyspark.errors import AnalysisException

        (rows,) = self._empty_sides(parents, session)
        columns = self.sides[0].columns
        check_reserved(columns.names, f"deduplicate {self.name!r}")
        self.keys = keys_in(self.keys, rows)
        self.stayed.columns = type(columns)([columns[key] for key in self.keys])
        try:
            self._schema = self._first(rows, kept_rows.read_rows(session, [], self.stayed.columns)).schema
        except AnalysisException as error:
            raise DefinitionError(
                f"deduplicate {self.name!r}: {first_line(error)}.",
                "Of rows of one time the first is found by the order of their values: leave out, or make text of, "
                "columns that have none, such as maps.",
            ) from error

    def open(self, spark: SparkSession, directory: Place, clock: Clock) -> None:
        """Keep the rows below the directory."""
        super().open(spark, directory, clock)
        self.stayed.directory = directory / "stayed"

    def bind(self, stream: RunningStream, streams: Mapping[str, RunningStream]) -> None:
        """Connect with the running parent, and with the stream that has the rows which stay."""
        super().bind(stream, streams)
        stream.buffers.append(self.stayed)

    def reads(self, query: str) -> bool:
        """Tell whether it needs the rows of a query."""
        return query == self.stayed.query or super().reads(query)

    def orphaned(self) -> str | None:
        """Return why nobody knows any more which rows are the first."""
        state = self.child.state.queries.get(self.stayed.query)
        if state is not None and state.failure is not None:
            return f"it needs {self.stayed.query}, which failed"
        return super().orphaned()

    def complete_from(self) -> Micros:
        """Return the moment from which on no row that was not seen can keep another away."""
        moment = super().complete_from()
        return moment + self.within if self.sides[0].complete_from > self._start else moment

    def settle(self, offset: object, check: Callable[[], None]) -> None:
        """Forget what is committed, and remove rows of cuts that were not, or that nothing needs."""
        super().settle(offset, check)  # type: ignore[arg-type]
        keep_only(self.stayed.directory, {self.stayed.piece(cut).name for cut in self.stayed.pieces}, check)

    def _tidy(self) -> None:
        super()._tidy()
        next_end = self._items[0].position if self._items else self._given
        if next_end > self._start:
            self.stayed.tidy(self._since(next_end))

    def held(self) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        """Return what the snapshot must hold, as JSON and tables."""
        state, tables = super().held()
        stayed = [[cut, newest, files_to_json(files)] for cut, (newest, files) in self.stayed.pieces.items()]
        return state | {"stayed": stayed}, tables

    def restore(self, state: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
        """Take in what `held` returned."""
        super().restore(state, tables)
        self.stayed.pieces = {cut: (newest, files_from_json(files) or {}) for cut, newest, files in state["stayed"]}

    def kept(self, start: Offset, end: Offset) -> list[KeptFiles]:
        """Return the files with the rows of the slices that end in (start, end], and with what may keep them away."""
        slices = self._between(start, end)
        return super().kept(start, end) + (self.stayed.kept(self._since(slices[0].position)) if slices else [])

    def _since(self, end: Micros) -> Micros:
        """Return the moment after which rows that stayed may keep away some of the slice with an end."""
        return self.times.start_of(end) - self.within

    def _made(self, frames: Sequence[DataFrame], windows: DataFrame, ends: Sequence[Micros]) -> DataFrame:
        """Return the rows that stay."""
        spark = frames[0].sparkSession
        kept = (
            self.stayed.since(spark, self._since(ends[0]))
            if ends
            else kept_rows.read_rows(spark, [], self.stayed.columns)
        )
        return self._first(frames[0], kept)

    def _first(self, rows: DataFrame, kept: DataFrame) -> DataFrame:
        return first_rows(in_time(rows, SLICE.length), kept, self.keys, self.within)
