"""A windowed query as users write it: its results, and where they go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from transom.api.filling import fill_of
from transom.api.published import Published
from transom.api.shedding import least_share
from transom.engine.changes.requests import Change
from transom.engine.state.shares import SHED_ROWS, SHED_SHARE
from transom.errors import DefinitionError, did_you_mean
from transom.model.expression import Expression, Input
from transom.model.signatures import checked
from transom.model.time import Duration, format_duration, parse_duration
from transom.sinks.base import REVISION, Sink
from transom.sinks.outlets import listed
from transom.windows.aggregates.base import Aggregate
from transom.windows.query import WINDOW_END, WINDOW_START, Fill, LatencyTarget, WindowedQuery
from transom.windows.steps import Having, Rename, Select, Step, columns_after, kept_as

if TYPE_CHECKING:
    from transom.api.streams import Stream, Windowed


@dataclass(frozen=True, eq=False, repr=False)
class Query:
    """A query that lacks only a sink, or others that read its results; it counts from then on."""

    windowed: Windowed
    aggregates: tuple[tuple[str, Aggregate], ...]
    target: LatencyTarget | None = None
    filled: Fill | None = None
    steps: tuple[Step, ...] = ()
    """What becomes of the aggregates before they are results."""
    _published: Published = field(default_factory=Published, init=False, repr=False)

    def __repr__(self) -> str:
        return f"{self.windowed!r}.agg({', '.join(name for name, _ in self.aggregates)})" + "".join(
            f".{step}" for step in self.steps
        )

    @property
    def label(self) -> str | None:
        """Name of the query; None as long as it is not part of the application."""
        return self._published.label

    @checked
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
        if on_overload == "shed" and self.windowed.total is not None:
            raise DefinitionError(
                "within: a row that is left out would lack in all later totals.", 'Leave out on_overload="shed".'
            )
        share = least_share(on_overload, keep, self.windowed.windows, self.columns)
        return replace(self, target=LatencyTarget(micros, quantile, share))

    @checked
    def fill(self, value: Literal["zero", "previous"], for_at_most: Duration | None = None) -> Query:
        """Emit known keys in windows in which they have no rows, too: with zeros, or with their last results again.

        A key is known from its first window with rows on. Windows follow each other by their ends, so that results do
        not depend on micro-batches. Of each known key the application remembers its last results.

        Args:
            value: "zero": counts and sums are 0, other values null. "previous": all aggregates are as they were.
            for_at_most: How long a key goes on after its last window with rows, from end to end, for example "1 day".
                Later it is forgotten, until it has rows again. "previous" needs it, "zero" goes on for ever without.

        Raises:
            DefinitionError: The value is unknown, or does not go with the windows.
        """
        if self.windowed.updates:
            raise DefinitionError(
                "fill: it does not go with early results or lateness, which emit what changed.",
                "Leave out fill, or early and lateness.",
            )
        if self.windowed.total is not None:
            raise DefinitionError(
                "fill: totals have no gaps: each key has a result at each multiple of every.", "Leave out fill."
            )
        return replace(self, filled=fill_of(value, for_at_most, self.windowed.windows))

    def having(self, condition: Input) -> Query:
        """Keep the results that satisfy a condition over keys, window bounds and aggregates: `having("trips > 10")`.

        Spark computes it, with the meaning and the settings that it has in a batch query.

        Args:
            condition: SQL text or a Column.

        Raises:
            DefinitionError: The query has early results or lateness: what does not satisfy it any more would stay.
        """
        if self.windowed.updates:
            raise DefinitionError(
                "having: with early or lateness, a result that satisfied the condition and does so no more would stay.",
                "Leave out early and lateness, or select the condition as a column, and let readers go by it.",
            )
        return replace(self, steps=(*self.steps, Having(Expression.of(condition, "having"))))

    def select(self, *columns: str, **named: Input) -> Query:
        """Choose the columns of the results, and compute new ones: over keys, window bounds and aggregates.

        As `DataFrame.select`, it gives these columns and no others. Spark computes them, with the meaning and the
        settings that they have in a batch query; where a value cannot be computed (a division by zero in ANSI mode),
        the query fails and the others go on.

        Args:
            columns: Names of columns to keep.
            named: SQL text or Columns by the name of the result, e.g. select("zone", mean="round(total / trips, 2)").

        Raises:
            DefinitionError: Nothing is selected, a name is given twice, or early results lose window or keys.
        """
        given = [self._known(name, "select") for name in columns]
        chosen = [*((name, Expression(name)) for name in given)]
        chosen += [(name, Expression.of(value, "select")) for name, value in named.items()]
        if not chosen:
            raise DefinitionError("select: no column is given.", 'Write for example select("zone", "trips").')
        return self._selected(Select(tuple(chosen)), "select")

    def rename(self, **names: str) -> Query:
        """Give columns of the results other names, new name first: `rename(session_start="window_start")`.

        Raises:
            DefinitionError: There is no such column, or two of one name.
        """
        olds = {self._known(old, "rename"): new for new, old in names.items()}
        if len(olds) < len(names):
            raise DefinitionError("rename: a column is given two names.", "Use select(...) to have it twice.")
        return self._selected(
            Rename(tuple((olds.get(name, name), Expression(name)) for name in self.columns)), "rename"
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of the results."""
        return tuple(columns_after(self.steps, self._aggregated))

    @property
    def _window_end(self) -> str:
        """Name of the column that is the end of the window.

        Raises:
            DefinitionError: It is not among the results.
        """
        kept = kept_as(self.steps, self._aggregated, [WINDOW_END])
        if kept is None:
            raise DefinitionError(
                "results: the end of the window, which is the time of the results, is not among their columns.",
                f'Keep it in select, as it is or under another name: select("{WINDOW_END}", ...).',
            )
        return kept[0]

    @property
    def _aggregated(self) -> tuple[str, ...]:
        """The columns before any step."""
        return (*self._identity, *dict(self.aggregates))

    @property
    def _identity(self) -> tuple[str, ...]:
        return (WINDOW_START, WINDOW_END, *(key.name for key in self.windowed.grouped.keys))

    def _known(self, name: object, field: str) -> str:
        if not isinstance(name, str):
            raise DefinitionError(f"{field}: {name} has no name for the result.", f"Write {field}(name=column).")
        if name not in self.columns:
            raise DefinitionError(
                f"{field}: the results have no column {name!r}.",
                did_you_mean(name, self.columns, f"They have {', '.join(self.columns)}."),
            )
        return name

    def _selected(self, step: Select, field: str) -> Query:
        """Return the query after one more step that chooses columns."""
        extra = [REVISION] if self.windowed.updates else []
        extra += [SHED_ROWS, SHED_SHARE] if self.target is not None and self.target.keep is not None else []
        unique([*(name for name, _ in step.columns), *extra], field)
        steps = (*self.steps, step)
        if self.windowed.updates and kept_as(steps, self._aggregated, self._identity) is None:
            raise DefinitionError(
                f"{field}: with early or lateness a result replaces the one before of the same window and keys, which "
                "are not all among the columns.",
                f"Keep {', '.join(self._identity)}, under any names.",
            )
        return replace(self, steps=steps)

    @checked
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

    @checked
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
        self._published.wanted = self._published.wanted or name
        if self._published.late is None:
            self._published.late = behind, self.windowed.grouped.rows.stream._late(self, name, behind)
        known, stream = self._published.late
        if known != behind:
            raise DefinitionError(
                f"late_rows: the late rows of this query have the watermark {format_duration(known)} already.",
                "Use the stream that late_rows() returned.",
            )
        return stream

    @checked
    def results(self, name: str | None = None, *, early: bool = False) -> Stream:
        """Return the results as a stream on which further queries are built, e.g. 10 s into 30 s into a day.

        Each result row comes once, when no row can change it any more. Its event time is the last microsecond of its
        window, so that it falls into the larger windows around; the stream's watermark is how far this query's
        windows are final, so that no row is late. The query is computed once, with or without a sink of its own.

        With `early=True` the early results of the queries that read it are made of this query's early ones, too: of
        the newest result of each window and key, final or not, as of one micro-batch of this query. A newer result
        takes the place of the one before, so that no row counts twice. Final results are what they are without it.

        Args:
            name: Names a query that has no sink; default query1, query2, ...
            early: Whether those who read it see early results, too, and results that may still be corrected.

        Raises:
            DefinitionError: With `early`, this query gives no result before the final one. When the application starts:
                none of those who read it has `early`; or one groups by what changes, filters by it, or maps it.
        """
        published, stream = self._published, self.windowed.grouped.rows.stream
        published.wanted = published.wanted or name
        _ = self._window_end
        if early and not self.windowed.updates:
            raise DefinitionError(
                "results(early=True): the query has no early results, each of its results is final.",
                'Give it some, such as window("1 minute", early="10 seconds"), or leave out early=True.',
            )
        if early:
            published.early_results = published.early_results or stream._derive(self, name, True)
            return published.early_results
        published.results = published.results or stream._derive(self, name, False)
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
                self.filled if self.windowed.total is None else Fill(zero=False),
                self.windowed.early,
                self.windowed.lateness,
                rows.condition,
                steps=self.steps,
                total=self.windowed.total,
            )

        change = rows.stream._register(rows.stream, sinks, name, query)
        if self._published.label is None:
            self._published.label = change.query
        return change


def unique(names: list[str], field: str) -> None:
    """Refuse result columns of one name.

    Raises:
        DefinitionError: There are some.
    """
    for name in names:
        if names.count(name) > 1:
            raise DefinitionError(f"{field}: there are two result columns {name!r}.", "Give one of them another name.")
