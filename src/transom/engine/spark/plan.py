"""The job of a cut as a DataFrame: one scan, the users' transformations, one aggregation per component."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from transom.engine.partials.contents import TableNote
from transom.engine.partials.tables import LENGTH, PANE, TAG, state_name
from transom.engine.spark import eventtimes
from transom.engine.spark.columns import (
    TIME,
    Costly,
    Thinning,
    both,
    is_case_sensitive,
    micros_or_null,
    to_column,
    to_condition,
)
from transom.engine.spark.eventtimes import believed
from transom.engine.spark.lookups import Lookup, LookupTable, lookup_tables
from transom.errors import DefinitionError
from transom.model.expression import Expression
from transom.model.time import Micros
from transom.model.window import WindowKind, WindowSpec
from transom.windows.aggregates.base import Primitive, executor_function_of
from transom.windows.aggregates.filtered import Filtered
from transom.windows.components import Component

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

Transformation: TypeAlias = "Callable[[DataFrame], DataFrame]"

WINDOW, WINDOW_NUMBER = "_event_window", "_event_window_number"


@dataclass(frozen=True)
class Rows:
    """The rows of a stream before any query sees them."""

    event_time: Expression
    branches: tuple[tuple[Transformation, ...], ...]
    """Chains of transformations; queries name them by index."""
    arrival: bool = False
    """Whether rows have the time of their arrival, as a column."""

    def columns(self, given: StructType) -> StructType:
        """Return the columns of the rows of a source that gives some."""
        return eventtimes.with_arrival(given) if self.arrival else given


@dataclass(frozen=True, eq=False)
class Branch:
    """A chain of the users' transformations, after which the rows still have their event time."""

    chain: tuple[Transformation, ...]
    lost_time: tuple[Column, Column] | None
    """The event time once more, as written and as it is computed, when the chain drops TIME but keeps what it is made
    of."""
    thinning: Thinning | None = None
    """The rows that go on where the chain says that it gets costly; None for all."""
    tables: Mapping[LookupTable, DataFrame] = field(default_factory=dict)
    """The version of each table that rows are looked up in; without one they find nothing, as when it is analysed."""

    @classmethod
    def of(cls, good: DataFrame, chain: tuple[Transformation, ...], event_time: Expression) -> Branch:
        """Prepare a chain.

        Raises:
            DefinitionError: A transformation returned no DataFrame, or dropped the event time.
        """
        from pyspark.errors import AnalysisException
        from pyspark.sql import functions as F

        df = good
        for function in chain:
            df = function(df)
            if not hasattr(df, "groupBy"):
                raise DefinitionError(
                    f"map: {getattr(function, '__name__', function)!r} returned {type(df).__name__}, not a DataFrame.",
                    "Return the DataFrame it made.",
                )
        if TIME in df.columns:
            return cls(chain, None)
        column = to_column(event_time, df.columns, is_case_sensitive(df))
        written = F.unix_micros(column.cast("timestamp"))
        try:
            df.select(written)
        except AnalysisException as error:
            raise DefinitionError(
                f"map: the event time {event_time.text!r} is gone after the transformation.",
                f"Keep it, or the column {TIME}, in the select.",
            ) from error
        return cls(chain, (written, micros_or_null(column)))

    def __call__(self, good: DataFrame) -> DataFrame:
        """Return the rows after the chain; where the event time is computed once more, it is null if out of range."""
        from pyspark.sql import functions as F

        timed = self.timed(good)
        if self.lost_time is None:
            return timed
        return timed.withColumn(TIME, F.expr(f"IF({believed(None)}, {TIME}, NULL)"))

    def timed(self, good: DataFrame) -> DataFrame:
        """Return the rows after the chain, whatever their event time is then."""
        rows = self._transformed(good)
        return rows if self.lost_time is None else rows.withColumn(TIME, self.lost_time[1])

    def as_written(self, good: DataFrame) -> DataFrame:
        """Return the rows after the chain, to be analysed: with the event time as the user wrote it.

        Checkpoints know queries by the plan of these rows, so it must stay what it is.
        """
        rows = self._transformed(good)
        return rows if self.lost_time is None else rows.withColumn(TIME, self.lost_time[0])

    @property
    def thins(self) -> bool:
        """Whether rows can be thinned somewhere in it."""
        return any(isinstance(function, Costly) for function in self.chain)

    def _transformed(self, good: DataFrame) -> DataFrame:
        thinning = self.thinning
        for function in self.chain:
            if isinstance(function, Costly) and thinning is not None:
                good, thinning = thinning(good), None
            if isinstance(function, Lookup) and function.table in self.tables:
                good = function.joined(good, self.tables[function.table])
            else:
                good = function(good)
        return good


