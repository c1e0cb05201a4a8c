"""Rows of a cut in files, as the log names them: what is read is what was written."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from transom.checkpoint.files import Written, required, sum_of_file
from transom.errors import CheckpointCorruptError
from transom.model.lines import CORRUPT_REMEDY
from transom.model.time import Micros
from transom.storage.durable import names_in, read_part, remove_tree
from transom.storage.places import Place

Files: TypeAlias = "dict[str, Written]"
"""Files of a directory, by name."""
KeptFiles: TypeAlias = "tuple[Place, Files]"
"""A directory, and the files in it that are read."""


@dataclass(frozen=True)
class KeptRows:
    """The rows of a cut that were kept for a query."""

    newest: Micros
    """Their largest event time."""
    files: Files | None
    """The files that hold them; None if the log does not name them (format 1)."""
    directory: str | None = None
    """Where they are, if that is not in the checkpoint."""
    rows: int = 0
    """How many there are; 0 if the log does not say it."""

    def to_json(self) -> list[Any]:
        """Return what the log keeps."""
        return [self.newest, files_to_json(self.files), self.directory, self.rows]

    @classmethod
    def from_json(cls, value: Any) -> KeptRows:
        """Return what `to_json` wrote."""
        return cls(value, None) if isinstance(value, int) else cls(value[0], files_from_json(value[1]), *value[2:])


def files_to_json(files: Files | None) -> list[Any] | None:
    """Return files as JSON."""
    return None if files is None else [[name, written.bytes, written.crc] for name, written in files.items()]


def files_from_json(value: Sequence[Any] | None = None) -> Files | None:
    """Return what `files_to_json` wrote."""
    return None if value is None else {name: Written(size, crc) for name, size, crc in value}


def files_in(directory: Place) -> Files:
    """Return the files of a directory as they are; hidden ones are not ours.

    Raises:
        CheckpointCorruptError: It is missing.
        CheckpointError: The file system does not let us read it.
    """
    if not directory.is_dir():
        raise CheckpointCorruptError(f"The directory {directory} is missing.", CORRUPT_REMEDY)
    names = sorted(name for name in names_in(directory) if not name.startswith((".", "_")))
    return {name: sum_of_file(directory / name) for name in names}


def keep_only(directory: Place, needed: Container[str], check: Callable[[], None]) -> None:
    """Remove what is in a directory, if there is one, but for some names.

    Args:
        directory: The directory.
        needed: The names.
        check: Returns while no other application has taken over; what was found before is of none.
    """
    with suppress(FileNotFoundError):
        left = [name for name in names_in(directory) if name not in needed]
        if left:
            check()
        for name in left:
            remove_tree(directory / name)


def checked(directory: Place, files: Files) -> list[Place]:
    """Return the paths of files after reading each, without Spark: it would take one that is not there for no rows.

    Raises:
        CheckpointCorruptError: One is missing, or not what was written.
        CheckpointError: The file system does not let us read it.
    """
    for name, written in files.items():
        if sum_of_file(directory / name) != written:
            raise _other(directory / name)
    return [directory / name for name in files]


class Whole:
    """Paths of Parquet files that are read again and again: the first time each is read whole, later its end.

    They never change once the log names them, and a join reads the rows of its bound with every slice. Damage that
    comes later in a run is found all the same: Spark compares the checksum of each page as it reads it (`read_rows`).
    What has none is the footer, which says where pages are, and which rows need not be looked at.
    """

    def __init__(self) -> None:
        self._ends: dict[Place, bytes] = {}
        """The footer, and what is behind it, of each file that was found to be what was written."""

    def paths(self, pieces: Iterable[KeptFiles]) -> list[Place]:
        """Return the paths of all files of some directories, checked; what is not among them is forgotten.

        Raises:
            CheckpointCorruptError: One is missing, or not what was written.
            CheckpointError: The file system does not let us read it.
        """
        ends: dict[Place, bytes] = {}
        for directory, files in pieces:
            for name, written in files.items():
                path = directory / name
                known = self._ends.get(path)
                if known is None:
                    checked(directory, {name: written})
                    length = _read(path, written.bytes - _TRAILER, 4)
                    known = _read(path, written.bytes - _TRAILER - int.from_bytes(length, "little"))
                elif _read(path, written.bytes - len(known)) != known:
                    raise _other(path)
                ends[path] = known
        self._ends = ends
        return list(ends)


_TRAILER = 8
"""Bytes behind the footer of a Parquet file: its length, and four letters."""


def _read(path: Place, start: int, length: int | None = None) -> bytes:
    """Return a part of a file, to its end if no length is given."""
    with required(path):
        return read_part(path, start, length)


def _other(path: Place) -> CheckpointCorruptError:
    return CheckpointCorruptError(f"The file {path} is not the one that the log tells of.", CORRUPT_REMEDY)
