"""One stream at run time: a source, the queries on it, their state, its next cut, and what a cut brought."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from transom.engine.cluster.merges import GroupExecutors, Merged
from transom.engine.partials.tables import PartialTable
from transom.engine.spark.deadletters import Letters
from transom.engine.state.absence import missing_now, partitions_out
from transom.engine.state.closing import Closing, Closure, failure_of
from transom.engine.state.shares import cell_of
from transom.engine.state.state import StreamState
from transom.engine.state.watermarks import WatermarkState
from transom.engine.streams.compiling import QueryCompiler
from transom.engine.streams.cuts import CutJob, CutOutcome, JobOptions, LoggedCut, Shed
from transom.engine.streams.definition import StreamDefinition
from transom.engine.streams.partialsource import brings_partials
from transom.engine.streams.readers import Reader, RowBuffer
from transom.engine.streams.seen import SeenSource
from transom.engine.streams.sending import Elsewhere, FlowSender, query_of
from transom.engine.streams.tableversions import TableVersions
from transom.engine.streams.taps import publish_left
from transom.errors import TransomError
from transom.model.time import MAX_TIME, MIN_TIME, Micros
from transom.sources.base import Cut, Offset
from transom.storage.places import Place
from transom.windows.components import Arrangement

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Taking: TypeAlias = "Callable[[RunningStream, Cut], tuple[Cut, Shed | None]]"
"""Given the piece that a stream would read next, returns the one that it reads, and what of that is left out."""


class RunningStream:
    """A stream that runs.

    Args:
        definition: What the user defined.
        session: Transom's Spark session.
        ansi: Whether overflow is an error.
        dead_letters: Where rows go that no query could use.
        now: Wall time.
        share: Whether queries share partials.
        executors: Where partials are merged that are in files.
        known: Definitions of the queries that the checkpoint knows.
        closes_all: Close at the end of the input also the windows that the watermark has not reached.
        tables: Returns where copies of tables are that rows are looked up in, and makes it.
    """

    def __init__(
        self,
        definition: StreamDefinition,
        session: SparkSession,
        ansi: bool,
        dead_letters: Letters,
        now: Micros,
        share: bool,
        executors: GroupExecutors,
        known: Mapping[str, Mapping[str, Any]] | None = None,
        closes_all: bool = False,
        tables: Callable[[], Place] = Path,
    ) -> None:
        self.name = definition.name
        self.source = definition.source
        self.feed = definition.feed
        self.session = session
        self.dead_letters = dead_letters
        self.closes_all = closes_all
        self.compiler = QueryCompiler(definition, session, share, known or {})
        self.compiled = self.compiler.whole
        """The queries that run."""
        watermark = WatermarkState.start(len(self.source.partitions))
        self.options = JobOptions()
        """The options of the jobs of the cuts that come."""
        self.state = StreamState(
            self.compiled.queries, watermark, self.source.start(), ansi, executors, f"{executors.directory}"
        )
        self.state.arrange(self.compiled.stores)
        if brings_partials(self.source) and definition.policy.absent_after is not None:
            self.state.missing = {}
        self.seen = SeenSource(self.source, self.state.offset, now)
        """The source at the last look."""
        self.tables = TableVersions(session, tables)
        """The tables that rows are looked up in."""
        self.readers: list[Reader] = []
        """The readers, which are fed with the results of this stream's queries."""
        self.buffers: list[RowBuffer] = []
        """The buffers that need the rows of this stream's queries."""
        flows = () if definition.leaving is None else definition.leaving.flows
        shapes = {flow: self.compiled.store_of.get(query_of(flow)) for flow in flows}
        # One whose query failed in an earlier run, and cannot be compiled any more, has said so then.
        self.senders = {flow: FlowSender(flow, shape) for flow, shape in shapes.items() if shape is not None}
        """The flows that take its partials elsewhere. Where there are some nothing is late here, and nothing closes."""
        self.elsewhere: dict[str, Elsewhere] = {}
        """By flow, the window that waits for it."""
        self._closing = False
        """Whether results of windows that a cut closed are being made."""
        self.halted: TransomError | None = None
        """Why this run reads no more of it: its event time cannot be computed. The next one goes on with its cut."""

    @property
    def definition(self) -> StreamDefinition:
        """The stream as the application defines it, with the queries that were added since."""
        return self.compiler.definition

    @property
    def has_files(self) -> bool:
        """Whether partials are in files, so that closing windows may mean to merge them."""
        return any(entry.store.parts for entry in self.state.stores)

    @property
    def leaves(self) -> bool:
        """Whether its partials leave, so that windows are made of them elsewhere."""
        return self.definition.leaving is not None

    @property
    def adapts(self) -> bool:
        """Whether it may compute key sets in another way: not if its partials leave, or come from elsewhere."""
        return self.compiler.shares and not self.leaves and self.definition.rows_of is None

    def job(self, cut: LoggedCut, watched: bool = False) -> CutJob:
        """Return the job of a cut that was logged just now.

        Args:
            cut: The cut.
            watched: Whether Spark will be asked about its tasks.
        """
        # Spark knows it by a name of its own: there may be cuts of other applications, and other tries, in one session.
        group = f"transom {self.name} {cut.number} {uuid.uuid4().hex}" if watched else None
        return CutJob(cut, self.compiled, self.options, group)

    def follow(self, arrangement: Arrangement) -> None:
        """Compute key sets in another way from the next cut on; the state stays what it is."""
        self.compiler.arrangement = arrangement
        self.compiled = self.compiler.compile(self.state.running())

    def rearrange(self) -> None:
        """Adapt components and stores to the queries that are running."""
        self.compiled = self.compiler.shape({query.name for query in self.state.running()})
        self.state.arrange(self.compiled.stores)

    def fail(self, query: str, reason: str) -> None:
        """Take a query out; nothing happens the second time."""
        if self.state.queries[query].failure is None:
            self.state.drop_query(query, reason)
            self.rearrange()

    def next_cut(self, now: Micros, max_rows: int, finish: bool, take: Taking | None = None) -> LoggedCut | None:
        """Return the next cut: new rows, windows that are due, or both; None when there is nothing to do.

        Args:
            now: Wall time.
            max_rows: Largest cut.
            finish: No more rows are expected: close every window, and take no rows.
            take: Says which piece is read instead, and what of it is left out; None if nothing may be.
        """
        state = self.state
        piece, shed = None, None
        if finish:
            self.seen.leave(now)
        else:
            piece = self.seen.next_piece(state.offset, max_rows, now)
            if piece is not None and take is not None:
                piece, shed = take(self, piece)
                self.seen.took(piece)
        self._injected()
        self._leave_out(finish)
        state.watermark = self.foreseen()
        watermark = max(state.closed, MAX_TIME if finish else state.watermark.value) if not self.leaves else MIN_TIME
        if piece is None and not self.has_due(watermark, now):
            return None
        end = state.offset if piece is None else piece.end
        return LoggedCut(
            number=state.cut + 1,
            start=state.offset,
            end=end,
            rows=0 if piece is None else piece.rows,
            watermark=watermark,
            closed=self._closed_by(watermark),
            ahead=self.definition.policy.ahead_limit(now),
            at=now,
            mark=self.source.mark(end) if end != state.offset else None,
            shed=shed,
            tables={} if piece is None else self.tables.newest(self.compiled.plan.lookup_tables, now),
            missing=state.missing or {},
        )

    def has_open_windows(self) -> bool:
        """Tell whether rows that were read may still be part of a result, here or where they wait for this stream."""
        ends = [*(entry.last_end() for entry in self.state.stores), *(reader.last_end for reader in self.readers)]
        lateness = max((query.lateness for query in self.definition.queries), default=0)
        return max(ends, default=MIN_TIME) + lateness > self.state.closed

    def _closed_by(self, watermark: Micros) -> Micros:
        """Return up to where a cut with the watermark closes windows, here or where they wait for this stream."""
        closed = self.state.closed_by(watermark)
        return closed if watermark < MAX_TIME else max([closed, *(reader.last_end for reader in self.readers)])

    def foreseen(self) -> WatermarkState:
        """Return the watermark that the next cut has, as far as is known."""
        without = frozenset[int]()
        if self.state.missing and brings_partials(self.source):
            without = partitions_out(self.source.heard(self.state.offset).owners, self.state.missing)
        return self.state.watermark.advanced(self.definition.policy, self.seen.idle, without)

    def _leave_out(self, finish: bool) -> None:
        """Decide for which sites windows do not wait; it stands in the log with the next cut.

        Who is behind when no more rows are expected has said that all it has is there.
        """
        state = self.state
        if state.missing is not None and brings_partials(self.source):
            policy, heard = self.definition.policy, self.source.heard(state.offset)
            missing = missing_now(policy, state.watermark, self.seen.idle, heard, state.missing)
            state.missing = {site: each for site, each in missing.items() if each.out or not finish}
            after = policy.absent_after or 0
            self.source.leave_out({site for site in state.missing if heard.for_how_long(site) >= after})

    def _injected(self) -> None:
        """Take the watermarks that came from the source without rows."""
        if self.definition.policy.from_source:
            injected = self.source.watermark(self.state.offset)
            self.state.watermark = self.state.watermark.committed((), injected)

    def ended(self) -> bool:
        """Tell whether no row can come any more and no window is left to close, or no query runs that needs any."""
        state = self.state
        if self._closing:  # what it gives is still on its way
            return False
        if not state.runs:
            return True
        if self.seen.away is not None or not self.source.exhausted(state.offset):
            return False
        return not self._closes_more(self.closes_all)

    @property
    def stuck(self) -> str | None:
        """Why this run can do no more for it, though it has not ended: it was halted, or what feeds it was."""
        if self.halted is not None:
            return self.halted.message
        starved = self.feed.starved(self.state.offset)
        return starved if starved and not self._closes_more(False) else None

    def _closes_more(self, all_windows: bool) -> bool:
        """Tell whether windows are left to close, those that the watermark has reached or all, when no rows come."""
        state = self.state
        if all_windows:
            return self.has_due(MAX_TIME, self.seen.at)
        known = self.source.watermark(state.offset) if self.definition.policy.from_source else None
        injected = MIN_TIME if known is None else known - self.definition.policy.delay
        return self.has_due(max(state.closed, state.watermark.value, injected), self.seen.at)

    def has_due(self, watermark: Micros, now: Micros) -> bool:
        """Tell whether a cut with the watermark would emit anything, here or in the streams that this one feeds."""
        if self.state.has_due(watermark, now):
            return True
        return any(reader.wants(watermark, now) for reader in self.readers)

    def close(self, cut: LoggedCut, ingested: Micros, settled: Set[str] = frozenset()) -> list[Closing]:
        """Close the windows that a logged cut completes, waiting for what is merged of files; see `begin_close`.

        Args:
            cut: The cut.
            ingested: When the row arrived that completed them.
            settled: Queries whose results of this cut nobody needs any more, at a replay.
        """
        closure = self.begin_close(cut, settled)
        return self.finish_close(cut, closure, ingested, () if closure is None else self.merge(closure))

    def begin_close(self, cut: LoggedCut, settled: Set[str] = frozenset()) -> Closure | None:
        """Begin to close the windows that a logged cut completes; the stream rests until `finish_close`."""
        self._closing = True
        if self.state.missing is not None:
            self.state.missing = cut.missing
        return self.state.begin_close(cut.watermark, cut.number, cut.at, cut.closed, settled)

    def merge(self, closure: Closure) -> Sequence[Merged]:
        """Return what came of a closure's merges of files; may run on another thread while the stream rests.

        Raises:
            CheckpointError: A file cannot be read.
        """
        return self.state.executors.run(closure.merges) if closure.merges else ()

    def finish_close(
        self, cut: LoggedCut, closure: Closure | None, ingested: Micros, done: Sequence[Merged]
    ) -> list[Closing]:
        """Return what a cut closed, and pass it on to the readers.

        Args:
            cut: The cut.
            closure: What `begin_close` returned.
            ingested: When the row arrived that completed the windows.
            done: What `merge` returned.
        """
        closings = [] if closure is None else self.state.finish_close(closure, done)
        self._closing = False
        for reader in self.readers:
            reader.closed(cut.number, closings, self.state.closed, ingested)
        return closings

    def tell_readers(self) -> None:
        """Tell the readers how far this stream is, as after a restart; they may have been added."""
        for reader in self.readers:
            reader.closed(self.state.cut, (), self.state.closed, 0)

    def waits_for_readers(self, limit: int) -> bool:
        """Tell whether so many bytes of results wait in a reader that this stream should give no more for now."""
        leaving = self.definition.leaving
        if leaving is not None and sum(sender.nbytes for sender in self.senders.values()) > leaving.most_bytes:
            return True
        return any(reader.held_bytes > limit for reader in self.readers)

    def backlog(self) -> int:
        """Return the rows, as the source estimates them, that it had at the last look and that are not committed."""
        return self.seen.backlog(self.state.offset)

    def needed(self) -> Offset | None:
        """Return the offset from which on rows may be read again; None when no query can run any more."""
        return self.state.offset if any(query.failure is None for query in self.state.queries.values()) else None

    def lacks_rows_of(self, cut: LoggedCut) -> None:
        """Note until when rows may lie that a logged cut leaves out; nothing happens the second time."""
        if cut.shed is not None and cut.shed.leaves_out:
            shares = self.state.shares
            shares.until = max(shares.until, MAX_TIME if cut.ahead is None else cut.ahead + 1)

    def commit(self, outcome: CutOutcome, tables: Sequence[pa.Table], arrived: Micros | None = None) -> dict[str, str]:
        """Take the outcome of a cut into the state, live or from the log.

        Returns:
            The queries that are to be taken out as their partials do not fit what they have, with the reason.

        Args:
            outcome: The outcome; its tables are not looked at, its files are.
            tables: The partials.
            arrived: When the newest of its rows arrived in the source; None where that is not known any more.
        """
        cut = outcome.cut
        if outcome.failures:
            for name, reason in outcome.failures.items():
                if name in self.state.queries:
                    self.state.drop_query(name, reason)
            self.rearrange()
        for query, rows in outcome.kept.items():
            buffers = [buffer for buffer in self.buffers if buffer.query == query]
            for buffer in buffers:
                buffer.keep(cut.number, rows)
            if not buffers:  # the query is not in the job any more
                publish_left(cut.number, rows)
        watermark = self.state.watermark
        if not cut.empty:
            injected = self.source.watermark(cut.end)
            watermark = watermark.committed(outcome.stats.newest, injected)
        if outcome.anew:
            self._begin_windows(1 + max((at for at in watermark.newest if at is not None), default=MIN_TIME))
        if cut.shed is not None:
            self.state.shares.add(cut.shed.stretches, cell_of(self.state.running()))
            self.lacks_rows_of(cut)
        partials = [PartialTable.of(table) for table in tables]
        self.tables.committed(self.compiler.lookup_tables(self.state.queries))
        if not self.leaves:
            failed = self.state.commit([*partials, *outcome.files], cut.end, watermark, outcome.early)
            return {name: str(error) for name, error in failed.items()}
        self.state.commit((), cut.end, watermark)
        return self._send(outcome, partials, cut.at if arrived is None else arrived)

    def _begin_windows(self, moment: Micros) -> None:
        """Give results from a moment on only, here and where they are read: windows before it may lack rows."""
        self.state.begin_windows(moment)
        for reader in self.readers:
            reader.child._begin_windows(max(moment, reader.child.feed.complete_from()))

    def _send(self, outcome: CutOutcome, partials: Sequence[PartialTable], arrived: Micros) -> dict[str, str]:
        """Give the partials of a cut to the flows; return the queries that are to be taken out, with the reason."""
        failed: dict[str, str] = {}
        for flow, sender in self.senders.items():
            query, cut = query_of(flow), outcome.cut
            try:
                runs = self.state.queries[query].failure is None
                sender.take(
                    cut.number, partials if runs else (), outcome.stats, arrived if outcome.stats.rows else None
                )
            except Exception as error:
                failed[query] = str(failure_of(query, error))
                sender.take(cut.number, (), outcome.stats, None)
        return failed

    def max_event_time(self) -> Micros | None:
        """Return the largest event time of the committed rows."""
        return max((t for t in self.state.watermark.newest if t is not None), default=None)
