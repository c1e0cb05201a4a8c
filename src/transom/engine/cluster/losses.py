"""The cost of losing executors: what the last loss took, and what the next one would take at most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from transom.engine.cluster.merges import ExecutorLoss, Merge
from transom.engine.cluster.messages import Done
from transom.model.time import Micros
from transom.placement.locality import ExecutorId


class Losses:
    """Measures the executors' reading of files, and the merges after a loss, which have to read again."""

    def __init__(self) -> None:
        self.last: ExecutorLoss | None = None
        """The last loss; its time and rows grow until all stores have read again what it took."""
        self._open = False
        """Whether some have not."""
        self._again: set[str] = set()
        """Stores that have."""
        self._stores: set[str] = set()
        self._held: Counter[ExecutorId] = Counter()
        """Rows in files, by the executor that reads them."""
        self._read, self._reading = 0, 0
        """Rows read so far, and the time that it took."""

    @property
    def estimate(self) -> Micros:
        """Longest time that a loss would take, by the measured speed of reading; 0 while it is not known."""
        largest = max(self._held.values(), default=0)
        return largest * self._reading // self._read if self._read else 0

    def held(self, merges: Sequence[Merge], home: Callable[[int], ExecutorId]) -> None:
        """Note what the stores have in files.

        Args:
            merges: For each store the parts.
            home: Returns the executor that reads the files of a group.
        """
        self._stores = {merge.store for merge in merges}
        self._held.clear()
        for piece in (piece for merge in merges for part in merge.parts for piece in part.files.slices):
            self._held[home(piece.group)] += piece.rows

    def lost(self, executors: set[ExecutorId]) -> None:
        """Note that executors are gone, and what they had in memory."""
        self.last, self._open, self._again = ExecutorLoss(tuple(sorted(executors))), True, set()

    def merged(self, merges: Iterable[tuple[Merge, Sequence[Done]]], took: Micros) -> None:
        """Note a job of merges; the first of each store after a loss counts for its recovery.

        Args:
            merges: The merges, and what came of them.
            took: Time of the job.
        """
        read: Counter[str] = Counter()
        for merge, done in merges:
            read[merge.store] += sum(one.read for one in done)
            self._reading += sum(one.reading for one in done)
        self._read += read.total()
        first = read.keys() - self._again
        if self._open and self.last is not None and first:
            self._again |= first
            rows = sum(read[store] for store in first)
            self.last = replace(self.last, took=self.last.took + took, rows=self.last.rows + rows)
            self._open = not self._again >= self._stores
