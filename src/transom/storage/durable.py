"""Durable writes: files that are there whole or not at all, and names that survive a power failure.

On this machine that takes temporary names, renames, links and `fsync`; a store of objects does it by itself. Errors are
OSError; what they mean to a user is said by the checkpoint, the sinks and the sources.
"""

from __future__ import annotations

import errno
import io
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from transom.storage.places import ObjectPath, Place

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_BUFFER = 1 << 16
"""Bytes of an object that are asked for at once."""
_FULL = (errno.ENOSPC, errno.EDQUOT)


def is_full(error: OSError) -> bool:
    """Tell whether an error says that the disk or the quota is full."""
    return error.errno in _FULL


def names_in(directory: Place) -> list[str]:
    """Return the names of files and directories in a directory, in no order.

    Raises:
        FileNotFoundError: It is a local one and not there; in a store there are no empty ones.
    """
    if isinstance(directory, Path):
        return os.listdir(directory)
    return [entry.name for entry in directory.entries()]


def remove_tree(directory: Place) -> None:
    """Remove a directory with all that is in it, as far as that is possible; nothing happens when there is none."""
    if isinstance(directory, Path):
        shutil.rmtree(directory, ignore_errors=True)
        return
    with suppress(OSError):
        directory.objects.remove_folder(directory.key)


def move(source: Place, target: Place) -> None:
    """Give a file another name on the same file system or in the same store; what is there is replaced.

    Here it is at one place at any moment; in a store it may be at both for a while, and stay so after an error.

    Raises:
        FileNotFoundError: It is not there.
    """
    if isinstance(source, ObjectPath) and isinstance(target, ObjectPath):
        source.move_to(target)
    else:
        os.replace(str(source), str(target))


def sizes_in(directory: Place, names: Iterable[str]) -> dict[str, int]:
    """Return the bytes of some files of a directory, of those that are there in a store."""
    if isinstance(directory, Path):
        return {name: (directory / name).stat().st_size for name in names}
    found = {entry.name: entry.stat.st_size for entry in directory.entries() if entry.stat}
    return {name: found[name] for name in names if name in found}


def reading(path: Place) -> IO[bytes]:
    """Open a file for reading from its beginning; what is in a store is read as a whole.

    Raises:
        FileNotFoundError: It is not there.
    """
    return open(path, "rb") if isinstance(path, Path) else io.BytesIO(path.read_bytes())


def opened(path: Place) -> io.BufferedReader:
    """Open a file for reading anywhere in it; of what is in a store, only what is asked for is read.

    Raises:
        FileNotFoundError: It is not there.
    """
    if isinstance(path, Path):
        return open(path, "rb")
    return io.BufferedReader(_Ranges(path), _BUFFER)


class _Ranges(io.RawIOBase):
    """An object as a file, of which each read is a request."""

    def __init__(self, path: ObjectPath) -> None:
        self._path = path
        self._at = 0
        self._size: int | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_END and self._size is None:
            self._size = self._path.stat().st_size
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size or 0}[whence]
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        data = self._path.read_part(self._at, len(buffer))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def read_part(path: Place, start: int, length: int | None = None) -> bytes:
    """Return a part of a file; shorter when the file ends before, to its end if no length is given."""
    if not isinstance(path, Path):
        return path.read_part(start, length)
    with open(path, "rb") as file:
        file.seek(start)
        return file.read(length)


def sync_directory(path: Place) -> None:
    """Make the names in a directory durable."""
    if not isinstance(path, Path):
        return
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file(path: Place) -> None:
    """Make a file's content durable, whoever wrote it."""
    sync_directory(path)  # the same calls: a read-only handle is enough for fsync


def make_directory(path: Place) -> None:
    """Create a directory and its parents, durably; nothing happens when it exists.

    In a store of objects there are none; but that there is such a store is found out.
    """
    if not isinstance(path, Path):
        _ = path.objects
        return
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
        sync_directory(each.parent)


@contextmanager
def writing(path: Place, *, sync: bool = True, new: bool = False) -> Iterator[IO[bytes]]:
    """Open a file whose content is complete and durable when the body has ended without an error.

    Args:
        path: The file.
        sync: Whether the content is on disk then; without, it would survive a crash of the process only.
        new: Whether it must not exist.

    Raises:
        FileExistsError: It exists, but must not.
    """
    if not isinstance(path, Path):
        with _collecting(path, new=new) as file:
            yield file
        return
    with open(path, "xb" if new else "wb") as file:
        yield file
        file.flush()
        if sync:
            os.fsync(file.fileno())


@contextmanager
def _collecting(path: ObjectPath, *, new: bool = False) -> Iterator[IO[bytes]]:
    """Collect the content of an object in memory, and put it when the body has ended without an error."""
    file = io.BytesIO()
    yield file
    if not new:
        with file.getbuffer() as content:  # given back also when the store fails: else the file cannot be closed
            path.put(content)
    elif not path.put_new(file.getvalue()):
        raise FileExistsError(errno.EEXIST, "it exists already", str(path))


@contextmanager
def replacing(path: Place, *, sync: bool = True, unique: bool = False) -> Iterator[IO[bytes]]:
    """Open a file under a hidden temporary name; it gets its own name when the body has ended without an error.

    Args:
        path: The file; replaced when it exists.
        sync: Whether content and name are on disk at the end. Without, the file is still whole or absent after a crash
            of the process, but not after a power failure.
        unique: Whether the temporary name is one that no other process uses, because another one may write this file.

    Raises:
        OSError: The file was not written; an older one is as it was, and nothing else is left behind.
    """
    if not isinstance(path, Path):
        with _collecting(path) as file:
            yield file
        return
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp" if unique else f".{path.name}.tmp")
    try:
        with writing(temporary, sync=sync) as file:
            yield file
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    if sync:
        sync_directory(path.parent)


@contextmanager
def replacing_tree(directory: Path) -> Iterator[Path]:
    """Give the name of a hidden directory to write into, which gets its own name when the body has ended.

    Nobody else has the hidden name: what was killed or given up, as the JVM of another process, may still write for a
    moment, and then writes elsewhere.

    Args:
        directory: The directory; replaced when it exists, with what others have left behind under hidden names.
    """
    hidden = directory.with_name(f".{directory.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield hidden
    except BaseException:
        remove_tree(hidden)
        raise
    for old in (directory, *directory.parent.glob(f".{directory.name}.*.tmp")):
        if old != hidden:
            remove_tree(old)
    os.replace(hidden, directory)
    sync_directory(directory.parent)


def create_once(path: Place, content: bytes) -> None:
    """Create a file durably, unless it exists: of several processes that try at once, one succeeds.

    It is whole at once; on a file system without links a reader may see its beginning only.
    """
    if not isinstance(path, Path):
        path.put_new(content)
        return
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with writing(temporary, new=True) as file:
            file.write(content)
        os.link(temporary, path)
    except FileExistsError:
        return
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with suppress(FileExistsError), writing(path, new=True) as file:
            file.write(content)
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)


def write_all(handle: int, data: bytes) -> None:
    """Write all of some bytes at the place of an open file: the system may take a part of them at a time."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


def remove_temporaries(directory: Place) -> None:
    """Remove what `replacing` and `create_once` leave behind when the process is killed; in a store, nothing."""
    if not isinstance(directory, Path):
        return
    for name in os.listdir(directory):
        if name.startswith(".") and name.endswith(".tmp"):
            with suppress(OSError):
                (directory / name).unlink()
