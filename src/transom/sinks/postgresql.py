"""Results in a table of PostgreSQL, where a correction replaces the row that it corrects."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from transom.errors import DefinitionError, SinkError, require_extra
from transom.model.signatures import checked
from transom.sinks.base import WindowResults
from transom.sinks.copytext import column_type, copied
from transom.sinks.csv_lines import write_csv
from transom.sinks.owner import Claim, Owner, refuse_results_ahead

if TYPE_CHECKING:
    import psycopg

_BOOKS = "transom_results"
"""Table that says which query of which checkpoint writes which table, up to which cut, and which run of it does."""
_LONGEST_NAME = 63
"""Bytes of a name in PostgreSQL; of longer ones it takes the beginning."""
_CONNECT_SECONDS = 10
_SECRETS = ("password", "sslpassword")


@checked
def postgres(dsn: str, table: str, create: bool = False) -> PostgresSink:
    """Keep results in a table of PostgreSQL 15 or newer: the newest revision of each window and key.

    Early results and corrections replace the row of the same window and keys, for which the table needs a unique index
    over them; with `create` it has one. NULL keys are equal. Structs, lists and maps are `jsonb`, durations
    microseconds. A cut's rows, and the note in the table `transom_results` that they are there, are one transaction;
    a run that another one has replaced cannot write any more. A lost connection is made anew.

    Args:
        dsn: As libpq takes it: `postgresql://host/database` or `host=... dbname=...`. Best without a password, which
            libpq finds in `~/.pgpass` or the variable PGPASSWORD.
        table: Name of the table, or `schema.table`; of one query.
        create: Create the table if it does not exist, with the first results.

    Raises:
        DefinitionError: psycopg is not installed, `dsn` cannot be read, or `table` is no name of a table.
    """
    require_extra("postgres", ["psycopg"], "tm.sinks.postgres")
    _require_name(table)
    return PostgresSink(dsn, table, create)


def _require_name(table: str) -> None:
    """Refuse what cannot be the name of a table, or would be shortened to that of another one.

    Raises:
        DefinitionError: It is that.
    """
    parts = table.split(".")
    if len(parts) > 2 or not all(parts):
        raise DefinitionError(
            f"postgres: table {table!r} is neither a name nor a schema and a name.",
            'Write for example table="fares" or table="reports.fares"; the database is that of the dsn, and a name '
            "has no dot in it.",
        )
    if any(len(part.encode()) > _LONGEST_NAME or "\0" in part for part in parts):
        raise DefinitionError(
            f"postgres: table {table!r} has a name of more than {_LONGEST_NAME} bytes, which PostgreSQL shortens, or "
            "with the character NUL.",
            "Give it a shorter one.",
        )
    if parts[-1] == _BOOKS:
        raise DefinitionError(f"postgres: the table {_BOOKS!r} is Transom's own.", "Give the table another name.")


class PostgresSink:
    """See `postgres`, which makes it."""

    def __init__(self, dsn: str, table: str, create: bool) -> None:
        from psycopg import conninfo

        try:
            parts = conninfo.conninfo_to_dict(dsn)
        except Exception:  # its text may hold the password
            raise DefinitionError(
                "postgres: the dsn cannot be read.",
                "Write postgresql://user@host:5432/database, or host=... dbname=...",
            ) from None
        self._secrets = [text for name in _SECRETS if (text := str(parts.get(name) or ""))]
        self._dsn = conninfo.make_conninfo("", **{"connect_timeout": _CONNECT_SECONDS, **parts})
        self._table = self._noted = table
        """And the name that the books have of it, which may lack the schema or have it."""
        self._create = create
        host, database = str(parts.get("host") or "localhost"), str(parts.get("dbname") or parts.get("user") or "")
        self._place = f"{host}:{parts.get('port') or 5432}/{database}"
        self.key = f"postgres:{self._place}#{table}"
        """The place that it writes to, for checkpoints."""
        self._connection: psycopg.Connection[Any] | None = None
        self._claim: Claim | None = None

    def describe(self) -> str:
        """Return what it is and writes, in one line for people."""
        return f"PostgreSQL table {self._table} at {self._place}"

    def open(self, query: str) -> None:
        """Connect.

        Raises:
            SinkError: The server cannot be reached, is too old, or lacks a table that is not to be created.
        """
        with self._explained(query), self._transaction() as connection:
            if connection.info.server_version < 150_000:
                raise SinkError(
                    f"{query}: the PostgreSQL at {self._place} has version {connection.info.server_version // 10_000}.",
                    "Version 15 or newer is needed, where NULL keys can be equal.",
                )
            if not self._create and not self._exists(connection):
                raise SinkError(
                    f"{query}: there is no table {self._table} at {self._place}.",
                    "Create it, or let it be created: create=True.",
                )

    def claim(self, claim: Claim) -> None:
        """Note that the table is the query's, and this run the one that writes; of several at once, one succeeds.

        Raises:
            SinkError: It belongs to another query or checkpoint, or a newer run, or holds rows of unknown origin.
                Nothing was changed.
        """
        self._claim = claim
        owner, place = claim.owner, f"the table {self._table} at {self._place}"
        with self._explained(claim.query), self._transaction() as connection:
            connection.execute("SELECT pg_advisory_xact_lock(hashtext('transom_results'))")
            connection.execute(
                self._sql(
                    "CREATE TABLE IF NOT EXISTS {books} (result_table text PRIMARY KEY, query text NOT NULL, "
                    "checkpoint text NOT NULL, path text NOT NULL, epoch bigint NOT NULL, cut bigint NOT NULL)"
                )
            )
            find = (
                "SELECT query, checkpoint, path, epoch, cut, result_table FROM {books} WHERE result_table = ANY(%s) "
                "ORDER BY (query, checkpoint) = (%s, %s)"
            )
            mine = (self._names(connection), owner.query, owner.checkpoint)
            row = connection.execute(self._sql(find), mine).fetchone()  # that of another query, if any
            self._noted = self._table if row is None else row[5]
            holder = None if row is None else Owner(row[1], row[0], row[2])
            has_results = row[4] >= 0 if row is not None else self._has_rows(connection)
            if row is not None and (row[0], row[1]) == (owner.query, owner.checkpoint) and row[3] > claim.epoch:
                raise self._fenced(claim.query, row[3])
            if claim.allowed(holder, has_results, place, "table"):
                insert = "INSERT INTO {books} VALUES (%s, %s, %s, %s, %s, -1)"
                values = (self._table, owner.query, owner.checkpoint, owner.path, claim.epoch)
                connection.execute(self._sql(insert), values)
            else:
                update = "UPDATE {books} SET epoch = %s, path = %s WHERE result_table = %s"
                connection.execute(self._sql(update), (claim.epoch, owner.path, self._noted))

    def recover(self, query: str, next_cut: int) -> None:
        """Check that table and checkpoint belong together; transactions leave nothing to clean up.

        Raises:
            SinkError: There are results of cuts that the checkpoint has not made.
        """
        with self._explained(query), self._transaction() as connection:
            find = "SELECT cut FROM {books} WHERE result_table = %s"
            row = connection.execute(self._sql(find), (self._noted,)).fetchone()
        last = -1 if row is None else row[0]
        refuse_results_ahead(query, f"the table {self._table} at {self._place}", "table", last, next_cut)

    def write(self, results: WindowResults) -> None:
        """Insert the rows, in place of those with the same window and keys; nothing if the cut is there already.

        Raises:
            SinkError: A newer run writes, or a value is one that PostgreSQL does not have.
            psycopg.Error: The server is away or full, or the table has other columns.
        """
        with self._without_secrets(results.query), self._transaction() as connection:
            if not self._note(connection, results):
                return
            if self._create and not self._exists(connection):
                self._make_table(connection, results)
            names = results.table.column_names
            into = "{table}"
            if results.updates:
                into = "transom_new"
                connection.execute(
                    self._sql("CREATE TEMPORARY TABLE IF NOT EXISTS transom_new (LIKE {table}) ON COMMIT DELETE ROWS")
                )
            text = io.BytesIO()
            write_csv(copied(results.table, results.query), text)
            copy = f"COPY {into} ({{names}}) FROM STDIN (FORMAT csv, HEADER true)"
            with (
                text.getbuffer() as content,
                connection.cursor() as cursor,
                cursor.copy(self._sql(copy, names=names)) as copying,
            ):
                copying.write(content)
            if results.updates:
                values = [name for name in names if name not in results.keys]
                upsert = (
                    "INSERT INTO {table} ({names}) SELECT {names} FROM transom_new ON CONFLICT ({keys}) DO UPDATE SET "
                    "({values}) = ROW({new})"
                )
                self._upsert(connection, self._sql(upsert, names=names, keys=results.keys, values=values), results)

    def _upsert(self, connection: psycopg.Connection[Any], statement: Any, results: WindowResults) -> None:
        from psycopg.errors import InvalidColumnReference

        try:
            connection.execute(statement)
        except InvalidColumnReference as error:
            index = self._sql(_INDEX, keys=results.keys).as_string(connection)
            raise SinkError(
                f"{results.query}: the table {self._table} has no unique index over window and keys, so that a "
                "revision cannot replace its row.",
                f"Create it: {index}.",
            ) from error

    def _note(self, connection: psycopg.Connection[Any], results: WindowResults) -> bool:
        """Note that the results of a cut are there; False if they are.

        Raises:
            SinkError: A newer run writes.
        """
        assert self._claim is not None, "claim() comes first"
        update = "UPDATE {books} SET cut = %s WHERE result_table = %s AND epoch = %s AND cut < %s RETURNING 1"
        values = (results.cut, self._noted, self._claim.epoch, results.cut)
        if connection.execute(self._sql(update), values).fetchone() is not None:
            return True
        find = "SELECT epoch, cut FROM {books} WHERE result_table = %s"
        row = connection.execute(self._sql(find), (self._noted,)).fetchone()
        if row is None or row[0] != self._claim.epoch:
            raise self._fenced(results.query, None if row is None else row[0])
        return False

    def _make_table(self, connection: psycopg.Connection[Any], results: WindowResults) -> None:
        from psycopg import sql

        columns = sql.SQL(", ").join(
            sql.SQL("{} {}").format(sql.Identifier(field.name), sql.SQL(column_type(field.type)))
            for field in results.table.schema
        )
        connection.execute(sql.SQL("CREATE TABLE {} ({})").format(self._identifier(self._table), columns))
        if results.keys:
            connection.execute(self._sql(_INDEX, keys=results.keys))

    def _fenced(self, query: str, epoch: int | None) -> SinkError:
        what = "is not noted there any more" if epoch is None else f"is that of run {epoch} now"
        return SinkError(
            f"{query}: the table {self._table} at {self._place} {what}; this run may not write there.",
            "Let only one run of the application go on.",
        )

    # ---- SQL and connections

    def _names(self, connection: psycopg.Connection[Any]) -> list[str]:
        """Return the names of the table, with its schema and without, if names without one mean that schema."""
        schema, _, name = self._table.rpartition(".")
        (first,) = connection.execute("SELECT current_schema()").fetchone() or ("",)
        return [name, f"{first}.{name}"] if schema in ("", first) else [self._table]

    def _identifier(self, name: str) -> Any:
        from psycopg import sql

        return sql.Identifier(*name.split("."))

    def _sql(self, text: str, **columns: Any) -> Any:
        """Return a statement about the table and the books beside it; columns are quoted."""
        from psycopg import sql

        schema, dot, _ = self._table.rpartition(".")
        new = [sql.SQL("EXCLUDED.{}").format(sql.Identifier(name)) for name in columns.get("values", ())]
        return sql.SQL(text).format(
            table=self._identifier(self._table),
            books=self._identifier(f"{schema}{dot}{_BOOKS}"),
            new=sql.SQL(", ").join(new),
            **{key: sql.SQL(", ").join(map(sql.Identifier, names)) for key, names in columns.items()},
        )

    def _exists(self, connection: psycopg.Connection[Any]) -> bool:
        name = self._identifier(self._table).as_string(connection)
        return connection.execute("SELECT to_regclass(%s) IS NOT NULL", (name,)).fetchone() == (True,)

    def _has_rows(self, connection: psycopg.Connection[Any]) -> bool:
        if not self._exists(connection):
            return False
        return connection.execute(self._sql("SELECT EXISTS (SELECT FROM {table})")).fetchone() == (True,)

    @contextmanager
    def _transaction(self) -> Iterator[psycopg.Connection[Any]]:
        if self._connection is None:
            self._connection = self._connected()
        connection = self._connection
        try:
            with connection.transaction():
                yield connection
        except BaseException:
            if connection.closed:
                self.close()  # the next try makes a new one
            raise

    def _connected(self) -> psycopg.Connection[Any]:
        """Return a new connection, which is used by none that does not speak of UTC."""
        import psycopg

        connection = psycopg.connect(self._dsn, autocommit=True, fallback_application_name="transom")
        try:
            connection.execute("SET TimeZone = 'UTC'; SET lock_timeout = '30s'")
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _explained(self, query: str) -> Iterator[None]:
        import psycopg

        try:
            yield
        except psycopg.Error as error:
            raise SinkError(
                f"{query}: the PostgreSQL at {self._place} cannot be used: {self._clean(str(error).strip())}.",
                "Look whether it runs, and whether host, database and user are right.",
            ) from None

    @contextmanager
    def _without_secrets(self, query: str) -> Iterator[None]:
        import psycopg

        try:
            yield
        except psycopg.Error as error:
            text = str(error)
            if self._clean(text) == text:
                raise
            raise SinkError(f"{query}: {self._clean(text)}.", "See the server's log.") from None

    def _clean(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()


_INDEX = "CREATE UNIQUE INDEX ON {table} ({keys}) NULLS NOT DISTINCT"
