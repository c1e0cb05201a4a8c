"""Results kept in the program, for tests, notebooks and small experiments."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa

from transom.sinks.base import WindowResults
from transom.sinks.owner import Claim
from transom.sinks.values import python_values


def memory() -> MemorySink:
    """Return a sink that keeps results in the program.

    >>> memory().rows("fares")
    []
    """
    return MemorySink()


class MemorySink:
    """Keeps results by query and cut; may be read from any thread while an application writes."""

    def __init__(self) -> None:
        self._tables: dict[tuple[str, int], pa.Table] = {}
        self._keys: dict[str, tuple[str, ...]] = {}
        self._lock = threading.Lock()

    @property
    def tables(self) -> dict[tuple[str, int], pa.Table]:
        """A copy of what is there: the table of each (query, cut), in that order."""
        with self._lock:
            return dict(sorted(self._tables.items()))

    def to_table(self, query: str) -> pa.Table | None:
        """Return all results of a query in the order of the cuts; None before the first."""
        tables = [table for (name, _), table in self.tables.items() if name == query]
        return pa.concat_tables(tables, promote_options="default") if tables else None

    def rows(self, query: str) -> list[dict[str, Any]]:
        """Return all results of a query in the order of the cuts, each row as a dictionary.

        Times that Python does not have (beyond the years 1 to 9999) are texts.
        """
        table = self.to_table(query)
        if table is None:
            return []
        columns = [python_values(column) for column in table.columns]
        return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]

    def latest(self, query: str) -> pa.Table | None:
        """Return the results of a query without those that a later revision replaced; None before the first.

        The order is that of the cuts; the column `revision` stays.
        """
        table = self.to_table(query)
        if table is None or not self._keys.get(query):
            return table
        numbered = table.append_column("_row", pa.array(range(table.num_rows), pa.int64()))
        last = numbered.group_by(list(self._keys[query])).aggregate([("_row", "max")])
        return table.take(last.column("_row_max").sort())

    def describe(self) -> str:
        """Return what it is, in one line for people."""
        return "memory"

    def open(self, query: str) -> None:
        """Do nothing: there is nothing to prepare."""

    def claim(self, claim: Claim) -> None:
        """Do nothing: it is gone with the process."""

    def recover(self, query: str, next_cut: int) -> None:
        """Forget the query's results of cuts >= `next_cut`."""
        with self._lock:
            for key in [key for key in self._tables if key[0] == query and key[1] >= next_cut]:
                del self._tables[key]

    def write(self, results: WindowResults) -> None:
        """Keep the results; they replace those of the same query and cut."""
        with self._lock:
            self._tables[results.query, results.cut] = results.table
            self._keys[results.query] = results.keys

    def close(self) -> None:
        """Do nothing: the results stay readable."""
