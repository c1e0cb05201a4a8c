"""Windows along a calendar as values: hours, days, weeks, months, quarters and years of a named time zone."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import numpy as np

from transom.errors import DefinitionError, did_you_mean
from transom.model.time import MAX_TIME, MICROS_PER_SECOND, MIN_TIME, Micros, format_duration

Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

DAY: Micros = 86_400 * MICROS_PER_SECOND
HOUR: Micros = DAY // 24
UNITS = {"hour": HOUR, "day": DAY, "week": 7 * DAY, "month": 28 * DAY, "quarter": 90 * DAY, "year": 365 * DAY}
"""The units, with the length of the shortest one while no clocks change."""
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MARGIN: Micros = 2 * DAY
"""More than wall clocks differ from UTC (16 hours) and jump (24 hours, where the date line moved)."""
_FIRST_MONDAY = 4
"""Days from 1970-01-01, a Thursday, to the first Monday."""
_CYCLE = 146_097 * 86_400
"""Seconds of 400 years, after which the calendar repeats."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_SECOND = (datetime(1, 1, 2, tzinfo=UTC) - _EPOCH) // timedelta(seconds=1)
_LAST_SECOND = (datetime(9999, 12, 30, tzinfo=UTC) - _EPOCH) // timedelta(seconds=1)


