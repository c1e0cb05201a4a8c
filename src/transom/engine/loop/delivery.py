"""Hands results to the sinks: in order per sink of a query, with retries, without ever holding up the others."""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from transom.engine.execution.threads import Threads
from transom.model.time import MICROS_PER_SECOND, Clock, Micros
from transom.sinks.base import Sink, WindowResults
from transom.sinks.outlets import Outlets

logger = logging.getLogger(__name__)

FIRST_RETRY: Micros = MICROS_PER_SECOND // 5
LAST_RETRY: Micros = 30 * MICROS_PER_SECOND


@dataclass(frozen=True)
class ResultBatch:
    """Results on their way to the sinks of their query."""

    results: WindowResults
    windows: int
    ingested_at: Micros
    """When the row arrived whose commit closed the windows."""
    sinks: tuple[str, ...] | None = None
    """Keys of the sinks that have not taken it; None for all of the query."""

    @property
    def query(self) -> str:
        """Name of the query."""
        return self.results.query

    @cached_property
    def nbytes(self) -> int:
        """Bytes of the results."""
        return int(self.results.table.nbytes)


@dataclass(frozen=True)
class Delivered:
    """A batch that its sink has made visible."""

    batch: ResultBatch
    at: Micros
    """Wall time."""
    sink: str
    """Its key."""
    by_all: bool
    """Whether all sinks of the query have it now."""


@dataclass(eq=False)
class _Lane:
    """The batches of one query for one of its sinks."""

    query: str
    key: str
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
    _held: int | None = None
    """Bytes of the results that wait; None while nobody needs to know."""

    def take(self, batch: ResultBatch) -> None:
        """Let a batch wait."""
        self.waiting.append(batch)
        if self._held is not None:
            self._held += batch.nbytes

    def wrote(self) -> None:
        """Forget the batch that was written."""
        batch = self.waiting.popleft()
        if self._held is not None:
            self._held -= batch.nbytes
        self.backoff, self.retry_at, self.failures = FIRST_RETRY, None, 0

    def full(self, most: int) -> bool:
        """Tell whether more bytes wait than allowed; one batch may be of any size, unless the sink fails."""
        if self.error is None and len(self.waiting) < 2:
            self._held = None
            return False
        if self._held is None:
            self._held = sum(batch.nbytes for batch in self.waiting)
        return self._held > most


