"""Pieces of sessions that somebody else knows: the states of rows, where only their first and last times are told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from transom.model.time import Micros
from transom.windows.aggregates.base import Primitive, Slots, State
from transom.windows.aggregates.reduce import Reduction, take
from transom.windows.intervals import HeldIntervals, Intervals
from transom.windows.panes import Times


class SessionPieces(HeldIntervals):
    """Intervals that belong to sessions which a `SessionStore` elsewhere has the times of.

    Sessions of a key never overlap: a row that is in time comes after the last row of every session of its key that has
    ended. So an interval belongs to the session that it lies in. Whether two of them that were added one after the
    other belong to one session is not known here, even if they are less than a gap apart, as the first one may have
    ended before the second one came; so they are not joined.
    """

    def drop_before(self, moment: Micros) -> None:
        """Forget the intervals that end before a moment, since no session will be asked for that begins earlier."""
        late = [part.last < moment for part in self._parts]
        self._parts = [
            part if not before.any() else part.where(~before)
            for part, before in zip(self._parts, late, strict=True)
            if not before.all()
        ]

    def within(self, keys: pa.Table, first: Times, last: Times) -> tuple[Slots, dict[Primitive, State]]:
        """Return the numbers of those of some sessions that hold intervals, ascending, with the states merged for each.

        TIMES among the states is of the intervals only. O(intervals + m log m) for m intervals of the sessions' keys.

        Args:
            keys: Key columns of the sessions, which do not overlap; n rows.
            first: Time of the first row of each session, shape (n,).
            last: Time of the last row of each session, shape (n,).
        """
        ids = self.keys.intern(keys.select(self.keys.schema.names))
        order = np.lexsort((first, ids))
        wanted = np.zeros(len(self.keys), np.bool_)
        wanted[ids] = True
        begins = np.unique(first)

        def place(of: Slots, begin: Times) -> Slots:
            """Return one number for a key and how many of the beginnings are not after a time."""
            return of * (len(begins) + 1) + np.searchsorted(begins, begin, side="right")

        places = place(ids[order], first[order])
        numbers: list[Slots] = [np.empty(0, np.int64)]
        found: list[Intervals] = []
        for part in self._parts if len(order) else ():
            rows = np.flatnonzero(wanted[part.ids])
            at = np.searchsorted(places, place(part.ids[rows], part.first[rows]), side="right") - 1
            inside = (at >= 0) & (ids[order[at]] == part.ids[rows]) & (part.last[rows] <= last[order[at]])
            rows, at = rows[inside], at[inside]
            numbers.append(order[at])
            found.append(Intervals(part.ids[rows], {p: take(state, rows) for p, state in part.states.items()}))
        slots, into = np.unique(np.concatenate(numbers), return_inverse=True)
        if not len(slots):
            return slots, {p: p.empty(0, types) for p, types in self.primitives.items()}
        states = self._concatenated(found)
        reduction = Reduction.of(into, len(slots))
        return slots, {p: reduction(p, state, self.primitives[p]) for p, state in states.items()}

    def pieces(self) -> Iterator[tuple[Times, pa.Table, Mapping[Primitive, State]]]:
        """Yield first time, key and states of the intervals, as they were added, the latter two as `add` takes them."""
        for part in self._parts:
            yield part.first, self.key_table(part.ids), part.states
