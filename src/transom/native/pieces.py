"""Where the values of lines lie that are written alike: found at separators, without moving a letter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transom.native.separated import Letters
from transom.native.shapes import Shape
from transom.native.values import UncertainError

Places: TypeAlias = "npt.NDArray[np.int64]"
_NEWLINE, _BLANK = 10, 32
_TILE = 1 << 18
"""Letters that are looked at together: of more, what is found would be new memory each time, and not in caches."""


@dataclass(frozen=True)
class Piece:
    """The letters of all lines between two constants."""

    letters: Letters
    begins: Places
    ends: Places

    @property
    def rows(self) -> int:
        """How many lines there are."""
        return len(self.begins)

    def texts(self) -> pa.StringArray:
        """Return a copy of them as texts."""
        rows = self.rows
        edges = np.empty(2 * rows, np.int32)
        edges[0::2] = self.begins
        edges[1::2] = self.ends
        parts = pa.StringArray.from_buffers(2 * rows - 1, pa.py_buffer(edges), pa.py_buffer(self.letters))
        return parts.take(pa.array(np.arange(0, 2 * rows - 1, 2, dtype=np.int32)))


def pieces(letters: Letters, shape: Shape, separator: str) -> list[Piece]:
    """Return where each value of a shape lies in each line; O(letters).

    No value has the separator in it, nor control characters, which nothing but the ends of lines are.

    Args:
        letters: Lines, each with its newline; one at least.
        shape: Their form, with the separator between each two values.
        separator: A character of ASCII.

    Raises:
        UncertainError: Some line has another form, or the separator in a value.
    """
    constants = [constant.encode() for constant in shape.constants]
    counts = [constant.count(separator.encode()) for constant in constants]
    found = _marks(letters, ord(separator))
    if len(found) % (sum(counts) + 1):
        raise UncertainError
    marks = np.ascontiguousarray(found.reshape(-1, sum(counts) + 1).T)
    newlines = marks[-1]
    if (letters[newlines] != _NEWLINE).any():
        raise UncertainError
    # A constant lies where its first separator is, or where the line begins or ends.
    begins = [np.append(0, newlines[:-1] + 1)]
    mark = counts[0]
    for constant, among in zip(constants[1:], counts[1:], strict=True):
        begins.append(marks[mark] - (constant.index(separator.encode()) if among else len(constant)))
        mark += among
    ends = [begin + len(constant) for begin, constant in zip(begins, constants, strict=True)]
    lie = list(zip(ends[:-1], begins[1:], strict=True))
    if any((begin > end).any() for begin, end in lie) or (ends[-1] != newlines).any():
        raise UncertainError
    if not all(_are(letters, begin, constant) for begin, constant in zip(begins, constants, strict=True)):
        raise UncertainError
    return [Piece(letters, begin, end) for begin, end in lie]


def count(letters: Letters, one: str, other: str) -> int:
    """Return how often one or the other of two characters of ASCII is there."""
    found = 0
    for begin in range(0, len(letters), _TILE):
        tile = letters[begin : begin + _TILE]
        found += int(np.count_nonzero((tile == ord(one)) | (tile == ord(other))))
    return found


def _marks(letters: Letters, separator: int) -> Places:
    """Return where separators and control characters are."""
    found = []
    for begin in range(0, len(letters), _TILE):
        tile = letters[begin : begin + _TILE]
        found.append(np.flatnonzero((tile < _BLANK) | (tile == separator)) + begin)
    return np.concatenate(found)


def _are(letters: Letters, places: Places, constant: bytes) -> bool:
    """Tell whether a constant lies at all places."""
    windows = np.ndarray(len(letters) - len(constant) + 1, f"V{len(constant)}", letters, strides=(1,))
    return windows[places].tobytes() == constant * len(places)
