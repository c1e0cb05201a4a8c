"""bit_and, bit_or and bit_xor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from transom.windows.aggregates.base import Primitive, ResultContext, State, Types, Where, at, state_key
from transom.windows.aggregates.oneinput import OneInputAggregate, SmallPrimitive
from transom.windows.aggregates.values import from_values, no_values, to_values

Function = Literal["bit_and", "bit_or", "bit_xor"]
_MERGES: dict[str, Any] = {"bit_and": np.bitwise_and, "bit_or": np.bitwise_or, "bit_xor": np.bitwise_xor}


@dataclass(frozen=True)
class Bits(SmallPrimitive):
    """The bits of the values that are not null, joined. State: `value`, integers of the input's type; `valid`."""

    function: Function

    @property
    def key(self) -> str:
        """Name in checkpoints."""
        return state_key("bits.1", self.function, self.x.text)

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
        """Join the bits of each slot."""
        rows = np.flatnonzero(other["valid"])
        places, new = at(slots, rows), other["value"][rows]
        joined = _MERGES[self.function](into["value"][places], new)
        into["value"][places] = np.where(into["valid"][places], joined, new)
        into["valid"][places] = True


@dataclass(frozen=True)
class BitsOf(OneInputAggregate):
    """The aggregates `bit_and`, `bit_or`, `bit_xor`: the input's type; null without values."""

    function: Function

    @property
    def primitives(self) -> tuple[Primitive, ...]:
        """The bits."""
        return (Bits(self.x, self.function),)

    def result(self, states: Sequence[State], context: ResultContext) -> pa.Array:
        """Return the values."""
        return from_values(states[0]["value"], states[0]["valid"], context.types[0]["value"])

    def describe(self) -> str:
        """Return for example `bit_xor(x)`."""
        return f"{self.function}({self.x})"
