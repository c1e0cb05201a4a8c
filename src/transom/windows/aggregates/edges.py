"""first and last by event time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from transom.windows.aggregates.base import Primitive, ResultContext, State, state_key
from transom.windows.aggregates.oneinput import OneInput, OneInputAggregate
from transom.windows.aggregates.ranked import RankedRow, chosen_values


@dataclass(frozen=True)
class Edge(OneInput, RankedRow):
    """The value of the first or last row by event time. State: that of a `RankedRow`; `time`, int64 microseconds."""

    rank = "time"

    last: bool
    ignore_nulls: bool = False
    """Whether only rows count whose value is not null."""

    @property
    def takes_last(self) -> bool:
        """Whether it is the latest row."""
        return self.last

    @property
    def key(self) -> str:
        """Name in checkpoints."""
        return state_key(
            "edge.1", "last" if self.last else "first", self.x.text, *(["ignore nulls"] if self.ignore_nulls else [])
        )

    def sql(self, inputs: Sequence[str], time: str) -> dict[str, str]:
        """Return the parts of one minimum or maximum."""
        return self.parts(time, inputs[0], inputs[0] if self.ignore_nulls else None)


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
        return chosen_values(states[0], context.types[0])

    def describe(self) -> str:
        """Return `first(x)`, or for example `last(x, ignore_nulls=True)`."""
        return f"{'last' if self.last else 'first'}({self.x}{', ignore_nulls=True' if self.ignore_nulls else ''})"
