"""The beginning of a run: the state that the log describes, and what is left to be done from there on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from transom.checkpoint.log import FORMAT
from transom.checkpoint.store import Checkpoint
from transom.engine.control.digests import Digests
from transom.engine.control.scheduler import Scheduler
from transom.engine.control.tiers import Tiers
from transom.engine.loop.batches import Cuts
from transom.engine.loop.changing import Changer
from transom.engine.loop.delivery import Delivery
from transom.engine.loop.journal import Journal
from transom.engine.loop.opening import FILES, SOURCES
from transom.engine.loop.quarantine import Quarantine
from transom.engine.loop.recovery import recover
from transom.engine.loop.snapshots import Snapshots
from transom.engine.loop.tuning import Tuner
from transom.engine.streams.stream import RunningStream
from transom.engine.streams.tableversions import COPIES
from transom.model.time import Clock
from transom.sinks.outlets import Outlets


@dataclass(frozen=True)
class Beginning:
    """Brings fresh streams to where the log says they were, and takes up what was under way."""

    streams: Mapping[str, RunningStream]
    sinks: Mapping[str, Outlets]
    """Sinks of each query."""
    lost: Mapping[str, str]
    """Queries that failed earlier and are in no stream, since they cannot be compiled any more; with the reason."""
    checkpoint: Checkpoint
    journal: Journal
    scheduler: Scheduler
    changer: Changer
    quarantine: Quarantine
    delivery: Delivery
    cuts: Cuts
    tiers: Tiers
    tuner: Tuner
    digests: Digests
    snapshots: Snapshots
    clock: Clock

    def begin(self) -> None:
        """Recover; a snapshot follows where a restart should not have to do the same again.

        Raises:
            JobChangedError: A query has another definition than in the checkpoint.
            CheckpointError: The checkpoint is damaged, or cannot be written.
            SinkError: A sink cannot be used.
        """
        keys = {name: outlets.keys for name, outlets in self.sinks.items()}
        recovered = recover(self.checkpoint, self.streams, keys, self.lost.keys())
        self.journal.register = recovered.register
        self.scheduler.restore(recovered.learned, self.clock.monotonic())
        self.tuner.begin(recovered.tunings)
        self.digests.restore(recovered.profile)
        for name, logged in recovered.unfinished.items():  # new queries do not see the rows that it leaves out
            self.streams[name].lacks_rows_of(logged)
        changed = self.changer.begin(recovered.fate, quiet=self.checkpoint.is_new)
        self._tell_who_rests()
        for note in recovered.notes:
            self.journal.note(note)
        for name, reason in self.lost.items():
            self.quarantine.stay_out(name, reason, self.sinks[name])
        self.quarantine.end_orphans()
        for batch in recovered.batches:
            self.delivery.send(batch)
        for name, stream in self.streams.items():
            cut = recovered.unfinished.get(name)
            needed = {} if cut is None else cut.tables
            stream.tables.settle(self.checkpoint.names_in(COPIES, name), needed, self.journal.check)
        for name, cut in recovered.unfinished.items():
            self.cuts.submit(self.streams[name], cut)
        retiered = self.tiers.begin()
        old = self.checkpoint.found_format < FORMAT
        changed = (changed and not self.checkpoint.is_new) or bool(recovered.away)
        if old or retiered or recovered.retyped or recovered.resinked or changed:
            self.snapshots.take()
        self._forget_others()

    def _forget_others(self) -> None:
        """Remove what streams kept of which the checkpoint knows nothing more; their dead letters are the user's."""
        sources = {stream.definition.source_name for stream in self.streams.values()}
        for directory, names in ((COPIES, self.streams.keys()), (FILES, self.streams.keys()), (SOURCES, sources)):
            self.checkpoint.keep_only(directory, names)

    def _tell_who_rests(self) -> None:
        for stream in self.streams.values():
            for name, query in stream.state.queries.items():
                if query.failure is not None:
                    self.journal.note(f"{name} failed earlier and stays out: {query.failure}")
                elif query.paused:
                    self.journal.note(f"{name} is paused, as it was.")
