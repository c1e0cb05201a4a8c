"""The append-only log of the files that a file source has discovered; positions in it are the offsets."""

from __future__ import annotations

import bisect
import errno
import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transom.errors import CheckpointCorruptError, CheckpointFullError
from transom.model.time import Micros

logger = logging.getLogger(__name__)

LOG_NAME = "files.jsonl"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One discovered file."""

    position: int
    path: str
    size: int
    """Bytes when it was discovered."""
    mtime: Micros
    """When it was last modified, as of its discovery."""

    def line(self) -> str:
        """Return the entry as one line of JSON, without the line break."""
        value = {"position": self.position, "path": self.path, "size": self.size, "mtime": self.mtime}
        return json.dumps(value)


@dataclass(frozen=True)
class _Header:
    """First line of the log: what was true of the entries that are no longer in it."""

    next: int = 0
    """Position of the next file."""
    start: int = 0
    """Every forgotten entry lies before this position."""
    directories: tuple[str, ...] = ()

    def line(self) -> str:
        value = {
            "format": _FORMAT,
            "next": self.next,
            "start": self.start,
            "directories": list(self.directories),
        }
        return json.dumps(value)


class FileLog:
    """Discovered files in the order of discovery, durable in `directory`/files.jsonl.

    The first line is a header; every other line is a file. Entries are durable before `append` returns.
    Positions are never reused, also not after entries were forgotten.

    Args:
        directory: An existing directory that belongs to the source.

    Raises:
        CheckpointCorruptError: A line that is not the last one is damaged. A torn last line is dropped: no
            offset that covers it has left the source.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / LOG_NAME
        self._header = _Header()
        self._entries: list[FileEntry] = []
        self._known: set[str] = set()
        self._directories: dict[str, int] = {}
        self._length = 0
        if self._path.exists():
            self._load()
        else:
            self._rewrite()
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, path: object) -> bool:
        return path in self._known

    @property
    def known(self) -> set[str]:
        """The paths of all entries; not to be changed by the caller."""
        return self._known

    @property
    def next(self) -> int:
        """Position after the last entry."""
        return self._entries[-1].position + 1 if self._entries else self._header.next

    @property
    def start(self) -> int:
        """Position from which on no entry was forgotten."""
        return self._header.start

    @property
    def directories(self) -> Sequence[str]:
        """Directories in which files were found, in the order of their first file; only ever grows."""
        return tuple(self._directories)

    def directory_index(self, path: str) -> int:
        """Return the index into `directories` of the directory of a logged file."""
        return self._directories[os.path.dirname(path)]

    def between(self, start: int, end: int) -> list[FileEntry]:
        """Return the entries with start <= position < end; O(log n + result)."""
        first = bisect.bisect_left(self._entries, start, key=lambda entry: entry.position)
        last = bisect.bisect_left(self._entries, end, lo=first, key=lambda entry: entry.position)
        return self._entries[first:last]

    def since(self, start: int) -> Iterator[FileEntry]:
        """Give the entries with start <= position, one by one; O(log n) before the first."""
        entries = self._entries
        first = bisect.bisect_left(entries, start, key=lambda entry: entry.position)
        return (entries[place] for place in range(first, len(entries)))

    def append(self, files: Sequence[tuple[str, int, Micros]]) -> None:
        """Add (path, size, mtime) of new files; durable on return, all or nothing in memory.

        Raises:
            OSError: The disk is full or broken; the log is as it was before.
        """
        if not files:
            return
        position = self.next
        entries = [FileEntry(position + i, *file) for i, file in enumerate(files)]
        data = "".join(entry.line() + "\n" for entry in entries).encode()
        try:
            _write_all(self._file, data)
            os.fsync(self._file)
        except OSError:
            os.ftruncate(self._file, self._length)
            raise
        self._length += len(data)
        for entry in entries:
            self._admit(entry)

    def forget(self, before: int) -> int:
        """Forget the entries before a position whose files no longer exist, and return how many.

        A file that still exists must stay known, or it would be read again. O(entries before the position)
        `stat` calls; the log is rewritten atomically when there is something to forget.
        """
        gone = {entry.position for entry in self.between(0, before) if not os.path.lexists(entry.path)}
        if not gone:
            return 0
        header = _Header(self.next, max(self._header.start, max(gone) + 1), tuple(self._directories))
        kept = [entry for entry in self._entries if entry.position not in gone]
        old = self._header, self._entries, self._length
        self._header, self._entries = header, kept
        try:
            self._rewrite()
        except OSError:
            self._header, self._entries, self._length = old
            raise
        self._known = {entry.path for entry in kept}
        os.close(self._file)
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        return len(gone)

    def close(self) -> None:
        """Close the file; the log must not be used afterwards."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _admit(self, entry: FileEntry) -> None:
        self._entries.append(entry)
        self._known.add(entry.path)
        self._directories.setdefault(os.path.dirname(entry.path), len(self._directories))

    def _load(self) -> None:
        data = self._path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            logger.info("%s: dropped a last line that was cut off by a crash.", self._path)
            os.truncate(self._path, whole)
        lines = data[:whole].splitlines(keepends=True)
        if not lines:
            self._rewrite()
            return
        for number, value in self._parse(lines):
            if number == 1:
                self._header = _Header(value["next"], value["start"], tuple(value["directories"]))
                for directory in self._header.directories:
                    self._directories.setdefault(directory, len(self._directories))
            else:
                self._admit(FileEntry(value["position"], value["path"], value["size"], value["mtime"]))
        self._length = whole

    def _parse(self, lines: Sequence[bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
        fields = {"next", "start", "directories"}
        for number, line in enumerate(lines, 1):
            try:
                value = json.loads(line)
            except ValueError:
                value = None
            if not isinstance(value, dict) or not fields <= value.keys():
                raise CheckpointCorruptError(
                    f"{self._path}, line {number}: the log of discovered files is damaged.",
                    "Restore the checkpoint from a copy, or start with a new one.",
                )
            yield number, value
            fields = {"position", "path", "size", "mtime"}

    def _rewrite(self) -> None:
        """Write header and entries to a new file and put it in place of the log."""
        lines = [self._header.line(), *(entry.line() for entry in self._entries)]
        data = "".join(line + "\n" for line in lines).encode()
        replace_file(self._path, data)
        self._length = len(data)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn a full disk into the error that says so.

    Raises:
        CheckpointFullError: The body found the disk or the quota full.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise CheckpointFullError(
            f"The disk is full: could not write in {path}. All that was committed is safe.",
            "Free some space on that disk and start the application again.",
        ) from error


def replace_file(path: Path, data: bytes, durable: bool = True) -> None:
    """Put `data` in place of the file, atomically and, on request, durably.

    Raises:
        OSError: It cannot be written; the old file is untouched and no temporary stays behind.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            _write_all(file, data)
            if durable:
                os.fsync(file)
        finally:
            os.close(file)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
