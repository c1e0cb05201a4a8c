"""The latency to expect of each stream, phase by phase, from a profile, rates, a machine and settings.

After Li, Diao and Shenoy (2015), section 3, with what is different here:

- Nothing of a cut is visible before all of it is, so a row waits for the whole cut, not for half of it (their Eq. 2),
  and results are committed together, so that F = t2 - t1.
- A cut takes what waits: its rows, its length and the wait before it determine each other. So variances are added only
  among phases of cuts with the same rows; over the rows, cuts are mixed, each as often as something arrives in it.
- The cores that a job has are what the jobs leave that happen to run beside it, as far as there are slots for them,
  and, where they share the cores, the driver and its JVM: a number for each count of such jobs, of which each has as
  many cores as tasks while these run, and none before and after. Their mean, the paper's
  v = min(tasks, cores (1 - p)), lets tasks fit in one wave that do not when it matters.
- A cut that completes windows is followed at once, whatever the trigger: there are runs of cuts (`gaps`).
- Rows that arrive together are in one cut, so cuts have whole numbers of such pieces, and some a task more than others.

Latency rises with the rate and falls with the cores as long as the tasks of a cut stay as many.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from transom.model.phases import OF_A_JOB, OF_WINDOWS, WAITS, Phase
from transom.model.tuning import Tuning
from transom.planning.cuts import AT_ONCE, Cut, Cutting
from transom.planning.gaps import Gaps, gaps
from transom.planning.moments import NEVER, Moments, mixed
from transom.planning.orders import slowest
from transom.planning.phases import CUT, DRIVER, TASKS, THREAD
from transom.planning.profile import Equipment, Profile, StreamProfile
from transom.planning.queues import Shared, cycle, gate_wait, left, queueing, slot_wait, thread_wait, waiting_share

ROUNDS = 40
"""Steps in which the streams' waits for each other must settle."""
SWINGING, FOLLOWED = 8, 0.35
"""Rounds after which they are taken to swing, as tasks are whole ones, and how much of each change is followed then."""
NEAR = 1e-4
"""Relative step at which they have."""
MOST = 0.98
"""Largest share of the cores that all else is taken to keep busy."""
NODES = tuple(zip(*(each.tolist() for each in np.polynomial.hermite_e.hermegauss(5)), strict=True))
"""Points and weights by which a normal distribution is summed up."""
STALLED = 100.0
"""Cycle, seconds, for which the loads of a stream are told that cannot keep up."""


@dataclass(frozen=True)
class Machine:
    """The cores that there are."""

    cores: int
    """That run tasks, over all executors."""
    shared: bool = True
    """Whether the driver and its JVM run on the same cores."""
    driver: float = 0.0
    """Cores that they keep busy beside what the phases say."""

    @classmethod
    def measured(cls, equipment: Equipment) -> Machine:
        """Return the machine that was measured."""
        return cls(equipment.cores, equipment.shared, equipment.driver)


@dataclass(frozen=True)
class StreamLatency:
    """What to expect of a stream."""

    cycle: float
    """Seconds from one cut to the next; infinite if it cannot keep up."""
    rows: float = 0.0
    """Rows of a cut."""
    phases: Mapping[Phase, Moments] = field(default_factory=dict)
    """The phases on the way to a result."""
    result: Moments = NEVER
    """From the arrival of the watermark that completes windows to their results, with the streams before it."""
    record: Moments = NEVER
    """From the arrival of a row to its commit."""
    cores: float = math.inf
    """Cores that all else leaves to its tasks, on average."""


@dataclass(frozen=True)
class Prediction:
    """What to expect of all streams."""

    streams: Mapping[str, StreamLatency]
    loads: Mapping[str, float]
    """Share of the time in which what they share is busy: cores, slots, thread, sinks; and the busiest stream's cut."""
    given_up: bool = False
    """Whether a stream takes longer than was asked for; results are as long then as they are at least."""

    @property
    def keeps_up(self) -> bool:
        """Whether no backlog grows."""
        return all(stream.result.finite for stream in self.streams.values())


