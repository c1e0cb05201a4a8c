"""The newest results as a line of words."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from transom.model.time import Clock, Micros

if TYPE_CHECKING:
    import pandas as pd

    from transom.sinks.base import WindowResults

ZONE = "America/New_York"


class Board:
    """Says what the newest hour was like at each airport; the function of a `foreach` sink.

    Args:
        tell: Told each new line.
        clock: The time.
    """

    def __init__(self, tell: Callable[[str], None], clock: Clock) -> None:
        self._tell, self._clock = tell, clock
        self.first: Micros | None = None
        """Monotonic time of the first results."""

    def __call__(self, results: WindowResults) -> None:
        """Take the results of a cut."""
        if self.first is None:
            self.first = self._clock.monotonic()
        self._tell(newest(results))


def newest(results: WindowResults) -> str:
    """Return the last window of some results as words."""
    rows = results.table.to_pylist()
    last = max(row["window_end"] for row in rows)
    here = sorted((row for row in rows if row["window_end"] == last), key=lambda row: str(row["origin"]))
    start, end = (_local(here[0][key]) for key in ("window_start", "window_end"))
    return f"{start:%a %d %b %Y, %H:%M} to {end:%H:%M}: " + "; ".join(_airport(row) for row in here)


def _airport(row: dict[str, object]) -> str:
    flights, delay = row["flights"], row["mean_delay"]
    if not isinstance(delay, float):
        return f"{row['origin']} {flights} flights"
    minutes = round(delay)
    when = "on time" if not minutes else f"{abs(minutes)} min {'late' if minutes > 0 else 'early'}"
    return f"{row['origin']} {flights} flights, {when}"


def _local(moment: object) -> pd.Timestamp:
    import pandas as pd

    return pd.Timestamp(moment).tz_convert(ZONE)
