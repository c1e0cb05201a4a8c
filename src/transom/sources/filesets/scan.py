"""Finding new files by cheap polling: which files match, and which of them were not there before."""

from __future__ import annotations

import fnmatch
import logging
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from transom.model.time import MICROS_PER_SECOND, Clock, Micros, SystemClock

logger = logging.getLogger(__name__)

Found: TypeAlias = "tuple[str, int, Micros]"
"""Path, bytes, modification time."""

GRANULARITY: Micros = 1_500_000
"""A directory changed this recently is scanned again: its time stamp may not show a later change."""
FULL_SCAN: Micros = 30 * MICROS_PER_SECOND
"""Time stamps of directories are not trusted for longer than this."""
LARGE = 1_000
"""A poll that listed more names than this is followed by a pause, `PAUSE_PER_NAME` for each."""
PAUSE_PER_NAME: Micros = 10
LONGEST_PAUSE: Micros = 2 * MICROS_PER_SECOND

_TEMPORARY = (".tmp", ".crdownload", "._COPYING_")
_MAGIC = re.compile(r"[*?\[{]")
_BRACES = re.compile(r"\{([^{}]*)\}")


def is_ignored(name: str) -> bool:
    """Tell whether a file or directory name is hidden or temporary.

    >>> is_ignored("_SUCCESS"), is_ignored("a.json.tmp"), is_ignored("a.json")
    (True, True, False)
    """
    return name.startswith((".", "_")) or name.endswith(_TEMPORARY)


def has_magic(path: str) -> bool:
    """Tell whether a path is a pattern."""
    return _MAGIC.search(path) is not None


def expand_braces(pattern: str) -> list[str]:
    """Return the patterns that a pattern with alternatives stands for.

    >>> expand_braces("{a,b}/*.json")
    ['a/*.json', 'b/*.json']
    """
    match = _BRACES.search(pattern)
    if match is None:
        return [pattern]
    head, tail = pattern[: match.start()], pattern[match.end() :]
    return [done for part in match[1].split(",") for done in expand_braces(head + part + tail)]


@dataclass(frozen=True)
class Pattern:
    """Files below a directory: `parts` match the path components below `base`, `**` any number."""

    base: str
    parts: tuple[str, ...]
    literal: bool = False
    """Whether the parts are names instead of patterns."""

    @classmethod
    def parse(cls, path: str) -> list[Pattern]:
        """Return the patterns for an absolute path: an existing directory or file, or a glob."""
        if os.path.isdir(path):
            return [cls(path, ("*",))]
        if os.path.lexists(path) or not has_magic(path):
            return [cls(os.path.dirname(path), (os.path.basename(path),), literal=True)]
        patterns = []
        for one in expand_braces(path):
            parts = one.strip("/").split("/")
            fixed = next((i for i, part in enumerate(parts) if has_magic(part)), len(parts) - 1)
            patterns.append(cls("/" + "/".join(parts[:fixed]), tuple(parts[fixed:])))
        return patterns

    def matches(self, part: str, name: str) -> bool:
        """Tell whether a name fits a part."""
        return name == part if self.literal else fnmatch.fnmatchcase(name, part)


@dataclass
class _Directory:
    """A directory as the last scan saw it."""

    poll: int
    """Number of the poll that looked at it last."""
    changed: int
    """Its st_mtime_ns."""
    settled: bool
    """Whether a change after the scan must show in `changed`."""
    compared: Micros
    """When the inodes were compared last, monotonic time."""
    folders: set[str] = field(default_factory=set)
    taken: dict[str, int] = field(default_factory=dict)
    """Inode by the name of every file that was known, to notice files that were written again."""
    others: dict[str, int] = field(default_factory=dict)
    """Inode by the name of every other file."""


