"""A store of objects in memory that fails as real ones do: puts that fail and happened, listings that lag, errors."""

from __future__ import annotations

import errno
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from transom.storage.objects import Entry, Stat
from transom.storage.places import STORES, ObjectPath

_numbers = itertools.count(1)
STORED: dict[str, MemoryObjects] = {}


@dataclass
class Faults:
    """How often what fails; the same faults for the same seed."""

    seed: int = 0
    refused: float = 0.0
    """A put or a read that fails and did not happen, as with status 503."""
    lost: float = 0.0
    """A put that happened and whose answer was lost."""
    lag: int = 0
    """Listings show what was put at least so many operations ago, and what was removed since."""


@dataclass
class MemoryObjects:
    faults: Faults = field(default_factory=Faults)
    now: int = 0
    content: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    shown: list[tuple[int, str, int | None]] = field(default_factory=list)
    operations: list[tuple[str, str]] = field(default_factory=list)
    before: Callable[[int], None] | None = None
    """Called before each operation with its number, from 1 on; what it raises ends the operation."""

    def __post_init__(self) -> None:
        self.random = random.Random(self.faults.seed)

    def _asked(self, what: str, key: str) -> None:
        self.now += 1
        self.operations.append((what, key))
        if self.before:
            self.before(self.now)
        if self.random.random() < self.faults.refused:
            raise OSError(errno.EIO, "503 Slow Down", key)

    def _put(self, key: str, data: bytes) -> None:
        self.content[key] = (data, self.now)
        self.shown.append((self.now, key, len(data)))
        if self.random.random() < self.faults.lost:
            raise OSError(errno.EIO, "the connection was reset", key)

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        self._asked("read", key)
        if key not in self.content:
            raise FileNotFoundError(errno.ENOENT, "there is no such object", key)
        data = self.content[key][0]
        return data[start:] if length is None else data[start : start + length]

    def put(self, key: str, data: bytes | memoryview) -> None:
        self._asked("put", key)
        self._put(key, bytes(data))

    def put_new(self, key: str, data: bytes) -> bool:
        self._asked("put_new", key)
        if key in self.content:
            return False
        self._put(key, data)
        return True

    def move(self, key: str, to: str) -> None:
        data = self.read(key)
        self._put(to, data)
        self.remove(key)

    def stat(self, key: str) -> Stat | None:
        self._asked("stat", key)
        found = self.content.get(key)
        return None if found is None else Stat(len(found[0]), found[1] * 1_000_000_000)

    def _listed(self) -> dict[str, Stat]:
        found: dict[str, Stat] = {}
        for at, key, size in self.shown:
            if at > self.now - self.faults.lag:
                break
            if size is None:
                found.pop(key, None)
            else:
                found[key] = Stat(size, at * 1_000_000_000)
        return dict(sorted(found.items()))

    def list(self, folder: str) -> list[Entry]:
        self._asked("list", folder)
        start = f"{folder}/" if folder else ""
        entries: dict[str, Entry] = {}
        for key, stat in self._listed().items():
            if key.startswith(start):
                name, below, _ = key[len(start) :].partition("/")
                entries[name] = Entry(name, None if below else stat)
        return [entries[name] for name in sorted(entries)]

    def walk(self, folder: str) -> Iterator[Entry]:
        self._asked("walk", folder)
        start = f"{folder}/" if folder else ""
        return iter([Entry(k[len(start) :], stat) for k, stat in self._listed().items() if k.startswith(start)])

    def remove(self, *keys: str) -> None:
        for key in keys:
            self._asked("remove", key)
            self.content.pop(key, None)
            self.shown.append((self.now, key, None))

    def remove_folder(self, folder: str) -> None:
        self.remove(*[f"{folder}/{entry.name}" for entry in self.walk(folder)])


STORES["memory"] = lambda root: STORED[root]


def memory_place(faults: Faults | None = None) -> tuple[MemoryObjects, ObjectPath]:
    """Return a new store, and a folder in it."""
    root = f"memory://store{next(_numbers)}"
    STORED[root] = MemoryObjects(faults or Faults())
    return STORED[root], ObjectPath(root, "some/folder")
