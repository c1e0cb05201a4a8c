"""The loop of an application: which stream runs next, what is logged before what, who gets the results."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from transom.checkpoint.store import Checkpoint
from transom.config import Settings
from transom.engine.adapting import Adapter
from transom.engine.changes import Register
from transom.engine.changing import Changer
from transom.engine.cuts import CutOutcome, LoggedCut
from transom.engine.delivery import Delivery, Parcel
from transom.engine.derived import DerivedSource
from transom.engine.executors import Executor, SparkExecutor
from transom.engine.memory import MemoryGauge
from transom.engine.metrics import Metrics
from transom.engine.progress import Progress
from transom.engine.recovery import recover, snapshot_of
from transom.engine.requests import Requests
from transom.engine.scheduler import Scheduler
from transom.engine.spark.isolation import describe_failure
from transom.engine.stream import Stream
from transom.engine.tiers import Tiers
from transom.engine.wakeups import Wakeups
from transom.errors import QueryFailedError, SinkError
from transom.model.time import Clock, Micros
from transom.sinks.base import Sink
from transom.windows.components import Arrangement
from transom.windows.splitting import Costs

logger = logging.getLogger(__name__)

PROGRESS_EVERY: Micros = 250_000
TRIES_AT_THE_END = 8
"""At the end of the input a sink that failed so often in a row (for about half a minute) is not waited for."""


class Loop:
    """Runs streams until they are exhausted or it is told to stop. All state changes happen on one thread.

    Args:
        streams: The streams, freshly made.
        sinks: Sink of each query.
        checkpoint: Open checkpoint.
        settings: Settings.
        clock: The time.
        on_progress: Called now and then with what has happened.
        on_step: Called with the name of each step that a crash could follow; for fault tests.
        requests: Changes of the set of queries that are asked for while it runs.
        forget: Called with the name of each query that leaves.
        executor: Runs the jobs of cuts; Spark if None.
    """

    def __init__(
        self,
        streams: Mapping[str, Stream],
        sinks: Mapping[str, Sink],
        checkpoint: Checkpoint,
        settings: Settings,
        clock: Clock,
        on_progress: Callable[[Progress], None] | None = None,
        on_step: Callable[[str], None] = lambda step: None,
        requests: Requests | None = None,
        forget: Callable[[str], None] = lambda name: None,
        executor: Executor | None = None,
    ) -> None:
        self._streams = dict(streams)
        self._sinks = dict(sinks)
        self._checkpoint = checkpoint
        self._settings = settings
        self._clock = clock
        self._on_progress = on_progress
        self.step = on_step
        self._wakeups = Wakeups(clock)
        self._jobs: dict[str, tuple[LoggedCut, Future[CutOutcome]]] = {}
        self._delivery = Delivery(
            self._sinks, clock, self._wakeups.wake, settings.sink_workers, settings.max_waiting_bytes
        )
        self._metrics = Metrics(clock.now())
        self._notes: list[str] = []
        self._stopping = False
        self._started: dict[str, Micros] = {}
        self._ingested: dict[str, Micros] = {}
        self._shown: Micros = 0
        self._snapshot_size = 0
        self._retiered = False
        """Whether a snapshot is due because partials go elsewhere."""
        self._behind: set[str] = set()
        self._register = Register()
        self._changer = Changer(self._streams, self._sinks, self._delivery, self, requests or Requests(), forget)
        self._changer.requests.wake = self._wakeups.wake
        gauge = MemoryGauge(next(iter(self._streams.values())).session, settings.memory_limit)
        self._scheduler = Scheduler(self._streams, settings, gauge.measure, self.note)
        self._executor = executor or SparkExecutor(self._scheduler.slots, self._scheduler.pools)
        self._adapters: dict[str, Adapter] = {}
        self._tiers = Tiers(self._streams, settings, self.note)
        self.costs: Costs | None = None
        """What the arrangement of the queries goes by, instead of what is measured."""

    def stop(self) -> None:
        """Finish the running micro-batches, deliver what is ready, then end `run`; may be called from anywhere."""
        self._stopping = True
        self._wakeups.wake()

    def abandon(self) -> None:
        """Let no running micro-batch start another Spark job; for an end at once."""
        for stream in self._streams.values():
            stream.abandoned = True

    def run(self, once: bool, close_all: bool) -> Progress:
        """Run until stopped, or with `once` until the sources are exhausted.

        Args:
            once: Stop at the end of the input.
            close_all: With `once`: at the end close also the windows that the watermark has not reached.

        Raises:
            SourceError: A source cannot be read.
            QueryFailedError: No query is left.
            SinkError: At the end of the input, sinks still fail after many tries.
            CheckpointError: The checkpoint cannot be written.
        """
        finished = False
        self._scheduler.once = once
        for stream in self._streams.values():
            stream.closes_all = close_all and once
        try:
            self._recover()
            while True:
                self._take_outcomes()
                self._take_deliveries()
                self._change_queries()
                self._look_at_sinks()
                if not self._stopping and self._runs_a_query():
                    self._start_cuts()
                self._bound_checkpoint()
                if self._finished(once):
                    break
                self._show()
                self._wait()
            self._snapshot()
            finished = True
            self._require_a_query()
            self._require_deliveries()
            return self._progress()
        finally:
            if not finished:
                self.abandon()
            self._executor.close()
            self._delivery.close(wait=finished)
            self._changer.close()

    # ---- start

    def _recover(self) -> None:
        recovered = recover(self._checkpoint, self._streams)
        self._register = recovered.register
        self._scheduler.restore(recovered.learned, self._clock.now())
        changed = self._changer.begin(recovered.register, recovered.fate, quiet=self._checkpoint.is_new)
        for stream in self._streams.values():
            for name, query in stream.state.queries.items():
                if query.failure is not None:
                    self.note(f"{name} failed earlier and stays out: {query.failure}")
                elif query.paused:
                    self.note(f"{name} is paused, as it was.")
        self._end_orphans()
        for parcel in recovered.parcels:
            self._delivery.send(parcel)
        for name, cut in recovered.unfinished.items():
            self._submit(self._streams[name], cut)
        retiered = self._tiers.begin()
        if retiered or (changed and not self._checkpoint.is_new):
            self._snapshot()

    def _change_queries(self) -> None:
        """Make the changes that were asked for; a snapshot ends them, so that no restart needs a query that left."""
        if self._stopping:
            self._changer.close()
        elif self._changer.make(busy=self._jobs):
            self._snapshot()

    # ---- cuts

    def _start_cuts(self) -> None:
        """Close the windows that are due, and start the jobs of the streams that run next.

        A window that is due is closed at once, by a cut without rows unless its stream is to run now in any case.
        """
        now = self._clock.now()
        cuts: dict[str, LoggedCut] = {}
        looked: list[Stream] = []
        most = self._scheduler.max_rows(now)
        for name, stream in self._streams.items():
            if name in self._jobs or name in self._changer.held or not stream.state.running():
                continue
            if self._held_up(stream):
                continue
            cut = stream.next_cut(now, most[name], False)
            if cut is None and stream.closes_all and stream.source.exhausted(stream.state.offset):
                cut = stream.next_cut(now, most[name], True)
            looked.append(stream)
            if cut is not None:
                cuts[name] = cut
        self._scheduler.looked(looked, now)
        due = {name for name, cut in cuts.items() if self._streams[name].has_due(cut.watermark, now)}
        ready = [name for name, cut in cuts.items() if not cut.empty and not self._too_early(name, name in due, now)]
        free = self._scheduler.slots - sum(not cut.empty for cut, _ in self._jobs.values())
        chosen = self._scheduler.order(ready, now, self._delivery.busy)[:free] if free > 0 and ready else []
        for name in sorted(due, key=lambda name: name not in chosen):
            self._log_cut(self._streams[name], cuts[name] if name in chosen else cuts[name].only_closing())
        for name in chosen:
            if name not in due:
                self._log_cut(self._streams[name], cuts[name])

    def _too_early(self, name: str, due: bool, now: Micros) -> bool:
        """Tell whether a cut that takes all there is should wait for more, unless windows are closed in any case."""
        waits = now < self._started.get(name, 0) + self._settings.trigger
        return waits and not due and not self._streams[name].more

    def _log_cut(self, stream: Stream, cut: LoggedCut) -> None:
        """Log what decides the cut, start its job, and close the windows that its watermark completes."""
        now = self._clock.now()
        if not cut.empty:
            self._started[stream.name] = now
        due = stream.has_due(cut.watermark, cut.at)
        self.log({"type": "cut", "stream": stream.name, "cut": cut.to_json()}, sync=due)
        self.step("cut logged")
        self._submit(stream, cut)
        ingested = self._ingested.get(stream.name, cut.at)
        if isinstance(stream.source, DerivedSource):
            ingested = stream.source.ingested_at(cut.start, cut.start) or cut.at
        begun = self._clock.now()
        closings = stream.close(cut, ingested)
        took = self._clock.now() - begun
        self._adapter(stream).merged(took)
        self._scheduler.closed(stream, closings, took, now)
        for closing in closings:
            if closing.error is not None:
                self._fail(stream, closing.query, str(closing.error))
            elif closing.results is not None:
                self._delivery.send(Parcel(closing.results, closing.windows, ingested))
        if stream.readers:
            self._end_orphans()
            self._wakeups.wake()
        self.step("windows closed")

    def _submit(self, stream: Stream, cut: LoggedCut) -> None:
        now = self._clock.now()
        self._adapter(stream).started(now)
        self._scheduler.started(stream, cut, now)
        if cut.empty:
            future: Future[CutOutcome] = Future()
            future.set_result(CutOutcome(cut))
            self._jobs[stream.name] = (cut, future)
            self._wakeups.wake()
            return
        future = self._executor.submit(stream, cut, stream.compiled)
        future.add_done_callback(lambda _: self._wakeups.wake())
        self._jobs[stream.name] = (cut, future)

    def _take_outcomes(self) -> None:
        for name, (_, future) in list(self._jobs.items()):
            if future.done():
                self._commit(self._streams[name], future.result())
                del self._jobs[name]

    def _commit(self, stream: Stream, outcome: CutOutcome) -> None:
        """Make the partials durable, then the commit, then use them."""
        self.step("job done")
        cut = outcome.cut
        self._adapter(stream).finished(self._clock.now())
        written = None
        if any(table.num_rows for table in outcome.tables):
            tables = {str(i): table for i, table in enumerate(outcome.tables)}
            written = self._checkpoint.write_tables(f"{stream.name}-{cut.number:012d}", tables)
            self.step("partials written")
        record = {
            "type": "commit",
            "stream": stream.name,
            "number": cut.number,
            "tables": written,
            "files": [files.to_json() for files in outcome.files],
            "stats": outcome.stats.to_json(),
            "skipped": outcome.skipped,
            "failures": outcome.failures,
            "late": outcome.late,
            "kept": outcome.kept,
        }
        self.log(record, sync=not cut.empty)
        self.step("committed")
        begun = self._clock.now()
        stream.commit(outcome, outcome.tables)
        self._adapter(stream).merged(self._clock.now() - begun)
        for query, reason in outcome.failures.items():
            self.note(f"{query} failed and was taken out; the others go on: {reason}")
        if outcome.failures:
            self._end_orphans()
        for unit, reason in outcome.skipped.items():
            self.note(f"{unit} cannot be read and went to the dead letters: {reason}")
        self._metrics.committed(stream.name, outcome, self._clock.now())
        if not cut.empty:
            self._ingested[stream.name] = stream.source.ingested_at(cut.start, cut.end)
            self._scheduler.finished(stream, outcome, self._clock.now())
            stream.source.release(cut.end)
            arrangement = self._adapter(stream).committed(outcome.stats.rows)
            if arrangement is not None:
                self._follow(stream, arrangement)
            self._retiered |= self._tiers.committed(stream)
            self._tiers.balance(stream)

    def _adapter(self, stream: Stream) -> Adapter:
        known = self._adapters.get(stream.name)
        if known is None or known.stream is not stream:
            known = self._adapters[stream.name] = Adapter(stream, self.costs)
        return known

    def _follow(self, stream: Stream, arrangement: Arrangement) -> None:
        """Compute a stream's key sets in another way from its next cut on; no cut of it is under way."""
        self.log({"type": "plan", "stream": stream.name, "arrangement": arrangement.to_json()}, sync=False)
        stream.follow(arrangement)

    def _fail(self, stream: Stream, query: str, reason: str) -> None:
        self.log({"type": "failed", "query": query, "error": reason}, sync=True)
        stream.fail(query, reason)
        self.note(f"{query} failed and was taken out; the others go on: {reason}")

    def _end_orphans(self) -> None:
        """Take out the queries that read results of a query which gives no more."""
        for stream in self._streams.values():
            source = stream.source
            reason = source.orphaned() if isinstance(source, DerivedSource) else None
            if reason is not None:
                for query in stream.state.running():
                    self._fail(stream, query.name, reason)

    def _failures(self) -> list[str | None]:
        return [query.failure for stream in self._streams.values() for query in stream.state.queries.values()]

    def _runs_a_query(self) -> bool:
        """Tell whether a query runs or can be made to run: not all have failed."""
        failures = self._failures()
        return not failures or None in failures

    def _require_a_query(self) -> None:
        if not self._runs_a_query():
            raise QueryFailedError(
                f"Every query failed; the last reason: {self._failures()[-1]}",
                "Give the corrected queries new names, or start with a new checkpoint.",
            )

    # ---- results

    def _take_deliveries(self) -> None:
        delivered = self._delivery.collect()
        if delivered:
            self.step("delivered")
            items = [[d.parcel.query, d.parcel.results.cut] for d in delivered]
            self.log({"type": "delivered", "items": items}, sync=False)
            self.step("delivery logged")
            for item in delivered:
                self._metrics.delivered(item)
        for query, error in self._delivery.overfull():
            stream = next(s for s in self._streams.values() if query in s.state.queries)
            if stream.state.queries[query].failure is None:
                reason = (
                    f"its sink fails ({describe_failure(error)}) and too many results wait for it; they are kept in "
                    "the checkpoint and written as soon as the sink works, also after a restart. "
                    "Mend the sink and give the query a new name to go on with it"
                )
                self._fail(stream, query, reason)
                self._end_orphans()

    def _look_at_sinks(self) -> None:
        """Find out which sinks are slow, and say so once per time."""
        slow = set(self._delivery.slow())
        for query in slow - self._behind:
            self.note(f"The sink of {query} is slow; its stream is not read until it has taken what waits for it.")
        self._behind = slow

    def _held_up(self, stream: Stream) -> bool:
        """Tell whether to read no more rows of a stream until what is fed by it, at any level, has caught up."""
        if not self._behind.isdisjoint(stream.state.queries):
            return True
        waits = stream.waits_for_readers(self._settings.max_waiting_bytes)
        return waits or any(self._held_up(reader.child) for reader in stream.readers)

    def _waits_in_vain(self) -> bool:
        """Tell whether the results that are left wait for failing sinks only: after one try when stopping."""
        return all(
            self._delivery.error(parcel.query) is not None
            and (self._stopping or self._delivery.failures(parcel.query) >= TRIES_AT_THE_END)
            for parcel in self._delivery.waiting()
        )

    def _require_deliveries(self) -> None:
        waiting = {parcel.query: self._delivery.error(parcel.query) for parcel in self._delivery.waiting()}
        if waiting and not self._stopping:
            raise SinkError(
                "; ".join(f"The sink of {query!r} fails: {error}" for query, error in waiting.items()) + ".",
                "The results are kept in the checkpoint: mend the sink and run again, then they are written.",
            )

    # ---- checkpoint

    def log(self, record: Mapping[str, Any], sync: bool) -> None:
        """Append a record to the log."""
        self._checkpoint.append(record, sync)
        self._register.take(record)

    def _bound_checkpoint(self) -> None:
        limit = max(self._settings.snapshot_bytes, self._snapshot_size)
        if self._checkpoint.total_bytes > limit or self._retiered:
            self._snapshot()

    def _snapshot(self) -> None:
        """Replace the log and the partials by the state that they lead to."""
        self.step("before snapshot")
        self._retiered = False
        self._tiers.settle()
        logged = {name: cut for name, (cut, _) in self._jobs.items()}
        state, tables = snapshot_of(
            self._streams, self._register, logged, self._delivery.waiting(), self._scheduler.learned()
        )
        self._checkpoint.write_snapshot(state, tables)
        self._snapshot_size = sum(table.nbytes for table in tables.values())
        self._tiers.clean({name: cut.number for name, cut in logged.items()})
        self.step("after snapshot")

    # ---- end, progress, waiting

    def _finished(self, once: bool) -> bool:
        """Tell whether nothing is left to do but to wait for sinks that fail."""
        if self._jobs or not (self._stopping or not self._runs_a_query() or (once and self._exhausted())):
            return False
        return self._waits_in_vain()

    def _exhausted(self) -> bool:
        return all(stream.ended() for stream in self._streams.values())

    def note(self, text: str) -> None:
        """Tell people once."""
        logger.info("%s", text)
        self._notes.append(text)

    def _progress(self) -> Progress:
        notes, self._notes = tuple(self._notes), []
        progress = self._metrics.progress(
            self._streams, self._delivery, self._changer.sink_texts, self._clock.now(), self._stopping, notes
        )
        memory, mode = self._scheduler.memory.largest, self._scheduler.mode.active
        resting = self._scheduler.resting
        streams = tuple(replace(stream, rests_until=resting.get(stream.name)) for stream in progress.streams)
        return replace(progress, streams=streams, scheduling=self._scheduler.spent, memory=memory, memory_mode=mode)

    def _show(self) -> None:
        now = self._clock.now()
        if self._on_progress is not None and (now >= self._shown + PROGRESS_EVERY or self._notes):
            self._shown = now
            self._on_progress(self._progress())

    def _wait(self) -> None:
        poll = self._settings.poll
        if self._jobs and all(name in self._jobs for name in self._streams):
            poll = max(poll, PROGRESS_EVERY)
        runs = bool(self._jobs) and self._executor.in_real_time
        self._wakeups.wait(poll, busy=runs or self._delivery.busy)
