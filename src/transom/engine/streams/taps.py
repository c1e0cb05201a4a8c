"""Rows of a stream as files in a user's directory: written by the executors, visible once their cut is committed.

The job of a cut writes them into a hidden directory beside, under names that no other try has. When the commit, which
names them, is in the log, they get their names, which say the cut; after a kill in between, the next run does that
first, and removes what was not committed.
"""

from __future__ import annotations

import logging
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from transom.checkpoint.files import Written
from transom.engine.spark.columns import is_case_sensitive
from transom.engine.spark.compile import Compiled
from transom.engine.spark.rowfiles import KeptRows
from transom.engine.spark.rows import columns_of, rows_of, write_files
from transom.engine.streams.cuts import LoggedCut
from transom.errors import DefinitionError, SinkError
from transom.model.time import MIN_TIME, Micros
from transom.sinks.base import WindowResults
from transom.sinks.directories import FileSink
from transom.sinks.outlets import Outlets
from transom.sinks.owner import Claim, take_directory
from transom.storage.durable import make_directory, move, names_in, remove_tree, sync_directory, sync_file
from transom.storage.hadoop import require_spark_reads
from transom.storage.places import Place, located
from transom.storage.several import each_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from transom.engine.streams.stream import RunningStream

logger = logging.getLogger(__name__)

_FILE = re.compile(r"rows-(\d{12,})-.*")
_WAITING = re.compile(r"\.rows-\d{12,}\.\w+\.tmp")
_NOT_IN_CSV = frozenset({"array", "map", "struct", "variant", "void"})
_MOVES = 16
"""Objects of a store that get their names at once: each takes some requests."""


class RowFiles:
    """The rows that a query sees as files; it is that query's sink, and a buffer of its stream.

    Args:
        files: Where they go, and in which format.
        partition_by: Columns whose values are directories, as with Spark's `partitionBy`.
    """

    late_of: str | None = None
    """It needs all rows."""

    def __init__(self, files: FileSink, partition_by: Sequence[str] = ()) -> None:
        self.directory = files.directory
        """Where the files are; no two queries may share it."""
        self.key = f"rows:{files.key}"
        """The place that it writes to, for checkpoints."""
        self.query = ""
        self._kind = files.kind
        self._partition_by = tuple(partition_by)
        self._check: Callable[[], None] | None = None
        """Returns while no other application has taken over; None before the directory was taken in this run."""
        self._committed: dict[int, KeptRows] = {}
        """Rows of cuts that were committed before that."""

    # ---- as a sink

    def describe(self) -> str:
        """Return what it is and writes, in one line for people."""
        by = f" by {', '.join(self._partition_by)}" if self._partition_by else ""
        return f"rows as {self._kind} files in {self.directory}{by}"

    def open(self, query: str) -> None:
        """Create the directory."""
        self.query, self._check, self._committed = query, None, {}
        make_directory(self.directory)

    def claim(self, claim: Claim) -> None:
        """Make the directory the query's, or raise SinkError because it is not; see `take_directory`."""
        take_directory(self.directory, claim, any(True for _ in self._numbers()))
        self._check = claim.check

    def recover(self, query: str, next_cut: int) -> None:
        """Give the files of committed cuts their names, and remove those of others.

        Raises:
            SinkError: There are files of cuts that the checkpoint does not know.
        """
        newest = max(self._numbers(), default=-1)
        if newest >= next_cut:
            raise SinkError(
                f"{query}: {self.directory} holds rows of cut {newest}, but the checkpoint continues with cut "
                f"{next_cut}.",
                "Use the checkpoint that they were written with, or another directory.",
            )
        waiting = [name for name in names_in(self.directory) if _WAITING.fullmatch(name)]
        for cut, rows in self._committed.items():
            mine = rows.directory == str(self.directory)
            if not _tries(rows).isdisjoint(waiting) if mine else _waits(rows):
                publish(cut, rows)
        if waiting and self._check is not None:
            self._check()  # what was listed before is none of a run that took over since
        for name in waiting:
            remove_tree(self.directory / name)

    def write(self, results: WindowResults) -> None:
        """Do nothing: the query's windows only count the rows."""

    def close(self) -> None:
        """Do nothing: no file is kept open."""

    # ---- as a buffer

    def piece(self, cut: int) -> Place:
        """Return where the rows of a cut wait for its commit, below names that begin with a dot."""
        return self.directory

    def store(self, seen: DataFrame, cut: LoggedCut, late_before: Mapping[str, Micros]) -> KeptRows | None:
        """Write the rows of a cut, durably; None when there are none."""
        # What was killed or overtaken may still write the rows of the same cut, under another name.
        attempt = f".rows-{cut.number:012d}.{uuid.uuid4().hex}.tmp"
        staged = self.directory / attempt
        if not write_files(seen, self._kind, self._partition_by, staged):
            remove_tree(staged)
            return None
        sizes = {name: size for name, size in _files_below(staged) if name.rpartition("/")[2][0] not in "._"}
        files = {f"{attempt}/{name}": Written(size, 0) for name, size in sizes.items()}
        return KeptRows(MIN_TIME, files, str(self.directory))

    def keep(self, cut: int, rows: KeptRows) -> None:
        """Let the rows of a committed cut be seen.

        Raises:
            SinkError: The files cannot get their names.
        """
        if self._check is not None:
            publish(cut, rows)
        else:
            self._committed[cut] = rows

    def require_columns(self, columns: StructType, case_sensitive: bool) -> None:
        """Return when rows with these columns can be written.

        Raises:
            DefinitionError: They lack one of `partition_by`, or have no other ones, or the format has no such type.
        """
        folded = {name if case_sensitive else name.lower() for name in columns.names}
        by = {name if case_sensitive else name.lower() for name in self._partition_by}
        for name in self._partition_by:
            if (name if case_sensitive else name.lower()) not in folded:
                raise DefinitionError(
                    f"query {self.query!r}: partition_by: there is no column {name!r}.",
                    f"The columns are {', '.join(columns.names)}.",
                )
        if by == folded:
            raise DefinitionError(
                f"query {self.query!r}: partition_by: all columns are in it, so that none is left for the files.",
                "Leave one out.",
            )
        for field in columns if self._kind == "csv" else ():
            if (kind := field.dataType.typeName()) in _NOT_IN_CSV:
                raise DefinitionError(
                    f"query {self.query!r}: the column {field.name!r} has the type {kind}, which CSV cannot hold.",
                    "Make a text of it with map(), as by to_json, or write Parquet or JSON.",
                )

    def _numbers(self) -> Iterator[int]:
        """Yield the cuts whose rows can be seen."""
        if isinstance(self.directory, Path):
            names: Iterator[str] = (path.name for path in self.directory.rglob("rows-*") if path.is_file())
        else:
            names = (entry.name.rpartition("/")[2] for entry in self.directory.walk())
        return (int(found[1]) for name in names if (found := _FILE.fullmatch(name)))


