"""Plans of a running application: made anew when what happens is not what was planned for, and followed if it pays."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from transom.engine.control.digests import Digests
from transom.engine.control.scheduler import Scheduler
from transom.engine.loop.journal import Journal
from transom.engine.loop.tuning import Tuner
from transom.engine.streams.stream import RunningStream
from transom.model.phases import CutPhases
from transom.model.time import MICROS_PER_SECOND, Clock, Micros, format_duration
from transom.model.tuning import StreamTuning, Tuning
from transom.planning.drift import Basis, Drift, pays
from transom.planning.model import Machine
from transom.planning.profile import Profile
from transom.planning.solve import Choice, Goal, Search

OFF = "off"
"""The setting `plan` of an application that does not plan."""
AUTO = "auto"
"""The setting of one that begins without a profile."""
EVERY: Micros = MICROS_PER_SECOND
"""Time between two looks at whether it is time for a plan."""
SMOOTH = 0.1
"""Weight of the newest look in a rate."""
AGAIN: Micros = 10 * MICROS_PER_SECOND
"""Time until the next try while costs are not known."""
SETTLED = 10
"""Looks after which a rate is known."""
LEAST_RATE = 1.0
"""While a stream has fewer rows per second, nothing is planned: settings would follow from nothing."""
LEAST_TASK = 1_000
"""Rows of a task, at least: when more come than was planned for, tasks must not become too many."""


@dataclass
class Planner:
    """Keeps settings right while an application runs; used on the loop's thread. Results never depend on it."""

    streams: Mapping[str, RunningStream]
    digests: Digests
    scheduler: Scheduler
    tuner: Tuner
    journal: Journal
    clock: Clock
    said: Collection[str] = ()
    """Settings that the user has given, which stay."""
    drift: Drift = field(default_factory=Drift)
    _rates: dict[str, float] = field(default_factory=dict)
    _looks: int = 0
    _next: Micros = 0
    _missed: bool = False
    """Whether the last plan did not keep the limits."""

    def take(self, cut: CutPhases) -> None:
        """Take in the phases of a cut."""
        self.drift.took(cut.stream, cut.seconds)

    def look(self) -> None:
        """Make another plan if it is time for one, and follow it if it pays."""
        now = self.clock.monotonic()
        if now < self._next:
            return
        self._next = now + EVERY
        for name, stream in self.streams.items():
            rate = self.scheduler.of(stream, now).backlog.rate * MICROS_PER_SECOND
            before = self._rates.setdefault(name, rate)
            self._rates[name] = before + max(SMOOTH, 1 / (self._looks + 1)) * (rate - before)
        self._looks += 1
        known = self._looks >= SETTLED and min(self._rates.values()) >= LEAST_RATE
        reason = self.drift.reason(self._rates, now) if known else None
        if reason is None:
            return
        costs = self.digests.known()
        goal = self._goal(costs.profile)
        if goal is None or costs.unknown:
            self._next = now + AGAIN
            return
        self._plan(costs.profile, goal, reason, now)

    def _goal(self, profile: Profile) -> Goal | None:
        """Return what plans are to keep; None without any limit."""
        limits = {name: each.limit for name, each in profile.streams.items() if each.limit is not None}
        targets = [query.target for stream in self.streams.values() for query in stream.state.running()]
        share = max((target.quantile for target in targets if target is not None), default=0.99)
        return Goal(dict(self._rates), limits, share) if limits else None

    def _plan(self, profile: Profile, goal: Goal, reason: str, now: Micros) -> None:
        measured = profile.equipment
        search = Search(profile, Machine(measured.cores, measured.shared, measured.driver))
        here = search.with_settings(goal, self.tuner.tuning)
        there = search.with_settings(goal, self._kept(search.best(goal).tuning))
        better = pays(here.ratio, there.ratio)
        if better:
            self.tuner.change(there.tuning, f"as {reason}")
        chosen = there if better else here
        phases = {
            name: {phase: time.mean for phase, time in each.phases.items()}
            for name, each in chosen.prediction.streams.items()
            if each.result.finite
        }
        self.drift.planned(Basis(now, dict(self._rates), phases))
        self._tell(chosen, goal)

    def _kept(self, wanted: Tuning) -> Tuning:
        """Return a tuning with what the user has set, on looks at the source, as it would be followed."""
        now = self.tuner.tuning
        streams = {
            name: StreamTuning(
                now.of(name).trigger if "trigger" in self.said else each.trigger,
                now.of(name).rows_per_cut,
                max(LEAST_TASK, each.rows_per_task or LEAST_TASK),
                each.partitions,
            )
            for name, each in wanted.streams.items()
        }
        slots = now.slots if "slots" in self.said else wanted.slots
        return replace(wanted, slots=slots, streams=streams).on_looks(self.tuner.poll)

    def _tell(self, chosen: Choice, goal: Goal) -> None:
        """Say once when limits cannot be kept, and once when they can again."""
        missed = [name for name, latency in chosen.latencies.items() if latency > goal.limits[name]]
        if missed and not self._missed:
            name = max(missed, key=lambda each: chosen.latencies[each] / goal.limits[each])
            limit, latency = goal.limits[name], chosen.latencies[name]
            expected = f"{latency:.1f} s are expected" if latency < float("inf") else "a backlog grows"
            self.journal.note(
                f"{name} cannot keep its limit of {format_duration(round(limit * MICROS_PER_SECOND))} with "
                f"{self._rates[name]:,.0f} rows/s here: with the best settings {expected}. transom plan says what it "
                "takes."
            )
        if self._missed and not missed:
            self.journal.note("All limits can be kept again, by the plan.")
        self._missed = bool(missed)
