"""A gate for Structured Streaming queries: their micro-batches run in the order of a policy, not all at once."""

from __future__ import annotations

import functools
import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, overload

from transom.errors import DefinitionError, SessionError
from transom.model.calendar import CalendarSpec
from transom.model.sessions import is_connect
from transom.model.signatures import checked
from transom.model.time import Clock, Duration, Micros, SystemClock, format_duration, parse_duration
from transom.model.window import SessionSpec, Window, WindowSpec, window_of
from transom.scheduling.policies import LONGEST_WAIT, policy_named
from transom.scheduling.turns import BatchDone, QueryEstimate, Turns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

BatchFunction: TypeAlias = "Callable[[DataFrame, int], None]"
"""A function as `foreachBatch` takes it: of the rows of a micro-batch and its number."""

LIMIT: Duration = "10 seconds"
LOOK = 0.02
"""Seconds after which the policy is asked again while somebody waits for the right moment."""
ALIVE = 0.5
"""Seconds after which a query that waits looks whether it was stopped."""
QUERIES = 1_000
"""Queries that are remembered."""


class Driver(Protocol):
    """The calls of the gate to Spark, on the thread of the query that calls."""

    def query(self) -> str | None:
        """Return the id of the streaming query whose micro-batch this thread runs; None outside of one."""

    def done(self, query: str, batch: int) -> BatchDone | None:
        """Return what is known of the query's batch before `batch`."""

    def stopped(self, query: str) -> bool:
        """Tell whether the query was stopped, so that its batch shall not run any more."""


class StoppedInGateError(Exception):
    """A query was stopped while its batch waited, or while its function ran.

    Spark takes an error for the consequence of `query.stop()` if its text matches a pattern (`PROXY_ERROR` in Spark's
    `StreamExecution`); the text of this one does. It is short because Spark's matching of a long one, such as the stack
    trace of an interrupted call, overflows the stack of the query's thread.
    """

    def __init__(self) -> None:
        super().__init__(
            "The query was stopped. (py4j.protocol.Py4JJavaError: An error occurred while calling foreachBatch: "
            "java.lang.InterruptedException)"
        )


