"""min, max, and the logical any and all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from transom.windows.aggregates.base import Primitive, ResultContext, State, Types, Where, at, state_key
from transom.windows.aggregates.oneinput import OneInputAggregate, SmallPrimitive
from transom.windows.aggregates.values import from_values, less, no_values, to_values

Function = Literal["min", "max", "bool_and", "bool_or"]


@dataclass(frozen=True)
class Extreme(SmallPrimitive):
    """The smallest or largest value that is not null, in Spark's order.

    State: `value`, of the input's type (decimals as unscaled integers, text as Python objects); `valid`,
    bool.
    """

    function: Function

    @property
    def key(self) -> str:
        """Name in checkpoints."""
        return state_key("extreme.1", self.function, self.x.text)

    def sql(self, inputs: Sequence[str], time: str) -> dict[str, str]:
        """Return the Spark function of the same name."""
        return {"value": f"{self.function}({inputs[0]})"}

    def decode(self, columns: Mapping[str, pa.Array]) -> State:
        """Return the values and where there are any."""
        value, valid = to_values(columns["value"])
        return {"value": value, "valid": valid}

    def encode(self, state: State, types: Types) -> dict[str, pa.Array]:
        """Return the values; null where there are none."""
        return {"value": from_values(state["value"], state["valid"], types["value"])}

    def empty(self, slots: int, types: Types) -> State:
        """Return slots without a value."""
        return {"value": no_values(slots, types["value"]), "valid": np.zeros(slots, dtype=np.bool_)}

    def merge_into(self, into: State, slots: Where, other: State) -> None:
        """Keep the better value of each slot."""
        rows = np.flatnonzero(other["valid"])
        places, new = at(slots, rows), other["value"][rows]
        held = into["valid"][places]
        better = ~held
        both = np.flatnonzero(held)
        old, challenger = into["value"][places[both]], new[both]
        largest = self.function in ("max", "bool_or")
        better[both] = less(old, challenger) if largest else less(challenger, old)
        into["value"][places[better]] = new[better]
        into["valid"][places] = True


@dataclass(frozen=True)
class ExtremeOf(OneInputAggregate):
    """The aggregates `min`, `max`, `bool_and`, `bool_or`: the input's type; null without values."""

    function: Function

    @property
    def primitives(self) -> tuple[Primitive, ...]:
        """One extreme."""
        return (Extreme(self.x, self.function),)

    def result(self, states: Sequence[State], context: ResultContext) -> pa.Array:
        """Return the extremes."""
        return from_values(states[0]["value"], states[0]["valid"], context.types[0]["value"])

    def describe(self) -> str:
        """Return for example `max(x)`."""
        return f"{self.function}({self.x})"
