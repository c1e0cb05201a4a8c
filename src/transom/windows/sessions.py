"""The open sessions of one key set and gap on the driver: intervals of rows come in, sessions that ended go out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from transom.model.time import MAX_TIME, MIN_TIME, Micros
from transom.model.window import SessionSpec
from transom.windows.aggregates.base import Primitive, Slots, State, Types
from transom.windows.aggregates.reduce import reduce_slots, take
from transom.windows.aggregates.times import TimeRange
from transom.windows.aggregates.values import Mask
from transom.windows.keys import KeyIndex
from transom.windows.panes import Times

TIMES = TimeRange()
"""The primitive that every partial has from which sessions are made."""
FAN = 4
"""So many parts of like size are joined into one."""


@dataclass(frozen=True, eq=False)
class Intervals:
    """Rows of keys between a first and a last event time, with the states of the rows. Never changed once made."""

    ids: Slots
    """Key ids, repetitions allowed; shape (intervals,)."""
    states: Mapping[Primitive, State]
    """Columns of shape (intervals,), TIMES among them; a primitive that is missing is neutral."""

    @property
    def first(self) -> Times:
        """Time of the first row of each interval."""
        return self.states[TIMES]["first"]

    @property
    def last(self) -> Times:
        """Time of the last row of each interval."""
        return self.states[TIMES]["last"]

    def where(self, chosen: Any) -> Intervals:
        """Return some of the intervals, given as booleans."""
        rows = np.flatnonzero(chosen)
        return Intervals(self.ids[rows], {p: take(state, rows) for p, state in self.states.items()})

    def __len__(self) -> int:
        return len(self.ids)


class SessionStore:
    """Open sessions by key.

    A partial of rows of one key that are at most one gap apart is an interval [first row, last row]; two intervals of
    a key belong to one session when they overlap, or when the pause between them is at most the gap. So sessions are
    merged from partials in any order, as windows are from panes. Intervals wait in parts, of which those of like size
    are joined, and otherwise the intervals of a key are only brought together when one of them ended long enough ago: a
    commit costs O(new rows) and, over time, O(log(open sessions)) merges of each row.

    Args:
        spec: The windows.
        keys: Names and types of the key columns.
        primitives: What is kept for each key besides TIMES, with the types of the columns.
    """

    def __init__(self, spec: SessionSpec, keys: pa.Schema, primitives: Mapping[Primitive, Types]) -> None:
        self.spec = spec
        self.keys = KeyIndex(keys)
        self.primitives: dict[Primitive, Types] = {}
        self.arrange(primitives)
        self._parts: list[Intervals] = []

    def arrange(self, primitives: Mapping[Primitive, Types]) -> None:
        """Change what is kept; a primitive that is new is neutral in the sessions that are open."""
        self.primitives = {**primitives, TIMES: {"first": pa.int64(), "last": pa.int64()}}

    def add(self, keys: pa.Table, states: Mapping[Primitive, State], closed: Micros) -> None:
        """Take in intervals, except late ones: those that would be sessions that ended by now.

        Args:
            keys: Key columns, at least those of the store; n rows, repetitions allowed.
            states: Columns of shape (rows,) for TIMES and some other primitives.
            closed: The watermark in force.
        """
        if not keys.num_rows:
            return
        chosen = {p: states[p] for p in self.primitives if p in states}
        rows = Intervals(self.keys.intern(keys.select(self.keys.schema.names)), chosen)
        in_time = rows.last > self._limit(closed)
        self._append(self._joined([rows if in_time.all() else rows.where(in_time)]))

    def _limit(self, watermark: Micros) -> Micros:
        """Return the time of the last row of the latest sessions that ended by the watermark."""
        return watermark if watermark in (MIN_TIME, MAX_TIME) else watermark - self.spec.gap

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

    def _joined(self, parts: Sequence[Intervals]) -> Intervals:
        """Return intervals, ordered by key and time, with those joined that belong to one session; O(n log n).

        O(n) comparisons when each part is ordered and the parts follow one another in time.
        """
        ids = np.concatenate([part.ids for part in parts])
        states = {
            p: _concatenated([part.states.get(p) or p.empty(len(part), types) for part in parts])
            for p, types in self.primitives.items()
        }
        order = np.argsort(ids, kind="stable")
        first, last = (states[TIMES][name] for name in ("first", "last"))
        fresh = _starts(ids[order])
        if not _ascends(first[order], fresh):
            order = np.lexsort((first, ids))
        ids, first, last = ids[order], first[order], last[order]
        reached = last if _ascends(last, fresh) else _running_maximum(last, np.cumsum(fresh) - 1)
        fresh[1:] |= first[1:] > reached[:-1] + self.spec.gap
        heads, rest = order[fresh], order[~fresh]
        slots, into = np.unique((np.cumsum(fresh) - 1)[~fresh], return_inverse=True)
        joined = {p: take(state, heads) for p, state in states.items()}
        if len(rest):
            for p, state in states.items():
                p.merge_into(joined[p], slots, reduce_slots(p, take(state, rest), into, len(slots), self.primitives[p]))
        return Intervals(ids[fresh], joined)

    def _settle(self, watermark: Micros) -> Intervals:
        """Take out and return the sessions that ended by the watermark.

        Only keys with an interval that ended by then are looked at; most of these intervals were joined by later
        rows, and are replaced by what they became, so that each key is looked at about once per gap.
        """
        limit = self._limit(watermark)
        touched = np.zeros(len(self.keys), np.bool_)
        for part in self._parts:
            touched[part.ids[part.last <= limit]] = True
        if not touched.any():
            return self._joined([Intervals(np.empty(0, np.int64), {})])
        chosen = [touched[part.ids] for part in self._parts]
        joined = self._joined([part.where(mask) for part, mask in zip(self._parts, chosen, strict=True) if mask.any()])
        rest = [part if not mask.any() else part.where(~mask) for part, mask in zip(self._parts, chosen, strict=True)]
        self._parts = []
        ended = joined.last <= limit
        for part in sorted([*rest, joined.where(~ended)], key=len, reverse=True):
            self._append(part)
        return joined.where(ended)

    def due(self, watermark: Micros) -> Times:
        """Return the starts of the sessions that ended by the watermark; they stay."""
        ended = self._settle(watermark)
        self._append(ended)
        return ended.first

    def take(self, watermark: Micros) -> Intervals:
        """Take out the sessions that ended by the watermark, ordered by end, start and key; they are final."""
        ended = self._settle(watermark)
        order = np.lexsort((ended.ids, ended.first, ended.last))
        return Intervals(ended.ids[order], {p: take(state, order) for p, state in ended.states.items()})

    def last_end(self) -> Micros:
        """Return the end of the last session; MIN_TIME without one."""
        return max((int(part.last.max()) + self.spec.gap for part in self._parts), default=MIN_TIME)

    def first_end(self) -> Micros:
        """Return the end of the first session to end unless rows come; MAX_TIME without one. O(intervals)."""
        return min((int(part.last.min()) + self.spec.gap for part in self._parts if len(part)), default=MAX_TIME)

    def __len__(self) -> int:
        """Return the number of intervals that are held."""
        return sum(map(len, self._parts))

    def compact(self) -> None:
        """Forget keys without an open session, when they are the majority."""
        live = np.zeros(len(self.keys), np.bool_)
        for part in self._parts:
            live[part.ids] = True
        kept = np.flatnonzero(live)
        if not len(self.keys.schema) or 2 * len(kept) >= len(self.keys):
            return
        index = KeyIndex(self.keys.schema)
        index.intern(self._key_table(kept))
        numbers = np.empty(len(self.keys), np.int64)
        numbers[kept] = np.arange(len(kept))
        self.keys = index
        self._parts = [Intervals(numbers[part.ids], part.states) for part in self._parts]

    def rows(self) -> tuple[Times, pa.Table, dict[Primitive, State]]:
        """Return start, key and states of all open sessions, the latter two in the form that `add` takes."""
        self._parts = [self._joined(self._parts)] if self._parts else []
        if not self._parts:
            return np.empty(0, np.int64), self.keys.schema.empty_table(), {}
        (part,) = self._parts
        return part.first, self._key_table(part.ids), dict(part.states)

    def _key_table(self, ids: Slots) -> pa.Table:
        columns = self.keys.take(ids) if len(self.keys.schema) else []
        return pa.Table.from_arrays(columns, schema=self.keys.schema)


def _concatenated(states: Sequence[State]) -> State:
    return {name: np.concatenate([state[name] for state in states]) for name in states[0]}


def _starts(groups: Slots) -> Mask:
    """Return where a group begins; equal numbers are neighbours."""
    starts = np.ones(len(groups), np.bool_)
    starts[1:] = groups[1:] != groups[:-1]
    return starts


def _ascends(values: Times, starts: Mask) -> bool:
    """Tell whether values ascend within each group, given where groups begin."""
    return bool((starts[1:] | (values[1:] >= values[:-1])).all())


def _running_maximum(values: Times, groups: Slots) -> Times:
    """Return the largest value so far within each group; groups are numbered 0, 1, ... in order.

    By ranks, which are small enough that group * n + rank is one number.
    """
    order = np.argsort(values, kind="stable")
    ranks = np.empty(len(values), np.int64)
    ranks[order] = np.arange(len(values))
    shift = groups * len(values)
    maxima: Times = values[order[np.maximum.accumulate(ranks + shift) - shift]]
    return maxima
