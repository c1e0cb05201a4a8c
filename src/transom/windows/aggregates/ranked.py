"""States of one row: a value, chosen by a rank."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pyarrow as pa

from transom.windows.aggregates.base import State, Types, Where, at
from transom.windows.aggregates.oneinput import Small
from transom.windows.aggregates.values import Mask, from_values, less, no_values, to_values


class RankedRow(Small, ABC):
    """The smallest or largest (rank, value) of the rows that have a rank; a null value comes first, as in Spark.

    State: the rank, under a name of its own, and `valid`, whether there is a row; `value`, and `known`, whether it is
    not null.
    """

    rank: ClassVar[str]
    """The state's column of the rank."""

    @property
    @abstractmethod
    def takes_last(self) -> bool:
        """Whether it is the largest one."""

    def parts(self, rank: str, value: str, where: str | None = None) -> dict[str, str]:
        """Return the SQL of both columns: parts of one minimum or maximum of a struct, which Spark computes once.

        Args:
            rank: SQL of the rank.
            value: SQL of the value.
            where: SQL of what must not be null in a row that counts; all rows do without one.
        """
        row = f"named_struct('r', {rank}, 'v', {value})"
        row = row if where is None else f"CASE WHEN {where} IS NOT NULL THEN {row} END"
        chosen = f"{'max' if self.takes_last else 'min'}({row})"
        return {self.rank: f"{chosen}.r", "value": f"{chosen}.v"}

    def decode(self, columns: Mapping[str, pa.Array]) -> State:
        """Return rank and value; a null rank means no row."""
        rank, valid = to_values(columns[self.rank])
        value, known = to_values(columns["value"])
        return {self.rank: rank, "valid": valid, "value": value, "known": known}

    def encode(self, state: State, types: Types) -> dict[str, pa.Array]:
        """Return rank and value."""
        return {
            self.rank: from_values(state[self.rank], state["valid"], types[self.rank]),
            "value": from_values(state["value"], state["known"], types["value"]),
        }

    def empty(self, slots: int, types: Types) -> State:
        """Return slots without a row."""
        none = np.zeros(slots, dtype=np.bool_)
        rank, value = no_values(slots, types[self.rank]), no_values(slots, types["value"])
        return {self.rank: rank, "valid": none, "value": value, "known": none.copy()}

    def merge_into(self, into: State, slots: Where, other: State) -> None:
        """Keep the better row of each slot."""
        rows = np.flatnonzero(other["valid"])
        places = at(slots, rows)
        better = ~into["valid"][places]
        both = np.flatnonzero(~better)
        if len(both):
            old = {name: column[places[both]] for name, column in into.items()}
            new = {name: column[rows[both]] for name, column in other.items()}
            better[both] = self._before(old, new) if self.takes_last else self._before(new, old)
        for name, column in other.items():
            into[name][places[better]] = column[rows[better]]

    def _before(self, left: State, right: State) -> Mask:
        """Return where (rank, value) of `left` is smaller."""
        before = less(left[self.rank], right[self.rank])
        tie = np.flatnonzero(~before & ~less(right[self.rank], left[self.rank]))
        if len(tie):
            knows, other_knows = left["known"][tie], right["known"][tie]
            smaller = ~knows & other_knows
            both = np.flatnonzero(knows & other_knows)
            smaller[both] = less(left["value"][tie][both], right["value"][tie][both])
            before[tie] = smaller
        return before


def chosen_values(state: State, types: Types) -> pa.Array:
    """Return the values of a `RankedRow`; null where there is no row, or its value is null."""
    return from_values(state["value"], state["known"] & state["valid"], types["value"])
