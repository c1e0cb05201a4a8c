"""The rows of several streams as one: files from the commit of their cut until they were read."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from transom.engine.spark import rows as kept_rows
from transom.engine.spark.columns import first_line
from transom.engine.spark.compile import Compiled
from transom.engine.spark.rowfiles import (
    Files,
    KeptFiles,
    KeptRows,
    checked,
    files_from_json,
    files_to_json,
    keep_only,
)
from transom.engine.state.closing import Closing
from transom.engine.streams.rowsinput import InputsSource, RowsInput, columns_seen
from transom.errors import DefinitionError
from transom.model.time import MAX_TIME, MIN_TIME, Clock, Micros
from transom.sources.base import Offset
from transom.sources.schemas import check_reserved, position
from transom.storage.durable import remove_tree
from transom.storage.places import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from transom.engine.streams.cuts import LoggedCut
    from transom.engine.streams.definition import StreamDefinition


class Part(RowsInput):
    """One of the streams: reads its watermark, keeps all its rows.

    Args:
        source: The whole.
        number: Its place in it.
        stream: Name of the stream.
        query: Name of the query on it.
    """

    behind = 0
    """Watermarks stay what they are."""
    last_end = MIN_TIME
    """No window of its own waits for another stream."""

    def __init__(self, source: UnionSource, number: int, stream: str, query: str) -> None:
        super().__init__(source, number, stream, query)
        self._source = source

    def has_read(self, cut: int, offset: Offset) -> bool:
        """Return True: it needs no results."""
        return True

    def closed(self, cut: int, closings: Sequence[Closing], closed: Micros, ingested: Micros) -> None:
        """Take the stream's watermark."""
        self.until = max(self.until, closed)
        self._source.moved(ingested)

    def store(self, seen: DataFrame, cut: LoggedCut, late_before: Mapping[str, Micros]) -> KeptRows | None:
        """Keep the rows of a cut; None when there are none."""
        return kept_rows.write_rows(seen, "true", cut.watermark, self.piece(cut.number))

    def keep(self, cut: int, rows: KeptRows) -> None:
        """Let the rows of a committed cut be read."""
        self._source.take(self, cut, rows)


class UnionSource(InputsSource):
    """The rows of several streams, each once, with the lowest of their watermarks.

    The position of an item is its number in the order in which the log has the commits of the cuts.

    Args:
        name: Name of the stream.
        parts: Names of each stream and of the query on it.
    """

    def __init__(self, name: str, parts: Sequence[tuple[str, str]]) -> None:
        super().__init__([stream for stream, _ in parts], 0)
        self.name = name
        self.parts = tuple(Part(self, number, *part) for number, part in enumerate(parts))
        self._pieces: dict[int, tuple[int, int, Files]] = {}
        """For each item the number of the part, that of the cut, and the files."""
        self._missed: Micros = MIN_TIME
        """Rows before it may have come while nobody ran who would read them."""

    @property
    def inputs(self) -> Sequence[RowsInput]:
        """The parts."""
        return self.parts

    def describe(self) -> str:
        """Return what it is and reads, in one line for people."""
        return f"union of {' and '.join(self.parents)}"

    # ---- as a source

    def learn(self, parents: Mapping[str, tuple[StreamDefinition, Compiled]], session: SparkSession) -> None:
        """Find out the columns of the rows; their event time is one more.

        Raises:
            DefinitionError: The streams have different columns.
        """
        from pyspark.errors import AnalysisException

        frames = []
        for part in self.parts:
            part.columns = columns_seen(parents, part.stream, part.query, session)
            check_reserved(part.columns.names, f"union {self.name!r}")
            frames.append(kept_rows.read_rows(session, [], part.columns).drop(kept_rows.IN_FORCE))
        try:
            self._schema = _united(frames).schema
        except AnalysisException as error:
            raise DefinitionError(
                f"union {self.name!r}: {first_line(error)}.",
                "Give both sides the same columns: map(lambda rows: rows.select(...)).",
            ) from error

    def open(self, spark: SparkSession, directory: Place, clock: Clock) -> None:
        """Keep the rows below the directory."""
        for part in self.parts:
            part.directory = directory / str(part.number)

    def complete_from(self) -> Micros:
        """Return the moment from which on no row has come before now, nor in a stream that was not there."""
        return max(self._watermark, self._missed, *(part.complete_from for part in self.parts))

    def read(self, spark: SparkSession, start: Offset, end: Offset, skip: Sequence[str] = ()) -> DataFrame:
        """Return the rows of the cuts that were committed as items in (start, end]."""
        pieces = self._read(start, end)
        frames = []
        for part in self.parts:
            paths = [path for of, piece in pieces if of is part for path in checked(*piece)]
            frames.append(kept_rows.read_rows(spark, paths, part.columns).drop(kept_rows.IN_FORCE))
        return _united(frames)

    def kept(self, start: Offset, end: Offset) -> list[KeptFiles]:
        """Return the files with the rows of the cuts that were committed as items in (start, end]."""
        return [piece for _, piece in self._read(start, end)]

    def _read(self, start: Offset, end: Offset) -> list[tuple[Part, KeptFiles]]:
        items = [self._pieces[item.position] for item in self._between(start, end)]
        return [((part := self.parts[number]), (part.piece(cut), files)) for number, cut, files in items]

    def release(self, oldest_needed: Offset) -> None:
        """Forget the rows that are committed."""
        super().release(oldest_needed)
        for item in [item for item in self._pieces if item <= position(oldest_needed)]:
            number, cut, _ = self._pieces.pop(item)
            remove_tree(self.parts[number].piece(cut))

    def settle(self, offset: Offset, check: Callable[[], None]) -> None:
        """Forget what is committed, and remove rows of cuts that were not."""
        self.release(offset)
        for part in self.parts:
            needed = {part.piece(cut).name for number, cut, _ in self._pieces.values() if number == part.number}
            keep_only(part.directory, needed, check)

    def held(self) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        """Return what the snapshot must hold, as JSON and tables."""
        state, tables = super().held()
        pieces = [[item, number, cut, files_to_json(files)] for item, (number, cut, files) in self._pieces.items()]
        more = {"pieces": pieces, "until": [part.until for part in self.parts], "missed": self._missed}
        return state | more, tables

    def restore(self, state: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
        """Take in what `held` returned."""
        super().restore(state, tables)
        self._missed = state["missed"]
        self._pieces = {item: (number, cut, files_from_json(f) or {}) for item, number, cut, f in state["pieces"]}
        for part, until in zip(self.parts, state["until"], strict=True):
            part.until = until

    # ---- from its parts

    def take(self, part: Part, cut: int, rows: KeptRows) -> None:
        """Let the rows of a committed cut be read."""
        item = self._newest + 1
        self._push(item, rows.rows)
        if self._newest == item:
            self._pieces[item] = part.number, cut, rows.files or {}
        else:
            self._missed = max(self._missed, rows.newest + 1)
            remove_tree(part.piece(cut))

    def moved(self, ingested: Micros) -> None:
        """Take the lowest watermark."""
        if self.orphaned() is None:
            self._advance(min(part.until for part in self.parts), ingested)

    def input_wants(self, one: RowsInput, watermark: Micros, now: Micros) -> bool:
        """Tell whether a watermark of one part would close something further down."""
        if watermark >= MAX_TIME or self.orphaned() is not None:
            return False
        joint = min(watermark if other.running is one.running else other.until for other in self.parts)
        return self._would_close(joint, now)


def _united(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the rows of all frames, columns by name."""
    return functools.reduce(lambda a, b: a.unionByName(b), frames)
