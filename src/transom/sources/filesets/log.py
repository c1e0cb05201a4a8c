"""The append-only log of the files that a file source has discovered; positions in it are the offsets."""

from __future__ import annotations

import bisect
import json
import logging
import os
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from transom.errors import CheckpointCorruptError
from transom.model.lines import CORRUPT_REMEDY, START, Link, damaged, decode, encode, read_lines
from transom.model.time import Micros
from transom.storage.journals import Journal, journal_exists, open_journal, read_journal
from transom.storage.places import Place

logger = logging.getLogger(__name__)

LOG_NAME = "files.jsonl"
_FORMAT = 2
_MOST_PIECES = 200
"""Objects that the log consists of in a store before they are made one."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One discovered file."""

    position: int
    path: str
    size: int
    """Bytes when it was discovered."""
    mtime: Micros
    """When it was last modified, as of its discovery."""
    crc: int = 0
    """Checksum of its line, which stands for all files up to it; means nothing before `FileLog.start`."""

    def line(self, after: Link) -> tuple[bytes, Link]:
        """Return the entry as one line that goes on from another one."""
        value = {"position": self.position, "path": self.path, "size": self.size, "mtime": self.mtime}
        return encode(value, after)

    @classmethod
    def of(cls, value: Mapping[str, Any], crc: int = 0) -> FileEntry:
        """Return the entry of a line."""
        return cls(value["position"], value["path"], value["size"], value["mtime"], crc)


@dataclass(frozen=True)
class _Header:
    """First line of the log: what was true of the entries that are no longer in it."""

    start: Link = START
    """Every forgotten entry lies before this position; the checksum stands for all files before it."""
    next: int = 0
    """Position of the next file."""
    kept: int = 0
    """Number of the entries before the start that are still there, right after the header."""
    directories: tuple[str, ...] = ()

    def line(self) -> tuple[bytes, Link]:
        """Return it as the first line."""
        return encode({"format": _FORMAT, **self.__dict__}, START)

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> _Header:
        """Return the header of a line."""
        return cls(Link(*value["start"]), value["next"], value["kept"], tuple(value["directories"]))


def gone_here(paths: Sequence[str]) -> set[str]:
    """Return the files of this machine that are no longer there."""
    return {path for path in paths if not os.path.lexists(path)}


