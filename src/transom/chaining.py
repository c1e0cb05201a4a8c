"""Streams whose rows come from other streams of the application, as users define them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from transom.engine.derived import DerivedSource, ResultsSource
from transom.errors import DefinitionError
from transom.pipeline import QueryBuilder, Stream
from transom.sinks.nowhere import Nowhere


class Derivation(Protocol):
    """What a derived stream is made from; its stream is named by `settle`, as soon as a query reads it."""

    stream: Stream

    def settle(self) -> None:
        """Make the queries that it reads part of the application, if they are not, and name the stream."""

    def source(self) -> DerivedSource:
        """Return a new source, for one run."""


@dataclass(eq=False)
class ResultsOf:
    """The results of a query."""

    builder: QueryBuilder
    wanted: str | None
    """Name of the query, if it gets no sink."""
    stream: Stream = field(init=False)

    def settle(self) -> None:
        """Add the query without a sink, if it has none; the stream is named after it.

        Raises:
            DefinitionError: The query has another name than `results` says.
        """
        label = self.builder.label or self.builder.register(Nowhere(), self.wanted).query
        if self.wanted not in (None, label):
            raise DefinitionError(
                f"results: the query is named {label!r} in to() and {self.wanted!r} in results().",
                "Name it in one of them.",
            )
        self.stream.name = f"{label}.results"

    def source(self) -> DerivedSource:
        """Return a new source, for one run."""
        assert self.builder.label is not None, "settled first"
        return ResultsSource(self.builder.windowed.grouped.rows.stream.name, self.builder.label)
