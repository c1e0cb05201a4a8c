"""A store of objects that Spark reads, too: files below a directory, which Hadoop shows as viewfs://NAME/data/."""

from __future__ import annotations

import errno
import itertools
import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.faults.faults_app import Killed
from tests.storage.memory_objects import Faults

from transom.storage.objects import Entry, Stat
from transom.storage.places import STORES, ObjectPath

_numbers = itertools.count(1)
_LOCK = threading.Lock()
ROOTS: dict[str, DiskObjects] = {}


class DiskObjects:
    """Fails as often as `faults` says, but for what Spark does."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.operations = 0
        self.before: Callable[[int], None] | None = None
        """Called before each operation with its number, from 1 on."""
        self.fail(Faults())

    def fail(self, faults: Faults) -> None:
        self._faults, self._random = faults, random.Random(faults.seed)

    def killed(self, number: int, run: Callable[[], object]) -> bool:
        """Run something, and kill it at an operation, counted from now on; tell whether it came to that."""
        self.operations = 0

        def kill(operation: int) -> None:
            if operation >= number:
                raise Killed

        self.before = kill
        try:
            run()
        except Killed:
            return True
        finally:
            self.before = None
        return False

    def _asked(self, key: str) -> None:
        self.operations += 1
        if self.before:
            self.before(self.operations)
        if self._random.random() < self._faults.refused:
            raise OSError(errno.EIO, "503 Slow Down", key)

    def _answered(self, key: str) -> None:
        if self._random.random() < self._faults.lost:
            raise OSError(errno.EIO, "the connection was reset", key)

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        self._asked(key)
        with open(self.root / key, "rb") as file:
            file.seek(start)
            return file.read() if length is None else file.read(length)

    def put(self, key: str, data: bytes | memoryview) -> None:
        self._asked(key)
        self._put(key, data)
        self._answered(key)

    def _put(self, key: str, data: bytes | memoryview) -> None:
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{next(_numbers)}.putting")
        temporary.write_bytes(data)
        os.replace(temporary, path)

    def put_new(self, key: str, data: bytes) -> bool:
        self._asked(key)
        with _LOCK:
            if (self.root / key).exists():
                return False
            self._put(key, data)
        self._answered(key)
        return True

    def move(self, key: str, to: str) -> None:
        self.put(to, (self.root / key).read_bytes())
        self.remove(key)

    def stat(self, key: str) -> Stat | None:
        self._asked(key)
        return self._stat(self.root / key)

    def _stat(self, path: Path) -> Stat | None:
        try:
            info = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Stat(info.st_size, info.st_mtime_ns) if path.is_file() else None

    def list(self, folder: str) -> list[Entry]:
        self._asked(folder)
        found: dict[str, bool] = {}
        for name, _ in self._below(folder):
            first, deep, _ = name.partition("/")
            found[first] = bool(deep)
        base = self.root / folder
        return [Entry(name, None if deep else self._stat(base / name)) for name, deep in sorted(found.items())]

    def walk(self, folder: str) -> Iterator[Entry]:
        self._asked(folder)
        return iter([Entry(name, self._stat(path)) for name, path in self._below(folder)])

    def _below(self, folder: str) -> Iterator[tuple[str, Path]]:
        base = self.root / folder
        for path in sorted(base.rglob("*")):
            if not path.name.endswith((".putting", ".crc")) and path.is_file():
                yield str(path.relative_to(base)), path

    def remove(self, *keys: str) -> None:
        for key in keys:
            self._asked(key)
            (self.root / key).unlink(missing_ok=True)

    def remove_folder(self, folder: str) -> None:
        self.remove(*[f"{folder}/{entry.name}" for entry in self.walk(folder)])


STORES["viewfs"] = lambda root: ROOTS[root]


def disk_place(root: Path, spark: Any) -> ObjectPath:
    """Return a folder in a new store, which Spark sees; its files are in `root`/data/some."""
    name = f"store{os.getpid()}x{next(_numbers)}"
    (root / "data").mkdir()
    conf = spark._jsc.hadoopConfiguration()
    conf.set(f"fs.viewfs.mounttable.{name}.link./data", f"file://{root}/data")
    ROOTS[f"viewfs://{name}"] = DiskObjects(root)
    return ObjectPath(f"viewfs://{name}", "data/some")
