"""Brings streams back to where the log of a checkpoint says they were, by replaying it in order."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from transom.checkpoint.history import Snapshot
from transom.checkpoint.store import Checkpoint
from transom.engine.changes.membership import begin_beside, begin_with
from transom.engine.changes.records import RECORD, Fate, Register, fate, type_changes, without_types
from transom.engine.loop.delivery import ResultBatch
from transom.engine.loop.logrecords import Begun, record_of
from transom.engine.loop.replay import Replay, committed_in, delivered_in, require_rows
from transom.engine.streams.cuts import LoggedCut
from transom.engine.streams.stream import RunningStream
from transom.errors import JobChangedError
from transom.sinks.base import WindowResults
from transom.sinks.outlets import ONLY, successors
from transom.windows.aggregates.widening import REMEDY
from transom.windows.components import DEFAULT, Arrangement


@dataclass
class RecoveredRun:
    """The run that the log describes: what is left to be done."""

    register: Register
    """The queries that the checkpoint knows."""
    fate: Fate
    """The fate of these and of the queries of the job."""
    batches: list[ResultBatch] = field(default_factory=list)
    """Results that not all sinks are known to have."""
    unfinished: dict[str, LoggedCut] = field(default_factory=dict)
    """Cuts that were logged and not committed, by stream."""
    learned: Mapping[str, Any] = field(default_factory=dict)
    """The scheduler's knowledge at the last snapshot."""
    resinked: bool = False
    """Whether queries have other sinks than in the checkpoint, so that a snapshot must come before the next cut."""
    notes: list[str] = field(default_factory=list)
    """News of sinks that came or went, for people."""
    retyped: bool = False
    """Whether columns have other types than in the checkpoint, so that a snapshot should hold the new ones."""


