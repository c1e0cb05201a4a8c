"""What is left out of a backlog that is too large to be read in time: whole pieces of it, evenly over windows.

The paper chooses tuples (4.1, earliest deadline first). Here a piece of input (a file, a range of offsets) costs the
same for every row, and the rows of a window are all due together, so that which rows of it are read is no matter and
how many of each window is all. The least share of a window is made as large as can be, then the next larger one, and so
on: water-filling over deadlines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

TO_SPARE = 1.2
"""Overload is over when all would fit though it took so many times as long."""
_TINY = 1e-9


@dataclass(frozen=True)
class Due:
    """Rows that are due at the same time: those between two ends of windows."""

    room: float
    """Rows that can be read by then, those that are due before included; below 0 when it is too late already."""
    kept: float = 0.0
    """Rows of it that were read before."""
    dropped: float = 0.0
    """Rows of it that were left out before."""
    coming: float = 0.0
    """Rows of it that have not come yet, as far as can be told; they take a part of the room."""


@dataclass(frozen=True)
class Piece:
    """A piece of the backlog that is read or left out as a whole."""

    rows: int
    due: int
    """Index of the `Due` that its rows belong to; never less than that of the piece before."""
    needed: bool = False
    """Whether it is read in any case, as the newest of its source partition is: it carries the watermark."""


def fits(pieces: Sequence[Piece], dues: Sequence[Due], times: float = 1.0) -> bool:
    """Tell whether all pieces and what is coming can be read in time, also if they had so many times the rows.

    >>> fits([Piece(10, 0), Piece(10, 1)], [Due(10.0), Due(19.0)])
    False
    """
    rows = [due.coming for due in dues]
    for piece in pieces:
        rows[piece.due] += piece.rows
    read = (times * total for total in accumulate(rows))
    return all(new == 0 or total <= due.room + _TINY for new, total, due in zip(rows, read, dues, strict=True))


def chosen(pieces: Sequence[Piece], dues: Sequence[Due], keep: float) -> list[bool]:
    """Return which pieces are read, so that the least share of rows that are read is as large as can be.

    Nothing is left out while all fits, with what is coming, of which as large a part will be read; at least `keep` of
    the rows of each `Due` is read, even where that is too late; and so are the pieces that are needed. Otherwise no
    more is read by any time than fits by then. Pieces that are left out are spread evenly. A share is less than one
    piece below the largest that is possible.

    Args:
        pieces: The backlog, in the order in which it is read.
        dues: When the pieces are due, in order of time; the room never shrinks from one to the next.
        keep: Least share of the rows that are due together, of those of earlier decisions too.

    O(pieces + dues^2).
    """
    rows, needed = [0.0] * len(dues), [0.0] * len(dues)
    for piece in pieces:
        rows[piece.due] += piece.rows
        needed[piece.due] += piece.rows if piece.needed else 0
    least = [
        min(new, max(must, keep * (due.kept + due.dropped + new) - due.kept))
        for due, new, must in zip(dues, rows, needed, strict=True)
    ]
    whole = [new + due.coming for due, new in zip(dues, rows, strict=True)]
    level = _levelled(whole, least, dues)
    wanted = [
        max(low, new * at / total) if total else 0.0
        for low, new, at, total in zip(least, rows, level, whole, strict=True)
    ]
    return _spread(pieces, wanted, needed, least)


def thinned(
    pieces: Sequence[Piece], dues: Sequence[Due], steps: int, keep: float, weight: Callable[[float], float]
) -> int:
    """Return of how many parts of all rows the costly work is done, so that they are read by the time they are due.

    Args:
        pieces: The backlog.
        dues: When the pieces are due.
        steps: Parts of all rows.
        keep: Least share of the rows.
        weight: Given the share, returns the time of a row over what it is when the work is done for all.
    """
    least = max(1, math.ceil(keep * steps - _TINY))
    return next((part for part in range(steps, least, -1) if fits(pieces, dues, weight(part / steps))), least)


def _levelled(rows: Sequence[float], least: Sequence[float], dues: Sequence[Due]) -> list[float]:
    """Return how many of the rows of each `Due` are read when single rows could be chosen.

    The level rises until the room by some time is full. What is due until then stays at the level, and it rises on for
    what is due later.
    """
    found: list[float] = []
    used = forced = 0.0
    room = []
    for due, each in zip(dues, least, strict=True):
        forced += each
        room.append(max(due.room, forced))
    while len(found) < len(rows):
        first = len(found)
        level, full = _level(rows[first:], least[first:], dues[first:], [each - used for each in room[first:]])
        found += [_at(level, *each) for each in zip(rows[first:], least[first:], dues[first:], strict=True)][: full + 1]
        used = sum(found)
    return found


def _level(
    rows: Sequence[float], least: Sequence[float], dues: Sequence[Due], room: Sequence[float]
) -> tuple[float, int]:
    """Return the highest level that the room allows, at most 1, and the index of the last time at which it is full."""
    low, high = 0.0, 1.0
    if _first_over(high, rows, least, dues, room) is None:
        return 1.0, len(rows) - 1
    full = len(rows) - 1
    for _ in range(50):
        middle = (low + high) / 2
        over = _first_over(middle, rows, least, dues, room)
        if over is None:
            low = middle
        else:
            high, full = middle, over
    return low, full


def _first_over(
    level: float, rows: Sequence[float], least: Sequence[float], dues: Sequence[Due], room: Sequence[float]
) -> int | None:
    read = 0.0
    for index, (new, bound, due) in enumerate(zip(rows, least, dues, strict=True)):
        read += _at(level, new, bound, due)
        if read > room[index] + _TINY * (1 + abs(room[index])):
            return index
    return None


def _at(level: float, rows: float, least: float, due: Due) -> float:
    """Return how many of some rows are read so that their share, with those of earlier decisions, is at the level."""
    return min(rows, max(least, level * (due.kept + due.dropped + rows) - due.kept))


def _spread(
    pieces: Sequence[Piece], wanted: Sequence[float], needed: Sequence[float], least: Sequence[float]
) -> list[bool]:
    """Return which pieces are read, evenly spread: never more rows up to a piece than are wanted up to there."""
    total = [0.0] * len(wanted)
    for piece in pieces:
        total[piece.due] += 0 if piece.needed else piece.rows
    read = [piece.needed for piece in pieces]
    target = taken = 0.0
    taken_of = list(needed)
    for index, piece in enumerate(pieces):
        if piece.needed:
            continue
        due = piece.due
        target += piece.rows * (wanted[due] - needed[due]) / total[due]
        if taken + piece.rows <= target + _TINY * (1 + target):
            read[index], taken = True, taken + piece.rows
            taken_of[due] += piece.rows
    for due, bound in enumerate(least):
        _top_up(pieces, read, due, bound - taken_of[due])
    return read


def _top_up(pieces: Sequence[Piece], read: list[bool], due: int, missing: float) -> None:
    """Read more of what is due together, as long as rows are missing; the last ones first, which arrived last."""
    for index in range(len(pieces) - 1, -1, -1):
        if missing <= _TINY:
            return
        if pieces[index].due == due and not read[index]:
            read[index], missing = True, missing - pieces[index].rows
