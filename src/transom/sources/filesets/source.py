"""The source that `files` makes: positions in its log of discovered files are the offsets."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from transom.errors import CheckpointCorruptError, SourceError
from transom.model.lines import CORRUPT_REMEDY
from transom.model.time import Clock, Micros, format_duration
from transom.native.dialects import Dialect, dialect_of
from transom.sources.base import Cut, Mark, Offset, PlainFormat, Unit, Waiting
from transom.sources.filesets.deltalog import DeltaLog
from transom.sources.filesets.fit import Remades
from transom.sources.filesets.known import FileSet, KnownFiles
from transom.sources.filesets.listing import ObjectScanner
from transom.sources.filesets.log import LOG_NAME, FileEntry, FileLog, gone_here
from transom.sources.filesets.matching import REGEX, check_columns
from transom.sources.filesets.read import checked_schema, empty_frame, read_files, unreadable_files
from transom.sources.filesets.scanners import AnyScanner, scanner_of
from transom.sources.schemas import as_struct, position
from transom.storage.durable import replacing
from transom.storage.places import Place, is_local, located
from transom.storage.several import each_of
from transom.storage.translated import translated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

logger = logging.getLogger(__name__)

RETAINED_NAME = "oldest-needed.json"
_AT_ONCE = 16
"""Files in a store of objects that are asked for at the same time."""
_FORGET_AFTER = 1_000
"""Released files after which the log is checked for files that are gone."""


class _Opened(NamedTuple):
    """The parts of an open source."""

    log: FileLog
    scanner: AnyScanner
    known: KnownFiles
    directory: Place
    clock: Clock


class PlainFile(NamedTuple):
    """A file on this machine."""

    path: str
    size: int
    """Bytes when it was discovered."""
    partition: int | None
    """Index of its source partition; None where there is one."""
    arrived: Micros


class FileSource:
    """See `files`, which makes it.

    In its directory are files.jsonl (the log) and oldest-needed.json (for retention).
    """

    pieces = 64

    def __init__(self, files: FileSet, schema: StructType | str) -> None:
        self._files = files
        self._given_schema = schema
        self._schema: StructType | None = None
        self._released = 0
        self._forgotten_up_to = 0
        self._looked: Micros = 0
        """Monotonic time of the last look."""
        self._opened: _Opened | None = None

    @property
    def schema(self) -> StructType:
        """The columns of `read`, all of them nullable, without the optional ones."""
        if self._schema is None:
            self._schema = checked_schema(as_struct(self._given_schema))
            if self._files.kind == "text":
                check_columns(self._schema, self._files.options[REGEX])
        return self._schema

    @property
    def partitions(self) -> Sequence[str]:
        """The directories in which files were found so far, oldest first, or one partition.

        The list grows while the source is open; the index of a directory never changes, also not after a
        restart.
        """
        return self._log.directories if self._files.by_directory and self._log.directories else ("",)

    def describe(self) -> str:
        """Return what it is and reads, in one line for people."""
        settle = f", settled for {format_duration(self._files.settle)}" if self._files.settle else ""
        return f"{self._files.kind} files {', '.join(self._files.paths)}{settle}"

    def open(self, spark: SparkSession, directory: Place, clock: Clock) -> None:
        """Read the log of discovered files in `directory`.

        Raises:
            SourceError: The directory of a path does not exist.
            CheckpointCorruptError: The log is damaged.
            CheckpointFullError: Its disk is full.
            CheckpointError: It cannot be read, or written, for another reason.
        """
        scanner = self._look_for_files(spark, directory, clock)
        case_sensitive = str(spark.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"
        known = KnownFiles(self._files, self.schema, case_sensitive)
        with translated(directory, "use"):
            log = FileLog(directory)
        self._opened = _Opened(log, scanner, known, directory, clock)
        self._released = self._forgotten_up_to = log.start

    def _look_for_files(self, spark: SparkSession, directory: Place, clock: Clock) -> AnyScanner:
        return scanner_of(spark, self._files.paths, clock)

    def start(self) -> Offset:
        """Return the position from which on no file was forgotten; 0 for a new source."""
        return self._log.start

    def latest(self) -> Offset:
        """Look for new files, log them durably, and return the position after the last one.

        Raises:
            SourceError: A directory cannot be listed.
            CheckpointFullError: The disk of the log is full.
            CheckpointError: The log cannot be written for another reason.
        """
        log, scanner, _, directory, clock = self._open
        try:
            found = scanner.poll(log.known, clock.now() - self._files.settle if self._files.settle else None)
        except OSError as error:
            raise SourceError(f"files: {error}.", "Check the permissions of the directory.") from error
        if scanner.looked:
            self._looked = clock.monotonic()
        if found:
            if not isinstance(scanner, DeltaLog):  # which tells of them in order
                found.sort(key=lambda file: (file[2] if self._files.by_time else 0, file[0]))
            with translated(directory, "write in"):
                log.append(found)
        return log.next

    def mark(self, offset: Offset) -> Mark:
        """Return the checksum of the log up to a position.

        Raises:
            CheckpointCorruptError: The log does not go so far.
        """
        if position(offset) > self._log.next:
            raise CheckpointCorruptError(
                f"{self._open.directory / LOG_NAME} lists {self._log.next} files, but {position(offset)} were read.",
                CORRUPT_REMEDY,
            )
        return self._log.crc_at(position(offset))

    def cut(self, start: Offset, max_rows: int) -> Cut:
        """Return the end of a piece of whole files with about at most `max_rows` rows; at least one file."""
        first = position(start)
        end, rows = first, 0
        for count, entry in enumerate(self._learnt(self._log.since(first))):
            more = self._open.known.fit(entry).rows
            if count and (rows + more > max_rows or (self._files.max_files and count >= self._files.max_files)):
                break
            end, rows = entry.position + 1, rows + more
        return Cut(end, rows)

    def waiting(self, offset: Offset) -> Waiting:
        """Return the directories with files from `offset` on; a file that is too young to be taken is one of them."""
        log, scanner, *_ = self._open
        first = position(offset)
        if not self._files.by_directory:
            return Waiting(frozenset({0} if log.next > first or scanner.pending else ()), self._looked)
        found = set(log.directories_from(first))
        found.update(log.index_of.get(directory, len(log.index_of)) for directory in scanner.pending)
        return Waiting(frozenset(found), self._looked)

    def read(self, spark: SparkSession, start: Offset, end: Offset, skip: Sequence[str] = ()) -> DataFrame:
        """Return the rows of the files at [start, end), with _corrupt_record for text.

        Whether a row is corrupt is decided on all columns of the schema, whatever columns a query uses.

        Raises:
            SourceError: A file vanished; the message names it.
        """
        left_out = {*skip, *self.unfit(start, end)}
        entries = [entry for entry in self._between(start, end) if entry.path not in left_out]
        _at_once(_check_unchanged, entries)
        log = self._log
        partition = (lambda path: log.directory_index(path)) if self._files.by_directory else None
        if not entries:
            return empty_frame(spark, self.schema, self._files.kind, self._files.by_directory)
        paths = [entry.path for entry in entries]
        return read_files(
            spark, paths, self.schema, self._files.kind, self._files.options, partition, self._remade(entries)
        )

    @property
    def plain_format(self) -> PlainFormat | None:
        """The format of its files, if they are here and their options are known; None for what only Spark reads."""
        kind, found = self._files.kind, self._dialect
        if not self._files.local or isinstance(found, str):
            return None
        return found or ("json" if kind == "json" else "parquet" if kind == "parquet" else None)

    @property
    def only_spark_reads(self) -> str:
        """What it reads that only Spark does, for people."""
        found = None if self._files.kind == "text" else self._dialect
        return self.describe() + (f" with the option {found}" if isinstance(found, str) else "")

    @property
    def _dialect(self) -> Dialect | str | None:
        """How its CSV files are written; None for others; or the first option that only Spark knows."""
        options = self._files.options
        return dialect_of(options) if self._files.kind == "csv" else next(iter(options), None)

    def plain_files(self, start: Offset, end: Offset, skip: Sequence[str] = ()) -> Sequence[PlainFile]:
        """Return the files at [start, end), for readers without Spark.

        Raises:
            SourceError: A file vanished; the message names it.
        """
        entries = [entry for entry in self._between(start, end) if entry.path not in skip]
        _at_once(_check_unchanged, entries)
        parted, number = self._files.by_directory, self._log.directory_index
        return [PlainFile(each.path, each.size, number(each.path) if parted else None, each.mtime) for each in entries]

    def units(self, start: Offset, end: Offset) -> Sequence[Unit]:
        """Return the files at [start, end)."""
        log, parted = self._log, self._files.by_directory
        entries = self._between(start, end)
        return [Unit(entry.path, log.directory_index(entry.path) if parted else 0) for entry in entries]

    def unfit(self, start: Offset, end: Offset) -> dict[str, str]:
        """Return the Parquet files at [start, end) whose columns have other types than the schema, each with which."""
        fits = {
            entry.path: self._open.known.fit(entry)
            for entry in self._between(start, end)
            if self._files.kind == "parquet"
        }
        return {path: fit.why_not for path, fit in fits.items() if fit.why_not is not None}

    def unreadable(self, spark: SparkSession, start: Offset, end: Offset) -> dict[str, str]:
        """Return the files at [start, end) that fit the schema and cannot be read at all, each with the reason."""
        unfit = self.unfit(start, end)
        entries = [entry for entry in self._between(start, end) if entry.path not in unfit]
        paths = [entry.path for entry in entries]
        return unreadable_files(spark, paths, self.schema, self._files.kind, self._files.options, self._remade(entries))

    def same_rows(self, start: Offset, end: Offset, skip: Sequence[str] = ()) -> bool:
        """Return True: files are not changed, only removed or made again, which a job notices."""
        return True

    def ingested_at(self, start: Offset, end: Offset) -> Micros:
        """Return the newest modification time of the files at [start, end); 0 for none."""
        return max((entry.mtime for entry in self._between(start, end)), default=0)

    def watermark(self, end: Offset) -> Micros | None:
        """Return None: files carry no watermark."""
        return None

    def exhausted(self, offset: Offset) -> bool:
        """Tell whether all files that the last `latest()` saw lie before `offset`, none waiting."""
        log, scanner, *_ = self._open
        return position(offset) >= log.next and not scanner.pending

    def release(self, oldest_needed: Offset) -> None:
        """Write oldest-needed.json, and from time to time forget released files that no longer exist.

        The JSON object has `position` and `path` of the first file that is still needed (`path` is null when
        no file is waiting): every file that files.jsonl lists before this position may be deleted. A released
        file that was deleted and forgotten counts as new if it ever comes back.
        """
        log, scanner, known, directory, _ = self._open
        oldest = position(oldest_needed)
        if oldest <= self._released and (directory / RETAINED_NAME).exists():
            return
        known.forget(oldest)
        self._released = max(self._released, oldest)
        value = {"position": self._released, "path": self.retained_from()}
        with translated(directory, "write in"):
            with replacing(directory / RETAINED_NAME, sync=False) as file:
                file.write((json.dumps(value) + "\n").encode())
            if self._released - self._forgotten_up_to >= max(_FORGET_AFTER, len(log) // 2):
                self._forgotten_up_to = self._released
                log.forget(self._released, scanner.gone_of if isinstance(scanner, ObjectScanner) else gone_here)

    def retained_from(self) -> str | None:
        """Return the path of the oldest file that is still needed; None when none of the known files is."""
        waiting = self._log.between(self._released, self._released + 1)
        return waiting[0].path if waiting else None

    def close(self) -> None:
        """Close the log."""
        if self._opened is not None:
            self._opened.log.close()
            self._opened = None

    @property
    def _open(self) -> _Opened:
        if self._opened is None:
            raise SourceError(f"{self.describe()} is not open.", "Start the application first.")
        return self._opened

    @property
    def _log(self) -> FileLog:
        return self._open.log

    def _between(self, start: Offset, end: Offset) -> list[FileEntry]:
        return self._log.between(position(start), position(end))

    def _learnt(self, entries: Iterator[FileEntry]) -> Iterator[FileEntry]:
        """Pass entries on; of those in a store of objects, several are looked at together."""
        if self._files.local:
            yield from entries
        known = self._open.known
        while some := list(itertools.islice(entries, _AT_ONCE)):
            _at_once(known.fit, [entry for entry in some if entry not in known])
            yield from some

    def _remade(self, entries: Sequence[FileEntry]) -> Callable[[str], Remades]:
        if self._files.kind != "parquet":
            return lambda path: ()
        remade = {entry.path: self._open.known.fit(entry).remade for entry in entries}
        return lambda path: remade[path]


def _at_once(act: Callable[[FileEntry], object], entries: Sequence[FileEntry]) -> None:
    """Do something with each entry: one after the other for files on this machine, else several at once."""
    each_of(entries, act, 1 if entries and is_local(entries[0].path) else _AT_ONCE)


def _check_unchanged(entry: FileEntry) -> None:
    try:
        info = located(entry.path).stat()
    except OSError as error:
        raise SourceError(
            f"files: {entry.path} was discovered but can no longer be read ({error.strerror}).",
            "Put the file back; delete files only when oldest-needed.json in the checkpoint allows it.",
        ) from error
    if info.st_size != entry.size or info.st_mtime_ns // 1_000 != entry.mtime:
        logger.warning("%s was changed after it was discovered; results may mix both contents.", entry.path)
