"""Watches what cuts cost beside what the last plan took them to cost, and lets what is known follow at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from transom.engine.control.digests import Digests, way_of
from transom.engine.streams.stream import RunningStream
from transom.model.phases import CutPhases
from transom.model.time import Clock, Micros
from transom.model.tuning import StreamTuning, Tuning
from transom.planning.drift import BETWEEN
from transom.planning.fit import LEAST
from transom.planning.model import Prediction
from transom.planning.profile import Profile
from transom.planning.shift import Shift


@dataclass(frozen=True)
class _Watched:
    shift: Shift
    first: int
    """The last cut before those that count."""
    way: str
    """How its cuts are computed; other ways have costs of their own."""
    tuning: StreamTuning


@dataclass
class CostWatch:
    """Watches the streams that were planned for; used on the loop's thread."""

    streams: Mapping[str, RunningStream]
    digests: Digests
    clock: Clock
    closely: set[str] = field(default_factory=set)
    """Streams of which Spark is asked about every cut; changed here."""
    _watched: dict[str, _Watched] = field(default_factory=dict)
    _cores: int = 0
    """That the last plan is for."""
    _warm: Micros | None = None
    """From when on cuts count: in its first minute a JVM is slower than it will be."""

    def planned(self, profile: Profile, tuning: Tuning, said: Prediction, rates: Mapping[str, float]) -> None:
        """Compare with another plan from now on.

        Args:
            profile: What the plan took phases to cost.
            tuning: What is in force from the next cut of each stream on.
            said: What the plan says of the streams.
            rates: Rows per second of each stream.
        """
        self._cores = cores = profile.equipment.cores
        if self._warm is None:
            self._warm = self.clock.monotonic() + BETWEEN
        before = self._watched
        self._watched = {}
        for name, one in profile.streams.items():
            stream, each, free = self.streams[name], tuning.of(name), min(float(cores), said.streams[name].cores)
            new = name in before and before[name].tuning != each
            shift = Shift(one, each, cores, free, rates[name], LEAST if new else 0)
            self._watched[name] = _Watched(shift, stream.state.cut, way_of(stream), each)
        self.closely &= self._watched.keys()

    def take(self, cut: CutPhases) -> str | None:
        """Take in the phases of a cut; return what is new, for people, if costs have changed."""
        name = cut.stream
        watched = self._watched.get(name)
        if watched is None or cut.number <= watched.first or self.clock.monotonic() < (self._warm or 0):
            return None
        if watched.way != way_of(self.streams[name]):
            del self._watched[name]
            self.closely.discard(name)
            return None
        watched.shift.take(cut)
        change = watched.shift.found()
        if change is not None:
            if self.digests.cores() == self._cores:
                self.digests.changed(name, change.profile, change.since)
                shift = watched.shift.after(change)
            else:  # of costs cuts say nothing that ran on others than were planned for
                change, shift = None, watched.shift.anew()
            watched = self._watched[name] = replace(watched, shift=shift, first=cut.number)
        if watched.shift.asks:
            self.closely.add(name)
        else:
            self.closely.discard(name)
        return None if change is None else f"cuts of {name} take {change.ratio:.1f} times what they took"
