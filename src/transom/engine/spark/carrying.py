"""Rows that stay what they were though the source has other columns, or only their event times are computed anew."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from transom.engine.partials.contents import branch_of, digest
from transom.engine.spark import eventtimes, plan
from transom.engine.spark.columns import TIME, is_case_sensitive, to_column, to_condition
from transom.engine.spark.plan import Branch, Rows
from transom.engine.spark.plantext import plan_text, without_numbers
from transom.errors import DefinitionError
from transom.model.expression import Expression
from transom.model.sessions import is_connect
from transom.windows.query import WindowedQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_UNUSED = "_transom_unused"
"""A column that nothing uses, so that both plans leave one out."""
_LEAF = re.compile(r"LogicalRDD \[[^\]]*\]")


@dataclass(frozen=True)
class KnownRows:
    """Under what a query's rows are known for as long as the query lives."""

    plan: str
    """Their plan as text when the query was new."""
    source: str
    """The columns of the source at that time, as JSON; empty if that was not noted."""
    branch: str
    """Name of the branch in the checkpoint."""
    time: str = ""
    """The event time as the user wrote it; empty if that was not noted."""

    def to_json(self) -> dict[str, str]:
        """Return what the query's definition says of it besides the plan."""
        return {"source": self.source, "branch": self.branch, "time": self.time}

    @classmethod
    def of(cls, definition: Mapping[str, Any]) -> KnownRows:
        """Read it from the definition of a query in a checkpoint."""
        return cls(definition["rows"], definition.get("source", ""), branch_of(definition), definition.get("time", ""))


class Carried:
    """Finds under what a checkpoint knows the rows of a stream's branches, though the source has other columns now.

    With other columns the plan reads otherwise. It stands for the same rows of a query if with the former columns it
    reads as before, and if what the query uses is computed alike with either: the optimized plans of that are equal.

    Args:
        definitions: What the checkpoint knows of the stream's queries, by name.
    """

    def __init__(self, definitions: Mapping[str, Mapping[str, Any]]) -> None:
        self._known = {name: KnownRows.of(definition) for name, definition in definitions.items()}
        self._branches: dict[str, str] = {}
        """Name for each plan as it is now, by its digest: queries with plans of their own may come and go for years."""
        self._same: dict[tuple[str, str], bool] = {}
        """Whether a query's rows are what they were, by query and plan as it is now."""
        self.retimed: set[str] = set()
        """Queries whose rows are what they were but for the expression of their event times."""

    def rows_of(
        self, session: SparkSession, schema: StructType, rows: Rows, queries: Sequence[WindowedQuery], text: str
    ) -> dict[str, KnownRows]:
        """Return under what the rows of each query of a branch are known.

        Args:
            session: Transom's Spark session.
            schema: What the source gives.
            rows: What becomes of it.
            queries: The queries of the branch.
            text: The plan as it is now.
        """
        known = {query.name: self._known[query.name] for query in queries if query.name in self._known}
        plan = digest(text)
        if plan not in self._branches:
            former = next((one.branch for one in known.values()), plan)
            self._branches[plan] = plan if former in self._branches.values() else former
        now = KnownRows(text, schema.json(), self._branches[plan], rows.event_time.text)
        found = dict.fromkeys((query.name for query in queries), now)
        for query in queries:
            if query.name in known:
                before, asked = known[query.name], (query.name, text)
                if asked not in self._same:
                    self._same[asked] = before.plan == text or _is_same(session, schema, rows, query, before)
                    if not self._same[asked] and _is_retimed(session, schema, rows, query, before):
                        self.retimed.add(query.name)
                if self._same[asked]:
                    source, time = before.source or now.source, before.time or now.time
                    found[query.name] = replace(before, source=source, branch=now.branch, time=time)
        return found


def _is_retimed(session: SparkSession, schema: StructType, rows: Rows, query: WindowedQuery, before: KnownRows) -> bool:
    """Tell whether the plan reads as before once the event time is written as before."""
    from pyspark.errors import PySparkException

    if before.time in ("", rows.event_time.text):
        return False
    former = replace(rows, event_time=Expression(before.time))
    try:
        return plan_text(_seen(session, schema, rows.branches[query.branch], former)) == before.plan
    except (PySparkException, DefinitionError):
        return False


def _is_same(session: SparkSession, schema: StructType, rows: Rows, query: WindowedQuery, before: KnownRows) -> bool:
    from pyspark.errors import PySparkException
    from pyspark.sql.types import IntegerType, StructField, StructType

    if not before.source or query.keeps_rows or is_connect(session):
        return False
    chain, former = rows.branches[query.branch], StructType.fromJson(json.loads(before.source))
    try:
        if plan_text(_seen(session, former, chain, rows)) != before.plan:
            return False
        old, new = (
            _computed(_seen(session, StructType([*columns, StructField(_UNUSED, IntegerType())]), chain, rows), query)
            for columns in (former, schema)
        )
    except (PySparkException, DefinitionError):
        return False
    return old == new


def _seen(session: SparkSession, schema: StructType, chain: tuple[plan.Transformation, ...], rows: Rows) -> DataFrame:
    raw = session.createDataFrame([], rows.columns(schema))
    good = raw.withColumn(TIME, eventtimes.time_columns(raw, rows.event_time)[0])
    return Branch.of(good, chain, rows.event_time).as_written(good)


def _computed(seen: DataFrame, query: WindowedQuery) -> str:
    """Return how all that a query uses of its rows is computed: the optimized plan, without numbers."""
    from pyspark.sql import functions as F

    names, case_sensitive = seen.columns, is_case_sensitive(seen)
    inputs = [e for _, aggregate in query.aggregates for e in aggregate.inputs]
    inputs += [e for _, aggregate in query.aggregates for primitive in aggregate.primitives for e in primitive.inputs]
    used = [to_column(e, names, case_sensitive) for e in (*(key.expression for key in query.keys), *inputs)]
    used += [] if query.condition is None else [to_condition(query.condition)]
    columns = [column.alias(f"_u{i}") for i, column in enumerate(used)]
    chosen = seen.select(F.col(TIME), *columns)
    text = without_numbers(chosen._jdf.queryExecution().optimizedPlan().toString())
    text = _LEAF.sub("LogicalRDD", text)
    if "Union" in text:  # takes columns by their places
        return text
    return "\n".join(_sorted(line) for line in text.splitlines())


def _sorted(line: str) -> str:
    """Return the line of a plan with the columns of a projection in order: which is first depends on the source.

    >>> _sorted("+- Project [b, f(a, c) AS d, a]")
    '+- Project [a, b, f(a, c) AS d]'
    """
    head, mark, rest = line.partition("Project [")
    if not mark or not rest.endswith("]"):
        return line
    items, depth = [""], 0
    for letter in rest[:-1]:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            items.append("")
        else:
            items[-1] += letter
    return f"{head}{mark}{', '.join(sorted(item.strip() for item in items))}]"
