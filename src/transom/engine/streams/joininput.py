"""One input of a join and the like: its rows, kept as files until no window needs them any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from transom.engine.spark import rows as kept_rows
from transom.engine.spark.columns import TIME
from transom.engine.spark.rowfiles import Files, KeptFiles, KeptRows, Whole, files_from_json, files_in, files_to_json
from transom.engine.state.closing import Closing
from transom.engine.streams.rowsinput import RowsInput
from transom.model.time import Micros
from transom.sources.base import Offset
from transom.storage.places import Place
from transom.windows.query import WINDOW_END

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from transom.engine.streams.cuts import LoggedCut
    from transom.engine.streams.windowed import WindowedSource


ROWS = "rows"
"""The one aggregate of a side's query: how many rows a window holds."""


@dataclass(frozen=True)
class Piece:
    """Rows of one cut that are kept."""

    last_end: Micros
    """The end of the last window that holds one."""
    files: Files | None
    """Where they are; None if nobody has noted that (format 1)."""


class JoinInput(RowsInput):
    """One input of a join: reads its query's windows, keeps its rows.

    The query counts the rows of each window, so that lateness, dead letters and failures are those of any query.

    Args:
        source: The join.
        number: 0 or 1.
        name: `left` or `right`.
        stream: Name of the stream.
        query: Name of the query.
    """

    def __init__(self, source: WindowedSource, number: int, name: str, stream: str, query: str) -> None:
        super().__init__(source, number, stream, query)
        self.name = name
        self.windows: dict[Micros, int] = {}
        """Rows of the closed windows that are not joined, or that matter to later ones, by their end."""
        self.pieces: dict[int, Piece] = {}
        """The rows that are kept, by cut."""
        self._whole_files = Whole()
        self._source = source

    @property
    def behind(self) -> Micros:
        """How far the watermark of the joined rows may be behind."""
        return self._source.times.behind

    def store(self, seen: DataFrame, cut: LoggedCut, late_before: Mapping[str, Micros]) -> KeptRows | None:
        """Keep the rows that are not late for all windows; None when there are none."""
        in_time = f"{TIME} >= {late_before[self.query]}L"
        return kept_rows.write_rows(seen, in_time, cut.watermark, self.piece(cut.number))

    def keep(self, cut: int, rows: KeptRows) -> None:
        """Remember that the rows of a committed cut are kept."""
        self.pieces[cut] = Piece(self._source.times.needed_until(self.number, rows.newest), rows.files)

    def kept(self, first_end: Micros) -> list[KeptFiles]:
        """Return the files with all rows of windows that end at a moment or later."""
        needed = [cut for cut, piece in list(self.pieces.items()) if piece.last_end >= first_end]
        return [(self.piece(cut), self._named(cut)) for cut in needed]

    def files(self, first_end: Micros) -> list[Place]:
        """Return their paths, checked."""
        return self._whole_files.paths(self.kept(first_end))

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
