"""Functions of times, as Spark computes them, where the wall clock is that of UTC.

A function returns None for a term that only Spark computes.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from transom.native.computing import Computation, Function, Reached, Value, constant_text, where
from transom.native.terms import Term

UTC = frozenset(["UTC", "Etc/UTC", "GMT", "Etc/GMT", "Z", "+00:00", "Zulu", "Etc/Zulu", "Universal", "Etc/Universal"])
DAY = 86_400_000_000
_WALL = pa.timestamp("us")
_MICROS = {
    "SecondsToTimestamp": 1_000_000,
    "MillisToTimestamp": 1_000,
    "MicrosToTimestamp": 1,
    "UnixSeconds": 1_000_000,
    "UnixMillis": 1_000,
    "UnixMicros": 1,
}
"""Microseconds of the units that times are counted in."""
_FIELDS: dict[str, Callable[[Value], Value]] = {
    "Year": lambda time: pc.year(time),
    "Quarter": lambda time: pc.quarter(time),
    "Month": lambda time: pc.month(time),
    "DayOfMonth": lambda time: pc.day(time),
    "DayOfYear": lambda time: pc.day_of_year(time),
    "DayOfWeek": lambda time: pc.day_of_week(time, count_from_zero=False, week_start=7),
    "WeekDay": lambda time: pc.day_of_week(time, count_from_zero=True, week_start=1),
    "WeekOfYear": lambda time: pc.iso_week(time),
    "Hour": lambda time: pc.hour(time),
    "Minute": lambda time: pc.minute(time),
    "Second": lambda time: pc.second(time),
}
_UNITS = {
    "YEAR": "year",
    "YYYY": "year",
    "YY": "year",
    "QUARTER": "quarter",
    "MONTH": "month",
    "MON": "month",
    "MM": "month",
    "WEEK": "week",
    "DAY": "day",
    "DD": "day",
    "HOUR": "hour",
    "MINUTE": "minute",
    "SECOND": "second",
    "MILLISECOND": "millisecond",
}
"""Units to which times are truncated, by Spark's names; dates only to the first ones."""
_WRITTEN = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_PART = re.compile("|".join(f"{part}(?!{part[0]})" for part in _WRITTEN))
_FORM = re.compile(rf"(?:{_PART.pattern}|'T'(?!')|[-/:., _])+")
"""Patterns of times as texts that are known here: more of the same letter are another part, such as a month's name, and
a quotation mark behind another one is a letter."""
_YEAR_1900, _YEAR_10000 = -2_208_988_800, 253_402_300_800  # pa.scalar imports pandas, which takes half a second
_OF_DATES = frozenset(["year", "quarter", "month", "week"])


def moment(of: Computation, term: Term, reached: Reached) -> Value:
    """Return the moment that a whole number of seconds or parts of them names; too large a number is an error."""
    (child,) = term.children
    if kinds.is_float64(child.type) and term.kind == "SecondsToTimestamp":
        return of_parts(of, term, reached)
    if not kinds.is_integer(child.type):
        return None
    number = of.value(child, reached).cast(pa.int64())
    if (unit := _MICROS[term.kind]) > 1:
        number = pc.multiply_checked(where(reached, number), pa.scalar(unit, pa.int64()))
    return number.cast(term.type)


def of_parts(of: Computation, term: Term, reached: Reached) -> Value:
    """Return the moment that a double of seconds names; what is behind the microseconds is cut off."""
    micros = pc.multiply(of.value(term.children[0], reached), pa.scalar(1e6))
    micros = of.ground.certain(term, micros, pc.less(pc.abs(micros), pa.scalar(2.0**63)), reached)
    return pc.trunc(micros).cast(pa.int64()).cast(term.type)


def number_of(of: Computation, term: Term, reached: Reached) -> Value:
    """Return the whole seconds, or parts of them, from the epoch to a moment; those before it count down."""
    return floored(of.value(term.children[0], reached), _MICROS[term.kind])


