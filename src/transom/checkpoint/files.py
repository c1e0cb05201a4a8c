"""Files that are there completely or not at all, and errors of the file system in our words."""

from __future__ import annotations

import errno
import os
import secrets
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from transom.errors import CheckpointCorruptError, CheckpointError, CheckpointFullError
from transom.model.lines import CORRUPT_REMEDY

_PIECE = 1 << 20
"""Bytes that are read at once."""
_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def translated(path: Path, action: str) -> Iterator[None]:
    """Turn an OSError of the body into an error of the checkpoint.

    Args:
        path: The file that the body works on.
        action: What it does, as in "could not `write` the file".

    Raises:
        CheckpointFullError: The disk or the quota is full.
        CheckpointError: Any other error of the file system.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise CheckpointFullError(
                f"The disk is full: could not {action} {path} ({error.strerror}). All that was committed is safe.",
                "Free some space on that disk, or raise the quota, and start the application again.",
            ) from error
        raise CheckpointError(
            f"Could not {action} {path}: {error.strerror or error}.",
            "Check that the disk works and that this user may write there, then start the application again.",
        ) from error


@dataclass(frozen=True)
class Written:
    """Identifies the content of a file."""

    bytes: int
    crc: int


@contextmanager
def required(path: Path) -> Iterator[None]:
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


def sum_of_file(path: Path) -> Written:
    """Return what identifies the content of a file, reading all of it.

    Raises:
        CheckpointCorruptError: It is missing.
        CheckpointError: The file system does not let us read it.
    """
    length = crc = 0
    with required(path), open(path, "rb", buffering=0) as file:
        while piece := file.read(_PIECE):
            length += len(piece)
            crc = zlib.crc32(piece, crc)
    return Written(length, crc)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file(path: Path) -> None:
    """Make a file's content durable, whoever wrote it."""
    sync_directory(path)  # the same calls: a read-only handle is enough for fsync


def make_directory(path: Path) -> None:
    """Create a directory and its parents, durably; nothing happens when it exists."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
        sync_directory(each.parent)


def write_atomically(path: Path, pieces: Iterable[bytes | memoryview], *, sync: bool = True) -> int:
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
    temporary = path.with_name(f".{path.name}.tmp")
    length = 0
    with translated(path, "write"):
        try:
            with open(temporary, "wb") as file:
                for piece in pieces:
                    length += file.write(piece)
                file.flush()
                if sync:
                    os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        if sync:
            sync_directory(path.parent)
    return length


def write_once(path: Path, content: bytes) -> None:
    """Write a file that does not exist, atomically and durably; nothing happens when it exists.

    Raises:
        CheckpointFullError: The disk is full; the temporary file was removed.
        CheckpointError: Any other error of the file system.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    with translated(path, "write"):
        try:
            with open(temporary, "xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(temporary, path)
            except FileExistsError:
                return
            except OSError:  # a file system without links
                os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        sync_directory(path.parent)


def remove_temporaries(directory: Path) -> None:
    """Remove what `write_atomically` leaves behind when the process is killed."""
    for name in os.listdir(directory):
        if name.startswith(".") and name.endswith(".tmp"):
            with suppress(OSError):
                (directory / name).unlink()
