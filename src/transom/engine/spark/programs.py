"""Programs that make the rows of a DataFrame without Spark, read from its plan.

The optimizer's plan is read: constants, names and casts are as Spark understands them, and filters go first, as they do
in its own job. What it is over has no rows yet.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from transom.engine.spark.rowwise import why_not_repeatable
from transom.engine.spark.sparkterms import Reader, class_of, each_of, named_numbers
from transom.engine.spark.statictables import NotLastingError, static_table
from transom.native.evaluate import Runner, why_not
from transom.native.lookups import is_key
from transom.native.program import ANTI, INNER, LEFT, SEMI, Filter, Lookup, Program, Project, Step
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


_NO_ROWS = "only Spark joins with a table without rows"
_THEIRS = "TheirColumn"
"""The kind of a column of a static table."""
_JOINS = {
    ("Inner", True): INNER,
    ("Inner", False): INNER,
    ("LeftOuter", True): LEFT,
    ("RightOuter", False): LEFT,
    ("LeftSemi", True): SEMI,
    ("LeftAnti", True): ANTI,
}
"""Lookups, by Spark's joins and whether the stream is on the left."""


class OnlySparkError(Exception):
    """Something is known to Spark only; the text says what, in plain words."""


def empty_rows(session: SparkSession, schema: StructType) -> DataFrame:
    """Return a DataFrame without rows, of an RDD: of a local relation the optimizer knows that it is empty."""
    return session.createDataFrame(session.sparkContext.emptyRDD(), schema)


def runner_of(frame: DataFrame, rows: DataFrame, lookups: Mapping[str, DataFrame] | None = None) -> Runner:
    """Return what makes the rows of a DataFrame without Spark.

    Args:
        frame: A DataFrame of a classic session, with one value for each of its names.
        rows: What it is made of (`empty_rows`).
        lookups: In the same way the tables by name that it looks rows up in; their rows are given later.

    Raises:
        OnlySparkError: Spark does something else than filter and compute columns, or computes what is not known here.
    """
    if why := why_not_repeatable(frame, ""):
        raise OnlySparkError(why)
    reading = _Reading(Reader("UTC"), rows, lookups or {})
    execution = frame._jdf.queryExecution()
    if any(class_of(leaf) == "LocalRelation" and leaf.data().isEmpty() for leaf in leaves(execution.analyzed())):
        raise OnlySparkError(_NO_ROWS)  # the optimizer leaves nothing of the join
    plan = execution.optimizedPlan()
    known = reading.read(plan)
    names = dict(named_numbers(plan.output()))
    if len(names) != len(frame.columns):
        raise OnlySparkError("several columns have one name")
    chosen = Project(tuple((name, known[number]) for name, number in names.items()))
    program = Program(reading.columns, (*reading.steps, chosen))
    if why := why_not(program):
        raise OnlySparkError(why)
    return Runner(program, reading.tables, reading.awaited)


