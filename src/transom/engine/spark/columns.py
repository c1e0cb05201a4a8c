"""From what users write (names, SQL, Columns) to Spark columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transom.model.expression import Expression

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


TIME = "_event_micros"
"""Event time as a bigint of microseconds; travels with the row through the users' transformations."""


def quoted(name: str) -> str:
    """Return a column name as Spark SQL takes it, whatever characters are in it.

    >>> quoted("a.b")
    '`a.b`'
    """
    return "`" + name.replace("`", "``") + "`"


def to_column(expression: Expression, names: Sequence[str], case_sensitive: bool) -> Column:
    """Return the Spark column of an expression over a DataFrame with these column names.

    A text that is the name of a column is that column, even with dots and spaces in it; else it is SQL.
    """
    from pyspark.sql import functions as F

    if expression.column is not None:
        return expression.column  # type: ignore[return-value]
    text = expression.text
    if text in names:
        return F.col(quoted(text))
    if not case_sensitive:
        for name in names:
            if name.lower() == text.lower():
                return F.col(quoted(name))
    return F.expr(text)


def to_condition(expression: Expression) -> Column:
    """Return the Spark column of a condition; a text is SQL, as in `DataFrame.where`."""
    from pyspark.sql import functions as F

    return F.expr(expression.text) if expression.column is None else expression.column  # type: ignore[return-value]


def micros_or_null(moment: Column) -> Column:
    """Return a moment in microseconds, a bigint; null where it cannot be computed, as by to_timestamp in ANSI mode.

    `try_add` of a time catches whatever computing its operands raises (but not what a Python function raises). The
    optimizer must not take anything out of it: nothing is moved into or out of branches beside what is not foldable
    (no time at all, times the number of the task), nor computed before a branch that may not be taken (the condition,
    which always holds).
    """
    from pyspark.sql import functions as F

    nothing = F.expr("INTERVAL '0' SECOND * spark_partition_id()")
    tried = F.try_add(moment.cast("timestamp"), nothing)
    return F.when(F.spark_partition_id() >= 0, F.unix_micros(tried))


def both(left: Expression, right: Expression) -> Expression:
    """Return the condition that two conditions hold.

    >>> str(both(Expression("a > 0"), Expression("b OR c")))
    '(a > 0) AND (b OR c)'
    """
    text = f"({left.text}) AND ({right.text})"
    if left.column is None and right.column is None:
        return Expression(text)
    return Expression.called(text, to_condition(left) & to_condition(right))


@dataclass(frozen=True)
class Where:
    """The transformation that keeps the rows which satisfy a condition; equal when the conditions are."""

    condition: Expression

    def __call__(self, df: DataFrame) -> DataFrame:
        """Return the rows that satisfy the condition."""
        return df.where(to_condition(self.condition))


STEPS = 16
"""Thinned rows are so many parts of sixteen: each number is another plan that Spark compiles."""


@dataclass(frozen=True)
class Costly:
    """The place in a chain before a transformation that costs much: under overload rows are thinned here."""

    def __call__(self, df: DataFrame) -> DataFrame:
        """Return the rows as they are."""
        return df


@dataclass(frozen=True)
class Thinning:
    """Rows that go on, chosen evenly by a hash of the row and the cut: the same ones every time."""

    sixteenths: int
    """Of the rows, from 0 to `STEPS`."""
    cut: int

    def __call__(self, df: DataFrame) -> DataFrame:
        """Return the rows that go on."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import AtomicType

        hashed = [F.col(quoted(field.name)) for field in df.schema.fields if isinstance(field.dataType, AtomicType)]
        # A text is no constant in the code that Spark compiles, as a number would be.
        return df.where(F.pmod(F.xxhash64(*hashed, F.lit(f"cut {self.cut}")), F.lit(STEPS)) < self.sixteenths)


@dataclass(frozen=True)
class Unrepeatable:
    """A transformation that may make other rows of the same rows, as the user knows; equal when the functions are."""

    function: Callable[[DataFrame], DataFrame]

    def __call__(self, df: DataFrame) -> DataFrame:
        """Return the rows after the transformation."""
        return self.function(df)


def is_case_sensitive(df: DataFrame) -> bool:
    """Tell whether the session's column names are case sensitive."""
    return str(df.sparkSession.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"


def first_line(error: BaseException) -> str:
    r"""Return the first sentence of an error and the SQL it is about, without error codes, our columns, and traces.

    >>> first_line(ValueError("[NO_COLUMN] No `x`. Did you mean [`a`, `_event_micros`]. SQLSTATE: 42703; line 1"))
    'No `x`. Did you mean [`a`]'
    >>> first_line(ValueError("[PARSE] Syntax error. SQLSTATE: 42601 (line 1)\n\n== SQL ==\nfare >\n------^^^"))
    "Syntax error: 'fare >'"
    """
    lines = str(error).strip().splitlines()
    text = re.sub(r"^\[[A-Z0-9_.]+\] |,? ?SQLSTATE: .*$", "", lines[0] if lines else type(error).__name__)
    text = text.replace(f", `{TIME}`", "").rstrip(". ")
    written = lines.index("== SQL ==") + 1 if "== SQL ==" in lines else len(lines)
    return f"{text}: {lines[written]!r}" if written < len(lines) else text