def _tries(rows: KeptRows) -> set[str]:
    """Return the directories that the files of a cut wait in: one."""
    return {name.partition("/")[0] for name in rows.files or ()}


def _files_below(directory: Place) -> Iterator[tuple[str, int]]:
    """Yield the files below a directory, with their sizes, and make them durable."""
    if not isinstance(directory, Path):
        yield from ((entry.name, entry.stat.st_size) for entry in directory.walk() if entry.stat)
        return
    for folder, _, names in os.walk(directory):
        for path in (Path(folder, name) for name in names):
            sync_file(path)
            yield path.relative_to(directory).as_posix(), path.stat().st_size
        sync_directory(Path(folder))
    sync_directory(directory.parent)


def _waits(rows: KeptRows) -> bool:
    """Tell whether files of a cut have not got their names.

    Raises:
        SinkError: The file system does not tell.
    """
    directory = located(str(rows.directory))
    try:
        return any((directory / attempt).exists() for attempt in _tries(rows))
    except OSError as error:
        raise SinkError(
            f"Whether rows wait in {directory} is not known: {error.strerror or error}.",
            "Repair that, and start the application again.",
        ) from error


def publish(cut: int, rows: KeptRows) -> None:
    """Give the files of a committed cut their names; may be repeated after a crash inside it.

    Raises:
        SinkError: The file system does not let us.
    """
    directory = located(str(rows.directory))
    try:
        _give_names(directory, cut, rows)
    except OSError as error:
        raise SinkError(
            f"The rows of the committed micro-batch {cut} wait in {directory}, but cannot get their names: "
            f"{error.strerror or error}.",
            "Repair that, and start the application again: it begins with them.",
        ) from error


def publish_left(cut: int, rows: KeptRows) -> None:
    """Do the same for a query that is not in the job any more; what cannot get its name stays hidden, with a warning.

    What is kept in the checkpoint, for other streams, stays as it is.
    """
    try:
        if rows.directory is not None and _waits(rows):
            publish(cut, rows)
    except SinkError as error:
        logger.warning("%s The query is not in the job any more, so that they are left.", error.message)


def _give_names(directory: Place, cut: int, rows: KeptRows) -> None:
    targets = {name: _target(directory, name, cut) for name in sorted(rows.files or ())}

    def name_one(name: str) -> None:
        source = directory.joinpath(*name.split("/"))
        try:
            move(source, targets[name])
        except FileNotFoundError:
            if source.exists():
                raise
            # It has its name.

    folders = dict.fromkeys(target.parent for target in targets.values())
    if isinstance(directory, Path):
        for folder in folders:
            make_directory(folder)
        for name in targets:
            name_one(name)
        for folder in folders:
            sync_directory(folder)
    else:
        each_of(list(targets), name_one, _MOVES)
    for attempt in _tries(rows):
        remove_tree(directory / attempt)


def _target(directory: Place, name: str, cut: int) -> Place:
    """Return what a file that waits will be called: without its try, with its cut."""
    _, *folders, last = name.split("/")
    return directory.joinpath(*folders, f"rows-{cut:012d}-{last}")


def tap(stream: RunningStream, query: str, outlets: Outlets, compiled: Compiled) -> None:
    """Let a stream write rows for those of a query's sinks that take them, and for no former query of that name.

    Args:
        stream: The stream.
        query: The query.
        outlets: Its sinks, which are open.
        compiled: The stream with the query.

    Raises:
        DefinitionError: The rows cannot be written so.
        SinkError: Spark has no file system for a directory.
    """
    untap(stream, query)
    files = [sink for sink in outlets.sinks.values() if isinstance(sink, RowFiles)]
    for each in files:
        raw = stream.session.createDataFrame([], stream.source.schema)
        seen = rows_of(raw, compiled.plan, compiled.queries[query].query, None)
        each.require_columns(columns_of(seen), is_case_sensitive(seen))
        require_spark_reads(stream.session, each.directory, f"rows of {query}", SinkError)
    stream.buffers += files


def untap(stream: RunningStream, query: str) -> None:
    """Let a stream write no more rows for a query, which has left; it has no cut under way."""
    stream.buffers = [each for each in stream.buffers if not (isinstance(each, RowFiles) and each.query == query)]
