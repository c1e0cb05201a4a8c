"""One query of a stream as the engine knows it: its progress, and its types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from transom.model.time import MIN_TIME, Micros
from transom.windows.query import WindowedQuery


@dataclass(frozen=True)
class QueryState:
    """The progress of one query."""

    complete_from: Micros = MIN_TIME
    """Windows that start earlier miss rows read before the query was added; they are not emitted."""
    failure: str | None = None
    paused: bool = False

    @property
    def runs(self) -> bool:
        """Whether rows count for it."""
        return self.failure is None and not self.paused


@dataclass(frozen=True)
class CompiledQuery:
    """The types of a query, as far as the engine needs them."""

    query: WindowedQuery
    input_types: dict[str, tuple[pa.DataType, ...]]
    """Arrow types of each aggregate's inputs, by result column."""
    shape: Callable[[pa.Table], pa.Table] = lambda aggregates: aggregates
    """Returns the results that the query's steps make of a table of aggregates."""