def snapshot_of(
    streams: Mapping[str, RunningStream],
    register: Register,
    logged: Mapping[str, LoggedCut],
    waiting: Sequence[ResultBatch],
    learned: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    """Return all that `recover` needs instead of the log so far, as JSON and tables.

    Args:
        streams: The streams.
        register: The queries that the checkpoint knows.
        logged: Cuts that are logged and not committed, by stream.
        waiting: Results that not all sinks have taken.
        learned: What the scheduler has learned; kept as it is, and decides no result.
    """
    here = definitions(streams)
    lost = {name: query for name, query in register.known.items() if name not in here}
    state: dict[str, Any] = {
        "definitions": here | {name: query.whole for name, query in lost.items()},
        "gone": register.gone,
        "lost": {
            name: {"complete_from": query.complete_from, "paused": query.paused, "failure": query.failure}
            for name, query in lost.items()
        },
        "sinks": {name: query.sinks for name, query in register.known.items()},
        "streams": {},
        "pending": [],
    }
    state["learned"] = dict(learned)
    tables: dict[str, pa.Table] = {}
    for name, stream in streams.items():
        values, held = stream.state.snapshot()
        cut = logged[name].to_json() if name in logged else None
        state["streams"][name] = {"state": values, "logged": cut, "arrangement": stream.arrangement.to_json()}
        state["streams"][name]["in_files"] = sorted(stream.options.in_files)
        state["streams"][name]["mark"] = stream.source.mark(stream.state.offset)
        if (waits := stream.feed.held()) is not None:
            state["streams"][name]["fed"], fed = waits
            held.update({f"fed:{item}": rows for item, rows in fed.items()})
        tables.update({f"{name}/{table}": value for table, value in held.items()})
    for batch in waiting:
        number = batch.results.cut
        state["pending"].append(
            {
                "query": batch.query,
                "cut": number,
                "windows": batch.windows,
                "ingested_at": batch.ingested_at,
                "keys": batch.results.keys,
                "sinks": batch.sinks,
            }
        )
        tables[f"pending/{batch.query}/{number}"] = batch.results.table
    return state, tables


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
    before = Register.of(saved)
    register = Register.at_end(saved, checkpoint.records)
    job = definitions(streams, offered=True)
    result, retimed = _compared(register, job, streams, lost)
    result.learned = saved.get("learned", {})
    begins = _begins(before, checkpoint.records)
    for stream in streams.values():
        known = {name for name in stream.definitions if name in before.known and begins[name] < 0}
        begin_with(stream, {name: before.known[name].state for name in known})
    records = [record_of(record) for record in checkpoint.records]
    delivered = delivered_in(records)
    if snapshot is not None:
        _restore(snapshot, streams, result)
        result.batches = [
            batch for batch in _pending(snapshot, delivered) if batch.sinks and begins.get(batch.query, 0) < 0
        ]
    read = committed_in(records, streams, result.unfinished)
    theirs = {name: query.sinks for name, query in register.known.items()}
    replay = Replay(checkpoint, streams, theirs, delivered, read, result.unfinished)
    for number, record in enumerate(records):
        result.batches.extend(replay.apply(record, {name for name in job if begins.get(name, number + 1) <= number}))
    begin_beside(streams, {*saved.get("streams", {}), *(each.stream for each in records if isinstance(each, Begun))})
    _arrange(streams, result.fate)
    _refuse_retimed(retimed, streams)
    running = {*lost, *(name for stream in streams.values() for name in stream.state.queries)}
    result.batches = [batch for batch in result.batches if batch.query in running]
    _give_to(result, {name: keys for name, keys in sinks.items() if name in running and name in theirs})
    return result


def _give_to(result: RecoveredRun, sinks: Mapping[str, Sequence[str]]) -> None:
    """Give what waits for the sinks that the checkpoint knows to those of the job, which may be others.

    Raises:
        JobChangedError: It cannot be told which sink takes what.
    """
    for name, new in sinks.items():
        query = result.register.known[name]
        if query.sinks == tuple(new):
            continue
        mine = [batch for batch in result.batches if batch.query == name]
        into = successors(name, query.sinks, new, {key for batch in mine for key in batch.sinks or ()})
        moved = [replace(batch, sinks=tuple(into[key] for key in batch.sinks or () if key in into)) for batch in mine]
        others = [batch for batch in result.batches if batch.query != name]
        result.batches = others + [batch for batch in moved if batch.sinks]
        result.register.known[name] = replace(query, sinks=tuple(new))
        result.resinked = True
        for key in query.sinks:
            if key not in into:
                dropped = sum(key in (batch.sinks or ()) for batch in mine)
                result.notes.append(
                    f"{name}: its sink {key} is not in the job any more"
                    + (f"; {dropped} results that waited for it are dropped." if dropped else ".")
                )
        for key in new:
            if key not in into.values():
                result.notes.append(f"{name}: its sink {key} is new; it gets the results from here on.")


def _compared(
    register: Register, job: Mapping[str, Any], streams: Mapping[str, RunningStream], lost: Set[str]
) -> tuple[RecoveredRun, Set[str]]:
    """Return what becomes of the queries, and those of which only the event time changed.

    Raises:
        JobChangedError: A query has another definition than in the checkpoint.
    """
    unchanged = {name: register.known[name].whole for name in lost if name in register.known}
    result = RecoveredRun(register, fate(register, {**job, **unchanged}))
    retimed = _retimed(register, job, streams, result.fate.changed)
    result.fate = replace(result.fate, changed=tuple(name for name in result.fate.changed if name not in retimed))
    _refuse_changed(register, job, result.fate)
    result.retyped = _refuse_retyped(register, job, streams) or bool(retimed)
    return result, retimed


def _arrange(streams: Mapping[str, RunningStream], verdict: Fate) -> None:
    """Compile the streams for the queries that are left, as the log says."""
    for name in verdict.dismissed:
        for stream in streams.values():
            stream.withdraw(name)
    for stream in streams.values():
        if not stream.state.queries:
            stream.rearrange()
    for stream in streams.values():
        if stream.arrangement != DEFAULT:
            stream.follow(stream.arrangement)


def _restore(snapshot: Snapshot, streams: Mapping[str, RunningStream], result: RecoveredRun) -> None:
    """Bring the streams to where they were at the snapshot; cuts that were under way then are unfinished."""
    for name, state in snapshot.state["streams"].items():
        if name not in streams:
            continue
        stream, prefix = streams[name], f"{name}/"
        tables = {
            table.removeprefix(prefix): value for table, value in snapshot.tables.items() if table.startswith(prefix)
        }
        stream.state.restore(state["state"], tables)
        stream.arrangement = Arrangement.from_json(state["arrangement"])
        stream.options = replace(stream.options, in_files=frozenset(state.get("in_files", ())))
        require_rows(stream, stream.state.offset, state.get("mark"))
        if "fed" in state:
            fed = {table.removeprefix("fed:"): rows for table, rows in tables.items() if table.startswith("fed:")}
            stream.feed.restore(state["fed"], fed)
        if state["logged"]:
            cut = result.unfinished[name] = LoggedCut.from_json(state["logged"])
            require_rows(stream, cut.end, cut.mark)


def _pending(snapshot: Snapshot, delivered: Set[tuple[str, int, str]]) -> list[ResultBatch]:
    """Return the results that not all sinks had at the snapshot, for those which do not have them now."""
    batches = []
    for item in snapshot.state["pending"]:
        table = snapshot.tables[f"pending/{item['query']}/{item['cut']}"]
        results = WindowResults(item["query"], item["cut"], table, tuple(item["keys"]))
        sinks = tuple(k for k in item.get("sinks", [ONLY]) if (item["query"], item["cut"], k) not in delivered)
        batches.append(ResultBatch(results, item["windows"], item["ingested_at"], sinks))
    return batches


def _begins(before: Register, records: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the number of the record with which the present life of each query begins; -1 for the snapshot."""
    begins = dict.fromkeys(before.known, -1)
    for number, record in enumerate(records):
        if record["type"] == RECORD:
            begins.update(dict.fromkeys(record["added"], number))
    return begins


def definitions(streams: Mapping[str, RunningStream], offered: bool = False) -> dict[str, dict[str, Any]]:
    """Return the definitions of the queries that the application has, as the checkpoint keeps them.

    Args:
        streams: The streams.
        offered: Take those of the job, whether the application has them or not.
    """
    found = {
        query: {"stream": stream.name, **definition}
        for stream in streams.values()
        for query, definition in stream.definitions.items()
        if offered or query in stream.state.queries
    }
    plain: dict[str, dict[str, Any]] = json.loads(json.dumps(found))
    return plain


def _refuse_changed(register: Register, job: Mapping[str, Any], verdict: Fate) -> None:
    if verdict.changed:
        differences = "\n".join(
            line
            for name in verdict.changed
            for line in _difference(name, without_types(register.known[name].whole), without_types(job[name]))
        )
        raise JobChangedError(
            f"The checkpoint {checkpoint_words(verdict.changed)} another definition than the job:\n{differences}\n",
            "Give a changed query a new name (it starts afresh), remove the old one from the running application "
            "first, or start with a new checkpoint.",
        )


def _refuse_retyped(register: Register, job: Mapping[str, Any], streams: Mapping[str, RunningStream]) -> bool:
    """Return whether columns have other types than in the checkpoint; raise when a query cannot go on with them."""
    queries = {query.name: query for stream in streams.values() for query in stream.definition.queries}
    found = [
        type_changes(register.known[name].definition, job[name], queries[name])
        for name in job
        if name in register.known and register.known[name].failure is None
    ]
    words = [text for _, texts in found for text in texts]
    if words:
        raise JobChangedError("Columns have other types than in the checkpoint:\n  " + "\n  ".join(words), REMEDY)
    return any(changed for changed, _ in found)


def _retimed(
    register: Register, job: Mapping[str, Any], streams: Mapping[str, RunningStream], changed: Sequence[str]
) -> Set[str]:
    """Return those of the queries that changed of which nothing did but the expression of the stream's event time."""
    candidates = {name for stream in streams.values() for name in stream.retimed}.intersection(changed)
    return {
        name
        for name in candidates
        if without_types(register.known[name].whole) | {"rows": job[name]["rows"]} == without_types(job[name])
    }


def _refuse_retimed(retimed: Set[str], streams: Mapping[str, RunningStream]) -> None:
    """Refuse another event time where it would mix with the former one in a window."""
    for stream in streams.values():
        names = sorted(retimed & stream.state.queries.keys())
        if names and stream.has_open_windows():
            raise JobChangedError(
                f"The event time of stream {stream.name!r} has another expression than in the checkpoint, which "
                f"{checkpoint_words(names)} open windows: their rows would have times of both.",
                "Run once with the former expression and close the windows (transom run --once --close-all), and "
                "then with the new one; or give the queries new names, which start afresh; the other streams go on.",
            )


def checkpoint_words(changed: Sequence[str]) -> str:
    """Return the queries that changed, in words."""
    names = ", ".join(repr(name) for name in changed)
    return f"has for {'the query' if len(changed) == 1 else 'the queries'} {names}"


def _difference(query: str, old: Any, new: Any) -> list[str]:
    before, after = (
        [f"{key}: {json.dumps(value) if not isinstance(value, str) else value}" for key, value in d.items()]
        for d in (old, new)
    )
    lines = list(difflib.unified_diff(before, after, f"{query} (checkpoint)", f"{query} (job)", lineterm="", n=0))
    return [f"  {line}" for line in lines if not line.startswith("@@")]
