"""A stream and the queries on it as users write them: values that each step makes anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from transom.api.published import Published
from transom.api.shedding import least_share
from transom.api.taps import RowTap
from transom.engine.changes.requests import Change
from transom.engine.spark.columns import Costly, Unrepeatable, Where, both
from transom.engine.spark.lookups import Lookup, LookupTable
from transom.engine.spark.plan import Rows, Transformation
from transom.engine.streams.definition import StreamDefinition
from transom.errors import DefinitionError
from transom.model.expression import Expression, Input
from transom.model.time import Duration, Micros, format_duration, parse_duration
from transom.model.watermark import WatermarkPolicy
from transom.model.window import Window, WindowKind, window_of
from transom.sinks.base import REVISION, Sink
from transom.sinks.outlets import listed
from transom.sources.base import Source
from transom.sources.tables import table_of
from transom.windows.aggregates.base import Aggregate
from transom.windows.query import Key, LatencyTarget, WindowedQuery


@dataclass(eq=False, repr=False)
class Stream:
    """Rows of a source; made by `App.stream`, `App.join` and `results`. Transformations return new values."""

    _register: Callable[[Stream, Sequence[Sink], str | None, Callable[[str], WindowedQuery]], Change]
    """Makes a query part of the application: stream, sinks, name if any, and the query given its name."""
    _derive: Callable[[Query, str | None], Stream]
    """Returns a query's results as a stream; the name is for a query without a sink."""
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
        self._tables: list[LookupTable] = []

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
        return Rows(self._event_time, tuple(self._branches))

    def _table(self, table: Any, refresh: Duration | None, name: str | None) -> LookupTable:
        """Return the table that rows of this stream are looked up in: the same one for the same arguments.

        Raises:
            DefinitionError: It is no table, or another one has its name, or a duration makes no sense.
        """
        found = table_of(table)
        every = None if refresh is None else parse_duration(refresh, "lookup refresh")
        if every is not None and every <= 0:
            raise DefinitionError(f"lookup: refresh is {refresh!r}.", 'Write for example refresh="10 minutes".')
        same = [one for one in self._tables if one.table == found and one.refresh == every and name in (None, one.name)]
        if same:
            return same[0]
        label = name or f"table{len(self._tables) + 1}"
        if any(one.name == label for one in self._tables):
            raise DefinitionError(f"lookup: there are two tables {label!r}.", "Give one of them another name.")
        self._tables.append(LookupTable(label, found, every))
        return self._tables[-1]

    def _branch(self, chain: tuple[Transformation, ...]) -> int:
        """Return the index of a chain of transformations; the same functions give the same index."""
        if chain not in self._branches:
            self._branches.append(chain)
        return self._branches.index(chain)


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
        keys = (on,) if isinstance(on, str) else tuple(on)
        return self._then(Lookup(self.stream._table(table, refresh, name), keys, how))

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
        parts = [Rowwise(other, ()) if isinstance(other, Stream) else other for other in others]
        return self.stream._unite([self, *parts], name)

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
        _unique([key.name for key in found], "group_by")
        return Grouped(self, tuple(found))

    def window(self, *windows: Window, early: Duration | None = None, lateness: Duration = 0) -> Windowed:
        """Aggregate all rows together, without keys; see `Grouped.window`."""
        return self.group_by().window(*windows, early=early, lateness=lateness)


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
            windows: Lengths ("5 minutes") for tumbling windows, or what `tumbling`, `sliding`, `calendar` and
                `session` return.
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
        return Windowed(self, tuple(dict.fromkeys(window_of(window) for window in windows)), often, allowed)


@dataclass(frozen=True, eq=False, repr=False)
class Windowed:
    """Grouped rows in windows."""

    grouped: Grouped
    windows: tuple[WindowKind, ...]
    early: Micros | None
    lateness: Micros

    def __repr__(self) -> str:
        return f"{self.grouped!r}.window({', '.join(map(str, self.windows))})"

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
        _unique(["window_start", "window_end", *(key.name for key in self.grouped.keys), *aggregates, *revision], "agg")
        return Query(self, tuple(aggregates.items()))