class FileLog:
    """Discovered files in the order of discovery, durable in `directory`/files.jsonl.

    The first line is a header; every other line is a file. Entries are durable before `append` returns.
    Positions are never reused, also not after entries were forgotten.

    A line goes on from the one before it (`transom.model.lines`); those of files are numbered by position, so that the
    checksum of one stands for all files that were ever discovered before it, also when some were forgotten.

    Args:
        directory: An existing directory that belongs to the source.

    Raises:
        CheckpointCorruptError: A line is damaged, missing, or in another place; names file and line. A torn last
            line is dropped: no offset that covers it has left the source.
        OSError: It cannot be written; no file stays open.
    """

    def __init__(self, directory: Place) -> None:
        self._path = directory / LOG_NAME
        self._header = _Header()
        self._entries: list[FileEntry] = []
        self._known: set[str] = set()
        self._directories: dict[str, int] = {}
        self._newest: dict[int, int] = {}
        """Position of the last file of each directory, by the directory's index."""
        self._length = 0
        self._journal: Journal | None = None
        if journal_exists(self._path):
            self._journal = open_journal(self._path)
            try:
                self._load()
            except BaseException:
                self.close()
                raise
        else:
            self._rewrite()

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
        return self._header.start.number

    def crc_at(self, position: int) -> int | None:
        """Return what stands for all files before a position; None where it is not known any more, or not yet."""
        if position == self.start:
            return self._header.start.crc
        before = self.between(max(position - 1, self.start), position)
        return before[0].crc if before else None

    @property
    def directories(self) -> Sequence[str]:
        """Directories in which files were found, in the order of their first file; only ever grows."""
        return tuple(self._directories)

    @property
    def index_of(self) -> Mapping[str, int]:
        """The index of each directory."""
        return self._directories

    def directories_from(self, position: int) -> Iterator[int]:
        """Return the indices of the directories that have files from a position on; O(directories)."""
        return (index for index, newest in self._newest.items() if newest >= position)

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
        after = self._last
        lines, entries = [], []
        for file in files:
            entry = FileEntry(after.number, *file)
            line, after = entry.line(after)
            lines.append(line)
            entries.append(replace(entry, crc=after.crc))
        data = b"".join(lines)
        journal = self._open
        try:
            journal.append(data)
            journal.sync()
        except OSError:
            journal.cut_off(self._length)
            raise
        self._length += len(data)
        for entry in entries:
            self._admit(entry)
        if journal.pieces > _MOST_PIECES:
            self._rewrite()

    def forget(self, before: int, gone_of: Callable[[Sequence[str]], Container[str]] = gone_here) -> int:
        """Forget the entries before a position whose files no longer exist, and return how many.

        A file that still exists must stay known, or it would be read again. The log is rewritten atomically when there
        is something to forget.

        Args:
            before: The position.
            gone_of: Given paths, returns those that surely are not there.

        Raises:
            OSError: The log cannot be written; it is as it was before.
        """
        old_entries = self.between(0, before)
        paths = gone_of([entry.path for entry in old_entries])
        gone = {entry.position for entry in old_entries if entry.path in paths}
        if not gone:
            return 0
        start = max(self.start, max(gone) + 1)
        header = replace(self._header, start=Link(start, self.crc_at(start) or 0), next=self.next)
        kept = [entry for entry in self._entries if entry.position not in gone]
        old = self._header, self._entries, self._length
        self._header, self._entries = header, kept
        try:
            self._rewrite()
        except OSError:
            self._header, self._entries, self._length = old
            raise
        self._known = {entry.path for entry in self._entries}
        return len(gone)

    def close(self) -> None:
        """Close the file; the log must not be used afterwards."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    @property
    def _open(self) -> Journal:
        assert self._journal is not None, "it is closed"
        return self._journal

    @property
    def _last(self) -> Link:
        """The link that the next line goes on from."""
        if self._entries and self._entries[-1].position >= self.start:
            return Link(self.next, self._entries[-1].crc)
        return self._header.start

    def _admit(self, entry: FileEntry) -> None:
        self._entries.append(entry)
        self._known.add(entry.path)
        index = self._directories.setdefault(os.path.dirname(entry.path), len(self._directories))
        self._newest[index] = entry.position

    def _load(self) -> None:
        data = read_journal(self._path)
        if data.startswith(b"{"):
            self._load_first_format(data)
            return
        first = decode(data[: data.find(b"\n") + 1])
        if first is None or first.value.get("format") != _FORMAT:
            raise damaged(self._path, 1)
        self._take(_Header.of(first.value))
        end = 0
        for _ in range(1 + self._header.kept):
            end = data.find(b"\n", end) + 1 or len(data)
        kept = read_lines(data[:end], self._path, START, may_be_torn=False)
        if len(kept.values) != 1 + self._header.kept:
            raise self._end_is_missing()
        later = read_lines(data[end:], self._path, self._header.start, may_be_torn=True, first=2 + self._header.kept)
        for value, link in zip((*kept.values[1:], *later.values), (*kept.links[1:], *later.links), strict=True):
            self._admit(FileEntry.of(value, link.crc))
        if self.start + len(later.values) < self._header.next:
            raise self._end_is_missing()
        self._length = end + later.length
        if later.torn:
            logger.info("%s: dropped a last line that was cut off by a crash.", self._path)
            self._open.cut_off(self._length)

    def _take(self, header: _Header) -> None:
        self._header = header
        for directory in header.directories:
            self._directories.setdefault(directory, len(self._directories))

    def _end_is_missing(self) -> CheckpointCorruptError:
        return CheckpointCorruptError(f"The end of {self._path} is missing or damaged.", CORRUPT_REMEDY)

    def _load_first_format(self, data: bytes) -> None:
        """Take in a log whose lines have no checksums, and write it anew."""
        values: list[dict[str, Any]] = []
        for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), 1):
            fields = {"position", "path", "size", "mtime"} if values else {"next", "start", "directories"}
            try:
                value = json.loads(line)
            except ValueError:
                value = None
            if not isinstance(value, dict) or not fields <= value.keys():
                raise damaged(self._path, number)
            values.append(value)
        if values:
            header, *entries = values
            self._take(_Header(Link(header["start"], 0), header["next"], directories=tuple(header["directories"])))
            for value in entries:
                self._admit(FileEntry.of(value))
        self._rewrite()

    def _rewrite(self) -> None:
        """Write header and entries to a new file and put it in place of the log."""
        places = bisect.bisect_left(self._entries, self.start, key=lambda entry: entry.position)
        header = replace(self._header, next=self.next, kept=places, directories=tuple(self._directories))
        line, after = header.line()
        lines = [line]
        entries: list[FileEntry] = []
        for place, entry in enumerate(self._entries):
            line, after = entry.line(header.start if place == places else after)
            lines.append(line)
            entries.append(replace(entry, crc=after.crc))
        data = b"".join(lines)
        if self._journal is None:
            self._journal = open_journal(self._path, data)
        else:
            self._journal.replace(data)
        self._header, self._entries, self._length = header, entries, len(data)
