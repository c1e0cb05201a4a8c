"""Times and durations: integer microseconds, and the only place that reads the system clock."""

from __future__ import annotations

import heapq
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Protocol, TypeAlias

from transom.errors import DefinitionError, short

Micros: TypeAlias = int
"""Microseconds; since the epoch (UTC) when it is a moment."""

Duration: TypeAlias = "str | timedelta | int"
"""A length of time as users write it: "30 seconds", timedelta(minutes=5), or microseconds."""

MICROS_PER_SECOND = 1_000_000
MIN_TIME: Micros = -(1 << 62)
"""Before every event time: the watermark of a stream that has seen nothing."""
MAX_TIME: Micros = (1 << 62) - 1
"""After every event time: the watermark that closes all windows."""
FIRST_EVENT: Micros = -(1 << 61)
LAST_EVENT: Micros = (1 << 61) - 1
"""Event times that are taken, the years -71100 to 75000: what is computed from them, such as the ends of windows, lies
between MIN_TIME and MAX_TIME, and so within 64 bits, as no duration is longer than LONGEST."""
LONGEST: Micros = 1 << 58
"""About 9,100 years."""

_UNITS: dict[str, Micros] = {}
for _names, _length in {
    "us micro micros microsecond microseconds": 1,
    "ms milli millis millisecond milliseconds": 1_000,
    "s sec secs second seconds": MICROS_PER_SECOND,
    "m min mins minute minutes": 60 * MICROS_PER_SECOND,
    "h hr hrs hour hours": 3_600 * MICROS_PER_SECOND,
    "d day days": 86_400 * MICROS_PER_SECOND,
    "w week weeks": 7 * 86_400 * MICROS_PER_SECOND,
}.items():
    for _name in _names.split():
        _UNITS[_name] = _length

_PART = re.compile(r"\s*(\d{1,40}(?:\.\d{1,40})?)\s*([a-z]+)\s*,?")


def parse_duration(value: Duration, field: str) -> Micros:
    """Return a duration in microseconds.

    Args:
        value: "10 seconds", "1 hour 30 minutes", "250ms", a timedelta, or microseconds.
        field: What the duration is for, named in the error.

    Raises:
        DefinitionError: The text is not a duration, or names months or years, whose length varies, or it is longer than
            LONGEST.

    >>> parse_duration("1 hour 30 minutes", "window")
    5400000000
    """
    micros = _parsed(value, field)
    if abs(micros) > LONGEST:
        raise DefinitionError(f"{field}: {short(value)} is longer than 9,000 years.", "Give a shorter duration.")
    return micros


def _parsed(value: Duration, field: str) -> Micros:
    if isinstance(value, bool):
        raise DefinitionError(f"{field}: {short(value)} is not a duration.", 'Write for example "30 seconds".')
    if isinstance(value, int):
        return value
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if not isinstance(value, str):
        raise DefinitionError(f"{field}: {short(value)} is not a duration.", 'Write for example "30 seconds".')
    text = value.strip().lower()
    sign = -1 if text.startswith("-") else 1
    text = text.lstrip("+-")
    total, position = Fraction(0), 0
    while position < len(text):
        match = _PART.match(text, position)
        if match is None:
            raise DefinitionError(f"{field}: {short(value)} is not a duration.", 'Write for example "30 seconds".')
        number, unit = match.groups()
        if unit.rstrip("s") in ("month", "mon", "year", "yr", "y"):
            raise DefinitionError(
                f"{field}: {short(value)} has no fixed length.", 'Write days, for example "30 days" or "365 days".'
            )
        if unit not in _UNITS:
            raise DefinitionError(
                f"{field}: {short(value)} has the unknown unit {unit!r}.",
                "Units are us, ms, seconds, minutes, hours, days and weeks.",
            )
        total += Fraction(number) * _UNITS[unit]
        position = match.end()
    if not text:
        raise DefinitionError(f"{field}: the duration is empty.", 'Write for example "30 seconds".')
    return sign * round(total)


