"""The homes of a stream's key groups, and their moves to other executors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from transom.engine.cluster.merges import Merge
from transom.engine.cluster.messages import GroupWork
from transom.model.time import MAX_TIME, MIN_TIME, Micros
from transom.placement.balance import Flux, MeasuredLoads, Move
from transom.placement.locality import Assignment, ExecutorId
from transom.placement.migration import Strategy


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
    """Homes of key groups, their loads, and the executors that there are."""

    assignment: Assignment
    """Who merges the windows of each group."""
    loads: MeasuredLoads
    """In rows read and merged per second."""
    alive: frozenset[ExecutorId] = frozenset()
    drained: frozenset[ExecutorId] = frozenset()
    """Those that get no more groups, as they are about to go."""
    arriving: Mapping[int, ExecutorId] = field(default_factory=dict)
    """Groups that move instantly, with the executor that reads what they have."""
    leaving: Mapping[int, Leaving] = field(default_factory=dict)

    @classmethod
    def beginning(cls, groups: int) -> KeyGroups:
        """Return groups that live nowhere yet."""
        return cls(Assignment.nowhere(groups), MeasuredLoads.none(groups))

    def with_executors(self, alive: Collection[ExecutorId], leaving: Collection[ExecutorId] = ()) -> KeyGroups:
        """Return the groups when these executors are there: those of lost ones live elsewhere.

        What lost executors held is read from files by the new homes; a group that was moving has its target, which
        has read some of it.

        Args:
            alive: The executors.
            leaving: Those of them that will go.
        """
        known, going = frozenset(alive), frozenset(leaving) & frozenset(alive)
        if known == self.alive and going == self.drained:
            return self
        usable = known - going or known
        arriving = {group: target for group, target in self.arriving.items() if target in usable}
        homes = self.assignment.homes
        read = self.assignment.moved({group: to for group, to in arriving.items() if homes[group] not in known})
        settled = read.settled(usable, self.loads.rates).homes
        lost = {group: str(settled[group]) for group, home in enumerate(read.homes) if home not in known}
        return replace(
            self,
            assignment=read.moved(lost),
            alive=known,
            drained=going,
            arriving={group: target for group, target in arriving.items() if homes[group] in known},
            leaving={group: one for group, one in self.leaving.items() if one.source in known},
        )

    def home(self, group: int) -> ExecutorId:
        """Return who merges the windows of a group."""
        homes = self.assignment.homes
        return str(homes[group % len(homes)])

    def moved(self, moves: Sequence[Move], strategy: Strategy, cut: int, boundary: Micros) -> KeyGroups:
        """Return the groups after a migration has begun.

        Args:
            moves: Which groups.
            strategy: Instant: the source goes on until the target has read what there is (`arrived`). Disruptive: the
                target has the group, whose state must be there before anything goes on. Smooth: windows that start
                before the boundary are merged at the source, the others at the target.
            cut: The first cut after the change.
            boundary: After every row that was read.
        """
        targets = {move.group: move.target for move in moves}
        leaving = {group: one for group, one in self.leaving.items() if group not in targets}
        arriving = {group: target for group, target in self.arriving.items() if group not in targets}
        if strategy is Strategy.INSTANT:
            return replace(self, arriving=arriving | targets, leaving=leaving)
        if strategy is Strategy.SMOOTH:
            leaving |= {move.group: Leaving(move.source, boundary, cut) for move in moves}
        return replace(self, assignment=self.assignment.moved(targets), arriving=arriving, leaving=leaving)

    def arrived(self, groups: Collection[int]) -> KeyGroups:
        """Return the groups when targets have read what these have: from now on they are merged there."""
        targets = {group: self.arriving[group] for group in groups if group in self.arriving}
        return replace(self.stayed(groups), assignment=self.assignment.moved(targets))

    def stayed(self, groups: Collection[int]) -> KeyGroups:
        """Return the groups when these do not move after all."""
        return replace(self, arriving={g: target for g, target in self.arriving.items() if g not in groups})

    def measured(self, rows: Mapping[int, int], seconds: float) -> KeyGroups:
        """Return the groups with the loads of one more stretch of time.

        Args:
            rows: Rows that were read and merged for groups.
            seconds: In which time; more than 0.
        """
        work = [0.0] * len(self.loads.rates)
        for group, count in rows.items():
            work[group % len(work)] += count
        return replace(self, loads=self.loads.after(work, seconds))

    def emptying(self) -> list[Move]:
        """Return the moves that empty the executors that will go; none if no other is there."""
        stay = self.alive - self.drained
        if not stay:
            return []
        settled = self.assignment.settled(stay, self.loads.rates)
        return [
            Move(group, str(self.assignment.homes[group]), str(settled.homes[group]), self.loads.rates[group])
            for group in self.assignment.differs(settled)
            if self.arriving.get(group) not in stay and self.assignment.homes[group] is not None
        ]

    def balance(self, flux: Flux) -> list[Move]:
        """Return the moves that even out the loads."""
        usable = self.alive - self.drained
        if len(usable) < 2 or None in self.assignment.homes:
            return []
        pinned = (*self.leaving, *self.arriving)
        return list(flux.moves(self.assignment, self.loads.rates, usable, pinned=pinned))

    def routed(self, works: Sequence[GroupWork], merge: Merge) -> list[GroupWork]:
        """Return the work of a merge with that of groups that move smoothly divided by window.

        The source gets all slices and the windows that began before the boundary, the target those that began later;
        slices of cuts that only one of them needs are left out for the other.
        """
        if not self.leaving:
            return list(works)
        cuts = {piece: part.files.cut for part in merge.parts for piece in part.files.slices}
        routed: list[GroupWork] = []
        for work in works:
            one = self.leaving.get(work.group % len(self.assignment.homes))
            if one is None or work.home == one.source:
                routed.append(work)
                continue
            early = tuple(span for span in merge.spans if span[0] < one.boundary)
            late = tuple(span for span in merge.spans if span[0] >= one.boundary)
            sessions = [asked.starts for asked in merge.request.sessions]
            if not merge.gives_results:
                routed.append(replace(work, home=one.source))
                continue
            if early or any(first < one.boundary for first, _ in sessions):
                routed.append(replace(work, home=one.source, spans=early, starts=(MIN_TIME, one.boundary)))
            if late or any(last >= one.boundary for _, last in sessions):
                new = tuple(item for item in work.slices if cuts[item[1]] >= one.cut)
                routed.append(replace(work, slices=new, spans=late, starts=(one.boundary, MAX_TIME)))
        return routed