@dataclass(frozen=True, eq=False, repr=False)
class Query:
    """A query that lacks only a sink, or others that read its results; it counts from then on."""

    windowed: Windowed
    aggregates: tuple[tuple[str, Aggregate], ...]
    target: LatencyTarget | None = None
    fill_zero: bool = False
    _published: Published = field(default_factory=Published, init=False, repr=False)

    def __repr__(self) -> str:
        return f"{self.windowed!r}.agg({', '.join(name for name, _ in self.aggregates)})"

    @property
    def label(self) -> str | None:
        """Name of the query; None as long as it is not part of the application."""
        return self._published.label

    def within(
        self,
        limit: Duration,
        quantile: float = 0.99,
        *,
        on_overload: Literal["delay", "shed"] = "delay",
        keep: float | None = None,
    ) -> Query:
        """State a latency target: this share of the results is visible within the limit.

        With "shed", which all queries of the stream must say, pieces of the input are left out while not all can be
        read in time, evenly over windows. Dead letters name them, results have `shed_share`, `shed_rows`.

        Args:
            limit: For example "2 seconds", from the arrival of the row that completes the window.
            quantile: In (0, 1).
            on_overload: "delay": all rows are read, and results come later; or "shed".
            keep: With "shed": the least share of a window's rows that is read; 0.1.

        Raises:
            DefinitionError: A number that makes no sense, or "shed" for session windows.
        """
        micros = parse_duration(limit, "within")
        if micros <= 0:
            raise DefinitionError(f"within: the limit is {limit!r}.", "Give more than nothing.")
        if not 0 < quantile < 1:
            raise DefinitionError(f"within: the quantile is {quantile}.", "Give a number between 0 and 1.")
        columns = [*(key.name for key in self.windowed.grouped.keys), *dict(self.aggregates)]
        share = least_share(on_overload, keep, self.windowed.windows, columns)
        return replace(self, target=LatencyTarget(micros, quantile, share))

    def fill(self, value: str) -> Query:
        """Emit known keys in windows without rows too; `zero`: counts are 0, other values null.

        A key is known from its first row on, for as long as the checkpoint lives.
        """
        if value != "zero":
            raise DefinitionError(f"fill: {value!r} is unknown.", 'Write fill("zero").')
        if self.windowed.updates:
            raise DefinitionError(
                "fill: it does not go with early results or lateness, which emit what changed.",
                "Leave out fill, or early and lateness.",
            )
        return replace(self, fill_zero=True)

    def to(self, sink: Sink | Sequence[Sink], name: str | None = None) -> Change:
        """Send the results to a sink, or each to several; the query is now part of the application.

        Each of several sinks has its own place in the results and its own retries: `to([a, b])`, or before the
        application runs also `to(a).to(b)`.

        While that runs, in another thread, the query is added between two micro-batches: `Change.wait` raises what is
        wrong with it, or tells from when on its windows are complete. It takes what panes there are from the queries
        that run.

        Args:
            sink: What `tm.sinks.parquet`, `tm.sinks.json`, `tm.sinks.console` and the like return; or a list of them.
            name: Names the query in the checkpoint; default query1, query2, ...

        Raises:
            DefinitionError: The name or the sink's directory is taken.
        """
        return self._register(listed(sink), name)

    def late_rows(self, watermark: Duration = 0, name: str | None = None) -> Stream:
        """Return the rows that come too late for all windows of this query, as a stream.

        They are the rows that the query sees, after `map` and `where`, with their event times: to be written as files
        (`late_rows().rows().to(...)`), or for windows of their own. Each comes once. The query and its stream are what
        they are without it, dead letters included.

        Args:
            watermark: How far the watermark of the late rows stays behind that of the query's stream. Rows that are
                late by more than that, and than the length of a window over them, are late there, too.
            name: Names a query that has no sink; default query1, query2, ...

        Raises:
            DefinitionError: It was called before with another watermark.
        """
        behind = parse_duration(watermark, "watermark")
        if behind < 0:
            raise DefinitionError(f"late_rows: the watermark {watermark!r} is negative.", 'Write for example "1 hour".')
        if self._published.late is None:
            self._published.late = behind, self.windowed.grouped.rows.stream._late(self, name, behind)
        known, stream = self._published.late
        if known != behind:
            raise DefinitionError(
                f"late_rows: the late rows of this query have the watermark {format_duration(known)} already.",
                "Use the stream that late_rows() returned.",
            )
        return stream

    def results(self, name: str | None = None) -> Stream:
        """Return the results as a stream on which further queries are built, e.g. 10 s into 30 s into a day.

        Each result row comes once, when no row can change it any more. Its event time is the last microsecond of its
        window, so that it falls into the larger windows around; the stream's watermark is how far this query's
        windows are final, so that no row is late. The query is computed once, with or without a sink of its own.

        Args:
            name: Names a query that has no sink; default query1, query2, ...
        """
        published = self._published
        if published.results is None:
            published.results = self.windowed.grouped.rows.stream._derive(self, name)
        return published.results

    def _register(self, sinks: Sequence[Sink], name: str | None) -> Change:
        """Make the query part of the application, as `to` and `results` do."""
        rows = self.windowed.grouped.rows

        def query(label: str) -> WindowedQuery:
            return WindowedQuery(
                label,
                rows.stream._branch(rows.chain),
                self.windowed.grouped.keys,
                self.windowed.windows,
                self.aggregates,
                self.target,
                self.fill_zero,
                self.windowed.early,
                self.windowed.lateness,
                rows.condition,
            )

        change = rows.stream._register(rows.stream, sinks, name, query)
        if self._published.label is None:
            self._published.label = change.query
        return change


def _unique(names: list[str], field: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise DefinitionError(f"{field}: there are two result columns {name!r}.", "Give one of them another name.")
