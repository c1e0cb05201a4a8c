"""Objects under keys, as object stores and HDFS keep them: the few things that Transom asks of a store.

An object is there whole or not at all, and it counts from the moment in which its put returns. Nothing is renamed and
nothing is locked: of several writers one wins, because a put can demand that nothing is there yet.

Errors are OSError: FileNotFoundError for what is not there, PermissionError for what is not allowed. Their texts hold
no credentials.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

TRIES = 3
"""How often a put that must find nothing there is tried; stores themselves retry what they know to be harmless."""


@dataclass(frozen=True)
class Stat:
    """An object as the store describes it; named as in `os.stat`."""

    st_size: int
    st_mtime_ns: int


@dataclass(frozen=True)
class Entry:
    """What a listing shows: an object, or a folder, which is what keys have in common up to a slash."""

    name: str
    """Relative to what was listed."""
    stat: Stat | None
    """None for a folder."""


class Objects(Protocol):
    """A store of objects. Keys have no slash at either end."""

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """Return an object, or a part of it; shorter when the object ends before.

        Raises:
            FileNotFoundError: It is not there.
        """

    def put(self, key: str, data: bytes | memoryview) -> None:
        """Write an object, whole and durable when this returns; it replaces one that is there."""

    def put_new(self, key: str, data: bytes) -> bool:
        """Write an object unless there is one, and tell whether it was written: of many that try, one succeeds.

        After an OSError it may have been written or not.
        """

    def move(self, key: str, to: str) -> None:
        """Give an object another key; it replaces one that is there. It does not go through this process.

        After an OSError it may be under either key, or under both.

        Raises:
            FileNotFoundError: It is not there.
        """

    def stat(self, key: str) -> Stat | None:
        """Return size and time of an object; None when there is none."""

    def list(self, folder: str) -> list[Entry]:
        """Return objects and folders directly in a folder ("" for all), by name; nothing for one that is not there."""

    def walk(self, folder: str) -> Iterator[Entry]:
        """Yield all objects below a folder, by key; nothing for one that is not there."""

    def remove(self, *keys: str) -> None:
        """Remove objects, in as few requests as the store allows; nothing happens where there is none."""

    def remove_folder(self, folder: str) -> None:
        """Remove all objects below a folder, and the folder where there is such a thing."""


def put_once(objects: Objects, key: str, data: bytes) -> bool:
    """Write an object unless there is one; tell whether what is there now is what we wrote.

    A put that failed may have happened, so that a second try finds something there; whose it is, the content tells.
    Hence the data should be such that nobody else writes the same, unless it does not matter who did.

    Raises:
        OSError: It is not known what is there.
    """
    for last in range(TRIES):
        try:
            return objects.put_new(key, data) or objects.read(key) == data
        except PermissionError:
            raise
        except OSError:
            if last == TRIES - 1:
                raise
    raise AssertionError
