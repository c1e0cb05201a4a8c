"""Overload of streams whose queries allow that rows are left out: what they read next, decided at each cut."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import cast

import numpy as np

from transom.engine.control.estimates import StreamEstimate
from transom.engine.spark.columns import STEPS
from transom.engine.state.shares import Stretch
from transom.engine.streams.cuts import CutOutcome, Shed
from transom.engine.streams.stream import RunningStream
from transom.model.time import MICROS_PER_SECOND, MIN_TIME, Micros
from transom.model.window import WindowSpec
from transom.scheduling.shedding import TO_SPARE, Due, Piece, chosen, fits, thinned
from transom.sources.base import Cut, Divisible, Offset, can_leave_out
from transom.windows.query import LatencyTarget

SET: Micros = MICROS_PER_SECOND
"""A wall clock that differs by more than this from what it was, measured by the monotonic one, was set."""
AIM = 0.9
"""Results are made by this part of their limit; sinks have the rest."""
PART = 0.5
"""A run takes at most this part of the limit: a watermark that comes as one begins waits for it, and for the next."""
RECENT = 8
"""Cuts from which the least delay is known."""
MANY = 8
"""Of so many pieces one is small: time is left for the one that brings the watermark."""


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

    def happened(self, arrived: Micros, allowed: Micros) -> Micros:
        """Return when a row happened that arrived at a moment; few that are very late do not count.

        Args:
            arrived: Wall time.
            allowed: Delay of the watermark.
        """
        return math.floor(arrived - min(self.mean, self.least + allowed))


@dataclass
class _Known:
    """What is known of a stream that may leave out rows."""

    began: Micros
    """Wall time: nothing is left out that arrived before."""
    ahead: Micros
    """By how much the wall clock was ahead of the monotonic one."""
    delays: Delays | None = None
    leads: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    """Of the last cuts, from the newest event to the newest arrival."""
    read_until: Micros = 0
    """Arrival of the newest row that was read."""
    active: bool = False
    """Whether it is overloaded."""
    advised: bool = False


class Overload:
    """Says what streams read when they are to leave out what they cannot read in time; on the loop's thread.

    Args:
        estimates: What is known of each stream, by name.
        slots: Returns the number of jobs that run at once.
        note: Tells people once.
    """

    def __init__(
        self, estimates: Mapping[str, StreamEstimate], slots: Callable[[], int], note: Callable[[str], None]
    ) -> None:
        self._estimates = estimates
        self._slots = slots
        self._note = note
        self._known: dict[str, _Known] = {}

    def read(self, stream: RunningStream, outcome: CutOutcome) -> None:
        """Learn from a cut how long rows take to arrive."""
        known, cut = self._known.get(stream.name), outcome.cut
        if known is None:
            return
        arrived, delays = stream.source.ingested_at(cut.start, cut.end), outcome.stats.delays
        newest = max((moment for moment in outcome.stats.newest if moment is not None), default=None)
        known.read_until = max(known.read_until, arrived)
        if newest is None:
            return
        known.leads.append(arrived - newest)
        least = median(known.leads)
        if delays.records:
            known.delays = Delays(least, max(least, delays.mean), math.sqrt(max(0.0, delays.variance)))
        else:
            known.delays = Delays(least, least)

    def take(
        self, estimate: StreamEstimate, piece: Cut, most: int, now: Micros, wall: Micros
    ) -> tuple[Cut, Shed | None]:
        """Return the piece that a stream reads next, and what of it is left out; None where no query allows that.

        Args:
            estimate: What is known of the stream.
            piece: What it would read.
            most: Largest piece; 0 to leave out nothing, as all input is there at once.
            now: Monotonic time.
            wall: Wall time.
        """
        stream = estimate.stream
        targets = [query.target for query in stream.state.running() if query.target is not None and query.sheds]
        if not targets:
            self._known.pop(stream.name, None)
            return piece, None
        known = self._known.setdefault(stream.name, _Known(wall, wall - now))
        if abs(wall - now - known.ahead) > SET:
            known.began, known.ahead = wall, wall - now
        start, limit = stream.state.offset, min(target.limit for target in targets)
        oldest = stream.source.ingested_at(start, stream.source.cut(start, 1).end)
        first = max(known.read_until, oldest)
        divisible = can_leave_out(stream.source) or stream.compiled.plan.thins
        if most == 0 or oldest <= known.began or not divisible:
            return piece, self._all_of(stream, known, piece, first)
        slow = estimate.runs.slowness(max(target.quantile for target in targets))
        most = max(1, min(most, estimate.runs.fitting(PART * limit / slow / MICROS_PER_SECOND)))
        unknown = known.delays is None or not estimate.runs.is_known
        in_time = wall - oldest + slow * estimate.runs.cost(stream.backlog()) <= AIM * limit
        if unknown or (in_time and not known.active):
            piece = stream.source.cut(start, most)
            return piece, self._all_of(stream, known, piece, first)
        return self._divided(estimate, known, targets, most, slow, now, wall)

    def _all_of(self, stream: RunningStream, known: _Known, piece: Cut, first: Micros) -> Shed:
        """Return what tells that a piece is read as it is."""
        arrived = stream.source.ingested_at(stream.state.offset, piece.end)
        between = (known.delays or Delays()).between(min(first, arrived), arrived, _open_since(stream))
        return Shed(stretches=(Stretch(*between, piece.rows, 0),))

    def _divided(
        self,
        estimate: StreamEstimate,
        known: _Known,
        targets: Sequence[LatencyTarget],
        most: int,
        slow: float,
        now: Micros,
        wall: Micros,
    ) -> tuple[Cut, Shed]:
        """Look at the backlog piece by piece, and return what is read of it next."""
        stream, runs = estimate.stream, estimate.runs
        waiting = self._pieces(stream, known)
        at, dues = self._dues(estimate, waiting, most, slow, now, wall)
        pieces = [Piece(each.rows, due, each.needed) for each, due in zip(waiting, at, strict=True)]
        fit = fits(pieces, dues, TO_SPARE if known.active else 1.0)
        helps = slow * (runs.fixed + runs.partial * runs.partials) < min(target.limit for target in targets)
        allowed = len(targets) == len(stream.state.running()) and not stream.readers and not stream.buffers
        if not fit and not (allowed and helps):
            self._advise(stream, known, helps)
        if known.active != (not fit and allowed and helps):
            known.active = not known.active
            self._tell(stream, known)
        keep, left_out = max(target.keep or 0.0 for target in targets), can_leave_out(stream.source)
        if not known.active:
            return _cut(waiting, pieces, dues, [True] * len(pieces), most)
        if stream.compiled.plan.thins and not (left_out and len(pieces) >= MANY):
            sixteenths = thinned(pieces, dues, STEPS, keep, runs.weight)
            weight = runs.weight(sixteenths / STEPS)
            return _cut(waiting, pieces, dues, [True] * len(pieces), most, sixteenths, weight)
        return _cut(waiting, pieces, dues, chosen(pieces, dues, keep), most)

    def _pieces(self, stream: RunningStream, known: _Known) -> list[Waiting]:
        """Return the backlog in pieces; of each source partition the last one is needed."""
        source, at = stream.source, stream.state.offset
        divided = cast(Divisible, source) if can_leave_out(source) else None
        size = max(1, math.ceil(stream.backlog() / (STEPS if divided is None else divided.pieces)))
        delays, first = known.delays or Delays(), known.read_until
        since, allowed = _open_since(stream), stream.definition.policy.delay
        found: list[Waiting] = []
        last: dict[int, int] = {}
        while at != stream.seen.latest:
            cut = source.cut(at, size)
            if cut.end == at:
                break
            arrived = source.ingested_at(at, cut.end)
            units = () if divided is None else divided.units(at, cut.end)
            last.update((unit.partition, len(found)) for unit in units)
            came = min(first or arrived, arrived)
            names, between = tuple(unit.name for unit in units), delays.between(came, arrived, since)
            found.append(Waiting(cut.end, cut.rows, names, delays.happened(came, allowed), *between, not units))
            at, first = cut.end, max(first, arrived)
        needed = {*last.values(), len(found) - 1}
        return [replace(one, needed=one.needed or number in needed) for number, one in enumerate(found)]

    def _dues(
        self,
        estimate: StreamEstimate,
        waiting: Sequence[Waiting],
        most: int,
        slow: float,
        now: Micros,
        wall: Micros,
    ) -> tuple[list[int], list[Due]]:
        """Return when each piece is due, as an index, and what can be read until then."""
        stream, runs = estimate.stream, estimate.runs
        at: list[int] = []
        found: list[tuple[float, Micros, Micros]] = []
        for piece in waiting:
            due = self._due(estimate, max(piece.happened, stream.state.closed), now)
            if not found or due[2] > found[-1][2]:
                found.append(due)
            at.append(len(found) - 1)
        times = [time for time, *_ in found]
        for index in range(len(times) - 1, 0, -1):
            times[index - 1] = min(times[index - 1], times[index])
        rows = sum(piece.rows for piece in waiting)
        watermark = max(piece.rows for piece in waiting) if len(waiting) >= MANY else 0
        row = runs.row + (runs.fixed / most if rows > most else 0.0)
        closing, free = runs.fixed + runs.partial * runs.partials, self._free(stream.name)
        dues = []
        for time, (_, first, end) in zip(times, found, strict=True):
            room = ((time - wall) * free / slow - closing) / row if row > 0 else math.inf
            dues.append(Due(room - watermark, *stream.state.shares.of((first, end))))
        return at, dues

    def _due(self, estimate: StreamEstimate, moment: Micros, now: Micros) -> tuple[float, Micros, Micros]:
        """Return when the rows of a moment are due, wall time, and the window that they are due for."""
        found = []
        for query in estimate.stream.state.running():
            if query.target is not None and query.sheds:
                for window in query.pane_windows:
                    end = window.first_end(moment)
                    first = end - window.length if isinstance(window, WindowSpec) else window.late_before(moment)
                    found.append((estimate.expected(end, now) + AIM * query.target.limit, first, end))
        return min(found)

    def _free(self, name: str) -> float:
        """Return the part of a core that is left by the other streams."""
        others = [each.pace() for other, each in self._estimates.items() if other != name]
        if not others:
            return 1.0
        fixed, row, _, rate, period = np.array(others).T
        slots = self._slots()
        left = slots - float((rate * row + fixed / period).sum())
        return min(1.0, max(slots / (len(others) + 1), left))

    def _tell(self, stream: RunningStream, known: _Known) -> None:
        if known.active:
            self._note(
                f"{stream.name} has more to read than it can in time: pieces are left out, evenly over windows; "
                "the dead letters name them."
            )
        else:
            self._note(f"{stream.name} reads everything again.")

    def _advise(self, stream: RunningStream, known: _Known, helps: bool) -> None:
        if known.advised:
            return
        known.advised = True
        if not helps:
            self._note(
                f"{stream.name}: a micro-batch without rows takes longer than the least limit, so that nothing is "
                "left out: it would not help. State a longer limit."
            )
        else:
            names = [query.name for query in stream.state.running() if not query.sheds]
            self._note(
                f"{stream.name} has more to read than it can in time, but leaves out nothing, since {', '.join(names)} "
                "wants all rows: let it read apart, stream.apart(), or own_stream = true in TOML."
            )


def _open_since(stream: RunningStream) -> Micros:
    """Return the beginning of the oldest window that is open."""
    return min((query.late_before(stream.state.closed) for query in stream.state.running()), default=MIN_TIME)


def _cut(
    waiting: Sequence[Waiting],
    pieces: Sequence[Piece],
    dues: Sequence[Due],
    read: Sequence[bool],
    most: int,
    sixteenths: int = STEPS,
    weight: float = 1.0,
) -> tuple[Cut, Shed]:
    """Return the first pieces of a backlog that one run takes: it ends before the windows that it completes are due.

    What would be left out behind the last piece that it reads is decided again for the next one.

    Args:
        waiting: The backlog.
        pieces: The same.
        dues: When they are due.
        read: Which of them are read.
        most: Rows that one run takes.
        sixteenths: Of the rows that are read so many parts go on to costly transformations.
        weight: Time of a row, with the part that goes on, over that of one that does.
    """
    kept, taken = 0.0, 0
    bound, due = float(most), pieces[0].due
    for number, (piece, is_read) in enumerate(zip(pieces, read, strict=True)):
        if not is_read:
            continue
        if piece.due != due:  # what comes before it is complete with it
            if dues[due].room >= kept:
                bound = min(bound, dues[due].room + weight * piece.rows)
            due = piece.due
        if taken and kept + weight * piece.rows > bound:
            break
        kept, taken = kept + weight * piece.rows, number + 1
    stretches: dict[tuple[int, bool], Stretch] = {}
    for one, piece, is_read in zip(waiting[:taken], pieces, read, strict=False):
        on = one.rows * sixteenths / STEPS if is_read else 0
        old = stretches.get((piece.due, is_read), Stretch(one.first, one.last, 0, 0))
        stretches[piece.due, is_read] = Stretch(
            min(old.first, one.first), max(old.last, one.last), old.kept + on, old.dropped + one.rows - on
        )
    left = [one for one, is_read in zip(waiting[:taken], read, strict=False) if not is_read]
    units = tuple(unit for one in left for unit in one.units)
    rows = sum(one.rows for one in waiting[:taken])
    shed = Shed(units, sum(one.rows for one in left), tuple(stretches.values()), sixteenths)
    return Cut(waiting[taken - 1].end, rows - shed.rows), shed
