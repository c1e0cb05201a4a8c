"""Brings streams back to where the log of a checkpoint says they were, by replaying it in order."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from transom.checkpoint.store import Checkpoint
from transom.engine.delivery import Parcel
from transom.engine.derived import DerivedSource
from transom.engine.spark.jobs import CutStats
from transom.engine.state import QueryState, StreamState
from transom.engine.stream import CutOutcome, LoggedCut, Stream
from transom.errors import JobChangedError
from transom.model.time import MAX_TIME, MIN_TIME, Micros
from transom.sinks.base import WindowResults
from transom.windows.components import DEFAULT, Arrangement


@dataclass
class Recovered:
    """What the log left to be done."""

    parcels: list[Parcel] = field(default_factory=list)
    """Results that no sink is known to have."""
    unfinished: dict[str, LoggedCut] = field(default_factory=dict)
    """Cuts that were logged and not committed, by stream."""
    added: list[str] = field(default_factory=list)
    """Queries that the checkpoint did not know."""
    removed: list[str] = field(default_factory=list)


def snapshot_of(
    streams: Mapping[str, Stream], logged: Mapping[str, LoggedCut], waiting: Sequence[Parcel]
) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    """Return all that `recover` needs instead of the log so far, as JSON and tables.

    Args:
        streams: The streams.
        logged: Cuts that are logged and not committed, by stream.
        waiting: Results that no sink has taken.
    """
    state: dict[str, Any] = {"definitions": definitions(streams), "streams": {}, "pending": []}
    tables: dict[str, pa.Table] = {}
    for name, stream in streams.items():
        values, held = stream.state.snapshot()
        cut = logged[name].to_json() if name in logged else None
        state["streams"][name] = {"state": values, "logged": cut, "arrangement": stream.arrangement.to_json()}
        if isinstance(stream.source, DerivedSource):
            state["streams"][name]["fed"], fed = stream.source.held()
            held.update({f"fed:{item}": rows for item, rows in fed.items()})
        tables.update({f"{name}/{table}": value for table, value in held.items()})
    for parcel in waiting:
        number = parcel.results.cut
        state["pending"].append(
            {
                "query": parcel.query,
                "cut": number,
                "windows": parcel.windows,
                "ingested_at": parcel.ingested_at,
                "keys": parcel.results.keys,
            }
        )
        tables[f"pending/{parcel.query}/{number}"] = parcel.results.table
    return state, tables


def recover(checkpoint: Checkpoint, streams: Mapping[str, Stream]) -> Recovered:
    """Replay the checkpoint into freshly made streams.

    Raises:
        JobChangedError: A query has another definition than in the checkpoint.
        CheckpointCorruptError: A table is missing or damaged.
    """
    result = Recovered()
    snapshot = checkpoint.snapshot
    saved: dict[str, Any] = dict(snapshot.state) if snapshot else {}
    runs = [record for record in checkpoint.records if record["type"] == "run"]
    known: dict[str, dict[str, Any]] = runs[-1]["definitions"] if runs else saved.get("definitions", {})
    now = definitions(streams)
    _compare(known, now, result)
    for name, state in saved.get("streams", {}).items():
        if name in streams:
            tables = {
                table.removeprefix(f"{name}/"): value
                for table, value in (snapshot.tables if snapshot else {}).items()
                if table.startswith(f"{name}/")
            }
            streams[name].state.restore(state["state"], tables)
            streams[name].arrangement = Arrangement.from_json(state["arrangement"])
            source = streams[name].source
            if isinstance(source, DerivedSource) and "fed" in state:
                fed = {t.removeprefix("fed:"): rows for t, rows in tables.items() if t.startswith("fed:")}
                source.restore(state["fed"], fed)
            if state["logged"]:
                result.unfinished[name] = LoggedCut.from_json(state["logged"])
    delivered = {
        (item[0], item[1]) for record in checkpoint.records if record["type"] == "delivered" for item in record["items"]
    }
    for item in saved.get("pending", []):
        key = (item["query"], item["cut"])
        if key not in delivered and item["query"] in now and item["query"] not in result.added:
            table = snapshot.tables[f"pending/{item['query']}/{item['cut']}"] if snapshot else None
            results = WindowResults(item["query"], item["cut"], table, tuple(item["keys"]))
            result.parcels.append(Parcel(results, item["windows"], item["ingested_at"]))
    for query in result.added:
        _state_of(streams, query).queries[query] = QueryState(MAX_TIME)
    for stream in streams.values():
        if any(query.failure is not None for query in stream.state.queries.values()):
            stream.rearrange()
    for record in checkpoint.records:
        _replay(checkpoint, record, streams, delivered, result)
    for stream in streams.values():
        if stream.arrangement != DEFAULT:
            stream.follow(stream.arrangement)
        moment = _complete_from(stream)
        for query in stream.state.queries:
            if query in result.added:
                stream.state.queries[query] = QueryState(moment)
        stream.tell_readers()
        if isinstance(stream.source, DerivedSource):
            stream.source.release(stream.state.offset)
    return result


def _complete_from(stream: Stream) -> Micros:
    """Return the moment from which on a query that is added now sees all rows; parents come before."""
    newest = stream.max_event_time()
    moment = MIN_TIME if newest is None else newest + 1
    return max(moment, stream.source.complete_from()) if isinstance(stream.source, DerivedSource) else moment


def _replay(
    checkpoint: Checkpoint,
    record: Mapping[str, Any],
    streams: Mapping[str, Stream],
    delivered: set[tuple[str, int]],
    result: Recovered,
) -> None:
    """Do again what the record tells of; what it says of a query that was removed since then and is new now is over."""
    kind = record["type"]
    if kind == "run":
        for query, moment in record["complete_from"].items():
            for stream in streams.values():
                if query in stream.state.queries and query not in result.added:
                    queries = stream.state.queries
                    queries[query] = replace(queries[query], complete_from=moment)
    elif kind == "failed":
        for stream in streams.values():
            if record["query"] in stream.state.queries and record["query"] not in result.added:
                stream.fail(record["query"], record["error"])
    elif kind == "plan" and record["stream"] in streams:
        streams[record["stream"]].arrangement = Arrangement.from_json(record["arrangement"])
    elif kind == "cut" and record["stream"] in streams:
        stream = streams[record["stream"]]
        cut = LoggedCut.from_json(record["cut"])
        result.unfinished[stream.name] = cut
        for closing in stream.close(cut, cut.at):
            if closing.error is not None:  # perhaps it was killed before it could log that
                stream.fail(closing.query, str(closing.error))
            elif closing.results is not None and (closing.query, cut.number) not in delivered:
                result.parcels.append(Parcel(closing.results, closing.windows, cut.at))
    elif kind == "commit" and record["stream"] in streams:
        stream = streams[record["stream"]]
        written = record["tables"]
        tables = list(checkpoint.read_tables(written["name"], written).values()) if written else []
        cut = result.unfinished.pop(stream.name)
        outcome = CutOutcome(
            cut,
            stats=CutStats.from_json(record["stats"]),
            failures={query: why for query, why in record["failures"].items() if query not in result.added},
            skipped=record["skipped"],
        )
        stream.commit(outcome, tables)


def _state_of(streams: Mapping[str, Stream], query: str) -> StreamState:
    return next(stream.state for stream in streams.values() if query in stream.state.queries)


def definitions(streams: Mapping[str, Stream]) -> dict[str, Any]:
    """Return the definitions of all queries, as the checkpoint keeps them."""
    return {
        query: {"stream": stream.name, **definition}
        for stream in streams.values()
        for query, definition in stream.definitions.items()
    }


def _compare(known: Mapping[str, Any], now: Mapping[str, Any], result: Recovered) -> None:
    result.added = [query for query in now if query not in known]
    result.removed = [query for query in known if query not in now]
    changed = [query for query in now if query in known and _plain(now[query]) != _plain(known[query])]
    if changed:
        differences = "\n".join(line for query in changed for line in _difference(query, known[query], now[query]))
        raise JobChangedError(
            f"The checkpoint {checkpoint_words(changed)} another definition than the job:\n{differences}\n",
            "Give a changed query a new name (it starts afresh), or start with a new checkpoint.",
        )


def checkpoint_words(changed: Sequence[str]) -> str:
    """Return the queries that changed, in words."""
    names = ", ".join(repr(name) for name in changed)
    return f"has for {'the query' if len(changed) == 1 else 'the queries'} {names}"


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _difference(query: str, old: Any, new: Any) -> list[str]:
    before, after = (
        [f"{key}: {json.dumps(value) if not isinstance(value, str) else value}" for key, value in d.items()]
        for d in (_plain(old), _plain(new))
    )
    lines = list(difflib.unified_diff(before, after, f"{query} (checkpoint)", f"{query} (job)", lineterm="", n=0))
    return [f"  {line}" for line in lines if not line.startswith("@@")]
