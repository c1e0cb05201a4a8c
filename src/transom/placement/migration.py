"""How a key group changes its executor: the three strategies of Enorm (section 5.1) as plans.

A plan says which executor aggregates the rows of a cut, which one computes a window, which partials have to be there
before anything goes on, and when the old executor is free. Partials merge whoever made them, so that all three give
the same windows; they differ in what waits, in what is computed twice and in what is read from elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from transom.errors import DefinitionError
from transom.model.calendar import CalendarSpec
from transom.model.time import Micros
from transom.model.window import WindowSpec
from transom.placement.balance import Move
from transom.placement.locality import ExecutorId


class Strategy(Enum):
    """What happens to the partials that a group has when it moves."""

    INSTANT = "instant"
    """They stay; rows go to the target at once, and a window merges the partials of both."""
    DISRUPTIVE = "disruptive"
    """The group waits until they are at the target."""
    SMOOTH = "smooth"
    """The source goes on with the windows that have begun; the target begins with the next ones."""


@dataclass(frozen=True)
class Held:
    """A partial of the group on its executor."""

    cut: int
    start: Micros
    """Of its pane."""
    size: int
    """In bytes."""


@dataclass(frozen=True)
class Link:
    """What it takes to bring partials from one executor to another."""

    bytes_per_s: float
    fixed_s: float = 0.0
    """For a transfer of any size: a job, a round trip."""

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            DefinitionError: The rate is not positive, or the fixed time negative.
        """
        if not self.bytes_per_s > 0 or not self.fixed_s >= 0:
            raise DefinitionError(
                f"Link: {self.bytes_per_s} bytes/s after {self.fixed_s} s.", "Give a positive rate and a time of 0 on."
            )

    def seconds(self, size: int) -> float:
        """Return how long so many bytes take; nothing takes no time."""
        return self.fixed_s + size / self.bytes_per_s if size else 0.0


@dataclass(frozen=True)
class Migration:
    """The plan for one group. Make it with `plan`."""

    group: int
    source: ExecutorId
    target: ExecutorId
    strategy: Strategy
    cut: int
    """First cut that the target aggregates; under `SMOOTH` the source does so, too, until `handover`."""
    boundary: Micros
    """Watermark and newest row were before it when the plan was made. `SMOOTH`: windows that start before it are the
    source's."""
    ends: tuple[tuple[WindowSpec | CalendarSpec, Micros], ...]
    """Windows of the component, and the end of the last one of each that starts before the boundary."""
    left: tuple[Held, ...]
    """Partials at the source that windows not yet closed need."""

    @property
    def handover(self) -> Micros:
        """Watermark at which the last window closes that needs anything from the source."""
        if self.strategy is Strategy.SMOOTH:
            return max(end for _, end in self.ends)
        if self.strategy is Strategy.DISRUPTIVE or not self.left:
            return self.boundary
        return max(spec.last_end(held.start) for spec, _ in self.ends for held in self.left)

    @property
    def moved(self) -> tuple[Held, ...]:
        """Partials that must be at the target before it begins; the group waits for them."""
        return self.left if self.strategy is Strategy.DISRUPTIVE else ()

    def pause(self, link: Link) -> float:
        """Return how long the group waits, in seconds."""
        return link.seconds(sum(held.size for held in self.moved))

    def done(self, watermark: Micros) -> bool:
        """Return whether the source is free of the group."""
        return self.strategy is Strategy.DISRUPTIVE or watermark >= self.handover

    def aggregates(self, cut: int, start: Micros) -> tuple[ExecutorId, ...]:
        """Return who aggregates the rows of a cut in the pane that starts then: under `SMOOTH` sometimes both.

        Both do so where windows overlap: the pane is in a window that has begun and in one that has not.
        """
        if cut < self.cut:
            return (self.source,)
        if self.strategy is not Strategy.SMOOTH:
            return (self.target,)
        old = (self.source,) if start < self.handover else ()
        new = (self.target,) if any(spec.last_end(start) > end for spec, end in self.ends) else ()
        return old + new

    def computes(self, spec: WindowSpec | CalendarSpec, end: Micros) -> ExecutorId:
        """Return who consolidates the window of this kind that ends then.

        Raises:
            DefinitionError: The component has no windows of this kind.
        """
        ends = dict(self.ends)
        if spec not in ends:
            raise DefinitionError(f"The group has no windows {spec}.", f"It has {', '.join(map(str, ends))}.")
        begun = end <= ends[spec]
        return self.source if self.strategy is Strategy.SMOOTH and begun else self.target

    def remote(self, start: Micros, end: Micros) -> tuple[Held, ...]:
        """Return the partials of a window [start, end) that its executor reads from the source: only if `INSTANT`."""
        if self.strategy is not Strategy.INSTANT:
            return ()
        return tuple(held for held in self.left if start <= held.start < end)


def plan(
    move: Move,
    strategy: Strategy,
    cut: int,
    boundary: Micros,
    windows: Iterable[WindowSpec | CalendarSpec],
    held: Iterable[Held],
    watermark: Micros,
) -> Migration:
    """Return the plan for a group that moves.

    O(partials x kinds of windows).

    Args:
        move: Which group, from where, to where.
        strategy: How.
        cut: The first cut after the change.
        boundary: After the watermark and every row that was read. Under `SMOOTH` the later it is, the longer both
            executors work; the source misses no row of the windows that start before it.
        windows: Kinds of windows that the group's partials serve.
        held: The partials of the group at the source.
        watermark: As it is now; partials of closed windows only are left behind.

    Raises:
        DefinitionError: There are no windows, source and target are the same, or the boundary is not after the
            watermark.
    """
    kinds = tuple(dict.fromkeys(windows))
    if not kinds:
        raise DefinitionError("A group without windows cannot migrate.", "Give the windows of its component.")
    if move.source == move.target:
        raise DefinitionError(f"Group {move.group} is on {move.target} already.", "Move it to another executor.")
    if boundary <= watermark:
        raise DefinitionError(
            f"boundary is {boundary}, the watermark {watermark}.", "Give a moment after all rows that were read."
        )
    needed = [one for one in held if any(spec.last_end(one.start) > watermark for spec in kinds)]
    ends = tuple((spec, spec.last_end(boundary - 1)) for spec in kinds)
    return Migration(move.group, move.source, move.target, strategy, cut, boundary, ends, tuple(needed))
