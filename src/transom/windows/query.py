"""A query as a value: what it computes, not how."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from transom.errors import DefinitionError
from transom.model.calendar import CalendarSpec
from transom.model.expression import Expression
from transom.model.time import MAX_TIME, MIN_TIME, Micros, format_duration
from transom.model.window import SessionSpec, WindowKind, WindowSpec
from transom.windows.steps import Step, columns_after, kept_as

if TYPE_CHECKING:
    from transom.windows.aggregates.base import Aggregate

WINDOW_START, WINDOW_END = "window_start", "window_end"
"""Columns of every window's aggregates."""


@dataclass(frozen=True)
class Key:
    """A grouping key: the name of its result column and where it comes from."""

    name: str
    expression: Expression

    def __str__(self) -> str:
        return self.name if self.name == self.expression.text else f"{self.expression} as {self.name}"


@dataclass(frozen=True)
class LatencyTarget:
    """A promise about result latency: `quantile` of the results are visible within `limit` microseconds."""

    limit: int
    quantile: float
    keep: float | None = None
    """Least share of a window's rows that is read under overload; None if all of them are, however late."""


@dataclass(frozen=True)
class Fill:
    """The results of known keys in windows in which they have no rows."""

    zero: bool
    """Whether they are zeros; else the key's last results."""
    for_at_most: Micros | None = None
    """How long after its last window with rows a key is filled in, from end to end; None for ever."""

    def __str__(self) -> str:
        text = "zero" if self.zero else "previous"
        return text if self.for_at_most is None else f"{text} for at most {format_duration(self.for_at_most)}"


@dataclass(frozen=True)
class Total:
    """Results are of all rows up to the end of each window, not of those in it."""

    keys: int | None = None
    """How many keys there may be; None where there are none."""


@dataclass(frozen=True)
class WindowedQuery:
    """Aggregates per key and window over one branch of a stream.

    Raises:
        DefinitionError: Early results, lateness or fill for sessions.
    """

    name: str
    branch: int
    """Index of the stream's chain of transformations; queries with one branch see the same rows."""
    keys: tuple[Key, ...]
    windows: tuple[WindowKind, ...]
    aggregates: tuple[tuple[str, Aggregate], ...]
    """Result column and aggregate."""
    target: LatencyTarget | None = None
    fill: Fill | None = None
    early: Micros | None = None
    """Results of open windows are given so often, in microseconds of wall time; None for never."""
    lateness: Micros = 0
    """Rows that come up to so long (event time, microseconds) after a window's close still correct it."""
    condition: Expression | None = None
    """The rows of the branch that it sees, as a boolean expression; all if None."""
    keeps_rows: bool = False
    """Whether the rows that it sees are kept whole, for a join."""
    steps: tuple[Step, ...] = ()
    """What becomes of the aggregates before they are results."""
    total: Total | None = None
    """Whether results are of all rows so far; then `fill` gives keys without rows in a window what they had."""

    def __post_init__(self) -> None:
        sessions = next((window for window in self.windows if isinstance(window, SessionSpec)), None)
        extra = "fill" if self.fill else "early" if self.early is not None else "lateness"
        if sessions is not None and (self.fill or self.updates):
            raise DefinitionError(
                f"query {self.name!r}: {extra} does not go with sessions ({sessions}), which are emitted once and only "
                "where there are rows.",
                f"Leave out {extra}, or put the sessions into a query of their own.",
            )

    @cached_property
    def pane_windows(self) -> tuple[WindowSpec | CalendarSpec, ...]:
        """The windows that are made of panes: all but sessions."""
        return tuple(window for window in self.windows if not isinstance(window, SessionSpec))

    @cached_property
    def updates(self) -> bool:
        """Whether a window can be emitted more than once."""
        return self.early is not None or self.lateness > 0

    @property
    def passes_rows(self) -> bool:
        """Whether it passes on all rows that it sees, and none is late: its window only counts them."""
        return self.keeps_rows and self.lateness > 0

    @cached_property
    def margin(self) -> Micros:
        """The distance of the watermark beyond the end of its windows, in microseconds, at which they are closed.

        One for a query with sessions: a row at the watermark is in time, and may lie exactly a gap after the last row
        of a session. Its other windows close when its sessions do, so that what is a span of both is one result.
        """
        return 1 if len(self.pane_windows) < len(self.windows) else 0

    @property
    def sheds(self) -> bool:
        """Whether rows may be left out under overload; its results tell how many."""
        return self.target is not None and self.target.keep is not None

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that tell its rows apart, before its steps."""
        return (WINDOW_START, WINDOW_END, *(key.name for key in self.keys))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of its aggregates, before its steps."""
        return (*self.identity, *dict(self.aggregates))

    @property
    def result_columns(self) -> tuple[str, ...]:
        """The columns of its results."""
        return tuple(columns_after(self.steps, self.columns))

    @property
    def result_keys(self) -> tuple[str, ...]:
        """The columns that tell its results apart; none where its steps leave out one of them."""
        return kept_as(self.steps, self.columns, self.identity) or ()

    def closed_by(self, watermark: Micros) -> Micros:
        """Return up to which end its windows are closed, given the watermark."""
        return watermark if watermark in (MIN_TIME, MAX_TIME) else watermark - self.margin

    def late_before(self, watermark: Micros) -> Micros:
        """Return the moment before which a row comes too late for every window, given the watermark."""
        if watermark < MAX_TIME:
            watermark = max(MIN_TIME, watermark - self.lateness)
        closed = self.closed_by(watermark)
        return min(
            window.late_before(watermark if isinstance(window, SessionSpec) else closed) for window in self.windows
        )

    def definition(self, branch: str) -> dict[str, Any]:
        """Return what must not change while a checkpoint is used, as JSON.

        Args:
            branch: Text of the branch's transformations.
        """
        where = {} if self.condition is None else {"where": str(self.condition)}
        sheds = {"on_overload": "shed"} if self.sheds else {}
        steps = {"results": [str(step) for step in self.steps]} if self.steps else {}
        return {
            "rows": branch,
            **where,
            "group_by": [str(key) for key in self.keys],
            "windows": sorted(str(window) for window in self.windows),
            "aggregates": {name: aggregate.describe() for name, aggregate in self.aggregates},
            "fill": None if self.fill is None else str(self.fill),
            "early": None if self.early is None else format_duration(self.early),
            "lateness": format_duration(self.lateness),
            **sheds,
            **steps,
            **({} if self.total is None else {"total": True}),
        }
