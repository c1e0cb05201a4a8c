"""The life of a cut: it is logged, its job runs while its windows are closed, and its partials are committed.

Windows that are on the driver are closed at once. What is in files is merged by a job of its own, so that the windows
of other streams do not wait for it; until then the stream rests: its cut is not committed, and no other one begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from transom.engine.cluster.merges import Merge, Merged
from transom.engine.cluster.store import TieredStore
from transom.engine.control.adapting import Adapters
from transom.engine.control.phases import PhaseRecorder
from transom.engine.control.scheduler import Scheduler
from transom.engine.execution.runners import CutRunner
from transom.engine.loop.delivery import Delivery, ResultBatch
from transom.engine.loop.journal import Journal
from transom.engine.loop.logrecords import Begun
from transom.engine.loop.quarantine import Quarantine
from transom.engine.state.closing import Closure
from transom.engine.streams.cuts import CutOutcome, LoggedCut
from transom.engine.streams.stream import RunningStream
from transom.errors import QueryFailedError, SourceAwayError, SourceLostError
from transom.model.time import MICROS_PER_SECOND, Clock, Micros

FIRST_PAUSE: Micros = MICROS_PER_SECOND // 2
LONGEST_PAUSE: Micros = 10 * MICROS_PER_SECOND
"""Between tries to run a job whose source cannot be reached."""


@dataclass
class _UnderWay:
    """A cut that is logged and not committed."""

    cut: LoggedCut
    job: Future[CutOutcome]
    group: str | None = None
    """The name by which Spark is asked about its tasks; None if nobody asks."""
    ended_at: Micros | None = None
    """Monotonic time at which the job ended."""
    done_at: Micros | None = None
    """Monotonic time at which the job was seen to be done."""
    closing: _Closing | None = None
    """Its windows, until they are closed."""
    again_at: Micros | None = None
    """Monotonic time at which its job runs again, as the source could not be reached; None if that is no matter."""
    failures: int = 0
    """Tries in a row that found it away."""


@dataclass(frozen=True)
class _Closing:
    """Windows that wait until what is in files is merged."""

    closure: Closure
    merge: Future[Sequence[Merged]]
    begun: Micros
    """Monotonic time."""


@dataclass(frozen=True)
class _Tidying:
    """Stores of a stream whose files are made fewer."""

    stores: Sequence[tuple[TieredStore, Merge]]
    merge: Future[Sequence[Merged]]


class Cuts:
    """The cuts under way, at most one of each stream; used on the loop's thread.

    Args:
        streams: The streams that run.
        journal: The log.
        runner: Runs the jobs.
        scheduler: Learns from them.
        adapters: Measure them.
        phases: Takes the stamps of cuts.
        delivery: Takes the results of windows.
        quarantine: Takes out queries.
        clock: The time.
        wake: Called from any thread when a job is done.
    """

    def __init__(
        self,
        streams: Mapping[str, RunningStream],
        journal: Journal,
        runner: CutRunner,
        scheduler: Scheduler,
        adapters: Adapters,
        phases: PhaseRecorder,
        delivery: Delivery,
        quarantine: Quarantine,
        clock: Clock,
        wake: Callable[[], None],
    ) -> None:
        self._streams = streams
        self._journal = journal
        self._runner = runner
        self._scheduler = scheduler
        self._adapters = adapters
        self._phases = phases
        self._delivery = delivery
        self._quarantine = quarantine
        self._clock = clock
        self._wake = wake
        self._jobs: dict[str, _UnderWay] = {}
        self._tidying: dict[str, _Tidying] = {}
        self._halted: dict[str, LoggedCut] = {}
        """Cuts whose jobs cannot be done in this run."""
        self._started: dict[str, Micros] = {}
        self._took: dict[str, Micros] = {}
        self._ingested: dict[str, Micros] = {}
        """When the newest row arrived that each stream has committed."""

    @property
    def logged(self) -> dict[str, LoggedCut]:
        """The cuts that are logged and not committed, by stream."""
        return {**self._halted, **{name: each.cut for name, each in self._jobs.items()}}

    @property
    def busy(self) -> frozenset[str]:
        """Streams of which no cut can begin, and to which no query can come."""
        return frozenset({*self._jobs, *self._tidying})

    @property
    def merging(self) -> frozenset[str]:
        """Streams whose files are merged: their states are between two cuts, and go into no snapshot."""
        return frozenset({*self._tidying, *(name for name, each in self._jobs.items() if each.closing is not None)})

    @property
    def jobs(self) -> int:
        """Number of jobs that run, those that merge files too; a cut that only closes windows has none of its own."""
        reading = sum(not each.cut.empty and not each.job.done() for each in self._jobs.values())
        return reading + len(self.merging)

    @property
    def only_wait(self) -> bool:
        """Whether nothing is under way but cuts that wait for sources that cannot be reached."""
        return not self._tidying and all(each.again_at and not each.closing for each in self._jobs.values())

    def started_at(self, stream: str) -> Micros | None:
        """Return the monotonic time at which the last job of a stream started; None before the first."""
        return self._started.get(stream)

    def took(self, stream: str) -> Micros:
        """Return how long the last job of a stream took; 0 before the first."""
        return self._took.get(stream, 0)

    def start(self, stream: RunningStream, cut: LoggedCut) -> None:
        """Log what decides the cut, start its job, and close, or begin to, the windows that its watermark completes."""
        due = stream.has_due(cut.watermark, cut.at)
        now = self._clock.monotonic()
        since = self._scheduler.of(stream, now).backlog.since
        self._phases.started(stream.name, cut, since, now, stream.options.tuning)
        self._journal.log(Begun(stream.name, cut).to_json(), sync=due)
        self._phases.logged(stream.name, cut, due, self._clock.monotonic())
        self._journal.step("cut logged")
        self.submit(stream, cut)
        self._begin_close(stream, self._jobs[stream.name])

    def submit(self, stream: RunningStream, cut: LoggedCut) -> None:
        """Start the job of a logged cut."""
        now = self._clock.monotonic()
        if not cut.empty:
            self._started[stream.name] = now
        self._adapters.of(stream).started(now)
        self._scheduler.started(stream, cut, now)
        job = stream.job(cut, watched=not cut.empty and self._phases.watches(stream.name, now))
        if cut.empty:
            future: Future[CutOutcome] = Future()
            future.set_result(CutOutcome(cut))
        else:
            future = self._runner.submit(stream, job)
        self._jobs[stream.name] = _UnderWay(cut, future, job.group)
        self._watch(self._jobs[stream.name])

    def _watch(self, under_way: _UnderWay) -> None:
        """Note when the job of a cut ends, and wake the loop then."""

        def ended(_: Future[CutOutcome]) -> None:
            under_way.ended_at = self._clock.monotonic()
            self._wake()

        under_way.job.add_done_callback(ended)

    def _begin_close(self, stream: RunningStream, under_way: _UnderWay) -> None:
        begun = self._clock.monotonic()
        closure = stream.begin_close(under_way.cut)
        if closure is None or not closure.merges:
            self._finish_close(stream, under_way.cut, closure, begun, ())
            return
        self._quarantine.resting.add(stream.name)
        merge = self._runner.merge(stream, lambda: stream.merge(closure))
        under_way.closing = _Closing(closure, merge, begun)
        merge.add_done_callback(lambda _: self._wake())

    def _finish_close(
        self, stream: RunningStream, cut: LoggedCut, closure: Closure | None, begun: Micros, done: Sequence[Merged]
    ) -> None:
        """Give the results of the windows to the sinks and the readers of the stream."""
        ingested = stream.feed.decided_at(cut.start, self._ingested.get(stream.name, cut.at)) or cut.at
        closings = stream.finish_close(cut, closure, ingested, done)
        took = self._clock.monotonic() - begun
        self._adapters.of(stream).merged(took)
        self._scheduler.closed(stream, closings, took, begun)
        results = {closing.query: closing.results.table.num_rows for closing in closings if closing.results is not None}
        windows = sum(closing.windows for closing in closings if closing.results is not None)
        self._phases.closed(stream.name, cut, results.keys(), sum(results.values()), took, self._clock.now(), windows)
        for closing in closings:
            if closing.error is not None:
                self._quarantine.fail(stream, closing.query, str(closing.error))
            elif closing.results is not None:
                self._delivery.send(ResultBatch(closing.results, closing.windows, ingested))
        if stream.readers:
            self._quarantine.end_orphans()
            self._wake()
        self._journal.step("windows closed")

    def commit(self) -> Iterator[tuple[RunningStream, CutOutcome]]:
        """Close the windows that are merged, commit the cuts whose jobs are done after that, and yield them one by one.

        Raises:
            SourceError: A source cannot be read.
            CheckpointError: Partials or the log cannot be written, or files not read.
        """
        for name, under_way in list(self._jobs.items()):
            stream, closing = self._streams[name], under_way.closing
            if under_way.job.done() and under_way.done_at is None:
                under_way.done_at = self._clock.monotonic()
            if closing is not None and closing.merge.done():
                under_way.closing = None
                self._quarantine.resting.discard(name)
                self._finish_close(stream, under_way.cut, closing.closure, closing.begun, closing.merge.result())
                self._quarantine.fail_postponed(stream)
            if under_way.again_at is not None:
                self._run_again(stream, under_way)
            elif under_way.closing is None and under_way.done_at is not None:
                try:
                    outcome = under_way.job.result()
                except SourceAwayError as error:
                    self._wait_for_source(stream, under_way, error)
                    continue
                except (QueryFailedError, SourceLostError) as error:
                    self._halted[name] = under_way.cut
                    del self._jobs[name]
                    self._quarantine.halt(stream, error)
                    continue
                if not outcome.cut.empty:
                    self._took[name] = (under_way.ended_at or under_way.done_at) - self._started[name]
                self._commit(stream, outcome, under_way.done_at)
                self._measure(stream, outcome, under_way)
                del self._jobs[name]
                yield stream, outcome

    def _measure(self, stream: RunningStream, outcome: CutOutcome, under_way: _UnderWay) -> None:
        """Take the stamps of a cut with rows that is committed."""
        if outcome.cut.empty:
            return
        now, wall, watermark = self._clock.monotonic(), self._clock.now(), stream.foreseen().value
        self._phases.committed(
            stream.name,
            outcome,
            newest=self._ingested[stream.name] - (wall - now),
            ended=now if under_way.ended_at is None else under_way.ended_at,
            completes=watermark if stream.has_due(watermark, wall) else None,
            asked=None if under_way.group is None else self._runner.times(stream, under_way.group),
            now=now,
            ahead=wall - now,
        )

    def _wait_for_source(self, stream: RunningStream, under_way: _UnderWay, error: SourceAwayError) -> None:
        """Let a cut wait whose source cannot be reached; it is logged, so its rows stay the same."""
        if not under_way.failures:
            self._journal.note(f"{stream.name} waits: {error}")
        under_way.failures += 1
        pause = min(LONGEST_PAUSE, FIRST_PAUSE << min(under_way.failures - 1, 10))
        under_way.again_at = self._clock.monotonic() + pause

    def _run_again(self, stream: RunningStream, under_way: _UnderWay) -> None:
        if self._clock.monotonic() >= (under_way.again_at or 0):
            under_way.again_at = under_way.done_at = None
            job = stream.job(under_way.cut, watched=under_way.group is not None)
            under_way.job, under_way.group = self._runner.submit(stream, job), job.group
            self._watch(under_way)

    # ---- fewer files

    def tidy(self, stream: RunningStream, stores: Sequence[tuple[TieredStore, Merge]]) -> None:
        """Begin to make fewer files of those of some stores of a stream that has no cut under way."""
        merges = [merge for _, merge in stores]
        self._quarantine.resting.add(stream.name)
        future = self._runner.merge(stream, lambda: stream.state.executors.run(merges))
        self._tidying[stream.name] = _Tidying(stores, future)
        future.add_done_callback(lambda _: self._wake())

    def tidied(self) -> bool:
        """Use the files that were made meanwhile; return whether there are any, so that a snapshot is due.

        Raises:
            CheckpointError: Files cannot be read or written.
        """
        changed = False
        for name, tidying in list(self._tidying.items()):
            if not tidying.merge.done():
                continue
            for (store, merge), done in zip(tidying.stores, tidying.merge.result(), strict=True):
                if isinstance(done, QueryFailedError):
                    self._journal.note(f"Files of {name} stay as many as they are: {done}")
                else:
                    store.finish_compaction(merge, done)
                    changed = True
            del self._tidying[name]
            self._quarantine.resting.discard(name)
            self._quarantine.fail_postponed(self._streams[name])
        return changed

    def _commit(self, stream: RunningStream, outcome: CutOutcome, done_at: Micros) -> None:
        """Make the partials durable, then the commit, then use them."""
        self._journal.step("job done")
        cut = outcome.cut
        self._adapters.of(stream).finished(done_at)
        written = self._written(f"{stream.name}-{cut.number:012d}", outcome.tables)
        early = self._written(f"{stream.name}-{cut.number:012d}-early", outcome.early.tables if outcome.early else ())
        self._journal.log(outcome.record(stream.name, written, early), sync=not cut.empty)
        self._journal.step("committed")
        begun = self._clock.monotonic()
        arrived = None if cut.empty else stream.source.ingested_at(cut.start, cut.end)
        failed = stream.commit(outcome, outcome.tables, arrived)
        self._adapters.of(stream).merged(self._clock.monotonic() - begun)
        for query, reason in failed.items():
            self._quarantine.fail(stream, query, reason)
        for query, reason in outcome.failures.items():
            self._quarantine.tell(query, reason)
        if outcome.failures or failed:
            self._quarantine.end_orphans()
        if outcome.early is not None and outcome.early.failure is not None:
            self._journal.note(
                f"{stream.name} gives no early results until the next ones that it can read: {outcome.early.failure}"
            )
        for unit, reason in outcome.skipped.items():
            self._journal.note(f"{unit} cannot be read and went to the dead letters: {reason}")
        if arrived is not None:
            self._ingested[stream.name] = arrived
            self._scheduler.finished(stream, outcome, done_at)
            stream.source.release(cut.end)

    def _written(self, name: str, partials: Sequence[pa.Table]) -> dict[str, Any] | None:
        """Make partials durable; return what a record must say to find them again, None where there are none."""
        if not any(table.num_rows for table in partials):
            return None
        written = self._journal.write_tables(name, {str(i): table for i, table in enumerate(partials)})
        self._journal.step("partials written")
        return written