class Delivery:
    """Sinks of all queries. All methods but the workers run on the loop's thread.

    Args:
        sinks: Sinks of each query.
        clock: The time for back-off.
        wake: Called from a worker thread when a batch is done.
        workers: Number of sinks that write at once.
        max_waiting_bytes: Bound on the results that wait for one sink.
        release: Called with each sink that nobody needs any more, as its last query was removed.
        late: Called by a worker thread with each sink that wrote longer than the run waited.
    """

    def __init__(
        self,
        sinks: Mapping[str, Outlets],
        clock: Clock,
        wake: Callable[[], None],
        workers: int,
        max_waiting_bytes: int,
        release: Callable[[Sink], None] = lambda sink: None,
        late: Callable[[Sink], None] = lambda sink: None,
    ) -> None:
        self._release, self._late = release, late
        self._lanes: dict[str, list[_Lane]] = {}
        """Those of each query."""
        # Sinks are looked at with each batch that one of a thousand has taken, so what is looked for is kept apart.
        self._waiting: dict[_Lane, None] = {}
        """Those for which a batch waits or is being written."""
        self._full: dict[_Lane, None] = {}
        """Those for which more waits than allowed."""
        self._failing: dict[_Lane, None] = {}
        """Those that failed the last time."""
        self._leaving: dict[_Lane, None] = {}
        """Those whose query was removed."""
        for name, outlets in sinks.items():
            self.add(name, outlets)
        self._clock = clock
        self._wake = wake
        self._threads = Threads(workers, "transom-sink")
        self._done: queue.SimpleQueue[tuple[_Lane, ResultBatch, BaseException | None, Micros]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._writing: list[Sink] = []
        self._left: list[Sink] = []
        """Those that wrote when nobody waited for them any longer."""
        self._ended = False
        self._max_waiting_bytes = max_waiting_bytes

    @property
    def _all(self) -> Iterator[_Lane]:
        return (lane for lanes in self._lanes.values() for lane in lanes)

    def add(self, query: str, outlets: Outlets) -> None:
        """Take the sinks of a query that has none, or whose former ones have taken everything."""
        self._lanes[query] = [_Lane(query, key, sink) for key, sink in outlets.sinks.items()]

    def remove(self, query: str) -> None:
        """Let go of each of a query's sinks when it has taken what waits for it, or fails."""
        for lane in self._lanes[query]:
            lane.leaving = True
            self._leaving[lane] = None
        self._let_go()

    def writes_for(self, query: str) -> bool:
        """Tell whether results of a query that was removed are still being written."""
        return any(lane.leaving for lane in self._lanes.get(query, ()))

    def _let_go(self) -> None:
        for lane in list(self._leaving):
            if not lane.busy and (lane.error is not None or not lane.waiting):
                lanes = self._lanes[lane.query]
                lanes.remove(lane)
                for some in (self._waiting, self._full, self._failing, self._leaving):
                    some.pop(lane, None)
                if all(other.sink is not lane.sink for other in self._all):
                    self._release(lane.sink)
                if not lanes:
                    del self._lanes[lane.query]

    def _changed(self, lane: _Lane) -> None:
        """Note what is so of a lane after its batches or its error changed."""
        for some, belongs in (
            (self._waiting, bool(lane.waiting)),
            (self._full, lane.full(self._max_waiting_bytes)),
            (self._failing, lane.error is not None),
        ):
            if belongs:
                some[lane] = None
            else:
                some.pop(lane, None)

    def send(self, batch: ResultBatch) -> None:
        """Take a batch; each sink of its query gets it after the earlier ones."""
        for lane in self._lanes[batch.query]:
            if batch.sinks is None or lane.key in batch.sinks:
                lane.take(batch)
                self._changed(lane)
                self._start(lane)

    def _start(self, lane: _Lane) -> None:
        if lane.busy or lane not in self._waiting:
            return
        if lane.retry_at is not None and self._clock.monotonic() < lane.retry_at:
            return
        lane.busy = True
        self._threads.submit(self._write, lane, lane.waiting[0])

    def _write(self, lane: _Lane, batch: ResultBatch) -> None:
        with self._lock:
            if self._ended:
                return
            self._writing.append(lane.sink)
        error: BaseException | None = None
        try:
            lane.sink.write(batch.results)
        except BaseException as caught:
            error = caught
        with self._lock:
            self._writing.remove(lane.sink)
            still = any(each is lane.sink for each in self._writing)
            is_last = not still and any(each is lane.sink for each in self._left)
        if is_last:
            self._late(lane.sink)
        self._done.put((lane, batch, error, self._clock.now()))
        self._wake()

    def collect(self) -> list[Delivered]:
        """Return what was delivered since the last call, and start what may be tried again."""
        delivered, done = [], []
        while not self._done.empty():
            lane, batch, error, at = self._done.get()
            done.append(lane)
            lane.busy = False
            lane.error = error
            if error is None:
                lane.wrote()
                delivered.append(Delivered(batch, at, lane.key, not self._waits(batch)))
            else:
                logger.warning("The sink %s of %s failed and is tried again: %r", lane.key, lane.query, error)
                lane.failures += 1
                lane.retry_at = self._clock.monotonic() + lane.backoff
                lane.backoff = min(2 * lane.backoff, LAST_RETRY)
            self._changed(lane)
        self._let_go()
        for lane in (*done, *self._failing):
            self._start(lane)
        return delivered

    def _waits(self, batch: ResultBatch) -> bool:
        """Tell whether a batch waits for a sink of its query: each takes them in order."""
        cut = batch.results.cut
        return any(lane.waiting and lane.waiting[0].results.cut <= cut for lane in self._lanes[batch.query])

    def waiting(self, query: str | None = None) -> list[ResultBatch]:
        """Return the batches that are not delivered, of one query or of all, with the sinks that they wait for."""
        found: dict[tuple[str, int], ResultBatch] = {}
        for lane in self._all if query is None else self._lanes.get(query, ()):
            for batch in lane.waiting:
                at = (lane.query, batch.results.cut)
                before = found[at].sinks or () if at in found else ()
                found[at] = replace(batch, sinks=(*before, lane.key))
        return [batch for _, batch in sorted(found.items(), key=lambda item: item[0])]

    def behind(self, query: str) -> dict[str, int]:
        """Return how many batches wait for each sink of a query, by what it is."""
        return {lane.sink.describe(): len(lane.waiting) for lane in self._lanes.get(query, ())}

    def failing(self) -> dict[str, BaseException]:
        """Return the sinks that do not take the results that wait for them at the moment, in words, with the reason."""
        several = {name for name, lanes in self._lanes.items() if len(lanes) > 1}
        return {
            repr(lane.query) + (f" ({lane.sink.describe()})" if lane.query in several else ""): lane.error
            for lane in self._all
            if lane.waiting and lane.error is not None
        }

    def stuck(self, tries: int) -> bool:
        """Tell whether all that waits, if anything, waits for sinks that have failed so often in a row."""
        return all(lane.error is not None and lane.failures >= tries for lane in self._waiting)

    def failures(self, query: str) -> int:
        """Return how often in a row the sink of a query has failed, that of its sinks which failed most."""
        return max(lane.failures for lane in self._lanes[query])

    @property
    def busy(self) -> bool:
        """Whether a sink is writing."""
        return any(lane.busy for lane in self._waiting)

    def overfull(self) -> list[tuple[str, Sink, BaseException]]:
        """Return the queries of which a failing sink has more waiting results than allowed, with its error."""
        return [
            (lane.query, lane.sink, lane.error) for lane in self._full if lane.error is not None and not lane.leaving
        ]

    def slow(self) -> dict[str, Sink]:
        """Return the queries of which a sink works, but so slowly that more results wait than allowed."""
        return {lane.query: lane.sink for lane in self._full if lane.error is None and not lane.leaving}

    def writing(self) -> list[str]:
        """Return the queries of which a sink is writing."""
        return list(dict.fromkeys(lane.query for lane in self._waiting if lane.busy))

    def close(self, longest: float) -> list[Sink]:
        """Begin no more writes, and wait for those under way; return the sinks that write nevertheless.

        Each of those is late when it has written.

        Args:
            longest: Seconds to wait.
        """
        self._threads.close(longest)
        with self._lock:
            self._ended, self._left = True, list(self._writing)
        return list(self._left)
