"""A stream and the queries on it as users write them: values that each step makes anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from transom.api.filling import total_of
from transom.api.query import Query, unique
from transom.api.tables import StreamTables
from transom.api.taps import RowTap
from transom.engine.changes.requests import Change
from transom.engine.spark.columns import Costly, Unrepeatable, Where, both
from transom.engine.spark.eventtimes import names_arrival
from transom.engine.spark.lookups import Lookup, LookupTable, lookup_tables
from transom.engine.spark.plan import Rows, Transformation
from transom.engine.streams.definition import StreamDefinition
from transom.errors import DefinitionError
from transom.model.arguments import column_names, shown
from transom.model.expression import Expression, Input
from transom.model.signatures import checked
from transom.model.time import Duration, Micros, parse_duration
from transom.model.watermark import WatermarkPolicy
from transom.model.window import Window, WindowKind, windows_of, windows_text
from transom.sinks.base import REVISION, Sink
from transom.sources.base import Source
from transom.sources.tables import table_of
from transom.windows.aggregates.base import Aggregate
from transom.windows.query import WINDOW_END, WINDOW_START, Key, Total, WindowedQuery


@dataclass(eq=False, repr=False)
class Stream:
    """Rows of a source; made by `App.stream`, `App.join` and `results`. Transformations return new values."""

    _register: Callable[[Stream, Sequence[Sink], str | None, Callable[[str], WindowedQuery]], Change]
    """Makes a query part of the application: stream, sinks, name if any, and the query given its name."""
    _derive: Callable[[Query, str | None, bool], Stream]
    """Returns a query's results as a stream; the name is for a query without a sink, the last says: early ones, too."""
    _late: Callable[[Query, str | None, Micros], Stream]
    """Returns a query's late rows as a stream; the name is as above, the number how far its watermark is behind."""
    _twin: Callable[[str | None], Stream]
    """Returns another stream over the same source."""
    _deduplicate: Callable[[Rowwise, str | Sequence[str], Duration, str | None], Stream]
    """Returns the first rows of keys within a time; the name is the stream's."""
    _unite: Callable[[Sequence[Rowwise], str | None], Stream]
    """Returns the rows of several streams; the name is as above."""
    name: str
    _make_source: Callable[[], Source]
    _event_time: Expression
    _policy: WatermarkPolicy
    _origin: str = ""
    """The stream that its source belongs to; empty for itself."""

    def __post_init__(self) -> None:
        self._queries: list[WindowedQuery] = []
        self._branches: list[tuple[Transformation, ...]] = []
        self._tables = StreamTables()

    @checked
    def apart(self, name: str | None = None) -> Stream:
        """Return a stream of its own over the same source, for queries that are too heavy for the limits of the others.

        It has its own micro-batches and its own watermark, and is scheduled by its own limits; in return it reads the
        source once more and shares no partials. Which stream a query belongs to must not change while a checkpoint is
        used. A stream that is new to a checkpoint starts where another one over the source has come to.

        Args:
            name: Names the stream in progress and checkpoint; default stream1, stream2, ...

        Raises:
            DefinitionError: The name is taken, the application is running, or the rows come from other queries.
        """
        return self._twin(name)

    def map(self, transformation: Transformation, deterministic: bool = True, *, costly: bool = False) -> Rowwise:
        """Return the rows after a row-wise PySpark transformation; see `Rowwise.map`."""
        return Rowwise(self, ()).map(transformation, deterministic, costly=costly)

    def where(self, condition: Input) -> Rowwise:
        """Return the rows that satisfy a condition, SQL or a Column; cheaper for many queries than filters in `map`."""
        return Rowwise(self, ()).where(condition)

    def lookup(
        self,
        table: Any,
        on: str | Sequence[str],
        *,
        how: str = "inner",
        refresh: Duration | None = None,
        name: str | None = None,
    ) -> Rowwise:
        """Return the rows joined with those of a table; see `Rowwise.lookup`."""
        return Rowwise(self, ()).lookup(table, on, how=how, refresh=refresh, name=name)

    def deduplicate(self, keys: str | Sequence[str], within: Duration, name: str | None = None) -> Stream:
        """Return the first row of each key within a time; see `Rowwise.deduplicate`."""
        return Rowwise(self, ()).deduplicate(keys, within, name)

    def union(self, *others: Stream | Rowwise, name: str | None = None) -> Stream:
        """Return the rows of this stream and of others; see `Rowwise.union`."""
        return Rowwise(self, ()).union(*others, name=name)

    def rows(self) -> RowTap:
        """Return the rows themselves, to be written as files; see `RowTap.to`."""
        return RowTap(Rowwise(self, ()))

    def group_by(self, *keys: str, **named: Input) -> Grouped:
        """Group by columns, or by named expressions; nothing for one global group."""
        return Rowwise(self, ()).group_by(*keys, **named)

    def window(self, *windows: Window, early: Duration | None = None, lateness: Duration = 0) -> Windowed:
        """Aggregate all rows together, without keys; see `Grouped.window`."""
        return self.group_by().window(*windows, early=early, lateness=lateness)

    def __repr__(self) -> str:
        return f"Stream({self.name!r})"

    def _definition(self) -> StreamDefinition:
        """Return the stream as the engine takes it."""
        return StreamDefinition(
            self.name, self._make_source(), self._rows, self._policy, tuple(self._queries), self._origin
        )

    @property
    def _rows(self) -> Rows:
        """The rows before the queries see them."""
        return Rows(self._event_time, tuple(self._branches), names_arrival(self._event_time))

    def _table(self, table: Any, refresh: Duration | None, name: str | None) -> LookupTable:
        """Return the table that rows of this stream are looked up in: the same one for the same arguments.

        Raises:
            DefinitionError: It is no table, or another one has its name, or a duration makes no sense.
        """
        return self._tables.table(table_of(table), refresh, name)

    def _forget(self, name: str) -> None:
        """Forget a query, and the tables that only it looked rows up in."""
        left = [query for query in self._queries if query.name != name]
        before, needed = ([self._branches[each.branch] for each in queries] for queries in (self._queries, left))
        self._queries = left
        self._tables.forget(set(lookup_tables(before)).difference(lookup_tables(needed)))

    def _branch(self, chain: tuple[Transformation, ...]) -> int:
        """Return the index of a chain of transformations; the same functions give the same index.

        A new one takes the place of one that no query has any more: queries may come and go for years.
        """
        self._tables.admit(lookup_tables([chain]))  # a query that left may have had the same
        if chain in self._branches:
            return self._branches.index(chain)
        used = {query.branch for query in self._queries}
        index = next((index for index in range(len(self._branches)) if index not in used), len(self._branches))
        self._branches[index : index + 1] = [chain]
        return index


