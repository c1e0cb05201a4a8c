"""The application as users build it: streams, queries on them, and `run`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

from transom.api.chaining import Derivation, EarlyResultsOf, JoinOf, LateRowsOf, ResultsOf, join_of, settled
from transom.api.deriving import FirstRowsOf, UnionOf, first_rows_of
from transom.api.orders import RunOrder, ordered
from transom.api.planning import profile_to_begin
from transom.api.queries import Queries
from transom.api.query import Query
from transom.api.running import Running
from transom.api.streams import Rowwise, Stream, rowwise_of
from transom.checkpoint.control import Inbox
from transom.checkpoint.files import checkpoint_at
from transom.checkpoint.store import Checkpoint
from transom.engine.changes.remote import Remote
from transom.engine.changes.requests import Change
from transom.engine.control.phases import PhaseRecorder
from transom.engine.execution.runners import CutRunner
from transom.engine.explain.explanation import Explanation
from transom.engine.loop.assembly import Outside, make_loop
from transom.engine.loop.interrupts import run_until_told
from transom.engine.loop.loop import Beside, Loop
from transom.engine.loop.opening import open_streams
from transom.engine.loop.progress import Progress
from transom.engine.spark.pulse import Pulse
from transom.engine.spark.session import active_session_kept, private_session, require_pools
from transom.engine.spark.silence import short_tracebacks, silent_tasks
from transom.engine.streams.definition import StreamDefinition
from transom.engine.streams.derived import FED
from transom.engine.streams.taps import tap
from transom.errors import DefinitionError, SessionError
from transom.model.expression import Expression, Input
from transom.model.signatures import checked
from transom.model.time import Clock, Duration, Micros, SystemClock
from transom.model.watermark import WatermarkPolicy
from transom.model.watermark import watermark as make_watermark
from transom.model.window import Window
from transom.scheduling.policies import policy_named
from transom.settings import Settings, SettingValues
from transom.sites.here import LocalSite
from transom.sources.base import Source
from transom.sources.shared import SharedSource
from transom.views.notebook import NotebookView, notebook_display

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class App:
    """Windowed queries on streams, run together on one Spark session.

    Args:
        spark: A classic Spark session, best from `session_builder()`, or a Spark Connect session. Its settings are
            not changed; Transom works on a copy.
        checkpoint: Directory that makes results exactly-once across restarts; one per application. A path, or a URI:
            s3://, gs://, abfs://, hdfs://.
        name: For people.
        site: The site that this one is, if several run the application together; what `build(spark, checkpoint, site)`
            is given by `transom site`.
        clock: The time; tests pass their own.
        settings: See `transom.settings.Settings`, e.g. trigger="1 second", max_rows_per_cut=100_000.

    Raises:
        SessionError: `spark` is no running Spark session.
        DefinitionError: An unknown setting.
    """

    @checked
    def __init__(
        self,
        spark: SparkSession,
        checkpoint: str | Path,
        *,
        name: str | None = None,
        site: LocalSite | None = None,
        clock: Clock | None = None,
        **settings: Unpack[SettingValues],
    ) -> None:
        if not hasattr(spark, "createDataFrame"):
            raise SessionError(f"{type(spark).__name__} is no Spark session.", "Use session_builder().getOrCreate().")
        self.spark = spark
        self.checkpoint = checkpoint_at(checkpoint)
        self.name = name or "transom"
        self.settings = Settings.of(cast(Mapping[str, Any], settings))
        self.site = site
        self._said = frozenset(settings)  # plans leave them as they are
        self._clock = clock or SystemClock()
        self._streams: dict[str, Stream] = {}
        self._derived: list[Derivation] = []
        self._shared: dict[int, SharedSource] = {}
        """The sources, by identity: several streams may read one."""
        self._queries = Queries()
        self._loop: Loop | None = None
        self._stop = False
        """Whether the run that goes on, or is about to begin, was told to stop."""
        self._on_step: Callable[[str], None] = lambda step: None
        self._runner: CutRunner | None = None
        self._phases: Callable[[], PhaseRecorder] = PhaseRecorder

    @checked
    def stream(
        self,
        source: Source,
        *,
        event_time: Input,
        watermark: WatermarkPolicy | Duration = 0,
        name: str | None = None,
    ) -> Stream:
        """Return the rows of a source as a stream.

        Several streams may read one source, each at its own pace (compare `Stream.apart`).

        Args:
            source: What `files`, `generator` or `memory` return.
            event_time: Column or SQL expression of type timestamp; may use `_arrival`, when the row came to the source.
            watermark: What `watermark()` returns, or just its delay.
            name: Names the stream in progress and checkpoint; default stream1, stream2, ...

        Raises:
            DefinitionError: The name is taken, or the application is running.
        """
        if self._queries.running:
            raise DefinitionError(
                "stream: the application is running, and reads the streams that it had at its start.",
                "Add queries to those, or stop it and start it with the new stream.",
            )
        label = name or f"stream{len(self._streams) + 1}"
        if label in self._streams:
            raise DefinitionError(f"stream: there are two streams {label!r}.", "Give one of them another name.")
        policy = watermark if isinstance(watermark, WatermarkPolicy) else make_watermark(watermark)
        time = Expression.of(event_time, "event_time")
        shared = self._shared.setdefault(id(source), SharedSource(source))
        make_source = shared.read_by(label)

        def twin(name: str | None) -> Stream:
            return self.stream(source, event_time=event_time, watermark=policy, name=name)

        makes = self._queries.add, self._results, self._late_rows, twin, self._first_rows, self._union
        stream = Stream(*makes, label, make_source, time, policy, shared.names[0])
        self._streams[label] = stream
        return stream

    @checked
    def join(
        self,
        left: Stream | Rowwise,
        right: Stream | Rowwise,
        *,
        on: str | Sequence[str],
        window: Window | None = None,
        between: tuple[Duration, Duration] | None = None,
        how: str = "inner",
        event_time: str | None = None,
        name: str | None = None,
    ) -> Stream:
        """Return the rows of two streams that have equal keys and are near each other in time, as a stream.

        With `window` they are those of a Spark batch join of each window: `window_start`, `window_end`, the keys, the
        other columns of the left side, those of the right side. They come once, when the watermarks of both inputs have
        passed the window's end.

        With `between` they are those of a Spark batch join in which the right row is so much later than the left one
        (from, to; negative for earlier). A pair comes when the watermarks of both inputs have passed the later row, a
        row without a match when they have passed the last possible one. The rows wait as files in the checkpoint.

        Args:
            left: A stream, after any `map` and `where`.
            right: The other one.
            on: The columns that must be equal on both sides; null equals nothing.
            window: A length ("10 seconds"), or what `tumbling`, `sliding` or `calendar` return; or
            between: Two durations, such as ("0 seconds", "2 hours").
            how: "inner", "left", "right", "full", "left_semi" or "left_anti", also by PySpark's other names for them.
            event_time: That of the joined rows: "left" or "right" for the row of that side (where there is none, of
                the other), "window" for the window's last microsecond. Default "window", or "left" with `between`.
            name: Names the joined stream; default join1, join2, ...

        Raises:
            DefinitionError: No keys, an unknown kind, a session window, or bounds that make no sense.
        """
        one, other = rowwise_of(left, "join: left"), rowwise_of(right, "join: right")
        join = join_of(on, window, between, how, event_time)
        return self._derive(JoinOf(name or self._numbered(JoinOf, "join"), one, other, join))

    def _results(self, of: Query, name: str | None, early: bool = False) -> Stream:
        return self._derive(EarlyResultsOf(of, name) if early else ResultsOf(of, name))

    def _late_rows(self, of: Query, name: str | None, behind: Micros) -> Stream:
        return self._derive(LateRowsOf(of, name, behind))

    def _first_rows(self, rows: Rowwise, keys: str | Sequence[str], within: Duration, name: str | None) -> Stream:
        return self._derive(first_rows_of(rows, keys, within, name or self._numbered(FirstRowsOf, "first")))

    def _union(self, parts: Sequence[Rowwise], name: str | None) -> Stream:
        return self._derive(UnionOf(name or self._numbered(UnionOf, "union"), tuple(parts)))

    def _numbered(self, kind: type[Derivation], name: str) -> str:
        return f"{name}{sum(isinstance(known, kind) for known in self._derived) + 1}"

    def _derive(self, derivation: Derivation) -> Stream:
        def twin(name: str | None) -> Stream:
            raise DefinitionError(
                f"apart: {derivation.name} comes from other queries, which feed one stream.",
                "Let the stream of a source be read apart, or add the query to this one.",
            )

        makes = self._queries.add, self._results, self._late_rows, twin, self._first_rows, self._union
        stream = Stream(*makes, derivation.name, derivation.source, derivation.time, FED)
        derivation.stream = stream
        self._derived.append(derivation)
        return stream

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the queries."""
        return tuple(self._queries.sinks)

    def _extend_with(self, add: Callable[[str, Sequence[str]], Sequence[Change]]) -> None:
        """Say how `transom add` adds queries while the application runs.

        Args:
            add: Given the path of a job file and names of queries in it (none for all that are new), it adds them
                with `to`, and returns the changes; called on the thread of `run`.
        """
        self._queries.extend = add

    def pause(self, name: str) -> Change:
        """Let a query rest: it emits nothing, and its windows miss the rows that come meanwhile; its sink stays open.

        A restart leaves it paused. May be called from any thread, also before `run`, which then begins with it.
        """
        return self._queries.pause(name)

    def resume(self, name: str) -> Change:
        """Let a paused query run again; `Change.wait` tells from when on its windows are complete.

        Earlier windows than that are not emitted, nor are those that ended while it was paused.
        """
        return self._queries.resume(name)

    def remove(self, name: str) -> Change:
        """Take a query out for good: its open windows are dropped, results that were written stay.

        Its name is free again, also for another definition. A restart with the same definition leaves it out.
        """
        return self._queries.remove(name)

    def _definitions(self) -> list[StreamDefinition]:
        return settled(list(self._streams.values()), self._derived)

    @checked
    def run(
        self, once: bool = False, close_all: bool = False, on_progress: Callable[[Progress], None] | None = None
    ) -> Progress:
        """Run until stopped, and return what was done.

        The first Ctrl-C (SIGINT or SIGTERM) finishes the running micro-batches, the second stops at once; both leave
        a checkpoint from which the next run goes on.

        Args:
            once: Stop when the input is exhausted.
            close_all: With `once`, close at the end also the windows that the watermark has not reached; rows of them
                that come later are late.
            on_progress: Called a few times a second. Without it a notebook shows a table that follows the run.

        Raises:
            DefinitionError: A query cannot work on its stream.
            CheckpointError: The checkpoint is in use, damaged, full, or belongs to other queries.
            SourceError: A source cannot be read.
            SinkError: A sink cannot be opened, holds results of another checkpoint, or still fails at the end.
            QueryFailedError: Every query failed.
            SessionError: The policy is `fair`, and the Spark session has no FAIR pools; or Spark is gone: its Java
                process or server ended, or its context was stopped. Found within 10 s, also while nothing runs.
            KeyboardInterrupt: The second Ctrl-C.
        """
        order = self._begin("run", once, close_all)
        display = notebook_display() if on_progress is None else None
        if display is None:
            return self._run_begun(order, on_progress)
        view = NotebookView(display)
        final = self._run_begun(order, view.update)
        view.finish(final)
        return final

    @checked
    def start(
        self, once: bool = False, close_all: bool = False, on_progress: Callable[[Progress], None] | None = None
    ) -> Running:
        """Run in the background, and return a handle of the run: `stop`, `wait` and `progress`.

        The arguments are those of `run`; `on_progress` is called on another thread. A handle that is forgotten is
        stopped when the interpreter exits, after its running micro-batches.

        Raises:
            DefinitionError: The application has no query, or is running. What else `run` raises, `Running.wait` does.
        """
        order = self._begin("start", once, close_all)

        def run(show: Callable[[Progress], None]) -> Progress:
            def both(progress: Progress) -> None:
                show(progress)
                if on_progress is not None:
                    on_progress(progress)

            return self._run_begun(order, both)

        with self._queries.ended_if_it_fails():
            return Running(run, self.stop, self._stop_at_once, self.name)

    def _begin(self, what: str, once: bool, close_all: bool) -> RunOrder:
        if close_all and not once:
            raise DefinitionError(f"{what}: close_all needs once=True.", "A stream that goes on has no last window.")

        def begun() -> list[StreamDefinition]:
            self._stop = False
            return self._definitions()

        return ordered(self._queries, what, begun, self.site, once, close_all)

    def _run_begun(self, order: RunOrder, on_progress: Callable[[Progress], None] | None) -> Progress:
        try:
            with short_tracebacks():
                return self._run(order, on_progress)
        finally:
            self._queries.end()

    def _stop_at_once(self) -> None:
        self._stop = True
        if (loop := self._loop) is not None:
            loop.ending.end_at_once()

    def _run(self, order: RunOrder, on_progress: Callable[[Progress], None] | None) -> Progress:
        if policy_named(self.settings.policy).at_once:
            require_pools(self.spark)
        session = private_session(self.spark)
        with ExitStack() as ending:
            ending.enter_context(active_session_kept(self.spark))
            ending.enter_context(silent_tasks(session))
            checkpoint = ending.enter_context(Checkpoint.open(self.checkpoint, self._clock))
            pulse = ending.enter_context(Pulse(session))
            ending.push(lambda kind, error, trace: self._close(error))
            clock, close_all, settings, beside = self._clock, order.close_all, self.settings, Beside()
            if self.site is not None and order.streams is not None:
                settings = self.site.settings(settings)
                beside = self.site.shipping(order.streams, checkpoint, clock, settings)
            streams, lost = open_streams(order.definitions, session, checkpoint, clock, settings, close_all)
            for name, outlets in order.sinks.items():
                outlets.open(name)
            for stream in streams.values():
                for query in stream.definition.queries:
                    tap(stream, query.name, order.sinks[query.name], stream.compiled)
            queries = self._queries
            requests, phases = queries.requests, self._phases()
            any_cores = self.settings.max_executors is not None
            profile = profile_to_begin(self.settings.plan, session, list(streams), any_cores)
            told = (on_progress, self._on_step, requests, queries.forget, queries.release, queries.opened.late)
            outside = Outside(*told, self._runner, phases, beside, self._said, profile)
            loop = make_loop(streams, order.sinks, checkpoint, settings, clock, outside, lost)
            self._loop = loop
            if self._stop:
                loop.ending.stop()
            inbox, check = Inbox(checkpoint.path, clock), checkpoint.check_unlocked
            queries.requests.look = Remote(inbox, clock, queries.act, check, {"plan": loop.expectation.report}).look
            if self._runner is None:
                pulse.watch(loop.ending.fail)
            return run_until_told(loop, session, pulse, order.once)
        raise AssertionError

    def _close(self, error: BaseException | None) -> None:
        loop, self._loop = self._loop, None
        self._queries.opened.close([] if loop is None else loop.ending.still_writing, error)

    def stop(self) -> None:
        """End a `run` that goes on or begins in another thread, after its running micro-batches.

        It returns at once, and does nothing when there is no run. What does not end within the setting `stop_timeout`
        is left to the next run.
        """
        self._stop = True
        if self._loop is not None:
            self._loop.ending.stop()

    def explain(self) -> Explanation:
        """Return what will run and what is shared; runs nothing and leaves the checkpoint alone.

        Raises:
            DefinitionError: A query cannot work on its stream.
            SourceError: A source cannot be opened.
        """
        from transom.api.explaining import explained

        definitions = self._definitions()  # first: it also adds the queries that unions and the like read
        sinks = {name: outlets.describe() for name, outlets in self._queries.sinks.items()}
        return explained(self.spark, self.name, definitions, sinks, self._clock, self.settings)
