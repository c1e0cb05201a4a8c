"""The open sessions of one key set and gap on the driver: intervals of rows come in, sessions that ended go out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from transom.model.time import MAX_TIME, MIN_TIME, Micros
from transom.model.window import SessionSpec
from transom.windows.aggregates.base import Primitive, State, Types
from transom.windows.aggregates.reduce import take
from transom.windows.aggregates.values import Mask
from transom.windows.intervals import HeldIntervals, Intervals, ended_in
from transom.windows.panes import Times

FAN = 4
"""So many parts of like size are joined into one."""
MANY = 10_000
"""With fewer intervals it is not looked for what can be joined of keys without a session that ended."""


class SessionStore(HeldIntervals):
    """Open sessions by key.

    Sessions are merged from intervals in any order, as windows are from panes. Of intervals whose states are elsewhere
    only their shape comes in (`forget_states`, `put`): when sessions end does not depend on anything else. Intervals
    wait in parts, of which those of like size are joined, and otherwise the intervals of a key are only brought
    together when one of them ended long enough ago: a commit costs O(new rows) and, over time, O(log(open sessions))
    merges of each row. Where rows can end a session, intervals are single moments until the watermark has passed them;
    then they are joined when they have become many, so that about twice as many are held as there are open sessions and
    moments that the watermark has not passed.
    """

    def __init__(self, spec: SessionSpec, keys: pa.Schema, primitives: Mapping[Primitive, Types]) -> None:
        super().__init__(spec, keys, primitives)
        self._many = MANY

    def _append(self, part: Intervals) -> None:
        """Add a part, and join the last ones when none of them is larger than the others together."""
        if not len(part):
            return
        self._parts.append(part)
        while len(self._parts) >= FAN:
            sizes = [len(part) for part in self._parts[-FAN:]]
            if 2 * max(sizes) > sum(sizes):
                return
            self._parts[-FAN:] = [self._joined(self._parts[-FAN:])]

    def _settle(self, watermark: Micros) -> Intervals:
        """Take out and return the sessions that ended by the watermark.

        Only keys with an interval that ended by then are looked at; most of these intervals were joined by later
        rows, and are replaced by what they became, so that each key is looked at about once per gap.
        """
        full = self.spec.ends_when is not None and len(self) > self._many
        touched = np.full(len(self.keys), full)
        for part in self._parts:
            touched[part.ids[self._ended(part, watermark)]] = True
        if not touched.any():
            return self._joined([Intervals(np.empty(0, np.int64), {})])
        chosen = [touched[part.ids] for part in self._parts]
        mine = [part.where(mask) for part, mask in zip(self._parts, chosen, strict=True) if mask.any()]
        joined = self._joined(mine, watermark)
        rest = [part if not mask.any() else part.where(~mask) for part, mask in zip(self._parts, chosen, strict=True)]
        self._parts = []
        ended = self._ended(joined, watermark)
        for part in sorted([*rest, joined.where(~ended)], key=len, reverse=True):
            self._append(part)
        if full:
            self._many = max(MANY, 2 * len(self))
        return joined.where(ended)

    def ends(self, part: Intervals) -> Times:
        """Return the end of each interval, were it a session."""
        ended = False if self._ends_of is None else ended_in(part.states[self._ends_of])
        return self.spec.ends(part.first, part.last, ended)

    def _ended(self, part: Intervals, watermark: Micros) -> Mask:
        """Return which intervals, were they sessions, ended by the watermark: not at it, where a row may come."""
        ended: Mask = self.ends(part) < watermark
        return ended

    def due(self, watermark: Micros) -> Times:
        """Return the starts of the sessions that end by the watermark, if it comes into force now; they stay."""
        parts, many = list(self._parts), self._many
        ended = self._settle(watermark)
        if self.spec.cut:  # rows can come before the watermark does, and change where sessions are cut
            self._parts, self._many = parts, many
        else:
            self._append(ended)
        return ended.first

    def take(self, watermark: Micros) -> Intervals:
        """Take out the sessions that ended by the watermark, ordered by end, start and key; they are final."""
        ended = self._settle(watermark)
        order = np.lexsort((ended.ids, ended.first, self.ends(ended)))
        return Intervals(ended.ids[order], {p: take(state, order) for p, state in ended.states.items()})

    def last_end(self) -> Micros:
        """Return the end of the last session; MIN_TIME without one."""
        return max((int(self.ends(part).max()) for part in self._parts), default=MIN_TIME)

    def first_end(self) -> Micros:
        """Return the end of the first session to end unless rows come; MAX_TIME without one. O(intervals)."""
        return min((int(self.ends(part).min()) for part in self._parts if len(part)), default=MAX_TIME)

    def begun(self, closed: Micros) -> Micros:
        """Return a moment before which no session begins that is open now or comes later; it never goes back.

        O(intervals).

        Args:
            closed: The watermark in force.
        """
        first = min((int(part.first.min()) for part in self._parts), default=MAX_TIME)
        return min(first, self.spec.late_before(closed))

    # ---- states that are elsewhere

    def whole(self) -> Intervals:
        """Return all open sessions, ordered by key and time; they stay."""
        self._parts = [self._joined(self._parts)] if self._parts else []
        return self._parts[0] if self._parts else self._joined([Intervals(np.empty(0, np.int64), {})])

    def put(self, sessions: Intervals) -> None:
        """Hold these sessions instead of what is there: what `whole` returned, with more states."""
        self._parts = [sessions] if len(sessions) else []

    @property
    def has_states(self) -> bool:
        """Whether it holds more of some sessions than their shape."""
        return any(len(part.states) > len(self.shape) for part in self._parts)

    def forget_states(self) -> None:
        """Hold nothing but the shape of sessions any more."""
        self._parts = [Intervals(part.ids, {p: part.states[p] for p in self.shape}) for part in self._parts]

    def rows(self) -> tuple[Times, pa.Table, dict[Primitive, State]]:
        """Return start, key and states of all open sessions, the latter two in the form that `add` takes."""
        whole = self.whole()
        return whole.first, self.key_table(whole.ids), dict(whole.states)
