"""A source as its stream saw it at the last look: how far it goes, what is away, and for how long nothing came."""

from __future__ import annotations

from collections.abc import Sequence

from transom.engine.state.watermarks import Idleness
from transom.engine.streams.arriving import rows_left
from transom.engine.streams.partialsource import brings_partials
from transom.errors import SourceAwayError
from transom.model.time import Micros
from transom.sources.base import Cut, Offset, Source


class SeenSource:
    """A source as its stream has known it since the last look.

    Args:
        source: The source, open.
        start: Where it begins.
        now: Wall time.
    """

    def __init__(self, source: Source, start: Offset, now: Micros) -> None:
        self._source = source
        self.latest = start
        """The newest offset at the last look."""
        self.at = now
        """Wall time of the last look for a next cut."""
        self.away: SourceAwayError | None = None
        """Why the source could not be reached at the last look."""
        self.idle: Sequence[Micros | None] = ()
        """For how long each source partition has been found empty; None where rows wait."""
        self._idleness = Idleness()
        self.more = False
        """Whether there were more rows than the last planned cut takes."""
        self.looked_from: Offset | None = None
        """Up to where it was read at the last look; None before the first one."""
        self._counted: tuple[Offset, int] | None = None
        """An offset and the rows from there on, if the last look counted them all."""

    def next_piece(self, committed: Offset, max_rows: int, now: Micros) -> Cut | None:
        """Look for new rows; return the piece to read next, None for none.

        Args:
            committed: Up to where it was read.
            max_rows: Largest piece.
            now: Wall time.
        """
        self.at, self.looked_from = now, committed
        self._look(committed)
        latest = committed if self.away is not None else self.latest
        rests = latest != committed and brings_partials(self._source) and self._source.rests(committed)
        piece = self._source.cut(committed, max_rows) if latest != committed and not rests else None
        self.more = piece is not None and piece.end != latest
        self._counted = None if self.more or rests else (committed, 0 if piece is None else piece.rows)
        return None if piece is None or piece.end == committed else piece

    def took(self, piece: Cut) -> None:
        """Note that another piece is read than `next_piece` returned."""
        self.more = piece.end != self.latest

    def leave(self, now: Micros) -> None:
        """Take no piece, whatever there is, as the next cut closes all windows."""
        self.at, self.more, self._counted = now, False, None

    def _look(self, committed: Offset) -> None:
        """Look for new rows; of a source that cannot be reached nothing is known, not even that it is empty."""
        try:
            self.latest = self._source.latest()
        except SourceAwayError as error:
            self.away = error
            return
        self.away = None
        if brings_partials(self._source):
            self.idle = self._source.idle(committed)
            return
        self._idleness = self._idleness.looked(self._source.waiting(committed), len(self._source.partitions))
        self.idle = self._idleness.lengths

    def backlog(self, committed: Offset) -> int:
        """Return the rows, as the source estimates them, that it had at the last look and that are not committed."""
        if self._counted is not None and self._counted[0] == committed:
            return self._counted[1]
        return rows_left(self._source, committed)