@dataclass(frozen=True)
class CalendarSpec:
    """Windows from one beginning of a unit to the next, by the wall clock of a time zone.

    The n-th edge is the moment at which the zone's clocks show the first midnight of the n-th unit plus the offset, or
    of hours the full hour plus the offset; n is 0 for the unit of 1970-01-01, weeks count from the first `week_start`
    of 1970. A wall time that the clocks skip is moved forward by what they skip, which is the first moment after it
    when they skip from that time on; of a wall time that comes twice the earlier moment counts, but an hour that comes
    twice is two. Windows are the spans between neighbouring edges: a day has 23 or 25 hours when the clocks change, and
    a day that a zone skipped (Samoa, 2011-12-30) is no window. Hours have 60 minutes, except where clocks change by a
    part of one (Lord Howe Island).

    Raises:
        DefinitionError: Unit, zone or first day of the week are unknown, or the offset is as long as the unit.
    """

    unit: str
    zone: str = "UTC"
    offset: Micros = 0
    """By the wall clock, microseconds."""
    week_start: str = "monday"
    """Of weeks only."""

    def __post_init__(self) -> None:
        if str(self.unit).lower().rstrip("s") in ("minute", "second"):
            raise DefinitionError(
                f"calendar window: the unit {self.unit!r} is as long in every zone.",
                'Write tumbling("1 minute"), or the unit "hour".',
            )
        _known(self.unit, tuple(UNITS), "unit", "day")
        _known(self.week_start, WEEKDAYS, "first day of the week", "sunday")
        if self.week_start != "monday" and self.unit != "week":
            raise DefinitionError(
                f"calendar window: {self.unit}s have no first day of the week.", "Leave week_start out."
            )
        try:
            ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, TypeError, OSError) as error:
            zones = {zone.lower(): zone for zone in available_timezones()}
            near = [zones[name] for name in difflib.get_close_matches(str(self.zone).lower(), zones, n=3)]
            raise DefinitionError(
                f"calendar window: there is no time zone {self.zone!r}.",
                f"Did you mean {' or '.join(near)}?" if near else 'Write for example zone="Europe/Copenhagen".',
            ) from error
        if not 0 <= self.offset < UNITS[self.unit]:
            raise DefinitionError(
                f"calendar window: an offset of {format_duration(self.offset)} is not between nothing and the shortest "
                f"{self.unit}, {format_duration(UNITS[self.unit])}.",
                f'Write for example offset="{"15 minutes" if self.unit == "hour" else "4 hours"}".',
            )

    def numbers(self, walls: Numbers) -> Numbers:
        """Return the number of the unit that holds each wall time, given in microseconds as if it were UTC."""
        if self.unit == "hour":
            return (walls - self.offset) // HOUR
        days = (walls - self.offset) // DAY
        if self.unit == "day":
            return days
        if self.unit == "week":
            return (days - self.first_week) // 7
        months: Numbers = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
        return months // {"month": 1, "quarter": 3, "year": 12}[self.unit]

    def edges(self, numbers: Numbers) -> Numbers:
        """Return the moments at which the units with these numbers begin; in no order if some hour comes twice."""
        if self.unit == "hour":
            return self._hours(numbers * HOUR + self.offset)
        if self.unit == "day":
            days = numbers
        elif self.unit == "week":
            days = numbers * 7 + self.first_week
        else:
            months = numbers * {"month": 1, "quarter": 3, "year": 12}[self.unit]
            days = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
        walls = days * DAY + self.offset
        return walls - self._ahead(walls)

    def _hours(self, walls: Numbers) -> Numbers:
        """Return the moments at which the clock shows these times, all of those that it shows twice.

        A time that it skips counts, moved, if no full hour is shown between the jump and then.
        """
        first, second = self._ahead(walls), self._ahead(walls, again=True)
        twice, skipped = first > second, first < second
        moved = walls[skipped] + (second - first)[skipped]
        before = moved - (moved - self.offset) % HOUR
        kept = ~skipped
        kept[skipped] = self._ahead(before) < self._ahead(before, again=True)
        return np.concatenate([(walls - first)[kept], (walls - second)[twice]])

    def _ahead(self, walls: Numbers, again: bool = False) -> Numbers:
        """Return by how much the zone's clock is ahead of UTC when it shows some times."""
        seconds = (walls // MICROS_PER_SECOND).tolist()
        return np.array([_ahead_of_utc(self.zone, second, again) for second in seconds], np.int64) * MICROS_PER_SECOND

    def edges_between(self, low: Micros, high: Micros) -> Numbers:
        """Return every edge between two moments, ascending and each once, and some before and after."""
        first, last = self.numbers(np.array([low - MARGIN, high + MARGIN])).tolist()
        return np.unique(self.edges(np.arange(first, last + 2)))

    def edges_around(self, moments: Numbers) -> Numbers:
        """Return the last edge up to each moment and the first one after it, and some more; ascending, each once.

        O(moments + units between the first and the last of them), or O(moments * log(moments)) if those are more.
        """
        low, high = moments.min(), moments.max()
        if (high - low) // UNITS[self.unit] <= 1_000 + 4 * len(moments):
            return self.edges_between(int(low), int(high))
        steps = range(-MARGIN, MARGIN + 1, min(DAY, UNITS[self.unit]))
        numbers = np.concatenate([self.numbers(moments + step) for step in steps])
        return np.unique(self.edges(np.unique(np.concatenate([numbers, numbers + 1]))))

    def windows(self, moments: Numbers) -> tuple[Numbers, Numbers]:
        """Return start and end of the window that holds each moment."""
        if not len(moments):
            return moments, moments
        edges = self.edges_around(moments)
        at = np.searchsorted(edges, moments, side="right")
        return edges[at - 1], edges[at]

    def late_before(self, watermark: Micros) -> Micros:
        """Return the moment before which a row is in closed windows only, given the watermark."""
        if watermark <= MIN_TIME or watermark >= MAX_TIME:
            return watermark
        return int(self.windows(np.array([watermark]))[0][0])

    def last_end(self, moment: Micros) -> Micros:
        """Return the end of the last window that holds a row of the moment."""
        return int(self.windows(np.array([moment]))[1][0])

    def first_end(self, after: Micros) -> Micros:
        """Return the end of the first window that ends after the moment."""
        return self.last_end(after)

    @property
    def first_week(self) -> int:
        """Number of days from 1970-01-01 to the week with the number 0."""
        return (_FIRST_MONDAY + WEEKDAYS.index(self.week_start)) % 7

    def __str__(self) -> str:
        text = self.unit if self.unit != "week" else f"week from {self.week_start}"
        text += f" in {self.zone}"
        return text + (f" offset {format_duration(self.offset)}" if self.offset else "")


def _known(value: str, known: tuple[str, ...], field: str, example: str) -> None:
    if value not in known:
        raise DefinitionError(
            f"calendar window: the {field} {value!r} is unknown.",
            did_you_mean(str(value).lower(), known, f"Write one of {', '.join(known)}, for example {example!r}."),
        )


@lru_cache(maxsize=200_000)
def _ahead_of_utc(zone: str, wall: int, again: bool = False) -> int:
    """Return the seconds by which a zone's clock is ahead of UTC when it shows a time.

    Args:
        zone: Name of the zone.
        wall: What the clock shows, in seconds since the epoch as if it were UTC.
        again: Whether the second time counts if it comes twice, and not the first one.
    """
    if wall > _LAST_SECOND:
        wall -= -((_LAST_SECOND - wall) // _CYCLE) * _CYCLE
    clock = (_EPOCH + timedelta(seconds=max(wall, _FIRST_SECOND))).replace(tzinfo=ZoneInfo(zone), fold=int(again))
    return (clock.utcoffset() or timedelta()) // timedelta(seconds=1)