@dataclass(frozen=True, eq=False, repr=False)
class Rowwise:
    """A stream after some transformations."""

    stream: Stream
    chain: tuple[Transformation, ...]
    condition: Expression | None = None
    """Holds for every row, after the chain."""

    def __repr__(self) -> str:
        condition = "" if self.condition is None else f".where({self.condition.text!r})"
        return f"{self.stream!r}{'.map(...)' * len(self.chain)}{condition}"

    def where(self, condition: Input) -> Rowwise:
        """Return the rows that satisfy a condition.

        Queries whose conditions differ share one pass over the rows, which those that filter in `map` do not.

        Args:
            condition: SQL text or a Column, as in `DataFrame.where`.
        """
        found = Expression.of(condition, "where")
        return replace(self, condition=found if self.condition is None else both(self.condition, found))

    @checked
    def map(self, transformation: Transformation, deterministic: bool = True, *, costly: bool = False) -> Rowwise:
        """Return the rows after one more row-wise PySpark transformation: filters, columns, joins with static tables.

        What depends on several rows (an aggregate, `distinct`, a limit, a window function) is refused when the
        application starts: results would depend on how the stream is cut into micro-batches. What Python functions do
        (UDFs, `mapInPandas`) cannot be seen; they get some rows at a time, and must treat each by itself.

        Args:
            transformation: Gets a DataFrame and returns another one.
            deterministic: Say False to allow what differs when the same rows are read again, after a failure or a
                restart: `rand`, `uuid`, `current_timestamp`, Python functions that are not deterministic. Results are
                then each one of those that are possible.
            costly: It takes most of the time of a row: under overload rows may be thinned before it (`Query.within`).
        """
        if not callable(transformation):
            raise DefinitionError(f"map: {transformation!r} is no function.", "Write map(lambda df: df.where(...)).")
        transformation = transformation if deterministic else Unrepeatable(transformation)
        return self._then(*([Costly()] if costly else []), transformation)

    def _then(self, *steps: Transformation) -> Rowwise:
        before = () if self.condition is None else (Where(self.condition),)
        return Rowwise(self.stream, (*self.chain, *before, *steps))

    @checked
    def lookup(
        self,
        table: Any,
        on: str | Sequence[str],
        *,
        how: str = "inner",
        refresh: Duration | None = None,
        name: str | None = None,
    ) -> Rowwise:
        """Return the rows joined with those of a small table that have their keys, as Spark joins them.

        All rows of a micro-batch meet the same version of the table. The log names it, and the checkpoint has a copy,
        so that a micro-batch that is done again after a failure gives the same. The table is read when the application
        starts and then every `refresh`; a change takes effect with the next micro-batch. What cannot be read anew
        stays what it was, with a warning.

        Args:
            table: What `tm.tables.parquet`, `tm.tables.delta` or `tm.tables.sql` return; a DataFrame; or a function
                that gets a Spark session and returns one.
            on: The columns that must be equal, of one name on both sides; null equals nothing.
            how: "inner"; "left" keeps rows that find nothing; "left_semi" and "left_anti" keep those that find
                something, or nothing, and add no columns.
            refresh: How often it is read anew, such as "10 minutes"; None for once in a run.
            name: Names the table to people and in the checkpoint; default table1, table2, ... in this stream.

        Raises:
            DefinitionError: It is no table, or no keys, an unknown kind, a duration that makes no sense.
        """
        keys = column_names([on] if isinstance(on, str) else on, "lookup: on")
        return self._then(Lookup(self.stream._table(table, refresh, name), keys, how))

    @checked
    def deduplicate(self, keys: str | Sequence[str], within: Duration, name: str | None = None) -> Stream:
        """Return the first row of each key within a time, as a stream of its own.

        First is by event time, and where times are equal by the values of the other columns, in their order: it does
        not depend on when rows come. A row stays unless a row of its keys that stayed is less than `within` older; so
        of a key that comes on and on one row stays per `within`. A row comes when the watermark has passed its second.
        Rows that come later than that are late (dead letters of NAME.rows). What is remembered are the keys of the rows
        that stayed, as files in the checkpoint, for `within`.

        Args:
            keys: The columns; null is a value like others.
            within: For example "1 hour".
            name: Names the stream; default first1, first2, ...

        Raises:
            DefinitionError: No keys, or a duration that makes no sense. When the application starts: there is no such
                column, or one of a type without an order, as a map.
        """
        return self.stream._deduplicate(self, keys, within, name)

    @checked
    def union(self, *others: Stream | Rowwise, name: str | None = None) -> Stream:
        """Return the rows of this stream and of others as one stream, each with the event time that it has.

        The streams have columns of the same names and types. The watermark is the lowest of theirs, so that a stream
        which falls silent holds back the windows, unless its watermark has `idle_after`. The rows wait as files in the
        checkpoint until they are read.

        Args:
            others: Streams, after any `map` and `where`.
            name: Names the stream; default union1, union2, ...

        Raises:
            DefinitionError: There is no other stream. When the application starts: their columns differ.
        """
        if not others:
            raise DefinitionError("union: no other stream is given.", "Write for example eu.union(us).")
        return self.stream._unite([self, *(rowwise_of(other, "union: other") for other in others)], name)

    def rows(self) -> RowTap:
        """Return the rows themselves, to be written as files; see `RowTap.to`."""
        return RowTap(self)

    def group_by(self, *keys: str, **named: Input) -> Grouped:
        """Group by columns, or by named expressions; nothing for one global group.

        Args:
            keys: Column names.
            named: Expressions by the name of the result column, e.g. group_by(hour="hour(pickup_at)").

        Raises:
            DefinitionError: A Column without a name, or a name given twice.
        """
        found: list[Key] = []
        for key in keys:
            if not isinstance(key, str):
                raise DefinitionError(f"group_by: {key} has no name for the result.", "Write group_by(name=column).")
            found.append(Key(key, Expression.of(key, "group_by")))
        found += [Key(name, Expression.of(value, "group_by")) for name, value in named.items()]
        unique([key.name for key in found], "group_by")
        return Grouped(self, tuple(found))

    def window(self, *windows: Window, early: Duration | None = None, lateness: Duration = 0) -> Windowed:
        """Aggregate all rows together, without keys; see `Grouped.window`."""
        return self.group_by().window(*windows, early=early, lateness=lateness)