class Gate:
    """Lets micro-batches of streaming queries run in turn; made by `tm.gate`.

    Provisional: may change in a minor version.

    All methods may be called from any thread. As a context manager it is closed at the end.
    """

    def __init__(self, driver: Driver, policy: str, slots: int, longest_wait: Micros, clock: Clock) -> None:
        self._driver = driver
        self._clock = clock
        self._turns = Turns(policy_named(policy, longest_wait), slots)
        self._changed = threading.Condition()
        self._estimates: dict[str, QueryEstimate] = {}
        self._turn_of: dict[str, threading.Event] = {}
        self._closed = False
        self._decider: threading.Thread | None = None

    # ---- for users

    @overload
    def batch(
        self, function: BatchFunction, *, window: Window | None = None, limit: Duration = LIMIT
    ) -> BatchFunction: ...

    @overload
    def batch(
        self, function: None = None, *, window: Window | None = None, limit: Duration = LIMIT
    ) -> Callable[[BatchFunction], BatchFunction]: ...

    def batch(
        self, function: BatchFunction | None = None, *, window: Window | None = None, limit: Duration = LIMIT
    ) -> BatchFunction | Callable[[BatchFunction], BatchFunction]:
        """Return a function for `foreachBatch` that waits for its turn, then calls the given one.

        Works as a decorator too: `@gate.batch(window="10 seconds")`. One function may serve several queries. Called
        outside of a streaming query, it does not wait.

        Args:
            function: Writes the rows of a micro-batch.
            window: The windows of the query's aggregation: a length ("10 seconds"), or what `tm.tumbling`, `tm.sliding`
                or `tm.calendar` return. From it the gate knows when the next result is due. None for a query without
                windows, or with sessions: every batch is then due at once.
            limit: How soon a result should be there, from the arrival of the last row that it waits for.

        Raises:
            DefinitionError: `function` cannot be called, the window is a session, or the limit is not positive.
        """
        if function is not None and not callable(function):
            raise DefinitionError(f"gate: {function!r} is no function.", "Give the function of foreachBatch.")
        kind = None if window is None else window_of(window)
        if isinstance(kind, SessionSpec):
            raise DefinitionError(
                f"gate: the end of a session ({kind}) is not known before it is there.",
                "Leave the window out; every batch is then due at once.",
            )
        longest = parse_duration(limit, "gate: limit")
        if longest <= 0:
            raise DefinitionError(f"gate: limit is {format_duration(longest)}.", "Give more than 0.")
        if function is None:
            return lambda given: self._gated(given, kind, longest)
        return self._gated(function, kind, longest)

    @checked
    def sink(
        self,
        format: str,
        path: str | None = None,
        *,
        window: Window | None = None,
        limit: Duration = LIMIT,
        **options: Any,
    ) -> BatchFunction:
        """Return a function for `foreachBatch` that writes each micro-batch with Spark's writer, in its turn.

        Args:
            format: As for `DataFrameWriter.format`: "parquet", "json", "jdbc", "kafka", ...
            path: Directory for formats of files. Each batch has a directory `batch_id=N` in it, which is replaced when
                Spark runs the batch again after a failure, so that each row is there once. Readers see a column
                `batch_id`.
            window: As for `batch`.
            limit: As for `batch`.
            **options: For the writer. Without a path batches are appended, and a batch that Spark runs again after a
                failure is appended again, unless the format can tell.
        """

        def write(frame: DataFrame, batch_id: int) -> None:
            writer = frame.write.format(format).options(**options)
            if path is None:
                writer.mode("append").save()
            else:
                writer.mode("overwrite").save(f"{path.rstrip('/')}/batch_id={batch_id}")

        return self.batch(write, window=window, limit=limit)

    def close(self) -> None:
        """Let everything through from now on, also what waits; queries go on as if there were no gate."""
        with self._changed:
            self._closed = True
            for turn in self._turn_of.values():
                turn.set()
            self._changed.notify_all()

    def __enter__(self) -> Gate:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- on the threads of the queries

    def _gated(self, function: BatchFunction, window: WindowSpec | CalendarSpec | None, limit: Micros) -> BatchFunction:
        @functools.wraps(function)
        def gated(frame: DataFrame, batch_id: int) -> None:
            query = self._driver.query()
            if query is None:
                function(frame, batch_id)
                return
            with self._turn(query, batch_id, window, limit):
                try:
                    function(frame, batch_id)
                except Exception:  # of any kind: a stopped query interrupts whatever the user's code does
                    if self._driver.stopped(query):
                        raise StoppedInGateError from None
                    raise

        return gated

    @contextmanager
    def _turn(self, query: str, batch: int, window: WindowSpec | CalendarSpec | None, limit: Micros) -> Iterator[None]:
        """Wait for a turn, and hand it back."""
        done = None if self._closed else self._driver.done(query, batch)
        turn = threading.Event()
        with self._changed:
            if not self._closed:
                self._arrive(query, self._estimate(query, window, limit), done, turn)
        try:
            while not self._closed and not turn.wait(ALIVE):
                if self._driver.stopped(query):
                    raise StoppedInGateError
            yield
            with self._changed:
                if self._turns.runs(query):
                    self._estimates[query].finished(batch, self._clock.monotonic())
        finally:
            with self._changed:
                self._turn_of.pop(query, None)
                self._turns.left(query)
                self._changed.notify_all()

    def _arrive(self, query: str, estimate: QueryEstimate, done: BatchDone | None, turn: threading.Event) -> None:
        now = self._clock.monotonic()
        estimate.arrived(done, now, self._clock.now() - now)
        self._turn_of[query] = turn
        self._turns.arrived(query, estimate)
        if self._decider is None:
            self._decider = threading.Thread(target=self._decide, name="transom-gate", daemon=True)
            try:
                self._decider.start()
            except RuntimeError:
                logger.exception("The gate cannot decide, as no thread can start, and lets everything through.")
                self.close()
        self._changed.notify_all()

    def _estimate(self, query: str, window: WindowSpec | CalendarSpec | None, limit: Micros) -> QueryEstimate:
        """Return what is known of a query; of very many queries the first ones are forgotten."""
        known = self._estimates.pop(query, None)
        if known is None or (known.watermarks.window, known.limit) != (window, limit):
            known = QueryEstimate(window, limit)
        self._estimates[query] = known
        if len(self._estimates) > QUERIES:
            del self._estimates[next(iter(self._estimates))]
        return known

    # ---- on the thread that decides

    def _decide(self) -> None:
        try:
            with self._changed:
                while not self._closed:
                    for name in self._turns.next(self._clock.monotonic()):
                        self._turn_of[name].set()
                    self._changed.wait(LOOK if self._turns.pending else None)
        except Exception:  # a mistake of a policy must not leave the users' queries waiting for ever
            logger.exception("The gate cannot decide any more and lets everything through.")
            self.close()


