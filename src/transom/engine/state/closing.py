"""Windows that a logged cut closes: what they are merged from, asked at once; their rows, when all of it was merged.

What is on the driver needs no waiting. What is in files is merged in one Spark job for all stores of the stream, while
the state of the stream rests: nothing is committed and no query comes or goes until the windows are finished.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from transom.engine.cluster.merges import Merge, Merged
from transom.engine.partials.results import Span
from transom.engine.partials.sessions import Ended
from transom.engine.partials.updates import Emission
from transom.engine.state.stores import StoreEntry
from transom.errors import QueryFailedError
from transom.failures import classify, require_blame
from transom.model.time import Micros
from transom.sinks.base import WindowResults
from transom.windows.aggregates.base import Slots
from transom.windows.partials import Partial

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Asked:
    """The windows of a query that a logged cut asks for."""

    emissions: Sequence[Emission]
    """What it emits."""
    final: Sequence[Span]
    """If others read its results, the windows that no row can change any more."""
    open: Sequence[Span] | None = None
    """If others read its early results and these have changed, the windows that rows can still change."""

    @property
    def some(self) -> bool:
        """Whether it asks for any."""
        return bool(self.emissions or self.final or self.open is not None)


Dues: TypeAlias = "dict[tuple[Any, ...], Sequence[Span]]"
"""Windows that are due at one moment, by store, kinds of windows and times: many queries ask for the same."""
Wanted: TypeAlias = "Mapping[str, Asked]"
"""By query."""


@dataclass(frozen=True)
class Closing:
    """The outcome of a cut for a query: results of windows that closed or changed, or the failure of the query."""

    query: str
    windows: int
    results: WindowResults | None = None
    """The rows for the sink."""
    final: pa.Table | None = None
    """For queries that others read (`StreamState.feeding`): the windows that no row can change any more, all keys and
    without revisions."""
    early: pa.Table | None = None
    """For queries whose early results others read (`StreamState.previewed`), if these have changed: what is known of
    all windows that rows can still change, all keys and without revisions."""
    passed: bool = False
    """Whether such windows became final at a replay, but all readers have read them already."""
    error: QueryFailedError | None = None


def failure_of(query: str, error: Exception) -> QueryFailedError:
    """Return why a query fails of whose windows an error came; what its user cannot repair goes to the log, too.

    Raises:
        TransomError: The query is not to blame.
    """
    require_blame(error, f"Merging the windows of {query!r}")
    if isinstance(error, QueryFailedError):
        return error
    logger.error("The windows of %s could not be merged.", query, exc_info=error)
    return QueryFailedError(f"{query}: its windows cannot be merged: {classify(error).reason}.", "The log has more.")


@dataclass(frozen=True)
class StoreAsk:
    """A request to one store."""

    entry: StoreEntry
    names: Sequence[str]
    """Queries that ask."""
    spans: Mapping[Span, Slots | None]
    """Windows, with the ids of the keys that are needed; None for all."""
    taken: Ended
    """Sessions that have ended and that these queries need."""
    merge: Merge | None
    """The merges of files that it needs."""


@dataclass(frozen=True)
class Closure:
    """The windows that a logged cut closes, until they are finished."""

    after: Micros
    """The watermark in force before."""
    watermark: Micros
    wanted: Wanted
    settled: AbstractSet[str]
    """Queries whose results nobody needs any more."""
    asks: Sequence[StoreAsk]
    sessions: Mapping[str, Ended]
    """Sessions that have ended, by query; those of queries that ask for nothing can lack all but their times."""

    @property
    def merges(self) -> list[Merge]:
        """The merges of files that are needed, one for each store that asks for some."""
        return [ask.merge for ask in self.asks if ask.merge is not None]


def asked(
    stores: Iterable[StoreEntry], wanted: Wanted, after: Micros, watermark: Micros, settled: AbstractSet[str]
) -> Closure:
    """Return what is asked of the stores for windows; the sessions that have ended are taken out.

    What is asked of one store is merged together, what is in files in one job for all stores.

    Args:
        stores: The stores.
        wanted: The windows.
        after: The watermark in force before.
        watermark: The watermark in force.
        settled: Queries whose results nobody needs any more: nothing is merged for them.
    """
    asks: list[StoreAsk] = []
    sessions: dict[str, Ended] = {}
    for entry in stores:
        queries = [query for query in entry.key_set.queries if query.name in wanted and query.name not in settled]
        spans = with_keys(wanted[query.name] for query in queries)
        taken = entry.sessions.take(watermark) if watermark > after else {}
        sessions.update((query.name, taken) for query in entry.key_set.queries)
        needed = {spec: some for spec, some in taken.items() if any(spec in query.windows for query in queries)}
        merge = entry.ask(spans, needed, watermark)
        asks.append(StoreAsk(entry, [query.name for query in queries], spans, needed, merge))
    return Closure(after, watermark, wanted, settled, asks, sessions)


def merged(
    closure: Closure, done: Sequence[Merged]
) -> tuple[dict[str, dict[Span, Partial]], dict[str, Ended], dict[str, QueryFailedError]]:
    """Return the rows of the windows that queries ask for, the sessions that end of all queries, and who failed.

    Args:
        closure: What was asked.
        done: What came of its merges, or why one could not be made.
    """
    answers = iter(done)
    windows: dict[str, dict[Span, Partial]] = {}
    sessions = dict(closure.sessions)
    failed: dict[str, QueryFailedError] = {}
    for ask in closure.asks:
        found = () if ask.merge is None else next(answers)
        if isinstance(found, QueryFailedError):
            failed.update((name, failure_of(name, found)) for name in ask.names)
            continue
        try:
            rows, ended = ask.entry.close(ask.spans, ask.taken, closure.watermark, found)
        except Exception as error:
            if len(ask.names) < 2:
                failed.update((name, failure_of(name, error)) for name in ask.names)
                continue
            for name in ask.names:  # those that do not fail alone go on
                spans = with_keys([closure.wanted[name]])
                try:
                    windows[name], sessions[name] = ask.entry.close(spans, ask.taken, closure.watermark, found)
                except Exception as caught:
                    failed[name] = failure_of(name, caught)
            continue
        windows.update((name, rows) for name in ask.names)
        sessions.update((name, ended) for name in ask.names)
    return windows, sessions, failed


def with_keys(wanted: Iterable[Asked]) -> dict[Span, Slots | None]:
    """Return the windows that queries emit or pass on, each with the ids of the keys that are needed."""
    spans: dict[Span, list[Slots] | None] = {}
    for each in wanted:
        spans.update(dict.fromkeys((*each.final, *(each.open or ()))))
        for emission in each.emissions:
            keys = spans.setdefault(emission.span, [])
            if emission.ids is None:
                spans[emission.span] = None
            elif keys is not None:
                keys.append(emission.ids)
    return {span: None if keys is None else np.unique(np.concatenate(keys)) for span, keys in spans.items()}
