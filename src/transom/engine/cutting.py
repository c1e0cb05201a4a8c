"""The life of a cut: it is logged, its job runs while its windows are closed, and its partials are committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future

from transom.engine.adapting import Adapters
from transom.engine.cuts import CutOutcome, LoggedCut
from transom.engine.delivery import Delivery, Parcel
from transom.engine.derived import DerivedSource
from transom.engine.executors import Executor
from transom.engine.journal import Journal
from transom.engine.quarantine import Quarantine
from transom.engine.scheduler import Scheduler
from transom.engine.stream import Stream
from transom.model.time import Clock, Micros


class Cuts:
    """The cuts under way, at most one of each stream; used on the loop's thread.

    Args:
        streams: The streams that run.
        journal: The log.
        executor: Runs the jobs.
        scheduler: Learns from them.
        adapters: Measure them.
        delivery: Takes the results of windows.
        quarantine: Takes out queries.
        clock: The time.
        wake: Called from any thread when a job is done.
    """

    def __init__(
        self,
        streams: Mapping[str, Stream],
        journal: Journal,
        executor: Executor,
        scheduler: Scheduler,
        adapters: Adapters,
        delivery: Delivery,
        quarantine: Quarantine,
        clock: Clock,
        wake: Callable[[], None],
    ) -> None:
        self._streams = streams
        self._journal = journal
        self._executor = executor
        self._scheduler = scheduler
        self._adapters = adapters
        self._delivery = delivery
        self._quarantine = quarantine
        self._clock = clock
        self._wake = wake
        self._jobs: dict[str, tuple[LoggedCut, Future[CutOutcome]]] = {}
        self._started: dict[str, Micros] = {}
        self._ingested: dict[str, Micros] = {}
        """When the newest row arrived that each stream has committed."""

    @property
    def logged(self) -> dict[str, LoggedCut]:
        """The cuts that are logged and not committed, by stream."""
        return {name: cut for name, (cut, _) in self._jobs.items()}

    @property
    def jobs(self) -> int:
        """Number of jobs that run; a cut that only closes windows has none."""
        return sum(not cut.empty for cut, _ in self._jobs.values())

    def started_at(self, stream: str) -> Micros | None:
        """Return the monotonic time at which the last job of a stream started; None before the first."""
        return self._started.get(stream)

    def start(self, stream: Stream, cut: LoggedCut) -> None:
        """Log what decides the cut, start its job, and close the windows that its watermark completes."""
        due = stream.has_due(cut.watermark, cut.at)
        self._journal.log({"type": "cut", "stream": stream.name, "cut": cut.to_json()}, sync=due)
        self._journal.step("cut logged")
        self.submit(stream, cut)
        self._close_windows(stream, cut)
        self._journal.step("windows closed")

    def submit(self, stream: Stream, cut: LoggedCut) -> None:
        """Start the job of a logged cut."""
        now = self._clock.monotonic()
        if not cut.empty:
            self._started[stream.name] = now
        self._adapters.of(stream).started(now)
        self._scheduler.started(stream, cut, now)
        if cut.empty:
            future: Future[CutOutcome] = Future()
            future.set_result(CutOutcome(cut))
        else:
            future = self._executor.submit(stream, cut, stream.compiled)
        self._jobs[stream.name] = (cut, future)
        future.add_done_callback(lambda _: self._wake())

    def _close_windows(self, stream: Stream, cut: LoggedCut) -> None:
        """Give the results of the windows to the sinks and the readers of the stream."""
        ingested = self._ingested.get(stream.name, cut.at)
        if isinstance(stream.source, DerivedSource):
            ingested = stream.source.ingested_at(cut.start, cut.start) or cut.at
        begun = self._clock.monotonic()
        closings = stream.close(cut, ingested)
        took = self._clock.monotonic() - begun
        self._adapters.of(stream).merged(took)
        self._scheduler.closed(stream, closings, took, begun)
        for closing in closings:
            if closing.error is not None:
                self._quarantine.fail(stream, closing.query, str(closing.error))
            elif closing.results is not None:
                self._delivery.send(Parcel(closing.results, closing.windows, ingested))
        if stream.readers:
            self._quarantine.end_orphans()
            self._wake()

    def commit(self) -> Iterator[tuple[Stream, CutOutcome]]:
        """Commit the cuts whose jobs are done, and yield them one by one.

        Raises:
            SourceError: A source cannot be read.
            CheckpointError: Partials or the log cannot be written.
        """
        for name, (_, future) in list(self._jobs.items()):
            if future.done():
                outcome = future.result()
                self._commit(self._streams[name], outcome)
                del self._jobs[name]
                yield self._streams[name], outcome

    def _commit(self, stream: Stream, outcome: CutOutcome) -> None:
        """Make the partials durable, then the commit, then use them."""
        self._journal.step("job done")
        cut = outcome.cut
        self._adapters.of(stream).finished(self._clock.monotonic())
        written = None
        if any(table.num_rows for table in outcome.tables):
            tables = {str(i): table for i, table in enumerate(outcome.tables)}
            written = self._journal.write_tables(f"{stream.name}-{cut.number:012d}", tables)
            self._journal.step("partials written")
        self._journal.log(outcome.record(stream.name, written), sync=not cut.empty)
        self._journal.step("committed")
        begun = self._clock.monotonic()
        failed = stream.commit(outcome, outcome.tables)
        self._adapters.of(stream).merged(self._clock.monotonic() - begun)
        for query, reason in failed.items():
            self._quarantine.fail(stream, query, reason)
        for query, reason in outcome.failures.items():
            self._quarantine.tell(query, reason)
        if outcome.failures or failed:
            self._quarantine.end_orphans()
        for unit, reason in outcome.skipped.items():
            self._journal.note(f"{unit} cannot be read and went to the dead letters: {reason}")
        if not cut.empty:
            self._ingested[stream.name] = stream.source.ingested_at(cut.start, cut.end)
            self._scheduler.finished(stream, outcome, self._clock.monotonic())
            stream.source.release(cut.end)
