"""max_by and min_by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from transom.model.expression import Expression
from transom.windows.aggregates.base import Primitive, ResultContext, State, Types, Where, at, state_key
from transom.windows.aggregates.filtered import Filterable
from transom.windows.aggregates.values import Mask, from_values, less, no_values, to_values


@dataclass(frozen=True)
class Best:
    """The largest or smallest (y, x) of the rows in which y is not null; a null x comes first.

    State: `by` and `valid`, y and whether there is a row; `value` and `known`, x and whether it is not null.
    """

    x: Expression
    y: Expression
    largest: bool

    @property
    def inputs(self) -> tuple[Expression, ...]:
        """The value, and what it is chosen by."""
        return (self.x, self.y)

    @property
    def small(self) -> bool:
        """A few values."""
        return True

    @property
    def key(self) -> str:
        """Name in checkpoints."""
        return state_key("best.1", "max" if self.largest else "min", self.x.text, self.y.text)

    def sql(self, inputs: Sequence[str], time: str) -> dict[str, str]:
        """Return the parts of one maximum or minimum of a struct, which Spark computes once."""
        x, y = inputs
        row = f"CASE WHEN {y} IS NOT NULL THEN named_struct('y', {y}, 'x', {x}) END"
        best = f"{'max' if self.largest else 'min'}({row})"
        return {"by": f"{best}.y", "value": f"{best}.x"}

    def decode(self, columns: Mapping[str, pa.Array]) -> State:
        """Return both values; a null `by` means no row."""
        by, valid = to_values(columns["by"])
        value, known = to_values(columns["value"])
        return {"by": by, "valid": valid, "value": value, "known": known}

    def encode(self, state: State, types: Types) -> dict[str, pa.Array]:
        """Return both values."""
        return {
            "by": from_values(state["by"], state["valid"], types["by"]),
            "value": from_values(state["value"], state["known"], types["value"]),
        }

    def empty(self, slots: int, types: Types) -> State:
        """Return slots without a row."""
        none = np.zeros(slots, dtype=np.bool_)
        by, value = no_values(slots, types["by"]), no_values(slots, types["value"])
        return {"by": by, "valid": none, "value": value, "known": none.copy()}

    def merge_into(self, into: State, slots: Where, other: State) -> None:
        """Keep the better row of each slot."""
        rows = np.flatnonzero(other["valid"])
        places, new = at(slots, rows), {name: column[rows] for name, column in other.items()}
        old = {name: column[places] for name, column in into.items()}
        better = ~old["valid"]
        both = np.flatnonzero(old["valid"])
        if len(both):
            held, given = ({name: column[both] for name, column in state.items()} for state in (old, new))
            better[both] = _before(held, given) if self.largest else _before(given, held)
        for name, column in new.items():
            into[name][places[better]] = column[better]


def _before(left: State, right: State) -> Mask:
    """Return where (y, x) of `left` is smaller."""
    before = less(left["by"], right["by"])
    tie = np.flatnonzero(~before & ~less(right["by"], left["by"]))
    if len(tie):
        knows, other_knows = left["known"][tie], right["known"][tie]
        smaller = ~knows & other_knows
        both = np.flatnonzero(knows & other_knows)
        if len(both):
            smaller[both] = less(left["value"][tie][both], right["value"][tie][both])
        before[tie] = smaller
    return before


@dataclass(frozen=True)
class BestOf(Filterable):
    """The aggregates `max_by` and `min_by`: the type of x; null where y is never known, or x is null there."""

    x: Expression
    y: Expression
    largest: bool

    @property
    def inputs(self) -> tuple[Expression, ...]:
        """The value, and what it is chosen by."""
        return (self.x, self.y)

    @property
    def primitives(self) -> tuple[Primitive, ...]:
        """One row."""
        return (Best(self.x, self.y, self.largest),)

    @property
    def zero(self) -> Any:
        """Nothing has no largest row."""
        return None

    def result(self, states: Sequence[State], context: ResultContext) -> pa.Array:
        """Return the values."""
        state = states[0]
        return from_values(state["value"], state["known"] & state["valid"], context.types[0]["value"])

    def describe(self) -> str:
        """Return for example `max_by(x, y)`."""
        return f"{'max' if self.largest else 'min'}_by({self.x}, {self.y})"