class _Reading:
    """Reads operators; `steps` are those that were read, `tables` and `awaited` what they look rows up in.

    Args:
        reader: Reads expressions.
        rows: What the operators are over.
        lookups: Tables whose rows are given later, by name.
    """

    def __init__(self, reader: Reader, rows: DataFrame, lookups: Mapping[str, DataFrame]) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self.columns = to_arrow_schema(rows.schema, timezone="UTC")
        self.awaited: dict[str, tuple[str, Runner]] = {}
        self._lookups = lookups
        self.steps: list[Step] = []
        self.tables: dict[str, pa.Table] = {}
        self._session = rows.sparkSession
        self._reader = reader
        self._output = _numbers(rows._jdf.queryExecution().analyzed().output())
        self._made = 0

    def read(self, node: Any) -> dict[int, Term]:
        """Return the columns of an operator by Spark's numbers, and note its steps.

        Raises:
            OnlySparkError: They are not known.
        """
        kind = class_of(node)
        if self._is_stream(node):
            return {n: column(f.name, f.type) for n, f in zip(self._output, self.columns, strict=True)}
        if kind == "Filter":
            known = self.read(node.child())
            self.steps.append(Filter(self._reader.term(node.condition(), known)))
            return known
        if kind == "Project":
            return self._project(node, self.read(node.child()))
        if kind == "Join":
            return self._join(node)
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

    def _is_stream(self, leaf: Any) -> bool:
        """Tell whether an operator is what the others are over."""
        return class_of(leaf) == "LogicalRDD" and _numbers(leaf.output()) == self._output

    def _join(self, node: Any) -> dict[int, Term]:
        """Note a lookup of rows in a static table."""
        sides = [node.left(), node.right()]
        streams = [any(map(self._is_stream, leaves(side))) for side in sides]
        join = str(node.joinType().toString())  # some have no SQL, like those that a subquery becomes
        kind = _JOINS.get((join, streams[0]))
        if kind is None or all(streams):
            name = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", join.partition("(")[0]).lower()
            raise OnlySparkError(f"only Spark does this join ({name})")
        stream, static = sides if streams[0] else sides[::-1]
        known = self.read(stream)
        name = f"table {len(self.tables) + len(self.awaited) + 1}"
        self._take_table(name, static)
        theirs = {
            each.exprId().id(): replace(self._reader.term(each, {}), kind=_THEIRS, value=str(place))
            for place, each in enumerate(each_of(static.output()))
        }
        if node.condition().isEmpty():
            raise OnlySparkError("only Spark joins without a condition")
        condition = self._reader.term(node.condition().get(), {**known, **theirs})
        keys, others = _keys(condition)
        if not keys:
            raise OnlySparkError(f"only Spark joins by {condition.text}")
        added = {number: column(f"{name}: {term.value}", term.type) for number, term in theirs.items()}
        step = Lookup(
            name,
            tuple((ours, its) for ours, its, _ in keys),
            kind,
            tuple((str(added[n].value), str(term.value), term.type) for n, term in theirs.items()),
            frozenset(its for _, its, null_safe in keys if null_safe),
            _named(functools.reduce(_both, others), name) if others else None,
        )
        self.steps.append(step if step.adds or others else replace(step, columns=()))
        return {**known, **added} if step.adds else known

    def _take_table(self, name: str, static: Any) -> None:
        """Note a table that rows are looked up in: its rows, or what makes them of those that are given later."""
        below = leaves(static)
        for of, rows in self._lookups.items():
            reading = _Reading(self._reader, rows, {})
            if any(map(reading._is_stream, below)):
                known = reading.read(static)
                made = [(str(place), known[number]) for place, number in enumerate(_numbers(static.output()))]
                program = Program(reading.columns, (*reading.steps, Project(tuple(made))))
                if why := why_not(program):
                    raise OnlySparkError(why)
                self.awaited[name] = of, Runner(program, reading.tables)
                return
        try:
            self.tables[name] = static_table(self._session, static)
        except NotLastingError as error:
            raise OnlySparkError(str(error)) from error
        if not self.tables[name].num_rows:
            raise OnlySparkError(_NO_ROWS)


def _numbers(attributes: Any) -> list[int]:
    """Return Spark's numbers of columns."""
    return [number for _, number in named_numbers(attributes)]


def leaves(plan: Any) -> list[Any]:
    """Return what a plan is made of."""
    return each_of(plan.collectLeaves())


def _keys(condition: Term) -> tuple[list[tuple[Term, str, bool]], list[Term]]:
    """Return what a condition wants to be equal, and what else it wants.

    Returns:
        Values of a row, columns of the table, and whether null equals null; terms.
    """
    if condition.kind == "And":
        (keys, others), (more, further) = map(_keys, condition.children)
        return keys + more, others + further
    if condition.kind in ("EqualTo", "EqualNullSafe"):
        for ours, its in (condition.children, condition.children[::-1]):
            if its.kind == _THEIRS and not _names_theirs(ours) and ours.type == its.type and is_key(its.type):
                return [(ours, str(its.value), condition.kind == "EqualNullSafe")], []
    return [], [condition]


def _both(one: Term, other: Term) -> Term:
    return Term("And", one.type, f"{one.text} AND {other.text}", (one, other))


def _named(term: Term, table: str) -> Term:
    """Return a term in which columns of a table have their names in the rows after the join."""
    if term.kind == _THEIRS:
        return column(f"{table}: {term.value}", term.type)
    return replace(term, children=tuple(_named(child, table) for child in term.children))


def _names_theirs(term: Term) -> bool:
    return term.kind == _THEIRS or any(map(_names_theirs, term.children))
