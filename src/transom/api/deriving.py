"""Streams of rows that others have given: without repetitions, or several as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from transom.api.streams import Rowwise, Stream
from transom.api.taps import all_rows
from transom.engine.spark.columns import TIME, quoted
from transom.engine.streams.deduplicating import SLICE, FirstRowsSource
from transom.engine.streams.derived import DerivedSource
from transom.engine.streams.joininput import ROWS
from transom.engine.streams.laterows import LATE_TIME
from transom.engine.streams.uniting import UnionSource
from transom.errors import DefinitionError
from transom.model.expression import Expression
from transom.model.time import Duration, Micros, parse_duration
from transom.sinks.nowhere import Nowhere
from transom.windows.aggregates.functions import count
from transom.windows.query import WindowedQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Selected:
    """The transformation that leaves some columns and the event time; equal when the columns are."""

    columns: tuple[str, ...]

    @property
    def __name__(self) -> str:
        """What `explain` shows."""
        return f"only {', '.join(self.columns)}"

    def __call__(self, rows: DataFrame) -> DataFrame:
        """Return the rows with these columns."""
        return rows.select(*map(quoted, self.columns), TIME)


@dataclass(eq=False)
class FirstRowsOf:
    """The first row of each key within a time."""

    name: str
    rows: Rowwise
    keys: tuple[str, ...]
    within: Micros
    stream: Stream = field(init=False)
    settled: bool = False

    @property
    def time(self) -> Expression:
        """The event time of its rows: their own."""
        return LATE_TIME

    def settle(self) -> None:
        """Add the query that counts the rows, and the one that keeps the keys of those that stay."""
        if not self.settled:
            rows, stayed = self.rows, Rowwise(self.stream, (Selected(self.keys),))

            def counted(label: str) -> WindowedQuery:
                branch = rows.stream._branch(rows.chain)
                return WindowedQuery(
                    label, branch, (), (SLICE,), ((ROWS, count()),), condition=rows.condition, keeps_rows=True
                )

            rows.stream._register(rows.stream, [Nowhere()], f"{self.name}.rows", counted)
            self.stream._register(self.stream, [Nowhere()], f"{self.name}.stayed", all_rows(stayed))
            self.settled = True

    def source(self) -> DerivedSource:
        """Return a new source, for one run."""
        parent = self.rows.stream.name, f"{self.name}.rows"
        return FirstRowsSource(self.name, self.keys, self.within, parent, f"{self.name}.stayed")


@dataclass(eq=False)
class UnionOf:
    """The rows of several streams."""

    name: str
    parts: tuple[Rowwise, ...]
    stream: Stream = field(init=False)
    settled: bool = False

    @property
    def time(self) -> Expression:
        """The event time of its rows: their own."""
        return LATE_TIME

    def settle(self) -> None:
        """Add the queries that see the rows of each part."""
        if not self.settled:
            for label, rows in self._labelled():
                rows.stream._register(rows.stream, [Nowhere()], label, all_rows(rows))
            self.settled = True

    def _labelled(self) -> list[tuple[str, Rowwise]]:
        return [(f"{self.name}.{number}", rows) for number, rows in enumerate(self.parts, 1)]

    def source(self) -> DerivedSource:
        """Return a new source, for one run."""
        return UnionSource(self.name, [(rows.stream.name, label) for label, rows in self._labelled()])


def first_rows_of(rows: Rowwise, keys: str | Sequence[str], within: Duration, name: str) -> FirstRowsOf:
    """Return what `Rowwise.deduplicate` means.

    Raises:
        DefinitionError: No keys, or a duration that makes no sense.
    """
    names = (keys,) if isinstance(keys, str) else tuple(keys)
    if not names or not all(isinstance(key, str) for key in names) or len(set(names)) < len(names):
        raise DefinitionError(
            f"deduplicate: {keys!r} names no columns.", 'Write for example deduplicate("id", within="1 hour").'
        )
    time = parse_duration(within, "deduplicate within")
    if time <= 0:
        raise DefinitionError(f"deduplicate: within is {within!r}.", 'Write for example within="1 hour".')
    return FirstRowsOf(name, rows, names, time)
