"""From rates and a limit to the smallest machine and the settings that keep it.

On a machine the settings with the least latency are sought: whole numbers (jobs at once, tasks of a cut) are
enumerated, the trigger is minimised over by SciPy's bounded search. The trigger of each stream is the same share of its
limit, so that the least margin over the streams is largest. The smallest machine that suffices is found by bisection,
as latency falls with the cores; and so is the largest rate that a machine does within the limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from transom.errors import DefinitionError, require_extra
from transom.model.time import MICROS_PER_SECOND, Micros
from transom.model.tuning import StreamTuning, Tuning
from transom.planning.model import Machine, Model, Prediction
from transom.planning.profile import Profile

POLL: Micros = 50_000
"""Time between two looks at a source, of which every trigger is a multiple."""
SHARES = (0.05, 0.15, 0.35, 0.8)
"""Triggers, as shares of the limit, that all whole numbers are tried with."""
REFINED = 2
"""As many of them are then looked at closely."""
PROMISING = 4
"""As many of them are looked at where another rate is tried that is near."""
EACH = 4
"""A plan tells of machines of which each is larger than the one before by one such part, or by one executor."""
STEPS = 14
"""Steps of the bounded search."""
EXACT = 0.01
"""Relative step at which the bisection ends."""
LEAST = 1e-4
"""No rate of a smaller share of the stated one is looked for."""
LARGEST = 1e6
"""No rate more than so many times the stated one is looked for."""


@dataclass(frozen=True)
class Goal:
    """What a plan must keep.

    Raises:
        DefinitionError: A number that no plan can keep, or no limit.
    """

    rates: Mapping[str, float]
    """Rows per second of each stream."""
    limits: Mapping[str, float]
    """Seconds within which the results of a stream are due; of streams with a limit."""
    share: float | None = 0.99
    """Share of the results that must be within it; None for their mean."""
    margin: float = 0.1
    """Share of the limit that is kept free."""

    def __post_init__(self) -> None:
        for what, values in (("rate", self.rates), ("limit", self.limits)):
            for name, value in values.items():
                if not 0 < value < math.inf:
                    raise DefinitionError(f"plan: the {what} of {name} is {value}.", "Give a number above 0.")
        if not self.limits:
            raise DefinitionError(
                "plan: no query has a limit.", 'Give one: --within "2 seconds", or .within() in the job.'
            )
        if self.share is not None and not 0 < self.share < 1:
            raise DefinitionError(f"plan: the quantile is {self.share}.", "Give a share such as 0.99.")
        if not 0 <= self.margin < 1:
            raise DefinitionError(f"plan: the margin is {self.margin}.", "Give a share such as 0.1.")

    def times(self, factor: float) -> Goal:
        """Return the same with so many times the rates."""
        return replace(self, rates={name: factor * rate for name, rate in self.rates.items()})


@dataclass(frozen=True)
class Choice:
    """Settings, and what to expect with them."""

    tuning: Tuning
    prediction: Prediction
    latencies: Mapping[str, float]
    """Of each stream with a limit, the mean or quantile that was asked for, seconds."""
    ratio: float
    """The largest latency over its limit less the margin; up to 1 it is kept."""

    @property
    def kept(self) -> bool:
        """Whether the limit is kept with the margin."""
        return self.ratio <= 1


@dataclass(frozen=True)
class Size:
    """A machine, and the most that it can do."""

    executors: int
    """Executors, or cores in local mode."""
    cores: int
    factor: float
    """Largest rate within the limit, over the stated one; 0 if none is."""
    choice: Choice
    """The settings for that rate; with the least latency, where none is within the limit."""


@dataclass(frozen=True)
class Plan:
    """The smallest machine that keeps a goal, or why there is none."""

    goal: Goal
    sizes: tuple[Size, ...]
    """From the smallest machine on, some of those up to the one that suffices or the largest there may be."""
    choice: Choice
    """The settings at the stated rates on the last of them."""
    division: Mapping[str, float] = field(default_factory=dict)
    """Of streams that read results of others: the part of the limit that each may take, seconds."""

    @property
    def kept(self) -> bool:
        """Whether the limit is kept at the stated rates."""
        return self.choice.kept

    @property
    def nearest(self) -> float:
        """The least limit that the largest machine keeps at the stated rates, over the stated one."""
        return self.choice.ratio


def solve(profile: Profile, goal: Goal, machines: Callable[[int], Machine], most: int) -> Plan:
    """Return the smallest machine that keeps a goal, with settings; or the largest one, if none does.

    Args:
        profile: What phases cost.
        goal: Rates and limits.
        machines: Returns the machine with so many executors (in local mode: cores).
        most: So many there are, at least 1.

    Raises:
        DefinitionError: SciPy is not installed.
    """
    require_extra("planning", ("scipy",), "Planning")
    searches: dict[int, tuple[Search, Choice]] = {}

    def on(executors: int) -> tuple[Search, Choice]:
        if executors not in searches:
            search = Search(profile, machines(executors))
            searches[executors] = search, search.best(goal)
        return searches[executors]

    smallest = first(lambda executors: on(executors)[1].kept, most)
    sizes: list[Size] = []
    for executors in told(smallest or most):
        sizes.append(_size(*on(executors), goal, executors, sizes[-1] if sizes else None))
    choice = on(smallest or most)[1]
    return Plan(goal, tuple(sizes), choice, _division(profile, goal, choice.prediction))


def first(suffices: Callable[[int], bool], most: int) -> int | None:
    """Return the smallest number from 1 to `most` that suffices, where all larger ones do, too; None if none does.

    >>> first(lambda number: number >= 11, 40), first(lambda number: False, 40)
    (11, None)
    """
    less, enough = 0, 1
    while not suffices(enough):
        if enough == most:
            return None
        less, enough = enough, min(2 * enough, most)
    while enough - less > 1:
        middle = (less + enough) // 2
        less, enough = (less, middle) if suffices(middle) else (middle, enough)
    return enough


def told(last: int) -> list[int]:
    """Return the numbers of executors that a plan tells of: few of many, and the last two.

    >>> told(6), told(21)
    ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 18, 20, 21])
    """
    found, number = {last, max(1, last - 1)}, 1
    while number < last:
        found.add(number)
        number += max(1, number // EACH)
    return sorted(found)


class Search:
    """The search for the best settings on a machine.

    Args:
        profile: What phases cost.
        machine: The machine.
    """

    def __init__(self, profile: Profile, machine: Machine) -> None:
        self._profile, self.machine = profile, machine
        self._known: dict[Hashable, Choice] = {}
        """What was looked at: searches for a trigger, and for a rate, come back to the same settings."""

    def best(self, goal: Goal) -> Choice:
        """Return the settings with the least ratio of latency to limit."""
        return self._among(goal, list(self._whole_numbers()), REFINED)[0]

    def _among(self, goal: Goal, some: Sequence[tuple[int, int]], refined: int) -> tuple[Choice, list[tuple[int, int]]]:
        """Return the best settings with some whole numbers, and these numbers, the most promising first.

        Args:
            goal: Rates and limits.
            some: Slots and tasks.
            refined: With so many of them the best trigger is looked for.
        """
        tried = [
            (min((self._choice(goal, *each, share) for share in SHARES), key=lambda one: one.ratio), each)
            for each in some
        ]
        tried.sort(key=lambda one: one[0].ratio)
        ranked = [each for _, each in tried]
        choices = [tried[0][0], *(self._refined(goal, *each) for each in ranked[:refined])]
        return min(choices, key=lambda each: each.ratio), ranked

    def largest(self, goal: Goal, low: float, high: float) -> tuple[float, Choice | None]:
        """Return the largest factor of the rates within the limit, by bisection.

        Args:
            goal: Rates and limits.
            low: A factor that is known to be within, or 0.
            high: Where to look first; raised, each time by twice as much, until it is out of reach.

        Returns:
            The factor, 0 if no rate is within the limit, and the settings for it.
        """
        if low == 0 and not self.best(goal.times(LEAST)).kept:
            return 0.0, None
        low, every = max(low, LEAST), list(self._whole_numbers())
        within, ranked = self._among(goal.times(low), every, REFINED)
        while True:
            while high < LARGEST:
                choice, order = self._among(goal.times(high), every, REFINED)
                if not choice.kept:
                    break
                low, high, within, ranked = high, high + 2 * max(high - low, high * EXACT), choice, order
            while high - low > EXACT * high:
                middle = (low + high) / 2
                choice, _ = self._among(goal.times(middle), ranked[:PROMISING], 1)
                low, high, within = (middle, high, choice) if choice.kept else (low, middle, within)
            # Other whole numbers may do a little more.
            high = low * (1 + 2 * EXACT)
            if high >= LARGEST or not self.best(goal.times(high)).kept:
                return low, within

    def _whole_numbers(self) -> Iterator[tuple[int, int]]:
        cores, streams = self.machine.cores, len(self._profile.streams)
        parts = max((each.parts or 2 * cores) for each in self._profile.streams.values())
        powers = {1 << power for power in range(12)} | {cores}
        for slots in sorted({1, 2, cores, streams}):
            if slots <= min(streams, max(2, cores)):
                for tasks in sorted(powers):
                    if tasks <= min(parts, 2 * cores):
                        yield slots, tasks

    def _refined(self, goal: Goal, slots: int, tasks: int) -> Choice:
        """Return the best trigger for some whole numbers."""
        from scipy.optimize import minimize_scalar  # only here, as it takes half a second

        found = minimize_scalar(
            lambda share: min(1e9, self._choice(goal, slots, tasks, math.exp(share)).ratio),
            bounds=(math.log(0.01), 0.0),
            method="bounded",
            options={"maxiter": STEPS, "xatol": 0.02},
        )
        return self._choice(goal, slots, tasks, math.exp(float(found.x)))

    def _choice(self, goal: Goal, slots: int, tasks: int, share: float) -> Choice:
        """Return what comes of cuts that take a share of the limit to come, and are divided into so many tasks."""
        widest = max(goal.limits.values())
        streams = {}
        for name, stream in self._profile.streams.items():
            limit = min(self._limits_behind(name, goal), default=widest)
            looks = max(1, round(share * limit * MICROS_PER_SECOND / POLL))
            trigger = looks * POLL
            rows = goal.rates[name] * max(trigger / MICROS_PER_SECOND, stream.piece)
            # Half a task less: so cuts that are a little larger or smaller have as many tasks.
            per_task = max(1, math.ceil(rows / max(0.5, tasks - 0.5)))
            streams[name] = StreamTuning(trigger, None, per_task, min(tasks, self.machine.cores))
        return self.with_settings(goal, Tuning(slots, streams))

    def with_settings(self, goal: Goal, tuning: Tuning) -> Choice:
        """Return what comes of some settings."""
        key = tuple(goal.rates.items()), tuple(goal.limits.items()), goal.share, goal.margin, tuning
        if key not in self._known:
            self._known[key] = self._predicted(goal, tuning)
        return self._known[key]

    def forget(self) -> None:
        """Forget what was looked at, of which each takes some kilobytes."""
        self._known.clear()

    def _predicted(self, goal: Goal, tuning: Tuning) -> Choice:
        prediction = Model(self._profile, self.machine, tuning, goal.rates).predict()
        latencies = {name: self._latency(goal, name, prediction) for name in goal.limits}
        ratio = max(latencies[name] / limit for name, limit in goal.limits.items()) / (1 - goal.margin)
        return Choice(tuning, prediction, latencies, ratio)

    def _limits_behind(self, name: str, goal: Goal) -> list[float]:
        """Return the limits of a stream and of those that read its results."""
        readers = [other for other, each in self._profile.streams.items() if each.after == name]
        found = [goal.limits[name]] if name in goal.limits else []
        return found + [limit for other in readers for limit in self._limits_behind(other, goal)]

    def _latency(self, goal: Goal, name: str, prediction: Prediction) -> float:
        result = prediction.streams[name].result
        if goal.share is None or not result.finite:
            return result.mean
        return self._profile.streams[name].residuals.quantile(result, goal.share)


def _size(search: Search, choice: Choice, goal: Goal, executors: int, smaller: Size | None) -> Size:
    """Return the most that a machine can do, given what a smaller one can."""
    before = smaller.factor if smaller is not None else 0.0
    low = max(before, 1.0 if choice.kept else 0.0)
    high = low * (1 + 2 * (executors / smaller.executors - 1)) if smaller is not None and before > 0 else 1.25
    factor, within = search.largest(goal, low, high if choice.kept else min(1.0, high))
    search.forget()
    return Size(executors, search.machine.cores, factor, within or choice)


def _division(profile: Profile, goal: Goal, prediction: Prediction) -> dict[str, float]:
    """Divide the limits of streams that read results: each may take as much more than expected as the others."""
    divided: dict[str, float] = {}
    for name, limit in goal.limits.items():
        chain, whole = profile.chain(name), prediction.streams[name].result
        if len(chain) > 1 and whole.finite:
            for stream in chain:
                own = sum(phase.mean for phase in prediction.streams[stream].phases.values())
                divided[stream] = min(divided.get(stream, math.inf), limit * own / whole.mean)
    return divided
