"""Results in a table of an SQLite database, where a correction replaces the row that it corrects."""

from __future__ import annotations

import json
import math
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime, time, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from transom.errors import SinkError
from transom.sinks.base import WindowResults
from transom.sinks.parts import local_directory

_BOOKS = "transom_results"
"""Table that says which query writes which table, and up to which cut."""


def sqlite(path: str | os.PathLike[str], table: str | None = None) -> SqliteSink:
    """Keep results in a table of an SQLite database: the newest revision of each window and key.

    Early results and corrections replace the row of the same window and keys, so that the table always holds what is
    known so far. Queries may share a database, not a table. Times are ISO 8601 texts in UTC, decimals are texts,
    structs and lists JSON texts; NaN is the text 'NaN', since SQLite has none.

    Args:
        path: The database file; created when it does not exist.
        table: Name of the table; by default that of the query.

    >>> sqlite("/data/results.db").describe()
    'SQLite database /data/results.db'
    """
    return SqliteSink(local_directory(path, "sqlite"), table)


class SqliteSink:
    """See `sqlite`, which makes it. A cut's results and the note that they are there are one transaction."""

    def __init__(self, path: Path, table: str | None) -> None:
        self.path = path
        self._table = table
        self._database: sqlite3.Connection | None = None

    def describe(self) -> str:
        """Return what it is and writes, in one line for people."""
        return f"SQLite database {self.path}" + (f", table {self._table}" if self._table else "")

    def open(self, query: str) -> None:
        """Open the database and claim the table.

        Raises:
            SinkError: The file cannot be opened or is no database, or another query writes the table.
        """
        self._table = self._table or query
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Calls come from one thread at a time, not always the same one.
            self._database = sqlite3.connect(self.path, timeout=30, isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA journal_mode = WAL")
            with self._transaction() as database:
                database.execute(
                    f"CREATE TABLE IF NOT EXISTS {_BOOKS} (result_table TEXT PRIMARY KEY, query TEXT, cut INTEGER)"
                )
                database.execute(f"INSERT OR IGNORE INTO {_BOOKS} VALUES (?, ?, -1)", (self._table, query))
                owner = self._book("query")
        except (OSError, sqlite3.Error) as error:
            raise SinkError(
                f"{query}: the SQLite database {self.path} cannot be used: {error}.", "Choose another file."
            ) from error
        if owner != query:
            raise SinkError(
                f"{query}: the table {self._table!r} of {self.path} belongs to the query {owner!r}.",
                "Give each query a table of its own.",
            )

    def recover(self, query: str, next_cut: int, is_new: bool = False) -> None:
        """Check that table and checkpoint belong together; transactions leave nothing to clean up.

        Raises:
            SinkError: There are results of a query that is new, or of cuts that the checkpoint has not made.
        """
        last = self._book("cut")
        if is_new and last >= 0:
            raise SinkError(
                f"{query}: the table {self._table!r} of {self.path} holds results already, but the checkpoint does "
                "not know the query.",
                f"Choose another table, use the checkpoint of the results, or drop it and its row in {_BOOKS}.",
            )
        if last >= next_cut:
            raise SinkError(
                f"{query}: the table {self._table!r} of {self.path} holds results up to cut {last}, but the "
                f"checkpoint continues with cut {next_cut}.",
                "Use the checkpoint that the results were made with, or another table.",
            )

    def write(self, results: WindowResults) -> None:
        """Insert the rows, in place of those with the same window and keys; nothing if the cut is there already.

        Raises:
            sqlite3.Error: The database is locked, full, or the table has other columns.
        """
        table, names = _quoted(self._table or results.query), results.table.column_names
        with self._transaction() as database:
            if self._book("cut") >= results.cut:
                return
            columns = ", ".join(f"{_quoted(f.name)} {_type(f.type)}" for f in results.table.schema)
            database.execute(f"CREATE TABLE IF NOT EXISTS {table} ({columns})")
            rows = list(zip(*[[_value(v) for v in c.to_pylist()] for c in results.table.columns], strict=True))
            if results.updates:
                keys = ", ".join(map(_quoted, results.keys))
                index = _quoted(f"{self._table} keys")
                database.execute(f"CREATE INDEX IF NOT EXISTS {index} ON {table} ({keys})")
                where = " AND ".join(f"{_quoted(key)} IS ?" for key in results.keys)
                at = [names.index(key) for key in results.keys]
                database.executemany(f"DELETE FROM {table} WHERE {where}", [tuple(row[i] for i in at) for row in rows])
            marks = ", ".join("?" * len(names))
            into = f"{table} ({', '.join(map(_quoted, names))})"
            database.executemany(f"INSERT INTO {into} VALUES ({marks})", rows)
            database.execute(f"UPDATE {_BOOKS} SET cut = ? WHERE result_table = ?", (results.cut, self._table))

    def _book(self, column: str) -> Any:
        assert self._database is not None, "open() comes first"
        found = self._database.execute(f"SELECT {column} FROM {_BOOKS} WHERE result_table = ?", (self._table,))
        return found.fetchone()[0]

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        assert self._database is not None, "open() comes first"
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield self._database
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    def close(self) -> None:
        """Close the database."""
        if self._database is not None:
            self._database.close()
            self._database = None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _type(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return "INTEGER"
    if pa.types.is_floating(kind):
        return "REAL"
    return "BLOB" if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) else "TEXT"


def _value(value: Any) -> Any:
    """Return what SQLite stores for a value."""
    if value is None or isinstance(value, (int, str, bytes)):
        return value
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value
    if isinstance(value, datetime):
        aware = value.tzinfo is not None
        text = (value.astimezone(timezone.utc) if aware else value).replace(tzinfo=None).isoformat()
        return text + "Z" if aware else text
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    return json.dumps(value, default=_value)
