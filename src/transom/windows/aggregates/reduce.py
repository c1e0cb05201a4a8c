"""Merging the rows of states with one another, where several belong to one slot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from transom.windows.aggregates.base import Primitive, Slots, State, Types, of_runs


def take(state: State, rows: Slots) -> State:
    """Return a copy of some rows of a state."""
    return {name: column[rows] for name, column in state.items()}


@dataclass(frozen=True, eq=False)
class Reduction:
    """Merges all rows with equal slots: for a coarser set of keys made from a finer one.

    Which rows are merged when is found once, O(rows * log(rows)) for the sort, and is the same for all states of these
    rows: as many vectorised merges as the binary logarithm of the largest group, of at most half as many rows each
    time.
    """

    slots: Slots
    """Slot of each row, in [0, n_slots); repetitions allowed."""
    n_slots: int
    """Length of the result."""
    order: Slots
    """The rows by their slots."""
    ordered: bool
    """Whether they are in that order."""
    starts: Slots
    """Where in this order the rows of each slot begin."""
    rounds: Sequence[tuple[Slots, Slots]]
    """In this order, which rows take which others; all in one round are apart."""

    @classmethod
    def of(cls, slots: Slots, n_slots: int) -> Reduction:
        """Return how rows with some slots are merged."""
        order = np.argsort(slots, kind="stable")
        ordered = slots[order]
        starts = np.flatnonzero(np.concatenate((np.ones(min(1, len(slots)), np.bool_), ordered[1:] != ordered[:-1])))
        rounds: list[tuple[Slots, Slots]] = []
        place = np.arange(len(ordered))
        rank = place - np.repeat(starts, np.diff(np.concatenate((starts, [len(ordered)]))))
        while len(rank) > len(starts):
            odd = np.flatnonzero(rank % 2 == 1)
            rounds.append((place[odd - 1], place[odd]))
            even = rank % 2 == 0
            rank, place = rank[even] // 2, place[even]
        return cls(slots, n_slots, order, bool((order[1:] > order[:-1]).all()), starts, rounds)

    def __call__(self, primitive: Primitive, state: State, types: Types) -> State:
        """Return a state of `n_slots` slots in which all rows with equal slots are merged.

        Args:
            primitive: Whose state it is.
            state: Rows; left as it is.
            types: Arrow types of the state's columns.
        """
        result = primitive.empty(self.n_slots, types)
        if not self.rounds:
            if len(self.slots):
                primitive.merge_into(result, self.slots, state)
            return result
        if len(self.starts) == self.n_slots:
            ordered = state if self.ordered else take(state, self.order)
            merged = of_runs(primitive, ordered, self.starts, 1 << len(self.rounds))
            if merged is not None:
                return merged
        rows = primitive.empty(len(self.order), types)
        primitive.merge_into(rows, np.arange(len(self.order)), take(state, self.order))
        for into, others in self.rounds:
            primitive.merge_into(rows, into, take(rows, others))
        primitive.merge_into(result, self.slots[self.order[self.starts]], take(rows, self.starts))
        return result
