"""Merging the rows of one state with one another, where several belong to one slot."""

from __future__ import annotations

import numpy as np

from transom.windows.aggregates.base import Primitive, Slots, State, Types


def take(state: State, rows: Slots) -> State:
    """Return a copy of some rows of a state."""
    return {name: column[rows] for name, column in state.items()}


def reduce_slots(primitive: Primitive, state: State, slots: Slots, n_slots: int, types: Types) -> State:
    """Return a state of `n_slots` slots in which all rows with equal slots are merged.

    For a coarser set of keys made from a finer one. O(rows * log(rows)) for the sort; then as many vectorised
    merges as the binary logarithm of the largest group, of at most half as many rows each time.

    Args:
        primitive: Whose state it is.
        state: Rows; left as it is.
        slots: Slot of each row, in [0, n_slots); repetitions allowed.
        n_slots: Length of the result.
        types: Arrow types of the state's columns.
    """
    result = primitive.empty(n_slots, types)
    if len(slots) == 0:
        return result
    order = np.argsort(slots, kind="stable")
    ordered = slots[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    if len(starts) == len(ordered):
        primitive.merge_into(result, slots, state)
        return result
    sizes = np.diff(np.concatenate((starts, [len(ordered)])))
    rank = np.arange(len(ordered)) - np.repeat(starts, sizes)
    rows = primitive.empty(len(ordered), types)
    primitive.merge_into(rows, np.arange(len(ordered)), take(state, order))
    place = np.arange(len(ordered))
    while len(rank) > len(starts):
        odd = np.flatnonzero(rank % 2 == 1)
        primitive.merge_into(rows, place[odd - 1], take(rows, place[odd]))
        even = rank % 2 == 0
        rank, place = rank[even] // 2, place[even]
    primitive.merge_into(result, ordered[starts], take(rows, starts))
    return result
