"""Merges that stores ask of the executors, and who answers: a merge is divided by key group and by place."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

import numpy as np

from transom.engine.cluster.files import PartialFiles, Slice
from transom.engine.cluster.messages import Done, Feed, GroupWork, MergeRequest, MergeTask, StoreSpec
from transom.engine.cluster.worker import run
from transom.errors import QueryFailedError
from transom.model.time import Micros
from transom.placement.balance import Move
from transom.placement.locality import ExecutorId
from transom.placement.migration import Strategy
from transom.storage.places import Place
from transom.windows.panes import Times
from transom.windows.reusable import Span


@dataclass(frozen=True, eq=False)
class StoreFiles:
    """Partials in files that a store is made of, and what it takes of them."""

    feed: Feed
    files: PartialFiles
    starts: Times
    """Starts of the store's panes that hold rows of it, ascending."""

    def holds(self, span: Span) -> bool:
        """Tell whether it has rows of a window."""
        low, high = np.searchsorted(self.starts, span)
        return bool(low < high) or span in self.windows

    @property
    def windows(self) -> tuple[Span, ...]:
        """The windows that hold rows of it, if they are windows."""
        return self.files.windows_of(self.feed.condition)

    def needed(self, floor: Micros, ended: Micros, begun: Micros) -> bool:
        """Tell whether a window may need it, as `PaneStore.drop_before` says, or a session that begins at `begun`."""
        if self.feed.sessions is not None and self.feed.sessions.last >= begun:
            return True
        if len(self.starts) and self.starts[-1] >= floor:
            return True
        return any(start >= floor and end > ended for start, end in self.windows)


@dataclass(frozen=True, eq=False)
class Merge:
    """A merge that a store asks of the executors."""

    request: MergeRequest
    store: str
    """Lasting name of the store, among those of its stream."""
    parts: tuple[StoreFiles, ...]
    spans: tuple[Span, ...] = ()
    """Windows to return."""

    @property
    def nbytes(self) -> int:
        """Bytes of the files."""
        return sum(part.files.nbytes for part in self.parts)

    @property
    def gives_results(self) -> bool:
        """Whether windows or sessions are to be returned."""
        return not self.request.write and bool(self.spans or self.request.sessions)

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """The feeds, each once."""
        return tuple(dict.fromkeys(part.feed for part in self.parts))

    def task(self, directory: str, works: Sequence[GroupWork], name: str = "") -> MergeTask:
        """Return the task for some groups.

        Args:
            directory: Where the files are.
            works: The groups.
            name: Tells its file from those of the other tasks.
        """
        request = self.request
        if request.write:
            request = replace(request, write=f"{request.write}{name}")
        return MergeTask(request, directory, self.feeds, tuple(works))

    def by_group(self, home: Callable[[int], str]) -> list[GroupWork]:
        """Return what is to be done, group by group.

        Args:
            home: Where the panes of a group are kept.
        """
        numbers = {feed: number for number, feed in enumerate(self.feeds)}
        slices: dict[int, list[tuple[int, Slice]]] = {}
        for part in self.parts:
            for piece in part.files.slices:
                slices.setdefault(piece.group, []).append((numbers[part.feed], piece))
        return [GroupWork(group, home(group), tuple(mine), self.spans) for group, mine in sorted(slices.items())]


Merged: TypeAlias = "Sequence[Done] | QueryFailedError"
"""The outcome of a merge, or why it cannot be made."""


@dataclass(frozen=True)
class ExecutorLoss:
    """The cost of a loss of executors."""

    lost: tuple[ExecutorId, ...]
    took: Micros = 0
    """Of the first merge of each store without them: what their memory held was read from files again."""
    rows: int = 0
    """Rows that were read."""


@dataclass(frozen=True)
class Standing:
    """The distribution of a stream's key groups over executors."""

    groups: Mapping[ExecutorId, int] = field(default_factory=dict)
    """Number of groups by executor; of those that will go, too."""
    moved: int = 0
    """Groups that have moved since the start, those of lost executors not counted."""
    recovered: ExecutorLoss | None = None
    """The last loss of executors; None while there was none."""
    recovery: Micros = 0
    """Cost, at most, of losing the executor with most rows, by the measured speed of reading; 0 while it
    is not known."""


def merged_alone(executors: GroupExecutors, merge: Merge) -> Sequence[Done]:
    """Return what comes of one merge.

    Raises:
        QueryFailedError: It cannot be made.
        CheckpointError: A file cannot be read or written.
    """
    (found,) = executors.run([merge])
    if isinstance(found, QueryFailedError):
        raise found
    return found


class GroupExecutors(Protocol):
    """The place where key groups are merged: Spark's executors, or this process."""

    @property
    def directory(self) -> Place:
        """The directory of the files."""

    @property
    def groups(self) -> int:
        """Number of key groups of new files."""

    @property
    def standing(self) -> Standing:
        """The distribution of the groups."""

    def run(self, merges: Sequence[Merge]) -> Sequence[Merged]:
        """Merge the key groups of stores, all together; return what came of each of the merges.

        Runs on one thread at a time, with no other call beside it but `standing`.

        Raises:
            CheckpointError: A file cannot be read or written.
        """

    def due_moves(self, merges: Sequence[Merge], balance: bool) -> list[Move]:
        """Return the moves that empty executors that will go, and those that even out the loads.

        Args:
            merges: What each store has in files; without windows.
            balance: Whether it is time to even out loads.
        """

    def migrate(
        self, moves: Sequence[Move], strategy: Strategy, cut: int, boundary: Micros, merges: Sequence[Merge]
    ) -> None:
        """Let key groups live elsewhere; see `KeyGroups.moved`.

        Args:
            moves: Which groups.
            strategy: How. Only disruptive migration takes the time of the caller.
            cut: The first cut after the change.
            boundary: After every row that was read.
            merges: What each store has in files.
        """

    def arrive(self) -> None:
        """Wait for the groups that move instantly."""

    def empty(self, executors: Collection[ExecutorId]) -> None:
        """Let these executors, and no others, be emptied by the next moves, as they will be given back."""


class Here:
    """Merges in this process, where there is no cluster: a checkpoint that was written with one can always be read.

    Args:
        directory: Where the files are.
        groups: Number of key groups of new files.
    """

    def __init__(self, directory: Place, groups: int = 1) -> None:
        self.directory = directory
        self.groups = groups
        self.standing = Standing()

    def run(self, merges: Sequence[Merge]) -> Sequence[Merged]:
        """Merge the key groups of stores."""
        tasks = [merge.task(str(self.directory), merge.by_group(lambda _: "here")) for merge in merges]
        return [[run(task, load_spec)] for task in tasks]

    def due_moves(self, merges: Sequence[Merge], balance: bool) -> list[Move]:
        """Return no moves."""
        return []

    def migrate(
        self, moves: Sequence[Move], strategy: Strategy, cut: int, boundary: Micros, merges: Sequence[Merge]
    ) -> None:
        """Do nothing: there is no other place."""

    def arrive(self) -> None:
        """Do nothing."""

    def empty(self, executors: Collection[ExecutorId]) -> None:
        """Do nothing: there is no executor."""


def load_spec(data: bytes) -> StoreSpec:
    """Return the spec that `StoreSpec.pickled` made; the last ones are remembered."""
    from pyspark import cloudpickle

    spec = _SPECS.get(data)
    if spec is None:
        if len(_SPECS) > 64:
            _SPECS.clear()
        spec = _SPECS[data] = cloudpickle.loads(data)
    return spec


_SPECS: dict[bytes, StoreSpec] = {}
