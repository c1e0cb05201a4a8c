"""Result files in a directory: their names, and how a crash leaves only whole ones.

A directory holds `part-{cut}.parquet` with the results of one cut, and `part-{first}-{last}.parquet`, which
`transom compact` made of the files of several cuts (json and csv alike). The file `_transom` says whose they are. Names
that start with "." are temporary or internal. A part whose cuts another part holds, too, is left over from a merge.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from transom.errors import SinkError
from transom.storage.durable import names_in
from transom.storage.places import Place, place

_NAME = re.compile(r"part-(\d{12,})(?:-(\d{12,}))?\.(parquet|json|csv)")
_TEMPORARY = re.compile(r"\.(part-.*|_transom\..*)\.tmp")

LOCK = ".compact.lock"
"""The file that is locked by who merges files; it stays."""


@dataclass(frozen=True, order=True)
class ResultFile:
    """A result file by its name."""

    first: int
    """First cut in it."""
    last: int
    """Last cut in it; the same as `first` unless it was merged."""
    extension: str

    @classmethod
    def parse(cls, name: str) -> ResultFile | None:
        """Return the part that a file name stands for; None for other names.

        >>> ResultFile.parse("part-000000000003-000000000007.parquet")
        ResultFile(first=3, last=7, extension='parquet')
        """
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        return cls(int(match[1]), int(match[2] or match[1]), match[3])

    @property
    def name(self) -> str:
        """The file name."""
        last = "" if self.first == self.last else f"-{self.last:012d}"
        return f"part-{self.first:012d}{last}.{self.extension}"


def list_parts(directory: Place, extension: str | None = None) -> list[ResultFile]:
    """Return the result files in a directory, by cut."""
    parts = (ResultFile.parse(name) for name in names_in(directory))
    return sorted(part for part in parts if part and extension in (None, part.extension))


def superseded(parts: Sequence[ResultFile]) -> list[ResultFile]:
    """Return the parts whose cuts a larger one of their kind holds, too; one look at each.

    >>> superseded([ResultFile(0, 0, "csv"), ResultFile(0, 4, "csv"), ResultFile(5, 5, "csv")])
    [ResultFile(first=0, last=0, extension='csv')]
    """
    found: list[ResultFile] = []
    widest: dict[str, int] = {}
    for part in sorted(parts, key=lambda part: (part.first, -part.last)):
        if part.last <= widest.get(part.extension, -1):
            found.append(part)
        else:
            widest[part.extension] = part.last
    return found


def remove_temporaries(directory: Place) -> None:
    """Remove what interrupted writes left behind; in a store of objects, nothing."""
    if not isinstance(directory, Path):
        return
    for name in os.listdir(directory):
        if _TEMPORARY.fullmatch(name):
            (directory / name).unlink(missing_ok=True)


@contextmanager
def compaction_lock(directory: Place) -> Iterator[bool]:
    """Hold the right to merge files in a directory; yields False when another process has it.

    The lock goes away with the process that holds it. In a store of objects there is none, and nobody is kept out.
    """
    if not isinstance(directory, Path):
        yield True
        return
    file = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = True
        except BlockingIOError:
            held = False
        yield held
    finally:
        os.close(file)


def directory_of(path: str | os.PathLike[str], what: str) -> Place:
    """Return a path or URI as the place that it means.

    Raises:
        SinkError: Another kind of URI, or one with credentials.
    """
    return place(path, what, SinkError)


def local_directory(path: str | os.PathLike[str], what: str) -> Path:
    """Return a path or file:// URI as an absolute path.

    Raises:
        SinkError: Another kind of URI.
    """
    found = place(path, what, SinkError)
    if not isinstance(found, Path):
        raise SinkError(f"{what}: {path!r} is not on a local file system.", "Give a local path or a file:// URI.")
    return found
