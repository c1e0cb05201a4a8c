"""Neighbouring small partitions as one task: groups are split, merged and evened out by size (Stark, section III-C2).

Stark keeps a full binary tree whose leaves are groups, so the number of partitions is a power of two, only siblings
merge, and a split is always in the middle. All that the tree tells is which borders between partitions separate
groups. Here the borders themselves are kept: any number of partitions, any two neighbours can merge, and a group is
split where its halves weigh most nearly the same. The mapping of keys to partitions never changes, so no change of
groups needs an exchange of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from transom.errors import DefinitionError

Sizes = npt.NDArray[np.float64]

TOLERANCE = 1.1
"""Borders are left alone while the largest group is at most so many times as large as it has to be."""


@dataclass(frozen=True)
class Grouping:
    """Groups of neighbouring partitions."""

    borders: tuple[int, ...]
    """First partition of each group, then the number of partitions: ascending, from 0, each once."""

    def __post_init__(self) -> None:
        """Check the borders.

        Raises:
            DefinitionError: They are not ascending from 0.
        """
        if len(self.borders) < 2 or self.borders[0] != 0 or any(a >= b for a, b in pairwise(self.borders)):
            raise DefinitionError(f"borders is {self.borders}.", "Give 0, ascending numbers, the number of partitions.")

    @classmethod
    def even(cls, partitions: int, groups: int) -> Grouping:
        """Return groups of as equal numbers of partitions as can be.

        Raises:
            DefinitionError: There are no groups, or fewer partitions than groups.
        """
        if not 1 <= groups <= partitions:
            raise DefinitionError(f"groups is {groups}.", f"Give 1 to {partitions}, the number of partitions.")
        return cls(tuple(partitions * place // groups for place in range(groups + 1)))

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self.borders) - 1

    @property
    def partitions(self) -> int:
        """Number of partitions."""
        return self.borders[-1]

    @property
    def ranges(self) -> list[range]:
        """Partitions of each group."""
        return [range(a, b) for a, b in pairwise(self.borders)]

    def group_of(self, partition: int) -> int:
        """Return the group of a partition. O(log groups)."""
        return int(np.searchsorted(self.borders, partition, side="right")) - 1

    def sizes(self, sizes: Sequence[float] | Sizes) -> Sizes:
        """Return the size of each group, given that of each partition."""
        return np.add.reduceat(np.asarray(sizes, np.float64), self.borders[:-1])

    def adapted(self, sizes: Sequence[float] | Sizes, least: float, most: float) -> Grouping:
        """Return the groups for partitions of these sizes; itself if there is no reason to change.

        Groups above `most` are split until they are below it or one partition; neighbours that are below `least`
        together are merged. Then borders move if the largest group could be smaller by more than `TOLERANCE`; of the
        borders that make it so, those nearest to the old ones are taken. Applied again to the same sizes it changes
        nothing. O(groups x partitions).

        Args:
            sizes: Of each partition, the sum over the last datasets; shape (partitions,), any unit.
            least: Two neighbours smaller than this together become one group.
            most: A group is at most so large, as far as partitions allow it.

        Raises:
            DefinitionError: The bounds are not ascending, or there are not as many sizes as partitions.
        """
        if not 0 <= least <= most:
            raise DefinitionError(f"Sizes of groups are between {least} and {most}.", "Give the smaller bound first.")
        if len(sizes) != self.partitions:
            raise DefinitionError(
                f"There are {len(sizes)} sizes.", f"Give one for each of {self.partitions} partitions."
            )
        totals = np.concatenate([[0.0], np.cumsum(np.asarray(sizes, np.float64))])
        before: tuple[int, ...] = ()
        borders = _split(self.borders, totals, most)
        while borders != before:  # each round has fewer groups
            before, borders = borders, _evened(_merged(borders, totals, least), totals, most)
        return self if borders == self.borders else Grouping(borders)


def smallest_largest(sizes: Sequence[float] | Sizes, groups: int) -> float:
    """Return the size of the largest group in the best division of partitions into so many groups of neighbours.

    O(groups log partitions) for each of about 50 halvings.
    """
    totals = np.concatenate([[0.0], np.cumsum(np.asarray(sizes, np.float64))])
    return _best(totals, groups)


def _best(totals: Sizes, groups: int) -> float:
    low, high = max(float(np.diff(totals).max()), totals[-1] / groups), float(totals[-1])
    while high - low > 1e-9 * max(high, 1e-300):
        middle = (low + high) / 2
        if _needed(totals, middle)[0] <= groups:
            high = middle
        else:
            low = middle
    return high


def _needed(totals: Sizes, most: float) -> list[int]:
    """Return how few groups of at most this size hold the partitions from each one on; the last entry is 0."""
    partitions = len(totals) - 1
    ends = np.searchsorted(totals, totals[:-1] + most * (1 + 1e-12), side="right") - 1
    needed = [0] * (partitions + 1)
    for start in range(partitions - 1, -1, -1):
        needed[start] = 1 + needed[max(int(ends[start]), start + 1)]
    return needed


def _split(borders: tuple[int, ...], totals: Sizes, most: float) -> tuple[int, ...]:
    found = [borders[0]]
    todo = list(reversed(list(pairwise(borders))))
    while todo:
        start, stop = todo.pop()
        if totals[stop] - totals[start] <= most or stop - start == 1:
            found.append(stop)
            continue
        inside = np.arange(start + 1, stop)
        middle = int(inside[np.argmin(np.maximum(totals[inside] - totals[start], totals[stop] - totals[inside]))])
        todo += [(middle, stop), (start, middle)]
    return tuple(found)


def _merged(borders: tuple[int, ...], totals: Sizes, least: float) -> tuple[int, ...]:
    kept = list(borders)
    while len(kept) > 2:
        sizes = totals[kept[2:]] - totals[kept[:-2]]
        smallest = int(np.argmin(sizes))
        if sizes[smallest] >= least:
            break
        del kept[smallest + 1]
    return tuple(kept)


def _evened(borders: tuple[int, ...], totals: Sizes, bound: float) -> tuple[int, ...]:
    """Return borders with which no group is much larger than one has to be, as near to the given ones as can be."""
    groups = len(borders) - 1
    best = _best(totals, groups)
    most = min(TOLERANCE * best, max(best, bound))
    if float(np.diff(totals[list(borders)]).max()) <= most * (1 + 1e-9):
        return borders
    needed = _needed(totals, most)
    found = [0]
    for place, old in enumerate(borders[1:-1], start=1):
        start, left = found[-1], groups - place
        ends = np.arange(start + 1, len(totals) - left)
        fits = (totals[ends] - totals[start] <= most * (1 + 1e-12)) & (np.take(needed, ends) <= left)
        possible = ends[fits] if fits.any() else ends[:1]
        found.append(int(possible[np.argmin(np.abs(possible - old))]))
    return (*found, borders[-1])
