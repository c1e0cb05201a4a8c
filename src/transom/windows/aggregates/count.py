"""count(*) and count(x)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from transom.model.expression import Expression
from transom.windows.aggregates.base import Primitive, ResultContext, Slots, State, Types, Where, state_key
from transom.windows.aggregates.filtered import Filterable
from transom.windows.aggregates.flaws import flaw_of_counts
from transom.windows.aggregates.values import numbers_of


@dataclass(frozen=True)
class Count:
    """Rows, or rows in which an expression is not null. State: `count`, int64."""

    x: Expression | None = None

    @property
    def inputs(self) -> tuple[Expression, ...]:
        """The counted expression; none for count(*)."""
        return () if self.x is None else (self.x,)

    @property
    def small(self) -> bool:
        """A few numbers."""
        return True

    @property
    def key(self) -> str:
        """Name in checkpoints."""
        return state_key("count.1", *(x.text for x in self.inputs))

    def sql(self, inputs: Sequence[str], time: str) -> dict[str, str]:
        """Return Spark's count."""
        return {"count": f"count({inputs[0] if inputs else '*'})"}

    def decode(self, columns: Mapping[str, pa.Array]) -> State:
        """Return the counts."""
        return {"count": numbers_of(columns["count"])}

    def encode(self, state: State, types: Types) -> dict[str, pa.Array]:
        """Return the counts as Arrow."""
        return {"count": pa.array(state["count"], type=types["count"])}

    def empty(self, slots: int, types: Types) -> State:
        """Return zeros."""
        return {"count": np.zeros(slots, dtype=np.int64)}

    def merge_into(self, into: State, slots: Where, other: State) -> None:
        """Add."""
        into["count"][slots] += other["count"]

    def of_runs(self, state: State, starts: Slots, longest: int) -> State | None:
        """Add."""
        return {"count": np.add.reduceat(state["count"], starts)}

    def flaw(self, columns: Mapping[str, pa.Array]) -> str:
        """Return what is wrong with the numbers of rows."""
        return flaw_of_counts(columns["count"])


@dataclass(frozen=True)
class CountOf(Filterable):
    """The aggregate `count`: bigint, never null."""

    x: Expression | None = None

    @property
    def inputs(self) -> tuple[Expression, ...]:
        """The counted expression; none for count(*)."""
        return () if self.x is None else (self.x,)

    @property
    def primitives(self) -> tuple[Primitive, ...]:
        """One count."""
        return (Count(self.x),)

    @property
    def zero(self) -> Any:
        """A window without rows counts none."""
        return 0

    def result(self, states: Sequence[State], context: ResultContext) -> pa.Array:
        """Return the counts, int64."""
        return pa.array(states[0]["count"], type=pa.int64())

    def describe(self) -> str:
        """Return `count(x)` or `count(*)`."""
        return f"count({'*' if self.x is None else self.x})"
