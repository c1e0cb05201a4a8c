"""count_distinct: exact, of few different values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from transom.errors import QueryFailedError
from transom.windows.aggregates.base import ResultContext, State
from transom.windows.aggregates.collect import Smallest
from transom.windows.aggregates.oneinput import OneInputAggregate


@dataclass(frozen=True)
class DistinctOf(OneInputAggregate):
    """The aggregate `count_distinct`: bigint, never null. Its state are the values, one more than it may count."""

    at_most: int

    @property
    def primitives(self) -> tuple[Smallest]:
        """The different values."""
        return (Smallest(self.x, self.at_most + 1, unique=True),)

    @property
    def zero(self) -> Any:
        """Nothing has no values."""
        return 0

    def result(self, states: Sequence[State], context: ResultContext) -> pa.Array:
        """Return the numbers of values.

        Raises:
            QueryFailedError: There are more than `at_most`.
        """
        found = [0 if values is None else len(values) for values in self.primitives[0].combined(states[0])]
        if max(found, default=0) > self.at_most:
            raise QueryFailedError(
                f"{self.describe()}: a window has more different values.",
                "Give a larger at_most, or use approx_count_distinct(x).",
            )
        return pa.array(found, pa.int64())

    def describe(self) -> str:
        """Return for example `count_distinct(x, at_most=100)`."""
        return f"count_distinct({self.x}, at_most={self.at_most})"
