"""Where the key groups of a stream live, for each cut: they can move at once, without their state."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from transom.engine.cluster.resident import GroupWork
from transom.engine.cluster.store import Merge
from transom.model.time import Micros
from transom.placement.balance import Flux, Move
from transom.placement.locality import Assignment, AssignmentHistory, ExecutorId
from transom.placement.migration import Strategy

FORGETS = 0.8
"""Share of the measured load that is kept with each new measurement."""

MOST_CHANGES = 32
"""Of older ones, what is left lives where it did after the oldest of these."""


@dataclass(frozen=True)
class Leaving:
    """A group that moves smoothly."""

    source: ExecutorId
    boundary: Micros
    """Windows that start earlier are merged at the source."""
    cut: int
    """First cut of the target."""


@dataclass(frozen=True)
class KeyGroups:
    """Homes of key groups by cut, their loads, and the executors that there are."""

    history: AssignmentHistory
    loads: tuple[float, ...]
    """Rows of windows that each group gave lately."""
    alive: frozenset[ExecutorId] = frozenset()
    drained: frozenset[ExecutorId] = frozenset()
    leaving: Mapping[int, Leaving] = field(default_factory=dict)

    @classmethod
    def beginning(cls, groups: int) -> KeyGroups:
        """Return groups that live nowhere yet."""
        return cls(AssignmentHistory.beginning(Assignment.nowhere(groups)), (0.0,) * groups)

    def with_executors(self, alive: Collection[ExecutorId]) -> KeyGroups:
        """Return the groups when these executors are there: those of lost ones live elsewhere, for all cuts.

        What lost executors held is read from files by the new homes.
        """
        if frozenset(alive) == self.alive:
            return self
        settled = self.history.newest.settled(set(alive) - self.drained or set(alive), self.loads)
        gone = {home for _, assignment in self.history.changes for home in assignment.homes} - set(alive)
        changes = [
            (cut, assignment.moved({g: str(settled.homes[g]) for g, h in enumerate(assignment.homes) if h in gone}))
            for cut, assignment in self.history.changes
        ]
        leaving = {group: one for group, one in self.leaving.items() if one.source in alive}
        return replace(self, history=AssignmentHistory(tuple(changes)), alive=frozenset(alive), leaving=leaving)

    def drain(self, executor: ExecutorId) -> tuple[KeyGroups, list[Move]]:
        """Return the groups when an executor gets no more of them, and the moves that empty it.

        Moved instantly, what it has stays until its windows are merged.
        """
        kept = replace(self, drained=self.drained | {executor})
        newest = self.history.newest
        settled = newest.settled(self.alive - kept.drained or self.alive, self.loads)
        places = newest.differs(settled)
        return kept, [Move(g, str(newest.homes[g]), str(settled.homes[g]), self.loads[g]) for g in places]

    def home(self, group: int, cut: int) -> ExecutorId:
        """Return where the partials of a cut live."""
        homes = self.history.at(cut).homes
        return str(homes[group % len(homes)])

    def moved(self, moves: Sequence[Move], strategy: Strategy, cut: int, boundary: Micros) -> KeyGroups:
        """Return the groups after a migration.

        Args:
            moves: Which groups.
            strategy: Instant: cuts from `cut` on live at the target, older partials stay. Disruptive: all partials
                do; they have to be read before anything goes on. Smooth: windows that start before the boundary are
                merged at the source, the others at the target.
            cut: The first cut after the change.
            boundary: After every row that was read.
        """
        targets = {move.group: move.target for move in moves}
        newest = self.history.newest.moved(targets)
        leaving = {group: one for group, one in self.leaving.items() if group not in targets}
        if strategy is Strategy.DISRUPTIVE:
            changes = tuple((since, assignment.moved(targets)) for since, assignment in self.history.changes)
            return replace(self, history=AssignmentHistory(changes), leaving=leaving)
        if strategy is Strategy.SMOOTH:
            leaving |= {move.group: Leaving(move.source, boundary, cut) for move in moves}
        history = self.history.changed(max(cut, self.history.changes[-1][0]), newest)
        return replace(self, history=history.since(history.changes[-MOST_CHANGES:][0][0]), leaving=leaving)

    def measured(self, rows: Mapping[int, int]) -> KeyGroups:
        """Return the groups with other loads, given the rows that groups gave."""
        if not rows:
            return self
        groups = len(self.loads)
        new = [0.0] * groups
        for group, count in rows.items():
            new[group % groups] += count
        return replace(
            self,
            loads=tuple(
                FORGETS * old + (1 - FORGETS) * now if group in rows else old
                for group, (old, now) in enumerate(zip(self.loads, new, strict=True))
            ),
        )

    def balance(self, flux: Flux) -> list[Move]:
        """Return the moves that even out the loads."""
        usable = self.alive - self.drained
        if len(usable) < 2 or None in self.history.newest.homes:
            return []
        return list(flux.moves(self.history.newest, self.loads, usable, pinned=tuple(self.leaving)))

    def routed(self, works: Sequence[GroupWork], merge: Merge) -> list[GroupWork]:
        """Return the work of a merge with that of groups that move smoothly divided by window.

        The source gets all slices and the windows that began before the boundary, the target those that began later;
        slices of cuts that only one of them needs are left out for the other.
        """
        cuts = {piece: part.files.cut for part in merge.parts for piece in part.files.slices}
        whole: dict[int, list[GroupWork]] = {}
        for work in works:
            whole.setdefault(work.group, []).append(work)
        routed: list[GroupWork] = []
        for group, mine in whole.items():
            one = self.leaving.get(group)
            target = "" if one is None else self.home(group, one.cut)
            if one is None or target == one.source:
                routed += mine
                continue
            slices = tuple(item for work in mine for item in work.slices)
            early = tuple(span for span in merge.spans if span[0] < one.boundary)
            late = tuple(span for span in merge.spans if span[0] >= one.boundary)
            new = tuple(item for item in slices if cuts[item[1]] >= one.cut)
            if early or not merge.spans:
                routed.append(GroupWork(group, one.source, slices, early))
            if late:
                routed.append(GroupWork(group, target, new, late))
        return routed
