"""Texts that read alike and mean different things, found when queries are compiled: no checkpoint could tell them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from transom.errors import DefinitionError
from transom.model.expression import Expression
from transom.model.window import SessionSpec
from transom.windows.aggregates.base import Primitive
from transom.windows.query import WindowedQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def of_one_branch(
    queries: Sequence[WindowedQuery], seen: Mapping[int, DataFrame], texts: Mapping[int, str]
) -> tuple[WindowedQuery, ...]:
    """Return the queries, those with the same transformations on the same branch, the first of them.

    Args:
        queries: The queries.
        seen: The rows of each branch.
        texts: The plan of each branch as text.

    Raises:
        DefinitionError: Two branches read alike, and are not the same.
    """
    first: dict[str, int] = {}
    for branch in sorted(texts):
        other = first.setdefault(texts[branch], branch)
        if other != branch and not seen[branch].sameSemantics(seen[other]):
            one, two = (next(query.name for query in queries if query.branch == each) for each in (other, branch))
            raise DefinitionError(
                f"map: the transformations of {one!r} and {two!r} read alike, but are not the same: they call "
                "different functions of one name.",
                "Give the functions different names: a checkpoint knows them by their names.",
            )
    return tuple(
        query if first[texts[query.branch]] == query.branch else replace(query, branch=first[texts[query.branch]])
        for query in queries
    )


def check_texts(queries: Sequence[WindowedQuery]) -> None:
    """Refuse Columns of one text and aggregates of one key that are not the same, over the rows of one branch.

    Raises:
        DefinitionError: There are two.
    """
    columns: dict[tuple[int, str], tuple[Expression, str]] = {}
    states: dict[tuple[int, str], tuple[Primitive, str]] = {}
    for query in queries:
        for expression, where in _expressions(query):
            other, there = columns.setdefault((query.branch, expression.text), (expression, where))
            if other != expression:
                raise DefinitionError(
                    f"{where}: {expression.text} reads like {there}, but may be another: Columns that call functions, "
                    "or hold values, can differ and read alike.",
                    "Make the Column once and use it in both places; or give the functions different names.",
                )
        for name, aggregate in query.aggregates:
            for primitive in aggregate.primitives:
                known, there = states.setdefault((query.branch, primitive.key), (primitive, f"{query.name}.{name}"))
                if known != primitive:
                    raise DefinitionError(
                        f"query {query.name!r}: the aggregate {name!r} has the same name, inputs and types as {there}, "
                        "but other functions.",
                        "Give one of them another name: udaf(..., name=...).",
                    )


def _expressions(query: WindowedQuery) -> Iterator[tuple[Expression, str]]:
    """Yield what a query evaluates, with where that is written."""
    for key in query.keys:
        yield key.expression, f"query {query.name!r}: the key {key.name!r}"
    if query.condition is not None:
        yield query.condition, f"query {query.name!r}: where"
    for window in query.windows:
        if isinstance(window, SessionSpec) and window.ends_when is not None:
            yield window.ends_when, f"query {query.name!r}: ends_when"
    for name, aggregate in query.aggregates:
        for expression in aggregate.inputs:
            yield expression, f"query {query.name!r}: the input of {name!r}"
