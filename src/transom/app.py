"""The application as users build it: streams, queries on them, and `run`."""

from __future__ import annotations

import itertools
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transom.checkpoint.store import Checkpoint
from transom.config import Settings
from transom.engine.loop import Loop
from transom.engine.progress import Progress
from transom.engine.spark.compile import Compiled, compile_queries
from transom.engine.spark.plan import Rows, Transformation
from transom.engine.spark.session import active_session_kept, is_ansi, private_session
from transom.engine.stream import Stream as RunningStream
from transom.engine.stream import StreamDefinition
from transom.errors import DefinitionError, SessionError
from transom.model.expression import Expression, Input
from transom.model.query import Key, LatencyTarget, Query
from transom.model.time import Clock, Duration, SystemClock, parse_duration
from transom.model.watermark import WatermarkPolicy
from transom.model.watermark import watermark as make_watermark
from transom.model.window import Window, WindowSpec, window_of
from transom.sinks.base import Sink, explained
from transom.sources.base import Source
from transom.windows.aggregates.base import Aggregate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class App:
    """Windowed queries on streams, run together on one Spark session.

    Args:
        spark: A classic Spark session, best from `session_builder()`, or a Spark Connect session. Its settings are
            not changed; Transom works on a copy.
        checkpoint: Directory that makes results exactly-once across restarts; one per application.
        name: For people.
        clock: The time; tests pass their own.
        settings: See `transom.config.Settings`, e.g. trigger="1 second", max_rows_per_cut=100_000.

    Raises:
        SessionError: `spark` is no running Spark session.
        DefinitionError: An unknown setting.
    """

    def __init__(
        self,
        spark: SparkSession,
        checkpoint: str | Path,
        *,
        name: str | None = None,
        clock: Clock | None = None,
        **settings: Duration,
    ) -> None:
        if not hasattr(spark, "createDataFrame"):
            raise SessionError(f"{type(spark).__name__} is no Spark session.", "Use session_builder().getOrCreate().")
        self.spark = spark
        self.checkpoint = Path(checkpoint)
        self.name = name or "transom"
        self.settings = Settings.of(settings)
        self._clock = clock or SystemClock()
        self._streams: dict[str, Stream] = {}
        self._sinks: dict[str, Sink] = {}
        self._loop: Loop | None = None
        self._on_step: Callable[[str], None] = lambda step: None

    def stream(
        self,
        source: Source,
        *,
        event_time: Input,
        watermark: WatermarkPolicy | Duration = 0,
        name: str | None = None,
    ) -> Stream:
        """Return the rows of a source as a stream.

        Args:
            source: What `files`, `generator` or `memory` return.
            event_time: Column or SQL expression of type timestamp.
            watermark: What `watermark()` returns, or just its delay.
            name: Names the stream in progress and checkpoint; default stream1, stream2, ...

        Raises:
            DefinitionError: The name is taken.
        """
        label = name or f"stream{len(self._streams) + 1}"
        if label in self._streams:
            raise DefinitionError(f"stream: there are two streams {label!r}.", "Give one of them another name.")
        policy = watermark if isinstance(watermark, WatermarkPolicy) else make_watermark(watermark)
        stream = Stream(self, label, source, Expression.of(event_time, "event_time"), policy)
        self._streams[label] = stream
        return stream

    def _add(self, stream: Stream, query: Query, sink: Sink) -> None:
        if query.name in self._sinks:
            raise DefinitionError(f"query: there are two queries {query.name!r}.", "Give one of them another name.")
        where = _directory(sink)
        for other, theirs in self._sinks.items():
            if where is not None and _directory(theirs) == where:
                raise DefinitionError(
                    f"query {query.name!r}: it would write into {where}, where {other!r} writes.",
                    "Give each query a directory of its own.",
                )
        stream.queries.append(query)
        self._sinks[query.name] = sink

    def _definitions(self) -> list[StreamDefinition]:
        used = [stream for stream in self._streams.values() if stream.queries]
        if not used:
            raise DefinitionError(
                "The application has no query.", "End one with .to(sink, name=...) before running it."
            )
        return [stream.definition() for stream in used]

    def run(
        self,
        once: bool = False,
        close_all: bool = False,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Progress:
        """Run until stopped, and return what was done.

        The first Ctrl-C (SIGINT or SIGTERM) finishes the running micro-batches, the second stops at once; both leave
        a checkpoint from which the next run goes on.

        Args:
            once: Stop when the input is exhausted.
            close_all: With `once`, close at the end also the windows that the watermark has not reached; rows of them
                that come later are late.
            on_progress: Called a few times a second.

        Raises:
            DefinitionError: A query cannot work on its stream.
            CheckpointError: The checkpoint is in use, damaged, full, or belongs to other queries.
            SourceError: A source cannot be read.
            SinkError: A sink cannot be opened, holds results of another checkpoint, or still fails at the end.
            QueryFailedError: Every query failed.
            KeyboardInterrupt: The second Ctrl-C.
        """
        if close_all and not once:
            raise DefinitionError("run: close_all needs once=True.", "A stream that goes on has no last window.")
        definitions = self._definitions()
        session = private_session(self.spark)
        with active_session_kept(self.spark), Checkpoint.open(self.checkpoint, self._clock) as checkpoint:
            try:
                streams = self._open(definitions, session, checkpoint)
                loop = Loop(
                    streams,
                    self._sinks,
                    checkpoint,
                    replace(self.settings, trigger=0) if once else self.settings,
                    self._clock,
                    on_progress,
                    self._on_step,
                )
                self._loop = loop
                with _interrupts(loop, session):
                    return loop.run(once, close_all)
            finally:
                self._loop = None
                for definition in definitions:
                    definition.source.close()
                for sink in self._sinks.values():
                    sink.close()

    def _open(
        self, definitions: list[StreamDefinition], session: SparkSession, checkpoint: Checkpoint
    ) -> dict[str, RunningStream]:
        streams = {}
        for definition in definitions:
            definition.source.open(session, checkpoint.directory("sources", definition.name), self._clock)
            streams[definition.name] = RunningStream(
                definition,
                session,
                is_ansi(session),
                checkpoint.directory("dead-letters", definition.name),
                self._clock.now(),
            )
        for name, sink in self._sinks.items():
            with explained(name, sink):
                sink.open(name)
        return streams

    def stop(self) -> None:
        """End a `run` that goes on in another thread, after its running micro-batches."""
        if self._loop is not None:
            self._loop.stop()

    def explain(self) -> dict[str, Any]:
        """Return what will run and what is shared, as JSON-able values; runs nothing and leaves the checkpoint alone.

        Raises:
            DefinitionError: A query cannot work on its stream.
            SourceError: A source cannot be opened.
        """
        from transom.engine.explain import explain

        session = private_session(self.spark)
        parts: list[tuple[StreamDefinition, Compiled]] = []
        with active_session_kept(self.spark):
            for definition in self._definitions():
                source = definition.source
                with tempfile.TemporaryDirectory(prefix="transom-explain-") as directory:
                    source.open(session, Path(directory), self._clock)
                    try:
                        compiled = compile_queries(session, source.schema, definition.rows, definition.queries)
                    finally:
                        source.close()
                parts.append((definition, compiled))
        return explain(self.name, parts, {name: sink.describe() for name, sink in self._sinks.items()})


@dataclass(eq=False)
class Stream:
    """Rows of a source; made by `App.stream`. Transformations return new values."""

    app: App
    name: str
    source: Source
    event_time: Expression
    policy: WatermarkPolicy

    def __post_init__(self) -> None:
        self.queries: list[Query] = []
        self._branches: list[tuple[Transformation, ...]] = []

    def map(self, transformation: Transformation) -> Rowwise:
        """Return the rows after a row-wise PySpark transformation: filters, columns, joins with static tables."""
        return Rowwise(self, ()).map(transformation)

    def group_by(self, *keys: str, **named: Input) -> Grouped:
        """Group by columns, or by named expressions; nothing for one global group."""
        return Rowwise(self, ()).group_by(*keys, **named)

    def window(self, *windows: Window) -> Windowed:
        """Aggregate all rows together, without keys."""
        return self.group_by().window(*windows)

    def definition(self) -> StreamDefinition:
        """Return the stream as the engine takes it."""
        rows = Rows(self.event_time, tuple(self._branches))
        return StreamDefinition(self.name, self.source, rows, self.policy, tuple(self.queries))

    def branch(self, chain: tuple[Transformation, ...]) -> int:
        """Return the index of a chain of transformations; the same functions give the same index."""
        for index, known in enumerate(self._branches):
            if len(known) == len(chain) and all(a is b for a, b in zip(known, chain, strict=True)):
                return index
        self._branches.append(chain)
        return len(self._branches) - 1


@dataclass(frozen=True, eq=False)
class Rowwise:
    """A stream after some transformations."""

    stream: Stream
    chain: tuple[Transformation, ...]

    def map(self, transformation: Transformation) -> Rowwise:
        """Return the rows after one more transformation."""
        if not callable(transformation):
            raise DefinitionError(f"map: {transformation!r} is no function.", "Write map(lambda df: df.where(...)).")
        return Rowwise(self.stream, (*self.chain, transformation))

    def group_by(self, *keys: str, **named: Input) -> Grouped:
        """Group by columns, or by named expressions; nothing for one global group.

        Args:
            keys: Column names.
            named: Expressions by the name of the result column, e.g. group_by(hour="hour(pickup_at)").

        Raises:
            DefinitionError: A Column without a name, or a name given twice.
        """
        found: list[Key] = []
        for key in keys:
            if not isinstance(key, str):
                raise DefinitionError(f"group_by: {key} has no name for the result.", "Write group_by(name=column).")
            found.append(Key(key, Expression.of(key, "group_by")))
        found += [Key(name, Expression.of(value, "group_by")) for name, value in named.items()]
        _unique([key.name for key in found], "group_by")
        return Grouped(self, tuple(found))

    def window(self, *windows: Window) -> Windowed:
        """Aggregate all rows together, without keys."""
        return self.group_by().window(*windows)


@dataclass(frozen=True, eq=False)
class Grouped:
    """Rows grouped by keys."""

    rows: Rowwise
    keys: tuple[Key, ...]

    def window(self, *windows: Window) -> Windowed:
        """Say over which windows to aggregate.

        Args:
            windows: Lengths ("5 minutes") for tumbling windows, or what `tumbling` and `sliding` return.
        """
        if not windows:
            raise DefinitionError("window: no window is given.", 'Write for example window("5 minutes").')
        return Windowed(self, tuple(dict.fromkeys(window_of(window) for window in windows)))


@dataclass(frozen=True, eq=False)
class Windowed:
    """Grouped rows in windows."""

    grouped: Grouped
    windows: tuple[WindowSpec, ...]

    def agg(self, **aggregates: Aggregate) -> QueryBuilder:
        """Say what to compute: a name for each result column and its aggregate, e.g. trips=tm.count()."""
        if not aggregates:
            raise DefinitionError("agg: no aggregate is given.", "Write for example agg(trips=tm.count()).")
        for name, aggregate in aggregates.items():
            if not hasattr(aggregate, "primitives"):
                raise DefinitionError(
                    f"agg: {name} is {aggregate!r}, no aggregate of Transom.",
                    "Use tm.count(), tm.avg('fare') and so on; Spark's own functions cannot be merged across panes.",
                )
        _unique(
            ["window_start", "window_end", *(key.name for key in self.grouped.keys), *aggregates],
            "agg",
        )
        return QueryBuilder(self, tuple(aggregates.items()))


@dataclass(frozen=True, eq=False)
class QueryBuilder:
    """A query that lacks only a sink; it counts from `to` on."""

    windowed: Windowed
    aggregates: tuple[tuple[str, Aggregate], ...]
    target: LatencyTarget | None = None
    fill_zero: bool = False

    def within(self, limit: Duration, quantile: float = 0.99) -> QueryBuilder:
        """State a latency target: this share of the results is visible within the limit.

        Args:
            limit: For example "2 seconds", from the arrival of the row that completes the window.
            quantile: In (0, 1).
        """
        micros = parse_duration(limit, "within")
        if micros <= 0:
            raise DefinitionError(f"within: the limit is {limit!r}.", "Give more than nothing.")
        if not 0 < quantile < 1:
            raise DefinitionError(f"within: the quantile is {quantile}.", "Give a number between 0 and 1.")
        return replace(self, target=LatencyTarget(micros, quantile))

    def fill(self, value: str) -> QueryBuilder:
        """Emit known keys in windows without rows too; `zero`: counts are 0, other values null.

        A key is known from its first row on, for as long as the checkpoint lives.
        """
        if value != "zero":
            raise DefinitionError(f"fill: {value!r} is unknown.", 'Write fill("zero").')
        return replace(self, fill_zero=True)

    def to(self, sink: Sink, name: str | None = None) -> None:
        """Send the results to a sink; the query is now part of the application.

        Args:
            sink: What `parquet`, `json`, `console`, `memory_sink` or `foreach` return.
            name: Names the query in the checkpoint; default query1, query2, ...

        Raises:
            DefinitionError: The name or the sink's directory is taken.
        """
        rows = self.windowed.grouped.rows
        app = rows.stream.app
        label = name
        if label is None:
            label = next(f"query{i}" for i in itertools.count(1) if f"query{i}" not in app._sinks)
        if not hasattr(sink, "write"):
            raise DefinitionError(f"query {label!r}: {sink!r} is no sink.", 'Write for example to(tm.parquet("out")).')
        query = Query(
            label,
            rows.stream.branch(rows.chain),
            self.windowed.grouped.keys,
            self.windowed.windows,
            self.aggregates,
            self.target,
            self.fill_zero,
        )
        app._add(rows.stream, query, sink)


def _directory(sink: Sink) -> Path | None:
    """Return the directory that a sink owns, if it does."""
    path = getattr(sink, "directory", None)
    return None if path is None else Path(path).absolute()


def _unique(names: list[str], field: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise DefinitionError(f"{field}: there are two result columns {name!r}.", "Give one of them another name.")


@contextmanager
def _interrupts(loop: Loop, session: SparkSession) -> Iterator[None]:
    """Let the first SIGINT or SIGTERM stop the loop gently, the second at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = False

    def handle(number: int, frame: object) -> None:
        nonlocal asked
        if asked:
            loop.abandon()
            if hasattr(session, "_jsparkSession"):
                session.sparkContext.cancelAllJobs()
            raise KeyboardInterrupt
        asked = True
        loop.stop()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
