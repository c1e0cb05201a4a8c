"""When memory decides what runs next: a state machine, and what waits meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from transom.errors import DefinitionError
from transom.model.time import MICROS_PER_SECOND, Micros
from transom.scheduling.policies import Columns, Floats, Policy


@dataclass(frozen=True)
class MemoryMode:
    """The mode in which the stream whose run frees most goes first, instead of the one with the least slack.

    It is entered when the share of memory in use reaches `enter`, and left when half of what was in use is free again
    or after `longest` (Klink, section 3.4, which gives no value for the share). After that time, memory being still
    short, slack decides for as long, so that neither latency nor memory is forgotten.

    Raises:
        DefinitionError: The share is not in (0, 1], or the time not positive.
    """

    enter: float = 0.8
    """Share of memory (b in the paper)."""
    longest: Micros = 3 * MICROS_PER_SECOND
    since: Micros | None = None
    """When it was entered; None outside."""
    used: float = 0.0
    """Share of memory in use at that time."""
    rest_until: Micros | None = None
    """It is not entered again before, having ended by time."""

    def __post_init__(self) -> None:
        if not 0 < self.enter <= 1:
            raise DefinitionError(f"memory: enter is {self.enter}.", "Give a share above 0 and at most 1.")
        if self.longest <= 0:
            raise DefinitionError(f"memory: longest is {self.longest}.", "Give more than 0 microseconds.")

    @property
    def active(self) -> bool:
        """Whether memory decides."""
        return self.since is not None

    def observed(self, share: float, now: Micros) -> MemoryMode:
        """Return the mode after the share of memory in use was measured.

        Args:
            share: The largest over driver, cache and JVM heap, each against its limit.
            now: Monotonic time.
        """
        if self.since is None:
            resting = self.rest_until is not None and now < self.rest_until
            return self if resting or share < self.enter else replace(self, since=now, used=share, rest_until=None)
        if share <= self.used / 2:
            return replace(self, since=None)
        if now >= self.since + self.longest:
            return replace(self, since=None, rest_until=now + self.longest)
        return self


def holding(policy: Policy) -> Policy:
    """Return the policy without the streams whose run only adds to memory (`freed` below 0).

    For the time that memory is short and something else frees some: whichever order is in force, what is freed must
    not be taken again at once. Wrap it with `bounded`, so that no stream waits without end.
    """

    def priority(streams: Columns, now: float) -> Floats:
        return np.where(streams.freed < 0, np.inf, policy.priority(streams, now))

    return replace(policy, priority=priority)
