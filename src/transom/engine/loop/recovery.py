"""Brings streams back to where the log of a checkpoint says they were, by replaying it in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from transom.checkpoint.store import Checkpoint
from transom.engine.changes.membership import begin_beside, begin_with
from transom.engine.changes.records import RECORD, Fate, Register, streams_begun
from transom.engine.loop.comparing import compare, definitions, refuse_mixed_times
from transom.engine.loop.delivery import ResultBatch
from transom.engine.loop.logrecords import LogRecord, Tuned, record_of
from transom.engine.loop.replay import Replay, committed_in, delivered_in
from transom.engine.loop.rerouting import rerouted
from transom.engine.loop.saved import pending, restore
from transom.engine.streams.cuts import LoggedCut
from transom.engine.streams.stream import RunningStream
from transom.windows.components import DEFAULT


@dataclass(frozen=True)
class RecoveredRun:
    """The run that the log describes: what is left to be done."""

    register: Register
    """The queries that the checkpoint knows."""
    fate: Fate
    """The fate of these and of the queries of the job."""
    batches: list[ResultBatch]
    """Results that not all sinks are known to have."""
    unfinished: dict[str, LoggedCut]
    """Cuts that were logged and not committed, by stream."""
    learned: Mapping[str, Any]
    """The scheduler's knowledge at the last snapshot."""
    tunings: Sequence[Tuned]
    """The last changes of the tuning."""
    profile: Mapping[str, Any]
    """What was known of costs at the last snapshot; empty in older ones."""
    resinked: bool
    """Whether queries have other sinks than in the checkpoint, so that a snapshot must come before the next cut."""
    notes: list[str]
    """News of sinks that came or went, for people."""
    retyped: bool
    """Whether columns have other types than in the checkpoint, so that a snapshot should hold the new ones."""
    away: Set[str]
    """Streams that the checkpoint still knows and the job does not have, so that a snapshot should forget them."""


def recover(
    checkpoint: Checkpoint,
    streams: Mapping[str, RunningStream],
    sinks: Mapping[str, Sequence[str]],
    lost: Set[str] = frozenset(),
) -> RecoveredRun:
    """Replay the checkpoint into freshly made streams; queries that it does not know are not in their states then.

    Args:
        checkpoint: Open checkpoint.
        streams: The streams.
        sinks: Keys of the sinks of each query of the job.
        lost: Queries of the job that failed and are in no stream, because they cannot be compiled any more.

    Each query runs, is paused and ends where the log says, so that the stores hold at each moment what they held
    when it was written. What the log tells of an earlier life of a query that was removed and came back is passed over.

    Raises:
        JobChangedError: A query has another definition than in the checkpoint.
        CheckpointCorruptError: A table is missing or damaged.
    """
    snapshot = checkpoint.snapshot
    saved: dict[str, Any] = dict(snapshot.state) if snapshot else {}
    job = definitions(streams, offered=True)
    before, register = Register.of(saved), Register.at_end(saved, checkpoint.records, job.keys())
    compared = compare(register, job, streams, lost)
    begins = _begins(before, checkpoint.records)
    for stream in streams.values():
        known = {name for name in stream.compiler.definitions if name in before.known and begins[name] < 0}
        begin_with(stream, {name: before.known[name].state for name in known})
    unfinished = restore(snapshot, streams) if snapshot else {}
    records = [record_of(record) for record in checkpoint.records]
    theirs = {name: query.sinks for name, query in register.known.items()}
    batches = _replayed(checkpoint, streams, theirs, records, begins, unfinished, job.keys(), compared.reshaped)
    begun = streams_begun(saved, checkpoint.records)
    begin_beside(streams, begun)
    _arrange(streams, compared.fate)
    refuse_mixed_times(compared.retimed, streams)
    running = {*lost, *(name for stream in streams.values() for name in stream.state.queries)}
    batches = [batch for batch in batches if batch.query in running]
    ours = {name: keys for name, keys in sinks.items() if name in running and name in theirs}
    batches, resinked, notes = rerouted(batches, register, ours)
    return RecoveredRun(
        register,
        compared.fate,
        batches,
        unfinished,
        saved.get("learned", {}),
        _tunings(saved, records),
        saved.get("profile", {}),
        resinked,
        notes,
        compared.retyped,
        begun - streams.keys(),
    )


def _tunings(saved: Mapping[str, Any], records: Sequence[LogRecord | None]) -> list[Tuned]:
    """Return the changes of the tuning, in the snapshot and then in the log; older ones have none."""
    before = [Tuned.from_json(each) for each in saved.get("tunings", ())]
    return [each for each in (*before, *records) if isinstance(each, Tuned)]


def _replayed(
    checkpoint: Checkpoint,
    streams: Mapping[str, RunningStream],
    sinks: Mapping[str, Sequence[str]],
    records: Sequence[LogRecord | None],
    begins: Mapping[str, int],
    unfinished: dict[str, LoggedCut],
    job: Set[str],
    reshaped: Set[str],
) -> list[ResultBatch]:
    """Do again what the log says, and return the results that not all sinks are known to have.

    Args:
        checkpoint: Open checkpoint.
        streams: The streams, as at the snapshot.
        sinks: Keys of the sinks of each query, as the log knows them.
        records: The log since then.
        begins: The record with which the present life of each query begins.
        unfinished: Cuts that were logged and not committed at the snapshot; at the end of the log afterwards.
        job: The queries of the job.
        reshaped: Those whose conditions, columns or names of results are other ones than the checkpoint's.
    """
    delivered = delivered_in(records)
    before = pending(checkpoint.snapshot, delivered) if checkpoint.snapshot else ()
    batches = [batch for batch in before if batch.sinks and begins.get(batch.query, 0) < 0]
    read = committed_in(records, streams, unfinished)
    replay = Replay(checkpoint, streams, sinks, delivered, read, reshaped, unfinished)
    for number, record in enumerate(records):
        batches.extend(replay.apply(record, {name for name in job if begins.get(name, number + 1) <= number}))
    return batches


def _begins(before: Register, records: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the number of the record with which the present life of each query begins; -1 for the snapshot."""
    begins = dict.fromkeys(before.known, -1)
    for number, record in enumerate(records):
        if record["type"] == RECORD:
            begins.update(dict.fromkeys(record["added"], number))
    return begins


def _arrange(streams: Mapping[str, RunningStream], verdict: Fate) -> None:
    """Compile the streams for the queries that are left, as the log says."""
    for name in verdict.dismissed:
        for stream in streams.values():
            stream.compiler.withdraw(name)
    for stream in streams.values():
        if not stream.state.queries:
            stream.rearrange()
    for stream in streams.values():
        if stream.compiler.arrangement != DEFAULT:
            stream.follow(stream.compiler.arrangement)
