"""Operations on the tables of a group, as values: a question travels to the executors with every job.

A closure is pickled with its code and costs every task of the job some hundred microseconds to unpickle; an object of a
class that the executors have costs a tenth of that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from transom.collections.keyvalues import plain_table
from transom.engine.placed.mapped import tables_of
from transom.engine.placed.plain import plain

Rows: TypeAlias = Callable[[list[pa.Table]], pa.Table]
"""Makes one table of the tables of a group, one for each dataset."""
Answer: TypeAlias = Callable[[list[pa.Table]], bytes]


@dataclass(frozen=True)
class Filtered:
    """The rows for which a condition holds."""

    rows: Rows
    condition: pc.Expression

    def __call__(self, tables: list[pa.Table]) -> pa.Table:
        """Apply it."""
        return self.rows(tables).filter(self.condition)


@dataclass(frozen=True)
class Selected:
    """Some columns."""

    rows: Rows
    columns: tuple[str, ...]

    def __call__(self, tables: list[pa.Table]) -> pa.Table:
        """Apply it."""
        return self.rows(tables).select(list(self.columns))


@dataclass(frozen=True)
class Joined:
    """A join by keys; the left side is made of the first tables."""

    left: Rows
    right: Rows
    count: int
    """Tables of the left side."""
    keys: tuple[str, ...]
    how: str
    suffix: str

    def __call__(self, tables: list[pa.Table]) -> pa.Table:
        """Apply it."""
        left, right = self.left(tables[: self.count]), self.right(tables[self.count :])
        return left.join(right, list(self.keys), join_type=self.how, right_suffix=self.suffix, use_threads=False)


@dataclass(frozen=True)
class Aggregated:
    """Aggregates by columns."""

    rows: Rows
    by: tuple[str, ...]
    aggregates: tuple[tuple[str, str], ...]

    def __call__(self, tables: list[pa.Table]) -> pa.Table:
        """Apply it."""
        counted = [column for column, name in self.aggregates if name in ("count_distinct", "distinct")]
        rows = plain_table(self.rows(tables), [*self.by, *counted])
        return rows.group_by(list(self.by), use_threads=False).aggregate(list(self.aggregates))


@dataclass(frozen=True)
class Applied:
    """A user's function of the rows."""

    rows: Rows
    function: Callable[[pa.Table], pa.Table]

    def __call__(self, tables: list[pa.Table]) -> pa.Table:
        """Apply it."""
        return self.function(self.rows(tables))


@dataclass(frozen=True)
class Sent:
    """A table as bytes of an Arrow stream."""

    rows: Rows

    def __call__(self, tables: list[pa.Table]) -> bytes:
        """Apply it."""
        table = self.rows(tables)
        if not isinstance(table, pa.Table):
            raise TypeError(f"The function gave {type(table).__name__}, not a pyarrow.Table")
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return bytes(sink.getvalue().to_pybytes())


@dataclass(frozen=True)
class Counted:
    """The number of rows, as text."""

    rows: Rows

    def __call__(self, tables: list[pa.Table]) -> bytes:
        """Apply it."""
        return str(len(self.rows(tables))).encode()


@dataclass(frozen=True)
class OnTables:
    """A function of tables, given the paths of their files."""

    function: Answer

    def __call__(self, paths: Sequence[Sequence[str]]) -> bytes:
        """Apply it."""
        return self.function(tables_of(paths))


def received(answers: Sequence[bytes]) -> pa.Table:
    """Return the rows of tables that were sent, one after the other."""
    return pa.concat_tables([plain(pa.ipc.open_stream(answer).read_all()) for answer in answers])
