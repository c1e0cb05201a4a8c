"""The progress of a run, as it is shown to people."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from transom.engine.control.phases import PhaseRecorder
from transom.engine.control.scheduler import Scheduler
from transom.engine.loop.changing import Changer
from transom.engine.loop.delivery import Delivery
from transom.engine.loop.ending import Ending
from transom.engine.loop.journal import Journal
from transom.engine.loop.metrics import Metrics
from transom.engine.loop.planner import Planner
from transom.engine.loop.progress import Progress
from transom.engine.streams.stream import RunningStream
from transom.model.time import Clock, Micros

PROGRESS_EVERY: Micros = 250_000


@dataclass
class Reporter:
    """Makes progress out of what the parts of the loop know, and shows it now and then."""

    streams: Mapping[str, RunningStream]
    metrics: Metrics
    scheduler: Scheduler
    phases: PhaseRecorder
    delivery: Delivery
    changer: Changer
    ending: Ending
    journal: Journal
    clock: Clock
    on_progress: Callable[[Progress], None] | None
    planner: Planner | None = None
    every: Micros = PROGRESS_EVERY
    shown: Micros | None = None
    """Monotonic time at which progress was shown last."""

    def progress(self) -> Progress:
        """Return where the application is; its notes are shown then."""
        progress = self.metrics.progress(
            self.streams,
            self.delivery,
            self.changer.sink_texts,
            self.clock.monotonic(),
            self.clock.now(),
            self.ending.stopping,
            self.journal.take_notes(),
        )
        memory, mode = self.scheduler.memory.shares.largest, self.scheduler.memory.mode.active
        resting = self.scheduler.resting
        tuning = self.scheduler.tuning
        streams = tuple(
            replace(
                stream,
                rests_until=resting.get(stream.name),
                phases=self.phases.means(stream.name),
                tuning=tuning.of(stream.name).to_json(),
                measured=self.phases.latency(stream.name),
                planned=None if self.planner is None else self.planner.expected.get(stream.name),
            )
            for stream in progress.streams
        )
        executors = None if self.planner is None else self.planner.executors
        return replace(
            progress,
            streams=streams,
            scheduling=self.scheduler.spent,
            memory=memory,
            memory_mode=mode,
            slots=tuning.slots,
            executors=0 if executors is None else executors.count,
            asked_executors=0 if executors is None else executors.asked or 0,
        )

    def left(self, reason: str) -> Progress:
        """Return what was done, when Spark ended while the loop was stopping.

        Args:
            reason: How it ended.
        """
        self.journal.note(f"Spark ended first ({reason}); what was under way is done by the next run.")
        return self.progress()

    def show(self) -> None:
        """Show progress, if some time has passed since it was shown, or there are notes."""
        now = self.clock.monotonic()
        due = self.shown is None or now >= self.shown + self.every
        if self.on_progress is not None and (due or self.journal.notes):
            self.shown = now
            self.on_progress(self.progress())
