"""The loop of an application: which cuts are made, in which order, and when it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace

from transom.checkpoint.log import FORMAT
from transom.checkpoint.store import Checkpoint
from transom.engine.changes.requests import Requests
from transom.engine.control.adapting import Adapters
from transom.engine.control.memory import MemoryGauge
from transom.engine.control.scheduler import Scheduler
from transom.engine.control.tiers import Tiers
from transom.engine.execution.runners import CutRunner, SparkCutRunner
from transom.engine.loop.backpressure import Backpressure
from transom.engine.loop.batches import Cuts
from transom.engine.loop.changing import Changer
from transom.engine.loop.delivery import Delivery
from transom.engine.loop.journal import Journal
from transom.engine.loop.logrecords import Planned
from transom.engine.loop.metrics import Metrics
from transom.engine.loop.progress import Progress
from transom.engine.loop.quarantine import Quarantine
from transom.engine.loop.recovery import recover, snapshot_of
from transom.engine.loop.wakeups import Wakeups
from transom.engine.spark.session import cancel_jobs
from transom.engine.streams.cuts import CutOutcome, LoggedCut
from transom.engine.streams.stream import RunningStream
from transom.errors import SourceLostError, StoppedError, TransomError
from transom.model.time import MICROS_PER_SECOND, Clock, Micros, format_duration
from transom.settings import Settings
from transom.sinks.base import Sink
from transom.sinks.outlets import Outlets
from transom.windows.components import Arrangement

PROGRESS_EVERY: Micros = 250_000
AT_ONCE = 5.0
"""Seconds that an end at once, or one that has waited for long enough, waits for threads that were told to end."""


class Loop:
    """Runs streams until they are exhausted or it is told to stop. All state changes happen on one thread.

    Args:
        streams: The streams, freshly made.
        sinks: Sinks of each query.
        checkpoint: Open checkpoint.
        settings: Settings.
        clock: The time.
        on_progress: Called now and then with what has happened.
        on_step: Called with the name of each step that a crash could follow; for fault tests.
        requests: Changes of the set of queries that are asked for while it runs.
        forget: Called with the name of each query that leaves.
        runner: Runs the jobs of cuts; Spark if None.
        release: Called with each sink that is not needed any more while it runs.
        lost: Queries that failed earlier and are in no stream, since they cannot be compiled any more; with the reason.
    """

    def __init__(
        self,
        streams: Mapping[str, RunningStream],
        sinks: Mapping[str, Outlets],
        checkpoint: Checkpoint,
        settings: Settings,
        clock: Clock,
        on_progress: Callable[[Progress], None] | None = None,
        on_step: Callable[[str], None] = lambda step: None,
        requests: Requests | None = None,
        forget: Callable[[str], None] = lambda name: None,
        runner: CutRunner | None = None,
        release: Callable[[Sink], None] = lambda sink: None,
        lost: Mapping[str, str] | None = None,
    ) -> None:
        self._lost, self._sinks = dict(lost or {}), sinks
        self._streams = dict(streams)
        self._checkpoint = checkpoint
        self._settings = settings
        self._clock = clock
        self._on_progress = on_progress
        self._stopping = False
        self._shown: Micros | None = None
        """Monotonic time of the last progress."""
        self._stop_by: Micros | None = None
        """Once it is stopping: until when it waits."""
        self._at_once = False
        self._ended = threading.Event()
        """Set when no job is waited for any more."""
        self._failure: TransomError | None = None
        self.still_writing: list[Sink] = []
        """Sinks that could not be waited for, at the end."""
        self._away: set[str] = set()
        """Streams whose source could not be reached at the last look."""
        self._snapshot_size = 0
        self._snapshot_wanted = False
        """Whether a snapshot is due because queries changed, or partials go elsewhere."""
        self._wakeups = Wakeups(clock)
        wake = self._wakeups.wake
        self._journal = Journal(checkpoint, on_step)
        self._metrics = Metrics(clock.monotonic(), self._streams)
        self._delivery = Delivery(sinks, clock, wake, settings.sink_workers, settings.max_waiting_bytes, release)
        self._quarantine = Quarantine(self._streams, self._journal)
        self._backpressure = Backpressure(
            self._streams, self._delivery, self._journal, self._metrics, self._quarantine, settings.max_waiting_bytes
        )
        gauge = MemoryGauge(next(iter(self._streams.values())).session, settings.memory_limit, settings.memory_bound)
        self._scheduler = Scheduler(self._streams, settings, gauge.measure, self._journal.note)
        self._runner = runner or SparkCutRunner(self._scheduler.slots, self._scheduler.pools, len(streams))
        self.adapters = Adapters()
        self._cuts = Cuts(
            self._streams,
            self._journal,
            self._runner,
            self._scheduler,
            self.adapters,
            self._delivery,
            self._quarantine,
            clock,
            wake,
        )
        self._tiers = Tiers(self._streams, settings, self._journal.note)
        requests = requests or Requests()
        requests.wake = wake
        self._changer = Changer(self._streams, sinks, self._delivery, self._journal, requests, forget)

    def stop(self) -> None:
        """Finish the running micro-batches, deliver what is ready, then end `run`; may be called from anywhere.

        What is not done within the setting `stop_timeout` is left to the next run.
        """
        self._stopping = True
        self._wakeups.wake()

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop."""
        return self._stopping

    def left(self, reason: str) -> Progress:
        """Return what was done, when Spark ended while the loop was stopping.

        Args:
            reason: How it ended.
        """
        self._journal.note(f"Spark ended first ({reason}); what was under way is done by the next run.")
        return self._progress()

    def fail(self, error: TransomError) -> None:
        """End `run` with an error; may be called from anywhere."""
        self._failure = error
        self._wakeups.wake()

    def end_at_once(self) -> None:
        """End `run` without waiting for what is under way; may be called from anywhere."""
        self.abandon()
        if self._runner.in_real_time:
            cancel_jobs(next(iter(self._streams.values())).session, self._ended)
        self.fail(StoppedError("The run was stopped at once.", "The next one goes on from the last micro-batch."))

    def abandon(self) -> None:
        """Let no running micro-batch start another Spark job, and wait for none; for an end at once."""
        self._at_once = True
        self._runner.abandon()

    def run(self, once: bool) -> Progress:
        """Run until stopped, or with `once` until the sources are exhausted.

        Args:
            once: Stop at the end of the input.

        Raises:
            SourceError: A source cannot be read.
            QueryFailedError: No query is left.
            SinkError: At the end of the input, sinks still fail after many tries.
            CheckpointError: The checkpoint cannot be written.
            TransomError: What `fail` was told.
        """
        self._scheduler.once = once
        with ExitStack() as ending:
            ending.callback(self._changer.close)
            ending.push(lambda kind, error, trace: self._end_threads(error is None))
            self._recover()
            while self._failure is None:
                for stream, outcome in self._cuts.commit():
                    self._learn(stream, outcome)
                self._snapshot_wanted |= self._cuts.tidied()
                self._backpressure.look()
                self._change_queries()
                if self._snapshot_due and not self._cuts.merging:
                    self._snapshot()
                if not self._stopping and not self._quarantine.all_failed:
                    self._start_cuts()
                if self._finished(once):
                    break
                self._show()
                self._wait()
            if self._failure is not None:
                raise self._failure
            if not self._cuts.busy:  # else it was not waited for
                self._snapshot()
            self._quarantine.require_a_query()
            if not self._stopping:
                self._backpressure.require_all_delivered()
            return self._progress()
        raise AssertionError

    def _end_threads(self, finished: bool) -> None:
        """End the jobs and the writes that are under way; after an error nobody waits for the latter."""
        longest = AT_ONCE if self._at_once else self._settings.stop_timeout / MICROS_PER_SECOND
        self.abandon()  # what still runs is for nothing
        with ExitStack() as ending:
            ending.callback(lambda: self.still_writing.extend(self._delivery.close(longest if finished else 0)))
            ending.callback(self._ended.set)
            ending.callback(lambda: self._runner.close(longest))

    # ---- start

    def _recover(self) -> None:
        keys = {name: outlets.keys for name, outlets in self._sinks.items()}
        recovered = recover(self._checkpoint, self._streams, keys, self._lost.keys())
        self._journal.register = recovered.register
        self._scheduler.restore(recovered.learned, self._clock.monotonic())
        changed = self._changer.begin(recovered.fate, quiet=self._checkpoint.is_new)
        for stream in self._streams.values():
            for name, query in stream.state.queries.items():
                if query.failure is not None:
                    self._journal.note(f"{name} failed earlier and stays out: {query.failure}")
                elif query.paused:
                    self._journal.note(f"{name} is paused, as it was.")
        for note in recovered.notes:
            self._journal.note(note)
        for name, reason in self._lost.items():
            self._quarantine.stay_out(name, reason, self._sinks[name])
        self._quarantine.end_orphans()
        for batch in recovered.batches:
            self._delivery.send(batch)
        for name, cut in recovered.unfinished.items():
            self._cuts.submit(self._streams[name], cut)
        retiered = self._tiers.begin()
        old = self._checkpoint.found_format < FORMAT
        if old or retiered or recovered.retyped or recovered.resinked or (changed and not self._checkpoint.is_new):
            self._snapshot()

    def _change_queries(self) -> None:
        """Make the changes that were asked for; a snapshot ends them, so that no restart needs a query that left."""
        if self._stopping:
            self._changer.close()
        elif self._changer.make(busy=self._cuts.busy):
            self._metrics.keep({name for stream in self._streams.values() for name in stream.state.queries})
            self._snapshot_wanted = True

    # ---- cuts

    def _start_cuts(self) -> None:
        """Close the windows that are due, and start the jobs of the streams that run next.

        A window that is due is closed at once, by a cut without rows unless its stream is to run now in any case.
        """
        now, wall = self._clock.monotonic(), self._clock.now()
        cuts = self._possible_cuts(now, wall)
        due = [name for name, cut in cuts.items() if self._streams[name].has_due(cut.watermark, wall)]
        ready = [
            name for name, cut in cuts.items() if not cut.empty and (name in due or not self._too_early(name, now))
        ]
        free = self._scheduler.slots - self._cuts.jobs
        chosen = self._scheduler.order(ready, now, self._delivery.busy)[:free] if free > 0 and ready else []
        for name in sorted(due, key=lambda name: name not in chosen):
            self._cuts.start(self._streams[name], cuts[name] if name in chosen else cuts[name].only_closing())
        for name in chosen:
            if name not in due:
                self._cuts.start(self._streams[name], cuts[name])

    def _possible_cuts(self, now: Micros, wall: Micros) -> dict[str, LoggedCut]:
        """Return the next cut of each stream that has none under way and something to read or to close."""
        cuts: dict[str, LoggedCut] = {}
        looked: list[RunningStream] = []
        most, busy = self._scheduler.max_rows(now), self._cuts.busy
        snapshot_waits = bool(self._cuts.merging) and self._snapshot_due
        for name, stream in self._streams.items():
            if name in busy or name in self._changer.held or stream.halted or not stream.state.running():
                continue
            if snapshot_waits and stream.has_files:  # no other merge begins before the snapshot
                continue
            if self._backpressure.hold_up(stream):
                continue
            try:
                cut = self._next_cut(stream, wall, most[name])
            except SourceLostError as error:
                self._quarantine.halt(stream, error)
                continue
            looked.append(stream)
            self._metrics.looked(stream, wall)
            if cut is not None:
                cuts[name] = cut
        self._scheduler.looked(looked, now, wall - now)
        return cuts

    def _next_cut(self, stream: RunningStream, wall: Micros, most: int) -> LoggedCut | None:
        """Return the next cut of a stream; after all rows, if that is asked for, one that closes all windows."""
        cut = stream.next_cut(wall, most, False)
        self._tell_away(stream)
        if cut is not None or stream.away is not None or not stream.closes_all:
            return cut
        return stream.next_cut(wall, most, True) if stream.source.exhausted(stream.state.offset) else None

    def _tell_away(self, stream: RunningStream) -> None:
        """Say once when a source cannot be reached, and once when it can again."""
        if stream.away is not None and stream.name not in self._away:
            self._journal.note(f"{stream.name} waits: {stream.away}")
            self._away.add(stream.name)
        elif stream.away is None and stream.name in self._away:
            self._journal.note(f"{stream.name} goes on: its source answers.")
            self._away.discard(stream.name)

    def _too_early(self, name: str, now: Micros) -> bool:
        """Tell whether a cut that takes all there is should wait for more."""
        started = self._cuts.started_at(name)
        return started is not None and now < started + self._settings.trigger and not self._streams[name].more

    def _learn(self, stream: RunningStream, outcome: CutOutcome) -> None:
        """Count a cut that was committed, and look whether its partials are better computed or kept otherwise."""
        now = self._clock.monotonic()
        self._metrics.committed(stream.name, outcome, now, now - (self._cuts.started_at(stream.name) or now))
        if outcome.cut.empty:
            return
        arrangement = self.adapters.of(stream).committed(outcome.stats.rows)
        if arrangement is not None:
            self.follow(stream, arrangement)
        self._snapshot_wanted |= self._tiers.committed(stream)
        self._tiers.balance(stream)
        if stores := self._tiers.overfull(stream):
            self._cuts.tidy(stream, stores)

    def follow(self, stream: RunningStream, arrangement: Arrangement) -> None:
        """Compute a stream's key sets in another way from its next cut on; no cut of it is under way."""
        self._journal.log(Planned(stream.name, arrangement).to_json(), sync=False)
        stream.follow(arrangement)

    # ---- checkpoint

    @property
    def _snapshot_due(self) -> bool:
        limit = max(self._settings.snapshot_bytes, self._snapshot_size)
        return self._snapshot_wanted or self._checkpoint.total_bytes > limit

    def _snapshot(self) -> None:
        """Replace the log and the partials by the state that they lead to."""
        self._journal.step("before snapshot")
        self._snapshot_wanted = False
        self._tiers.settle()
        logged = self._cuts.logged
        state, tables = snapshot_of(
            self._streams, self._journal.register, logged, self._delivery.waiting(), self._scheduler.learned()
        )
        self._checkpoint.write_snapshot(state, tables)
        self._snapshot_size = sum(table.nbytes for table in tables.values())
        self._tiers.clean({name: cut.number for name, cut in logged.items()})
        self._journal.step("after snapshot")

    # ---- end, progress, waiting

    def _finished(self, once: bool) -> bool:
        """Tell whether nothing is left to do but to wait for sinks that fail, or it was told to stop long ago."""
        if self._stopping and self._overdue():
            return True
        if self._cuts.busy and not (self._stopping and self._cuts.only_wait):
            return False
        ends = self._stopping or self._quarantine.all_failed
        if not ends and not (once and all(stream.ended() or stream.stuck for stream in self._streams.values())):
            return False
        return self._backpressure.blocked_for_ever(self._stopping)

    def _overdue(self) -> bool:
        """Tell whether what is under way has had its time since `stop`; it is left then."""
        now, longest = self._clock.monotonic(), self._settings.stop_timeout
        self._stop_by = now + longest if self._stop_by is None else self._stop_by
        if now < self._stop_by:
            return False
        late = [f"a micro-batch of {name}" for name in sorted(self._cuts.busy)]
        late += [f"the sink of {query}" for query in self._delivery.writing()]
        if late:
            self._journal.note(
                f"Stopped without {' and '.join(late)}, which did not end within {format_duration(longest)}; what is "
                "missing is in the checkpoint, and the next run goes on with it."
            )
            self.abandon()
            if self._cuts.jobs and self._runner.in_real_time:
                cancel_jobs(next(iter(self._streams.values())).session, self._ended)
        return True

    def _progress(self) -> Progress:
        progress = self._metrics.progress(
            self._streams,
            self._delivery,
            self._changer.sink_texts,
            self._clock.monotonic(),
            self._clock.now(),
            self._stopping,
            self._journal.take_notes(),
        )
        memory, mode = self._scheduler.memory.largest, self._scheduler.mode.active
        resting = self._scheduler.resting
        streams = tuple(replace(stream, rests_until=resting.get(stream.name)) for stream in progress.streams)
        return replace(progress, streams=streams, scheduling=self._scheduler.spent, memory=memory, memory_mode=mode)

    def _show(self) -> None:
        now = self._clock.monotonic()
        due = self._shown is None or now >= self._shown + PROGRESS_EVERY
        if self._on_progress is not None and (due or self._journal.notes):
            self._shown = now
            self._on_progress(self._progress())

    def _wait(self) -> None:
        poll, busy = self._settings.poll, self._cuts.busy
        if busy and all(name in busy for name in self._streams):
            poll = max(poll, PROGRESS_EVERY)
        runs = bool(busy) and self._runner.in_real_time
        self._wakeups.wait(poll, busy=runs or self._delivery.busy)
