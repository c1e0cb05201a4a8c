"""Which queries may have rows left out under overload, checked when they are written and when they begin to run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from transom.engine.spark.columns import Costly
from transom.engine.state.shares import SHED_ROWS, SHED_SHARE
from transom.errors import DefinitionError
from transom.model.window import SessionSpec, WindowKind
from transom.sources.base import can_leave_out

if TYPE_CHECKING:
    from transom.api.query import Query
    from transom.api.streams import Stream

KEEP = 0.1
"""Least share of a window's rows that is read under overload, unless another one is given."""


def least_share(
    on_overload: str, keep: float | None, windows: Sequence[WindowKind], columns: Sequence[str]
) -> float | None:
    """Return the least share of a window's rows that is read; None if all of them are.

    Args:
        on_overload: What the user wrote.
        keep: As well.
        windows: Of the query.
        columns: Keys and values of its results.

    Raises:
        DefinitionError: They make no sense, or do not go together.
    """
    if on_overload not in ("delay", "shed"):
        raise DefinitionError(f"within: on_overload is {on_overload!r}.", 'Write "delay" or "shed".')
    if on_overload == "delay":
        if keep is not None:
            raise DefinitionError(
                f"within: keep is {keep}, but nothing is left out.", 'Add on_overload="shed", or leave out keep.'
            )
        return None
    if any(isinstance(window, SessionSpec) for window in windows):
        raise DefinitionError(
            "within: a session window would end where rows were left out, so that it does not go with "
            'on_overload="shed".',
            "Leave out on_overload, or put the sessions into a query of their own, on a stream apart.",
        )
    for name in (SHED_ROWS, SHED_SHARE):
        if name in columns:
            raise DefinitionError(
                f'within: with on_overload="shed" the results have a column {name!r} already.',
                "Give yours another name.",
            )
    if keep is None:
        return KEEP
    if isinstance(keep, bool) or not isinstance(keep, int | float) or not 0 < keep <= 1:
        raise DefinitionError(f"within: keep is {keep!r}.", "Give a share of a window's rows: above 0, at most 1.")
    return float(keep)


def check_shedding(used: Sequence[Stream], fed: Sequence[Stream], read: Sequence[tuple[Stream, Query]]) -> None:
    """Return when rows can be left out where queries say so, and nobody reads the results of such a query.

    Args:
        used: The streams that have queries.
        fed: Those whose rows come from other queries.
        read: Those of them that have the results or late rows of one query, with the query.

    Raises:
        DefinitionError: Something of it does not go.
    """
    for stream, query in read:
        if query.target is not None and query.target.keep is not None:
            raise DefinitionError(
                f'within: the query {query.label!r} says on_overload="shed", but {stream.name} is read by queries '
                "that want all of it.",
                "Leave out on_overload, or write its results to a sink only.",
            )
    for stream in used:
        shedding = next((query.name for query in stream._queries if query.sheds), None)
        if shedding is None:
            continue
        if stream in fed:
            raise DefinitionError(
                f'within: the query {shedding!r} says on_overload="shed", but its rows come from other queries or a '
                "join, of which no piece can be left out.",
                "Leave out on_overload there.",
            )
        source, costly = stream._make_source(), [Costly() in chain for chain in stream._branches]
        thinned = all(costly[query.branch] is query.sheds for query in stream._queries)
        if not (can_leave_out(source) or thinned):
            raise DefinitionError(
                f'within: the query {shedding!r} says on_overload="shed", but no piece of its source can be left '
                f"out: {source.describe()}.",
                "Leave out on_overload, read files or topics of Kafka, or say map(..., costly=True) where rows may be "
                "thinned: for the queries behind it, and no others, to say so.",
            )