def rowwise_of(given: Stream | Rowwise, what: str) -> Rowwise:
    """Return a stream as its rows.

    Raises:
        DefinitionError: It is none.
    """
    if not isinstance(given, (Stream, Rowwise)):
        raise DefinitionError(f"{what} is {shown(given)}, no stream.", "Give what app.stream(...) returns.")
    return Rowwise(given, ()) if isinstance(given, Stream) else given


@dataclass(frozen=True, eq=False, repr=False)
class Grouped:
    """Rows grouped by keys."""

    rows: Rowwise
    keys: tuple[Key, ...]

    def __repr__(self) -> str:
        return f"{self.rows!r}.group_by({', '.join(repr(key.name) for key in self.keys)})"

    def window(self, *windows: Window, early: Duration | None = None, lateness: Duration = 0) -> Windowed:
        """Say over which windows to aggregate, and when to emit them besides once at their end.

        With `early` or `lateness` the results have a column `revision` (0 for a window's first result, then counted
        up) and hold only keys whose rows changed since the revision before: a row replaces those of the same window
        and keys with a lower revision.

        Args:
            windows: Lengths ("5 minutes") for tumbling windows, or what `tumbling`, `sliding`, `cumulate`, `calendar`,
                `session_window` and, alone, `unbounded` return.
            early: Emit the results so far of open windows so often (wall time), e.g. "10 seconds".
            lateness: Rows that come up to so long after the watermark has closed a window still correct its result.

        Raises:
            DefinitionError: No window, or a duration that makes no sense.
        """
        if not windows:
            raise DefinitionError("window: no window is given.", 'Write for example window("5 minutes").')
        often = None if early is None else parse_duration(early, "early")
        if often is not None and often <= 0:
            raise DefinitionError(f"early: the interval is {early!r}.", 'Write for example early="10 seconds".')
        allowed = parse_duration(lateness, "lateness")
        if allowed < 0:
            raise DefinitionError(f"lateness: {lateness!r} is negative.", 'Write for example lateness="1 minute".')
        given, total = total_of(windows, self.keys, often is not None or allowed > 0)
        kinds = tuple(dict.fromkeys(one for window in given for one in windows_of(window)))
        return Windowed(self, kinds, often, allowed, total)


