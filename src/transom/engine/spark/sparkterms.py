"""Conditions as Spark understands them: trees of terms that its analyser and optimizer made of SQL text or a Column.

So names, types, casts, constants and the session's time zone are Spark's own; no job runs for it.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from transom.engine.spark.columns import first_line, to_condition
from transom.errors import DefinitionError
from transom.model.expression import Expression, Input
from transom.native.computing import NotKnownError
from transom.native.functions import arrow_expression
from transom.native.terms import Term
from transom.native.times import DAY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SPARK_ONLY = "Let Spark do it: `view.df().where(...)`; or give an Arrow expression, as pc.field('fare') > 3."


def arrow_condition(spark: SparkSession, schema: pa.Schema, condition: Input) -> pc.Expression:
    """Return a condition over columns as an expression of Arrow that keeps the rows that Spark keeps.

    Args:
        spark: Its settings decide: time zone, ANSI mode, case of names.
        schema: The columns.
        condition: SQL text or a Column.

    Raises:
        DefinitionError: It is no condition over these columns, or only Spark computes it.
    """
    try:
        return arrow_expression(spark_term(spark, schema, condition), schema)
    except NotKnownError as error:
        raise DefinitionError(f"where: {error}.", SPARK_ONLY) from None


def spark_term(spark: SparkSession, schema: pa.Schema, condition: Input) -> Term:
    """Return a condition over columns as Spark understands it.

    Args:
        spark: Its settings decide: time zone, ANSI mode, case of names.
        schema: The columns.
        condition: SQL text or a Column.

    Raises:
        DefinitionError: It is no condition over these columns, or not one of each row by itself.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_schema

    expression = Expression.of(condition, "where")
    try:
        # Rows of an RDD: the optimizer knows that a local relation is empty, and would leave nothing of the condition.
        fields = from_arrow_schema(schema, prefer_timestamp_ntz=True)
        empty = spark.createDataFrame(spark.sparkContext.emptyRDD(), fields)
        column = to_condition(expression)
        empty.where(column)
        plan = empty.select(column.alias("kept"))._jdf.queryExecution().optimizedPlan()
    except PySparkException as error:
        raise DefinitionError(
            f"where: {expression}: {first_line(error)}.", f"Columns are {', '.join(schema.names)}."
        ) from None
    levels = []
    while class_of(plan) == "Project":
        levels.append(plan)
        plan = plan.child()
    if class_of(plan) != "LogicalRDD":
        raise DefinitionError(
            f"where: only Spark computes {expression}: it has a subquery or a Python function.", SPARK_ONLY
        )
    reader = reader_of(spark)
    known: dict[int, Term] = {}
    for attribute, field in zip(each_of(plan.output()), schema, strict=True):
        known[attribute.exprId().id()] = replace(reader.term(attribute, known), kind="Column", value=field.name)
    for level in reversed(levels):
        known = {
            each.exprId().id(): reader.term(each.children().head() if class_of(each) == "Alias" else each, known)
            for each in each_of(level.projectList())
        }
    return next(iter(known.values()))


_WITH_ZONE = frozenset(
    [
        *("Cast", "Hour", "Minute", "Second", "TruncTimestamp", "DateFormatClass", "UnixTimestamp", "ToUnixTimestamp"),
        *("FromUnixTime", "TimestampAddInterval", "TimestampAdd"),
    ]
)
"""Terms that depend on a time zone."""


def reader_of(spark: SparkSession) -> Reader:
    """Return what reads expressions of a session."""
    return Reader(str(spark.conf.get("spark.sql.session.timeZone")))


_SPARKS = "org.apache.spark.sql."
_BETWEEN, _NUMBERED = "\x00", re.compile(r"(.*)#(\d+)L?", re.DOTALL)
"""What separates columns in a text, and what Spark writes of each of them."""
_WITH_MODE = ("Cast", "Add", "Subtract", "Multiply", "Divide", "Remainder", "Pmod", "IntegralDivide")

_RAISING = ("UnaryMinus", "Abs", "ElementAt", "GetArrayItem", "Elt", "MakeInterval")
"""Terms that say whether they fail where they cannot be done."""
_HASHES = ("XxHash64", "Murmur3Hash")
_FIRST, _BEYOND = -62_135_596_800_000_000, 253_402_300_800_000_000
"""Microseconds of the years 1 to 9999: a constant of another year cannot be pickled, as Python has no such date."""
_MOST_ELEMENTS = 1_000
"""Of an array that is a constant: each is asked for in the JVM."""


