"""Whether a plan still fits what happens: phases that take another time than it says, and rates that it is not for."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean

from transom.model.phases import Phase
from transom.model.time import MICROS_PER_SECOND, Micros

OFF = 0.2
"""So far off, as a part of what was expected, nothing is said."""
CUTS = 20
"""Over so many cuts."""
SHORT = 0.005
"""Seconds; phases that are off by less do not count, however short they are."""
BETWEEN: Micros = 60 * MICROS_PER_SECOND
"""Least time between two plans."""
GAIN = 0.05
"""A plan that is better by less changes nothing."""
WHOLE = "latency"
"""All phases together."""


@dataclass(frozen=True)
class Basis:
    """What a plan is for, and what it says."""

    at: Micros
    """When it was made, monotonic time."""
    rates: Mapping[str, float] = field(default_factory=dict)
    """Rows per second of each stream."""
    phases: Mapping[str, Mapping[Phase, float]] = field(default_factory=dict)
    """Mean seconds of each phase of each stream; streams that cannot keep up have none."""


class Drift:
    """Compares what happens with the last plan."""

    def __init__(self) -> None:
        self._basis: Basis | None = None
        self._seen: dict[tuple[str, str], deque[float]] = {}

    def planned(self, basis: Basis) -> None:
        """Begin anew with another plan."""
        self._basis = basis
        self._seen.clear()

    def took(self, stream: str, seconds: Mapping[Phase, float]) -> None:
        """Note the phases of a cut, as far as they are known."""
        if self._basis is None:
            return
        expected = self._basis.phases.get(stream, {})
        for phase, each in seconds.items():
            self._note(stream, str(phase), each)
        if expected and expected.keys() <= seconds.keys():
            self._note(stream, WHOLE, sum(seconds[phase] for phase in expected))

    def _note(self, stream: str, what: str, seconds: float) -> None:
        self._seen.setdefault((stream, what), deque(maxlen=CUTS)).append(seconds)

    def reason(self, rates: Mapping[str, float], now: Micros) -> str | None:
        """Return why it is time for another plan, for people; None while it is not.

        Args:
            rates: Rows per second of each stream, as they come now.
            now: Monotonic time.
        """
        if self._basis is None:
            return "nothing was planned so far"
        if now < self._basis.at + BETWEEN:
            return None
        for stream, rate in rates.items():
            before = self._basis.rates.get(stream, 0.0)
            if _is_off(rate, before):
                return f"{stream} has {rate:,.0f} rows/s, and {before:,.0f} were planned for"
        for (stream, what), values in self._seen.items():
            said = self._basis.phases.get(stream, {})
            expected = sum(said.values()) if what == WHOLE else said.get(Phase(what))
            if expected is None or len(values) < CUTS:
                continue
            found = fmean(sorted(values)[1:-1])
            if _is_off(found, expected) and abs(found - expected) > SHORT:
                return f"{what} of {stream} takes {1e3 * found:,.0f} ms, and {1e3 * expected:,.0f} ms were expected"
        return None


def _is_off(found: float, expected: float) -> bool:
    return abs(found - expected) > OFF * expected


def pays(now: float, then: float) -> bool:
    """Tell whether a plan is better by so much that settings should change.

    Args:
        now: Latency over the limit with the settings as they are; infinite if they cannot keep up.
        then: The same with those of the plan.

    >>> pays(1.0, 0.96), pays(1.0, 0.95), pays(float("inf"), 9.0)
    (False, True, True)
    """
    return then < float("inf") and then <= (1 - GAIN) * now
