"""Partial aggregates on the driver: immutable, one row per key, merged by array arithmetic."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from sys import getsizeof
from typing import Any

import numpy as np

from transom.windows.aggregates.base import ALL, Primitive, Slots, State, Types, Where
from transom.windows.aggregates.reduce import Reduction
from transom.windows.aggregates.values import Mask

_SPARSE = 16
"""With more known ids than this for each row to merge, ids are sorted instead of marked in a bitmap."""

_SMALL = 8
"""Ids are looked up in a longer part when they are this many times fewer: late rows, and panes of large windows."""
_ROOM = 1 << 62
"""Numbers from 0 on that one integer tells apart."""


_SAMPLED = 16
"""About so many objects of a column are measured."""


@dataclass(frozen=True, eq=False)
class Partial:
    """States of some keys. Never changed after it is made; partials may share arrays."""

    ids: Slots
    """Key ids, ascending, each once; shape (rows,)."""
    states: Mapping[Primitive, State]
    """Columns of shape (rows,) each. A primitive that is missing is neutral."""

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of its states and ids; of states that are Python objects it is an estimate."""
        return self.ids.nbytes + sum(bytes_of(column) for state in self.states.values() for column in state.values())


def bytes_of(column: np.ndarray[Any, Any]) -> int:
    """Return the bytes of a column of states; of Python objects it is an estimate."""
    if column.dtype != object:
        return column.nbytes
    some = column[:: max(1, len(column) // _SAMPLED)]
    return column.nbytes + len(column) * sum(map(getsizeof, some)) // max(1, len(some))


def no_rows(primitives: Mapping[Primitive, Types]) -> Partial:
    """Return a partial without keys."""
    return Partial(np.empty(0, np.int64), {p: p.empty(0, types) for p, types in primitives.items()})


def merge(parts: Sequence[Partial], primitives: Mapping[Primitive, Types], keys: int) -> Partial:
    """Return the merge of some partials.

    O(rows of all parts) if they hold the same keys, as panes of busy streams do; else O(rows + keys / 8), or
    O(rows log rows) if the rows are few for the number of keys.

    Args:
        parts: At least one.
        primitives: The primitives to merge, with the types of their columns.
        keys: Number of ids in use: every id is below it.
    """
    if len(parts) == 1:
        return parts[0]
    parts = sorted(parts, key=len, reverse=True)
    ids, slots = _union([part.ids for part in parts], keys)
    states: dict[Primitive, State] = {}
    for primitive, types in primitives.items():
        into: State | None = None
        for part, where in zip(parts, slots, strict=True):
            state = part.states.get(primitive)
            if state is None:
                continue
            if into is None:
                into = _placed(primitive, state, where, len(ids), types)
            else:
                primitive.merge_into(into, where, state)
        states[primitive] = primitive.empty(len(ids), types) if into is None else into
    return Partial(ids, states)


def _union(parts: Sequence[Slots], keys: int) -> tuple[Slots, list[Where]]:
    """Return all ids, ascending, and where each part's ids are among them; the longest part is the first."""
    first = parts[0]
    within = [_within(ids, first) for ids in parts]
    if all(where is not None for where in within):
        return first, [where for where in within if where is not None]
    if sum(map(len, parts)) * _SPARSE < keys:
        ids: Slots = np.unique(np.concatenate(parts))
        return ids, [np.searchsorted(ids, part) for part in parts]
    seen = np.zeros(keys, np.bool_)
    for part in parts:
        seen[part] = True
    ids = np.flatnonzero(seen)
    slot_of = np.empty(keys, np.int64)
    slot_of[ids] = np.arange(len(ids))
    return ids, [slot_of[part] for part in parts]


def _within(ids: Slots, longest: Slots) -> Where | None:
    """Return where ids are among those of the longest part; None if some are not, or it is dear to tell."""
    if same_ids(ids, longest):
        return ALL
    if len(ids) * _SMALL > len(longest):
        return None
    slots = np.minimum(np.searchsorted(longest, ids), len(longest) - 1)
    return slots if np.array_equal(longest[slots], ids) else None


def same_ids(left: Slots, right: Slots) -> bool:
    """Tell whether two partials hold the same keys; O(1) if they share the array or differ in length."""
    return left is right or (len(left) == len(right) and bool(np.array_equal(left, right)))


def _placed(primitive: Primitive, state: State, where: Where, slots: int, types: Types) -> State:
    """Return a new state with the rows of another one in their slots, neutral elsewhere."""
    if isinstance(where, slice):
        return {name: column.copy() for name, column in state.items()}
    into = primitive.empty(slots, types)
    for name, column in state.items():
        into[name][where] = column
    return into


def split_rows(
    groups: Sequence[Slots], ids: Slots, states: Mapping[Primitive, State], primitives: Mapping[Primitive, Types]
) -> Iterator[tuple[tuple[int, ...], Partial]]:
    """Yield one partial for each group of rows, groups ascending; O(rows log rows).

    Args:
        groups: What identifies a row's group: one or more columns of shape (rows,).
        ids: Key id of each row; rows of one group and key are merged.
        states: Columns of shape (rows,) for some of the primitives.
        primitives: Types of the states' columns.
    """
    order = ordered([*groups, ids])
    ids, groups = ids[order], [column[order] for column in groups]
    fresh = np.ones(len(ids), np.bool_)
    fresh[1:] = _differs(groups)
    first = fresh.copy()
    first[1:] |= ids[1:] != ids[:-1]
    if not (order[1:] > order[:-1]).all():
        states = {p: rows_of(state, order) for p, state in states.items()}
    if not first.all():
        reduction = Reduction.of(np.cumsum(first) - 1, int(first.sum()))
        states = {p: reduction(p, state, primitives[p]) for p, state in states.items()}
        ids, fresh, groups = ids[first], fresh[first], [column[first] for column in groups]
    for begin, end in itertools.pairwise([*np.flatnonzero(fresh).tolist(), len(ids)]):
        rows = slice(begin, end)
        columns = {p: {n: c[rows] for n, c in state.items()} for p, state in states.items()}
        yield tuple(int(column[begin]) for column in groups), Partial(ids[rows], columns)


def ordered(columns: Sequence[Slots]) -> Slots:
    """Return the places of the rows in order of the columns, equal ones in theirs; as `np.lexsort`, but faster.

    Where they have room, columns and place are one number: these are sorted, which is what processors do best.
    """
    rows, most = len(columns[0]), 1
    numbers: Slots = np.zeros(rows, np.int64)
    for column in columns if rows else ():
        least, span = int(column.min()), int(column.max()) - int(column.min()) + 1
        most *= span
        if most * rows >= _ROOM:
            break
        numbers = numbers * np.int64(span) + (column - least)
    if not rows or most * rows >= _ROOM:
        return np.lexsort(list(reversed(columns)))
    sorted_numbers = np.sort(numbers * np.int64(rows) + np.arange(rows))
    return np.asarray(sorted_numbers % rows)


def _differs(columns: Sequence[Slots]) -> Mask:
    """Return where a row differs from the one before it, from the second row on."""
    differs: Mask = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return differs


def renumbered(part: Partial, numbers: Slots) -> Partial:
    """Return a partial with other key ids; the new ones are in the same order, -1 drops the row."""
    ids = numbers[part.ids]
    kept = np.flatnonzero(ids >= 0)
    if len(kept) == len(ids):
        return Partial(ids, part.states)
    return Partial(ids[kept], {p: rows_of(state, kept) for p, state in part.states.items()})


def concatenated(
    parts: Sequence[Partial], primitives: Mapping[Primitive, Types]
) -> tuple[Slots, dict[Primitive, State]]:
    """Return the rows of some partials one after the other, ids and states; at least one part."""
    states: dict[Primitive, State] = {}
    if len(parts) == 1:
        mine = parts[0].states
        return parts[0].ids, {p: mine.get(p) or p.empty(len(parts[0]), types) for p, types in primitives.items()}
    for primitive, types in primitives.items():
        neutral = [part.states.get(primitive) or primitive.empty(len(part), types) for part in parts]
        states[primitive] = {name: np.concatenate([state[name] for state in neutral]) for name in neutral[0]}
    return np.concatenate([part.ids for part in parts]), states


def restricted(partial: Partial, ids: Slots, keys: int) -> Partial:
    """Return the rows of some keys; O(keys / 8 + rows).

    Args:
        partial: The partial.
        ids: Key ids.
        keys: Number of ids in use.
    """
    wanted = np.zeros(keys, np.bool_)
    wanted[ids] = True
    rows = np.flatnonzero(wanted[partial.ids])
    return Partial(partial.ids[rows], {p: rows_of(state, rows) for p, state in partial.states.items()})


def changed_ids(before: Partial, after: Partial) -> Slots:
    """Return the keys that one of two partials lacks, or that have other states there; in doubt they do.

    O(rows log rows). States are compared by their bits, those that are Python objects by `==`.
    """
    both, left, right = np.intersect1d(before.ids, after.ids, assume_unique=True, return_indices=True)
    same = np.ones(len(both), np.bool_)
    for primitive in {**before.states, **after.states}:
        old, new = before.states.get(primitive), after.states.get(primitive)
        if old is None or new is None:
            same[:] = False
            continue
        for name, column in old.items():
            same &= _equal(column[left], new[name][right])
    only = np.setxor1d(before.ids, after.ids, assume_unique=True)
    return np.union1d(only, both[~same]).astype(np.int64)


def _equal(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> Mask:
    if left.dtype != right.dtype:
        return np.zeros(len(left), np.bool_)
    if left.dtype == object:
        try:
            return np.asarray(left == right, np.bool_)
        except (TypeError, ValueError):  # objects that are not simply equal or not
            return np.zeros(len(left), np.bool_)
    size = left.dtype.itemsize
    bits = [np.ascontiguousarray(column).view(np.uint8).reshape(-1, size) for column in (left, right)]
    equal: Mask = (bits[0] == bits[1]).all(axis=1)
    return equal


def rows_of(state: State, rows: Slots) -> State:
    """Return some rows of a state."""
    return {name: column[rows] for name, column in state.items()}