@dataclass(frozen=True, eq=False)
class Needed:
    """Columns that the components of a branch need: event time, keys, inputs and conditions, each evaluated once.

    Where several components read the rows, only this is kept for them.
    """

    condition: Column | None
    """Rows that do not satisfy it are of no use; None when a component sees all."""
    columns: tuple[Column, ...]
    names: dict[Expression, str]
    """Keys and inputs."""
    conditions: dict[Expression, str]

    @classmethod
    def of(cls, rows: DataFrame, components: Sequence[Component]) -> Needed:
        """Prepare what components need of rows with these columns."""
        from pyspark.sql import functions as F

        names, case_sensitive = rows.columns, is_case_sensitive(rows)
        users: dict[Expression, set[Expression | None]] = {}
        for component in components:
            for key_set in component.key_sets:
                for key in component.keys:
                    users.setdefault(key.expression, set()).add(key_set.condition)
                for primitive in key_set.primitives:
                    for expression, condition in _reads(primitive):
                        users.setdefault(expression, set()).add(_joint(key_set.condition, condition))
        every = dict.fromkeys(condition for component in components for condition in component.conditions)
        conditions = [condition for condition in every if condition is not None]
        columns: list[Column] = [F.col(TIME)]
        for expression, used in users.items():
            column = to_column(expression, names, case_sensitive)
            if used != set(every) and expression.text not in names:
                # It may fail for rows that nobody needs it for.
                known = any_of(used)
                column = column if known is None else F.when(known, column)
            columns.append(column)
        columns += [to_condition(condition) for condition in conditions]
        made = [f"_e{i}" for i in range(len(columns) - 1)]
        named = [columns[0], *(column.alias(name) for column, name in zip(columns[1:], made, strict=True))]
        by_condition = dict(zip(conditions, made[len(users) :], strict=True))
        return cls(any_of(every), tuple(named), dict(zip(users, made, strict=False)), by_condition)

    def __call__(self, rows: DataFrame) -> DataFrame:
        """Return the rows that are needed, with these columns only."""
        rows = rows if self.condition is None else rows.where(self.condition)
        return rows.select(*self.columns)


def _reads(primitive: Primitive) -> list[tuple[Expression, Expression | None]]:
    """Return the inputs of a primitive, each with the condition of the rows in which it is read."""
    if not isinstance(primitive, Filtered):
        return [(expression, None) for expression in primitive.inputs]
    inner = [(expression, primitive.condition) for expression in primitive.of.inputs]
    return [*inner, (primitive.condition, None)]


def _joint(left: Expression | None, right: Expression | None) -> Expression | None:
    return right if left is None else left if right is None else both(left, right)


def any_of(conditions: Collection[Expression | None]) -> Column | None:
    """Return the condition that one of some conditions holds; None if one of them is none."""
    some = [to_condition(condition) for condition in conditions if condition is not None]
    return None if len(some) < len(conditions) else functools.reduce(lambda a, b: a | b, some)


