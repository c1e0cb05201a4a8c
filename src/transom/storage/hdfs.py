"""HDFS through hdfs-native, which speaks its protocol without a JVM; HADOOP_CONF_DIR says where it is, as for Hadoop.

A file is written under a hidden name and made durable on its data nodes; it gets its own name by a rename, which the
name node does at once and, where nothing may be there, refuses.
"""

from __future__ import annotations

import errno
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from hdfs_native import Client, WriteOptions

from transom.storage.objects import Entry, Stat

_TEMPORARY = ".transom-"
_MISSING = ("FileNotFoundException", "file not found", "FileNotFound")
_THERE = ("FileAlreadyExistsException", "AlreadyExists", "already exists")
_DENIED = ("AccessControlException", "Permission denied")


class Hdfs:
    """The files of an HDFS.

    Args:
        url: The name node or name service, as in hdfs://namenode:8020.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        with _translated(url):
            self._client = Client(url)

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """Return a file, or a part of it."""
        with _translated(f"{self._url}/{key}"), self._client.read(f"/{key}") as file:
            end = len(file) if length is None else min(len(file), start + length)
            return file.read_range(start, end - start) if end > start else b""

    def put(self, key: str, data: bytes | memoryview) -> None:
        """Write a file; it replaces one that is there."""
        with self._written(key, data) as temporary:
            self._client.rename(temporary, f"/{key}", overwrite=True)

    def put_new(self, key: str, data: bytes) -> bool:
        """Write a file unless there is one, and tell whether it was written."""
        if self.stat(key) is not None:
            return False
        try:
            with self._written(key, data) as temporary:
                self._client.rename(temporary, f"/{key}", overwrite=False)
        except FileExistsError:
            return False
        return True

    def move(self, key: str, to: str) -> None:
        """Rename a file; it replaces one that is there."""
        with _translated(f"{self._url}/{key}"):
            self._client.mkdirs(f"/{to}".rpartition("/")[0] or "/", create_parent=True)
            self._client.rename(f"/{key}", f"/{to}", overwrite=True)

    @contextmanager
    def _written(self, key: str, data: bytes | memoryview) -> Iterator[str]:
        """Write a file under a hidden name, which is removed when the body fails."""
        folder = f"/{key}".rpartition("/")[0]
        temporary = f"{folder}/{_TEMPORARY}{secrets.token_hex(8)}"
        with _translated(f"{self._url}/{key}"):
            try:
                with self._client.create(temporary, WriteOptions(create_parent=True)) as file:
                    if data:
                        file.write(data)
                        file.hsync()
                yield temporary
            except BaseException:
                with suppress(Exception):
                    self._client.delete(temporary)
                raise

    def stat(self, key: str) -> Stat | None:
        """Return size and time of a file; None when there is none."""
        try:
            with _translated(f"{self._url}/{key}"):
                found = self._client.get_file_info(f"/{key}")
        except FileNotFoundError:
            return None
        return None if found.isdir else _stat(found)

    def _found(self, folder: str, *, recursive: bool) -> list[Any]:
        try:
            with _translated(f"{self._url}/{folder}"):
                found = list(self._client.list_status(f"/{folder}", recursive))
        except FileNotFoundError:
            return []
        below = [each for each in found if each.path.rstrip("/") != f"/{folder}"]  # of a file, itself is listed
        return [each for each in below if not each.path.rpartition("/")[2].startswith(_TEMPORARY)]

    def list(self, folder: str) -> list[Entry]:
        """Return files and folders directly in a folder, by name."""
        entries = [
            Entry(found.path.rstrip("/").rpartition("/")[2], None if found.isdir else _stat(found))
            for found in self._found(folder, recursive=False)
        ]
        return sorted(entries, key=lambda entry: entry.name)

    def walk(self, folder: str) -> Iterator[Entry]:
        """Yield all files below a folder, by name."""
        skipped = len(f"/{folder}/") if folder else 1
        found = [each for each in self._found(folder, recursive=True) if not each.isdir]
        return iter([Entry(each.path[skipped:], _stat(each)) for each in sorted(found, key=lambda each: each.path)])

    def remove(self, *keys: str) -> None:
        """Remove files; nothing happens where there is none."""
        for key in keys:
            with suppress(FileNotFoundError), _translated(f"{self._url}/{key}"):
                self._client.delete(f"/{key}")

    def remove_folder(self, folder: str) -> None:
        """Remove a folder with all that is below."""
        with suppress(FileNotFoundError), _translated(f"{self._url}/{folder}"):
            self._client.delete(f"/{folder}", recursive=True)


def _stat(found: Any) -> Stat:
    return Stat(found.length, found.modification_time * 1_000_000)


@contextmanager
def _translated(what: str) -> Iterator[None]:
    """Turn errors of the client into OSError."""
    try:
        yield
    except Exception as error:
        text = (str(error).splitlines() or [""])[0][:200]
        if isinstance(error, FileNotFoundError) or any(mark in text for mark in _MISSING):
            raise FileNotFoundError(errno.ENOENT, "there is no such file", what) from None
        if isinstance(error, FileExistsError) or any(mark in text for mark in _THERE):
            raise FileExistsError(errno.EEXIST, "it exists already", what) from None
        if isinstance(error, PermissionError) or any(mark in text for mark in _DENIED):
            raise PermissionError(errno.EACCES, text, what) from None
        raise OSError(errno.EIO, text, what) from None