class _Classic:
    """Spark in the process of this driver.

    PySpark calls the function of `foreachBatch` from the query's own thread in the JVM, and what the function asks of
    the JVM is done on that thread ("pinned threads", Spark's default), so that the thread's properties tell which query
    it is.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def query(self) -> str | None:
        return self._spark.sparkContext.getLocalProperty("sql.streaming.queryId")

    def done(self, query: str, batch: int) -> BatchDone | None:
        streaming = self._spark.streams.get(query)
        last = None if streaming is None else streaming.lastProgress
        if streaming is None or last is None:
            return None
        if last["batchId"] != batch - 1:  # a query that had nothing to do says so, with the number of the batch to come
            last = next((one for one in reversed(streaming.recentProgress) if one["batchId"] == batch - 1), None)
        return None if last is None else BatchDone.of(json.loads(last.json))

    def stopped(self, query: str) -> bool:
        streaming = self._spark.streams.get(query)
        if streaming is not None and not streaming.isActive:
            return True
        thread = self._spark.sparkContext._jvm.java.lang.Thread  # type: ignore[union-attr]
        return bool(thread.currentThread().isInterrupted())


@checked
def gate(
    spark: SparkSession,
    policy: str = "klink",
    *,
    slots: int | None = None,
    longest_wait: Duration = LONGEST_WAIT,
    clock: Clock | None = None,
) -> Gate:
    """Return a gate that lets the micro-batches of existing streaming queries run in the order of a policy.

    Provisional: may change in a minor version.

    Wrap the function of each query once; the queries stay what they are:

        gate = tm.gate(spark)
        (counts.writeStream
            .foreachBatch(gate.batch(write, window="10 seconds", limit="2 seconds"))
            .start())

    Under the policy `klink` a batch that brings no result nearer is held until shortly before the watermark that its
    query waits for, so that there are fewer and larger ones; under all others it waits for a slot only.

    Guaranteed: the function gets each micro-batch that Spark makes, in Spark's order, once per attempt, and what it
    raises ends its own query only. At most `slots` functions run at once. A batch that has waited for `longest_wait`
    runs before all that have waited less. A query that is stopped while its batch waits ends at once, as a stopped
    query does; the batch is made again when the query is started again. Results in append mode are those without the
    gate, as far as they do not depend on which rows Spark finds in time for a batch.

    Not guaranteed: what Spark does before and after the function is not gated: finding the offsets, writing its logs,
    planning, making the tables that joins broadcast, and the upkeep of state stores. What a batch reads is fixed before
    it waits; rows that come meanwhile are in the next one, and a window's result is in the batch after the one that
    read past its end. `processAllAvailable` waits with the batches.

    Args:
        spark: The classic session that starts the queries. Of queries that other sessions of the same context start,
            the progress is not known; they take turns, and are never held.
        policy: As in the settings of `App`; with "fair" nobody waits.
        slots: Micro-batches that run at once; default half of the cores, and at least 2, so that one has the cores
            while another plans or commits.
        longest_wait: A batch that has waited longer goes first.
        clock: The time; tests pass their own.

    Raises:
        SessionError: `spark` is a Spark Connect session, or Python's threads are not pinned to Java's.
        DefinitionError: There is no such policy, no slot, or the longest wait is not positive.
    """
    if is_connect(spark):
        remedy = "Use a classic session; with Spark Connect the functions run in a process of the server."
        raise SessionError("gate: this is a Spark Connect session, or none.", remedy)
    from py4j.clientserver import ClientServer

    if not isinstance(spark.sparkContext._gateway, ClientServer):
        raise SessionError("gate: Python's threads are not pinned to Java's.", "Leave PYSPARK_PIN_THREAD unset.")
    count = max(2, spark.sparkContext.defaultParallelism // 2) if slots is None else slots
    longest = parse_duration(longest_wait, "gate: longest_wait")
    return Gate(_Classic(spark), policy, count, longest, clock or SystemClock())
