"""Windows as values: an illegal window cannot be made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from transom.errors import DefinitionError
from transom.model.time import MAX_TIME, MIN_TIME, Duration, Micros, format_duration, parse_duration

MAX_OVERLAP = 1_000_000
"""More windows than this over one moment is taken for a mistake."""


@dataclass(frozen=True, order=True)
class WindowSpec:
    """Windows [offset + k * slide, offset + k * slide + length) for every integer k; all in microseconds.

    Tumbling when slide equals length. The slide need not divide the length.

    Raises:
        DefinitionError: Length or slide are not positive, or the slide is longer than the length.
    """

    length: Micros
    slide: Micros
    offset: Micros = 0

    def __post_init__(self) -> None:
        if self.length < 1_000:
            raise DefinitionError(
                f"window: the length is {format_duration(self.length)}.", "The shortest window is 1 ms."
            )
        if self.slide <= 0:
            raise DefinitionError(
                f"window: the slide is {format_duration(self.slide)}.", "It must be longer than nothing."
            )
        if self.slide > self.length:
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
        return self.slide == self.length

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

    def __str__(self) -> str:
        text = format_duration(self.length)
        if not self.tumbling:
            text += f" every {format_duration(self.slide)}"
        if self.offset:
            text += f" offset {format_duration(self.offset)}"
        return text


Window: TypeAlias = "str | WindowSpec | Duration"
"""A window as users write it: a length ("5 minutes") for a tumbling one, or what tumbling() and sliding() return."""


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


def window_of(value: Window) -> WindowSpec:
    """Return the window that the user wrote.

    Raises:
        DefinitionError: It counts rows ("100 rows"), or is no duration.
    """
    if isinstance(value, WindowSpec):
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
