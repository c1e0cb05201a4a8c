"""Questions to some datasets of a collection: rows that are filtered, joined, aggregated where they lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from transom.collections.datasets import Dataset, Function
from transom.collections.deriving import described
from transom.collections.keyvalues import key_value
from transom.collections.namespaces import Namespace
from transom.collections.steps import (
    Aggregated,
    Answer,
    Applied,
    Counted,
    Filtered,
    Joined,
    Rows,
    Selected,
    Sent,
    received,
)
from transom.engine.placed.mapped import tables_of
from transom.engine.spark.isolation import explained
from transom.engine.spark.sparkterms import arrow_condition
from transom.errors import DefinitionError
from transom.model.arguments import column_names, shown
from transom.model.joinkind import ANTI, FULL, INNER, LEFT, RIGHT, SEMI, join_kind
from transom.model.signatures import checked
from transom.model.time import MICROS_PER_SECOND, Duration, parse_duration

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MERGED = {"sum": "sum", "count": "sum", "min": "min", "max": "max"}
"""Aggregates of Arrow whose partial results merge, and how."""


@dataclass(frozen=True)
class Terms:
    """The terms of a view: how and where its rows are read."""

    wait: float
    """Seconds that a task waits for an executor with its data while others are idle."""
    within: float | None = None
    """Seconds in which the answer is wanted, from when it is asked for."""
    partitions: frozenset[int] | None = None
    """Those with rows of the view; None for all."""

    def joined(self, other: Terms, how: str) -> Terms:
        """Return the terms of a join, in which rows of a side may do without the other."""
        left, right = self.partitions, other.partitions
        if how == FULL:
            partitions = None if left is None or right is None else left | right
        elif how == RIGHT:
            partitions = right
        elif how in (INNER, SEMI) and left is not None and right is not None:
            partitions = left & right
        else:
            partitions = right if how in (INNER, SEMI) and left is None else left
        limits = [limit for limit in (self.within, other.within) if limit is not None]
        return Terms(min(self.wait, other.wait), min(limits, default=None), partitions)


ARROW_JOINS = {
    INNER: "inner",
    LEFT: "left outer",
    RIGHT: "right outer",
    FULL: "full outer",
    SEMI: "left semi",
    ANTI: "left anti",
}
"""The kinds of joins, and Arrow's names of them."""


