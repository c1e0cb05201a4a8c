"""Ticks: the moments at which sites cut their streams and flows leave, the same at all sites."""

from __future__ import annotations

from dataclasses import dataclass

from transom.errors import DefinitionError
from transom.model.time import MICROS_PER_SECOND, Micros


@dataclass(frozen=True)
class Ticks:
    """The ticks of a site, by its wall clock.

    >>> ticks = Ticks(2_000_000)
    >>> ticks.number(7_000_000), ticks.start(3)
    (3, 6000000)
    """

    length: Micros = MICROS_PER_SECOND
    """Microseconds from one to the next."""
    offset: Micros = 0
    """The site begins its cuts so long after each tick, so that not all sites compute at once."""

    def __post_init__(self) -> None:
        if self.length < 1 or not 0 <= self.offset < self.length:
            raise DefinitionError(
                f"The tick is {self.length} us and the site's offset {self.offset} us.",
                "A tick is longer than nothing, and the offset is shorter than a tick.",
            )

    def number(self, now: Micros) -> int:
        """Return the number of the last tick at a wall time."""
        return (now - self.offset) // self.length

    def start(self, number: int) -> Micros:
        """Return the wall time of a tick."""
        return number * self.length + self.offset
