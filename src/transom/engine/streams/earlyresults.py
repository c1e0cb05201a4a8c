"""The results of a query as the rows of another stream, early ones too, which others take the place of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from transom.engine.spark.columns import quoted, to_column
from transom.engine.spark.compile import Compiled
from transom.engine.state.closing import Closing
from transom.engine.streams.feed import EarlyResults
from transom.engine.streams.results import ResultsSource
from transom.errors import DefinitionError
from transom.model.expression import Expression
from transom.model.time import Micros
from transom.sources.base import Offset
from transom.sources.schemas import position
from transom.windows.query import WindowedQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from transom.engine.spark.plan import Rows
    from transom.engine.streams.definition import StreamDefinition
    from transom.engine.streams.stream import RunningStream

_EARLY = "early:"


class EarlyResultsSource(ResultsSource):
    """The results of a query as `ResultsSource` gives them, and what is known of its windows that are not final.

    With each item comes all of that, as of the same cut of the parent. So the final results up to a position and what
    came with the item there are what a batch job would give of the rows that the parent had then.
    """

    def __init__(self, stream: str, query: str) -> None:
        super().__init__(stream, query)
        self._early: dict[int, pa.Table] = {}
        """By position of the item with which they came."""

    def describe(self) -> str:
        """Return what it is and reads, in one line for people."""
        return f"results of {self.query}, early ones too"

    def learn(self, parents: Mapping[str, tuple[StreamDefinition, Compiled]], session: SparkSession) -> None:
        """Find out the columns of the results, and which of them tell them apart."""
        super().learn(parents, session)
        _, compiled = parents[self.parents[0]]
        self._identity = compiled.queries[self.query].query.result_keys

    def bind(self, stream: RunningStream, streams: Mapping[str, RunningStream]) -> None:
        """Connect with the running parent."""
        super().bind(stream, streams)
        stream.state.previews = True
        self._streams[0].state.previewed |= {self.query}

    def check(self, rows: Rows, queries: Sequence[WindowedQuery], session: SparkSession) -> None:
        """Return when which row an early result becomes does not depend on its values, which change.

        Else the row of a key would have to be taken back when the value is another one, from sinks, too.

        Raises:
            DefinitionError: It does, or may.
        """
        for query in queries:
            if rows.branches[query.branch]:
                raise _refused(
                    query,
                    "map, lookup or select can make another row of it each time",
                    "Compute in the results of the query that is read, select() there, or in the aggregates of this "
                    "one.",
                )
            if query.keeps_rows:
                raise _refused(
                    query,
                    "rows that were given on whole cannot be taken back",
                    "Give results() on, which are final, or send the query that is read to a sink of its own: that "
                    "gets its early results, with revisions.",
                )
            self._check_columns(query, session)

    def _check_columns(self, query: WindowedQuery, session: SparkSession) -> None:
        every = session.createDataFrame([], self.schema)
        lasting = every.select(*map(quoted, self._identity))
        asked = [("group_by", key.expression) for key in query.keys]
        asked += [] if query.condition is None else [("where", query.condition)]
        for field, expression in asked:
            if _resolves(lasting, expression) or not _resolves(every, expression):  # the other error is told later
                continue
            raise _refused(
                query,
                f"{field} uses more of it ({expression.text}) than {', '.join(self._identity)}, which stay",
                "Let the aggregates say which rows count, as tm.count().where(...) does."
                if field == "where"
                else "Group by keys and windows of the query that is read.",
            )

    # ---- what the parent gives

    def closed(self, cut: int, closings: Sequence[Closing], closed: Micros, ingested: Micros) -> None:
        """Take the windows that are final since a logged cut of the parent, and what is known of the others then."""
        mine = next((each for each in closings if each.query == self.query), None)
        if mine is not None and mine.early is not None and self.orphaned() is None:
            final = mine.final if mine.final is not None and mine.final.num_rows else None
            self._push(cut, 0 if final is None else final.num_rows, final)
            if self._newest == cut:  # somebody reads it
                self._early[cut] = mine.early
            self._advance(closed - self.behind, ingested)
            return
        super().closed(cut, closings, closed, ingested)

    @property
    def held_bytes(self) -> int:
        """Size of the rows that wait in the driver."""
        early: int = sum(table.nbytes for table in self._early.values())
        return super().held_bytes + early

    def release(self, oldest_needed: Offset) -> None:
        """Forget what is committed."""
        super().release(oldest_needed)
        self._early = {place: table for place, table in self._early.items() if place > position(oldest_needed)}

    def held(self) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        """Return what the snapshot must hold, as JSON and tables."""
        state, tables = super().held()
        return state, tables | {f"{_EARLY}{place}": table for place, table in self._early.items()}

    def restore(self, state: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
        """Take in what `held` returned."""
        super().restore(state, tables)
        early = {name.removeprefix(_EARLY): table for name, table in tables.items() if name.startswith(_EARLY)}
        self._early = {int(place): table for place, table in early.items()}
        for table in self._early.values():
            self._require_columns(table)

    # ---- what its stream reads

    def early(self, end: Offset) -> EarlyResults | None:
        """Return the early results at the end of a cut; None if they are not known."""
        table = self._early.get(position(end))
        return None if table is None else EarlyResults(table.num_rows, lambda spark: self._frame(spark, [table]))


def _resolves(rows: DataFrame, expression: Expression) -> bool:
    """Tell whether an expression can be computed of some columns."""
    from pyspark.errors import PySparkException

    try:
        return len(rows.select(to_column(expression, rows.columns, False)).schema) == 1
    except PySparkException:
        return False


def _refused(query: WindowedQuery, why: str, remedy: str) -> DefinitionError:
    return DefinitionError(f"query {query.name!r}: it reads early results, which change; {why}.", remedy)