@dataclass(frozen=True, eq=False)
class Aggregation:
    """A component's aggregation as columns, made once: each costs calls into the JVM."""

    condition: Column | None
    """The condition that every row satisfies, when the component has only one."""
    tags: Column | None
    """For several conditions: the index of each, one row each, null where the row does not satisfy it."""
    windows: Column | None
    """For a direct component: the start of each window, one row each, with its number."""
    selected: tuple[Column, ...]
    groups: tuple[str, ...]
    states: tuple[Column, ...]
    executor_steps: dict[str, Column]

    @classmethod
    def of(cls, needed: Needed, component: Component) -> Aggregation:
        """Prepare a component's aggregation of the rows that `needed` gives."""
        from pyspark.sql import functions as F

        names = needed.names
        keys = {f"_k{i}": key.expression for i, key in enumerate(component.keys)}
        conditions = [None if c is None else F.col(needed.conditions[c]) for c in component.conditions]
        tagged = len(conditions) > 1
        start = WINDOW if component.direct else component.grid.start_sql(TIME)
        selected: list[Column] = [F.expr(start).alias(PANE), F.col(TIME)]
        selected += [F.col(TAG)] if tagged else []
        selected += [F.expr(lengths_sql(component.windows)).alias(LENGTH)] if component.direct else []
        selected += [F.col(names[e]).alias(name) for name, e in keys.items()]
        selected += [F.col(name) for name in dict.fromkeys(names[e] for p in component.primitives for e in p.inputs)]
        states: list[Column] = []
        steps: dict[str, Column] = {}
        for i, primitive in enumerate(component.primitives):
            sql = primitive.sql([names[e] for e in primitive.inputs], TIME)
            states += [F.expr(text).alias(state_name(i, column)) for column, text in sql.items()]
            function = executor_function_of(primitive)
            if function is not None:
                name = state_name(i, function.column)
                steps[name] = F.arrow_udf(function.function, function.returns)(F.col(name))  # type: ignore[attr-defined]
        tags = [F.lit(i) if c is None else F.when(c, F.lit(i)) for i, c in enumerate(conditions)]
        return cls(
            None if tagged else conditions[0],
            F.explode(F.array(*tags)).alias(TAG) if tagged else None,
            F.expr(starts_sql(component.windows)).alias(WINDOW_NUMBER, WINDOW) if component.direct else None,
            tuple(selected),
            (PANE, *([TAG] if tagged else []), *([LENGTH] if component.direct else []), *keys),
            tuple(states),
            steps,
        )

    def split_at(self, component: Component, moments: Sequence[Micros]) -> Aggregation:
        """Return the same aggregation with panes that have these edges, too."""
        from pyspark.sql import functions as F

        if component.direct:
            return self
        pane = F.expr(component.grid.start_sql(TIME, moments)).alias(PANE)
        return replace(self, selected=(pane, *self.selected[1:]))

    def __call__(self, rows: DataFrame) -> DataFrame:
        """Return one row per pane, tag and key: PANE, TAG, the keys as _k0, _k1, ..., and the primitives' states.

        PANE is null for rows without a time that can be used, which a transformation can make. TAG is there when the
        component has several conditions. For a direct component PANE is the start of a window, and LENGTH is there.
        """
        if self.condition is not None:
            rows = rows.where(self.condition)
        if self.tags is not None:
            rows = rows.select("*", self.tags).where(f"{TAG} IS NOT NULL")
        if self.windows is not None:
            rows = rows.select("*", self.windows)
        result = rows.select(*self.selected).groupBy(*self.groups).agg(*self.states)
        return result.withColumns(self.executor_steps) if self.executor_steps else result


def starts_sql(windows: Sequence[WindowKind]) -> str:
    """Return the SQL that makes a row for each window of a row, with the number and the start of the window.

    Of a row without a time it makes one whose window is null.

    Args:
        windows: Fixed windows whose slides divide their lengths.
    """
    arrays = []
    for window in windows:
        assert isinstance(window, WindowSpec)
        last = f"({TIME} - pmod({TIME} - {window.offset}L, {window.slide}L))"
        arrays.append(f"sequence({last} - {window.length - window.slide}L, {last}, {window.slide}L)")
    return f"posexplode_outer({arrays[0] if len(arrays) == 1 else 'concat(' + ', '.join(arrays) + ')'})"


