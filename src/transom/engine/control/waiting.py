"""The backlog of a stream in pieces, and when their rows happened, as far as arrivals and delays tell."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import cast

from transom.engine.spark.columns import STEPS
from transom.engine.streams.stream import RunningStream
from transom.model.time import MIN_TIME, Micros
from transom.sources.base import Divisible, Offset, can_leave_out


@dataclass(frozen=True)
class Waiting:
    """A piece of the backlog of a stream."""

    end: Offset
    rows: int
    units: tuple[str, ...]
    happened: Micros
    """When its first row happened, as far as is known from arrivals; event time, as both others."""
    first: Micros
    """When the first of its rows may have happened that any window holds."""
    last: Micros
    needed: bool
    """Whether it is read in any case."""


@dataclass(frozen=True)
class Delays:
    """The delays of a stream's rows, from happening to arrival, as far as its windows see them; microseconds."""

    least: float = 0.0
    """That of the rows that bring watermarks."""
    mean: float = 0.0
    spread: float = 0.0
    """Standard deviation."""
    steady: bool = False
    """Whether the least one hardly changes from cut to cut, as it does where old data comes at another pace."""

    def between(self, first: Micros, last: Micros, since: Micros) -> tuple[Micros, Micros]:
        """Return between which event times the rows lie that arrived between two moments.

        An even spread over 2 sqrt(3) standard deviations has the variance of the delays.

        Args:
            first: Wall time.
            last: Wall time.
            since: What happened earlier is in no window any more.
        """
        end = math.ceil(last - self.least)
        begin = math.floor(first - self.mean - math.sqrt(3) * self.spread)
        return min(max(begin, since), end), end

    def lag(self, allowed: Micros) -> float:
        """Return how long rows take to arrive; few that are very late do not count.

        Args:
            allowed: Delay of the watermark.
        """
        return min(self.mean, self.least + allowed)


def waiting_of(stream: RunningStream, delays: Delays, read_until: Micros) -> list[Waiting]:
    """Return the backlog in pieces; of each source partition the last one is needed.

    Args:
        stream: The stream.
        delays: Of its rows.
        read_until: Arrival of the newest row that was read, wall time; 0 for none.
    """
    source, at = stream.source, stream.state.offset
    divided = cast(Divisible, source) if can_leave_out(source) else None
    size = max(1, math.ceil(stream.backlog() / (STEPS if divided is None else divided.pieces)))
    since, first = open_since(stream), read_until
    lag = delays.lag(stream.definition.policy.delay)
    found: list[Waiting] = []
    last: dict[int, int] = {}
    while at != stream.seen.latest:
        cut = source.cut(at, size)
        if cut.end == at:
            break
        arrived = source.ingested_at(at, cut.end)
        units = () if divided is None else divided.units(at, cut.end)
        last.update((unit.partition, len(found)) for unit in units)
        came, names = min(first or arrived, arrived), tuple(unit.name for unit in units)
        between = delays.between(came, arrived, since)
        found.append(Waiting(cut.end, cut.rows, names, math.floor(came - lag), *between, not units))
        at, first = cut.end, max(first, arrived)
    needed = {*last.values(), len(found) - 1}
    return [replace(one, needed=one.needed or number in needed) for number, one in enumerate(found)]


def open_since(stream: RunningStream) -> Micros:
    """Return the beginning of the oldest window that is open."""
    return min((query.late_before(stream.state.closed) for query in stream.state.running()), default=MIN_TIME)
