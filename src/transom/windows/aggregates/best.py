"""max_by and min_by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from transom.windows.aggregates.base import Primitive, ResultContext, State, state_key
from transom.windows.aggregates.oneinput import TwoInputAggregate, TwoInputs
from transom.windows.aggregates.ranked import RankedRow, chosen_values


@dataclass(frozen=True)
class Best(TwoInputs, RankedRow):
    """The value x of the row with the smallest or largest y, of those in which y is not null.

    State: that of a `RankedRow`; `by`, of the type of y.
    """

    rank = "by"

    largest: bool

    @property
    def takes_last(self) -> bool:
        """Whether it is the largest y."""
        return self.largest

    @property
    def key(self) -> str:
        """Name in checkpoints."""
        return state_key("best.1", "max" if self.largest else "min", self.x.text, self.y.text)

    def sql(self, inputs: Sequence[str], time: str) -> dict[str, str]:
        """Return the parts of one minimum or maximum."""
        x, y = inputs
        return self.parts(y, x, where=y)


@dataclass(frozen=True)
class BestOf(TwoInputAggregate):
    """The aggregates `max_by` and `min_by`: the type of x; null where y is never known, or x is null there."""

    largest: bool

    @property
    def primitives(self) -> tuple[Primitive, ...]:
        """One row."""
        return (Best(self.x, self.y, self.largest),)

    def result(self, states: Sequence[State], context: ResultContext) -> pa.Array:
        """Return the values."""
        return chosen_values(states[0], context.types[0])

    def describe(self) -> str:
        """Return for example `max_by(x, y)`."""
        return f"{'max' if self.largest else 'min'}_by({self.x}, {self.y})"
