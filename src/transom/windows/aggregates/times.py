"""The first and the last event time of some rows: what makes a partial an interval that can join a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transom.model.expression import Expression
from transom.windows.aggregates.base import State, Types, Where, state_key
from transom.windows.aggregates.values import to_values

_LIMITS = np.iinfo(np.int64)


@dataclass(frozen=True)
class TimeRange:
    """The first and the last event time. State: `first` and `last`, int64 microseconds; first > last without rows."""

    @property
    def inputs(self) -> tuple[Expression, ...]:
        """None: every row has an event time."""
        return ()

    @property
    def small(self) -> bool:
        """Two numbers."""
        return True

    @property
    def key(self) -> str:
        """Name in checkpoints."""
        return state_key("times.1")

    def sql(self, inputs: Sequence[str], time: str) -> dict[str, str]:
        """Return Spark's min and max of the event time."""
        return {"first": f"min({time})", "last": f"max({time})"}

    def decode(self, columns: Mapping[str, pa.Array]) -> State:
        """Return the times."""
        return {name: to_values(columns[name])[0] for name in ("first", "last")}

    def encode(self, state: State, types: Types) -> dict[str, pa.Array]:
        """Return the times as Arrow."""
        return {name: pa.array(state[name], type=types[name]) for name in ("first", "last")}

    def empty(self, slots: int, types: Types) -> State:
        """Return intervals without rows."""
        return {"first": np.full(slots, _LIMITS.max, np.int64), "last": np.full(slots, _LIMITS.min, np.int64)}

    def merge_into(self, into: State, slots: Where, other: State) -> None:
        """Widen the intervals."""
        into["first"][slots] = np.minimum(into["first"][slots], other["first"])
        into["last"][slots] = np.maximum(into["last"][slots], other["last"])

    def flaw(self, columns: Mapping[str, pa.Array]) -> str:
        """Return nothing: any times can be those of rows."""
        return ""
