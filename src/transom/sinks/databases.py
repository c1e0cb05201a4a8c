"""Results in a table of an SQLite database, where a correction replaces the row that it corrects."""

from __future__ import annotations

import base64
import json
import math
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from transom.errors import SinkError
from transom.model.signatures import checked
from transom.sinks.base import WindowResults
from transom.sinks.owner import Claim, Owner, refuse_results_ahead
from transom.sinks.parts import local_directory
from transom.sinks.values import python_values
from transom.storage.durable import make_directory

_BOOKS = "transom_results"
"""Table that says which query of which checkpoint writes which table, and up to which cut."""
_HERE = "result_table = ? COLLATE NOCASE"
"""Its row of a table: SQLite takes names for the same that differ in small and capital letters only."""


@checked
def sqlite(path: str | os.PathLike[str], table: str | None = None) -> SqliteSink:
    """Keep results in a table of an SQLite database: the newest revision of each window and key.

    Early results and corrections replace the row of the same window and keys, so that the table always holds what is
    known so far. Queries may share a database, not a table. Times are ISO 8601 texts in UTC, decimals are texts,
    structs and lists JSON texts; NaN is the text 'NaN', since SQLite has none. Years
    after 9999 have more digits, so that their texts come in another order.

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
        self.key = f"sqlite:{path}" + (f"#{table}" if table else "")
        """The place that it writes to, for checkpoints."""
        self._table = table
        self._database: sqlite3.Connection | None = None

    def describe(self) -> str:
        """Return what it is and writes, in one line for people."""
        return f"SQLite database {self.path}" + (f", table {self._table}" if self._table else "")

    def open(self, query: str) -> None:
        """Open the database.

        Raises:
            SinkError: The file cannot be opened or is no database, or the table's name is not free.
        """
        self._table = self._table or query
        if (name := self._table.lower()) == _BOOKS or name.startswith("sqlite_"):
            whose = "Transom's" if name == _BOOKS else "SQLite's"
            raise SinkError(
                f"{query}: the table {self._table!r} would be {whose} own.",
                'Give it another one, such as table="results".',
            )
        try:
            make_directory(self.path.parent)
            # Calls come from one thread at a time, not always the same one.
            self._database = sqlite3.connect(self.path, timeout=30, isolation_level=None, check_same_thread=False)
            self._database.execute("SELECT count(*) FROM sqlite_master")
        except (OSError, sqlite3.Error) as error:
            self.close()
            raise self._unusable(query, error) from error

    def _unusable(self, query: str, error: Exception) -> SinkError:
        return SinkError(f"{query}: the SQLite database {self.path} cannot be used: {error}.", "Choose another file.")

    def claim(self, claim: Claim) -> None:
        """Note that the table is the query's; of several that try at once, one succeeds.

        Raises:
            SinkError: It belongs to another query or checkpoint, or is a table of unknown origin. Nothing was changed.
        """
        place = f"the table {self._table!r} of {self.path}"
        mark = (claim.owner.checkpoint, claim.owner.path, self._table)
        try:
            assert self._database is not None, "open() comes first"
            with self._transaction() as database:
                _keep_books(database)
                find = f"SELECT query, cut, checkpoint, path FROM {_BOOKS} WHERE {_HERE} ORDER BY query IS ?"
                row = database.execute(find, (self._table, claim.query)).fetchone()  # that of another query, if any
                query, cut, checkpoint, path = row or (None, -1, None, "")
                holder = None
                if checkpoint is not None or query not in (None, claim.query):
                    holder = Owner(checkpoint or claim.owner.checkpoint, str(query), str(path))
                has_results = cut >= 0 or (query is None and _has_table(database, self._table or ""))
                if claim.allowed(holder, has_results, place, "table"):
                    new = (self._table, claim.query)
                    database.execute(
                        f"INSERT OR IGNORE INTO {_BOOKS} (result_table, query, cut) VALUES (?, ?, -1)", new
                    )
                    database.execute(f"UPDATE {_BOOKS} SET checkpoint = ?, path = ? WHERE {_HERE}", mark)
            # While others look into the file it cannot be done, without waiting; it is for speed, and stays once done.
            with suppress(sqlite3.OperationalError):
                self._database.execute("PRAGMA journal_mode = WAL")
        except sqlite3.Error as error:
            raise self._unusable(claim.query, error) from error

    def recover(self, query: str, next_cut: int) -> None:
        """Check that table and checkpoint belong together; transactions leave nothing to clean up.

        Raises:
            SinkError: There are results of cuts that the checkpoint has not made.
        """
        refuse_results_ahead(query, f"the table {self._table!r} of {self.path}", "table", self._last_cut(), next_cut)

    def write(self, results: WindowResults) -> None:
        """Insert the rows, in place of those with the same window and keys; nothing if the cut is there already.

        Raises:
            sqlite3.Error: The database is locked, full, or the table has other columns.
        """
        table, names = _quoted(self._table or results.query), results.table.column_names
        with self._transaction() as database:
            if self._last_cut() >= results.cut:
                return
            columns = ", ".join(f"{_quoted(f.name)} {_type(f.type)}" for f in results.table.schema)
            database.execute(f"CREATE TABLE IF NOT EXISTS {table} ({columns})")
            rows = list(zip(*map(_values, results.table.columns), strict=True))
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
            database.execute(f"UPDATE {_BOOKS} SET cut = ? WHERE {_HERE}", (results.cut, self._table))

    def _last_cut(self) -> int:
        assert self._database is not None, "open() comes first"
        found = self._database.execute(f"SELECT cut FROM {_BOOKS} WHERE {_HERE}", (self._table,)).fetchone()
        return -1 if found is None else int(found[0])

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        assert self._database is not None, "open() comes first"
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        try:
            yield database
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:  # a full disk ends it, and a commit that waits for readers in vain does not
                database.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Close the database."""
        if self._database is not None:
            self._database.close()
            self._database = None


