"""min, max, and the logical any and all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from transom.windows.aggregates.base import Primitive, Slots, State
from transom.windows.aggregates.onevalue import OneValue, OneValueOf
from transom.windows.aggregates.values import Values, less

Function = Literal["min", "max", "bool_and", "bool_or"]


@dataclass(frozen=True)
class Extreme(OneValue):
    """The smallest or largest value that is not null, in Spark's order; of equal ones the first that came."""

    kind = "extreme.1"

    function: Function

    def joined(self, left: Values, right: Values) -> Values:
        """Return the better ones."""
        largest = self.function in ("max", "bool_or")
        return np.where(less(left, right) if largest else less(right, left), right, left)

    def of_runs(self, state: State, starts: Slots, longest: int) -> State | None:
        """Return the best of each run of whole numbers; of others equal ones can differ."""
        if state["value"].dtype.kind not in "iub" or not state["valid"].all():
            return None
        best = np.maximum if self.function in ("max", "bool_or") else np.minimum
        return {"value": best.reduceat(state["value"], starts), "valid": np.ones(len(starts), np.bool_)}


@dataclass(frozen=True)
class ExtremeOf(OneValueOf):
    """The aggregates `min`, `max`, `bool_and`, `bool_or`: the input's type; null without values."""

    function: Function

    @property
    def primitives(self) -> tuple[Primitive, ...]:
        """One extreme."""
        return (Extreme(self.x, self.function),)
