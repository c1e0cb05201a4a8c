"""Where data and checkpoints are: a path of this machine, or an object in a store; both are used alike.

A place on this machine is a `pathlib.Path`, as ever. What is elsewhere is an `ObjectPath`, which has as much of a Path
as is needed. What must be durable goes through `transom.storage.durable`, which knows both.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote

from transom.errors import DefinitionError, require_extra
from transom.model.arguments import shown
from transom.storage.objects import Entry, Objects, Stat, put_once

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)


class ObjectPath:
    """An object or a folder of objects in a store; as much of `pathlib.Path` as Transom uses.

    Args:
        root: The store, as in s3://bucket.
        key: Without a slash at either end; "" is the whole store.
    """

    __slots__ = ("_key", "_root")

    def __init__(self, root: str, key: str) -> None:
        self._root = root
        self._key = key

    def __str__(self) -> str:
        return f"{self._root}/{self._key}" if self._key else self._root

    def __repr__(self) -> str:
        return f"ObjectPath({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectPath) and str(self) == str(other)

    def __lt__(self, other: ObjectPath) -> bool:
        return str(self) < str(other)

    def __hash__(self) -> int:
        return hash((self._root, self._key))

    def __truediv__(self, name: str) -> ObjectPath:
        return self.joinpath(name)

    def joinpath(self, *names: str) -> ObjectPath:
        """Return what has these names below this one."""
        return ObjectPath(self._root, "/".join(part for part in (self._key, *names) if part))

    def absolute(self) -> ObjectPath:
        """Return itself."""
        return self

    @property
    def scheme(self) -> str:
        """The kind of store, as in its URI."""
        return self._root.partition("://")[0]

    @property
    def key(self) -> str:
        """The name in the store, without a slash at either end."""
        return self._key

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self._key.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The last part of the name from its last dot on."""
        return os.path.splitext(self.name)[1]

    @property
    def parent(self) -> ObjectPath:
        """The folder that it is in."""
        return ObjectPath(self._root, self._key.rpartition("/")[0])

    @property
    def objects(self) -> Objects:
        """The store."""
        return _store(self._root)

    def exists(self) -> bool:
        """Tell whether there is such an object, or a folder with any."""
        return self.objects.stat(self._key) is not None or self.is_dir()

    def is_dir(self) -> bool:
        """Tell whether there is anything below; empty folders are not kept."""
        return bool(self.objects.list(self._key))

    def stat(self) -> Stat:
        """Return size and time of the object.

        Raises:
            FileNotFoundError: It is not there.
        """
        found = self.objects.stat(self._key)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "there is no such object", str(self))
        return found

    def entries(self) -> list[Entry]:
        """Return what is directly in the folder, by name; nothing when it is not there."""
        return self.objects.list(self._key)

    def walk(self) -> Iterator[Entry]:
        """Yield all objects below, with their names from here, in order."""
        return self.objects.walk(self._key)

    def iterdir(self) -> Iterator[ObjectPath]:
        """Yield what is directly in the folder."""
        return (self / entry.name for entry in self.entries())

    def read_bytes(self) -> bytes:
        """Return the object.

        Raises:
            FileNotFoundError: It is not there.
        """
        return self.objects.read(self._key)

    def read_part(self, start: int, length: int | None = None) -> bytes:
        """Return a part of the object; shorter when the object ends before."""
        return self.objects.read(self._key, start, length)

    def put(self, data: bytes | memoryview) -> None:
        """Write the object, whole and durable."""
        self.objects.put(self._key, data)

    def put_new(self, data: bytes) -> bool:
        """Write the object unless there is one; tell whether what is there is what we wrote. See `put_once`."""
        return put_once(self.objects, self._key, data)

    def move_to(self, other: ObjectPath) -> None:
        """Let the object have another key of this store; it replaces what is there. See `Objects.move`."""
        self.objects.move(self._key, other.key)

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects below this folder, given by their names from here; nothing happens where there is none."""
        self.objects.remove(*[self.joinpath(name).key for name in names])

    def unlink(self, missing_ok: bool = True) -> None:
        """Remove the object; nothing happens when there is none."""
        self.objects.remove(self._key)


Place: TypeAlias = "Path | ObjectPath"
"""A file or a directory, wherever it is."""


def _obstore(root: str) -> Objects:
    require_extra("objects", ["obstore"], f"What is in {root}")
    from transom.storage.obstored import Obstore

    return Obstore(root)


def _hdfs(root: str) -> Objects:
    require_extra("hdfs", ["hdfs_native"], f"What is in {root}")
    from transom.storage.hdfs import Hdfs

    return Hdfs(root)


_SPARK_SCHEMES: Mapping[str, str] = {"s3": "s3a", "s3a": "s3a", "gs": "gs", "abfs": "abfs", "abfss": "abfss"}
"""The scheme by which Spark reads what is in a kind of store."""

STORES: dict[str, Callable[[str], Objects]] = {**dict.fromkeys(_SPARK_SCHEMES, _obstore), "hdfs": _hdfs}
"""What makes the store of a URI, by the URI's scheme; called with the URI without its path."""


