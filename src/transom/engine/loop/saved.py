"""The state of a run as a snapshot has it: JSON and tables, written here and read here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import pyarrow as pa

from transom.checkpoint.history import Snapshot
from transom.engine.changes.records import Register
from transom.engine.loop.comparing import definitions
from transom.engine.loop.delivery import ResultBatch
from transom.engine.loop.replay import require_rows
from transom.engine.streams.cuts import LoggedCut
from transom.engine.streams.stream import RunningStream
from transom.sinks.base import WindowResults
from transom.sinks.outlets import ONLY
from transom.windows.components import Arrangement


def snapshot_of(
    streams: Mapping[str, RunningStream],
    register: Register,
    logged: Mapping[str, LoggedCut],
    waiting: Sequence[ResultBatch],
    kept: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    """Return all that a restart needs instead of the log so far, as JSON and tables.

    Args:
        streams: The streams.
        register: The queries that the checkpoint knows.
        logged: Cuts that are logged and not committed, by stream.
        waiting: Results that not all sinks have taken.
        kept: What was learned and tuned; it is kept as it is, and decides no result.
    """
    here = definitions(streams)
    lost = {name: query for name, query in register.known.items() if name not in here}
    state: dict[str, Any] = {
        "definitions": here | {name: query.whole for name, query in lost.items()},
        "gone": register.gone,
        "forgotten": register.forgotten,
        "lost": {
            name: {"complete_from": query.complete_from, "paused": query.paused, "failure": query.failure}
            for name, query in lost.items()
        },
        "sinks": {name: query.sinks for name, query in register.known.items()},
        "streams": {},
        "pending": [_waiting(batch) for batch in waiting],
        **kept,
    }
    tables: dict[str, pa.Table] = {}
    for name, stream in streams.items():
        state["streams"][name], held = _stream(stream, logged.get(name))
        tables.update({f"{name}/{table}": value for table, value in held.items()})
    tables.update({f"pending/{batch.query}/{batch.results.cut}": batch.results.table for batch in waiting})
    return state, tables


def _stream(stream: RunningStream, logged: LoggedCut | None) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    values, held = stream.state.snapshot()
    state: dict[str, Any] = {
        "state": values,
        "logged": None if logged is None else logged.to_json(),
        "arrangement": stream.compiler.arrangement.to_json(),
        "in_files": sorted(stream.options.in_files),
        "mark": stream.source.mark(stream.state.offset),
    }
    if (waits := stream.feed.held()) is not None:
        state["fed"], fed = waits
        held.update({f"fed:{item}": rows for item, rows in fed.items()})
    if stream.senders:
        state["senders"] = {}
    for flow, sender in stream.senders.items():
        state["senders"][flow], gathered = sender.held()
        held.update({f"sender:{flow}/{item}": rows for item, rows in gathered.items()})
    return state, held


def _waiting(batch: ResultBatch) -> dict[str, Any]:
    return {
        "query": batch.query,
        "cut": batch.results.cut,
        "windows": batch.windows,
        "ingested_at": batch.ingested_at,
        "keys": batch.results.keys,
        "sinks": batch.sinks,
    }


def restore(snapshot: Snapshot, streams: Mapping[str, RunningStream]) -> dict[str, LoggedCut]:
    """Bring the streams to where they were at a snapshot; return the cuts that were under way then, by stream.

    Raises:
        CheckpointCorruptError: A source has other rows than the snapshot tells of.
    """
    unfinished: dict[str, LoggedCut] = {}
    for name, state in snapshot.state["streams"].items():
        if name not in streams:
            continue
        stream, prefix = streams[name], f"{name}/"
        tables = _with_prefix(snapshot.tables, prefix)
        stream.state.restore(state["state"], tables)
        stream.compiler.arrangement = Arrangement.from_json(state["arrangement"])
        stream.options = replace(stream.options, in_files=frozenset(state.get("in_files", ())))
        require_rows(stream, stream.state.offset, state.get("mark"))
        if "fed" in state:
            fed = _with_prefix(tables, "fed:")
            stream.feed.restore(state["fed"], fed)
        for flow, sender in state.get("senders", {}).items():
            if flow in stream.senders:
                stream.senders[flow].restore(sender, _with_prefix(tables, f"sender:{flow}/"))
        if state["logged"]:
            cut = unfinished[name] = LoggedCut.from_json(state["logged"])
            require_rows(stream, cut.end, cut.mark)
    return unfinished


def _with_prefix(tables: Mapping[str, pa.Table], prefix: str) -> dict[str, pa.Table]:
    """Return the tables whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): table for name, table in tables.items() if name.startswith(prefix)}


def pending(snapshot: Snapshot, delivered: Set[tuple[str, int, str]]) -> list[ResultBatch]:
    """Return the results that not all sinks had at the snapshot, for those which do not have them now.

    Args:
        snapshot: The snapshot.
        delivered: Results that sinks have got since then, by query, cut and key of the sink.
    """
    batches = []
    for item in snapshot.state["pending"]:
        table = snapshot.tables[f"pending/{item['query']}/{item['cut']}"]
        results = WindowResults(item["query"], item["cut"], table, tuple(item["keys"]))
        sinks = tuple(k for k in item.get("sinks", [ONLY]) if (item["query"], item["cut"], k) not in delivered)
        batches.append(ResultBatch(results, item["windows"], item["ingested_at"], sinks))
    return batches
