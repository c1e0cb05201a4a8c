"""Queries that failed in an earlier run and cannot be compiled any more: they stay out, and the others start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from transom.engine.changes.records import KnownQuery
from transom.engine.streams.definition import StreamDefinition
from transom.errors import TransomError
from transom.failures import require_blame
from transom.windows.query import WindowedQuery


def orphans(definition: StreamDefinition, lost: Mapping[str, str]) -> dict[str, str]:
    """Return the queries of a stream whose rows come from a query that cannot start: all or none, with the reason."""
    read = [name for name in lost if definition.feed.reads(name)]
    why = f"it reads the results of {read[0]}, which failed" if read else ""
    return {query.name: why for query in definition.queries} if read else {}


def unstartable(
    definition: StreamDefinition, known: Mapping[str, KnownQuery], compiles: Callable[[WindowedQuery], object]
) -> dict[str, str]:
    """Return the queries of a stream that failed and cannot be compiled any more, with the reason.

    Args:
        definition: The stream.
        known: What the checkpoint knows of queries.
        compiles: Compiles one query of the stream alone, or raises.

    Raises:
        TransomError: No query is to blame.
    """
    found: dict[str, str] = {}
    for query in definition.queries:
        if query.name in known and known[query.name].failure is not None:
            try:
                compiles(query)
            except TransomError as error:
                found[query.name] = error.message
            except Exception as error:  # of the user's transformations
                require_blame(error, f"Compiling query {query.name!r}")
                found[query.name] = f"{type(error).__name__}: {error}"
    return found


def without(definition: StreamDefinition, lost: Mapping[str, str]) -> StreamDefinition:
    """Return a stream without some queries."""
    return replace(definition, queries=tuple(query for query in definition.queries if query.name not in lost))
