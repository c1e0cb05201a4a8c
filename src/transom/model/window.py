"""Windows as values: an illegal window cannot be made."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from transom.errors import DefinitionError
from transom.model.calendar import UNITS, CalendarSpec, Numbers
from transom.model.expression import Expression, Input
from transom.model.signatures import checked
from transom.model.time import (
    MAX_TIME,
    MICROS_PER_SECOND,
    MIN_TIME,
    Duration,
    Micros,
    format_duration,
    parse_duration,
)
from transom.model.unbounded import Unbounded

MAX_STEPS = 1_500
"""More windows than this of one cumulation are taken for a mistake: each closes by itself."""
MAX_OVERLAP = 1_000_000
"""More windows than this over one moment is taken for a mistake."""


@dataclass(frozen=True, order=True)
class WindowSpec:
    """Fixed windows [offset + k * slide, offset + k * slide + length) for every integer k; all in microseconds.

    Tumbling when slide equals length. The slide need not divide the length.

    Raises:
        DefinitionError: Length or slide are not positive, or the slide is longer than the length without `gaps`.
    """

    length: Micros
    slide: Micros
    offset: Micros = 0
    gaps: bool = False
    """Whether the slide may be longer: other windows hold the rows between these, as with `cumulate`."""

    def __post_init__(self) -> None:
        if self.length < 1_000:
            raise DefinitionError(
                f"window: the length is {format_duration(self.length)}.", "The shortest window is 1 ms."
            )
        if self.slide <= 0:
            raise DefinitionError(
                f"window: the slide is {format_duration(self.slide)}.", "It must be longer than nothing."
            )
        if self.slide > self.length and not self.gaps:
            raise DefinitionError(
                f"window: a slide of {format_duration(self.slide)} is longer than the length of "
                f"{format_duration(self.length)}, so that rows between the windows would never be counted.",
                "Filter those rows out in map() and use a tumbling window, or make the window longer.",
            )
        if self.length > MAX_OVERLAP * self.slide:
            raise DefinitionError(
                f"window: {format_duration(self.length)} sliding by {format_duration(self.slide)} puts every row "
                f"into more than {MAX_OVERLAP:,} windows.",
                "Choose a longer slide.",
            )
        object.__setattr__(self, "offset", self.offset % self.slide)

    @property
    def tumbling(self) -> bool:
        """Whether the windows do not overlap."""
        return self.slide >= self.length

    def last_start(self, moment: Micros) -> Micros:
        """Return the start of the latest window that holds the moment."""
        return moment - (moment - self.offset) % self.slide

    def late_before(self, watermark: Micros) -> Micros:
        """Return the moment before which a row is in closed windows only, given the watermark.

        The latest window of time t ends at last_start(t) + length; it is closed when that is <= watermark.
        """
        if watermark <= MIN_TIME:
            return MIN_TIME
        if watermark >= MAX_TIME:
            return MAX_TIME
        return self.last_start(watermark - self.length) + self.slide

    def last_end(self, moment: Micros) -> Micros:
        """Return the end of the last window that holds a row of the moment."""
        return self.last_start(moment) + self.length

    def first_end(self, after: Micros) -> Micros:
        """Return the end of the first window that ends after the moment."""
        end = self.offset + self.length
        return end + ((after - end) // self.slide + 1) * self.slide

    def __str__(self) -> str:
        text = format_duration(self.length)
        if self.slide != self.length:
            text += f" every {format_duration(self.slide)}"
        if self.offset:
            text += f" offset {format_duration(self.offset)}"
        return text


@dataclass(frozen=True)
class SessionSpec:
    """Windows of activity: the rows of a key, in order of time, up to a pause longer than the gap; microseconds.

    A session is [first row, last row + gap). As in Spark, two rows exactly one gap apart are in one session; so a row
    at the session's end can still join it, and a session is closed when the watermark is after its end.

    With `at_most` a session ends that long after it began, by whole units, and the next row begins another one. With
    `ends_when` it ends with the first moment at which a row satisfies the condition: [first row, that moment], to the
    microsecond, and the next later row begins another one.

    Raises:
        DefinitionError: The gap is not positive, or longer than the longest session.
    """

    gap: Micros
    at_most: Micros | None = None
    """No session is longer; None for no limit."""
    ends_when: Expression | None = None
    """A row that satisfies it is the last of its session, with those of its moment; None for no such rows."""

    def __post_init__(self) -> None:
        if self.gap < 1_000:
            raise DefinitionError(
                f"session window: the gap is {format_duration(self.gap)}.", "The shortest gap is 1 ms."
            )
        if self.at_most is not None and self.at_most < self.gap:
            most, gap = format_duration(self.at_most), format_duration(self.gap)
            raise DefinitionError(
                f"session window: at_most is {most}, shorter than the gap of {gap}, so that no pause would ever end a "
                "session.",
                f'Write session_window("{most}", at_most="{gap}") if they were mixed up.'
                if self.at_most >= 1_000
                else f"Give at least the gap of {gap}.",
            )

    @property
    def unit(self) -> Micros:
        """The unit by which the length of sessions is measured, never longer than the gap.

        Seconds if `at_most` is whole ones, else milliseconds or microseconds.
        """
        most = self.at_most or 0
        return next(unit for unit in (MICROS_PER_SECOND, 1_000, 1) if most % unit == 0 and unit <= self.gap)

    @property
    def grain(self) -> Micros:
        """Rows of a key between two neighbouring multiples of this are in one session, whatever other rows come."""
        if self.ends_when is not None:
            return 1
        return self.gap if self.at_most is None else self.unit

    @property
    def cut(self) -> bool:
        """Whether a session can be over while a row within a gap of its last one can still come."""
        return self.at_most is not None or self.ends_when is not None

    @property
    def key(self) -> str:
        """Name in checkpoints and files."""
        key = str(self.gap) if self.at_most is None else f"{self.gap}-{self.at_most}"
        if self.ends_when is None:
            return key
        return f"{key}-ends-{hashlib.sha256(self.ends_when.text.encode()).hexdigest()[:16]}"

    def limits(self, first: Numbers) -> Numbers:
        """Return the moments from which on rows are not in the sessions that begin with these rows, for `at_most`."""
        return first - first % self.unit + (self.at_most or 0)

    def ends(self, first: Numbers, last: Numbers, ended: Any = False) -> Numbers:
        """Return the ends of sessions, given the times of their first and last rows.

        Args:
            first: Times of the first rows.
            last: Times of the last rows.
            ended: Whether the last row satisfies `ends_when`, for each or for all.
        """
        ends: Numbers = last + self.gap
        ends = ends if self.at_most is None else np.minimum(ends, self.limits(first))
        return ends if self.ends_when is None else np.where(ended, last + 1, ends)

    def late_before(self, watermark: Micros) -> Micros:
        """Return the moment before which a row is late, given the watermark.

        Alone, its session would be closed. With `at_most` or `ends_when` every row behind the watermark is late, since
        it could belong to a session that was cut and is closed.
        """
        if watermark <= MIN_TIME or watermark >= MAX_TIME or self.cut:
            return watermark
        return watermark - self.gap

    def last_end(self, moment: Micros) -> Micros:
        """Return the end of the session whose last row is at the moment, if it is not cut."""
        return moment + self.gap

    def __str__(self) -> str:
        most = "" if self.at_most is None else f", at most {format_duration(self.at_most)}"
        ends = "" if self.ends_when is None else f", ends when {self.ends_when}"
        return f"session {format_duration(self.gap)}{most}{ends}"


@dataclass(frozen=True)
class Cumulation:
    """Windows that grow from the beginning of a period by steps, up to all of it.

    Raises:
        DefinitionError: The step does not divide the period, or does so too often.
    """

    period: Micros
    step: Micros
    offset: Micros = 0

    def __post_init__(self) -> None:
        written = f"cumulate: {format_duration(self.period)} every {format_duration(self.step)}"
        if self.period < 1_000 or self.step < 1_000:
            raise DefinitionError(f"{written}.", "The shortest window is 1 ms.")
        if self.step >= self.period or self.period % self.step:
            raise DefinitionError(
                f"{written} has no whole number of steps.",
                'Let every divide it, as in cumulate("1 day", every="1 hour").',
            )
        if self.period > MAX_STEPS * self.step:
            raise DefinitionError(f"{written} has more than {MAX_STEPS:,} steps.", "Choose longer steps.")

    @property
    def windows(self) -> tuple[WindowSpec, ...]:
        """Its windows, the shortest first."""
        lengths = range(self.step, self.period + 1, self.step)
        return tuple(WindowSpec(n, self.period, self.offset, gaps=n < self.period) for n in lengths)


WindowKind: TypeAlias = "WindowSpec | CalendarSpec | SessionSpec"
"""Every kind has `late_before(watermark)`, `last_end(moment)` and a text that is part of a query's definition."""

