"""The consequences of a commit: counts, and whether partials are better computed or kept in another way."""

from __future__ import annotations

from dataclasses import dataclass

from transom.engine.control.adapting import Adapters
from transom.engine.control.tiers import Tiers
from transom.engine.loop.batches import Cuts
from transom.engine.loop.journal import Journal
from transom.engine.loop.logrecords import Planned
from transom.engine.loop.metrics import Metrics
from transom.engine.loop.snapshots import Snapshots
from transom.engine.streams.cuts import CutOutcome
from transom.engine.streams.stream import RunningStream
from transom.model.time import Clock
from transom.windows.components import Arrangement


@dataclass(frozen=True)
class Learning:
    """Learns from the cuts that are committed."""

    journal: Journal
    metrics: Metrics
    adapters: Adapters
    tiers: Tiers
    cuts: Cuts
    snapshots: Snapshots
    clock: Clock

    def committed(self, stream: RunningStream, outcome: CutOutcome) -> None:
        """Count a cut, and look whether the stream's partials are better computed or kept otherwise."""
        now = self.clock.monotonic()
        self.metrics.committed(stream.name, outcome, now, now - (self.cuts.started_at(stream.name) or now))
        if outcome.cut.empty:
            return
        arrangement = self.adapters.of(stream).committed(outcome.stats.rows)
        if arrangement is not None:
            self.follow(stream, arrangement)
        self.snapshots.wanted |= self.tiers.committed(stream)
        self.tiers.balance(stream)
        if stores := self.tiers.overfull(stream):
            self.cuts.tidy(stream, stores)

    def follow(self, stream: RunningStream, arrangement: Arrangement) -> None:
        """Compute a stream's key sets in another way from its next cut on; no cut of it is under way."""
        self.journal.log(Planned(stream.name, arrangement).to_json(), sync=False)
        stream.follow(arrangement)
