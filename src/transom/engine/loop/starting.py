"""The start of cuts: windows that are due are closed at once, and the scheduler says which streams read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from transom.engine.control.phases import PhaseRecorder
from transom.engine.control.scheduler import Scheduler
from transom.engine.loop.backpressure import Backpressure
from transom.engine.loop.batches import Cuts
from transom.engine.loop.changing import Changer
from transom.engine.loop.delivery import Delivery
from transom.engine.loop.journal import Journal
from transom.engine.loop.metrics import Metrics
from transom.engine.loop.quarantine import Quarantine
from transom.engine.loop.snapshots import Snapshots
from transom.engine.streams.cuts import LoggedCut
from transom.engine.streams.stream import RunningStream
from transom.errors import SourceLostError
from transom.model.phases import Phase
from transom.model.time import Clock, Micros


@dataclass(frozen=True)
class Starter:
    """Starts the cuts of streams that have something to read or to close."""

    streams: Mapping[str, RunningStream]
    scheduler: Scheduler
    cuts: Cuts
    changer: Changer
    backpressure: Backpressure
    snapshots: Snapshots
    delivery: Delivery
    metrics: Metrics
    quarantine: Quarantine
    journal: Journal
    phases: PhaseRecorder
    clock: Clock
    _away: set[str] = field(default_factory=set, init=False)
    """Streams whose source could not be reached at the last look."""

    def start(self) -> None:
        """Close the windows that are due, and start the jobs of the streams that run next.

        A window that is due is closed at once, by a cut without rows unless its stream is to run now in any case.
        """
        now, wall = self.clock.monotonic(), self.clock.now()
        cuts = self._possible_cuts(now, wall)
        due = [name for name, cut in cuts.items() if self.streams[name].has_due(cut.watermark, wall)]
        ready = [
            name
            for name, cut in cuts.items()
            if not cut.empty and (name in due or not self._too_early(name, now, wall))
        ]
        free = self.scheduler.slots - self.cuts.jobs
        ordered = self.scheduler.order(ready, now, self.delivery.busy) if free > 0 and ready else []
        chosen = ordered[: max(0, free)]
        for name, cut in cuts.items():
            self.phases.waits(name, _waits_for(name, cut, ready, ordered, free), now)
        for name in sorted(due, key=lambda name: name not in chosen):
            self.cuts.start(self.streams[name], cuts[name] if name in chosen else cuts[name].only_closing())
        for name in chosen:
            if name not in due:
                self.cuts.start(self.streams[name], cuts[name])

    def _possible_cuts(self, now: Micros, wall: Micros) -> dict[str, LoggedCut]:
        """Return the next cut of each stream that has none under way and something to read or to close."""
        found: dict[str, LoggedCut] = {}
        looked: list[RunningStream] = []
        most, busy, snapshot_waits = self.scheduler.max_rows(now), self.cuts.busy, self.snapshots.waits
        for name, stream in self.streams.items():
            if name in busy or stream.halted or not stream.state.runs:
                continue
            held = name in self.changer.held or (snapshot_waits and stream.has_files)  # no other merge before it
            if held or self.backpressure.hold_up(stream):
                self.phases.waits(name, Phase.TURN, now)
                continue
            if self._waits_for_a_tick(stream, now, wall):
                self.phases.waits(name, Phase.TURN, now)
                continue
            try:
                cut = self._next_cut(stream, now, wall, most[name])
            except SourceLostError as error:
                self.quarantine.halt(stream, error)
                continue
            looked.append(stream)
            if cut is None:
                self.phases.waits(name, Phase.LOOK, now)
            self.metrics.looked(stream, wall)
            if cut is not None:
                found[name] = cut
        self.scheduler.looked(looked, now, wall - now)
        return found

    def _waits_for_a_tick(self, stream: RunningStream, now: Micros, wall: Micros) -> bool:
        """Tell whether nothing can begin whatever is there, and it was looked at what is there after the last cut."""
        waits = stream.leaves and stream.seen.looked_from == stream.state.offset
        return waits and self._too_early(stream.name, now, wall)

    def _next_cut(self, stream: RunningStream, now: Micros, wall: Micros, most: int) -> LoggedCut | None:
        """Return the next cut of a stream; after all rows, if that is asked for, one that closes all windows."""
        cut = stream.next_cut(wall, most, False, self.scheduler.taking(most, now, wall))
        self._tell_away(stream)
        if cut is not None or stream.seen.away is not None or not stream.closes_all:
            return cut
        return stream.next_cut(wall, most, True) if stream.source.exhausted(stream.state.offset) else None

    def _tell_away(self, stream: RunningStream) -> None:
        """Say once when a source cannot be reached, and once when it can again."""
        if stream.seen.away is not None and stream.name not in self._away:
            self.journal.note(f"{stream.name} waits: {stream.seen.away}")
            self._away.add(stream.name)
        elif stream.seen.away is None and stream.name in self._away:
            self.journal.note(f"{stream.name} goes on: its source answers.")
            self._away.discard(stream.name)

    def _too_early(self, name: str, now: Micros, wall: Micros) -> bool:
        """Tell whether a cut that takes all there is should wait for more; where partials leave, until the next tick.

        Where a job takes more than half of a tick, every second tick passes without one.
        """
        stream, started = self.streams[name], self.cuts.started_at(name)
        if started is None or stream.seen.more:
            return False
        if stream.definition.leaving is None:
            return now < started + self.scheduler.trigger(name)
        ticks = stream.definition.leaving.ticks
        took = self.cuts.took(name)
        least = 2 if 2 * took > ticks.length else 1
        return ticks.number(wall) < ticks.number(wall - (now - started)) + least


def _waits_for(name: str, cut: LoggedCut, ready: Collection[str], ordered: Collection[str], free: int) -> Phase:
    """Return what a stream waits for if its cut does not begin now.

    Args:
        name: The stream.
        cut: What it could do.
        ready: Streams that may read.
        ordered: Those that the policy lets run, if there is a slot.
        free: Slots.
    """
    if cut.empty:
        return Phase.LOOK
    return Phase.SLOT if name in ready and (free <= 0 or name in ordered) else Phase.TURN
