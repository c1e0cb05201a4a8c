"""Streams whose rows come from other streams of the application, as users define them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from transom.api.query import Query
from transom.api.shedding import check_shedding
from transom.api.streams import Rowwise, Stream
from transom.engine.spark.joins import StreamJoin, interval_join, window_join
from transom.engine.streams.definition import StreamDefinition
from transom.engine.streams.derived import WINDOW_TIME, DerivedSource, window_time
from transom.engine.streams.earlyresults import EarlyResultsSource
from transom.engine.streams.joining import JoinSource
from transom.engine.streams.joininput import ROWS
from transom.engine.streams.laterows import LATE_TIME, LateRowsSource
from transom.engine.streams.results import ResultsSource
from transom.errors import DefinitionError
from transom.model.arguments import column_names
from transom.model.expression import Expression
from transom.model.time import Duration, Micros, parse_duration
from transom.model.window import Window, window_of
from transom.sinks.nowhere import Nowhere
from transom.windows.aggregates.functions import count
from transom.windows.query import WindowedQuery


class Derivation(Protocol):
    """The origin of a derived stream; its stream is named by `settle`, as soon as a query reads it."""

    stream: Stream

    @property
    def time(self) -> Expression:
        """The event time of its rows."""

    @property
    def name(self) -> str:
        """Name of the stream, as far as it is known."""

    def settle(self) -> None:
        """Make the queries that it reads part of the application, if they are not, and name the stream."""

    def source(self) -> DerivedSource:
        """Return a new source, for one run."""


@dataclass(eq=False)
class OfQuery(ABC):
    """Rows that a query gives to other queries, in the stream that is named after it."""

    method: ClassVar[str]
    """Of `Query`, which users call for them."""
    ending: ClassVar[str]
    """Of the stream's name."""
    query: Query
    wanted: str | None
    """Name of the query, if it gets no sink."""
    stream: Stream = field(init=False)

    @property
    @abstractmethod
    def time(self) -> Expression:
        """The event time of its rows."""

    @property
    def name(self) -> str:
        """Name of the stream, as far as it is known."""
        return f"{self.query.label or self.wanted or 'a query'}.{self.ending}"

    def settle(self) -> None:
        """Add the query without a sink, if it has none; the stream is named after it.

        Raises:
            DefinitionError: The query has another name than the method was given.
        """
        label = self.query.label or self.query._register([Nowhere()], self.query._published.wanted).query
        if self.wanted not in (None, label):
            raise DefinitionError(
                f"{self.method}: the query is named {label!r} in to() and {self.wanted!r} in {self.method}().",
                "Name it in one of them.",
            )
        self.stream.name = self.name

    def source(self) -> DerivedSource:
        """Return a new source, for one run."""
        assert self.query.label is not None, "settled first"
        return self._source(self.query.windowed.grouped.rows.stream.name, self.query.label)

    @abstractmethod
    def _source(self, stream: str, query: str) -> DerivedSource:
        """Return a source of the rows that a query on a stream gives."""


@dataclass(eq=False)
class ResultsOf(OfQuery):
    """The results of a query."""

    method, ending = "results", "results"

    @property
    def time(self) -> Expression:
        """The last microsecond of the window, whatever the column of its end is called."""
        return window_time(self.query._window_end)

    def _source(self, stream: str, query: str) -> DerivedSource:
        return ResultsSource(stream, query)


@dataclass(eq=False)
class EarlyResultsOf(ResultsOf):
    """The results of a query, early ones too."""

    ending = "early"

    def settle(self) -> None:
        """Add the query without a sink, if it has none.

        Raises:
            DefinitionError: No query that reads it shows early results.
        """
        super().settle()
        if not any(query.early is not None for query in self.stream._queries):
            names = ", ".join(repr(query.name) for query in self.stream._queries)
            raise DefinitionError(
                f"results(early=True): {names} reads early results of {self.query.label!r}, and shows none.",
                'Give it some of its own, such as window("1 hour", early="10 seconds"), or leave out early=True.',
            )

    def _source(self, stream: str, query: str) -> DerivedSource:
        return EarlyResultsSource(stream, query)