def lengths_sql(windows: Sequence[WindowKind]) -> str:
    """Return the length of a window in SQL, by the number that `starts_sql` gives it."""
    cases, numbered = [], 0
    for window in windows:
        assert isinstance(window, WindowSpec)
        numbered += window.length // window.slide
        cases.append(f"WHEN {WINDOW_NUMBER} < {numbered} THEN {window.length}L")
    return f"CASE {' '.join(cases)} END"


@dataclass(frozen=True, eq=False)
class StreamPlan:
    """The job of a stream's cuts, prepared once."""

    time: Column
    arrival: bool
    """Whether rows have the time of their arrival, as a column."""
    branches: dict[int, Branch]
    components: tuple[Component, ...]
    needed: tuple[Needed, ...]
    """For each component; one for all components of a branch that share."""
    aggregations: tuple[Aggregation, ...]
    notes: tuple[TableNote, ...]
    """The layout of each component's table."""

    def timed(self, raw: DataFrame) -> DataFrame:
        """Return the rows of a source with TIME, and with the time of their arrival if it is wanted.

        Raises:
            SourceError: It is, and the source does not tell it.
        """
        return (eventtimes.arrived(raw) if self.arrival else raw).withColumn(TIME, self.time)

    @property
    def thins(self) -> Collection[int]:
        """The branches in which rows can be thinned."""
        return {each.branch for each in self.components if self.branches[each.branch].thins}

    def thinned(self, thinning: Thinning) -> StreamPlan:
        """Return the same job over some of the rows."""
        branches = {index: replace(branch, thinning=thinning) for index, branch in self.branches.items()}
        return replace(self, branches=branches)

    @property
    def lookup_tables(self) -> Sequence[LookupTable]:
        """The tables that rows are looked up in."""
        return lookup_tables(branch.chain for branch in self.branches.values())

    def looking_up(self, tables: Mapping[LookupTable, DataFrame]) -> StreamPlan:
        """Return the same job with versions of the tables that rows are looked up in."""
        branches = {index: replace(branch, tables=tables) for index, branch in self.branches.items()}
        return replace(self, branches=branches)

    def split_at(self, moments: Sequence[Micros]) -> StreamPlan:
        """Return the same job with panes that have these edges, too."""
        pairs = zip(self.components, self.aggregations, strict=True)
        split = (aggregation.split_at(component, moments) for component, aggregation in pairs)
        return replace(self, aggregations=tuple(split))


def state_types(component: Component, schema: pa.Schema) -> dict[Primitive, dict[str, pa.DataType]]:
    """Return the types of each primitive's columns in a component's result."""
    types: dict[Primitive, dict[str, pa.DataType]] = {}
    for i, primitive in enumerate(component.primitives):
        prefix = state_name(i, "")
        types[primitive] = {
            field.name.removeprefix(prefix): field.type for field in schema if field.name.startswith(prefix)
        }
    return types


def expression_types(rows: DataFrame, expressions: Iterable[Expression]) -> dict[Expression, pa.DataType]:
    """Return the Arrow types of expressions over rows."""
    from pyspark.sql.pandas.types import to_arrow_schema

    names, case_sensitive = rows.columns, is_case_sensitive(rows)
    distinct = tuple(dict.fromkeys(expressions))
    if not distinct:
        return {}
    columns = [to_column(e, names, case_sensitive).alias(f"_i{i}") for i, e in enumerate(distinct)]
    schema = utc(to_arrow_schema(rows.select(*columns).schema, timezone="UTC"))
    return dict(zip(distinct, schema.types, strict=True))


def utc(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose timestamps are labelled UTC; the values of Spark's timestamps are UTC in any case."""
    return pa.schema([pa.field(f.name, _utc_type(f.type), f.nullable) for f in schema])


def _utc_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp("us", "UTC")
    if pa.types.is_list(kind):
        return pa.list_(_utc_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _utc_type(f.type), f.nullable) for f in kind])
    return kind
