"""The layout of a namespace's partitions: their groups and homes, by the executors and sizes that are known.

Groups follow the sizes of the last datasets, homes follow groups and executors; a change moves nothing by itself, it
says where partitions belong from now on (Stark, section III-B and III-C).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from transom.errors import DefinitionError
from transom.placement.balance import Flux
from transom.placement.grouping import Grouping, Sizes
from transom.placement.locality import Assignment, ExecutorId
from transom.placement.replicas import Copy


@dataclass(frozen=True)
class Layout:
    """Groups of partitions, each with a living home. Every change is a new one."""

    grouping: Grouping
    assignment: Assignment
    """Of partitions; those of a group have one home."""
    executors: tuple[ExecutorId, ...]
    """Those that live."""
    sizes: tuple[tuple[float, ...], ...] = ()
    """Bytes by partition of the last datasets, oldest first."""

    @classmethod
    def beginning(cls, partitions: int, groups: int, executors: Collection[ExecutorId]) -> Layout:
        """Return groups of as many partitions each, evenly over the executors.

        Raises:
            DefinitionError: There is no partition or no executor, or there are more groups than partitions.
        """
        nowhere = Assignment.nowhere(partitions)
        return cls(Grouping.even(partitions, groups), nowhere, tuple(executors))._settled()

    @property
    def homes(self) -> tuple[ExecutorId | None, ...]:
        """Executor of each partition."""
        return self.assignment.homes

    @property
    def weights(self) -> Sizes:
        """Size of each partition over the last datasets; all alike while there is none. Shape (partitions,)."""
        if not self.sizes:
            return np.ones(self.grouping.partitions)
        return np.asarray(np.array(self.sizes, np.float64).sum(axis=0))

    def home(self, group: range) -> ExecutorId | None:
        """Return the executor of a group, one of `grouping.ranges`."""
        return self.homes[group.start]

    def held(self, copies: Iterable[Copy]) -> dict[ExecutorId, set[int]]:
        """Return the groups that each executor has, at home or as copies; groups by their first partitions."""
        held: dict[ExecutorId, set[int]] = {executor: set() for executor in self.executors}
        for group, executor in (*((each.start, self.home(each)) for each in self.grouping.ranges), *copies):
            if executor in held:
                held[executor].add(group)
        return held

    def with_executors(self, executors: Collection[ExecutorId], copies: Iterable[Copy] = ()) -> Layout:
        """Return the layout for the executors that there are now.

        Groups whose home is gone live where they have a copy: nothing has to be computed again there, and no balance
        takes them away from it.

        Args:
            executors: Those that live.
            copies: Groups, by their first partitions, and where they have a copy.

        Raises:
            DefinitionError: There is no executor.
        """
        found, pinned = replace(self, executors=tuple(executors)), []
        there = {group: executor for group, executor in sorted(copies) if executor in executors}
        for number, group in enumerate(self.grouping.ranges):
            if group.start in there and self.home(group) not in executors:
                moved = found.assignment.moved(dict.fromkeys(group, there[group.start]))
                found = replace(found, assignment=moved)
                pinned.append(number)
        return found._settled(pinned)

    def with_dataset(self, sizes: Sequence[float], last: int, elastic: tuple[float, float] | None) -> Layout:
        """Return the layout after a dataset was added.

        Args:
            sizes: Bytes of its partitions.
            last: So many datasets count.
            elastic: Bytes over so many datasets of the smallest and the largest group (`Grouping.adapted`), less while
                there are fewer: groups need not split again as more come. None: groups stay.

        Raises:
            DefinitionError: There are not as many sizes as partitions, or the bounds are not ascending.
        """
        if len(sizes) != self.grouping.partitions:
            raise DefinitionError(
                f"There are {len(sizes)} sizes.", f"Give one for each of {self.grouping.partitions} partitions."
            )
        found = replace(self, sizes=(*self.sizes, tuple(sizes))[-last:])
        if elastic is not None:
            least, most = (bound * len(found.sizes) / last for bound in elastic)
            found = replace(found, grouping=self.grouping.adapted(found.weights, least, most))
        return found._settled()

    def _settled(self, pinned: Collection[int] = ()) -> Layout:
        """Return it with a living home for every group, and loads evened out, but without moves of pinned groups."""
        weights, ranges = self.weights, self.grouping.ranges
        settled = self.assignment.settled(self.executors, list(weights), units=ranges)
        homes = Assignment(tuple(settled.homes[each.start] for each in ranges))
        loads, flux = list(self.grouping.sizes(weights)), Flux(most_moves=len(ranges))
        for move in flux.moves(homes, loads, self.executors, pinned=pinned):
            settled = settled.moved(dict.fromkeys(ranges[move.group], move.target))
        return replace(self, assignment=settled)
