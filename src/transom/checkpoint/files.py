"""Durable writes of a checkpoint: errors of the file system in our words, and what identifies a file's content."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from transom.errors import CheckpointCorruptError, CheckpointError, CheckpointFencedError, CheckpointFullError
from transom.model.lines import CORRUPT_REMEDY
from transom.storage.durable import create_once, is_full, opened, replacing
from transom.storage.journals import TakenOver
from transom.storage.places import Place, place

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


@contextmanager
def translated(path: Place, action: str) -> Iterator[None]:
    """Turn an OSError of the body into an error of the checkpoint.

    Args:
        path: The file that the body works on.
        action: What it does, as in "could not `write` the file".

    Raises:
        CheckpointFencedError: A newer application goes on with the file.
        CheckpointFullError: The disk or the quota is full.
        CheckpointError: Any other error of the file system or the store.
    """
    try:
        yield
    except TakenOver as error:
        raise CheckpointFencedError(
            f"Another application took over the checkpoint: it goes on with {path}. Nothing that we commit from now on "
            "counts.",
            "Let the other application go on; stop this one, or give it another checkpoint.",
        ) from error
    except OSError as error:
        if is_full(error):
            raise CheckpointFullError(
                f"The disk is full: could not {action} {path} ({error.strerror}). All that was committed is safe.",
                "Free some space on that disk, or raise the quota, and start the application again.",
            ) from error
        raise CheckpointError(
            f"Could not {action} {path}: {error.strerror or error}.",
            "Check that the disk works and that this user may write there, then start the application again."
            if isinstance(path, Path)
            else "Check that the store answers and that this user may write there, then start the application again.",
        ) from error


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