@lru_cache(maxsize=64)
def _store(root: str) -> Objects:
    scheme, _, rest = root.partition("://")
    return STORES[scheme](f"s3://{rest}" if scheme == "s3a" else root)


def place(path: str | os.PathLike[str] | Place, what: str, error: type[Exception] = DefinitionError) -> Place:
    """Return a path or URI as a place; a local path is made absolute.

    Args:
        path: A local path, a file:// URI, or a URI of a store.
        what: Who takes it, for messages.
        error: What is raised, with a message and a remedy.

    Raises:
        Exception: As `error` says: a kind of URI that is not known, or one that holds credentials.
    """
    if isinstance(path, ObjectPath):
        return path
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path).strip():  # "" would be where the program runs
        raise error(f"{what}: {shown(path)} is no path.", "Name a file or a directory, or give a URI.")
    text = os.fspath(path)
    if isinstance(path, Path):  # which makes s3:/bucket of s3://bucket
        text = re.sub(r"\A([A-Za-z0-9]+):/(?=[^/])", lambda m: f"{m[1]}://" if m[1] in STORES else m[0], text)
    match = _SCHEME.fullmatch(text)
    if match is None:
        if text.startswith("file:/"):
            text = unquote(text[len("file:") :])
        return Path(os.path.abspath(os.path.expanduser(text)))
    scheme, rest = match[1].lower(), match[2]
    store, _, key = rest.partition("/")
    if scheme == "file":
        return Path(os.path.abspath(unquote("/" + key)))
    if scheme not in STORES:
        known = ", ".join(f"{name}://" for name in STORES)
        raise error(
            f"{what}: {_shown(text)!r} is of a kind that is not known.", f"Give a local path, file://, or {known}."
        )
    refuse_secrets(text, what, error)
    if not store:
        raise error(f"{what}: the URI {text!r} names no store.", f"Write for example {scheme}://bucket/path.")
    parts = [part for part in key.split("/") if part]
    if any(part in (".", "..") for part in parts):
        raise error(f"{what}: the URI {text!r} has a part '.' or '..'.", "Give the path itself.")
    return ObjectPath(f"{scheme}://{store}", "/".join(parts))


def refuse_secrets(uri: str, what: str, error: type[Exception] = DefinitionError) -> None:
    """Return when a URI holds nothing that may be a secret.

    Raises:
        Exception: As `error` says: it has a password, a user or options. The message does not repeat them.
    """
    scheme, _, rest = uri.partition("://")
    user = rest.partition("/")[0].rpartition("@")[0]
    if ":" in user or (user and not scheme.lower().startswith("abfs")) or re.search(r"[?#&][^/]*=", rest):
        raise error(
            f"{what}: the URI {_shown(uri)!r} holds credentials or options, which would get into logs.",
            f"Give {scheme}:// with the store and the path only, and the rest by the environment of the process.",
        )


def is_local(path: str) -> bool:
    """Tell whether a text that `str` made of a place is a path of this machine."""
    return _SCHEME.match(path) is None


def located(path: str) -> Place:
    """Return the place of a text that `str` made of one."""
    if is_local(path):
        return Path(path)
    scheme, _, rest = path.partition("://")
    store, _, key = rest.partition("/")
    return ObjectPath(f"{scheme}://{store}", key)


def _shown(uri: str) -> str:
    """Return a URI without what may be a secret."""
    scheme, _, rest = uri.partition("://")
    rest = re.split(r"[?#]", rest, maxsplit=1)[0]
    store, slash, key = rest.partition("/")
    return f"{scheme}://{store.rpartition('@')[2]}{slash}{key}"


def spark_uri(where: Place) -> str:
    """Return a place as Spark's readers and writers take it; a local one as its plain path."""
    if isinstance(where, Path):
        return str(where)
    scheme, _, rest = str(where).partition("://")
    return f"{_SPARK_SCHEMES.get(scheme, scheme)}://{rest}"
