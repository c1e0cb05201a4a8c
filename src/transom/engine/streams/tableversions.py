"""The versions of the tables that a stream's rows are looked up in: copies in the checkpoint, which cuts name."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from transom.checkpoint.container import read_container, write_container
from transom.checkpoint.files import Written
from transom.engine.placed.aside import aside
from transom.engine.spark.lookups import LookupTable, refreshed
from transom.errors import CheckpointCorruptError, CheckpointError, SourceError, TransomError
from transom.failures import classify, require_blame
from transom.model.lines import CORRUPT_REMEDY
from transom.model.time import Micros
from transom.storage.places import Place
from transom.storage.translated import translated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

COPIES = "lookups"
"""Directory of the checkpoint with the copies, by stream."""
MOST_BYTES = 1 << 30
"""Size of the largest table: each task of each cut has all of it at hand."""
_ROWS = "rows"


@dataclass(frozen=True)
class Version:
    """A copy of a table in the checkpoint, as the log names it."""

    file: str
    bytes: int
    crc: int

    def to_json(self) -> list[Any]:
        """Return it as JSON."""
        return [self.file, self.bytes, self.crc]


@dataclass(frozen=True)
class _Held:
    """A version that was read in this run."""

    version: Version
    rows: pa.Table
    at: Micros
    """When it was read last, or that was tried; wall time."""


class TableVersions:
    """The tables of a stream: each is read and copied into the checkpoint before the first cut that sees it.

    Used on the loop's thread, but for reading anew, and for `frames`: while the job of a cut runs, the loop leaves its
    stream alone, so that nothing here is locked.

    Args:
        session: Transom's session.
        make_directory: Returns where the copies are, and sees to it that it is there; called when it is needed.
    """

    def __init__(self, session: SparkSession, make_directory: Callable[[], Place]) -> None:
        self._session = session
        self._make_directory = make_directory
        self._newest: dict[LookupTable, _Held] = {}
        self._reading: dict[LookupTable, Future[_Held]] = {}
        self._left: list[Future[_Held]] = []
        """Those that are still read of tables which nobody needs any more."""
        self._frames: dict[LookupTable, tuple[Version | None, DataFrame]] = {}
        """The rows that the last cut saw, with the version that it named."""
        self._copies: set[Version] = set()
        """Those that this run has made or used."""

    @cached_property
    def _directory(self) -> Place:
        return self._make_directory()

    def newest(self, tables: Sequence[LookupTable], now: Micros) -> dict[str, Version]:
        """Return the versions that a cut sees which begins now; begins to read anew what is due.

        Args:
            tables: The tables that the stream's queries need.
            now: Wall time.

        Raises:
            SourceError: A table cannot be read for the first time in this run.
            CheckpointError: It cannot be copied.
        """
        for table in tables:
            if table not in self._newest:
                self._keep(table, self._first(table, now))
            self._take(table)
            if self._is_due(table, now):
                self._read_anew(table, now)
                self._take(table)
        return {table.name: self._newest[table].version for table in tables}

    def frames(
        self, tables: Sequence[LookupTable], versions: Mapping[str, Version], now: Micros
    ) -> dict[LookupTable, DataFrame]:
        """Return the rows of the versions that a cut sees; called on the thread of its job.

        Args:
            tables: The tables.
            versions: What the cut names. Of a table that only queries need which came with a restart it names none, or
                one of another table that had its name; then this is the newest.
            now: Wall time.

        Raises:
            CheckpointCorruptError: A copy is missing or damaged.
        """
        for table in tables:
            named = versions.get(table.name)
            if table not in self._frames or self._frames[table][0] != named:
                rows = self._rows(table, named, now)
                self._frames[table] = named, self._session.createDataFrame(rows, table.schema(self._session))
        return {table: self._frames[table][1] for table in tables}

    def rows(self, tables: Sequence[LookupTable], versions: Mapping[str, Version], now: Micros) -> dict[str, pa.Table]:
        """Return the rows of the versions that a cut sees, by the names of the tables; as `frames`.

        Raises:
            CheckpointCorruptError: A copy is missing or damaged.
        """
        return {table.name: self._rows(table, versions.get(table.name), now) for table in tables}

    def committed(self, tables: Collection[LookupTable]) -> None:
        """Forget what no cut needs any more, while each that was logged is committed.

        Args:
            tables: Those that the stream's queries need from now on, paused ones, too.
        """
        for table in {*self._newest, *self._frames}.difference(tables):
            self._newest.pop(table, None)
            self._frames.pop(table, None)
            if table in self._reading:
                self._left.append(self._reading.pop(table))
        read = [left for left in self._left if left.done()]
        self._left = [left for left in self._left if left not in read]
        self._copies.update(left.result().version for left in read if left.exception() is None)
        needed = {held.version for held in self._newest.values()}
        for version in self._copies - needed:
            self._copies.remove(version)
            with suppress(OSError):  # the next run removes it
                (self._directory / version.file).unlink()

    def settle(self, found: Collection[str], needed: Mapping[str, Version], check: Callable[[], None]) -> None:
        """Remove the copies that earlier runs left.

        Args:
            found: The files that are there.
            needed: The versions of the cut that is to be done again.
            check: Returns while no other application has taken over the checkpoint.

        Raises:
            CheckpointError: One cannot be removed.
        """
        left = set(found) - {version.file for version in needed.values()}
        if left:
            check()
        for name in left:
            with translated(self._directory / name, "remove"):
                (self._directory / name).unlink()

    # ---- reading

    def _is_due(self, table: LookupTable, now: Micros) -> bool:
        every = table.refresh
        return every is not None and table not in self._reading and now - self._newest[table].at >= every

    def _first(self, table: LookupTable, now: Micros) -> _Held:
        try:
            return self._read(table, None, now)
        except TransomError:
            raise
        except Exception as error:
            require_blame(error, f"Reading the table {table.name!r}")
            raise SourceError(
                f"lookup {table.name!r}: {table.table.describe()} cannot be read: {classify(error).reason}.",
                "Nothing is computed without it: repair it, and run again.",
            ) from error

    def _read_anew(self, table: LookupTable, now: Micros) -> None:
        held = self._newest[table] = replace(self._newest[table], at=now)
        self._reading[table] = aside(lambda: self._read(table, held, now), "transom-lookup")

    def _take(self, table: LookupTable) -> None:
        """Take what was read anew; what cannot be read now stays what it was, until it is due again."""
        future = self._reading.get(table)
        if future is None or not future.done():
            return
        del self._reading[table]
        try:
            self._keep(table, future.result())
        except CheckpointError:
            raise
        except Exception as error:
            reason = error.message if isinstance(error, TransomError) else classify(error).reason
            logger.warning("The table %s stays as it was: it cannot be read anew: %s", table.name, reason)

    def _keep(self, table: LookupTable, held: _Held) -> None:
        self._newest[table] = held
        self._copies.add(held.version)

    def _read(self, table: LookupTable, held: _Held | None, now: Micros) -> _Held:
        """Read a table, and copy it if it is not what it was."""
        frame = refreshed(table.table.read(self._session))
        wanted, found = table.schema(self._session), frame.schema
        if [(one.name, one.dataType) for one in found] != [(one.name, one.dataType) for one in wanted]:
            raise SourceError(
                f"lookup {table.name!r}: {table.table.describe()} has the columns {found.simpleString()} now, and had "
                f"{wanted.simpleString()}.",
                "Give it the former ones, or let tm.tables.sql name those that the queries need.",
            )
        rows: pa.Table = frame.toArrow()
        if rows.nbytes > MOST_BYTES:
            raise SourceError(
                f"lookup {table.name!r}: {table.table.describe()} has {rows.nbytes >> 20} MB, more than "
                f"{MOST_BYTES >> 20} MB, which each executor would have to hold.",
                "Leave out rows or columns with tm.tables.sql, or let it be a stream and use app.join.",
            )
        rows = _in_order(rows)
        if held is not None and rows.equals(held.rows):
            return _Held(held.version, held.rows, now)
        file = f"{uuid.uuid4().hex}.tables"
        written: Written = write_container(self._directory / file, _note(table), {_ROWS: rows})
        return _Held(Version(file, written.bytes, written.crc), rows, now)

    def _rows(self, table: LookupTable, named: Version | None, now: Micros) -> pa.Table:
        if named is not None:
            self._copies.add(named)
            if table in self._newest and self._newest[table].version == named:
                return self._newest[table].rows
            content = read_container(self._directory / named.file)
            if content.written != Written(named.bytes, named.crc):
                raise CheckpointCorruptError(
                    f"The file {self._directory / named.file} is not the one that the log tells of.", CORRUPT_REMEDY
                )
            rows = content.tables[_ROWS]
            if content.meta == _note(table) and rows.column_names == table.schema(self._session).names:
                return rows
        self.newest([table], now)
        return self._newest[table].rows


def _note(table: LookupTable) -> dict[str, str]:
    """Return what a copy says of the table that it is of."""
    return {"name": table.name, "table": table.table.describe()}


def _in_order(rows: pa.Table) -> pa.Table:
    """Return rows in an order of their own: Spark gives those of one table in another one each time it is read."""
    once = [field for field in rows.schema if rows.column_names.count(field.name) == 1]
    keys = [(field.name, "ascending") for field in once if not pa.types.is_nested(field.type)]
    return rows.sort_by(keys) if keys else rows
