"""Checks by its analysed plan that a transformation is row-wise: each row by itself, whatever rows are beside it.

What depends on several rows (an aggregate, `distinct`, a limit) would depend on how the stream is cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from transom.model.sessions import java_class

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Fault: TypeAlias = "tuple[str, str]"
"""The fault, and the remedy."""

_ROW_BY_ROW = frozenset(
    [
        "Project",
        "Filter",
        "SubqueryAlias",
        "View",
        "Generate",
        "Expand",
        "Union",
        "ResolvedHint",
        "UnresolvedHint",
        "CollectMetrics",
        "WithCTE",
        "CTERelationDef",
        "MapInPandas",
        "MapInArrow",
        "MapPartitions",
        "MapElements",
        "DeserializeToObject",
        "SerializeFromObject",
        "TypedFilter",
        "Repartition",
        "RepartitionByExpression",
        "RebalancePartitions",
        "EventTimeWatermark",
        "Join",
        "LateralJoin",
    ]
)

_REMEDIES = {
    "Aggregate": "Aggregate in windows with group_by(...).window(...).agg(...), or a static table before it is joined.",
    "Deduplicate": "Count each once with approx_count_distinct or collect_set in a window.",
    "Distinct": "Count each once with approx_count_distinct or collect_set in a window.",
    "Window": "Use a window of Transom with first, last, min, max or top_k, or window functions on its results.",
    "WithWindowDefinition": "Use a window of Transom, or window functions on its results.",
    "GlobalLimit": "Use where(...), or top_k in a window.",
    "LocalLimit": "Use where(...), or top_k in a window.",
    "Tail": "Use where(...), or last in a window.",
    "Offset": "Use where(...).",
    "Sort": "Leave it out: aggregates do not depend on the order of rows, and first and last go by event time.",
    "Sample": 'Choose rows by a hash of a column: where("pmod(hash(id), 100) < 10").',
    "Except": "Use where(...), or an anti join with a static table.",
    "Intersect": "Use where(...), or a semi join with a static table.",
}
_ANY = "Only what takes each row by itself can be in map: filters, columns, explode, joins with static tables."
_CLOCK = re.compile(r"\b(current_timestamp|current_date|now|localtimestamp|current_time|curdate)\(")
_CHANCE = re.compile(
    r"\b(rand|randn|random|randstr|uniform|uuid|shuffle|monotonically_increasing_id|spark_partition_id"
    r"|input_file_name|input_file_block_start|input_file_block_length)\("
)


_KEPT_SIDE = {
    "Inner": (0, 1),
    "Cross": (0, 1),
    "LeftOuter": (0,),
    "LeftSemi": (0,),
    "LeftAnti": (0,),
    "LeftSingle": (0,),
    "ExistenceJoin": (0,),
    "RightOuter": (1,),
}
"""Of which child a join gives rows that it gives at all."""
_FOREIGN = (
    "its rows do not come from the stream",
    "Return the DataFrame that was given, transformed; not one made of its RDD, of a checkpoint or of other rows.",
)


@dataclass
class Operator:
    """An operator of an analysed plan."""

    text: str
    children: list[Operator] = field(default_factory=list)
    subqueries: list[Operator] = field(default_factory=list)
    """The plans of subqueries in its expressions."""

    @property
    def name(self) -> str:
        """Its kind."""
        return self.text.split(" ", 1)[0].lstrip("'!").split("(")[0]

    def walk(self) -> Iterator[Operator]:
        """Give this operator and all below it, those of subqueries too."""
        yield self
        for below in (*self.children, *self.subqueries):
            yield from below.walk()


def parse(text: str) -> Operator:
    r"""Return the operators of a plan as Spark prints it.

    A child is one step (three characters) to the right of its parent, the plan of a subquery two.

    >>> parse("Join Inner\n:- Project [a]\n:  +- Leaf [a]\n+- Leaf [b]").children[0].children[0].text
    'Leaf [a]'
    """
    path: list[Operator | None] = []
    for line in text.splitlines():
        words = re.sub(r"^(?:[: ] {2})*(?:[:+]- )?", "", line)
        depth = (len(line) - len(words)) // 3
        operator = Operator(words)
        if not path:
            path = [operator]
            continue
        if depth > len(path):
            path.append(None)
        parent = path[min(depth, len(path)) - 1]
        if parent is None:
            above = path[min(depth, len(path)) - 2]
            assert above is not None
            above.subqueries.append(operator)
        else:
            parent.children.append(operator)
        path[max(depth, 1) :] = [operator]
    assert path[0] is not None, "a plan has an operator"
    return path[0]


def why_not_row_wise(text: str, stream: str) -> Fault | None:
    """Return why the rows of a plan are not made from the rows of a stream one by one, and the remedy.

    What a plan does with static tables alone is its own affair.

    Args:
        text: The analysed plan, without numbers.
        stream: That of the stream's rows.
    """
    root = parse(text)
    found = _Judge(parse(stream).text, root).judge(root)
    return (found or _FOREIGN) if found is not True else None


class _Judge:
    """Judges the operators of a plan.

    Args:
        leaf: The text of the operator that is the stream.
        root: The whole plan.
    """

    def __init__(self, leaf: str, root: Operator) -> None:
        self._leaf = leaf
        self._shared = {_number(one.text): one for one in root.walk() if one.name == "CTERelationDef"}

    def judge(self, operator: Operator) -> Fault | bool:
        """Return what is wrong at or below an operator, else whether its rows come from the stream."""
        if operator.text == self._leaf:
            return True
        if operator.name == "CTERelationRef":
            shared = self._shared.get(_number(operator.text))
            return shared is not None and self.judge(shared)
        below = [self.judge(child) for child in operator.children]
        within = [self.judge(query) for query in operator.subqueries]
        if any(within):
            return "a subquery reads the rows of the stream again", "Compute it in a query, and join its results."
        for found in below:
            if isinstance(found, tuple):
                return found
        if operator.name == "WithCTE":
            return below[-1]
        return any(below) and self._of_stream(operator, [found is True for found in below])

    def _of_stream(self, operator: Operator, streams: Sequence[bool]) -> Fault | bool:
        """Judge an operator, some of whose children (True) are rows of the stream."""
        name = operator.name
        if name not in _ROW_BY_ROW:
            return f"{_called(name)} depends on several rows", _REMEDIES.get(name, _ANY)
        if name == "Union" and not all(streams):
            return (
                "a union adds the rows of a static table to every micro-batch",
                "Join with the table, or make it a source.",
            )
        if name != "Join":
            return True
        if all(streams):
            return "a join of the stream with itself depends on several rows", "Use app.join, which joins in windows."
        kind = operator.text.split()[1].rstrip(",")
        keeps = _KEPT_SIDE.get(kind.split("(")[0])
        if keeps is None or not any(streams[side] for side in keeps):
            return (
                f"a join ({kind}) gives rows of a static table in every micro-batch",
                "Put the rows of the stream on the left, and join inner, left, semi or anti.",
            )
        return True


def _called(name: str) -> str:
    """Return what users call an operator."""
    known = {"GlobalLimit": "limit", "LocalLimit": "limit", "Window": "a window function", "Deduplicate": "distinct"}
    return known.get(name, name[0].lower() + name[1:])


def _number(text: str) -> str:
    """Return the number of a common table expression."""
    return text.split()[1].rstrip(",")


def more_than_columns(text: str, rows: str) -> Fault | None:
    """Return what expressions over rows do besides giving one value for each row, and the remedy.

    Args:
        text: The analysed plan of the expressions.
        rows: That of the rows that they are over.
    """
    operator, leaf = parse(text), parse(rows).text
    while operator.text != leaf and operator.children:
        if operator.name not in ("Project", "Filter"):
            remedy = "Make rows in map." if operator.name == "Generate" else _REMEDIES.get(operator.name, _ANY)
            return f"{_called(operator.name)} does not give one value for each row by itself", remedy
        operator = operator.children[0]
    return None


def why_not_repeatable(df: DataFrame, text: str) -> str | None:
    """Return why the same rows may give other results when they are read again; None when they cannot.

    Args:
        df: The rows.
        text: Their analysed plan. Without a JVM (Spark Connect) there is no more to go by, and Spark shows of each
            operator only the first 25 columns.
    """
    if hasattr(df, "_jdf"):
        analysed = df._jdf.queryExecution().analyzed()
        chance = not analysed.deterministic()
        clock = analysed.containsPattern(_current_like(df.sparkSession))
    else:
        chance, clock = _CHANCE.search(text) is not None, _CLOCK.search(text) is not None
    if chance:
        return "it has an expression that is not deterministic (rand, uuid, input_file_name, such a Python function)"
    return "it depends on the time at which it runs (current_timestamp, now)" if clock else None


def _current_like(spark: SparkSession) -> Any:
    """Return Spark's mark of plans that depend on the time."""
    return java_class(spark, "org.apache.spark.sql.catalyst.trees.TreePattern", "CURRENT_LIKE").CURRENT_LIKE()
