"""Programs that make the rows of a DataFrame without Spark, read from its plan.

The optimizer's plan is read: constants, names and casts are as Spark understands them, and filters go first, as they do
in its own job. What it is over has no rows yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from transom.engine.spark.rowwise import why_not_repeatable
from transom.engine.spark.sparkterms import Reader, class_of, each_of
from transom.native.evaluate import Runner, why_not
from transom.native.program import Filter, Program, Project, Step
from transom.native.terms import Term, column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_CALLED = {
    "BatchEvalPython": "a Python function",
    "ArrowEvalPython": "a Python function",
    "MapInPandas": "mapInPandas",
    "MapInArrow": "mapInArrow",
    "Generate": "explode",
    "Union": "a union",
}
"""What users call operators."""


class OnlySparkError(Exception):
    """Something is known to Spark only; the text says what, in plain words."""


def empty_rows(session: SparkSession, schema: StructType) -> DataFrame:
    """Return a DataFrame without rows, of an RDD: of a local relation the optimizer knows that it is empty."""
    return session.createDataFrame(session.sparkContext.emptyRDD(), schema)


def runner_of(frame: DataFrame, rows: DataFrame) -> Runner:
    """Return what makes the rows of a DataFrame without Spark.

    Args:
        frame: A DataFrame of a classic session, with one value for each of its names.
        rows: What it is made of (`empty_rows`).

    Raises:
        OnlySparkError: Spark does something else than filter and compute columns, or computes what is not known here.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    if why := why_not_repeatable(frame, ""):
        raise OnlySparkError(why)
    reading = _Reading(Reader("UTC"), rows, to_arrow_schema(rows.schema, timezone="UTC"))
    plan = frame._jdf.queryExecution().optimizedPlan()
    known = reading.read(plan)
    names = {str(each.name()): each.exprId().id() for each in each_of(plan.output())}
    if len(names) != len(frame.columns):
        raise OnlySparkError("several columns have one name")
    chosen = Project(tuple((name, known[number]) for name, number in names.items()))
    program = Program(reading.columns, (*reading.steps, chosen))
    if why := why_not(program):
        raise OnlySparkError(why)
    return Runner(program)


class _Reading:
    """Reads operators; `steps` are those that were read.

    Args:
        reader: Reads expressions.
        rows: What the operators are over.
        columns: Its columns.
    """

    def __init__(self, reader: Reader, rows: DataFrame, columns: pa.Schema) -> None:
        self.columns = columns
        self.steps: list[Step] = []
        self._reader = reader
        self._output = [each.exprId().id() for each in each_of(rows._jdf.queryExecution().analyzed().output())]
        self._made = 0

    def read(self, node: Any) -> dict[int, Term]:
        """Return the columns of an operator by Spark's numbers, and note its steps.

        Raises:
            OnlySparkError: They are not known.
        """
        kind = class_of(node)
        if kind == "LogicalRDD":
            output = [each.exprId().id() for each in each_of(node.output())]
            if output == self._output:
                return {n: column(field.name, field.type) for n, field in zip(output, self.columns, strict=True)}
        if kind == "Filter":
            known = self.read(node.child())
            self.steps.append(Filter(self._reader.term(node.condition(), known)))
            return known
        if kind == "Project":
            return self._project(node, self.read(node.child()))
        raise OnlySparkError(f"only Spark does {_CALLED.get(kind, kind)}")

    def _project(self, node: Any, known: dict[int, Term]) -> dict[int, Term]:
        """Note the columns that a projection makes; those that it only hands on stay what they are."""
        found: dict[int, Term] = {}
        made: dict[str, Term] = {}
        for each in each_of(node.projectList()):
            is_new = class_of(each) == "Alias"
            term = self._reader.term(each.child() if is_new else each, known)
            if is_new and term.kind != "Column":
                self._made += 1
                name = f"{self._made}: {each.name()}"
                made[name] = term
                term = column(name, term.type)
            found[each.exprId().id()] = term
        if made:
            kept = {str(term.value): term for term in found.values() if term.value not in made}
            self.steps.append(Project((*kept.items(), *made.items())))
        return found