Window: TypeAlias = "str | WindowKind | Cumulation | Unbounded | Duration"
"""A window as users write it: a length ("5 minutes") for a tumbling one, or what tumbling() and its like return."""


def tumbling(length: Duration, *, offset: Duration = 0) -> WindowSpec:
    """Return windows of one length, one after the other.

    Args:
        length: For example "5 minutes"; at least 1 ms.
        offset: Moves the edges; with "4 hours" a window of "1 day" runs from 04:00 to 04:00 UTC.
    """
    size = parse_duration(length, "window length")
    return WindowSpec(size, size, parse_duration(offset, "window offset"))


def sliding(length: Duration, every: Duration, *, offset: Duration = 0) -> WindowSpec:
    """Return windows of one length that start every so often, so that they overlap.

    Args:
        length: For example "1 hour".
        every: The slide; at most the length, need not divide it.
        offset: Moves the edges.
    """
    return WindowSpec(
        parse_duration(length, "window length"),
        parse_duration(every, "window slide"),
        parse_duration(offset, "window offset"),
    )


def cumulate(length: Duration, every: Duration, *, offset: Duration = 0) -> Cumulation:
    """Return windows that grow: the day so far, each hour. They all begin with their period.

    Each result holds the rows from the beginning of the period up to `window_end`; the last one holds all of them.

    Args:
        length: The period, for example "1 day".
        every: The step, which divides it, for example "1 hour".
        offset: Moves the beginnings.

    Raises:
        DefinitionError: The step does not divide the period, or does so more than 1,500 times.
    """
    period, step = parse_duration(length, "cumulate length"), parse_duration(every, "cumulate step")
    return Cumulation(period, step, parse_duration(offset, "cumulate offset"))


