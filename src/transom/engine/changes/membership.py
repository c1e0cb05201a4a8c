"""Queries come to a stream that runs, and leave it: what a change would be, and making it so. No effects but memory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from transom.engine.changes.records import SetChange
from transom.engine.partials.history import Sources, complete_from, sources_of
from transom.engine.spark.compile import Compiled
from transom.engine.state.queries import QueryState
from transom.engine.streams.stream import RunningStream
from transom.errors import DefinitionError, TransomError
from transom.failures import require_blame
from transom.model.time import MAX_TIME, MIN_TIME, Micros
from transom.windows.query import WindowedQuery


@dataclass(frozen=True)
class Proposal:
    """A change of a stream's queries that can be made at once."""

    change: SetChange
    compiled: Compiled
    """The queries that run then."""
    sources: tuple[Sources, ...]
    """For each store that there is then, where its panes come from."""


def propose(
    stream: RunningStream,
    added: Sequence[str] = (),
    resumed: Sequence[str] = (),
    paused: Sequence[str] = (),
    removed: Sequence[str] = (),
) -> Proposal:
    """Return the change that makes some queries come and others leave; nothing changes yet.

    Args:
        stream: The stream; its definition has the queries that come.
        added: New queries.
        resumed: Queries that were paused.
        paused: Queries that run.
        removed: Queries of the stream.

    Raises:
        DefinitionError: A query that comes cannot work.
        TransomError: No query is to blame.
    """
    begun, ended = frozenset((*added, *resumed)), frozenset((*paused, *removed))
    running = {query.name for query in stream.state.running()}
    try:
        compiled = stream.compiler.shape((running | begun) - ended)
    except TransomError:
        raise
    except Exception as error:
        names = ", ".join(map(repr, sorted(begun)))
        require_blame(error, f"Compiling query {names}")
        raise DefinitionError(
            f"query {names}: its transformations fail: {type(error).__name__}: {error}.", "Correct its map()."
        ) from error
    held = stream.state.held()
    sources = tuple(sources_of(key_set, origin, held, begun) for key_set, origin, *_ in compiled.stores)
    of_query = {
        query.name: each for shape, each in zip(compiled.stores, sources, strict=True) for query in shape[0].queries
    }
    coming = [compiled.queries[name].query for name in (*added, *resumed)]
    newer = unseen(stream) if coming else MIN_TIME
    moments = {query.name: _complete_from(stream, query, of_query[query.name], newer) for query in coming}
    change = SetChange(
        stream.name,
        added={name: moments[name] for name in added},
        definitions=json.loads(json.dumps({name: stream.compiler.definitions[name] for name in added})),
        resumed={name: moments[name] for name in resumed},
        paused=tuple(paused),
        removed=tuple(removed),
    )
    return Proposal(change, compiled, sources)


def _complete_from(stream: RunningStream, query: WindowedQuery, sources: Sources, newer: Micros) -> Micros:
    """Return the start of the earliest complete window of a query that comes.

    Corrections of a window that closed before the query came would come without its first result, so that the windows
    of a query with lateness start after what is closed.

    Args:
        stream: The stream.
        query: The query.
        sources: Where the panes come from that its store will have.
        newer: What `unseen` returns.
    """
    moment = complete_from(query, sources, newer)
    if any(buffer.query == query.name and buffer.late_of is None for buffer in stream.buffers):
        # There may be panes, but no rows.
        moment = max(moment, newer)
    if not query.sheds:
        moment = max(moment, _whole_from(stream, query.name))
    closed = stream.state.closed if query.lateness else MIN_TIME
    return max(moment, closed)


def _whole_from(stream: RunningStream, name: str) -> Micros:
    """Return the moment from which on nothing was left out of a stream, for a query that wants all rows.

    Raises:
        DefinitionError: There is none.
    """
    moment = stream.state.shares.until
    if moment == MAX_TIME:
        raise DefinitionError(
            f"query {name!r}: rows of its stream were left out under overload, and with max_ahead=None nobody knows of "
            "which windows.",
            'Add on_overload="shed" to its within(), or use a new checkpoint.',
        )
    return moment


def unseen(stream: RunningStream) -> Micros:
    """Return the moment from which on a stream will have read all rows, whatever it has read so far."""
    newest = stream.max_event_time()
    moment = MIN_TIME if newest is None else newest + 1
    return max(moment, stream.feed.complete_from())


def enact(stream: RunningStream, proposal: Proposal) -> None:
    """Make a change; it was proposed for the stream as it is now."""
    state, change = stream.state, proposal.change
    state.cut = max(state.cut, change.after)
    for name, moment in change.begun.items():
        state.compiled[name] = proposal.compiled.queries[name]
        state.queries[name] = QueryState(moment)
    for name in change.paused:
        state.queries[name] = replace(state.queries[name], paused=True)
    for name in change.removed:
        del state.queries[name], state.compiled[name]
        stream.compiler.withdraw(name)
    stream.compiled = proposal.compiled
    state.arrange(proposal.compiled.stores, proposal.sources)
    stream.tables.committed(stream.compiler.lookup_tables(state.queries))


def repeat(stream: RunningStream, change: SetChange) -> None:
    """Make a change of the log again.

    The windows of a query are complete no earlier than the panes allow that are there now: those of a query that was
    there when the change was logged, and that the job does not have any more, are not.
    """
    proposal = propose(stream, tuple(change.added), tuple(change.resumed), change.paused, change.removed)
    now = proposal.change
    later = replace(
        now,
        added={name: max(moment, now.added[name]) for name, moment in change.added.items()},
        resumed={name: max(moment, now.resumed[name]) for name, moment in change.resumed.items()},
        after=change.after,
    )
    enact(stream, replace(proposal, change=later))


def begin_beside(streams: Mapping[str, RunningStream], begun: Set[str]) -> None:
    """Let streams that are new to a checkpoint start where another stream of the same source has come to.

    What is before that may have been released. For their queries it is as if they were added to that stream.

    Args:
        streams: The streams, as they were recovered.
        begun: Names of those of which the checkpoint knows how far they are.
    """
    for stream in streams.values():
        name = stream.definition.source_name
        others = [other for other in streams.values() if other.definition.source_name == name and other.name in begun]
        if others and stream.name not in begun:
            stream.state.begin_at(next((other for other in others if other.name == name), others[0]).state)


def begin_with(stream: RunningStream, states: dict[str, QueryState]) -> None:
    """Let a stream that was just made have only some of its queries, in given states."""
    state = stream.state
    if dict(state.queries) == states:
        return
    state.compiled = {name: compiled for name, compiled in state.compiled.items() if name in states}
    state.queries = dict(states)
    if states:
        stream.rearrange()
    else:
        state.arrange(())
