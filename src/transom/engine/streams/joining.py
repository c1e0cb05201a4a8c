"""Joins of two streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from transom.engine.spark.columns import TIME, first_line
from transom.engine.spark.compile import Compiled
from transom.engine.spark.joins import StreamJoin
from transom.engine.streams.windowed import WindowedSource
from transom.errors import DefinitionError
from transom.model.time import Micros
from transom.sources.schemas import check_reserved

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from transom.engine.streams.definition import StreamDefinition


class JoinSource(WindowedSource):
    """The joined rows of the windows that both sides have closed.

    Args:
        name: Name of the joined stream.
        join: How they are joined.
        left: Names of the stream and of the query on it.
        right: The same of the other side.
    """

    def __init__(self, name: str, join: StreamJoin, left: tuple[str, str], right: tuple[str, str]) -> None:
        super().__init__(join.times, [("left", *left), ("right", *right)])
        self.name, self.join = name, join

    def describe(self) -> str:
        """Return what it is and reads, in one line for people."""
        left, right = self.parents
        return f"{self.join.how} join of {left} and {right} {self.join}"

    def learn(self, parents: Mapping[str, tuple[StreamDefinition, Compiled]], session: SparkSession) -> None:
        """Find out the columns of the joined rows.

        Raises:
            DefinitionError: A key is missing, two columns would have one name, or keys cannot be compared.
        """
        from pyspark.errors import AnalysisException
        from pyspark.sql import functions as F

        frames = self._empty_sides(parents, session)
        windows = session.range(0).select(F.col("id").alias("start"), F.col("id").alias("end"))
        try:
            schema = self._made(frames, windows, ()).schema
        except AnalysisException as error:
            raise DefinitionError(
                f"join {self.name!r}: {first_line(error)}.", "Give the keys the same type on both sides with map()."
            ) from error
        check_reserved([name for name in schema.names if name != TIME], f"join {self.name!r}")
        self._schema = schema

    def _made(self, frames: Sequence[DataFrame], windows: DataFrame, ends: Sequence[Micros]) -> DataFrame:
        """Return the joined rows."""
        left, right = frames
        return self.join.apply(left, right, windows)