@dataclass(frozen=True, eq=False, repr=False)
class Windowed:
    """Grouped rows in windows."""

    grouped: Grouped
    windows: tuple[WindowKind, ...]
    early: Micros | None
    lateness: Micros
    total: Total | None = None

    def __repr__(self) -> str:
        return f"{self.grouped!r}.window({', '.join(windows_text(self.windows))})"

    @property
    def updates(self) -> bool:
        """Whether a window can be emitted more than once."""
        return self.early is not None or self.lateness > 0

    def agg(self, **aggregates: Aggregate) -> Query:
        """Say what to compute: a name for each result column and its aggregate, e.g. trips=tm.count()."""
        if not aggregates:
            raise DefinitionError("agg: no aggregate is given.", "Write for example agg(trips=tm.count()).")
        for name, aggregate in aggregates.items():
            if not hasattr(aggregate, "primitives"):
                raise DefinitionError(
                    f"agg: {name} is {aggregate!r}, no aggregate of Transom.",
                    "Use tm.count(), tm.avg('fare') and so on; Spark's own functions cannot be merged across panes.",
                )
        revision = [REVISION] if self.updates else []
        unique([WINDOW_START, WINDOW_END, *(key.name for key in self.grouped.keys), *aggregates, *revision], "agg")
        return Query(self, tuple(aggregates.items()))
