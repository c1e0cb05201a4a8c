"""Snapshots: the state of all streams, which replaces the log and the partials that lead to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from transom.checkpoint.store import Checkpoint
from transom.engine.control.digests import Digests
from transom.engine.control.scheduler import Scheduler
from transom.engine.control.tiers import Tiers
from transom.engine.loop.batches import Cuts
from transom.engine.loop.delivery import Delivery
from transom.engine.loop.journal import Journal
from transom.engine.loop.saved import snapshot_of
from transom.engine.loop.tuning import Tuner
from transom.engine.streams.stream import RunningStream


@dataclass
class Snapshots:
    """Writes snapshots when one is due: the log has grown, queries changed, or partials go elsewhere."""

    streams: Mapping[str, RunningStream]
    checkpoint: Checkpoint
    journal: Journal
    cuts: Cuts
    delivery: Delivery
    scheduler: Scheduler
    tiers: Tiers
    tuner: Tuner
    digests: Digests
    smallest: int
    """Bytes of a checkpoint up to which no snapshot is worth while."""
    wanted: bool = False
    """Whether one is due whatever the size of the log."""
    size: int = 0
    """Bytes of the last one, which the log may reach before the next."""
    left: int = 0
    """Bytes with which the log began after the last one."""

    @property
    def due(self) -> bool:
        """Whether one should be written as soon as no files are merged."""
        return self.wanted or self.checkpoint.total_bytes > max(self.smallest, self.size, self.left)

    @property
    def waits(self) -> bool:
        """Whether one is due and waits until no files are merged, so that no other merge should begin."""
        return bool(self.cuts.merging) and self.due

    def take_if_due(self) -> None:
        """Write one if it is due and can be.

        Raises:
            CheckpointError: It cannot be written.
        """
        if self.due and not self.cuts.merging:
            self.take()

    def take(self) -> None:
        """Replace the log and the partials by the state that they lead to.

        Raises:
            CheckpointError: It cannot be written.
        """
        self.journal.step("before snapshot")
        self.wanted = False
        self.tiers.settle()
        logged = self.cuts.logged
        kept = {
            "learned": self.scheduler.learned(),
            "tunings": [change.to_json() for change in self.tuner.changes],
            "profile": self.digests.to_json(),
        }
        state, tables = snapshot_of(self.streams, self.journal.register, logged, self.delivery.waiting(), kept)
        self.checkpoint.write_snapshot(state, tables)
        self.size = sum(table.nbytes for table in tables.values())
        self.left = self.checkpoint.total_bytes
        self.tiers.clean({name: cut.number for name, cut in logged.items()}, self.journal.check)
        self.journal.step("after snapshot")
