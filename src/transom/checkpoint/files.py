"""Durable writes of a checkpoint, and what identifies a file's content."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from transom.errors import CheckpointCorruptError, CheckpointError
from transom.model.lines import CORRUPT_REMEDY
from transom.storage.durable import create_once, opened, replacing
from transom.storage.places import Place, place
from transom.storage.translated import translated

_PIECE = 1 << 20
"""Bytes that are read at once."""


def checkpoint_at(path: str | Path | Place) -> Place:
    """Return the place of a checkpoint; a local path is made absolute.

    Raises:
        CheckpointError: A kind of URI that is not known, or one that holds credentials.
    """
    found = place(path, "checkpoint", CheckpointError)
    if isinstance(found, Path) and not str(path).startswith("file:"):
        return Path(str(path)).absolute()
    return found


@dataclass(frozen=True)
class Written:
    """Identifies the content of a file."""

    bytes: int
    crc: int


@contextmanager
def required(path: Place) -> Iterator[None]:
    """Turn an OSError of a body that reads a file into an error of the checkpoint.

    Raises:
        CheckpointCorruptError: The file is missing.
        CheckpointError: Any other error of the file system.
    """
    with translated(path, "read"):
        try:
            yield
        except FileNotFoundError as error:
            raise CheckpointCorruptError(f"The file {path} is missing.", CORRUPT_REMEDY) from error


def sum_of_file(path: Place) -> Written:
    """Return what identifies the content of a file, reading all of it.

    Raises:
        CheckpointCorruptError: It is missing.
        CheckpointError: The file system does not let us read it.
    """
    length = crc = 0
    with required(path), opened(path) as file:
        while piece := file.read(_PIECE):
            length += len(piece)
            crc = zlib.crc32(piece, crc)
    return Written(length, crc)


def write_atomically(path: Place, pieces: Iterable[bytes | memoryview], *, sync: bool = True) -> int:
    """Write a file under a hidden temporary name, then give it its own name.

    Args:
        path: The file; replaced when it exists.
        pieces: Its content.
        sync: Whether content and name are on disk when this returns. Without, the file is still complete or
            absent after a crash of the process, but not after a power failure.

    Returns:
        The file's length in bytes.

    Raises:
        CheckpointFullError: The disk is full; the temporary file was removed.
        CheckpointError: Any other error of the file system.
    """
    with translated(path, "write"), replacing(path, sync=sync) as file:
        return sum(file.write(piece) for piece in pieces)


def write_once(path: Place, content: bytes) -> None:
    """Write a file that does not exist, atomically and durably; nothing happens when it exists.

    Raises:
        CheckpointFullError: The disk is full; the temporary file was removed.
        CheckpointError: Any other error of the file system.
    """
    with translated(path, "write"):
        create_once(path, content)
