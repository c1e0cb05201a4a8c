"""Rows that wait in a source, and when those of a cut arrived there."""

from __future__ import annotations

from transom.engine.streams.cuts import LoggedCut
from transom.model.time import Micros
from transom.sources.base import Offset, Source

ALL_ROWS = 1 << 60
"""More rows than any source has."""
PIECES = 16
"""Of a cut the arrivals of so many pieces are looked at, and of a piece of it those of as many."""


def came_at(source: Source, cut: LoggedCut, even: float, until: Micros) -> Micros:
    """Return when the piece of a cut's input arrived that was the first to arrive at a moment or later; wall time.

    The cut is divided into some pieces, and the one that is found again: cuts of seconds would else be known to a
    sixteenth, always too late.

    Args:
        source: Its source.
        cut: What brought the input.
        even: The moment.
        until: When the last piece arrived.
    """
    at, most, came = cut.start, cut.rows, until
    for _ in range(2):
        most = max(1, most // PIECES)
        for _ in range(2 * PIECES):
            end = source.cut(at, most).end
            came = source.ingested_at(at, end)
            if came >= even or end == cut.end:
                break
            at = end
    return min(until, max(came, round(even)))


def oldest_at(source: Source, cut: LoggedCut) -> Micros:
    """Return when the first piece of a cut's input arrived; wall time."""
    return source.ingested_at(cut.start, source.cut(cut.start, 1).end)


def rows_left(source: Source, offset: Offset) -> int:
    """Return the rows from an offset on; a source may have a limit of its own for a cut, such as a number of files."""
    rows, piece = 0, source.cut(offset, ALL_ROWS)
    while piece.end != offset:
        rows, offset = rows + piece.rows, piece.end
        piece = source.cut(offset, ALL_ROWS)
    return rows
