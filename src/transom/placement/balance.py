"""Moves of groups between executors that even out measured loads (Flux; Enorm, section 3).

Executors are sorted by load; the first gives a group to the last, the second to the second-last, and so on, while the
variance of the loads falls.

Corrected: the largest group that lowers the variance may be one that all but exchanges the two loads, and comes back
in the next round. The group that lowers the variance most is moved: the one nearest to half of the difference.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp2, isfinite

from transom.errors import DefinitionError
from transom.placement.locality import Assignment, ExecutorId

LEAST_GAIN = 0.01
"""A move takes the larger of two loads down by more than this share of a group's, else it is not worth the trouble."""


@dataclass(frozen=True)
class Move:
    """A group that changes its executor."""

    group: int
    source: ExecutorId
    target: ExecutorId
    load: float
    """The load that it takes from the one and brings to the other."""


@dataclass(frozen=True)
class Flux:
    """When loads are uneven enough to act, and how much is moved at once."""

    tolerance: float = 1.15
    """Nothing moves while the largest load is at most so many times the mean, nor beyond the moves that reach this."""
    most_moves: int = 8
    """Moves at a time; the effect of these is measured before there are more."""

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            DefinitionError: The tolerance is below 1, or nothing may be moved.
        """
        if not self.tolerance >= 1:
            raise DefinitionError(f"tolerance is {self.tolerance}.", "Give at least 1: largest load over mean load.")
        if self.most_moves < 1:
            raise DefinitionError(f"most_moves is {self.most_moves}.", "Give at least 1.")

    def moves(
        self,
        assignment: Assignment,
        loads: Sequence[float],
        executors: Collection[ExecutorId],
        busy: Mapping[ExecutorId, float] | None = None,
        pinned: Collection[int] = (),
    ) -> list[Move]:
        """Return what moves where, in order; each group at most once, and each move lowers the variance.

        Groups on executors that are not listed are no concern of it: `Assignment.settled` gives them a home.
        O(groups + moves x groups / executors + moves x executors log executors).

        Args:
            assignment: Where the groups are.
            loads: Measured load of each group, in any unit of work per time.
            executors: Those that live and are not being drained.
            busy: What else an executor does, in the unit of the loads.
            pinned: Groups that stay, such as those that are being moved already.

        Raises:
            DefinitionError: There are not as many loads as groups, or one is negative or not finite.
        """
        if len(loads) != len(assignment.homes):
            raise DefinitionError(
                f"There are {len(loads)} loads.", f"Give one for each of the {len(assignment.homes)} groups."
            )
        if not all(isfinite(load) and load >= 0 for load in loads):
            raise DefinitionError("A load is negative or not finite.", "Give work per time, 0 where nothing is known.")
        total = {executor: (busy or {}).get(executor, 0.0) for executor in executors}
        movable: dict[ExecutorId, list[int]] = {executor: [] for executor in executors}
        for group, home in enumerate(assignment.homes):
            if home in total:
                total[home] += loads[group]
                if group not in pinned and loads[group] > 0:
                    movable[home].append(group)
        least = LEAST_GAIN * sum(loads) / max(len(loads), 1)
        found: list[Move] = []
        while len(found) < self.most_moves and self._uneven(total):
            order = sorted(total, key=lambda executor: (-total[executor], executor))
            before = len(found)
            for source, target in zip(order[: len(order) // 2], reversed(order), strict=False):
                move = _best(source, target, total, movable[source], loads, least)
                if move is not None and len(found) < self.most_moves:
                    found.append(move)
                    movable[source].remove(move.group)
                    total[source] -= move.load
                    total[target] += move.load
            if len(found) == before:
                break
        return found

    def _uneven(self, total: Mapping[ExecutorId, float]) -> bool:
        return len(total) > 1 and max(total.values()) > self.tolerance * sum(total.values()) / len(total)


def _best(
    source: ExecutorId,
    target: ExecutorId,
    total: Mapping[ExecutorId, float],
    groups: Sequence[int],
    loads: Sequence[float],
    least: float,
) -> Move | None:
    """Return the move between two executors that lowers the sum of squares most; None if none gains so much."""
    difference = total[source] - total[target]
    if not groups:
        return None
    group = min(groups, key=lambda one: (loads[one] * (loads[one] - difference), one))
    gain = min(loads[group], difference - loads[group])
    return Move(group, source, target, loads[group]) if gain > least else None


@dataclass(frozen=True)
class MeasuredLoads:
    """Load of each group, averaged over time: recent work counts more, by half for every half-life."""

    rates: tuple[float, ...]
    """Work per second of each group."""
    half_life: float = 30.0
    """In seconds."""
    weight: float = 0.0
    """Share of the rates that measurements have, from 0 (none yet) to 1."""

    @classmethod
    def none(cls, groups: int, half_life: float = 30.0) -> MeasuredLoads:
        """Return the loads before anything was measured.

        Raises:
            DefinitionError: There is no group, or the half-life is not positive.
        """
        if groups < 1 or not half_life > 0:
            raise DefinitionError(f"There are {groups} groups, half_life is {half_life}.", "Both must be positive.")
        return cls((0.0,) * groups, half_life)

    def after(self, work: Sequence[float], seconds: float) -> MeasuredLoads:
        """Return the loads with one more measurement: the work that each group took in the last so many seconds.

        Raises:
            DefinitionError: The time is not positive, or there is not one value for each group.
        """
        if not seconds > 0 or len(work) != len(self.rates):
            raise DefinitionError(
                f"{len(work)} measurements over {seconds} seconds.",
                f"Give one for each of the {len(self.rates)} groups, and a positive time.",
            )
        kept = exp2(-seconds / self.half_life)
        weight = kept * self.weight + (1 - kept)
        # Divided by the weight, so that the first measurement counts fully (as in Adam; Kingma and Ba, 2015).
        rates = tuple(
            (kept * self.weight * rate + (1 - kept) * new / seconds) / weight
            for rate, new in zip(self.rates, work, strict=True)
        )
        return replace(self, rates=rates, weight=weight)