@dataclass(eq=False)
class LateRowsOf(OfQuery):
    """The rows that come too late for a query."""

    method, ending = "late_rows", "late"
    behind: Micros
    """The distance of the watermark behind that of the query's stream."""

    @property
    def time(self) -> Expression:
        """That of the query's stream."""
        return LATE_TIME

    def _source(self, stream: str, query: str) -> DerivedSource:
        return LateRowsSource(stream, query, self.behind)


@dataclass(eq=False)
class JoinOf:
    """The join of two streams."""

    name: str
    left: Rowwise
    right: Rowwise
    join: StreamJoin
    stream: Stream = field(init=False)
    settled: bool = False

    @property
    def time(self) -> Expression:
        """The event time of its rows."""
        return LATE_TIME if self.join.timed else WINDOW_TIME

    def settle(self) -> None:
        """Add the queries that count the rows of each side; they take part in progress, dead letters and lateness."""
        if not self.settled:
            for rows, label in ((self.left, f"{self.name}.left"), (self.right, f"{self.name}.right")):
                self._register(rows, label)
            self.settled = True

    def _register(self, rows: Rowwise, label: str) -> None:
        def query(name: str) -> WindowedQuery:
            branch = rows.stream._branch(rows.chain)
            return WindowedQuery(
                name,
                branch,
                (),
                (self.join.times.window,),
                ((ROWS, count()),),
                condition=rows.condition,
                keeps_rows=True,
            )

        rows.stream._register(rows.stream, [Nowhere()], label, query)

    def source(self) -> DerivedSource:
        """Return a new source, for one run."""
        left, right = self.left.stream.name, self.right.stream.name
        return JoinSource(self.name, self.join, (left, f"{self.name}.left"), (right, f"{self.name}.right"))


def join_of(
    on: str | Sequence[str],
    window: Window | None,
    between: tuple[Duration, Duration] | None,
    how: str,
    event_time: str | None,
) -> StreamJoin:
    """Return the join that a user means, see `App.join`.

    Raises:
        DefinitionError: It cannot work.
    """
    keys = column_names([on] if isinstance(on, str) else on, "join: on")
    if (window is None) == (between is None):
        raise DefinitionError(
            "join: it needs one of window and between.",
            'Write window="10 seconds" for rows in the same window, or between=("0 seconds", "2 hours") for rows of '
            "which the right one is so much later.",
        )
    if window is not None:
        return window_join(keys, window_of(window), how, event_time)
    if not isinstance(between, tuple | list) or len(between) != 2:
        raise DefinitionError(
            f"join: between={between!r} is no pair of durations.", 'Write between=("0 seconds", "2 hours").'
        )
    low, high = (parse_duration(bound, "join between") for bound in between)
    return interval_join(keys, low, high, how, event_time)


def settled(streams: Sequence[Stream], derived: Sequence[Derivation]) -> list[StreamDefinition]:
    """Return the streams with queries as the engine takes them, parents first.

    Args:
        streams: Those over sources.
        derived: Those over queries; what they read becomes part of the application, if somebody reads them.

    Raises:
        DefinitionError: There is no query, or two streams have one name.
    """
    for derivation in reversed(derived):  # so that a query read by one that is read comes in, too
        if derivation.stream._queries:
            derivation.settle()
    used = [stream for stream in (*streams, *(each.stream for each in derived)) if stream._queries]
    for stream in used:
        if [other.name for other in used].count(stream.name) > 1:
            raise DefinitionError(f"stream: there are two streams {stream.name!r}.", "Rename the stream or query.")
    read = [(each.stream, each.query) for each in derived if isinstance(each, OfQuery) and each.stream in used]
    check_shedding(used, [each.stream for each in derived], read)
    if not used:
        raise DefinitionError("The application has no query.", "End one with .to(sink, name=...) before running it.")
    return [stream._definition() for stream in used]
