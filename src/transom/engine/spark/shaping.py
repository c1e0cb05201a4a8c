"""The steps from aggregates to results, computed by Spark itself: on the driver, without a job, while they are few."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.engine.spark import rowwise
from transom.engine.spark.columns import first_line, is_case_sensitive, quoted, to_column, to_condition
from transom.engine.spark.plan import utc
from transom.engine.spark.plantext import plan_text
from transom.engine.spark.sparkterms import arrow_condition
from transom.errors import DefinitionError, QueryFailedError
from transom.failures import classify, require_blame
from transom.model.sessions import is_connect
from transom.windows.query import WindowedQuery
from transom.windows.steps import Having, Select, Step, columns_after, named_in

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

ROW = "_result_row"
"""Column with the number of a row, while Spark has it."""
FEW = 10_000
"""Up to so many rows come back from Spark one by one, more of them as Arrow, by a job."""

_MICROS, _DAYS = pa.timestamp("us", "UTC"), pa.date32()


class Shaping:
    """The steps of one query: takes a table of its aggregates, and returns the results.

    Columns that are only chosen or renamed stay where they are. Conditions that come first are Arrow's, where there is
    an expression of Arrow that means the same (`sparkterms`). The rest is asked of Spark: over rows that the driver
    has, its optimizer computes projections and filters at once, so that no job runs.

    Args:
        session: Transom's session; its settings decide, as in a batch query.
        query: The query.
        aggregates: The columns of its aggregates.

    Raises:
        DefinitionError: A step cannot work; says what Spark says.
    """

    def __init__(self, session: SparkSession, query: WindowedQuery, aggregates: pa.Schema) -> None:
        from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
        from pyspark.sql.types import LongType

        self._session, self._query, self._names = session, query, aggregates.names
        self._fields = from_arrow_schema(aggregates, prefer_timestamp_ntz=True)
        self._numbered = from_arrow_schema(aggregates, prefer_timestamp_ntz=True).add(ROW, LongType())
        self._columns = columns_after(query.steps, query.columns)
        frames: list[DataFrame] = [session.createDataFrame([], self._numbered)]
        stages: list[Callable[[DataFrame], DataFrame]] = []
        for step in query.steps:
            stages.append(_stage(step, frames[-1]))
            frames.append(self._checked(step, frames[-1], stages[-1]))
        frame = frames[-1]
        computed = [name for name, source in self._columns.items() if source is None]
        kinds = {field.name: field for field in utc(to_arrow_schema(frame.schema, timezone="UTC"))}
        self.schema = pa.schema(
            [
                pa.field(name, kinds[name].type if source is None else aggregates.field(source).type)
                for name, source in self._columns.items()
            ]
        )
        self._computed: list[tuple[str, pa.DataType]] = [(name, self.schema.field(name).type) for name in computed]
        types = {field.name: field.dataType for field in frame.schema.fields}
        done, values = _last(query.steps, computed, frames)
        self._stages = stages[:done]
        self._as_arrow = _choosing(frame, [value.alias(name) for name, value in values.items()])
        carried = [_carried(value, types[name]) for name, value in values.items()]
        plain = [column for column in carried if column is not None]
        self._as_rows = _choosing(frame, plain)
        self._by_rows = not is_connect(session) and len(plain) == len(carried)
        self._conditions = _first_conditions(session, query.steps, aggregates)
        self._asks = bool(computed) or any(isinstance(step, Having) for step in query.steps[len(self._conditions) :])

    def __call__(self, table: pa.Table) -> pa.Table:
        """Return the results of aggregates; further columns of the table (revision, shares) stay at their end.

        Raises:
            QueryFailedError: A value cannot be computed, as Spark says.
        """
        table, done = self._filtered(table)
        asks = self._asks or done < len(self._conditions)
        rows, values = self._values(table, done) if asks and table.num_rows else (None, {})
        kept = table if rows is None else table.take(rows)
        empty = {name: pa.array([], kind) for name, kind in self._computed}
        columns = [
            (values or empty)[name] if source is None else kept.column(source) for name, source in self._columns.items()
        ]
        result = pa.table(columns, schema=self.schema)
        for name in table.column_names[len(self._names) :]:
            result = result.append_column(table.schema.field(name), kept.column(name))
        return result

    def _filtered(self, table: pa.Table) -> tuple[pa.Table, int]:
        """Return the rows that satisfy the first conditions, and how many of these were looked at.

        Of an operation that cannot be done Spark tells, better than Arrow.
        """
        try:
            kept = table
            for condition in self._conditions:
                kept = kept.filter(condition)
            return kept, len(self._conditions)
        except pa.ArrowInvalid:
            return table, 0

    def _values(self, table: pa.Table, done: int) -> tuple[pa.Array, dict[str, pa.Array]]:
        """Return the numbers of the rows that are kept, and the values that are computed of them.

        Args:
            table: Rows of aggregates.
            done: Steps that are done with.
        """
        numbers = pa.array(np.arange(table.num_rows, dtype=np.int64))
        numbered = table.select(self._names).append_column(ROW, numbers).combine_chunks()
        by_rows = self._by_rows and table.num_rows <= FEW
        try:
            frame = self._session.createDataFrame(numbered, self._numbered)
            for stage in self._stages[done:]:
                frame = stage(frame)
            if by_rows:
                found = list(zip(*self._as_rows(frame).collect(), strict=True))
                found = found or [()] * (1 + len(self._computed))
                return pa.array(found[0], pa.int64()), {
                    name: _array(values, kind) for (name, kind), values in zip(self._computed, found[1:], strict=True)
                }
            answer = self._as_arrow(frame).toArrow()
        except Exception as error:
            what = f"Computing the results of {self._query.name!r}"
            require_blame(error, what)
            raise QueryFailedError(
                f"{self._query.name}: {'; '.join(map(str, self._query.steps))}: {classify(error).reason.rstrip('.')}.",
                "Write it so that it has a value for each row, for example with try_divide, nullif or a wider type.",
            ) from error
        answer = answer.combine_chunks()
        return answer.column(ROW).combine_chunks(), {
            name: answer.column(name).cast(kind).combine_chunks() for name, kind in self._computed
        }

    def _checked(self, step: Step, frame: DataFrame, stage: Callable[[DataFrame], DataFrame]) -> DataFrame:
        """Return rows after a step.

        Raises:
            DefinitionError: It cannot be computed, or not for each row by itself.
        """
        from pyspark.errors import PySparkException

        where = f"query {self._query.name!r}: {step}"
        try:
            after = stage(frame)
            text, before = plan_text(after), plan_text(frame)
        except PySparkException as error:
            names = [name for name in frame.columns if name != ROW]
            raise DefinitionError(
                f"{where}: {first_line(error).replace(f', `{ROW}`', '')}.", f"The columns are {', '.join(names)}."
            ) from None
        fault = rowwise.more_than_columns(text, before)
        if fault is not None:
            raise DefinitionError(
                f"{where}: {fault[0]}.", "Compute what depends on several rows in agg, or in a query over results()."
            )
        why = rowwise.why_not_repeatable(after, text)
        if why is not None:
            raise DefinitionError(f"{where}: {why}.", "Use the keys, the window's bounds and the aggregates only.")
        return after


def _first_conditions(session: SparkSession, steps: Sequence[Step], aggregates: pa.Schema) -> list[pc.Expression]:
    """Return the conditions with which the steps begin, as far as Arrow has them."""
    found: list[pc.Expression] = []
    if is_connect(session):
        return found
    for step in steps:
        if not isinstance(step, Having):
            break
        try:
            found.append(arrow_condition(session, aggregates, step.condition))
        except DefinitionError:  # only Spark computes it
            break
    return found


def _stage(step: Step, frame: DataFrame) -> Callable[[DataFrame], DataFrame]:
    """Return what a step does to rows with the columns of a frame; its columns are made once."""
    if isinstance(step, Having):
        condition = to_condition(step.condition)
        return lambda rows: rows.where(condition)
    names = [name for name in frame.columns if name != ROW]
    case_sensitive = is_case_sensitive(frame)
    return _choosing(frame, [to_column(value, names, case_sensitive).alias(name) for name, value in step.columns])


def _choosing(frame: DataFrame, columns: Sequence[Column]) -> Callable[[DataFrame], DataFrame]:
    """Return what gives rows these columns, and their numbers.

    In a classic session the columns are given to Java once: each costs calls, which are most of the time of few rows.
    """
    if is_connect(frame.sparkSession):
        return lambda rows: rows.select(ROW, *columns)
    from pyspark.sql.classic.dataframe import DataFrame as Classic

    chosen = frame._jcols(ROW, *columns)  # type: ignore[operator]
    return lambda rows: Classic(rows._jdf.select(chosen), rows.sparkSession)


def _last(steps: Sequence[Step], computed: Sequence[str], frames: Sequence[DataFrame]) -> tuple[int, dict[str, Column]]:
    """Return how many of the steps go before the last one, and the values that this one computes, by their final names.

    Args:
        steps: The steps.
        computed: Columns of their results that are not only chosen or renamed.
        frames: The rows before each step.
    """
    from pyspark.sql import functions as F

    done, names = len(steps), {name: name for name in computed}
    while done and isinstance(step := steps[done - 1], Select):
        done -= 1
        chosen, before = dict(step.columns), [name for name in frames[done].columns if name != ROW]
        sources = {name: named_in(chosen[source], before) for name, source in names.items()}
        if None in sources.values():
            case_sensitive = is_case_sensitive(frames[done])
            return done, {name: to_column(chosen[at], before, case_sensitive) for name, at in names.items()}
        names = {name: source for name, source in sources.items() if source is not None}
    return done, {name: F.col(quoted(source)) for name, source in names.items()}


def _carried(column: Column, kind: DataType) -> Column | None:
    """Return a column as it comes back in rows without loss; None if it only can as Arrow.

    Times come back as numbers: Python's have no zone there, and no year before 1 or after 9999.
    """
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    if isinstance(kind, T.TimestampType):
        return F.unix_micros(column)
    if isinstance(kind, T.DateType):
        return F.unix_date(column)
    plain = (T.BooleanType, T.IntegralType, T.FractionalType, T.StringType, T.BinaryType)
    return column if isinstance(kind, plain) else None


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return values that came back in rows as Arrow."""
    if kind == _MICROS:
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, pa.int32()).cast(kind) if kind == _DAYS else pa.array(values, kind)
