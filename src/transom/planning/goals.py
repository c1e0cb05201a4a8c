"""What a plan must keep, what it may set, and what it chooses.

A limit is kept if it is with all costs higher by a margin than they were measured. A margin of the latency would be
worth nothing where cores are full: there a hundredth of the costs is a tenth of the latency, and more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from transom.errors import DefinitionError
from transom.model.time import MICROS_PER_SECOND, Micros
from transom.model.tuning import Tuning
from transom.planning.model import Prediction

POLL: Micros = 50_000
"""Time between two looks at a source, of which every trigger is a multiple."""


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
    """Part by which all costs may be higher than they were measured."""

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
class Settable:
    """What may be set, as an application can be: the search finds the best of that."""

    poll: Micros = POLL
    """Time between two looks at a source, of which every trigger is a multiple."""
    least_task: int = 1
    """Rows of a task at least."""
    slots: int | None = None
    """Jobs at once, where they are given."""
    triggers: Mapping[str, Micros] = field(default_factory=dict)
    """Of the streams whose trigger is given."""
    rows_per_cut: Mapping[str, int] = field(default_factory=dict)
    """Largest cuts of the streams that have a bound, which stays."""

    def trigger(self, name: str, wanted: float) -> Micros:
        """Return the trigger of a stream that is nearest to so many seconds."""
        if name in self.triggers:
            return -(-self.triggers[name] // self.poll) * self.poll
        return max(1, round(wanted * MICROS_PER_SECOND / self.poll)) * self.poll


@dataclass(frozen=True)
class Choice:
    """Settings, and what to expect with them."""

    tuning: Tuning
    limits: Mapping[str, float]
    """Of each stream that has one, seconds."""
    careful: Prediction
    """If all costs are higher by the margin."""
    longest: Mapping[str, float]
    """Of each stream with a limit, the mean or quantile that was asked for, seconds, if costs are."""
    expect: Callable[[], tuple[Prediction, Mapping[str, float]]] = field(repr=False, compare=False)
    """Returns the same if costs are as they were measured."""

    @cached_property
    def _expected(self) -> tuple[Prediction, Mapping[str, float]]:
        return self.expect()

    @property
    def prediction(self) -> Prediction:
        """What to expect if costs are as they were measured; found when it is asked for."""
        return self._expected[0]

    @property
    def latencies(self) -> Mapping[str, float]:
        """Of each stream with a limit, the mean or quantile to expect then, seconds."""
        return self._expected[1]

    @cached_property
    def ratio(self) -> float:
        """The largest latency over its limit if costs are higher by the margin; up to 1 it is kept."""
        return max(self.longest[name] / limit for name, limit in self.limits.items())

    @property
    def expected_ratio(self) -> float:
        """The largest latency over its limit if costs are as they were measured."""
        return max(self.latencies[name] / limit for name, limit in self.limits.items())

    @property
    def kept(self) -> bool:
        """Whether the limit is kept with the margin."""
        return self.ratio <= 1
