"""A gate for Structured Streaming queries that are there already: their micro-batches run in order of slack."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

from transom.errors import DefinitionError, SessionError
from transom.model.time import MICROS_PER_SECOND, Clock, Duration, Micros, SystemClock, parse_duration
from transom.model.window import SessionSpec, Window, window_of
from transom.scheduling.policies import LONGEST_WAIT, policy_named
from transom.scheduling.turns import Batch, Turn, next_turns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Write: TypeAlias = "Callable[[DataFrame, int], object]"

LOOK: Micros = 50_000
"""How often a micro-batch that waits looks whether it may run."""
DECIDE: Micros = 25_000
"""Decisions are not made more often without cause."""
ALIVE: Micros = 500_000
"""How often it looks whether its query was stopped meanwhile."""
UNSTATED: Micros = 10 * MICROS_PER_SECOND
_QUERY_ID = "sql.streaming.queryId"


def gate(
    spark: SparkSession,
    policy: str = "klink",
    *,
    slots: int | None = None,
    longest_wait: Duration = LONGEST_WAIT,
    clock: Clock | None = None,
) -> Gate:
    """Return a gate that lets the micro-batches of existing streaming queries run in the order of a policy.

    Wrap the function of each query once; the queries stay what they are:

        gate = tm.gate(spark)
        (counts.writeStream
            .foreachBatch(gate.batch(write, window="10 seconds", limit="2 seconds"))
            .start())

    Guaranteed: the function gets the micro-batches that it would get without the gate, in the same order and with the
    same rows, and what it raises ends its own query only. No more than `slots` of them run at once. None waits for
    longer than `longest_wait` while others go before it. A query that is stopped, and all of them once the gate is
    closed, are let through.

    Not guaranteed: what Spark does outside of the function is not gated, which is to find out the new offsets, to plan,
    and to write its log. The rows of a micro-batch are fixed before it waits; those that come meanwhile are in the next
    one. Watermarks are those of Spark, so a window is emitted by the micro-batch after the one that read past its end.
    As with every `foreachBatch`, a micro-batch may be given to the function again after a failure.

    Args:
        spark: The session that starts the queries. Classic Spark only.
        policy: As in the settings of `App`.
        slots: Micro-batches that may run at once; default as many as there are cores.
        longest_wait: A micro-batch that has waited longer goes first.
        clock: The time; tests pass their own.

    Raises:
        SessionError: It is a Spark Connect session, whose functions run in another process.
        DefinitionError: The policy is unknown, or there is no slot.
    """
    if not hasattr(spark, "_jsparkSession"):
        raise SessionError("gate: this is a Spark Connect session.", "Use a classic session for gated queries.")
    if slots is not None and slots < 1:
        raise DefinitionError(f"gate: slots is {slots}.", "Give at least 1.")
    longest = parse_duration(longest_wait, "gate: longest_wait")
    return Gate(spark, policy, slots or spark.sparkContext.defaultParallelism, longest, clock or SystemClock())


class Gate:
    """See `gate`, which makes it. May be used from any thread."""

    def __init__(self, spark: SparkSession, policy: str, slots: int, longest_wait: Micros, clock: Clock) -> None:
        self._spark, self._slots, self._clock = spark, slots, clock
        self._policy = policy_named(policy, longest_wait)
        self._changed = threading.Condition()
        self._waiting: dict[str, Turn] = {}
        self._running: set[str] = set()
        self._granted: set[str] = set()
        self._decided_at: Micros | None = None
        self._closed = False

    def batch(self, function: Write, *, window: Window | None = None, limit: Duration | None = None) -> Write:
        """Return a function for `foreachBatch` that runs `function` when it is its query's turn.

        Args:
            function: Called with the DataFrame of a micro-batch and its number.
            window: The window of the query's aggregation, as a length ("10 seconds") or what `tumbling`, `sliding` or
                `calendar` return. Without one the query goes by how long it has waited.
            limit: How soon after its watermark a window's result should be there; default 10 seconds.

        Raises:
            DefinitionError: `function` cannot be called, or the window is a session.
        """
        if not callable(function):
            raise DefinitionError(f"gate: {function!r} is no function.", "Give the function of foreachBatch.")
        spec = None if window is None else window_of(window)
        if isinstance(spec, SessionSpec):
            raise DefinitionError(
                f"gate: the end of a session ({spec}) is not known before it is there.",
                "Leave the window out; the query then goes by how long it has waited.",
            )
        bound = UNSTATED if limit is None else parse_duration(limit, "gate: limit")
        turns: dict[str, Turn] = {}

        def gated(frame: DataFrame, number: int) -> None:
            query = str(frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID))
            turn = turns.setdefault(query, Turn(query, spec, bound))
            started = self._enter(turn)
            try:
                function(frame, number)
            finally:
                self._leave(turn, started)

        return gated

    def sink(
        self,
        format: str,
        path: str | None = None,
        *,
        window: Window | None = None,
        limit: Duration | None = None,
        mode: str = "append",
        **options: Any,
    ) -> Write:
        """Return a function for `foreachBatch` that writes each micro-batch in a format, for queries without one.

        Spark's own file sink writes each micro-batch exactly once; this appends, so that a micro-batch that is repeated
        after a failure is there twice. Formats that replace by a key do not have that problem.

        Args:
            format: A format of `DataFrameWriter`, such as "parquet".
            path: Where to, for formats that have a path.
            window: As in `batch`.
            limit: As in `batch`.
            mode: As in `DataFrameWriter.mode`.
            options: Options of the format.
        """

        def write(frame: DataFrame, number: int) -> None:
            frame.write.format(format).mode(mode).options(**options).save(path)

        return self.batch(write, window=window, limit=limit)

    def close(self) -> None:
        """Let everything through from now on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __enter__(self) -> Gate:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- turns

    def _enter(self, turn: Turn) -> Micros:
        """Wait for the turn of a query's micro-batch; return when it began."""
        query = self._spark.streams.get(turn.name)
        last = query.lastProgress if query is not None else None
        looked = now = self._clock.now()
        with self._changed:
            if last is not None:
                turn.progressed(batch_of(last))
            turn.waits(now)
            self._waiting[turn.name] = turn
            self._decided_at = None
        try:
            while True:
                with self._changed:
                    if self._closed or self._is_next(turn.name):
                        break
                    self._changed.wait(LOOK / MICROS_PER_SECOND)
                now = self._clock.now()
                if now - looked >= ALIVE:
                    looked = now
                    if query is None or not query.isActive:
                        break
        finally:
            with self._changed:
                self._waiting.pop(turn.name, None)
                self._granted.discard(turn.name)
                self._running.add(turn.name)
                self._decided_at = None
        return self._clock.now()

    def _is_next(self, name: str) -> bool:
        now = self._clock.now()
        if self._decided_at is None or now - self._decided_at >= DECIDE:
            chosen = next_turns(self._waiting, len(self._running), self._slots, self._policy, now)
            self._granted, self._decided_at = set(chosen), now
            self._changed.notify_all()
        return name in self._granted

    def _leave(self, turn: Turn, started: Micros) -> None:
        now = self._clock.now()
        with self._changed:
            turn.ran(started, now - started)
            self._running.discard(turn.name)
            self._decided_at = None
            self._changed.notify_all()


def batch_of(progress: Mapping[str, Any]) -> Batch:
    """Return what a `StreamingQueryProgress` tells of its micro-batch."""
    times = progress["eventTime"] or {}
    watermark = moment(times["watermark"]) if "watermark" in times else None
    return Batch(
        started=moment(progress["timestamp"]),
        rows=int(progress["numInputRows"]),
        newest=moment(times["max"]) if "max" in times else None,
        watermark=watermark or None,  # the epoch stands for none
    )


def moment(text: str) -> Micros:
    """Return a time of a progress, such as 2026-01-02T03:04:05.678Z, in microseconds since the epoch."""
    parsed = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return round((parsed - datetime(1970, 1, 1, tzinfo=timezone.utc)).total_seconds() * 1_000) * 1_000
