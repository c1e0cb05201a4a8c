"""Overload of streams whose queries allow that rows are left out: what they read next, decided at each cut."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from transom.engine.control.estimates import StreamEstimate
from transom.engine.control.room import MANY, PART, Others, Room, dues_of
from transom.engine.control.waiting import Delays, Waiting, open_since, waiting_of
from transom.engine.spark.columns import STEPS
from transom.engine.state.shares import Stretch
from transom.engine.streams.cuts import CutOutcome, Shed
from transom.engine.streams.stream import RunningStream
from transom.model.time import MICROS_PER_SECOND, Micros
from transom.scheduling.inflow import Inflow
from transom.scheduling.shedding import TO_SPARE, Due, Piece, chosen, fits, thinned
from transom.sources.base import Cut, can_leave_out

SET: Micros = MICROS_PER_SECOND
"""A wall clock that differs by more than this from what it was, measured by the monotonic one, was set."""
RECENT = 8
"""Cuts from which the least delay is known."""


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
    rows: int = 0
    """Rows that were read and left out."""
    inflow: Inflow = field(default_factory=Inflow)
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
        known.rows += cut.rows + (0 if cut.shed is None else cut.shed.rows)
        arrived, delays = stream.source.ingested_at(cut.start, cut.end), outcome.stats.delays
        newest = max((moment for moment in outcome.stats.newest if moment is not None), default=None)
        known.read_until = max(known.read_until, arrived)
        if newest is None:
            return
        known.leads.append(arrived - newest)
        least, limits = median(known.leads), [each.target.limit for each in stream.state.running() if each.target]
        steady = max(known.leads) - min(known.leads) <= PART * min(limits, default=0)
        if delays.records:
            spread = math.sqrt(max(0.0, delays.variance))
            known.delays = Delays(least, max(least, delays.mean), spread, steady)
        else:
            known.delays = Delays(least, least, steady=steady)

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
            known.began, known.ahead, known.inflow = wall, wall - now, Inflow()
        start = stream.state.offset
        oldest = stream.source.ingested_at(start, stream.source.cut(start, 1).end)
        first, backlog = max(known.read_until, oldest), stream.backlog()
        known.inflow.came(stream.source.ingested_at(start, stream.seen.latest), known.rows + backlog)
        divisible = can_leave_out(stream.source) or _thins(stream)
        if most == 0 or oldest <= known.began or not divisible:
            return piece, self._all_of(stream, known, piece, first)
        room = Room(estimate.runs, Others.of(stream.name, self._estimates, self._slots()), targets)
        most = max(1, min(most, room.most))
        unknown = known.delays is None or not estimate.runs.is_known
        if unknown or (not known.active and room.in_time(backlog, wall - oldest)):
            piece = stream.source.cut(start, most)
            return piece, self._all_of(stream, known, piece, first)
        return self._divided(estimate, known, room, most, now, wall)

    def _all_of(self, stream: RunningStream, known: _Known, piece: Cut, first: Micros) -> Shed:
        """Return what tells that a piece is read as it is."""
        arrived = stream.source.ingested_at(stream.state.offset, piece.end)
        between = (known.delays or Delays()).between(min(first, arrived), arrived, open_since(stream))
        return Shed(stretches=(Stretch(*between, piece.rows, 0),))

    def _divided(
        self, estimate: StreamEstimate, known: _Known, room: Room, most: int, now: Micros, wall: Micros
    ) -> tuple[Cut, Shed]:
        """Look at the backlog piece by piece, and return what is read of it next."""
        stream, runs, delays = estimate.stream, estimate.runs, known.delays or Delays()
        waiting = waiting_of(stream, delays, known.read_until)
        at, dues = dues_of(estimate, waiting, room, most, delays, known.inflow, now, wall)
        pieces = [Piece(each.rows, due, each.needed) for each, due in zip(waiting, at, strict=True)]
        fit = fits(pieces, dues, TO_SPARE if known.active else 1.0)
        all_shed = len(room.targets) == len(stream.state.running())
        left_out, thins = can_leave_out(stream.source) and all_shed, _thins(stream)
        may = (left_out or thins) and not stream.readers and not stream.buffers and room.helps
        if not fit and not may:
            self._advise(stream, known, room.helps)
        if known.active != (not fit and may):
            known.active = not known.active
            self._tell(stream, known)
        if not known.active:
            return _cut(waiting, pieces, dues, [True] * len(pieces), most)
        if thins and not (left_out and len(pieces) >= MANY):
            sixteenths = thinned(pieces, dues, STEPS, room.keep, runs.weight)
            weight = runs.weight(sixteenths / STEPS)
            return _cut(waiting, pieces, dues, [True] * len(pieces), most, sixteenths, weight)
        return _cut(waiting, pieces, dues, chosen(pieces, dues, room.keep), most)

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


def _thins(stream: RunningStream) -> bool:
    """Tell whether rows may be thinned: the queries behind costly transformations are those that allow it."""
    costly, running = stream.compiled.plan.thins, stream.state.running()
    return bool(costly) and all((query.branch in costly) is query.sheds for query in running)


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