def format_duration(micros: Micros) -> str:
    """Return a duration as a person writes it.

    >>> format_duration(5_400_000_000)
    '1 hour 30 minutes'
    >>> format_duration(1_500_000)
    '1 second 500 ms'
    """
    if micros == 0:
        return "0 seconds"
    parts, rest = [], abs(micros)
    for name, unit in (
        ("day", 86_400 * MICROS_PER_SECOND),
        ("hour", 3_600 * MICROS_PER_SECOND),
        ("minute", 60 * MICROS_PER_SECOND),
        ("second", MICROS_PER_SECOND),
        ("ms", 1_000),
        ("us", 1),
    ):
        count, rest = divmod(rest, unit)
        if count:
            plural = "" if count == 1 or name in ("ms", "us") else "s"
            parts.append(f"{count} {name}{plural}")
    return ("-" if micros < 0 else "") + " ".join(parts)


def format_time(moment: Micros) -> str:
    """Return a moment as ISO 8601 in UTC, or a word where no calendar date exists.

    >>> format_time(0)
    '1970-01-01T00:00:00Z'
    """
    if moment <= MIN_TIME:
        return "none yet"
    if moment >= MAX_TIME:
        return "end of time"
    try:
        text = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=moment)).isoformat()
    except OverflowError:
        return f"{moment} us"
    return text.replace("+00:00", "Z")


class Clock(Protocol):
    """A source of the time; passed in, so that tests decide.

    The wall time is what people and other machines go by: it dates rows, and may jump when the machine's clock is set.
    How long something took or has to wait is a difference of two monotonic times, never of two wall times.
    """

    def now(self) -> Micros:
        """Return the wall time in microseconds since the epoch."""

    def monotonic(self) -> Micros:
        """Return microseconds since an arbitrary moment of this process; never goes back, whatever the wall time."""

    def wait(self, until: Micros, wake: Callable[[Micros], bool]) -> None:
        """Return when the monotonic time `until` has come, or earlier when `wake(timeout in microseconds)` is true."""


class SystemClock:
    """The machine's clocks."""

    def now(self) -> Micros:
        """Return the wall time in microseconds since the epoch."""
        return time.time_ns() // 1_000

    def monotonic(self) -> Micros:
        """Return microseconds for measuring how long something takes."""
        return time.monotonic_ns() // 1_000

    def wait(self, until: Micros, wake: Callable[[Micros], bool]) -> None:
        """Block in `wake` until the monotonic time has come."""
        timeout = until - self.monotonic()
        if timeout > 0:
            wake(timeout)


class ManualClock:
    """A clock that stands still until it is told; waiting moves it. Both its times are equal until `step`."""

    def __init__(self, now: Micros = 0) -> None:
        self._monotonic = now
        self._ahead = 0

    def now(self) -> Micros:
        """Return the wall time that it was set to."""
        return self._monotonic + self._ahead

    def monotonic(self) -> Micros:
        """Return how far it was moved forward, from where it began."""
        return self._monotonic

    def advance(self, by: Micros) -> None:
        """Let so many microseconds pass."""
        self._monotonic += by

    def step(self, by: Micros) -> None:
        """Set the wall time forward or back by microseconds, as NTP may do; no time passes."""
        self._ahead += by

    def wait(self, until: Micros, wake: Callable[[Micros], bool]) -> None:
        """Let `wake` look once without blocking, then jump to the monotonic time."""
        wake(0)
        self._monotonic = max(self._monotonic, until)


class VirtualClock(ManualClock):
    """A clock that waiting moves from one thing on its agenda to the next.

    Used by one thread; others may only read the time.
    """

    def __init__(self, now: Micros = 0) -> None:
        super().__init__(now)
        self._agenda: list[tuple[Micros, int, Callable[[], object]]] = []
        self._noted = 0

    def at(self, moment: Micros, action: Callable[[], object]) -> None:
        """Do something when a monotonic time has come; things of one moment in the order in which they were noted."""
        heapq.heappush(self._agenda, (moment, self._noted, action))
        self._noted += 1

    def wait(self, until: Micros, wake: Callable[[Micros], bool]) -> None:
        """Return at once when woken; else go on to the agenda's next moment or `until`, and do what is due."""
        if wake(0):
            return
        moment = min([until, *(entry[0] for entry in self._agenda[:1])])
        self._monotonic = max(self._monotonic, moment)
        while self._agenda and self._agenda[0][0] <= self._monotonic:
            heapq.heappop(self._agenda)[2]()