def floored(time: Value, unit: int) -> Value:
    """Return how many whole units, in microseconds, a time is after the epoch."""
    micros = time.cast(pa.int64())
    if unit == 1:
        return micros
    whole = pc.divide(micros, pa.scalar(unit, pa.int64()))
    below = pc.greater(pc.multiply(whole, pa.scalar(unit, pa.int64())), micros)
    return pc.subtract(whole, below.cast(pa.int64()))


def unix_time(of: Computation, term: Term, reached: Reached) -> Value:
    """Return the whole seconds between the epoch and a moment; those before it count up, unlike `unix_seconds`."""
    time = term.children[0]
    if not is_moment(time.type):
        return None
    return pc.divide(of.value(time, reached).cast(pa.int64()), pa.scalar(1_000_000, pa.int64()))


def part_of(of: Computation, term: Term, reached: Reached) -> Value:
    """Return the year, the hour, or another field of a date or time."""
    (child,) = term.children
    if is_moment(child.type) and term.value not in UTC:
        return None
    if not (is_moment(child.type) or kinds.is_date32(child.type)):
        return None
    return _FIELDS[term.kind](wall(of.value(child, reached), child.type)).cast(term.type)


def truncated(of: Computation, term: Term, reached: Reached) -> Value:
    """Return the beginning of the hour, or of another unit, of a date or time."""
    time, by = term.children if term.kind == "TruncDate" else term.children[::-1]
    unit = _UNITS.get((constant_text(by) or "").upper())
    if unit is None or (term.kind == "TruncDate" and unit not in _OF_DATES):
        return None
    if term.kind == "TruncTimestamp" and term.value not in UTC:
        return None
    found = pc.floor_temporal(wall(of.value(time, reached), time.type), 1, unit, week_starts_monday=True)
    return found if term.kind == "TruncDate" else found.cast(pa.int64()).cast(term.type)


def written(of: Computation, term: Term, reached: Reached) -> Value:
    """Return a moment, or seconds from the epoch, as a text: years have four digits, and all calendars are one."""
    time, by = term.children
    form = constant_text(by) or ""
    if term.value not in UTC or not _FORM.fullmatch(form):
        return None
    if not is_moment(time.type) and not kinds.is_int64(time.type):
        return None
    value = of.value(time, reached)
    seconds = floored(value, 1_000_000) if is_moment(time.type) else value
    known = pc.and_kleene(pc.greater_equal(seconds, pa.scalar(_YEAR_1900)), pc.less(seconds, pa.scalar(_YEAR_10000)))
    seconds = of.ground.certain(term, seconds, known, reached).cast(pa.timestamp("s"))
    return pc.strftime(seconds, _PART.sub(lambda found: _WRITTEN[found[0]], form).replace("'", ""), locale="C")


def days_between(of: Computation, term: Term, reached: Reached) -> Value:
    """Return the days from one date to another."""
    end, start = (value.cast(pa.int32()) for value in of.values(term, reached))
    return pc.subtract(end, start)


def is_moment(kind: pa.DataType) -> bool:
    """Tell whether a type is that of Spark's `timestamp`."""
    return bool(kinds.is_timestamp(kind) and kind.tz is not None)


def wall(time: Value, kind: pa.DataType) -> Value:
    """Return a time as UTC's wall clock shows it, for which Arrow looks into no table of zones."""
    return time.cast(pa.int64()).cast(_WALL) if kinds.is_timestamp(kind) else time


FUNCTIONS: dict[str, Function] = {
    **{kind: moment for kind in _MICROS if kind.endswith("ToTimestamp")},
    **{kind: number_of for kind in _MICROS if kind.startswith("Unix")},
    **dict.fromkeys(_FIELDS, part_of),
    "UnixTimestamp": unix_time,
    "ToUnixTimestamp": unix_time,
    "TruncTimestamp": truncated,
    "TruncDate": truncated,
    "DateDiff": days_between,
    "DateFormatClass": written,
    "FromUnixTime": written,
}