class Scanner:
    """Looks for files that fit patterns and are not known.

    A directory whose time stamp has not changed since a scan that clearly began after it is not listed again,
    and known files are not `stat`ed: a poll costs one `stat` per directory while nothing happens, and a
    fraction of a microsecond per name when something does. After a poll that listed more than `LARGE` names
    there is a pause, so that looking for files takes about a twentieth of a core at most. Every `FULL_SCAN`,
    time stamps are not trusted, and known files whose inode changed are noted: they were written again.

    Args:
        patterns: What to look for; two patterns may overlap.
        clock: Its wall time is that of the file system's time stamps.
    """

    def __init__(self, patterns: Sequence[Pattern], clock: Clock | None = None) -> None:
        self._patterns = tuple(patterns)
        self._known: Collection[str] = ()
        self._clock = clock or SystemClock()
        self._directories: dict[str, _Directory] = {}
        self._at: Micros = 0
        self._wall: Micros = 0
        """Monotonic and wall time of the last poll."""
        self._not_before: Micros = self._clock.monotonic()
        self._names = 0
        self._poll = 0
        self.looked = False
        """Whether the last poll listed directories, or was in a pause."""
        self.pending: set[str] = set()
        """Directories in which the last look saw files that are too young to be taken."""

    def poll(self, known: Collection[str], young: Micros | None) -> list[Found]:
        """Return the matching files that are not known, in no particular order.

        Args:
            known: Paths that were accepted before.
            young: Files modified after this moment wait; None takes every file.

        Raises:
            OSError: The base directory of a pattern cannot be listed.
        """
        self._at, self._wall = self._clock.monotonic(), self._clock.now()
        self._poll += 1
        self.looked = self._at >= self._not_before
        if not self.looked:
            return []
        self._known = known
        self._names = 0
        self.pending = set()
        found: dict[str, Found] = {}
        for pattern in self._patterns:
            for path in self._walk(pattern, pattern.base, 0, set()):
                if path not in found:
                    self._look(path, young, found)
        for folder in [folder for folder, seen in self._directories.items() if seen.poll != self._poll]:
            del self._directories[folder]  # it is gone, with all names that were in it
        pause = min(self._names * PAUSE_PER_NAME, LONGEST_PAUSE) if self._names > LARGE else 0
        self._not_before = self._at + pause
        return list(found.values())

    def _look(self, path: str, young: Micros | None, found: dict[str, Found]) -> None:
        try:
            info = os.stat(path)
        except OSError:
            return
        if not stat.S_ISREG(info.st_mode):
            return
        modified = info.st_mtime_ns // 1_000
        if young is not None and modified > young:
            self.pending.add(os.path.dirname(path))
            return
        found[path] = (path, info.st_size, modified)

    def _walk(self, pattern: Pattern, folder: str, depth: int, visited: set[tuple[str, int]]) -> Iterator[str]:
        if (folder, depth) in visited:
            return
        visited.add((folder, depth))
        part, last = pattern.parts[depth], depth == len(pattern.parts) - 1
        if part == "**":
            if not last:
                yield from self._walk(pattern, folder, depth + 1, visited)
            seen = self._list(folder)
            if last:
                yield from (_join(folder, name) for name in seen.others)
            for name in list(seen.folders):
                path = _join(folder, name)
                if not os.path.islink(path):
                    yield from self._walk(pattern, path, depth, visited)
            return
        seen = self._list(folder)
        if last:
            for name in list(seen.others):
                if pattern.matches(part, name):
                    yield _join(folder, name)
        else:
            for name in list(seen.folders):
                if pattern.matches(part, name):
                    yield from self._walk(pattern, _join(folder, name), depth + 1, visited)

    def _list(self, folder: str) -> _Directory:
        """Return what is in a directory, from memory when it cannot have changed."""
        before = self._directories.get(folder)
        if before is not None and before.poll == self._poll:
            return before
        try:
            changed = os.stat(folder).st_mtime_ns
        except FileNotFoundError:
            return _Directory(self._poll, 0, False, self._at)
        fresh = before is not None and self._at - before.compared < FULL_SCAN
        if before is not None and fresh and before.settled and before.changed == changed:
            before.poll = self._poll
            self._move_taken(folder, before)
            return before
        settled = self._wall - changed // 1_000 > GRANULARITY
        seen = _Directory(self._poll, changed, settled, before.compared if before and fresh else self._at)
        if before is not None and fresh:
            self._update(folder, before, seen)
        else:
            with os.scandir(folder) as entries:
                for entry in entries:
                    self._sort(folder, entry.name, entry.inode(), entry.is_dir, seen, before)
        self._names += len(seen.taken) + len(seen.others)
        self._directories[folder] = seen
        return seen

    def _update(self, folder: str, before: _Directory, seen: _Directory) -> None:
        """List only the names, and look at those that were not there before."""
        self._move_taken(folder, before)
        names = set(os.listdir(folder))
        old = before.taken, before.others
        seen.taken, seen.others = (
            files if files.keys() <= names else {name: files[name] for name in files if name in names} for files in old
        )
        seen.folders = before.folders & names
        for name in names - seen.taken.keys() - seen.others.keys() - seen.folders:
            path = _join(folder, name)
            try:
                inode = 0 if is_ignored(name) else os.lstat(path).st_ino
            except OSError:
                continue
            self._sort(folder, name, inode, partial(os.path.isdir, path), seen, before)

    def _sort(
        self,
        folder: str,
        name: str,
        inode: int,
        is_folder: Callable[[], bool],
        seen: _Directory,
        before: _Directory | None,
    ) -> None:
        if is_ignored(name):
            return
        path = _join(folder, name)
        if path in self._known:
            if before is not None and inode not in (before.taken.get(name), before.others.get(name)):
                logger.warning("%s was written again; it was taken before and is not read again.", path)
            seen.taken[name] = inode
        elif is_folder():
            seen.folders.add(name)
        else:
            seen.others[name] = inode

    def _move_taken(self, folder: str, seen: _Directory) -> None:
        for name in [name for name in seen.others if _join(folder, name) in self._known]:
            seen.taken[name] = seen.others.pop(name)


def _join(folder: str, name: str) -> str:
    return folder + name if folder.endswith("/") else f"{folder}/{name}"
