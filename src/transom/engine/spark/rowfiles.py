"""Rows of a cut in files, as the log names them: what is read is what was written."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from transom.checkpoint.files import Written, required, sum_of_file
from transom.errors import CheckpointCorruptError
from transom.model.lines import CORRUPT_REMEDY
from transom.model.time import Micros
from transom.storage.durable import names_in, remove_tree
from transom.storage.places import Place

Files: TypeAlias = "dict[str, Written]"
"""Files of a directory, by name."""


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
    """Paths of files that are read again and again: each is read whole the first time, later its size is looked at.

    They never change once the log names them, and a join reads the rows of its bound with every slice.
    """

    def __init__(self) -> None:
        self._known: set[Place] = set()
        """Directories whose files were found to be what was written."""

    def paths(self, pieces: Sequence[tuple[Place, Files]]) -> list[Place]:
        """Return the paths of all files of some directories, checked; what is not among them is forgotten.

        Raises:
            CheckpointCorruptError: One is missing, or not what was written.
            CheckpointError: The file system does not let us read it.
        """
        found: list[Place] = []
        for directory, files in pieces:
            found += _of_size(directory, files) if directory in self._known else checked(directory, files)
        self._known = {directory for directory, _ in pieces}
        return found


def _of_size(directory: Place, files: Files) -> list[Place]:
    for name, written in files.items():
        with required(directory / name):
            size = (directory / name).stat().st_size
        if size != written.bytes:
            raise _other(directory / name)
    return [directory / name for name in files]


def _other(path: Place) -> CheckpointCorruptError:
    return CheckpointCorruptError(f"The file {path} is not the one that the log tells of.", CORRUPT_REMEDY)
