"""Plans of a running application: made anew when what happens is not what was planned for, and followed if it pays."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from statistics import fmean

from transom.engine.control.digests import Digests
from transom.engine.control.scheduler import Scheduler
from transom.engine.execution.threads import Threads
from transom.engine.loop.costwatch import CostWatch
from transom.engine.loop.executors import KEPT, Executors
from transom.engine.loop.journal import Journal
from transom.engine.loop.tuning import Tuner
from transom.engine.streams.stream import RunningStream
from transom.model.phases import CutPhases
from transom.model.time import MICROS_PER_SECOND, Clock, Micros, format_duration
from transom.model.tuning import Tuning
from transom.planning.drift import Basis, Drift, pays
from transom.planning.fleet import Fleet, wanted
from transom.planning.goals import Choice, Goal, Settable
from transom.planning.model import Machine
from transom.planning.profile import Profile
from transom.planning.search import Search

EVERY: Micros = MICROS_PER_SECOND
"""Time between two looks at whether it is time for a plan."""
SMOOTH = 0.1
"""Weight of the newest look in a rate."""
AGAIN: Micros = 10 * MICROS_PER_SECOND
"""Time until the next try while costs are not known."""
SETTLED = 10
"""Looks after which a rate is known, and for which it, the number of cores or phases must not be as planned."""
CORES = 5
"""Of so many looks one asks how many cores there are."""
LEAST_RATE = 1.0
"""While a stream has fewer rows per second, nothing is planned: settings would follow from nothing."""
CLEARLY = 2 / 3
"""A latency over its limit, by the closed form, up to which it is kept in any case: it is up to a third off."""
LEAST_TASK = 1_000
"""Rows of a task, at least: when more come than was planned for, tasks must not become too many."""


@dataclass(frozen=True)
class Decision:
    """What to do at some rates, as the model says."""

    choice: Choice
    """Settings, and what to expect with them."""
    changes: bool
    """Whether they are others than now, and better by so much that it pays."""
    cores: int
    """That they are for."""


def decide(
    profile: Profile,
    goal: Goal,
    now: Tuning,
    said: Tuning,
    given: Collection[str],
    poll: Micros,
    fleet: Fleet | None = None,
) -> Decision:
    """Return the best settings on the machine that there is to be, or those of now if no others pay.

    Args:
        profile: What phases cost.
        goal: Rates and limits.
        now: What is in force.
        said: What the settings say.
        given: Settings that the user has given, which stay.
        poll: Time between two looks at a source, of which triggers are multiples.
        fleet: The executors, if their number may change.

    Where streams share executors, what the settings of now and the first of the others lead to is looked at event by
    event, as in `solve`, if something is to change or the limit is near: by the closed form a limit may seem to be kept
    that is not, and nothing would be asked for.

    O(streams^2) for each settings that are looked at: a second with 4 streams, ten with 16; with executors, some times
    that. To look at some event by event takes up to half a second.
    """
    machine, settable = Machine.measured(profile.equipment), _settable(now, said, given, poll)
    searches: dict[int, Search] = {}

    def on(cores: int) -> Search:
        if cores not in searches:
            searches[cores] = Search(profile, replace(machine, cores=cores), settable)
        return searches[cores]

    executors, cores = now.executors, machine.cores
    if fleet is not None:
        each = fleet.cores

        def ratio(number: int, times: float) -> float:
            search, some = on(number * each), goal.times(times)
            said = search.best(some).ratio
            return said if said < CLEARLY else search.checked(some).ratio

        executors = wanted(fleet, ratio)
        if executors != fleet.asked:
            cores = (executors if fleet.room is None else min(executors, fleet.room)) * each
    here, there = on(cores).with_settings(goal, now), on(cores).best(goal)
    if _pays(here, there) or here.ratio >= CLEARLY:
        here, there = on(cores).seen(goal, now), on(cores).checked(goal)
    better = _pays(here, there)
    choice = there if better else here
    more_or_less = fleet is not None and executors != fleet.asked
    expected = choice.prediction, choice.latencies  # found here, as the loop does not wait for it
    chosen = replace(choice, tuning=replace(choice.tuning, executors=executors), expect=lambda: expected)
    return Decision(chosen, better or more_or_less, cores)


def _pays(here: Choice, there: Choice) -> bool:
    """Tell whether settings should change; where none keep up with the margin, by what is expected without it."""
    if math.isfinite(here.ratio) or math.isfinite(there.ratio):
        return pays(here.ratio, there.ratio)
    return pays(here.expected_ratio, there.expected_ratio)


def _settable(now: Tuning, said: Tuning, given: Collection[str], poll: Micros) -> Settable:
    """Return what a plan may set; see `decide`."""
    return Settable(
        poll,
        LEAST_TASK,
        said.slots if "slots" in given else None,
        {name: each.trigger for name, each in said.streams.items()} if "trigger" in given else {},
        {name: each.rows_per_cut for name, each in now.streams.items() if each.rows_per_cut is not None},
    )


@dataclass
class Planner:
    """Keeps settings right while an application runs; used on the loop's thread. Results never depend on it.

    Plans are made on a thread of their own, as the loop must not wait for them; what goes wrong there is told, and
    changes nothing.
    """

    streams: Mapping[str, RunningStream]
    digests: Digests
    scheduler: Scheduler
    tuner: Tuner
    journal: Journal
    clock: Clock
    threads: Threads = field(default_factory=lambda: Threads(1, "transom-plan"))
    """Make the plans."""
    watch: CostWatch | None = None
    """Watches what cuts cost."""
    executors: Executors | None = None
    """Asks for executors, if their number may change."""
    drift: Drift = field(default_factory=Drift)
    expected: dict[str, Micros] = field(default_factory=dict)
    """Mean latency of the streams that keep up, as the last plan says."""
    _rates: dict[str, float] = field(default_factory=dict)
    _looks: int = 0
    _next: Micros = 0
    _missed: bool = False
    """Whether the last plan did not keep the limits."""
    _asked: tuple[Future[Decision], Profile, Goal, str] | None = None
    """The plan that is being made, with what of, what for and why."""
    _last: dict[str, deque[float]] = field(default_factory=dict)
    """Rates of the last looks."""
    _moving: int = 0
    """Looks since a rate is another one, or the number of cores, or phases are off."""
    _cores: int | None = None
    """That there are, as they were counted the last time."""
    _failed: bool = False
    """Whether the last plan could not be made."""
    _weighed: Micros = -KEPT
    """When it was seen last whether fewer executors do."""

    def take(self, cut: CutPhases) -> None:
        """Take in the phases of a cut."""
        self.drift.took(cut.stream, cut.seconds, cut.job)
        new = None if self.watch is None else self.watch.take(cut)
        if new is not None:
            self.drift.found(new)

    def look(self) -> None:
        """Have another plan made if it is time for one, and follow the one that is made if it pays."""
        now = self.clock.monotonic()
        if self.executors is not None:
            self.executors.look()
        if now < self._next:
            return
        self._next = now + EVERY
        self._take_rates(now)
        if self._asked is not None:
            self._follow(*self._asked, now)
            return
        if self._looks % CORES == 0:
            before, self._cores = self._cores, self.digests.cores()
            if self._cores != before:
                self.drift.forget()
        known = self._looks >= SETTLED and min(self._rates.values()) >= LEAST_RATE
        reason = self.drift.reason(self._rates, now, self._cores) or self._spare(now) if known else None
        # A rate that moves has not arrived yet, and an executor that went may come back: a plan must do for a minute.
        moving = known and self.drift.may_pass(self._rates, self._cores)
        self._moving = self._moving + 1 if moving else 0
        if reason is None or 0 < self._moving < SETTLED:
            return
        costs = self.digests.known()
        if self._moving:
            self._rates = {name: fmean(rates) for name, rates in self._last.items()}
        goal = self._goal(costs.profile)
        fleet = None if self.executors is None else self.executors.fleet
        if goal is None or costs.unknown or (fleet is None and self.executors is not None):
            self._next = now + AGAIN
            return
        if fleet is not None and fleet.gives_back:
            self._weighed = now
        tuner = self.tuner
        settings = tuner.tuning, tuner.said, tuner.given, tuner.poll
        self._asked = self.threads.submit(decide, costs.profile, goal, *settings, fleet), costs.profile, goal, reason

    def _spare(self, now: Micros) -> str | None:
        """Return why it is time to see whether fewer executors do."""
        return None if self.executors is None or now < self._weighed + KEPT else self.executors.spare()

    def _take_rates(self, now: Micros) -> None:
        for name, stream in self.streams.items():
            rate = self.scheduler.of(stream, now).backlog.rate * MICROS_PER_SECOND
            self._last.setdefault(name, deque(maxlen=SETTLED)).append(rate)
            before = self._rates.setdefault(name, rate)
            self._rates[name] = before + max(SMOOTH, 1 / (self._looks + 1)) * (rate - before)
        self._looks += 1

    def close(self) -> None:
        """End; nobody waits for a plan that is being made."""
        self.threads.close(0)
        if self.executors is not None:
            self.executors.close()

    def _goal(self, profile: Profile) -> Goal | None:
        """Return what plans are to keep; None without any limit."""
        limits = {name: each.limit for name, each in profile.streams.items() if each.limit is not None}
        targets = [query.target for stream in self.streams.values() for query in stream.state.running()]
        share = max((target.quantile for target in targets if target is not None), default=0.99)
        return Goal(dict(self._rates), limits, share) if limits else None

    def _follow(self, made: Future[Decision], profile: Profile, goal: Goal, reason: str, now: Micros) -> None:
        """Follow a plan, if it is made."""
        if not made.done():
            return
        self._asked = None
        if error := made.exception():
            self.drift.planned(Basis(now, goal.rates, cores=profile.equipment.cores))
            if not self._failed:
                self.journal.note(f"No plan can be made, so settings stay: {type(error).__name__}: {error}.")
            self._failed = True
            return
        self._failed, decision = False, made.result()
        if decision.changes:
            self.tuner.change(decision.choice.tuning, f"as {reason}", planned=True)
        phases = {
            name: {phase: time.mean for phase, time in each.phases.items()}
            for name, each in decision.choice.prediction.streams.items()
            if each.result.finite
        }
        self.drift.planned(Basis(now, goal.rates, phases, decision.cores), decision.changes)
        if self.watch is not None:
            profile = replace(profile, equipment=replace(profile.equipment, cores=decision.cores))
            self.watch.planned(profile, self.tuner.tuning, decision.choice.prediction, goal.rates)
        self.expected = {name: round(MICROS_PER_SECOND * sum(each.values())) for name, each in phases.items()}
        self._tell(decision.choice, goal)

    def _tell(self, chosen: Choice, goal: Goal) -> None:
        """Say once when limits cannot be kept, and once when they can again."""
        missed = [name for name, latency in chosen.latencies.items() if latency > goal.limits[name]]
        if missed and not self._missed:
            name = max(missed, key=lambda each: chosen.latencies[each] / goal.limits[each])
            limit, latency = goal.limits[name], chosen.latencies[name]
            expected = f"{latency:.1f} s are expected" if latency < float("inf") else "a backlog grows"
            self.journal.note(
                f"{name} cannot keep its limit of {format_duration(round(limit * MICROS_PER_SECOND))} with "
                f"{goal.rates[name]:,.0f} rows/s here: with the best settings {expected}. transom plan says what it "
                "takes."
            )
        if self._missed and not missed:
            self.journal.note("All limits can be kept again, by the plan.")
        self._missed = bool(missed)
