"""What is asked of some datasets of a collection: rows that are filtered, joined, aggregated where they lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from transom.engine.spark.namespaces import Dataset, Namespace, tables_of
from transom.errors import DefinitionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Rows = Callable[[list[pa.Table]], pa.Table]

MERGED = {"sum": "sum", "count": "sum", "min": "min", "max": "max"}
"""Aggregates of Arrow whose partial results merge, and how."""


class View:
    """Rows of some datasets, not computed yet. Every method with a result runs one job without an exchange.

    Functions that are given get Arrow tables: zero-copy views of one group of partitions. All rows with equal keys are
    in one group, of all datasets of the namespace; those of a salted key, too large for one task, are in several.
    """

    def __init__(self, namespace: Namespace, datasets: Sequence[Dataset], rows: Rows, schema: pa.Schema) -> None:
        self._namespace, self._datasets, self._rows, self.schema = namespace, list(datasets), rows, schema

    @property
    def salted(self) -> dict[tuple[Any, ...], int]:
        """Keys whose rows are spread, over how many partitions: what is made of them by group has to be merged."""
        return {key: n for each in self._datasets if each.partitioning for key, n in each.partitioning.salts.items()}

    def where(self, condition: pc.Expression) -> View:
        """Keep the rows for which an Arrow expression holds, as `pc.field("fare") > 3`."""
        rows = self._rows
        return View(self._namespace, self._datasets, lambda tables: rows(tables).filter(condition), self.schema)

    def select(self, *columns: str) -> View:
        """Keep some columns.

        Raises:
            DefinitionError: There is no such column.
        """
        _known(columns, self.schema)
        rows, schema = self._rows, pa.schema([self.schema.field(name) for name in columns])
        return View(self._namespace, self._datasets, lambda tables: rows(tables).select(list(columns)), schema)

    def join(self, other: View, how: str = "inner", suffix: str = "_right") -> View:
        """Join by the keys with a view of the same namespace, as `pyarrow.Table.join` does.

        Args:
            other: The right side.
            how: A join type of Arrow: `inner`, `left outer`, `left semi`, `left anti`, `right outer`, `full outer`.
            suffix: Of columns on the right whose names are on the left as well.

        Raises:
            DefinitionError: The other view is of another namespace, or a key is salted.
        """
        for salted in {**self.salted, **other.salted}:
            raise DefinitionError(
                f"The key {salted} is salted: its rows lie in several groups, where a join would miss pairs.",
                "Join the DataFrames (`df()`), or use a larger second bound of `elastic`.",
            )
        if other._namespace is not self._namespace:
            raise DefinitionError(
                f"A view of the namespace {self._namespace.name!r} cannot be joined with one of "
                f"{other._namespace.name!r}: they are partitioned apart.",
                "Make both collections with the same namespace, or join their DataFrames.",
            )
        count, keys = len(self._datasets), list(self._namespace.keys)
        left, right = self._rows, other._rows

        def rows(tables: list[pa.Table]) -> pa.Table:
            sides = left(tables[:count]), right(tables[count:])
            return sides[0].join(sides[1], keys, join_type=how, right_suffix=suffix, use_threads=False)

        empty = [self.schema.empty_table(), other.schema.empty_table()]
        schema = empty[0].join(empty[1], keys, join_type=how, right_suffix=suffix).schema
        return View(self._namespace, [*self._datasets, *other._datasets], rows, schema)

    def run(self, function: Callable[[pa.Table], pa.Table]) -> pa.Table:
        """Return what a function gives for the rows of each group, one after the other."""
        rows = self._rows
        return self.cogroup(lambda tables: function(rows(tables)))

    def cogroup(self, function: Callable[[list[pa.Table]], pa.Table]) -> pa.Table:
        """Return what a function gives for the tables of each group, one for each dataset in order."""
        answers = self._namespace.run(self._datasets, lambda tables: _to_bytes(function(tables)))
        return pa.concat_tables([pa.ipc.open_stream(answer).read_all() for answer in answers])

    def table(self) -> pa.Table:
        """Return all rows; they must fit into the driver's memory."""
        return self.run(lambda rows: rows)

    def count(self) -> int:
        """Return the number of rows."""
        rows = self._rows
        return sum(int(each) for each in self._namespace.run(self._datasets, lambda t: str(len(rows(t))).encode()))

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
        wanted = [(c, a) for c, names in aggregates.items() for a in ([names] if isinstance(names, str) else names)]
        columns = list(by)
        _known([*columns, *aggregates], self.schema)
        salted = bool(self.salted)
        if set(self._namespace.keys) <= set(columns) and not salted:
            return self.run(lambda rows: rows.group_by(columns, use_threads=False).aggregate(wanted))
        partial: list[tuple[str, str]] = []
        for column, name in wanted:
            if name != "mean" and name not in MERGED:
                raise DefinitionError(
                    f"{name} of {column} by {columns} cannot be merged{', and keys are salted' * salted}.",
                    f"Group by the keys {', '.join(self._namespace.keys)} too, or use {', '.join(MERGED)}, mean.",
                )
            partial += [(column, each) for each in (("sum", "count") if name == "mean" else (name,))]
        partial = list(dict.fromkeys(partial))
        found = self.run(lambda rows: rows.group_by(columns, use_threads=False).aggregate(partial))
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

        tasks, paths = self._namespace.plan(self._datasets)
        rows = self._rows
        return tasks.frame(lambda group: rows(tables_of(paths[group])).to_batches(), from_arrow_schema(self.schema))


def _to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def _known(columns: Sequence[str], schema: pa.Schema) -> None:
    unknown = [name for name in columns if name not in schema.names]
    if unknown:
        raise DefinitionError(f"There is no column {', '.join(unknown)}.", f"Columns are {', '.join(schema.names)}.")
