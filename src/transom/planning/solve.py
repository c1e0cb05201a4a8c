"""From rates and a limit to the smallest machine that keeps it, and what smaller ones do.

The smallest machine that suffices is found by bisection, as latency falls with the cores; `search` finds settings. It
is looked for by the closed form. Where streams share cores, machines near it are then checked event by event, and what
is said of these follows from that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from transom.errors import require_extra
from transom.planning.goals import Choice, Goal
from transom.planning.model import Machine, Prediction
from transom.planning.profile import Profile
from transom.planning.search import Search

EACH = 4
"""A plan tells of machines of which each is larger than the one before by one such part, or by one executor."""


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
    searches: dict[int, Search] = {}

    def on(executors: int) -> Search:
        if executors not in searches:
            searches[executors] = Search(profile, machines(executors))
        return searches[executors]

    smallest, choices = suffices(goal, on, most)
    sizes: list[Size] = []
    for executors in told(smallest or most):
        kept = smallest is not None and executors >= smallest
        search = on(executors)
        held = _held(goal, search.best(goal), choices[executors]) if executors in choices else goal
        sizes.append(_size(search, held, kept, executors, sizes[-1] if sizes else None))
    choice = choices[smallest or most]
    return Plan(goal, tuple(sizes), choice, _division(profile, goal, choice.prediction))


def suffices(goal: Goal, on: Callable[[int], Search], most: int) -> tuple[int | None, dict[int, Choice]]:
    """Return how many executors suffice at least, None if so many do not, and what comes of the numbers near it.

    Args:
        goal: Rates and limits.
        on: Returns the search on so many.
        most: So many there are, at least 1.
    """
    choices: dict[int, Choice] = {}

    def kept(executors: int) -> bool:
        if executors not in choices:
            choices[executors] = on(executors).checked(goal)
        return choices[executors].kept

    number = first(lambda executors: on(executors).keeps(goal), most) or most
    if kept(number):
        while number > 1 and kept(number - 1):
            number -= 1
        return number, choices
    more = first(lambda more: kept(number + more), most - number) if number < most else None
    return None if more is None else number + more, choices


def _held(goal: Goal, said: Choice, seen: Choice) -> Goal:
    """Return the goal that the closed form keeps where the one that is asked for is kept event by event."""
    off = said.ratio / seen.ratio
    return (
        replace(goal, limits={name: off * each for name, each in goal.limits.items()}) if math.isfinite(off) else goal
    )


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


def _size(search: Search, goal: Goal, kept: bool, executors: int, smaller: Size | None) -> Size:
    """Return the most that a machine can do, given whether it does what is asked, and what a smaller one can."""
    before = smaller.factor if smaller is not None else 0.0
    low = max(before, 1.0 if kept else 0.0)
    high = low * executors / smaller.executors if smaller is not None and before > 0 else 1.25
    factor, within = search.largest(goal, low, high if kept else min(1.0, high))
    size = Size(executors, search.machine.cores, factor, within or search.best(goal))
    search.forget()
    return size


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
