"""The job against the checkpoint: which queries are the same, and what has changed that must not."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from transom.engine.changes.records import Fate, Register, fate, type_changes, without_types
from transom.engine.streams.stream import RunningStream
from transom.errors import JobChangedError
from transom.windows.aggregates.widening import REMEDY


@dataclass(frozen=True)
class Comparison:
    """The outcome for a job that can go on with the checkpoint."""

    fate: Fate
    """The fate of the queries that the checkpoint knows and of those of the job."""
    retimed: Set[str]
    """Queries of which only the event time changed."""
    reshaped: Set[str]
    """Queries of which only changed what becomes of their aggregates: conditions, columns, names."""
    retyped: bool
    """Whether columns, or the event time, have other types or expressions than in the checkpoint."""


def compare(
    register: Register, job: Mapping[str, Any], streams: Mapping[str, RunningStream], lost: Set[str]
) -> Comparison:
    """Compare the job with what the checkpoint knows.

    Args:
        register: The queries that the checkpoint knows.
        job: The definitions of the job's queries.
        streams: The streams.
        lost: Queries of the job that failed and are in no stream; they are taken for unchanged.

    Raises:
        JobChangedError: A query has another definition than in the checkpoint, or columns have types that it cannot
            go on with.
    """
    unchanged = {name: register.known[name].whole for name in lost if name in register.known}
    verdict = fate(register, {**job, **unchanged})
    retimed = _retimed(register, job, streams, verdict.changed)
    reshaped = {
        name
        for name in verdict.changed
        if register.known[name].failure is None and _differ_in(register, job, name) <= {"results"}
    }
    changed = tuple(name for name in verdict.changed if name not in retimed | reshaped)
    verdict = replace(verdict, changed=changed)
    _refuse_changed(register, job, verdict)
    retyped = _refuse_retyped(register, job, streams)
    return Comparison(verdict, retimed, reshaped, retyped or bool(retimed) or bool(reshaped))


def definitions(streams: Mapping[str, RunningStream], offered: bool = False) -> dict[str, dict[str, Any]]:
    """Return the definitions of the queries that the application has, as the checkpoint keeps them.

    Args:
        streams: The streams.
        offered: Take those of the job, whether the application has them or not.
    """
    found = {
        query: {"stream": stream.name, **definition}
        for stream in streams.values()
        for query, definition in stream.compiler.definitions.items()
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
            f"The checkpoint {_words(verdict.changed)} another definition than the job:\n{differences}\n",
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
    candidates = {name for stream in streams.values() for name in stream.compiler.retimed}.intersection(changed)
    return {name for name in candidates if _differ_in(register, job, name) <= {"rows"}}


def _differ_in(register: Register, job: Mapping[str, Any], name: str) -> Set[str]:
    """Return in what the definitions of a query differ that make it another one."""
    old, new = without_types(register.known[name].whole), without_types(job[name])
    return {part for part in old.keys() | new.keys() if old.get(part) != new.get(part)}


def refuse_mixed_times(retimed: Set[str], streams: Mapping[str, RunningStream]) -> None:
    """Refuse another event time where it would mix with the former one in a window.

    Args:
        retimed: Queries of which only the event time changed.
        streams: The streams, as they were left.

    Raises:
        JobChangedError: Windows of one are open.
    """
    for stream in streams.values():
        names = sorted(retimed & stream.state.queries.keys())
        if names and stream.has_open_windows():
            raise JobChangedError(
                f"The event time of stream {stream.name!r} has another expression than in the checkpoint, which "
                f"{_words(names)} open windows: their rows would have times of both.",
                "Run once with the former expression and close the windows (transom run --once --close-all), and "
                "then with the new one; or give the queries new names, which start afresh; the other streams go on.",
            )


def _words(changed: Sequence[str]) -> str:
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
