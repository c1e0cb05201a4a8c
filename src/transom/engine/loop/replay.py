"""Replaying the log: one reducer, which does again what each record says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from transom.checkpoint.store import Checkpoint
from transom.engine.changes.membership import repeat
from transom.engine.changes.records import SetChange
from transom.engine.loop.delivery import ResultBatch
from transom.engine.loop.logrecords import Arrived, Begun, Committed, Delivered, Failed, LogRecord, Planned, Shipped
from transom.engine.partials.early import EarlyPartials
from transom.engine.streams.cuts import LoggedCut
from transom.engine.streams.stream import RunningStream
from transom.errors import CheckpointCorruptError, JobChangedError
from transom.model.lines import CORRUPT_REMEDY
from transom.sources.base import Mark, Offset


def delivered_in(records: Sequence[LogRecord | None]) -> frozenset[tuple[str, int, str]]:
    """Return the results that sinks are known to have, by query, cut and key of the sink."""
    return frozenset(item for record in records if isinstance(record, Delivered) for item in record.items)


def committed_in(
    records: Sequence[LogRecord | None], streams: Mapping[str, RunningStream], unfinished: Mapping[str, LoggedCut]
) -> dict[str, Offset]:
    """Return up to where each stream has committed its rows at the end of the log; both others as of the snapshot."""
    ends = {name: stream.state.offset for name, stream in streams.items()}
    logged = dict(unfinished)
    for record in records:
        if isinstance(record, Begun):
            logged[record.stream] = record.cut
        elif isinstance(record, Committed) and record.stream in logged:
            ends[record.stream] = logged[record.stream].end
    return ends


@dataclass
class Replay:
    """The streams as they are after the records so far. Only what concerns living queries is done again."""

    checkpoint: Checkpoint
    streams: Mapping[str, RunningStream]
    sinks: Mapping[str, Sequence[str]]
    """Keys of the sinks of each query, as the log knows them."""
    delivered: Set[tuple[str, int, str]]
    """Results that sinks have at the end of the log."""
    read: Mapping[str, Offset]
    """Up to where each stream has committed its rows at the end of the log."""
    reshaped: Set[str]
    """Queries whose results are other ones now than those that the log led to."""
    unfinished: dict[str, LoggedCut] = field(default_factory=dict)
    """Cuts that were logged and not committed so far, by stream."""

    def apply(self, record: LogRecord | None, alive: Set[str]) -> Iterator[ResultBatch]:
        """Do again what a record says; yield the results that not all sinks are known to have.

        Args:
            record: The record.
            alive: The queries whose present life has begun by then.

        Raises:
            CheckpointCorruptError: A table is missing or damaged, or an earlier record is missing.
        """
        match record:
            case SetChange(stream=name) if name in self.streams:
                change = record.only(alive)
                if change.names:
                    repeat(self.streams[name], change)
            case Failed(query, error) if query in alive:
                for stream in self.streams.values():
                    if query in stream.state.queries:
                        stream.fail(query, error)
            case Planned(name, arrangement) if name in self.streams:
                self.streams[name].compiler.arrangement = arrangement
            case Begun(name, cut) if name in self.streams:
                yield from self._begin(self.streams[name], cut)
            case Committed(stream=name) if name in self.streams:
                self._commit(self.streams[name], record, alive)
            case Shipped(name, flow, upto, tick) if name in self.streams and flow in self.streams[name].senders:
                self.streams[name].senders[flow].fix(upto, tick)
            case Arrived(name, flow, upto) if name in self.streams and flow in self.streams[name].senders:
                self.streams[name].senders[flow].arrived_up_to(upto)

    def _begin(self, stream: RunningStream, cut: LoggedCut) -> Iterator[ResultBatch]:
        self.unfinished[stream.name] = cut
        require_rows(stream, cut.end, cut.mark)
        settled = self._settled(stream, cut.number)
        for closing in stream.close(cut, cut.at, settled):
            if closing.query in self.reshaped - settled and closing.windows:
                raise _reshaped_too_early(closing.query)
            if closing.error is not None:  # perhaps it was killed before it could log that
                stream.fail(closing.query, str(closing.error))
            elif closing.results is not None and (missing := self._missing(closing.query, cut.number)):
                yield ResultBatch(closing.results, closing.windows, cut.at, missing)

    def _missing(self, query: str, cut: int) -> tuple[str, ...]:
        """Return the sinks that are not known to have the results of a query's cut."""
        return tuple(key for key in self.sinks.get(query, ()) if (query, cut, key) not in self.delivered)

    def _settled(self, stream: RunningStream, cut: int) -> frozenset[str]:
        """Return the queries whose results of a cut nobody needs: the sinks have them, and so have those who read."""
        waiting = {reader.query for reader in stream.readers if not reader.has_read(cut, self.read[reader.child.name])}
        return frozenset(name for name in stream.state.queries if name not in waiting and not self._missing(name, cut))

    def _commit(self, stream: RunningStream, record: Committed, alive: Set[str]) -> None:
        written = record.tables
        tables = list(self.checkpoint.read_tables(written["name"], written).values()) if written else []
        outcome = replace(record.outcome(self._finished(record)), early=self._early(record))
        failures = {query: why for query, why in outcome.failures.items() if query in alive}
        for query, reason in stream.commit(replace(outcome, failures=failures), tables).items():
            stream.fail(query, reason)  # it was killed before it could log that

    def _early(self, record: Committed) -> EarlyPartials | None:
        if record.early is None:
            return None
        written = record.early["tables"]
        tables = self.checkpoint.read_tables(written["name"], written).values() if written else ()
        return EarlyPartials(tuple(tables), record.early["failure"])

    def _finished(self, record: Committed) -> LoggedCut:
        """Return the cut that a commit is of.

        Raises:
            CheckpointCorruptError: It is not in the log, as can be where lines are not numbered (format 1).
        """
        cut = self.unfinished.pop(record.stream, None)
        if cut is None or cut.number != record.number:
            raise CheckpointCorruptError(
                f"The log lacks a record: the cut of stream {record.stream!r} that is committed as number "
                f"{record.number}.",
                CORRUPT_REMEDY,
            )
        return cut


def _reshaped_too_early(query: str) -> JobChangedError:
    return JobChangedError(
        f"The query {query!r} has another having, select or rename than in the checkpoint, which has windows that "
        "closed before the application ended without saying so, as after a kill: some may be written, some not.",
        "Run once with the former ones (transom run --once), which ends what was under way, and then with the new "
        "ones; or give the query a new name, which starts afresh.",
    )


def require_rows(stream: RunningStream, offset: Offset, mark: Mark) -> None:
    """Return when the source of a stream has the rows before an offset that the log tells of, as far as it knows.

    Raises:
        CheckpointCorruptError: It has others, or lacks some.
    """
    found = stream.source.mark(offset) if mark is not None else None
    if found not in (None, mark):
        raise CheckpointCorruptError(
            f"Stream {stream.name!r}: what the checkpoint keeps in sources/{stream.definition.source_name} tells of "
            f"other rows before offset {offset} than its log.",
            CORRUPT_REMEDY,
        )
