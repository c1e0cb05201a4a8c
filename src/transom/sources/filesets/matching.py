"""Lines of text taken apart by a regular expression: each line that matches is a row, each other one a corrupt record.

The expression is Java's, as in Spark's `regexp_extract`; its named groups are the columns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from transom.errors import DefinitionError
from transom.sources.base import CORRUPT
from transom.sources.filesets.jsonlines import LINE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

REGEX = "regex"
"""The option with the expression."""
OPTIONS = ("timestampFormat", "dateFormat")
_NAMED = re.compile(r"(?<!\\)((?:\\\\)*)\(\?P?<([A-Za-z_]\w*)>")


def groups_of(regex: str) -> dict[str, int]:
    r"""Return the named groups of an expression with their numbers.

    Raises:
        DefinitionError: It is no expression, or has no named group.

    >>> groups_of(r"(?P<ip>[0-9.]+) (\S+) (?<status>[0-9]+)")
    {'ip': 1, 'status': 3}
    """
    try:
        found = dict(re.compile(_NAMED.sub(r"\1(?P<\2>", regex)).groupindex)
    except re.error as error:
        raise DefinitionError(
            f"text: regex: {regex!r} is no regular expression: {error}.", r"Write for example (?P<status>\d+)."
        ) from error
    if not found:
        raise DefinitionError(
            f"text: regex: {regex!r} has no named group.", r"Name what is to be a column, as in (?P<status>\d+)."
        )
    return found


def java_pattern(regex: str) -> str:
    r"""Return the expression for whole lines, with numbered groups only: Java has no underscores in their names.

    >>> print(java_pattern("(?P<user_id>[0-9]+)"))
    \A(?:([0-9]+))\z
    """
    return r"\A(?:" + _NAMED.sub(r"\1(", regex) + r")\z"


def check_columns(schema: StructType, regex: str) -> None:
    """Make sure that the columns are the groups, and can be made of text.

    Raises:
        DefinitionError: They are not.
    """
    from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType, VariantType

    groups = groups_of(regex)
    if sorted(schema.names) != sorted(groups):
        raise DefinitionError(
            f"text: the columns are {', '.join(schema.names)}, and the groups of the regex {', '.join(groups)}.",
            "Give each named group a type, and name no other column.",
        )
    for field in schema.fields:
        if isinstance(field.dataType, (ArrayType, BinaryType, MapType, StructType, VariantType)):
            raise DefinitionError(
                f"text: the column {field.name} has type {field.dataType.simpleString()}, which is not made of text.",
                "Take a string, and take it apart in map().",
            )


def read_text(
    spark: SparkSession, uris: Sequence[str], schema: StructType, options: Mapping[str, str], metadata: Sequence[str]
) -> DataFrame:
    """Return the rows of lines, with _corrupt_record; blank lines are nothing.

    Args:
        spark: The session.
        uris: The files.
        schema: The columns: the named groups with their types.
        options: `REGEX`, and those of `OPTIONS`.
        metadata: What of Spark's `_metadata` of the files is kept, by its names.
    """
    from pyspark.sql import functions as F

    pattern, groups = java_pattern(options[REGEX]), groups_of(options[REGEX])
    lines = spark.read.format("text").load(list(uris))
    about = [F.col(f"_metadata.{name}").alias(name) for name in metadata]
    lines = lines.select(F.col("value").alias(LINE), *about).where(F.length(F.trim(LINE)) > 0)
    matches = F.col(LINE).rlike(pattern) & F.expr(f"is_valid_utf8({LINE})")
    bad, columns = ~matches, []
    for field in schema.fields:
        text = F.regexp_extract(LINE, pattern, groups[field.name])
        value = _value(text, field.dataType.simpleString(), options)
        if field.dataType.simpleString() != "string":
            bad = bad | (value.isNull() & (text != ""))
        columns.append(value.alias(field.name))
    corrupt = F.when(bad, F.expr(f"make_valid_utf8({LINE})"))
    names = [F.when(~bad, column).alias(name) for column, name in zip(columns, schema.names, strict=True)]
    return lines.select(*names, corrupt.alias(CORRUPT), *metadata)


def _value(text: Column, kind: str, options: Mapping[str, str]) -> Column:
    """Return the value of a type that a text says; null where it says none."""
    from pyspark.sql import functions as F

    if kind.startswith("timestamp") and "timestampFormat" in options:
        return F.try_to_timestamp(text, F.lit(options["timestampFormat"])).cast(kind)
    if kind == "date" and "dateFormat" in options:
        return F.try_to_timestamp(text, F.lit(options["dateFormat"])).cast(kind)
    return text if kind == "string" else text.try_cast(kind)
