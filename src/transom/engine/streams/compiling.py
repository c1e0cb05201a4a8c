"""The queries of a stream, as the application defines them and as the engine runs them."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from transom.engine.spark.carrying import Carried
from transom.engine.spark.compile import Compiled, compile_queries
from transom.engine.spark.lookups import LookupTable, lookup_tables
from transom.engine.spark.plan import Rows
from transom.engine.state.queries import QueryState
from transom.engine.streams.definition import StreamDefinition
from transom.windows.components import DEFAULT, Arrangement
from transom.windows.query import WindowedQuery

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class QueryCompiler:
    """Compiles the queries of a stream, which come and go.

    Args:
        definition: What the user defined.
        session: Transom's Spark session.
        share: Whether queries share partials.
        known: Definitions of the queries that the checkpoint knows.

    Raises:
        DefinitionError: A query cannot work.
    """

    def __init__(
        self,
        definition: StreamDefinition,
        session: SparkSession,
        share: bool,
        known: Mapping[str, Mapping[str, Any]],
    ) -> None:
        self.definition = definition
        self.shares = share
        self.arrangement: Arrangement = DEFAULT
        """Where and how key sets are computed; in the log before the first cut that follows it."""
        self._session = session
        self._carried = Carried(known)
        self._apart: Compiled | None = None
        """The last answer of `apart`."""
        self.whole = self.compile(definition.queries)
        """The queries of the beginning."""
        self._whole_of = definition.queries
        self.definitions = dict(self.whole.definitions)
        """Definitions of all queries, also of those that do not run."""

    def compile(self, queries: Sequence[WindowedQuery]) -> Compiled:
        """Return some of its queries as the engine runs them.

        Raises:
            DefinitionError: A query cannot work.
        """
        whole, share = self.definition, self.shares
        whole.feed.check(whole.rows, queries, self._session)
        return compile_queries(
            self._session, self.definition.schema, whole.rows, queries, share, self.arrangement, self._carried
        )

    @property
    def computes_apart(self) -> bool:
        """Whether the queries failed together and not one by one, so that none computes anything for another."""
        return self._apart is not None

    def apart(self, queries: Sequence[WindowedQuery]) -> Compiled:
        """Return queries with a job in which none computes anything for another; the stores stay shared."""
        if self._apart is None or list(self._apart.queries) != [query.name for query in queries]:
            rows = self.definition.rows
            self._apart = compile_queries(
                self._session, self.definition.schema, rows, queries, share=False, carried=self._carried
            )
        return self._apart

    def shape(self, names: Container[str]) -> Compiled:
        """Return some of the stream's queries as the engine runs them.

        Raises:
            DefinitionError: A query cannot work.
        """
        chosen = [query for query in self.definition.queries if query.name in names]
        whole = self._whole_of
        same = len(chosen) == len(whole) and all(a is b for a, b in zip(chosen, whole, strict=True))
        if same and self.arrangement == DEFAULT:
            return self.whole
        if not chosen:  # as at the beginning of every first run
            return self.whole.without_queries()
        compiled = self.compile(chosen)
        self.definitions.update(compiled.definitions)
        return compiled

    def offer(self, rows: Rows, query: WindowedQuery) -> None:
        """Take a query into the definition; it does not run yet.

        Args:
            rows: The stream's transformations, with those of the query after the others.
            query: The query.
        """
        self.definition = replace(self.definition, rows=rows, queries=(*self.definition.queries, query))

    def withdraw(self, name: str) -> None:
        """Take a query that does not run out of the definition."""
        kept = tuple(query for query in self.definition.queries if query.name != name)
        self.definition = replace(self.definition, queries=kept)
        self.definitions.pop(name, None)
        self._apart = None

    def lookup_tables(self, states: Mapping[str, QueryState]) -> Sequence[LookupTable]:
        """Return the tables that rows are looked up in for queries in given states, unless these failed."""
        rows, queries = self.definition.rows, self.definition.queries
        branches = {each.branch for each in queries if each.name in states and states[each.name].failure is None}
        return lookup_tables(rows.branches[branch] for branch in sorted(branches))

    @property
    def retimed(self) -> Set[str]:
        """Queries that the checkpoint knows with another expression of the event time, and that are the same else."""
        return self._carried.retimed