class View:
    """Rows of some datasets, not computed yet. Every method with a result runs one job without an exchange.

    Provisional: may change in a minor version.

    Functions that are given get Arrow tables: zero-copy views of one group of partitions. All rows with equal keys are
    in one group, of all datasets of the namespace; those of a salted key, too large for one task, are in several.
    """

    def __init__(
        self, namespace: Namespace, datasets: Sequence[Dataset], rows: Rows, schema: pa.Schema, terms: Terms
    ) -> None:
        self._namespace, self._datasets, self._rows, self.schema = namespace, list(datasets), rows, schema
        self._terms = terms

    @property
    def salted(self) -> dict[tuple[Any, ...], int]:
        """Keys whose rows are spread, over how many partitions: what is made of them by group has to be merged."""
        return {key: n for each in self._datasets if each.partitioning for key, n in each.partitioning.salts.items()}

    def where(self, condition: str | Column | pc.Expression) -> View:
        """Keep the rows for which a condition holds.

        SQL and Columns mean exactly what they mean in `DataFrame.where`, with the settings that the session has now
        (time zone, ANSI mode); they are computed on Arrow tables, where the rows are. There are comparisons, `AND`,
        `OR`, `NOT`, `IN`, `BETWEEN`, `IS NULL`, `CASE`, `coalesce`, `LIKE` with `%`, and arithmetic of whole numbers
        and floats. For everything else there is `df().where(...)`.

        Args:
            condition: SQL text, as `"fare > 3 AND city LIKE 'B%'"`, a PySpark Column, or an Arrow expression.

        Raises:
            DefinitionError: It is no condition over the columns, or only Spark computes it.
        """
        if not isinstance(condition, pc.Expression):
            condition = arrow_condition(self._namespace.spark, self.schema, condition)
        return self._filtered("where", condition)

    def _filtered(self, what: str, condition: pc.Expression) -> View:
        self._tried(what, lambda empty: empty.filter(condition))
        return self._with(Filtered(self._rows, condition), self.schema, self._terms)

    def key_range(self, first: Any, last: Any) -> View:
        """Keep the rows whose key is in [first, last); of ordered keys only the groups that have any are asked.

        Raises:
            DefinitionError: There are several keys, or the range is not of the key's type.
        """
        if len(self._namespace.keys) != 1:
            raise DefinitionError(
                f"The keys are {', '.join(self._namespace.keys)}.", "Use `where`: a range is of one key."
            )
        name = self._namespace.keys[0]
        if name not in self.schema.names:
            raise DefinitionError(f"key_range: the key {name} is not among the columns.", "Select it, too.")
        kind = self.schema.field(name).type
        first, last = key_value(first, kind, "key_range: first"), key_value(last, kind, "key_range: last")
        partitions: frozenset[int] | None = frozenset()
        for partitioning in {id(each.partitioning): each.partitioning for each in self._datasets}.values():
            found = None if partitioning is None else partitioning.between(first, last)
            partitions = None if found is None or partitions is None else partitions | found
        key = pc.field(name)
        narrower = self._filtered("key_range", (key >= first) & (key < last))
        if partitions is not None and self._terms.partitions is not None:
            partitions &= self._terms.partitions
        kept = self._terms.partitions if partitions is None else partitions
        return self._with(narrower._rows, self.schema, replace(self._terms, partitions=kept))

    def within(self, limit: Duration) -> View:
        """Say how soon answers are wanted: so much less long their tasks wait where their data is.

        Args:
            limit: From when it is asked for, such as `"800 ms"`.

        Raises:
            DefinitionError: It is not more than 0.
        """
        micros = parse_duration(limit, "within")
        if micros <= 0:
            raise DefinitionError(f"within is {limit!r}.", "Give more than 0, such as '800 ms'.")
        return self._with(self._rows, self.schema, replace(self._terms, within=micros / MICROS_PER_SECOND))

    def _with(self, rows: Rows, schema: pa.Schema, terms: Terms) -> View:
        return View(self._namespace, self._datasets, rows, schema, terms)

    def select(self, *columns: str) -> View:
        """Keep some columns.

        Raises:
            DefinitionError: There is no such column.
        """
        _known(column_names(columns, "select"), self.schema)
        schema = pa.schema([self.schema.field(name) for name in columns])
        return self._with(Selected(self._rows, columns), schema, self._terms)

    @checked
    def join(self, other: View, how: str = "inner", suffix: str = "_right") -> View:
        """Join by the keys with a view of the same namespace, as `pyarrow.Table.join` does.

        Args:
            other: The right side.
            how: As in PySpark: `inner`, `left`, `right`, `full`, `left_semi`, `left_anti`, and their other names.
            suffix: Of columns on the right whose names are on the left as well.

        Raises:
            DefinitionError: The other view is of another namespace, a key is salted, there is no such type of join, or
                two columns would have one name.
        """
        if not isinstance(other, View):
            raise DefinitionError(
                f"join: the other side is of type {type(other).__name__}.",
                "Give a view of a collection of the same namespace, or join DataFrames (`df()`).",
            )
        for salted in {**self.salted, **other.salted}:
            raise DefinitionError(
                f"The key {salted} is salted: its rows lie in several groups, where a join would miss pairs.",
                "Join the DataFrames (`df()`), or use a larger second bound of `elastic`.",
            )
        other.check_namespace(self._namespace)
        keys = list(self._namespace.keys)
        kind = join_kind(how, tuple(ARROW_JOINS))
        rows = Joined(self._rows, other._rows, len(self._datasets), tuple(keys), ARROW_JOINS[kind], suffix)
        right = other.schema.empty_table()
        schema = self._tried(
            "join", lambda left: left.join(right, keys, join_type=ARROW_JOINS[kind], right_suffix=suffix)
        ).schema
        column_names(schema.names, "join: columns")
        terms = self._terms.joined(other._terms, kind)
        return View(self._namespace, [*self._datasets, *other._datasets], rows, schema, terms)

    def _tried(self, what: str, step: Callable[[pa.Table], pa.Table], hint: str = "") -> pa.Table:
        """Return what a step makes of no rows, so that what cannot work is refused before it is sent anywhere.

        Raises:
            DefinitionError: It cannot work.
        """
        try:
            return step(self.schema.empty_table())
        except (pa.ArrowException, TypeError, ValueError, KeyError) as error:
            why = str(error).strip().partition("\n")[0].rstrip(".")
            raise DefinitionError(f"{what}: {why}.", f"{hint} Columns are {described(self.schema)}.".strip()) from None

    def check_namespace(self, namespace: Namespace) -> None:
        """Make sure that the rows are partitioned like those of a namespace.

        Raises:
            DefinitionError: They are of another one.
        """
        if self._namespace is not namespace:
            raise DefinitionError(
                f"A view of the namespace {namespace.name!r} cannot be joined with one of "
                f"{self._namespace.name!r}: they are partitioned apart.",
                "Make both collections with the same namespace, or join their DataFrames.",
            )

    def run(self, function: Callable[[pa.Table], pa.Table]) -> pa.Table:
        """Return what a function gives for the rows of each group, one after the other.

        Raises:
            QueryFailedError: It fails, or gives no table.
        """
        return self._received(Sent(Applied(self._rows, function)))

    def cogroup(self, function: Callable[[list[pa.Table]], pa.Table]) -> pa.Table:
        """Return what a function gives for the tables of each group, one for each dataset in order.

        Raises:
            QueryFailedError: It fails, or gives no table.
        """
        return self._received(Sent(function))

    def _run(self, function: Answer) -> list[bytes]:
        """Return what a function gives for each group; for at least one, so that an answer has its columns."""
        terms, namespace = self._terms, self._namespace
        due = None if terms.within is None else namespace.workers.now() + terms.within
        partitions = None if terms.partitions is None else terms.partitions or {0}
        with explained(f"{namespace.name}: a question"):
            return namespace.run(self._datasets, function, partitions, terms.wait, due)

    def _received(self, function: Answer) -> pa.Table:
        """Return the rows that a function gives for each group.

        Raises:
            QueryFailedError: It fails, or gives tables of different columns.
        """
        answers = self._run(function)
        with explained(f"{self._namespace.name}: putting the answers of the groups together"):
            return received(answers)

    def table(self) -> pa.Table:
        """Return all rows; they must fit into the driver's memory."""
        return self._received(Sent(self._rows))

    def count(self) -> int:
        """Return the number of rows."""
        return sum(int(each) for each in self._run(Counted(self._rows)))

    def aggregate(self, by: Sequence[str], aggregates: Mapping[str, str | Sequence[str]]) -> pa.Table:
        """Return aggregates by columns, as `pyarrow.TableGroupBy.aggregate` names them: `fare_mean`.

        By all keys of the collection (and maybe more) any aggregate of Arrow is possible, as each group of rows lies in
        one place. By other columns, or none, or when a key is salted, the partial results of the places are merged:
        sum, count, min, max, mean.

        Args:
            by: Columns; may be empty.
            aggregates: Arrow's names of aggregates by column, as `{"fare": ["count", "mean"]}`.

        Raises:
            DefinitionError: A column is unknown, or the aggregate of a column cannot be merged.
        """
        if not isinstance(aggregates, Mapping):
            raise DefinitionError(f"aggregates is {shown(aggregates)}.", 'Give them by column: {"fare": ["sum"]}.')
        wanted = [
            (column, name)
            for column, names in aggregates.items()
            for name in column_names([names] if isinstance(names, str) else names, f"aggregates[{column!r}]")
        ]
        columns = list(column_names(by, "by"))
        _known([*columns, *aggregates], self.schema)
        hint = f"Aggregates are Arrow's, as {', '.join(MERGED)}, mean."
        self._tried("aggregate", lambda empty: empty.group_by(columns).aggregate(wanted), hint)
        salted = bool(self.salted)
        if set(self._namespace.keys) <= set(columns) and not salted:
            return self._received(Sent(Aggregated(self._rows, tuple(columns), tuple(wanted))))
        partial: list[tuple[str, str]] = []
        for column, name in wanted:
            if name != "mean" and name not in MERGED:
                raise DefinitionError(
                    f"{name} of {column} by {columns} cannot be merged{', and keys are salted' * salted}.",
                    f"Group by the keys {', '.join(self._namespace.keys)} too, or use {', '.join(MERGED)}, mean.",
                )
            partial += [(column, each) for each in (("sum", "count") if name == "mean" else (name,))]
        partial = list(dict.fromkeys(partial))
        found = self._received(Sent(Aggregated(self._rows, tuple(columns), tuple(partial))))
        merged = found.group_by(columns, use_threads=False).aggregate(
            [(f"{column}_{name}", MERGED[name]) for column, name in partial]
        )
        parts = {f"{column}_{name}": merged[f"{column}_{name}_{MERGED[name]}"] for column, name in partial}
        result = {name: merged[name] for name in columns}
        for column, name in wanted:
            if name == "mean":
                sums = parts[f"{column}_sum"].cast(pa.float64())
                counts = pc.if_else(pc.equal(parts[f"{column}_count"], 0), None, parts[f"{column}_count"])
                result[f"{column}_mean"] = pc.divide(sums, counts)
            else:
                result[f"{column}_{name}"] = parts[f"{column}_{name}"]
        return pa.table(result)

    def df(self) -> DataFrame:
        """Return the rows as a DataFrame, for everything else; it is read where the partitions are.

        Datasets that are evicted, dropped or moved after this call are no longer found by it.
        """
        from pyspark.sql.pandas.types import from_arrow_schema

        rows = self._rows
        with explained(f"{self._namespace.name}: a question"):
            tasks, paths = self._namespace.plan(self._datasets)
            schema = from_arrow_schema(self.schema, prefer_timestamp_ntz=True)
            return tasks.frame(lambda group: rows(tables_of(paths[group])).to_batches(), schema)


def composed(function: Function, views: Sequence[View]) -> tuple[list[Dataset], Function]:
    """Return the datasets behind some views, and the function of their tables that gives what one of the views' gives.

    The function knows only what is done with rows, so that it can be sent to tasks.
    """
    forms = [(view._rows, len(view._datasets)) for view in views]

    def made(tables: list[pa.Table]) -> pa.Table:
        given, begin = [], 0
        for rows, count in forms:
            given.append(rows(tables[begin : begin + count]))
            begin += count
        return function(given)

    return [dataset for view in views for dataset in view._datasets], made


def _known(columns: Sequence[str], schema: pa.Schema) -> None:
    unknown = [name for name in columns if name not in schema.names]
    if unknown:
        raise DefinitionError(f"There is no column {', '.join(unknown)}.", f"Columns are {', '.join(schema.names)}.")
