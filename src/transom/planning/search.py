"""The search for the best settings on a machine, and for the largest rate that it does within a limit.

Whole numbers (jobs at once, tasks of a cut) are enumerated, the trigger is minimised over by SciPy's bounded search.
The trigger of each stream is the same share of its limit, so that the least margin over the streams is largest. What is
bound to be worse than what was found already is given up before the streams' waits for each other have settled.

The largest rate that a machine does within the limit is that of settings which keep it: by false position, as the
limit over the latency falls nearly on a line where queues decide. Then all others are asked once whether they do more,
and one that does goes on from there. So each is looked at about once for a machine, and not once for each rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain

from transom.model.time import MICROS_PER_SECOND
from transom.model.tuning import StreamTuning, Tuning
from transom.planning.events import applies, checked
from transom.planning.goals import Choice, Goal, Settable
from transom.planning.model import Machine, Model, Prediction
from transom.planning.profile import Profile

SHARES = (0.05, 0.15, 0.35, 0.8)
"""Triggers, as shares of the limit, that all whole numbers are tried with."""
BETWEEN = (0.02, 0.085, 0.23, 0.53, 1.0)
"""Others that the best of them are tried with."""
REFINED = 2
"""As many of them are then looked at closely."""
PLAYED = 3
"""As many settings are looked at event by event."""
WORSE = 1.25
"""What takes so many times as long as the best that was found is given up."""
STEPS = 8
"""Steps of the bounded search, between the neighbours of the best of these triggers."""
EXACT = 0.01
"""Relative step at which the search for a rate ends."""
LEAST = 1e-4
"""No rate of a smaller share of the stated one is looked for."""
LARGEST = 1e6
"""No rate more than so many times the stated one is looked for."""


@dataclass(frozen=True)
class Division:
    """How a machine is used; other settings follow from it, rates and limits."""

    slots: int
    """Jobs at once."""
    tasks: int
    """Of a cut."""
    share: float
    """The trigger, as a share of the limit."""

    def with_trigger(self, share: float) -> Division:
        """Return the same with another trigger."""
        return replace(self, share=share)


class Search:
    """The search for the best settings on a machine.

    Args:
        profile: What phases cost.
        machine: The machine.
        settable: What may be set.
    """

    def __init__(self, profile: Profile, machine: Machine, settable: Settable | None = None) -> None:
        self.profile, self.machine, self.settable = profile, machine, settable or Settable()
        self._with: dict[float, tuple[Profile, Machine]] = {}
        """The same with costs that are higher by a margin."""
        self._known: dict[Hashable, Choice] = {}
        """What was looked at: searches for a trigger, and for a rate, come back to the same settings."""
        self._seen: dict[Hashable, Choice] = {}
        """The same of those that were looked at event by event."""
        self._order = [Division(*each, share) for each in self._whole_numbers() for share in SHARES]
        """All that is tried, what was best last time first."""

    def best(self, goal: Goal) -> Choice:
        """Return the settings with the least ratio of latency to limit.

        Where none keep up if costs are higher by the margin, those that are best without it.
        """
        found = min((choice for _, choice in self._tried(goal)), key=lambda each: each.ratio)
        if goal.margin and not math.isfinite(found.ratio):
            return self.with_settings(goal, self.best(replace(goal, margin=0.0)).tuning)
        return found

    def checked(self, goal: Goal) -> Choice:
        """Return the settings with the least ratio event by event where streams share the cores; see `events`.

        Those are looked at that are best with their slots and tasks, as far as they are the first by the closed form.
        """
        if not applies(self.profile, self.machine):
            return self.best(goal)
        found: dict[tuple[int, int], Choice] = {}
        for division, choice in sorted(self._tried(goal), key=lambda each: each[1].ratio):
            found.setdefault((division.slots, division.tasks), choice)
        played = [self.seen(goal, choice.tuning) for choice in list(found.values())[:PLAYED]]
        best = min(played, key=lambda each: each.ratio)
        return best if math.isfinite(best.ratio) else self.seen(goal, self.best(goal).tuning)

    def seen(self, goal: Goal, tuning: Tuning) -> Choice:
        """Return what comes of some settings, event by event where streams share the cores; see `events`."""
        key = self._key(goal, tuning)
        if key not in self._seen:
            said, free = self.with_settings(goal, tuning), replace(goal, margin=0.0)
            careful = self._checked(goal, tuning, said.careful)
            self._seen[key] = (
                said
                if careful is said.careful
                else self._judged(goal, tuning, careful, lambda: self._checked(free, tuning, said.prediction))
            )
        return self._seen[key]

    def _checked(self, goal: Goal, tuning: Tuning, said: Prediction) -> Prediction:
        return checked(*self._dearer(goal.margin), tuning, goal.rates, said)

    def keeps(self, goal: Goal) -> bool:
        """Tell whether some settings keep the limit."""
        return self._some(goal) is not None

    def _some(self, goal: Goal, first: Division | None = None) -> tuple[Division, Choice] | None:
        """Return settings that keep the limit, the first that are found; those around a division are tried first."""
        near = self._refined(goal, first) if first is not None else ()
        return next((each for each in chain(near, self._tried(goal)) if each[1].kept), None)

    def _tried(self, goal: Goal) -> Iterator[tuple[Division, Choice]]:
        """Yield all settings that are tried: first those with some triggers, then the best of them with others."""
        found, best = [], math.inf
        for division in self._order:
            found.append((division, self._choice(goal, division, WORSE * best)))
            best = min(best, found[-1][1].ratio)
            yield found[-1]
        found.sort(key=lambda each: each[1].ratio)
        self._order = [division for division, _ in found]
        leading = {(each.slots, each.tasks): each for each in reversed(self._order)}
        for division in sorted(leading.values(), key=self._order.index)[:REFINED]:
            yield from self._refined(goal, division)

    def largest(self, goal: Goal, low: float, high: float) -> tuple[float, Choice | None]:
        """Return the largest factor of the rates within the limit.

        Args:
            goal: Rates and limits.
            low: A factor that should be within, or 0.
            high: Where to look first.

        Returns:
            The factor, 0 if no rate is within the limit, and the settings for it.
        """
        factors = [high, low, LEAST] if low > 0 else [LEAST]
        factor, found = next(((each, some) for each in factors if (some := self._some(goal.times(each)))), (0.0, None))
        if found is None:
            return 0.0, None
        while True:
            division, choice = found
            factor, choice = self._reach(goal, division, factor, choice, high)
            # Other settings may do a little more.
            high = factor * (1 + 2 * EXACT)
            if high >= LARGEST or (found := self._some(goal.times(high), division)) is None:
                return factor, choice
            factor, high = high, high * (1 + 2 * EXACT)

    def _reach(self, goal: Goal, division: Division, low: float, within: Choice, high: float) -> tuple[float, Choice]:
        """Return the largest factor at which a division keeps the limit, by false position, and the settings for it.

        Args:
            goal: Rates and limits.
            division: Of the machine.
            low: A factor at which it does.
            within: The settings for that.
            high: Where to look first; raised, each time by twice as much, until it is out of reach.
        """
        high = max(high, low * (1 + EXACT))
        while (beyond := self._choice(goal.times(high), division)).kept:
            low, high, within = high, high + 2 * max(high - low, high * EXACT), beyond
            if low >= LARGEST:
                return low, within
        over, under = 1 / within.ratio - 1, 1 / beyond.ratio - 1
        while high - low > EXACT * high:
            # A little beyond the crossing of the line, so that both ends come near.
            part = min(0.9, max(0.1, over / (over - under) + EXACT / 4))
            middle = low + part * (high - low)
            choice = self._choice(goal.times(middle), division)
            if choice.kept:
                low, within, over, under = middle, choice, 1 / choice.ratio - 1, under / 2
            else:
                high, under, over = middle, 1 / choice.ratio - 1, over / 2
        return low, within

    def _whole_numbers(self) -> Iterator[tuple[int, int]]:
        cores, streams = self.machine.cores, len(self.profile.streams)
        parts = max((each.parts or 2 * cores) for each in self.profile.streams.values())
        powers = {1 << power for power in range(12)} | {cores}
        given = self.settable.slots
        for slots in sorted({1, 2, cores, streams} if given is None else {given}):
            if slots == given or slots <= min(streams, max(2, cores)):
                for tasks in sorted(powers):
                    if tasks <= min(parts, 2 * cores):
                        yield slots, tasks

    def _refined(self, goal: Goal, division: Division) -> list[tuple[Division, Choice]]:
        """Return what comes of other triggers, down to the best one.

        Latency leaps where a cut more is due before a window's: so the search begins where the best of some lies.
        """
        from scipy.optimize import minimize_scalar  # only here, as it takes half a second

        shares = sorted({*SHARES, *BETWEEN, division.share})
        found = [(other, self._choice(goal, other)) for other in map(division.with_trigger, shares)]
        place = min(range(len(shares)), key=lambda each: found[each][1].ratio)
        low, high = shares[max(0, place - 1)], shares[min(len(shares), place + 2) - 1]

        def ratio(share: float) -> float:
            other = division.with_trigger(math.exp(share))
            found.append((other, self._choice(goal, other)))
            return min(1e9, found[-1][1].ratio)

        minimize_scalar(
            ratio, bounds=(math.log(low), math.log(high)), method="bounded", options={"maxiter": STEPS, "xatol": 0.02}
        )
        return found

    def _choice(self, goal: Goal, division: Division, most: float = math.inf) -> Choice:
        """Return what comes of cuts that take a share of the limit to come, and are divided into so many tasks.

        Args:
            goal: Rates and limits.
            division: Of the machine.
            most: With a larger ratio than this it may be given up; the ratio is what it is at least then.
        """
        widest = max(goal.limits.values())
        settable, streams = self.settable, {}
        for name, stream in self.profile.streams.items():
            limit = min(self._limits_behind(name, goal), default=widest)
            trigger = settable.trigger(name, division.share * limit)
            rows = goal.rates[name] * _in_pieces(trigger / MICROS_PER_SECOND, stream.piece)
            # Half a task less: so cuts that are a little larger or smaller have as many tasks.
            per_task = max(settable.least_task, math.ceil(rows / max(0.5, division.tasks - 0.5)))
            partitions = min(division.tasks, self.machine.cores)
            streams[name] = StreamTuning(trigger, settable.rows_per_cut.get(name), per_task, partitions)
        return self.with_settings(goal, Tuning(division.slots, streams), most)

    def with_settings(self, goal: Goal, tuning: Tuning, most: float = math.inf) -> Choice:
        """Return what comes of some settings; see `_choice` for `most`."""
        key = self._key(goal, tuning)
        known = self._known.get(key)
        if known is None or (known.careful.given_up and known.ratio <= most):
            known = self._known[key] = self._predicted(goal, tuning, most)
        return known

    @staticmethod
    def _key(goal: Goal, tuning: Tuning) -> Hashable:
        return tuple(goal.rates.items()), tuple(goal.limits.items()), goal.share, goal.margin, tuning

    def forget(self) -> None:
        """Forget what was looked at, of which each takes some kilobytes."""
        self._known.clear()
        self._seen.clear()

    def _predicted(self, goal: Goal, tuning: Tuning, most: float) -> Choice:
        means_say = goal.share is None or goal.share >= 0.5  # other quantiles may be below the mean
        longest = {name: most * limit for name, limit in goal.limits.items()} if means_say else {}
        careful = Model(*self._dearer(goal.margin), tuning, goal.rates).predict(longest)
        return self._judged(
            goal, tuning, careful, lambda: Model(self.profile, self.machine, tuning, goal.rates).predict()
        )

    def _judged(self, goal: Goal, tuning: Tuning, careful: Prediction, expect: Callable[[], Prediction]) -> Choice:
        def expected() -> tuple[Prediction, Mapping[str, float]]:
            prediction = expect()
            return prediction, self._latencies(goal, prediction)

        return Choice(tuning, goal.limits, careful, self._latencies(goal, careful), expected)

    def _dearer(self, margin: float) -> tuple[Profile, Machine]:
        """Return profile and machine if all costs are higher by a margin."""
        if margin not in self._with:
            driver = (1 + margin) * self.machine.driver
            self._with[margin] = self.profile.dearer(1 + margin), replace(self.machine, driver=driver)
        return self._with[margin]

    def _limits_behind(self, name: str, goal: Goal) -> list[float]:
        """Return the limits of a stream and of those that read its results."""
        readers = [other for other, each in self.profile.streams.items() if each.after == name]
        found = [goal.limits[name]] if name in goal.limits else []
        return found + [limit for other in readers for limit in self._limits_behind(other, goal)]

    def _latencies(self, goal: Goal, prediction: Prediction) -> dict[str, float]:
        return {name: self._latency(goal, name, prediction) for name in goal.limits}

    def _latency(self, goal: Goal, name: str, prediction: Prediction) -> float:
        result = prediction.streams[name].result
        if goal.share is None or not result.finite:
            return result.mean
        return self.profile.streams[name].residuals.quantile(result, goal.share)


def _in_pieces(seconds: float, piece: float) -> float:
    """Return the most of the time that comes with a cut, where rows come together each time that a piece has passed."""
    return piece * max(1, math.ceil(seconds / piece - EXACT)) if piece else seconds
