"""Streams that share cores, event by event: what the closed form says of them is checked before a plan is given.

The closed form (`model`) takes streams that share cores to meet at any moment, and a job to keep as many cores as it
finds. They do not: a task that runs is not stopped for a job that comes, so tasks wait until others end, and the next
cut of their stream begins so much later. Streams of like cycles fall into step by that. They take turns on the cores,
so that neither is held up, or meet each time, or either of both, as they began. There is no formula for which.

So cuts, tasks and cores are played, a discrete-event simulation with the costs of a profile. Times have the gamma law.
Jobs take free slots in the order of the oldest row, and the job that was there first has the next core: all streams are
in one of Spark's pools, whose jobs are in order (but for the policy `fair`, which is not played). Where rows come and
windows end beside each other is drawn anew for each run.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from transom.model.phases import OF_WINDOWS, WAITS, Phase
from transom.model.slopes import Floats
from transom.model.tuning import StreamTuning, Tuning
from transom.planning.cuts import Cut, Cutting
from transom.planning.model import Machine, Prediction, StreamLatency
from transom.planning.moments import Moments
from transom.planning.phases import CUT, TASKS
from transom.planning.profile import Profile, StreamProfile

FLOWING = 0.01
"""Seconds from one arrival to the next of rows that flow, at least."""
FINE = 100
"""They come in so many parts within a trigger, then."""
CYCLES, LEAST_CYCLES = 40, 10
"""Cuts of the slowest stream in a run, at most and at least."""
WARM = 5
"""Of its cuts before them, which do not count."""
MOST_TASKS = 20_000
"""Cuts and tasks in a run, about: where the slowest stream has too few cuts among so many, others have hundreds between
two of its own, so that they are at any step to it, and nothing is played."""
LEAST_RUNS, MOST_RUNS = 4, 16
EXACT = 0.01
"""While the standard error of a mean latency is a larger part of it, there are more runs."""
SEED = 0
PHASES = (*WAITS, *CUT)
"""The phases of a row up to its commit, which are played."""
NEARLY = 1e-9


def applies(profile: Profile, machine: Machine) -> bool:
    """Tell whether there are streams that share cores, which no driver shares with them, and none reads another."""
    return (
        len(profile.streams) > 1 and not machine.shared and all(one.after is None for one in profile.streams.values())
    )


def checked(
    profile: Profile, machine: Machine, tuning: Tuning, rates: Mapping[str, float], said: Prediction
) -> Prediction:
    """Return what to expect of streams that share cores, the same for the same numbers.

    Args:
        profile: What phases cost.
        machine: The cores that there are.
        tuning: Of all streams.
        rates: Rows per second of each stream.
        said: By the closed form. It stands where `applies` says no, of streams that cannot keep up, or whose cycles
            differ by hundreds of times, and of all that follows a commit.
    """
    if not applies(profile, machine) or not said.keeps_up or said.given_up:
        return said
    cycles = _cycles(profile, machine, tuning, said)
    if cycles < LEAST_CYCLES:
        return said
    chance, runs = np.random.default_rng(SEED), list[dict[str, Floats]]()
    cycle = max(one.cycle for one in said.streams.values())
    while len(runs) < LEAST_RUNS or (len(runs) < MOST_RUNS and not _exact(runs)):
        run = Run(profile, machine, tuning, rates, chance)
        runs.append(run.play(WARM * cycle, (WARM + cycles) * cycle))
    streams = {name: _seen(one, np.concatenate([each[name] for each in runs])) for name, one in said.streams.items()}
    return replace(said, streams=streams)


def _cycles(profile: Profile, machine: Machine, tuning: Tuning, said: Prediction) -> int:
    """Return of how many cuts of the slowest stream a run is."""
    slowest, tasks = max(one.cycle for one in said.streams.values()), 0.0
    for name, one in said.streams.items():
        cut = Cutting(profile.streams[name], tuning.of(name), machine.cores, machine.cores).of(one.rows)
        tasks += slowest / one.cycle * (1 + cut.tasks + cut.behind)
    return min(CYCLES, int(MOST_TASKS / tasks) - WARM)


def _exact(runs: list[dict[str, Floats]]) -> bool:
    """Tell whether the mean latencies of all streams are known."""
    for name in runs[0]:
        means = np.array([np.average(each[name][:, 1], weights=each[name][:, 0]) for each in runs])
        if means.std(ddof=1) > EXACT * means.mean() * math.sqrt(len(runs)):
            return False
    return True


def _seen(said: StreamLatency, cuts: Floats) -> StreamLatency:
    """Return the latency of a stream, given what `Run.play` returns of it."""
    weights = cuts[:, 0]
    latency, square, _, *phases = np.average(cuts[:, 1:], axis=0, weights=weights).tolist()
    record = Moments(latency, max(0.0, square - latency**2))
    played = {phase: Moments(mean, said.phases[phase].variance) for phase, mean in zip(PHASES, phases, strict=True)}
    windows = sum((said.phases[phase] for phase in OF_WINDOWS), Moments())
    cycle = float(cuts[:, 3].mean())
    return replace(
        said,
        cycle=cycle,
        rows=said.rows * cycle / said.cycle,
        phases={**said.phases, **played},
        record=record,
        result=record + windows,
    )


@dataclass(eq=False)
class _Stream:
    profile: StreamProfile
    cutting: Cutting
    tuning: StreamTuning
    chance: np.random.Generator
    rate: float
    piece: float
    arrives: float
    """When the next rows come."""
    ends: float
    """When the next window ends that no cut has completed."""
    waiting: list[float] = field(default_factory=list)
    """When those came that wait."""
    rests: bool = True
    """Whether no cut of it is under way."""
    since: float = -math.inf
    """When its last cut began."""
    free: float = 0.0
    """From when on it has been at rest, and its trigger passed."""
    able: float | None = None
    """From when on it waits for a slot only."""
    at_once: bool = False
    """Whether the next cut closes windows, and so waits for no trigger."""
    wakes: float = math.inf
    """When it is looked at next while it rests."""
    seen: list[list[float]] = field(default_factory=list)

    @property
    def look(self) -> float:
        """Mean seconds until its source is looked at."""
        return self.profile.cost(Phase.LOOK).fixed

    @property
    def earliest(self) -> float:
        """When the next cut may begin."""
        trigger = self.tuning.trigger_seconds
        return self.since + trigger + self.look if trigger else self.since

    def waits(self, now: float) -> bool:
        """Take in the rows that have come, and tell whether some wait."""
        while self.arrives <= now + NEARLY:
            self.waiting.append(self.arrives)
            regular = self.profile.regular if self.profile.piece else 0.0
            self.arrives += self.piece * (self.chance.gamma(1 / regular, regular) if regular else 1.0)
        return bool(self.waiting)

    def rows(self) -> float:
        """Return the rows of a cut of all that waits."""
        wide = math.sqrt(math.log1p(self.profile.uneven))
        uneven = math.exp(self.chance.normal(-(wide**2) / 2, wide)) if wide else 1.0
        return max(1.0, len(self.waiting) * self.rate * self.piece * uneven)


@dataclass(eq=False)
class _Job:
    stream: _Stream
    cut: Cut
    began: float
    came: list[float]
    """When its rows did."""
    able: float
    stages: list[list[float]]
    """Seconds of the tasks of each that have not begun."""
    seconds: dict[Phase, float]
    fresh: bool = True
    """Whether no task of it has begun: that it waits for a core counts as a part of the launch, as it is measured."""
    running: int = 0
    left: int = 0
    """Tasks of the stage that have not ended."""
    stage_began: float = 0.0


class Run:
    """One run of an application.

    Args:
        profile: What phases cost.
        machine: The cores that there are.
        tuning: Of all streams.
        rates: Rows per second of each stream.
        chance: Draws times, and where rows come and windows end.
    """

    def __init__(
        self,
        profile: Profile,
        machine: Machine,
        tuning: Tuning,
        rates: Mapping[str, float],
        chance: np.random.Generator,
    ) -> None:
        self._chance, self._cores, self._slots = chance, machine.cores, tuning.slots
        self._streams: dict[str, _Stream] = {}
        for name, each in profile.streams.items():
            one, settings = each.at(rates[name]), tuning.of(name)
            piece = each.piece or max(FLOWING, settings.trigger_seconds / FINE)
            cutting = Cutting(one, settings, machine.cores, machine.cores, rates[name])
            first, end = chance.uniform(0, piece), chance.uniform(0, each.closing)
            self._streams[name] = _Stream(one, cutting, settings, chance, rates[name], piece, first, end)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._now = self._thread = 0.0
        """The time, and until when the loop's thread is busy."""
        self._taken = 0
        """Slots that are."""
        self._jobs: list[_Job] = []
        """Those that have tasks."""
        self._warm = 0.0

    def play(self, warm: float, until: float) -> dict[str, Floats]:
        """Return the cuts that began after some seconds and were committed before some others, by stream.

        Of each cut there are its weight (times at which rows came), the mean latency of its rows up to the commit and
        the mean of its square, seconds since the one before, and seconds of each of `PHASES`; shape (cuts, 12).
        """
        self._warm = warm
        self._turn()
        while self._now < until:
            self._now, _, action = heapq.heappop(self._events)
            action()
        return {name: np.array(stream.seen).reshape(-1, 4 + len(PHASES)) for name, stream in self._streams.items()}

    def _at(self, moment: float, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (moment, self._count, action))

    def _drawn(self, mean: float, scv: float) -> float:
        return float(self._chance.gamma(1 / scv, mean * scv)) if mean > 0 and scv > 0 else mean

    # ---- cuts

    def _turn(self) -> None:
        """Begin the cuts that may, as far as there are slots, when the loop's thread has time."""
        if self._now + NEARLY < self._thread:
            self._at(self._thread, self._turn)
            return
        able = []
        for stream in self._streams.values():
            may = stream.rests and (stream.at_once or self._now + NEARLY >= stream.earliest)
            if may and stream.waits(self._now):
                stream.able = self._now if stream.able is None else stream.able
                able.append(stream)
            elif stream.rests:
                self._wake(stream)
        able.sort(key=lambda stream: stream.waiting[0])
        free = max(0, self._slots - self._taken)
        for stream in able[:free]:
            self._begin(stream)
        for stream in self._streams.values():
            stream.at_once = False  # windows of others are closed by cuts without rows

    def _wake(self, stream: _Stream) -> None:
        """Look at a stream at rest again when its next cut may begin."""
        moment = max(self._now, stream.earliest)
        if not stream.waits(self._now):
            moment = max(moment, stream.arrives + self._chance.uniform(0, 2 * stream.look))
        if moment < stream.wakes:
            stream.wakes = moment
            self._at(moment, partial(self._woken, stream))

    def _woken(self, stream: _Stream) -> None:
        stream.wakes = math.inf
        self._turn()

    def _begin(self, stream: _Stream) -> None:
        rows, now = stream.rows(), self._now
        cut, costs = stream.cutting.of(rows), stream.profile.cost
        seconds = {phase: self._drawn(cut.mean(phase), costs(phase).scv) for phase in CUT if phase not in TASKS}
        stages = []
        for phase, tasks in ((Phase.MAP, cut.tasks), (Phase.EXCHANGE, cut.behind)):
            if tasks:
                each, scv = cut.work(phase) / tasks, costs(phase).scv
                stages.append(self._chance.gamma(1 / scv, each * scv, tasks).tolist() if scv else [each] * tasks)
        able = now if stream.able is None else stream.able
        job = _Job(stream, cut, now, stream.waiting, able, stages, seconds)
        stream.waiting, stream.rests, stream.able = [], False, None
        self._taken += 1
        self._at(now + seconds[Phase.PLAN] + seconds[Phase.LAUNCH], partial(self._launched, job))

    def _launched(self, job: _Job) -> None:
        self._jobs.append(job)
        self._open(job)

    def _open(self, job: _Job) -> None:
        """Let the tasks of a job's next stage run."""
        job.left, job.stage_began = len(job.stages[0]), self._now
        self._give_cores()

    def _give_cores(self) -> None:
        free = self._cores - sum(job.running for job in self._jobs)
        while free > 0:
            job = next((job for job in self._jobs if job.stages[0]), None)
            if job is None:
                return
            if job.fresh:
                job.fresh = False
                job.seconds[Phase.LAUNCH] += self._now - job.stage_began
                job.stage_began = self._now
            self._at(self._now + job.stages[0].pop(), partial(self._ended, job))
            job.running, free = job.running + 1, free - 1

    def _ended(self, job: _Job) -> None:
        """Take the end of a task."""
        job.running, job.left = job.running - 1, job.left - 1
        if job.left:
            self._give_cores()
            return
        job.stages.pop(0)
        job.seconds[Phase.EXCHANGE if Phase.MAP in job.seconds else Phase.MAP] = self._now - job.stage_began
        if job.stages:
            self._open(job)
            return
        self._jobs.remove(job)
        self._give_cores()
        self._at(self._now + job.seconds[Phase.COLLECT], partial(self._collected, job))

    def _collected(self, job: _Job) -> None:
        """Commit a cut when the loop's thread has time."""
        self._taken -= 1
        self._thread = max(self._now, self._thread) + job.seconds[Phase.COMMIT]
        job.seconds[Phase.COMMIT] = self._thread - self._now
        self._at(self._thread, partial(self._committed, job))

    def _committed(self, job: _Job) -> None:
        """Let the next cuts begin, and close the windows that this one completes."""
        stream, newest = job.stream, job.came[-1]
        self._note(job)
        stream.since, stream.rests = job.began, True
        closes = stream.ends <= newest
        while stream.ends <= newest:
            stream.ends += stream.profile.closing
        stream.at_once = closes and stream.waits(self._now)
        stream.free = self._now if stream.at_once else max(self._now, stream.earliest)
        self._turn()
        if closes:
            windows = job.cut.work(Phase.CLOSE) + job.cut.work(Phase.CONSOLIDATE)
            self._thread = max(self._now, self._thread) + windows

    def _note(self, job: _Job) -> None:
        stream, came = job.stream, np.array(job.came)
        if job.began < self._warm:
            return
        slot = job.began - np.maximum(came, job.able)
        before = np.maximum(0.0, job.able - came)
        looked = came >= stream.free
        waits = [(before * looked).mean(), (before * ~looked).mean(), slot.mean()]
        latency = self._now - came
        phases = [job.seconds.get(phase, 0.0) for phase in CUT]
        stream.seen.append(
            [float(len(came)), latency.mean(), (latency**2).mean(), job.began - stream.since, *waits, *phases]
        )