@dataclass
class _State:
    """What is assumed of a stream while the streams' waits for each other settle."""

    name: str
    profile: StreamProfile
    cutting: Cutting
    cycle: float
    rows: float = 0.0
    slot: Moments = AT_ONCE
    thread: Moments = AT_ONCE
    shown: _Shown | None = None
    gaps: Gaps = ()
    """How long there is between two starts; none if that is the cycle each time."""

    @cached_property
    def trigger(self) -> float:
        """Seconds between two starts of cuts at least: a trigger that has passed is seen at the next look."""
        trigger = self.cutting.tuning.trigger_seconds
        return trigger + self.profile.cost(Phase.LOOK).fixed if trigger else 0.0

    @property
    def closing(self) -> float:
        """Seconds from one closing of windows to the next: no cut closes windows twice."""
        return max(self.profile.closing, self.cycle)

    @property
    def cut(self) -> Cut:
        """A cut as they are on average."""
        return self.cutting.of(self.rows)

    def busy(self, phases: tuple[Phase, ...], cut: Cut) -> float:
        """Return the share of the time in which it keeps one core busy in some phases of such cuts."""
        each = sum(cut.work(phase) for phase in phases if phase not in OF_WINDOWS)
        windows = sum(cut.work(phase) for phase in phases if phase in OF_WINDOWS)
        return each / self.cycle + windows / self.closing


@dataclass(frozen=True)
class _Shown:
    """What a stream is to the others."""

    shared: Shared
    tasks: float
    """Cores that its tasks keep busy."""
    working: float
    """Share of the time in which it would have its tasks if they all ran at once, each on a core of its own."""
    driver: float
    """Cores that the driver and its JVM keep busy for it."""
    thread: tuple[float, float, float]
    """How often, in a second, the loop's thread does something for it; the sums of the times, and of their squares."""

    @classmethod
    def of(cls, state: _State) -> _Shown:
        """Return what a stream with this state is to the others."""
        cut = state.cut
        shared = Shared(cut.job(), state.cycle, state.slot.mean)
        often = [1 / (state.closing if phase in OF_WINDOWS else state.cycle) for phase in THREAD]
        parts = [cut.phase(phase) for phase in THREAD]
        thread = (
            sum(often),
            sum(each * part.mean for each, part in zip(often, parts, strict=True)),
            sum(each * part.square for each, part in zip(often, parts, strict=True)),
        )
        working = min(1.0, sum(cut.together(phase) for phase in TASKS) / state.cycle)
        return cls(shared, state.busy(TASKS, cut), working, state.busy(DRIVER, cut), thread)


