"""The results of a query as the rows of another stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from transom.engine.partials.results import no_results
from transom.engine.spark.compile import Compiled
from transom.engine.state.closing import Closing
from transom.engine.state.stores import new_store
from transom.engine.streams.derived import DerivedSource
from transom.errors import DefinitionError, JobChangedError
from transom.model.time import MAX_TIME, MIN_TIME, Micros
from transom.sources.base import Offset
from transom.sources.schemas import check_reserved, position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from transom.engine.streams.definition import StreamDefinition
    from transom.engine.streams.stream import RunningStream


class ResultsSource(DerivedSource):
    """The results of a query as rows, each window once, when no row can change it any more.

    The position of an item is the number of the parent's cut that completed its windows; the watermark is how far
    the parent's windows are final, so that no row is ever late.

    Args:
        stream: Name of the parent's stream.
        query: Name of the query.
    """

    def __init__(self, stream: str, query: str) -> None:
        super().__init__([stream], 0)
        self.query = query

    def describe(self) -> str:
        """Return what it is and reads, in one line for people."""
        return f"results of {self.query}"

    def learn(self, parents: Mapping[str, tuple[StreamDefinition, Compiled]], session: SparkSession) -> None:
        """Find out the columns of the results."""
        from pyspark.sql.pandas.types import from_arrow_schema

        _, compiled = parents[self.parents[0]]
        schema = result_schema(compiled, self.query)
        check_reserved(schema.names, f"results of {self.query}")
        self._schema = from_arrow_schema(schema, prefer_timestamp_ntz=True)

    def bind(self, stream: RunningStream, streams: Mapping[str, RunningStream]) -> None:
        """Connect with the running parent."""
        super().bind(stream, streams)
        self._streams[0].readers.append(self)
        self._streams[0].state.feeding |= {self.query}

    @property
    def behind(self) -> Micros:
        """The distance of its watermark behind the parent's: as long as windows that end there can change."""
        query = self._streams[0].state.compiled[self.query].query
        return query.lateness + query.margin

    last_end = MIN_TIME
    """It waits for no other stream."""

    def wants(self, watermark: Micros, now: Micros) -> bool:
        """Tell whether the parent's watermark without rows would close something here or further down."""
        return watermark < MAX_TIME and self.orphaned() is None and self._would_close(watermark - self.behind, now)

    def has_read(self, cut: int, offset: Offset) -> bool:
        """Tell whether the results of a cut of the parent lie before an offset."""
        return cut <= position(offset)

    def restore(self, state: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> None:
        """Take in what `held` returned.

        Raises:
            JobChangedError: Results that wait have other columns than the query's.
        """
        super().restore(state, tables)
        for item in self._items:
            if item.table is not None:
                self._require_columns(item.table)

    def _require_columns(self, table: pa.Table) -> None:
        if table.column_names != self.schema.names:
            raise JobChangedError(
                f"Results of {self.query!r} that wait to be read have the columns "
                f"{', '.join(table.column_names)}; now they would be {', '.join(self.schema.names)}.",
                "Run once with the former select or rename (transom run --once), which reads them, and then with "
                "the new one.",
            )

    def closed(self, cut: int, closings: Sequence[Closing], closed: Micros, ingested: Micros) -> None:
        """Take the windows that no row can change any more since a logged cut of the parent."""
        if self.orphaned() is not None:
            return
        for closing in closings:
            if closing.query != self.query:
                continue
            if closing.passed:
                self._push(cut, 0)
            elif closing.final is not None and closing.final.num_rows:
                self._push(cut, closing.final.num_rows, closing.final)
        self._advance(closed - self.behind, ingested)

    def complete_from(self) -> Micros:
        """Return the moment after the windows of the parent that are closed, or that the parent does not have whole."""
        stream = self._streams[0]
        if self.query not in stream.state.queries:
            return self._watermark
        whole = stream.state.queries[self.query].complete_from
        if whole <= MIN_TIME:
            return self._watermark
        query = stream.state.compiled[self.query].query
        return max(self._watermark, *(window.last_end(whole - 1) for window in query.windows))

    def orphaned(self) -> str | None:
        """Return why the query gives no more results."""
        state = self._streams[0].state.queries.get(self.query)
        if state is None:
            return f"it reads the results of {self.query}, which was removed"
        return None if state.failure is None else f"it reads the results of {self.query}, which failed"

    def reads(self, query: str) -> bool:
        """Tell whether it needs the results of a query."""
        return query == self.query

    def read(self, spark: SparkSession, start: Offset, end: Offset, skip: Sequence[str] = ()) -> DataFrame:
        """Return the results that the parent's cuts in (start, end] completed."""
        return self._frame(spark, [item.table for item in self._between(start, end) if item.table is not None])

    def _frame(self, spark: SparkSession, results: Sequence[pa.Table]) -> DataFrame:
        from pyspark.sql.pandas.types import to_arrow_schema

        arrow = to_arrow_schema(self.schema, timezone="UTC")
        tables = [table.cast(arrow) for table in results]
        whole = pa.concat_tables(tables) if tables else arrow.empty_table()
        return spark.createDataFrame(whole.combine_chunks(), self.schema)


def result_schema(compiled: Compiled, name: str) -> pa.Schema:
    """Return the columns of a query's results."""
    if name not in compiled.store_of:
        raise DefinitionError(f"results: {name!r} computes nothing.", "Give it an aggregate.")
    query = compiled.queries[name]
    return query.shape(no_results(query.query, new_store(compiled.store_of[name]), query.input_types)).schema
