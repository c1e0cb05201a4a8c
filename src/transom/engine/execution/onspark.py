"""The job of a cut on Spark: partials, rows for joins and dead letters, without what makes it fail.

`run_in_memory` (simulation/inmemory.py) is its counterpart without Spark.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from transom.causes import worker_traceback
from transom.engine.execution.lane import Lane, both
from transom.engine.partials.early import EarlyPartials
from transom.engine.partials.late import late_for_sessions, late_moments, late_rows, straddled
from transom.engine.spark import deadletters, jobs
from transom.engine.spark.caching import cached
from transom.engine.spark.columns import STEPS
from transom.engine.spark.compile import Compiled
from transom.engine.spark.deadletters import OVERLOAD, Loss
from transom.engine.spark.eventtimes import NO_TIME, OUT_OF_RANGE, arrived
from transom.engine.spark.isolation import Isolated, run_isolated
from transom.engine.spark.jobs import CutPartials
from transom.engine.spark.packing import Packing, with_notes
from transom.engine.spark.partitions import with_partitions
from transom.engine.spark.plan import StreamPlan
from transom.engine.spark.rowfiles import KeptRows
from transom.engine.streams.cuts import CutJob, CutOutcome
from transom.engine.streams.feed import EarlyResults
from transom.engine.streams.rowbuffer import keep_rows
from transom.engine.streams.stream import RunningStream
from transom.errors import CheckpointError, CheckpointFullError, QueryFailedError, SourceError
from transom.failures import FailureKind, classify, is_of_files, require_blame
from transom.model.phases import WorkersDid
from transom.model.time import Micros
from transom.sources.base import ARRIVAL, ORIGIN
from transom.windows.components import Component
from transom.windows.query import WindowedQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)


def run_on_spark(
    stream: RunningStream, job: CutJob, abandoned: Callable[[], bool] = lambda: False, lane: Lane | None = None
) -> CutOutcome:
    """Return what the job of a cut brings; called on a worker thread, changes no state.

    Args:
        stream: The stream.
        job: The job; its cut is in the log already.
        abandoned: Tells whether the application ends at once, so that no further Spark job is to be run.
        lane: Makes partials without Spark SQL, where it can; None for Spark SQL only.

    Raises:
        SourceError: The rows cannot be read, whatever the queries, or others were read in their place.
        QueryFailedError: Their event time cannot be computed, because a function of the user's raises.
        CheckpointError: Partials, rows or dead letters cannot be written.
        SessionError: Spark is gone, memory ran out, or jobs are cancelled again and again.
    """
    if job.cut.empty:
        return CutOutcome(job.cut)
    while True:
        runs = SparkJob(stream, job, abandoned, lane)
        try:
            outcome = runs.run()
        finally:
            runs.let_go()
        if stream.source.same_rows(job.cut.start, job.cut.end, tuple(outcome.skipped)):
            return outcome
        logger.warning("The job of the stream %s runs again: its source was made anew meanwhile.", stream.name)


class _Abandoned(BaseException):
    """The application ends at once, so that nobody waits for this micro-batch any more."""


class SparkJob:
    """The job of one cut, and the jobs that follow from it.

    Args:
        stream: The stream.
        job: The job.
        abandoned: Tells whether the application ends at once.
        lane: Makes partials without Spark SQL.
    """

    def __init__(
        self, stream: RunningStream, job: CutJob, abandoned: Callable[[], bool], lane: Lane | None = None
    ) -> None:
        self.stream = stream
        self._job = job
        self._lane = lane
        self._judged: int | None = None
        """Units that the lane left to Spark; None if it made no partials."""
        self._workers: WorkersDid | None = None
        """What the lane did."""
        self.cut = job.cut
        self._compiled = job.compiled
        self._options = job.options
        self._abandoned = abandoned
        self._skipped = self._wanted(stream.source.unfit(job.cut.start, job.cut.end))
        """Units of the source that cannot be read, with the reason."""
        self._held: tuple[tuple[str, ...], DataFrame] | None = None
        """The rows, read once for all jobs, with the units that were skipped."""
        self._has_origin = False
        """Whether the source says of each row where it is."""

    def run(self) -> CutOutcome:
        """Run it, and another one over the early results that take the place of former ones, where there are some."""
        early = self.stream.feed.early(self.cut.end)
        if early is None:
            return self._run()
        outcome = self._run() if self.cut.rows else CutOutcome(self.cut)
        return replace(outcome, early=self._early(early, outcome.failures))

    def _run(self) -> CutOutcome:
        """Run it without the units and queries that make it fail, then write what its rows are needed for."""
        if self._compiled.plan.arrival:  # else no query would be to blame for what it lacks
            arrived(self._read(()))
        cut, isolated = self.cut, self._isolated()
        compiled, partials = isolated.value
        before = late_moments(isolated.queries, cut.watermark)
        late: dict[str, int] = {}
        for component, table in zip(compiled.components, partials.tables, strict=True):
            late.update(late_rows(table, component, before))
        tables, files = with_notes(compiled.plan.notes, partials, cut.number)
        late = {query: rows for query, rows in late.items() if rows}
        kept, failures = self._keep(compiled, before, late)
        outcome = CutOutcome(
            cut,
            tables,
            partials.stats,
            self._skipped,
            {**isolated.failures, **failures},
            late,
            kept,
            files,
            workers=self._workers,
            judged=self._judged,
        )
        if partials.stats.bad or outcome.late or partials.timeless or self._skipped or cut.left_out or cut.thinning:
            found = self._write_dead_letters(outcome, compiled, before, partials.timeless)
            stats = outcome.stats.with_timeless(found.get(NO_TIME, 0), found.get(OUT_OF_RANGE, 0))
            outcome = replace(outcome, stats=stats)
        return outcome

    def let_go(self) -> None:
        """Give back the memory of the rows."""
        if self._held is not None:
            self._held[1].unpersist()
            self._held = None

    # ---- partials

    def _isolated(self) -> Isolated[tuple[Compiled, CutPartials]]:
        queries = [known.query for known in self._compiled.queries.values()]
        while True:
            try:
                return run_isolated(self._attempt, queries, lambda some: self._attempt(some, apart=True))
            except Exception as error:
                require_blame(error, self._what)
                self._skip_unreadable(error)

    def _attempt(self, queries: Sequence[WindowedQuery], apart: bool = False) -> tuple[Compiled, CutPartials]:
        stream, compiled = self.stream, self._compiled
        if apart or stream.compiler.computes_apart:
            compiled = stream.compiler.apart(queries)
        elif len(queries) < len(compiled.queries):
            compiled = stream.compiler.compile(queries)
        with self._blaming():
            return compiled, self.partials(compiled)

    def _early(self, early: EarlyResults, failed: Container[str]) -> EarlyPartials:
        """Return the partials of early results; why there are none, if they make their job fail.

        Args:
            early: The early results.
            failed: Queries that the cut takes out.
        """
        if not early.count:
            return EarlyPartials()
        stream, compiled = self.stream, self._compiled
        queries = [known.query for name, known in compiled.queries.items() if name not in failed]
        try:
            with self._blaming():
                if len(queries) < len(compiled.queries):
                    compiled = stream.compiler.compile(queries)
                session = with_partitions(stream.session, self._options.tuning.partitions)
                found = jobs.run_cut(early.read(session), compiled.plan, partitions=1, ahead=None)
        except Exception as error:
            require_blame(error, self._what)
            return EarlyPartials(failure=classify(error).reason)
        return EarlyPartials(with_notes(compiled.plan.notes, found, self.cut.number)[0])

    @property
    def _what(self) -> str:
        return f"The job of the stream {self.stream.name!r}"

    def _skip_unreadable(self, error: Exception) -> None:
        """Leave out units of the source that cannot be read; raise when there are no others, for the source is gone."""
        found: dict[str, str] = {}
        try:
            source, session = self.stream.source, self.stream.session
            found = self._wanted(source.unreadable(session, self.cut.start, self.cut.end))
        except SourceError:  # rows are gone, or nobody answers
            raise
        except Exception as another:  # the first error says more, unless this one is the reason of both
            require_blame(another, self._what)
        if not found.keys() - self._skipped.keys():
            self._require_times(error)
            raise SourceError(
                f"The stream {self.stream.name!r} cannot be read: {classify(error).reason}.",
                "Nothing of this cut was committed; run again when the source can be read.",
            ) from error
        self._skipped.update(found)

    def _require_times(self, error: Exception) -> None:
        """Raise when the rows can be read and only their event time not: for which of them, nobody can tell."""
        expression = self.stream.definition.rows.event_time
        try:
            self._rows().write.format("noop").mode("overwrite").save()
        except Exception as another:
            require_blame(another, self._what)
            return
        if trace := worker_traceback(error):
            logger.warning("The event time of stream %s failed in a function of yours:\n%s", self.stream.name, trace)
        raise QueryFailedError(
            f"The event time {expression.text!r} of the stream {self.stream.name!r} cannot be computed: "
            f"{classify(error).reason}.",
            "Nothing of this cut was committed: correct the function and run again. Return None for a row without a "
            "time: it goes to the dead letters.",
        ) from error

    def partials(self, compiled: Compiled) -> CutPartials:
        """Return partials: those that need no Spark SQL, and those of the rest."""
        self._judged = self._workers = None
        skip = (*self._skipped, *self.cut.left_out)
        made = None if self._lane is None else self._lane.run(compiled, self._job, skip)
        if self._lane is not None and self._abandoned():
            raise _Abandoned
        self._workers = None if made is None else made.workers
        if made is None or made.partials is None:
            return self._by_spark(compiled)
        if straddled(made.partials.tables, compiled.components, self.cut.watermark):
            return self._by_spark(compiled)
        self._judged = made.judged
        return both(made.partials, self._by_spark(compiled, made.certain)) if made.judged else made.partials

    def _by_spark(self, compiled: Compiled, done: Sequence[str] = ()) -> CutPartials:
        """Run the Spark job; a second time with another edge where late and timely rows met in a session's partial."""
        stream, cut = self.stream, self.cut
        executors = stream.state.executors

        def packing(component: Component) -> Packing | None:
            if not self._options.puts_in_files(component):
                return None
            late = late_for_sessions(component, cut.watermark)
            return Packing(executors.directory, cut.number, executors.groups, late)

        def once(plan: StreamPlan) -> CutPartials:
            rows = self._rows(done)
            return jobs.run_cut(
                rows if self._options.measures_delays or plan.arrival else rows.drop(ARRIVAL),
                plan,
                partitions=len(stream.source.partitions),
                ahead=cut.ahead,
                packings=[packing(component) for component in plan.components],
            )

        whole = self._plan(compiled)
        found = once(whole)
        moments = straddled(found.tables, compiled.components, cut.watermark)
        return once(whole.split_at(moments)) if moments else found

    def _rows(self, done: Sequence[str] = ()) -> DataFrame:
        """Return the rows of the cut; when several jobs read them in any case, they are parsed once.

        Args:
            done: Units that are done with.
        """
        skip = (*self._skipped, *self.cut.left_out, *done)
        if all(buffer.late_of is not None for buffer in self.stream.buffers):
            return self._read(skip)
        if self._held is None or self._held[0] != skip:
            self.let_go()
            self._held = skip, cached(self._read(skip))
        return self._held[1]

    def _read(self, skip: Sequence[str]) -> DataFrame:
        """Return the rows of the source, divided into tasks as the stream's tuning says."""
        stream, cut, tuning = self.stream, self.cut, self._options.tuning
        session = with_partitions(stream.session, tuning.partitions, small=tuning.rows_per_task is not None)
        rows, tasks = stream.source.read(session, cut.start, cut.end, skip), tuning.tasks(cut.rows)
        self._has_origin = ORIGIN in rows.columns
        return rows if tasks is None else rows.coalesce(tasks)

    def _plan(self, compiled: Compiled) -> StreamPlan:
        """Return the plan of queries for the rows of the cut that go on, and the tables that it sees."""
        plan, thinning = compiled.plan, self.cut.thinning
        if plan.lookup_tables:
            plan = plan.looking_up(self.stream.tables.frames(plan.lookup_tables, self.cut.tables, self.cut.at))
        return plan if thinning is None else plan.thinned(thinning)

    def _thinned(self) -> list[str]:
        """Return what tells of rows that do not go on, for people."""
        thinning = self.cut.thinning
        if thinning is None:
            return []
        return [f"{STEPS - thinning.sixteenths} of {STEPS} parts of the rows of this micro-batch, before a costly map"]

    def _wanted(self, units: Mapping[str, str]) -> dict[str, str]:
        """Return the units that would be read: not those that are left out anyway."""
        left_out = set(self.cut.left_out)
        return {unit: why for unit, why in units.items() if unit not in left_out}

    def _keep(
        self, compiled: Compiled, late_before: Mapping[str, Micros], late: Container[str]
    ) -> tuple[dict[str, KeptRows], dict[str, str]]:
        """Keep the rows that joins, taps and streams of late rows need; what it returns is that of `keep_rows`."""
        buffers = self.stream.buffers
        if not buffers:
            return {}, {}
        with self._blaming():
            whole = replace(compiled, plan=self._plan(compiled))
            kept, failures = keep_rows(buffers, self._rows(), whole, self.cut, late_before, late)
        if failures and self._abandoned():
            raise _Abandoned
        if failures:
            self._require_whole()
        return kept, failures

    def _write_dead_letters(
        self, outcome: CutOutcome, compiled: Compiled, before: Mapping[str, Micros], timeless: Mapping[str, int]
    ) -> dict[str, int]:
        """Write them; what it returns is that of `write_dead_letters`."""
        lost: dict[int, dict[Loss, list[str]]] = {}
        for name, known in compiled.queries.items():
            for moment in [*([before[name]] if name in outcome.late else []), *([None] if name in timeless else [])]:
                loss = moment, known.query.condition
                lost.setdefault(known.query.branch, {}).setdefault(loss, []).append(name)
        letters, bad = self.stream.dead_letters, bool(outcome.stats.bad)
        directory = letters.of(self.cut.number)
        units = {unit: f"unreadable: {why}" for unit, why in outcome.skipped.items()}
        units |= dict.fromkeys([*self.cut.left_out, *self._thinned()], OVERLOAD)
        try:
            with self._blaming():
                if not bad and not lost:
                    deadletters.write_units(units, self._has_origin, directory, letters.check)
                    return {}
                return deadletters.write_dead_letters(
                    self._rows(),
                    self._plan(compiled),
                    lost,
                    ahead=self.cut.ahead,
                    units=units,
                    bad=bad,
                    directory=directory,
                    check=letters.check,
                )
        except Exception as error:
            failure = classify(error)
            if failure.kind is not FailureKind.DISK_FULL:
                require_blame(error, self._what)
            full = failure.kind is FailureKind.DISK_FULL
            if full:
                remedy = "free some space on that disk"
            elif is_of_files(error):
                remedy = "repair that disk or store"
            else:  # they are computed by what the queries say of rows, which may raise for some
                remedy = "correct what raises for these rows"
            raise (CheckpointFullError if full else CheckpointError)(
                f"Could not write the dead letters {directory}: {failure.reason}.",
                f"Nothing of this cut was committed: {remedy}, and run again.",
            ) from error

    @contextmanager
    def _blaming(self) -> Iterator[None]:
        """Let errors pass for which a query may be to blame.

        None is when the application ends at once, whose cancelled jobs fail, or when the rows that a stream has in the
        checkpoint are damaged.
        """
        try:
            yield
        except Exception as error:
            if self._abandoned():
                raise _Abandoned from error
            self._require_whole()
            raise

    def _require_whole(self) -> None:
        self.stream.feed.require_whole(self.cut.start, self.cut.end)