@checked
def calendar(unit: str, *, zone: str = "UTC", week_start: str | None = None, offset: Duration = 0) -> CalendarSpec:
    """Return windows of a time zone: its days, weeks, months, quarters and years from midnight to midnight, its hours.

    When clocks go back, an hour that comes twice is two windows; a day is one, of 25 hours.

    Args:
        unit: "hour", "day", "week", "month", "quarter" or "year".
        zone: Name of the time zone, for example "Europe/Copenhagen".
        week_start: First day of weeks, "monday" if not given.
        offset: Moves the edges along the wall clock; with "4 hours" a day runs from 04:00 to 04:00 local time.

    Raises:
        DefinitionError: Unit, zone or first day of the week are unknown, or the offset is as long as the unit.
    """
    if week_start is not None and unit != "week" and unit in UNITS:
        raise DefinitionError(f"calendar window: {unit}s have no first day of the week.", "Leave week_start out.")
    return CalendarSpec(unit, zone, parse_duration(offset, "calendar window offset"), week_start or "monday")


def session_window(gap: Duration, *, at_most: Duration | None = None, ends_when: Input | None = None) -> SessionSpec:
    """Return windows of activity: a session of a key ends when no row follows for longer than the gap.

    The window of a result is [first row, last row + gap). A session is complete when the watermark is after its end,
    and a row is late when the watermark is after its time plus the gap: whichever micro-batches the rows came in, those
    that are never behind the watermark make the same sessions. A row that is behind it and not late may join
    sessions that are open, never one that was emitted.

    With `at_most` the rows that follow after so long are in another session, which begins with the first of them: the
    window is [first row, the earlier of last row + gap and first row + at_most). Lengths are measured by whole seconds:
    a session that begins at 12:00:00.7 and lasts at most 2 hours takes no row from 14:00:00 on. If the gap is shorter
    than a second, or `at_most` is not whole seconds, it is milliseconds or microseconds.

    With `ends_when` a session ends with the first row that satisfies the condition, and the next row begins another
    one. All rows of the key at that microsecond belong to the session that ends, so that the order in which they came
    makes no difference; the window is [first row, 1 microsecond after that row). A condition that is null ends nothing.
    With either of them every row behind the watermark is late.

    Args:
        gap: For example "30 minutes"; at least 1 ms.
        at_most: The longest session, for example "2 hours"; at least the gap. Not given, a session can go on forever.
        ends_when: SQL text or a Column over the columns of a row, as in `where`, for example "event = 'logout'".

    Raises:
        DefinitionError: The gap is shorter than 1 ms, or longer than `at_most`; `ends_when` is no condition.
    """
    longest = None if at_most is None else parse_duration(at_most, "session at_most")
    ends = None if ends_when is None else Expression.of(ends_when, "session ends_when")
    return SessionSpec(parse_duration(gap, "session gap"), longest, ends)


