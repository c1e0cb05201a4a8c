"""The executor of each partition: by load at first, then remembered (Stark, section III-B).

All datasets of a collection are partitioned alike, so one assignment serves them all, and corresponding partitions are
on the same executor. Key groups of the engine are partitions in this sense.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from transom.errors import DefinitionError

ExecutorId: TypeAlias = str


@dataclass(frozen=True)
class Assignment:
    """The executor of each partition. Every change is a new version."""

    homes: tuple[ExecutorId | None, ...]
    """By partition; None for one that was never placed."""
    version: int = 0

    @classmethod
    def nowhere(cls, partitions: int) -> Assignment:
        """Return the assignment in which no partition has an executor yet.

        Raises:
            DefinitionError: There is no partition.
        """
        if partitions < 1:
            raise DefinitionError(f"partitions is {partitions}.", "Give at least 1.")
        return cls((None,) * partitions)

    def of(self, executor: ExecutorId) -> list[int]:
        """Return the partitions of an executor, ascending."""
        return [partition for partition, home in enumerate(self.homes) if home == executor]

    def moved(self, changes: Mapping[int, ExecutorId]) -> Assignment:
        """Return the assignment with some partitions elsewhere; itself if nothing changes."""
        homes = tuple(changes.get(partition, home) for partition, home in enumerate(self.homes))
        return self if homes == self.homes else Assignment(homes, self.version + 1)

    def differs(self, other: Assignment) -> list[int]:
        """Return the partitions that are elsewhere in another assignment of as many."""
        return [place for place, (a, b) in enumerate(zip(self.homes, other.homes, strict=True)) if a != b]

    def loads(self, weights: Sequence[float], executors: Iterable[ExecutorId] = ()) -> dict[ExecutorId, float]:
        """Return the weight that each executor holds.

        Args:
            weights: By partition, in any unit: bytes, rows, seconds of work.
            executors: Those that are listed even if they hold nothing.
        """
        loads = dict.fromkeys(executors, 0.0)
        for home, weight in zip(self.homes, weights, strict=True):
            if home is not None:
                loads[home] = loads.get(home, 0.0) + weight
        return loads

    def settled(
        self,
        executors: Collection[ExecutorId],
        weights: Sequence[float],
        busy: Mapping[ExecutorId, float] | None = None,
        units: Sequence[range] | None = None,
    ) -> Assignment:
        """Return the assignment for the executors that there are.

        What has a living executor stays, whoever else joins; the rest goes, heaviest first, to the executor with the
        least load: within 4/3 of the best largest load where everything is new (Graham 1969).
        O(partitions log executors).

        Args:
            executors: Those that live and are not being drained.
            weights: By partition. Zeros count a little, so that partitions of unknown size are spread evenly.
            busy: What else keeps an executor busy, in units of the weights.
            units: Ranges of partitions that stay together, in order and without gaps (`Grouping.ranges`); each goes
                where most of its weight is. None: each partition for itself.

        Raises:
            DefinitionError: There is no executor.
        """
        if not executors:
            raise DefinitionError("There is no executor.", "Wait until the cluster has given some.")
        least = (sum(weights) / len(weights) or 1.0) * 1e-6
        known = {executor: (busy or {}).get(executor, 0.0) for executor in executors}
        homeless: list[tuple[float, range]] = []
        changes: dict[int, ExecutorId] = {}
        for unit in [range(p, p + 1) for p in range(len(self.homes))] if units is None else units:
            held = dict.fromkeys(sorted(known), 0.0)
            for partition in unit:
                home = self.homes[partition]
                if home in held:
                    held[home] += weights[partition] + least
            weight = sum(weights[partition] + least for partition in unit)
            home = max(held, key=held.__getitem__)
            if held[home] > 0:
                known[home] += weight
                changes.update(dict.fromkeys(unit, home))
            else:
                homeless.append((weight, unit))
        for weight, unit in sorted(homeless, key=lambda one: (-one[0], one[1].start)):
            home = min(sorted(known), key=known.__getitem__)
            known[home] += weight
            changes.update(dict.fromkeys(unit, home))
        return self.moved(changes)
