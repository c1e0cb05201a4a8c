"""Hands results to the sinks: in order per query, with retries, without ever holding up the other queries."""

from __future__ import annotations

import logging
import queue
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from transom.engine.execution.threads import Threads
from transom.model.time import MICROS_PER_SECOND, Clock, Micros
from transom.sinks.base import Sink, WindowResults

logger = logging.getLogger(__name__)

FIRST_RETRY: Micros = MICROS_PER_SECOND // 5
LAST_RETRY: Micros = 30 * MICROS_PER_SECOND


@dataclass(frozen=True)
class ResultBatch:
    """Results on their way to a sink."""

    results: WindowResults
    windows: int
    ingested_at: Micros
    """When the row arrived whose commit closed the windows."""

    @property
    def query(self) -> str:
        """Name of the query."""
        return self.results.query


@dataclass(frozen=True)
class Delivered:
    """A batch that its sink has made visible."""

    batch: ResultBatch
    at: Micros
    """Wall time."""


@dataclass
class _Lane:
    """The batches of one query."""

    sink: Sink
    waiting: deque[ResultBatch] = field(default_factory=deque)
    busy: bool = False
    retry_at: Micros | None = None
    """Monotonic time before which a sink that failed is not tried again."""
    backoff: Micros = FIRST_RETRY
    error: BaseException | None = None
    """Whatever it raised, also `SystemExit`: that ends nothing but this try."""
    failures: int = 0
    """In a row."""
    leaving: bool = False
    """The query was removed: what waits is still written, once."""

    def held_bytes(self) -> int:
        """Return the size of the results that are not written."""
        return sum(batch.results.table.nbytes for batch in self.waiting)


class Delivery:
    """Sinks of all queries. All methods but the workers run on the loop's thread.

    Args:
        sinks: Sink of each query.
        clock: The time for back-off.
        wake: Called from a worker thread when a batch is done.
        workers: Number of sinks that write at once.
        max_waiting_bytes: Bound on the results that wait for one sink.
        release: Called with each sink that nobody needs any more, as its last query was removed.
    """

    def __init__(
        self,
        sinks: Mapping[str, Sink],
        clock: Clock,
        wake: Callable[[], None],
        workers: int,
        max_waiting_bytes: int,
        release: Callable[[Sink], None] = lambda sink: None,
    ) -> None:
        self._release = release
        self._lanes = {name: _Lane(sink) for name, sink in sinks.items()}
        self._clock = clock
        self._wake = wake
        self._threads = Threads(workers, "transom-sink")
        self._done: queue.SimpleQueue[tuple[str, ResultBatch, BaseException | None, Micros]] = queue.SimpleQueue()
        self._writing: list[Sink] = []
        self._max_waiting_bytes = max_waiting_bytes

    def add(self, query: str, sink: Sink) -> None:
        """Take a sink for a query that has none, or whose former one has taken everything."""
        self._lanes[query] = _Lane(sink)

    def remove(self, query: str) -> None:
        """Let go of a query's sink when it has taken what waits for it, or fails."""
        self._lanes[query].leaving = True
        self._let_go()

    def writes_for(self, query: str) -> bool:
        """Tell whether results of a query that was removed are still being written."""
        return query in self._lanes and self._lanes[query].leaving

    def _let_go(self) -> None:
        for name, lane in list(self._lanes.items()):
            if lane.leaving and not lane.busy and (lane.error is not None or not lane.waiting):
                del self._lanes[name]
                if all(other.sink is not lane.sink for other in self._lanes.values()):
                    self._release(lane.sink)

    def send(self, batch: ResultBatch) -> None:
        """Take a batch; it is written after the earlier ones of its query."""
        self._lanes[batch.query].waiting.append(batch)
        self._start(self._lanes[batch.query])

    def _start(self, lane: _Lane) -> None:
        if lane.busy or not lane.waiting:
            return
        if lane.retry_at is not None and self._clock.monotonic() < lane.retry_at:
            return
        lane.busy = True
        self._threads.submit(self._write, lane.sink, lane.waiting[0])

    def _write(self, sink: Sink, batch: ResultBatch) -> None:
        error: BaseException | None = None
        self._writing.append(sink)
        try:
            sink.write(batch.results)
        except BaseException as caught:
            error = caught
        self._writing.remove(sink)
        self._done.put((batch.query, batch, error, self._clock.now()))
        self._wake()

    def collect(self) -> list[Delivered]:
        """Return what was delivered since the last call, and start what may be tried again."""
        delivered = []
        while not self._done.empty():
            name, batch, error, at = self._done.get()
            lane = self._lanes[name]
            lane.busy = False
            lane.error = error
            if error is None:
                lane.waiting.popleft()
                lane.backoff, lane.retry_at, lane.failures = FIRST_RETRY, None, 0
                delivered.append(Delivered(batch, at))
            else:
                logger.warning("The sink of %s failed and is tried again: %r", name, error)
                lane.failures += 1
                lane.retry_at = self._clock.monotonic() + lane.backoff
                lane.backoff = min(2 * lane.backoff, LAST_RETRY)
        self._let_go()
        for lane in self._lanes.values():
            self._start(lane)
        return delivered

    def waiting(self, query: str | None = None) -> list[ResultBatch]:
        """Return the batches that are not delivered, of one query or of all."""
        lanes = self._lanes.values() if query is None else [self._lanes[query]] if query in self._lanes else []
        return [batch for lane in lanes for batch in lane.waiting]

    def error(self, query: str) -> BaseException | None:
        """Return why the sink of a query does not take results at the moment."""
        return self._lanes[query].error

    def failures(self, query: str) -> int:
        """Return how often in a row the sink of a query has failed."""
        return self._lanes[query].failures

    @property
    def busy(self) -> bool:
        """Whether a sink is writing."""
        return any(lane.busy for lane in self._lanes.values())

    def overfull(self) -> list[tuple[str, BaseException]]:
        """Return the queries whose failing sink has more waiting results than allowed, with the sink's error."""
        return [
            (name, lane.error)
            for name, lane in self._lanes.items()
            if lane.error is not None and not lane.leaving and lane.held_bytes() > self._max_waiting_bytes
        ]

    def slow(self) -> list[str]:
        """Return the queries whose sink works, but so slowly that more results wait than allowed."""
        return [
            name
            for name, lane in self._lanes.items()
            if lane.error is None
            and not lane.leaving
            and len(lane.waiting) > 1
            and lane.held_bytes() > self._max_waiting_bytes
        ]

    def writing(self) -> list[str]:
        """Return the queries whose sink is writing."""
        return [name for name, lane in self._lanes.items() if lane.busy]

    def close(self, longest: float) -> list[Sink]:
        """Begin no more writes, and wait for those under way; return the sinks that write nevertheless.

        Args:
            longest: Seconds to wait.
        """
        self._threads.close(longest)
        return list(self._writing)
