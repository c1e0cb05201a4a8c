"""The panes that hold rows, in order of time, with running totals of what they cost to merge."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from transom.model.time import Micros
from transom.windows.aggregates.base import Slots
from transom.windows.cover import OVERHEAD
from transom.windows.panes import Times
from transom.windows.partials import Partial, renumbered, same_ids

MOST_PARTS = 4
"""A pane with more partials than this is merged, so that later windows merge fewer."""

Merge = Callable[[Sequence[Partial]], Partial]


class PaneIndex:
    """Partials by pane. New rows are appended; they are merged when the pane is read.

    Args:
        merge: Merges partials.
    """

    def __init__(self, merge: Merge) -> None:
        self.starts: list[Micros] = []
        """Starts of the panes that hold rows, ascending."""
        self._merge = merge
        self._start_times: Times | None = None
        self._parts: dict[Micros, list[Partial]] = {}
        self._totals: list[int] = [0]
        """Cost of the panes before each boundary; valid as far as it goes, made longer when asked for."""
        self._newest: Slots | None = None

    def append(self, start: Micros, part: Partial) -> None:
        """Add rows to a pane; O(log panes) for the last ones, O(panes) when an old one is new."""
        if self._newest is not None and same_ids(part.ids, self._newest):
            part = Partial(self._newest, part.states)
        self._newest = part.ids
        place = bisect_left(self.starts, start)
        del self._totals[place + 1 :]
        parts = self._parts.get(start)
        if parts is None:
            self.starts.insert(place, start)
            self._start_times = None
            self._parts[start] = [part]
            return
        parts.append(part)
        if len(parts) > MOST_PARTS:
            self._parts[start] = [self._merge(parts)]

    def start_times(self) -> Times:
        """Return `starts` as an array."""
        if self._start_times is None:
            self._start_times = np.array(self.starts, dtype=np.int64)
        return self._start_times

    def boundary(self, moment: Micros) -> int:
        """Return the number of panes that start before the moment; O(log panes)."""
        return bisect_left(self.starts, moment)

    def pane(self, place: int) -> Partial:
        """Return the rows of a pane, given by its position in `starts`."""
        start = self.starts[place]
        parts = self._parts[start]
        if len(parts) > 1:
            self._parts[start] = parts = [self._merge(parts)]
        return parts[0]

    def totals(self) -> Sequence[int]:
        """Return what the panes before each boundary cost: rows plus `OVERHEAD` each; O(panes changed)."""
        known = len(self._totals) - 1
        if known < len(self.starts):
            costs = (sum(map(len, self._parts[start])) + OVERHEAD for start in self.starts[known:])
            self._totals += itertools.islice(itertools.accumulate(costs, initial=self._totals[-1]), 1, None)
        return self._totals

    def drop_before(self, moment: Micros) -> None:
        """Forget the panes that start before the moment."""
        count = self.boundary(moment)
        if count:
            for start in self.starts[:count]:
                del self._parts[start]
            del self.starts[:count]
            del self._totals[:count]
            self._totals = self._totals or [0]
            self._start_times = None

    def partials(self) -> Iterator[Partial]:
        """Yield all partials."""
        for parts in self._parts.values():
            yield from parts

    def renumber(self, numbers: Slots) -> None:
        """Change the key ids, as `partials.renumbered` does."""
        self._newest = None
        self._parts = {start: [renumbered(part, numbers) for part in parts] for start, parts in self._parts.items()}

    def __len__(self) -> int:
        """Return the number of rows."""
        return sum(map(len, self.partials()))
