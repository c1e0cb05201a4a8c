"""The sinks as the loop sees them: what they took is logged, slow ones hold back streams, failing ones end queries."""

from __future__ import annotations

from collections.abc import Mapping

from transom.engine.control.phases import PhaseRecorder
from transom.engine.loop.delivery import Delivery
from transom.engine.loop.journal import Journal
from transom.engine.loop.logrecords import Delivered
from transom.engine.loop.metrics import Metrics
from transom.engine.loop.quarantine import Quarantine
from transom.engine.streams.stream import RunningStream
from transom.errors import SinkError
from transom.failures import classify

TRIES_AT_THE_END = 8
"""At the end of the input a sink that failed so often in a row (for about half a minute) is not waited for."""


class Backpressure:
    """The sinks as the loop sees them; used on its thread.

    Args:
        streams: The streams that run.
        delivery: Writes to the sinks.
        journal: Where deliveries are logged.
        metrics: Counts them.
        phases: Takes the time until they are visible.
        quarantine: Takes out queries.
        max_waiting_bytes: Bound on the results that wait for one sink or stream.
    """

    def __init__(
        self,
        streams: Mapping[str, RunningStream],
        delivery: Delivery,
        journal: Journal,
        metrics: Metrics,
        phases: PhaseRecorder,
        quarantine: Quarantine,
        max_waiting_bytes: int,
    ) -> None:
        self._streams = streams
        self._delivery = delivery
        self._journal = journal
        self._metrics = metrics
        self._phases = phases
        self._quarantine = quarantine
        self._max_waiting_bytes = max_waiting_bytes
        self._slow: set[str] = set()
        """Queries whose sinks are slow, at the last look."""

    def look(self) -> None:
        """Log what was delivered, and find out which sinks fail or are slow."""
        self._take_deliveries()
        self._end_overfull()
        slow = self._delivery.slow()
        for query, sink in slow.items():
            if query not in self._slow:
                self._journal.note(
                    f"The sink of {query} ({sink.describe()}) is slow; its stream is not read until it has taken what "
                    "waits for it."
                )
        self._slow = set(slow)

    def _take_deliveries(self) -> None:
        delivered = self._delivery.collect()
        if not delivered:
            return
        self._journal.step("delivered")
        items = tuple((item.batch.query, item.batch.results.cut, item.sink) for item in delivered)
        self._journal.log(Delivered(items).to_json(), sync=False)
        self._journal.step("delivery logged")
        for item in delivered:
            if item.by_all:
                self._metrics.delivered(item)
                self._phases.delivered(item.batch.query, item.batch.results.cut, item.at)

    def _end_overfull(self) -> None:
        for query, sink, error in self._delivery.overfull():
            stream = next((s for s in self._streams.values() if query in s.state.queries), None)
            if stream is not None and stream.state.queries[query].failure is None:
                reason = (
                    f"its sink ({sink.describe()}) fails ({classify(error).reason}) and too many results wait for it; "
                    "they are kept in the checkpoint and written as soon as the sink works, also after a restart. "
                    "Repair the sink and give the query a new name to go on with it"
                )
                self._quarantine.fail(stream, query, reason)
                self._quarantine.end_orphans()

    def hold_up(self, stream: RunningStream) -> bool:
        """Tell whether to read no more rows of a stream until what is fed by it, at any level, has caught up."""
        if not self._slow.isdisjoint(stream.state.queries) or stream.waits_for_readers(self._max_waiting_bytes):
            return True
        return any(self.hold_up(reader.child) for reader in stream.readers)

    def blocked_for_ever(self, stopping: bool) -> bool:
        """Tell whether the results that are left, if any, wait for failing sinks only: after one try when stopping."""
        return self._delivery.stuck(1 if stopping else TRIES_AT_THE_END)

    def require_all_delivered(self) -> None:
        """Raise when results are left.

        Raises:
            SinkError: Sinks fail.
        """
        failing = self._delivery.failing()
        if failing:
            raise SinkError(
                "; ".join(f"The sink of {query} fails: {error}" for query, error in failing.items()) + ".",
                "The results are kept in the checkpoint: repair the sink and run again, then they are written.",
            )
