"""States of one value, which a function of Spark makes of all values that are not null."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from transom.windows.aggregates.base import ResultContext, State, Types, Where, at, state_key
from transom.windows.aggregates.oneinput import OneInputAggregate, SmallPrimitive
from transom.windows.aggregates.values import Values, from_values, no_values, to_values


@dataclass(frozen=True)
class OneValue(SmallPrimitive, ABC):
    """The value that a function makes of the values that are not null, and whether there are any.

    State: `value`, of the input's type (decimals as unscaled integers, text as Python objects); `valid`, bool.
    """

    kind: ClassVar[str]
    """The state's kind and version, for its name in checkpoints."""

    function: str
    """Spark's name of it."""

    @abstractmethod
    def joined(self, left: Values, right: Values) -> Values:
        """Return what the function makes of two values, pair by pair."""

    @property
    def key(self) -> str:
        """Name in checkpoints."""
        return state_key(self.kind, self.function, self.x.text)

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
        """Join the values of each slot."""
        rows = np.flatnonzero(other["valid"])
        places, values = at(slots, rows), other["value"][rows]
        both = np.flatnonzero(into["valid"][places])
        if len(both):
            values[both] = self.joined(into["value"][places[both]], values[both])
        into["value"][places] = values
        into["valid"][places] = True


@dataclass(frozen=True)
class OneValueOf(OneInputAggregate):
    """An aggregate that is the value of a `OneValue`: the input's type; null without values."""

    function: str

    def result(self, states: Sequence[State], context: ResultContext) -> pa.Array:
        """Return the values."""
        return from_values(states[0]["value"], states[0]["valid"], context.types[0]["value"])

    def describe(self) -> str:
        """Return for example `max(x)`."""
        return f"{self.function}({self.x})"