def windows_of(value: Window) -> tuple[WindowKind, ...]:
    """Return the windows that the user wrote as one.

    Raises:
        DefinitionError: As `window_of`.
    """
    return value.windows if isinstance(value, Cumulation) else (window_of(value),)


def windows_text(windows: Sequence[WindowKind]) -> list[str]:
    """Return windows for people, those of one cumulation together.

    >>> windows_text([*cumulate("1 day", "6 hours").windows, tumbling("1 hour")])
    ['6 hours to 1 day from its beginning', '1 hour']
    """
    found: list[str] = []
    parts = [window for window in windows if isinstance(window, WindowSpec) and window.gaps]
    shortest = {(part.slide, part.offset): part.length for part in sorted(parts, reverse=True)}
    for window in windows:
        period = (window.slide, window.offset) if isinstance(window, WindowSpec) else (0, 0)
        if not isinstance(window, WindowSpec) or period not in shortest or window.length > window.slide:
            found.append(str(window))
        elif window.length == shortest[period]:
            text = f"{format_duration(window.length)} to {format_duration(window.slide)} from its beginning"
            found.append(text + (f" offset {format_duration(window.offset)}" if window.offset else ""))
    return found


def window_of(value: Window) -> WindowKind:
    """Return the window that the user wrote.

    Raises:
        DefinitionError: It counts rows ("100 rows"), is no duration, or stands for several.
    """
    if isinstance(value, Unbounded):
        raise DefinitionError(
            "window: what unbounded returns never ends, and goes with no other window, nor with a join.",
            "Give it alone, in a query of its own: window(tm.unbounded(...)).",
        )
    if isinstance(value, Cumulation):
        raise DefinitionError(
            "window: what cumulate returns is several windows, and here is one.", "Give one window, such as its last."
        )
    if isinstance(value, (WindowSpec, CalendarSpec, SessionSpec)):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        raise DefinitionError(
            f"window: {value} has no unit.",
            'Write a duration such as "5 minutes"; windows over a number of rows do not exist here, because the '
            "order of rows across partitions is not defined.",
        )
    if isinstance(value, str) and any(word in value.lower() for word in ("row", "record", "event", "count")):
        raise DefinitionError(
            f"window: {value!r} counts rows, which have no defined order across partitions.",
            'Use a window over time, such as "10 seconds", and count() to see how many rows it held.',
        )
    return tumbling(value)
