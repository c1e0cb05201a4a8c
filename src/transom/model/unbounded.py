"""Totals since the beginning, as users ask for them."""

from __future__ import annotations

from dataclasses import dataclass

from transom.errors import DefinitionError
from transom.model.time import Duration, Micros, format_duration, parse_duration


@dataclass(frozen=True)
class Unbounded:
    """All rows so far, at each multiple of a step.

    Raises:
        DefinitionError: The step or the number of keys makes no sense.
    """

    every: Micros
    keys: int | None = None

    def __post_init__(self) -> None:
        if self.every < 1_000:
            raise DefinitionError(f"unbounded: every is {format_duration(self.every)}.", "The shortest step is 1 ms.")
        if self.keys is not None and (isinstance(self.keys, bool) or not isinstance(self.keys, int) or self.keys < 1):
            raise DefinitionError(f"unbounded: keys is {self.keys!r}.", "Give how many keys there may be at most.")


def unbounded(every: Duration, *, keys: int | None = None) -> Unbounded:
    """Return what gives totals since the beginning: at each multiple of a step, the aggregates of all rows so far.

    Each key has a result at each multiple, from its first rows on, whether rows came since the last one or not.
    `window_end` is that moment, `window_start` the one before; rows are late when the watermark has passed their step.
    Of each key one state is kept for ever, on the driver.

    Args:
        every: For example "1 minute".
        keys: How many keys there may be at most; with more the query fails. Needed after `group_by`.

    Raises:
        DefinitionError: The step or the number of keys makes no sense.
    """
    return Unbounded(parse_duration(every, "unbounded every"), keys)
