"""Partial aggregates on the driver: immutable, one row per key, merged by array arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from transom.windows.aggregates.base import Primitive, Slots, State, Types


@dataclass(frozen=True, eq=False)
class Partial:
    """States of some keys. Never changed after it is made."""

    ids: Slots
    """Key ids, each once; shape (rows,)."""
    states: Mapping[Primitive, State]
    """Columns of shape (rows,) each. A primitive that is missing is neutral."""

    def __len__(self) -> int:
        return len(self.ids)


def merge(parts: Sequence[Partial], primitives: Mapping[Primitive, Types], keys: int) -> Partial:
    """Return the merge of some partials; O(rows of all parts + keys / 8).

    Args:
        parts: At least one.
        primitives: The primitives to merge, with the types of their columns.
        keys: Number of ids in use: every id is below it.
    """
    if len(parts) == 1:
        return parts[0]
    seen = np.zeros(keys, np.bool_)
    for part in parts:
        seen[part.ids] = True
    ids = np.flatnonzero(seen)
    slot_of = np.empty(keys, np.int64)
    slot_of[ids] = np.arange(len(ids))
    slots = [slot_of[part.ids] for part in parts]
    states: dict[Primitive, State] = {}
    for primitive, types in primitives.items():
        into = primitive.empty(len(ids), types)
        for part, where in zip(parts, slots, strict=True):
            state = part.states.get(primitive)
            if state is not None:
                primitive.merge_into(into, where, state)
        states[primitive] = into
    return Partial(ids, states)


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


def rows_of(state: State, rows: Slots) -> State:
    """Return some rows of a state."""
    return {name: column[rows] for name, column in state.items()}
