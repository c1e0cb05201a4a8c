"""Rows of keys as intervals between a first and a last event time: what sessions are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from transom.model.time import MIN_TIME, Micros
from transom.model.window import SessionSpec
from transom.windows.aggregates.base import Primitive, Slots, State, Types
from transom.windows.aggregates.extremes import Extreme
from transom.windows.aggregates.reduce import Reduction, take
from transom.windows.aggregates.times import TimeRange
from transom.windows.aggregates.values import Mask
from transom.windows.cutting import after_ends, apart, starts_of
from transom.windows.keys import KeyIndex
from transom.windows.panes import Times
from transom.windows.partials import bytes_of

TIMES = TimeRange()
"""The primitive that every partial has from which sessions are made."""


def ends_of(spec: SessionSpec) -> Extreme | None:
    """Return the primitive that tells whether some rows end a session of a kind; None where no row does."""
    return None if spec.ends_when is None else Extreme(spec.ends_when, "bool_or")


def shape_of(spec: SessionSpec) -> tuple[Primitive, ...]:
    """Return the primitives from which the sessions of a kind are found: TIMES, and what tells that rows end one."""
    ends = ends_of(spec)
    return (TIMES,) if ends is None else (TIMES, ends)


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

    def merged(
        self, numbers: Slots, states: Mapping[Primitive, State], primitives: Mapping[Primitive, Types]
    ) -> Intervals:
        """Return the intervals with further states merged into them.

        Args:
            numbers: The interval of each row, repetitions allowed; shape (rows,).
            states: Columns of shape (rows,) for some primitives.
            primitives: All primitives of the result, with the types of their columns.
        """
        merged: dict[Primitive, State] = {}
        slots, into = np.unique(numbers, return_inverse=True)
        reduction = Reduction.of(into, len(slots))
        for primitive, types in primitives.items():
            mine, rows = self.states.get(primitive), states.get(primitive)
            if mine is not None:
                merged[primitive] = {name: column.copy() for name, column in mine.items()}
            elif rows is not None:
                merged[primitive] = primitive.empty(len(self), types)
            if rows is not None and len(numbers):
                primitive.merge_into(merged[primitive], slots, reduction(primitive, rows, types))
        return Intervals(self.ids, merged)

    @property
    def nbytes(self) -> int:
        """Bytes of its states and ids; of states that are Python objects it is an estimate."""
        return self.ids.nbytes + sum(bytes_of(column) for state in self.states.values() for column in state.values())

    def __len__(self) -> int:
        return len(self.ids)


class HeldIntervals:
    """Intervals by key, in parts.

    A partial of rows of one key that are in one grain is an interval [first row, last row]; two intervals of a key
    belong to one session when they overlap, or when the pause between them is at most the gap, if neither was late when
    it came and no session with either had ended by then. That holds within what is added at once. Where sessions can be
    cut, it holds within one grain only, until it is known where they begin (`transom.windows.cutting`). Rows that end a
    session are at the last moment of their interval.

    Args:
        spec: The kind of sessions.
        keys: Names and types of the key columns.
        primitives: What is kept for each key, with the types of the columns, besides TIMES.
    """

    def __init__(self, spec: SessionSpec, keys: pa.Schema, primitives: Mapping[Primitive, Types]) -> None:
        self.spec = spec
        self.shape = shape_of(spec)
        """The primitives that every interval has."""
        self._ends_of = ends_of(spec)
        self.keys = KeyIndex(keys)
        self.primitives: dict[Primitive, Types] = {}
        self.arrange(primitives)
        self._parts: list[Intervals] = []

    def arrange(self, primitives: Mapping[Primitive, Types]) -> None:
        """Change what is kept; a primitive that is new is neutral in the intervals that are there."""
        self.primitives = {**primitives, TIMES: {"first": pa.int64(), "last": pa.int64()}}

    def add(self, keys: pa.Table, states: Mapping[Primitive, State], closed: Micros) -> None:
        """Take in intervals, except late ones: those that would be sessions that ended by now.

        Nothing is taken of those that lack the shape of sessions: they came before anybody asked for these.

        Args:
            keys: Key columns, at least those of the store; n rows, repetitions allowed.
            states: Columns of shape (rows,) for the primitives of `shape_of` and some others.
            closed: The watermark in force.
        """
        if not keys.num_rows or any(primitive not in states for primitive in self.shape):
            return
        chosen = {p: states[p] for p in self.primitives if p in states}
        rows = Intervals(self.keys.intern(keys.select(self.keys.schema.names)), chosen)
        in_time = rows.last >= self.spec.late_before(closed)
        self._append(self._joined([rows if in_time.all() else rows.where(in_time)]))

    def _append(self, part: Intervals) -> None:
        """Add a part."""
        if len(part):
            self._parts.append(part)

    def _joined(self, parts: Sequence[Intervals], watermark: Micros = MIN_TIME) -> Intervals:
        """Return intervals, ordered by key and time, with those joined that belong to one session; O(n log n).

        O(n) comparisons when each part is ordered and the parts follow one another in time. What no part has is
        missing.

        Args:
            parts: The intervals.
            watermark: All rows before it are there. Where sessions can be cut, those that begin later stay in grains.
        """
        ids = np.concatenate([part.ids for part in parts])
        states = self._concatenated(parts)
        order = np.argsort(ids, kind="stable")
        first, last = (states[TIMES][name] for name in ("first", "last"))
        fresh = starts_of(ids[order])
        if not _ascends(first[order], fresh):
            order = np.lexsort((first, ids))
        ids, first, last = ids[order], first[order], last[order]
        reached = last if _ascends(last, fresh) else _running_maximum(last, np.cumsum(fresh) - 1)
        fresh[1:] |= first[1:] > reached[:-1] + self.spec.gap
        if self._ends_of is not None:
            fresh = after_ends(fresh, first, reached, ended_in(states[self._ends_of])[order])
        if self.spec.cut:
            fresh = apart(self.spec, fresh, first, reached, watermark)
        heads, rest = order[fresh], order[~fresh]
        slots, into = np.unique((np.cumsum(fresh) - 1)[~fresh], return_inverse=True)
        joined = {p: take(state, heads) for p, state in states.items()}
        if len(rest):
            reduction = Reduction.of(into, len(slots))
            for p, state in states.items():
                p.merge_into(joined[p], slots, reduction(p, take(state, rest), self.primitives[p]))
        return Intervals(ids[fresh], joined)

    def _concatenated(self, parts: Sequence[Intervals]) -> dict[Primitive, State]:
        """Return the states of parts one after the other; what no part has is missing, but for TIMES."""
        found: dict[Primitive, State] = {}
        for primitive, types in self.primitives.items():
            if primitive in self.shape or any(primitive in part.states for part in parts):
                columns = [part.states.get(primitive) or primitive.empty(len(part), types) for part in parts]
                found[primitive] = {name: np.concatenate([column[name] for column in columns]) for name in columns[0]}
        return found

    def __len__(self) -> int:
        """Return the number of intervals that are held."""
        return sum(map(len, self._parts))

    @property
    def nbytes(self) -> int:
        """Bytes that intervals and keys take; those of sketches are estimated."""
        return self.keys.nbytes + sum(part.nbytes for part in self._parts)

    def compact(self) -> None:
        """Forget keys without an interval, when they are the majority."""
        live = np.zeros(len(self.keys), np.bool_)
        for part in self._parts:
            live[part.ids] = True
        kept = np.flatnonzero(live)
        if not len(self.keys.schema) or 2 * len(kept) >= len(self.keys):
            return
        index = KeyIndex(self.keys.schema)
        index.intern(self.key_table(kept))
        numbers = np.empty(len(self.keys), np.int64)
        numbers[kept] = np.arange(len(kept))
        self.keys = index
        self._parts = [Intervals(numbers[part.ids], part.states) for part in self._parts]

    def key_table(self, ids: Slots) -> pa.Table:
        """Return the key columns of some ids."""
        columns = self.keys.take(ids) if len(self.keys.schema) else []
        return pa.Table.from_arrays(columns, schema=self.keys.schema)


def ended_in(state: State) -> Mask:
    """Return which rows of a state of `ends_of` end a session; a condition that is null does not."""
    ended: Mask = state["valid"] & state["value"]
    return ended


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