class Model:
    """The latencies of the streams of a profile.

    Args:
        profile: What phases cost.
        machine: The cores that there are.
        tuning: Of all streams.
        rates: Rows per second of each stream.
    """

    def __init__(self, profile: Profile, machine: Machine, tuning: Tuning, rates: Mapping[str, float]) -> None:
        self._profile, self._machine, self._tuning, self._rates = profile, machine, tuning, rates
        self._states = {
            name: _State(name, stream, self._cutting(name, stream), tuning.of(name).trigger_seconds)
            for name, stream in ((name, each.at(rates[name])) for name, each in profile.streams.items())
        }

    def predict(self, longest: Mapping[str, float] | None = None) -> Prediction:
        """Return what to expect. O(rounds x streams^2).

        Args:
            longest: Of some streams the mean latency, seconds, with which nobody asks for more than that it is longer.
        """
        before: list[float] = []
        for number in range(ROUNDS):
            for name in self._states:
                self._settle(name, 1.0 if number < SWINGING else FOLLOWED)
            if not all(math.isfinite(state.cycle) for state in self._states.values()):
                return self._stalled()
            if number and longest and any(self._least(self._states[name]) > most for name, most in longest.items()):
                return self._given_up()
            now = [each for state in self._states.values() for each in (state.cycle, state.cycle + state.slot.mean)]
            if before and all(abs(one - other) <= NEAR * one for one, other in zip(now, before, strict=True)):
                break
            before = now
        loads = self._loads()
        if loads["thread"] >= 1 or loads["cores"] >= 1:  # streams that wait for each other may seem to find some left
            return self._stalled()
        alone = {name: self._latency(name) for name in self._states}
        return Prediction({name: self._after(name, alone) for name in alone}, loads)

    def _stalled(self) -> Prediction:
        """Return what to expect where something cannot keep up: nothing, of any stream, as they share it."""
        for state in self._states.values():
            if not math.isfinite(state.cycle):
                state.cycle, state.rows = STALLED, self._rates[state.name] * STALLED
        stalled = {name: StreamLatency(math.inf, cores=state.cutting.free) for name, state in self._states.items()}
        return Prediction(stalled, self._loads())

    @staticmethod
    def _least(state: _State) -> float:
        """Return the mean latency of a stream at least, seconds, by what is assumed of it while waits settle.

        Half of the time between two cuts, but for the piece that finds the stream at rest, and then the cut. The waits
        settle from below, but for the first round, in which the others do not wait yet, and where they swing: then they
        may be some more, to which `search.WORSE` leaves room.
        """
        waited = max(0.0, state.cycle - state.profile.piece) / 2
        return waited + state.cutting.average(state.rows) + state.thread.mean

    def _given_up(self) -> Prediction:
        """Return what is known of streams whose waits have not settled."""
        least = {
            name: StreamLatency(state.cycle, state.rows, result=Moments(self._least(state), 0.0))
            for name, state in self._states.items()
        }
        return Prediction(least, {}, given_up=True)

    # ---- streams beside each other

    def _cutting(self, name: str, stream: StreamProfile) -> Cutting:
        cores = self._machine.cores
        return Cutting(stream, self._tuning.of(name), cores, cores, self._rates[name])

    def _settle(self, name: str, step: float) -> None:
        """Let a stream see the others as they are assumed now, and follow by so much of what that changes."""
        state, slots = self._states[name], self._tuning.slots
        others = [each.shown for other, each in self._states.items() if other != name and each.shown is not None]
        shared = [each.shared for each in others]
        cores = float(self._machine.cores)
        if self._machine.shared:
            busy = self._machine.driver + sum(each.driver for each in others)
            cores *= 1 - min(MOST, busy / cores)
        state.cutting.leave(left([(each.working, each.tasks) for each in others], slots, cores))
        state.slot = self._slot(state, shared)
        state.thread = thread_wait([each.thread for each in others])
        before = state.cycle if state.shown is not None else math.inf
        found = self._between(name, state, before)
        state.cycle = found if step == 1 or not math.isfinite(found) else before + step * (found - before)
        if math.isfinite(state.cycle):
            state.rows = self._rates[name] * state.cycle
            state.cutting.closings = state.closing / state.profile.closing
            state.shown = _Shown.of(state)

    def _between(self, name: str, state: _State, near: float) -> float:
        """Return the mean time between two starts, and keep the lengths that it has."""
        rate, piece, trigger = self._rates[name], state.profile.piece, max(state.trigger, state.profile.piece)

        def taken(rows: float) -> float:
            return self._taken(state, state.cutting.average(rows))

        first, state.gaps = taken(rate * trigger), ()
        if first < trigger:
            state.gaps = gaps(trigger, taken(0.0), first, state.profile.closing, piece)
            if state.gaps:
                return sum(share * max(piece, length) for share, length in state.gaps)
            trigger = 0.0
        return cycle(rate, trigger, piece, taken, near=near)

    def _slot(self, state: _State, others: Sequence[Shared]) -> Moments:
        """Return the wait for a slot; at least so long that the slots do not do more than they can.

        Where the others are always there, a stream has its turn when they have had theirs.
        """
        slots = self._tuning.slots
        wait = slot_wait(others, slots)
        if len(others) < slots:
            return wait
        cut = state.cut
        job = sum(cut.mean(phase) for phase in OF_A_JOB)
        elsewhere = max(0.0, state.cycle - state.slot.mean - job)
        turns = job + sum((other.running + other.waiting) * other.job.mean for other in others)
        return Moments(max(wait.mean, turns / slots - job - elsewhere), wait.variance)

    # ---- one stream

    def _latency(self, name: str) -> StreamLatency:
        """Mix the latencies of cuts with few and many rows, each as often as a row arrives while it is under way.

        A cut has whole pieces of what arrives together. What else varies is taken for lognormal.
        """
        state = self._states[name]
        lengths = state.gaps or [(1.0, state.cycle)]
        parts = [part for number, each in enumerate(lengths) for part in self._parts(name, *each, number > 0)]
        mean = {phase: mixed([(weight, phases[phase]) for weight, phases in parts]) for phase in Phase}
        record = mixed([(weight, _total(phases, (*WAITS, *CUT))) for weight, phases in parts])
        result = mixed([(weight, _total(phases, tuple(Phase))) for weight, phases in parts])
        return StreamLatency(state.cycle, state.rows, mean, result, record, state.cutting.free)

    def _parts(self, name: str, share: float, length: float, run: bool) -> list[tuple[float, dict[Phase, Moments]]]:
        """Return the phases of results whose rows come between starts so far apart (seconds), each with its weight.

        `share` of these times are so long. In a run of cuts each is what the cut before took, not what this one takes.
        """
        state = self._states[name]
        least, comes = state.trigger if length >= state.trigger else 0.0, max(state.profile.piece, length)
        usual = self._rates[name] * comes
        longer = length - self._taken(state, state.cutting.average(usual)) if run else 0.0
        sizes = state.cutting.sizes(usual)
        times = [(part, pieces / usual if usual else 1.0) for part, pieces in sizes]  # none may come at all
        spread = sum(part * (each - 1) ** 2 for part, each in times)
        wide = math.sqrt(math.log1p(max(0.0, state.profile.uneven - spread)))
        parts = []
        for (part, often), (_, pieces) in zip(times, sizes, strict=True):
            some = []
            for node, weight in NODES if wide > 0 else ((0.0, 1.0),):
                rows = pieces * math.exp(node * wide - wide**2 / 2)
                between = max(least, self._taken(state, state.cutting.seconds(rows)) + longer)
                phases = self._phases(name, rows, between, between > least)
                some.append((weight * max(state.profile.piece, between), phases))
            total = sum(weight for weight, _ in some)
            parts += [(share * comes * part * often * weight / total, phases) for weight, phases in some]
        return parts

    def _phases(self, name: str, rows: float, between: float, varies: bool) -> dict[Phase, Moments]:
        """Return the phases of a result whose rows come between two starts that are so far apart.

        Args:
            name: Of the stream.
            rows: Of the cut.
            between: Seconds between the starts.
            varies: Whether that is as long as a cut takes.
        """
        state = self._states[name]
        stream, cut = state.profile, state.cutting.of(rows)
        phases = {phase: cut.phase(phase) for phase in Phase}
        varied = sum(phases[phase].variance for phase in CUT) if varies else 0.0
        phases |= self._waits(state, Moments(between, varied), phases[Phase.LOOK])
        phases[Phase.COMMIT] += state.thread
        phases[Phase.CONSOLIDATE] = slowest(phases[Phase.CONSOLIDATE], stream.groups)
        phases[Phase.DELIVER] += queueing(1 / state.closing, 0.0, phases[Phase.DELIVER])
        return phases

    @staticmethod
    def _waits(state: _State, between: Moments, look: Moments) -> dict[Phase, Moments]:
        """Return how long rows wait that come between two starts which are so far apart.

        A wait for a slot is the last part of it: what comes before waits for all of that part, what comes meanwhile for
        the rest. Only what finds the stream at rest waits for a look, and then for a slot.
        """
        piece, regular, slot, length = state.profile.piece, state.profile.regular, state.slot, between.mean
        share, gate = waiting_share(between, piece, regular), gate_wait(between, piece, regular)
        part = min(slot.mean, length)
        within = share * ((length - part) * part + min(slot.square, length**2) / 2) / length if length > 0 else 0.0
        within = min(within, gate.mean)
        mean = within + (1 - share) * slot.mean
        return {
            Phase.LOOK: look.in_share(1 - share),
            Phase.TURN: Moments(gate.mean - within, gate.variance),
            Phase.SLOT: Moments(mean, slot.variance * mean / slot.mean if slot.mean > 0 else 0.0),
        }

    @staticmethod
    def _taken(state: _State, seconds: float) -> float:
        """Return the seconds from the start of a cut that takes so long by itself to its end, with its waits."""
        return state.slot.mean + state.thread.mean + seconds

    def _after(self, name: str, alone: Mapping[str, StreamLatency]) -> StreamLatency:
        """Add the latency of the streams whose results a stream reads."""
        return replace(alone[name], result=sum((alone[each].result for each in self._profile.chain(name)), AT_ONCE))

    def _loads(self) -> dict[str, float]:
        """Return how busy everything is."""
        states = [(state, state.cut) for state in self._states.values()]
        driver = self._machine.driver if self._machine.shared else 0.0
        if self._machine.shared:
            driver += sum(state.busy(DRIVER, cut) for state, cut in states)
        return {
            "cores": (sum(state.busy(TASKS, cut) for state, cut in states) + driver) / self._machine.cores,
            "slots": sum(cut.job().mean / state.cycle for state, cut in states) / self._tuning.slots,
            "stream": max(state.cutting.seconds(state.rows) / state.cycle for state, _ in states),
            "thread": sum(state.busy(THREAD, cut) for state, cut in states),
            "sinks": max(state.busy((Phase.DELIVER,), cut) for state, cut in states),
        }


def _total(phases: Mapping[Phase, Moments], some: tuple[Phase, ...]) -> Moments:
    return sum((phases[phase] for phase in some), AT_ONCE)