def _keep_books(database: sqlite3.Connection) -> None:
    """Make the table that says whose the others are; add what those of older versions lack."""
    database.execute(f"CREATE TABLE IF NOT EXISTS {_BOOKS} (result_table TEXT PRIMARY KEY, query TEXT, cut INTEGER)")
    names = {row[1] for row in database.execute(f"PRAGMA table_info({_BOOKS})")}
    for name in ("checkpoint", "path"):
        if name not in names:
            database.execute(f"ALTER TABLE {_BOOKS} ADD COLUMN {name} TEXT")


def _has_table(database: sqlite3.Connection, name: str) -> bool:
    find = "SELECT 1 FROM sqlite_master WHERE name = ? COLLATE NOCASE"
    return database.execute(find, (name,)).fetchone() is not None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _type(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return "INTEGER"
    if pa.types.is_floating(kind):
        return "REAL"
    return "BLOB" if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) else "TEXT"


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Return what SQLite stores for the values of a column; each time is made a text once."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind):
        return python_values(column)
    if pa.types.is_floating(kind) and not pc.any(pc.is_nan(column)).as_py():
        return python_values(column)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        texts: list[Any] = []
        for chunk in column.dictionary_encode().chunks:
            known = pa.array([_value(value) for value in python_values(chunk.dictionary)], pa.string())
            texts += known.take(chunk.indices).to_pylist()
        return texts
    return [_value(value) for value in python_values(column)]


def _value(value: Any) -> Any:
    """Return what SQLite stores for a value."""
    if value is None or isinstance(value, (int, str, bytes)):
        return value
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value
    if isinstance(value, datetime):
        aware = value.tzinfo is not None
        text = (value.astimezone(UTC) if aware else value).replace(tzinfo=None).isoformat()
        return text + "Z" if aware else text
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    return json.dumps(_within(value))


def _within(value: Any) -> Any:
    """Return what a struct or list holds, as JSON has it."""
    if isinstance(value, dict):
        return {name: _within(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_within(part) for part in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return _value(value)
