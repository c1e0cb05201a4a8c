"""Joins of the kept rows of two streams: within windows, or within a bound of each other's times."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transom.engine.spark.columns import TIME, is_case_sensitive
from transom.engine.spark.rows import IN_FORCE
from transom.errors import DefinitionError
from transom.model.calendar import CalendarSpec
from transom.model.joinkind import ANTI, FULL, INNER, LEFT, RIGHT, SEMI, join_kind
from transom.model.time import Micros, format_duration
from transom.model.window import SessionSpec, WindowKind
from transom.windows.calendars import calendar_start_sql
from transom.windows.joining import LEFT_SIDE, RIGHT_SIDE, WINDOW, IntervalTimes, JoinTimes, WindowTimes

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

WINDOW_START, WINDOW_END = "window_start", "window_end"
KINDS = (INNER, LEFT, RIGHT, FULL, SEMI, ANTI)
_TIMES = "l_time", "r_time"


@dataclass(frozen=True)
class StreamJoin(ABC):
    """A join of two streams on equal keys; null equals nothing.

    Raises:
        DefinitionError: No keys, or a kind or an event time that is unknown or cannot be had.
    """

    on: tuple[str, ...]
    how: str
    times: JoinTimes

    def __post_init__(self) -> None:
        if not self.on or not all(isinstance(name, str) for name in self.on):
            raise DefinitionError(f"join: on={self.on!r} names no columns.", 'Write for example on=["ad_id"].')

    @property
    def timed(self) -> bool:
        """Whether joined rows have the event time of a side; it is then a column of theirs, TIME."""
        return True

    @abstractmethod
    def apply(self, left: DataFrame, right: DataFrame, windows: DataFrame) -> DataFrame:
        """Return the joined rows of some windows: the keys, the other columns of the left side, those of the right.

        Args:
            left: Columns, TIME and IN_FORCE.
            right: The same of the other side.
            windows: Columns `start` and `end` (bigint, microseconds) of the windows to join.

        Raises:
            DefinitionError: A key is missing, or two columns would have one name.
        """

    def _columns(self, left: DataFrame, right: DataFrame) -> tuple[Column, list[Column]]:
        """Return the condition that keys are equal, and the columns of joined rows, of columns l0, l1, ..., r0, ...

        Raises:
            DefinitionError: A key is missing.
        """
        from pyspark.sql import functions as F

        case_sensitive = is_case_sensitive(left)
        keys = [
            [_index(name, df.columns, side, case_sensitive) for name in self.on]
            for df, side in ((left, "left"), (right, "right"))
        ]
        equal = F.expr(" AND ".join(f"l{i} = r{k}" for i, k in zip(*keys, strict=True)))
        columns = [self._key(i, k).alias(name) for i, k, name in zip(*keys, self.on, strict=True)]
        for df, prefix, own in ((left, "l", keys[0]), (right, "r", keys[1])):
            names = [name for name in df.columns if name not in (TIME, IN_FORCE)]
            if prefix == "l" or self.how not in (SEMI, ANTI):
                columns += [F.col(f"{prefix}{i}").alias(name) for i, name in enumerate(names) if i not in own]
        return equal, columns

    def _key(self, left: int, right: int) -> Column:
        """Return a key of joined rows, as a join of Spark with USING has it."""
        from pyspark.sql import functions as F

        mine, theirs = F.col(f"l{left}"), F.col(f"r{right}")
        return F.coalesce(mine, theirs) if self.how == FULL else theirs if self.how == RIGHT else mine

    def _time(self, time: str) -> Column:
        """Return the event time of joined rows, that of one side, or of the other where a row has none."""
        from pyspark.sql import functions as F

        if self.how in (SEMI, ANTI):
            return F.col("l_time").alias(TIME)
        first, second = _TIMES if time == LEFT_SIDE else reversed(_TIMES)
        return F.coalesce(first, second).alias(TIME)


@dataclass(frozen=True)
class WindowJoin(StreamJoin):
    """A join of the rows in each window; see `window_join`."""

    times: WindowTimes

    def __str__(self) -> str:
        time = "" if self.times.time == WINDOW else f", event time of the {self.times.time} side"
        return f"on {', '.join(self.on)} within {self.times.window}{time}"

    @property
    def timed(self) -> bool:
        """Whether joined rows have the event time of a side."""
        return self.times.time != WINDOW

    def apply(self, left: DataFrame, right: DataFrame, windows: DataFrame) -> DataFrame:
        """Return the joined rows, with `window_start` and `window_end` before their columns."""
        from pyspark.sql import functions as F

        equal, columns = self._columns(left, right)
        sides = [self._in_windows(left, "l", windows), self._in_windows(right, "r", windows)]
        joined = sides[0].join(sides[1], F.expr("l_start = r_start") & equal, self.how)

        def bound(name: str) -> Column:
            found = F.col(f"l_{name}") if self.how in (SEMI, ANTI) else F.coalesce(f"l_{name}", f"r_{name}")
            return F.timestamp_micros(found)

        times = [self._time(self.times.time)] if self.timed else []
        return _distinct(
            joined.select(bound("start").alias(WINDOW_START), bound("end").alias(WINDOW_END), *columns, *times)
        )

    def _starts_sql(self) -> str:
        """Return the starts of the windows that hold TIME, as a SQL array."""
        window = self.times.window
        if isinstance(window, CalendarSpec):
            return f"array({calendar_start_sql(window, TIME)})"
        assert not isinstance(window, SessionSpec)
        length, slide, offset = window.length, window.slide, window.offset
        last = f"({TIME} - pmod({TIME} - {offset}L, {slide}L))"
        if window.tumbling:
            return f"array({last})"
        return f"filter(sequence({last}, {last} - {length}L, -{slide}L), s -> s + {length}L > {TIME})"

    def _in_windows(self, rows: DataFrame, prefix: str, windows: DataFrame) -> DataFrame:
        """Return the rows once per window that they are in time for; columns l0, ..., l_start, l_end, l_time (or r)."""
        from pyspark.sql import functions as F

        count = len(rows.columns) - 2
        named = rows.toDF(*[f"{prefix}{i}" for i in range(count)], TIME, IN_FORCE)
        start, end = f"{prefix}_start", f"{prefix}_end"
        exploded = named.withColumn(start, F.explode(F.expr(self._starts_sql())))
        due = windows.toDF(start, end)
        found = exploded.join(F.broadcast(due), start).where(f"{IN_FORCE} < {end}").drop(IN_FORCE)
        return found.withColumnRenamed(TIME, f"{prefix}_time")


@dataclass(frozen=True)
class IntervalJoin(StreamJoin):
    """A join of rows whose times are within bounds of each other; see `interval_join`."""

    times: IntervalTimes

    def __str__(self) -> str:
        times = self.times
        after = "" if times.low >= 0 or times.high <= 0 else " before"
        bounds = f"{format_duration(abs(times.low))}{after} to {format_duration(abs(times.high))}"
        where = "before" if times.high <= 0 and times.low < 0 else "after"
        return f"on {', '.join(self.on)}, right {bounds} {where} left, event time of the {times.time} side"

    def apply(self, left: DataFrame, right: DataFrame, windows: DataFrame) -> DataFrame:
        """Return the joined rows that some slices give out: pairs by their later row, others when they are decided."""
        from pyspark.sql import functions as F

        equal, columns = self._columns(left, right)
        one, other = self._in_time(left, "l"), self._in_time(right, "r")
        times = self.times
        near = equal & F.expr(f"r_time BETWEEN l_time + {times.low}L AND l_time + {times.high}L")
        columns = [*columns, self._time(times.time)]
        parts = []
        if times.pairs and times.high >= 0:  # the right one is later
            later = self._of(other, F.col("r_time"), windows)
            parts.append(later.join(one, near & F.expr("l_time <= r_time")).select(*columns))
        if times.pairs and times.low < 0:
            later = self._of(one, F.col("l_time"), windows)
            parts.append(later.join(other, near & F.expr("r_time < l_time")).select(*columns))
        for decides, after, mine, theirs, time in zip(
            times.deciding, times.after, (one, other), (other, one), _TIMES, strict=True
        ):
            if decides:
                alone = self._of(mine, F.col(time) + after, windows)
                found = alone.join(theirs, near, SEMI if self.how == SEMI else ANTI)
                nothing = (
                    []
                    if self.how in (SEMI, ANTI)
                    else [F.lit(None).cast(field.dataType).alias(field.name) for field in theirs.schema]
                )
                parts.append(found.select("*", *nothing).select(*columns))
        return functools.reduce(lambda a, b: a.unionByName(b), map(_distinct, parts))

    def _in_time(self, rows: DataFrame, prefix: str) -> DataFrame:
        """Return the rows that were in time for their slice; columns l0, l1, ..., l_time (or r)."""
        count, seen = len(rows.columns) - 2, in_time(rows, self.times.window.length)
        return seen.toDF(*[f"{prefix}{i}" for i in range(count)], f"{prefix}_time")

    def _of(self, rows: DataFrame, moment: Column, windows: DataFrame) -> DataFrame:
        """Return the rows of which a moment lies in one of the slices."""
        from pyspark.sql import functions as F

        due, length = windows.select(F.col("start").alias("_slice")), F.lit(self.times.window.length)
        sliced = rows.withColumn("_slice", moment - F.pmod(moment, length))
        return sliced.join(F.broadcast(due), "_slice", SEMI).drop("_slice")


def in_time(rows: DataFrame, length: Micros) -> DataFrame:
    """Return the kept rows that were in time for their slice of event time, without IN_FORCE."""
    return rows.where(f"{IN_FORCE} < {TIME} - pmod({TIME}, {length}L) + {length}L").drop(IN_FORCE)


def window_join(on: Sequence[str], window: WindowKind, how: str, time: str | None) -> WindowJoin:
    """Return the join of the rows in each window; by default the event time of joined rows is the end of the window.

    Raises:
        DefinitionError: It cannot work.
    """
    if isinstance(window, SessionSpec):
        raise DefinitionError(
            f"join: {window} depends on the rows.", "Join within tumbling, sliding or calendar windows."
        )
    kind = join_kind(how, KINDS)
    return WindowJoin(tuple(on), kind, WindowTimes(window, kind, _time_of(time or WINDOW, kind, (WINDOW,))))


def interval_join(on: Sequence[str], low: Micros, high: Micros, how: str, time: str | None) -> IntervalJoin:
    """Return the join of rows of which the right one is `low` to `high` later than the left one.

    Raises:
        DefinitionError: It cannot work.
    """
    if low > high:
        raise DefinitionError(
            f"join: between {format_duration(low)} and {format_duration(high)} is nothing.",
            'Give the smaller one first, as in between=("0 seconds", "2 hours").',
        )
    kind = join_kind(how, KINDS)
    return IntervalJoin(tuple(on), kind, IntervalTimes(low, high, kind, _time_of(time or LEFT_SIDE, kind, ())))


def _time_of(time: str, kind: str, more: tuple[str, ...]) -> str:
    possible = (*more, LEFT_SIDE, *(() if kind in (SEMI, ANTI) else (RIGHT_SIDE,)))
    if time not in possible:
        raise DefinitionError(
            f"join: event_time={time!r} cannot be had for a {kind} join.",
            f"Give {' or '.join(map(repr, possible))}: whose event time the joined rows have.",
        )
    return time


def _distinct(joined: DataFrame) -> DataFrame:
    """Return joined rows whose columns all have different names.

    Raises:
        DefinitionError: Two have the same.
    """
    folded = [name if is_case_sensitive(joined) else name.lower() for name in joined.columns]
    for name, key in zip(joined.columns, folded, strict=True):
        if folded.count(key) > 1:
            raise DefinitionError(
                f"join: there would be two columns {name!r}.", "Rename one of them with map() before the join."
            )
    return joined


def _index(name: str, columns: Sequence[str], side: str, case_sensitive: bool) -> int:
    for i, column in enumerate(columns):
        if column == name or (not case_sensitive and column.lower() == name.lower()):
            return i
    raise DefinitionError(
        f"join: the {side} side has no column {name!r}.",
        f"Its columns are {', '.join(c for c in columns if c not in (TIME, IN_FORCE))}.",
    )