@dataclass
class Reader:
    """Reads expressions in the JVM."""

    zone: str

    def term(self, node: Any, known: dict[int, Term]) -> Term:
        """Return the term of an expression; attributes are those that are known, by Spark's number."""
        kind = class_of(node)
        if kind == "AttributeReference" and (number := node.exprId().id()) in known:
            return known[number]
        children = tuple(self.term(each, known) for each in each_of(node.children()))
        own = _arrow_type(node.dataType().json(), self.zone)
        value, mode = None, ""
        if kind == "Literal":
            value = _array(node, own) if kinds.is_list(own) else _scalar(node.value(), own)
        elif kind == "InSet":
            value = tuple(_scalar(each, children[0].type) for each in each_of(node.hset().toSeq()))
        elif kind == "GetStructField":
            value = node.ordinal()
        elif kind == "Like":
            value = str(node.escapeChar())
        elif kind in _HASHES:
            value = node.seed()
        elif kind in _WITH_ZONE:
            zone = node.timeZoneId()
            value = str(zone.get()) if zone.isDefined() else None
            if kind == "TimestampAdd":
                value = str(node.unit()).upper(), value
        if kind in _WITH_MODE:
            mode = node.evalMode().toString()
        elif kind in _RAISING:
            mode = "ANSI" if node.failOnError() else "LEGACY"
        return Term(kind, own, node.sql(), children, value, mode)


@functools.lru_cache(maxsize=1_000)
def _arrow_type(spark_type: str, zone: str) -> pa.DataType:
    """Return the Arrow type of a type of Spark; null for one whose values Arrow has not, or compares otherwise."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import StringType, _parse_datatype_json_string

    try:
        found = _parse_datatype_json_string(spark_type)  # some are Java's own, such as that of what `to_json` calls
        if isinstance(found, StringType) and found != StringType():
            return pa.null()
        return to_arrow_type(found, timezone=zone)
    except PySparkException:
        return pa.null()


def class_of(node: Any) -> str:
    """Return the name of the class of a node of a plan or an expression, with its package if it is not Spark's own."""
    name = str(node.getClass().getName())
    return name.rpartition(".")[2].rpartition("$")[2] or name if name.startswith(_SPARKS) else name


def named_numbers(attributes: Any) -> list[tuple[str, int]]:
    """Return the names and Spark's numbers of the columns of a plan, in their order: by one text, not one by one."""
    found = [_NUMBERED.fullmatch(each) for each in str(attributes.mkString(_BETWEEN)).split(_BETWEEN)]
    known = [(each[1], int(each[2])) for each in found if each is not None]
    if len(known) == len(found) == attributes.size():
        return known
    return [(str(each.name()), each.exprId().id()) for each in each_of(attributes)]


def each_of(sequence: Any) -> list[Any]:
    """Return the elements of a sequence of Scala."""
    return [sequence.apply(place) for place in range(sequence.size())]


def _array(node: Any, kind: pa.DataType) -> pa.Scalar | None:
    """Return a constant that is an array; None where Arrow has not one of its elements."""
    array, of = node.value(), kind.value_type
    if array is None:
        return pa.scalar(None, kind)
    known = kinds.is_string(of) or kinds.is_integer(of) or kinds.is_floating(of) or kinds.is_boolean(of)
    if not known or array.numElements() > _MOST_ELEMENTS:
        return None
    found = [_scalar(each, of) for each in array.toObjectArray(node.dataType().elementType())]
    values = [each.as_py() for each in found if each is not None]
    return pa.scalar(values, kind) if len(values) == len(found) else None


def _scalar(value: Any, kind: pa.DataType) -> pa.Scalar | None:
    """Return a constant, as Spark keeps it, as a scalar of its type; None where Arrow has no such value."""
    if value is None:
        return pa.scalar(None, kind)
    if kinds.is_null(kind):
        return None
    if kinds.is_string(kind):
        try:
            return pa.scalar(bytes(value.getBytes()).decode(), kind)
        except UnicodeDecodeError:
            return None
    if kinds.is_decimal(kind):
        return pa.scalar(Decimal(value.toString()), kind)
    if kinds.is_date32(kind):
        return pa.scalar(value, pa.int32()).cast(kind) if _FIRST <= value * DAY < _BEYOND else None
    if kinds.is_timestamp(kind):
        return pa.scalar(value, pa.int64()).cast(kind) if _FIRST <= value < _BEYOND else None
    if kinds.is_duration(kind):
        return pa.scalar(value, pa.int64()).cast(kind)
    if kinds.is_binary(kind):
        return pa.scalar(bytes(value), kind)
    return pa.scalar(value, kind) if kinds.is_primitive(kind) else None
