"""Whether a plan still fits what happens: phases that take another time than it says, and rates that it is not for."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from statistics import fmean

from transom.model.phases import WAITS, Phase
from transom.model.time import MICROS_PER_SECOND, Micros
from transom.planning.phases import CUT

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
"""The phases from the arrival of rows to their commit, together."""


@dataclass(frozen=True)
class Basis:
    """What a plan is for, and what it says."""

    at: Micros
    """When it was made, monotonic time."""
    rates: Mapping[str, float] = field(default_factory=dict)
    """Rows per second of each stream."""
    phases: Mapping[str, Mapping[Phase, float]] = field(default_factory=dict)
    """Mean seconds of each phase of each stream; streams that cannot keep up have none."""
    cores: int | None = None
    """Cores that it is for; None if that is unknown."""


class Drift:
    """Compares what happens with the last plan."""

    def __init__(self) -> None:
        self._basis: Basis | None = None
        self._seen: dict[tuple[str, str], deque[float]] = {}
        self._excused: dict[tuple[str, str], float] = {}
        """What phases took that were off, where another plan was no better."""
        self._found: str | None = None

    def planned(self, basis: Basis, changed: bool = True) -> None:
        """Begin anew with another plan.

        Args:
            basis: What it is for, and what it says.
            changed: Whether settings changed by it. Where none did, what is off as it was says nothing new.
        """
        known = {key: _mean(values) for key, values in self._seen.items() if len(values) >= CUTS}
        self._excused = {} if changed else self._excused | known
        self._basis, self._found = basis, None
        self._seen.clear()

    def took(self, stream: str, seconds: Mapping[Phase, float], job: float | None = None) -> None:
        """Note a cut.

        Args:
            stream: Its stream.
            seconds: Its phases, as far as they are known.
            job: Seconds of its job, whose phases may be unknown.
        """
        if self._basis is None:
            return
        for phase, each in seconds.items():
            self._note(stream, str(phase), each)
        if job is not None and Phase.COMMIT in seconds:
            waits = sum(seconds.get(phase, 0.0) for phase in WAITS)
            self._note(stream, WHOLE, waits + job + seconds[Phase.COMMIT])

    def forget(self) -> None:
        """Forget the cuts so far, as they ran on other cores, of which the plan says nothing."""
        self._seen.clear()

    def _note(self, stream: str, what: str, seconds: float) -> None:
        self._seen.setdefault((stream, what), deque(maxlen=CUTS)).append(seconds)

    def found(self, reason: str) -> None:
        """Note that something else than phases and rates is not as it was planned for."""
        self._found = self._found or reason

    def moved(self, rates: Mapping[str, float], cores: int | None = None) -> str | None:
        """Return which rate is not the one that was planned for, or that cores are not, for people; None if all are.

        Args:
            rates: Rows per second of each stream, as they come now.
            cores: That there are now; None if that is unknown.
        """
        basis = self._basis
        if basis is None:
            return None
        if cores is not None and basis.cores is not None and cores != basis.cores:
            return f"there are {cores} cores, and {basis.cores} were planned for"
        for stream, rate in rates.items():
            before = basis.rates.get(stream, 0.0)
            if _is_off(rate, before):
                return f"{stream} has {rate:,.0f} rows/s, and {before:,.0f} were planned for"
        return None

    def reason(self, rates: Mapping[str, float], now: Micros, cores: int | None = None) -> str | None:
        """Return why it is time for another plan, for people; None while it is not.

        Args:
            rates: Rows per second of each stream, as they come now.
            now: Monotonic time.
            cores: That there are now; None if that is unknown.
        """
        basis = self._basis
        if basis is None:
            return "nothing was planned so far"
        if now < basis.at + BETWEEN:
            return None
        return self.moved(rates, cores) or self._found or self._off(basis)

    def may_pass(self, rates: Mapping[str, float], cores: int | None = None) -> bool:
        """Tell whether what is not as it was planned for may soon be another thing, or nothing: all but what was found.

        Phases are off before it is known why: by rates that have not arrived yet, or costs that nobody knows yet.

        Args:
            rates: Rows per second of each stream, as they come now.
            cores: That there are now; None if that is unknown.
        """
        if self._basis is None:
            return False
        return self.moved(rates, cores) is not None or (self._found is None and self._off(self._basis) is not None)

    def _off(self, basis: Basis) -> str | None:
        """Return which phase takes another time than a plan says."""
        for (stream, what), values in self._seen.items():
            said = basis.phases.get(stream, {})
            some = (*WAITS, *CUT) if what == WHOLE else (Phase(what),)
            expected = sum(said[phase] for phase in some if phase in said)
            if not expected or len(values) < CUTS:
                continue
            found = _mean(values)
            excused = self._excused.get((stream, what), expected)
            if all(_is_off(found, each) and abs(found - each) > SHORT for each in (expected, excused)):
                return f"{what} of {stream} takes {1e3 * found:,.0f} ms, and {1e3 * expected:,.0f} ms were expected"
        return None


def _mean(values: Collection[float]) -> float:
    """Return the mean without the least and the largest, so that one wild cut says nothing."""
    return fmean(sorted(values)[1:-1])


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
