"""first and last by event time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transom.windows.aggregates.base import Primitive, ResultContext, State, Types, Where, at, state_key
from transom.windows.aggregates.oneinput import OneInputAggregate, SmallPrimitive
from transom.windows.aggregates.values import Mask, Values, from_values, less, no_values, to_values


@dataclass(frozen=True)
class Edge(SmallPrimitive):
    """The smallest or largest (event time, value); a null value counts and comes first, as in Spark.

    State: `time` int64 microseconds; `value` and `known` (not null); `valid`, whether there is a row at all.
    """

    last: bool
    ignore_nulls: bool = False
    """Whether only rows count whose value is not null."""

    @property
    def key(self) -> str:
        """Name in checkpoints."""
        return state_key(
            "edge.1", "last" if self.last else "first", self.x.text, *(["ignore nulls"] if self.ignore_nulls else [])
        )

    def sql(self, inputs: Sequence[str], time: str) -> dict[str, str]:
        """Return the parts of one minimum or maximum of a struct, which Spark computes once."""
        row = f"named_struct('t', {time}, 'v', {inputs[0]})"
        row = f"CASE WHEN {inputs[0]} IS NOT NULL THEN {row} END" if self.ignore_nulls else row
        edge = f"{'max' if self.last else 'min'}({row})"
        return {"time": f"{edge}.t", "value": f"{edge}.v"}

    def decode(self, columns: Mapping[str, pa.Array]) -> State:
        """Return times and values; a null time means no row."""
        moment, valid = to_values(columns["time"])
        value, known = to_values(columns["value"])
        return {"time": moment, "value": value, "known": known, "valid": valid}

    def encode(self, state: State, types: Types) -> dict[str, pa.Array]:
        """Return times and values."""
        return {
            "time": from_values(state["time"], state["valid"], types["time"]),
            "value": from_values(state["value"], state["known"], types["value"]),
        }

    def empty(self, slots: int, types: Types) -> State:
        """Return slots without a row."""
        value = no_values(slots, types["value"])
        none = np.zeros(slots, dtype=np.bool_)
        return {"time": np.zeros(slots, np.int64), "value": value, "known": none, "valid": none.copy()}

    def merge_into(self, into: State, slots: Where, other: State) -> None:
        """Keep the earlier (or later) row of each slot."""
        rows = np.flatnonzero(other["valid"])
        places, new = at(slots, rows), {name: column[rows] for name, column in other.items()}
        old = {name: column[places] for name, column in into.items()}
        better = ~old["valid"]
        better |= _before(old, new) if self.last else _before(new, old)
        for name, column in new.items():
            into[name][places[better]] = column[better]


def _before(left: State, right: State) -> Mask:
    """Return where (time, value) of `left` is smaller."""
    before: Mask = left["time"] < right["time"]
    tie = np.flatnonzero(left["time"] == right["time"])
    if len(tie):
        knows, other_knows = left["known"][tie], right["known"][tie]
        smaller = ~knows & other_knows
        both = knows & other_knows
        smaller[both] = _less(left["value"][tie][both], right["value"][tie][both])
        before[tie] = smaller
    return before


def _less(left: Values, right: Values) -> Mask:
    return less(left, right) if len(left) else np.zeros(0, dtype=np.bool_)


@dataclass(frozen=True)
class EdgeOf(OneInputAggregate):
    """The aggregates `first` and `last`: the input's type; null where the value at that time is null."""

    last: bool
    ignore_nulls: bool = False

    @property
    def primitives(self) -> tuple[Primitive, ...]:
        """One edge."""
        return (Edge(self.x, self.last, self.ignore_nulls),)

    def result(self, states: Sequence[State], context: ResultContext) -> pa.Array:
        """Return the values."""
        state = states[0]
        return from_values(state["value"], state["known"] & state["valid"], context.types[0]["value"])

    def describe(self) -> str:
        """Return `first(x)`, or for example `last(x, ignore_nulls=True)`."""
        return f"{'last' if self.last else 'first'}({self.x}{', ignore_nulls=True' if self.ignore_nulls else ''})"
