"""Coordinates as one ordered key: the Z-order curve, by which places near each other mostly have keys near each other.

Bit i of x becomes bit 2i of the key and bit i of y bit 2i + 1 (Morton 1966), so ranges of keys are regions of the
plane, and groups of neighbouring partitions split and merge regions (Stark, Fig. 6 and 8).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from transom.errors import DefinitionError

Cells = npt.NDArray[np.int64]

MAX_BITS = 31
"""Keys of 62 bits are positive numbers in a BIGINT."""

_SPREAD = (
    (16, 0x0000FFFF0000FFFF),
    (8, 0x00FF00FF00FF00FF),
    (4, 0x0F0F0F0F0F0F0F0F),
    (2, 0x3333333333333333),
    (1, 0x5555555555555555),
)


def interleave(x: npt.ArrayLike, y: npt.ArrayLike) -> Cells:
    """Return the keys of cells; whole numbers from 0 to 2^31 - 1, any shape.

    >>> interleave([0, 1, 0, 1, 2], [0, 0, 1, 1, 0]).tolist()
    [0, 1, 2, 3, 4]
    """
    return _spread(np.asarray(x, np.int64)) | (_spread(np.asarray(y, np.int64)) << 1)


def deinterleave(key: npt.ArrayLike) -> tuple[Cells, Cells]:
    """Return the cells (x, y) of keys: the inverse of `interleave`."""
    keys = np.asarray(key, np.int64)
    return _gather(keys), _gather(keys >> 1)


def _spread(values: Cells) -> Cells:
    for shift, mask in _SPREAD:
        values = (values | (values << shift)) & mask
    return values


def _gather(values: Cells) -> Cells:
    values = values & 0x5555555555555555
    for (shift, _), mask in zip(reversed(_SPREAD), (*[m for _, m in _SPREAD[-2::-1]], 0x00000000FFFFFFFF), strict=True):
        values = (values | (values >> shift)) & mask
    return values


@dataclass(frozen=True)
class ZOrder:
    """A rectangle of the plane, divided into 2^bits x 2^bits cells, and their keys.

    Points outside belong to the nearest cell of the edge.

    Raises:
        DefinitionError: The rectangle is empty or not finite, or there are not 1 to 31 bits.
    """

    west: float
    south: float
    east: float
    north: float
    bits: int = 16

    def __post_init__(self) -> None:
        sides = (self.west, self.south, self.east, self.north)
        if not (np.isfinite(sides).all() and self.west < self.east and self.south < self.north):
            raise DefinitionError(f"The rectangle is {sides}.", "Give west < east and south < north, all finite.")
        if not 1 <= self.bits <= MAX_BITS:
            raise DefinitionError(f"bits is {self.bits}.", f"Give 1 to {MAX_BITS} for each coordinate.")

    @property
    def keys(self) -> int:
        """Number of keys: they are 0 up to it."""
        return 1 << 2 * self.bits

    def key(self, x: npt.ArrayLike, y: npt.ArrayLike) -> Cells:
        """Return the keys of points; NaN is refused.

        Raises:
            DefinitionError: A coordinate is not a number.
        """
        points = np.asarray(x, np.float64), np.asarray(y, np.float64)
        if np.isnan(points[0]).any() or np.isnan(points[1]).any():
            raise DefinitionError("A coordinate is not a number.", "Leave out rows without a place.")
        return interleave(*self._cells(*points))

    def sql(self, x: str, y: str) -> str:
        """Return the same key as an expression of Spark SQL, BIGINT; NULL where a coordinate is NULL or NaN.

        Args:
            x: A DOUBLE: a column or an expression. It occurs once for each bit.
            y: The same of the other axis.
        """
        cell_x = self._cell_sql(x, self.west, self.east)
        cell_y = self._cell_sql(y, self.south, self.north)
        terms = [
            f"shiftleft(({cell}) & {1 << bit}L, {bit + up})"
            for up, cell in enumerate((cell_x, cell_y))
            for bit in range(self.bits)
        ]
        return f"({' | '.join(terms)})"

    def ranges(self, west: float, south: float, east: float, north: float, most: int = 16) -> list[range]:
        """Return at most so many ranges of keys that hold all points of a rectangle; ascending, apart.

        Cells that lie in it in part are covered whole; where `most` does not suffice, the smallest gaps between ranges
        are covered, too. O(cells along the edge), at most 2^bits; no range where it is empty.

        Raises:
            DefinitionError: `most` is not positive.
        """
        if most < 1:
            raise DefinitionError(f"most is {most}.", "Allow at least one range.")
        if not (west <= east and south <= north):
            return []
        (x0, x1), (y0, y1) = self._cells(np.asarray([west, east]), np.asarray([south, north]))
        found: list[tuple[int, int]] = []
        todo = [(0, 0, self.bits)]
        while todo:  # depth first, in order of keys
            x, y, level = todo.pop()
            size = 1 << level
            if x > x1 or y > y1 or x + size <= x0 or y + size <= y0:
                continue
            if level == 0 or (x0 <= x and x + size - 1 <= x1 and y0 <= y and y + size - 1 <= y1):
                start = int(interleave(x, y))
                if found and found[-1][1] == start:
                    start = found.pop()[0]
                found.append((start, int(interleave(x, y)) + size * size))
            else:
                half = size // 2
                todo += [(x + dx, y + dy, level - 1) for dy in (half, 0) for dx in (half, 0)]
        gaps = sorted(range(1, len(found)), key=lambda place: found[place][0] - found[place - 1][1])
        starts = sorted(gaps[max(0, len(found) - most) :])
        edges = [0, *starts, len(found)]
        return [range(found[a][0], found[b - 1][1]) for a, b in pairwise(edges)]

    def _cells(self, x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> tuple[Cells, Cells]:
        last = (1 << self.bits) - 1
        scale = float(1 << self.bits)
        return (
            np.clip(np.floor((x - self.west) * (scale / (self.east - self.west))), 0, last).astype(np.int64),
            np.clip(np.floor((y - self.south) * (scale / (self.north - self.south))), 0, last).astype(np.int64),
        )

    def _cell_sql(self, value: str, low: float, high: float) -> str:
        number = f"CAST({value} AS DOUBLE)"
        scaled = f"floor(({number} - {low!r}D) * {float(1 << self.bits) / (high - low)!r}D)"
        cell = f"CAST(greatest(0D, least({float((1 << self.bits) - 1)!r}D, {scaled})) AS BIGINT)"
        # greatest and least skip NULL. The condition is inside, so that Spark computes each cell once, not once a bit.
        return f"CASE WHEN {number} IS NOT NULL AND NOT isnan({number}) THEN {cell} END"
