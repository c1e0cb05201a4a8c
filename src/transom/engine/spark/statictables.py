"""Static tables that a stream is joined with, as Arrow: what a plan has beside the rows of the stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from transom.engine.spark.sparkterms import class_of, each_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_ROWS, MOST_BYTES = 100_000, 8 << 20
"""Of a table that travels to tasks."""
_LASTING = frozenset(["LocalRelation", "LogicalRDD", "Range", "OneRowRelation"])
"""Leaves that give the same rows each time; files may be other ones in the next job."""


class NotLastingError(Exception):
    """A table may change, or is too large; the text says it in plain words."""


def static_table(session: SparkSession, plan: Any) -> pa.Table:
    """Return the rows of a part of a plan, by a job; its columns are named by their places.

    Args:
        session: The session.
        plan: In the JVM.

    Raises:
        NotLastingError: They may change, or are too many.
    """
    from pyspark.sql.classic.dataframe import DataFrame

    for leaf in each_of(plan.collectLeaves()):
        if (kind := class_of(leaf)) not in _LASTING:
            why = "in each micro-batch as it is then; a lookup sees versions of it"
            raise NotLastingError(f"only Spark reads the table that rows are joined with ({kind}), {why}")
    java = session.sparkContext._jvm
    assert java is not None, "a classic session"
    frame = DataFrame(java.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan), session)
    named = frame.toDF(*map(str, range(len(frame.columns))))
    found = named.limit(MOST_ROWS + 1).toArrow()
    if found.num_rows > MOST_ROWS or found.nbytes > MOST_BYTES:
        raise NotLastingError("the table that rows are joined with is too large for tasks")
    return found.combine_chunks()
