"""A store of objects that Spark reads, too: files below a directory, which Hadoop shows as viewfs://NAME/."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transom.storage.objects import Entry, Stat
from transom.storage.places import STORES, ObjectPath

_numbers = itertools.count(1)
_LOCK = threading.Lock()
ROOTS: dict[str, DiskObjects] = {}


class DiskObjects:
    def __init__(self, root: Path) -> None:
        self.root = root

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        with open(self.root / key, "rb") as file:
            file.seek(start)
            return file.read() if length is None else file.read(length)

    def put(self, key: str, data: bytes | memoryview) -> None:
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{next(_numbers)}.putting")
        temporary.write_bytes(data)
        os.replace(temporary, path)

    def put_new(self, key: str, data: bytes) -> bool:
        with _LOCK:
            if (self.root / key).exists():
                return False
            self.put(key, data)
            return True

    def stat(self, key: str) -> Stat | None:
        path = self.root / key
        return Stat(path.stat().st_size, path.stat().st_mtime_ns) if path.is_file() else None

    def list(self, folder: str) -> list[Entry]:
        found = {entry.name.partition("/")[0]: "/" in entry.name for entry in self.walk(folder)}
        return [Entry(name, None if deep else self.stat(f"{folder}/{name}")) for name, deep in sorted(found.items())]

    def walk(self, folder: str) -> Iterator[Entry]:
        base = self.root / folder
        for path in sorted(base.rglob("*")):
            if path.is_file() and not path.name.endswith((".putting", ".crc")):
                name = str(path.relative_to(base))
                yield Entry(name, self.stat(f"{folder}/{name}" if folder else name))

    def remove(self, key: str) -> None:
        (self.root / key).unlink(missing_ok=True)


STORES["viewfs"] = lambda root: ROOTS[root]


def disk_place(root: Path, spark: Any) -> ObjectPath:
    """Return a folder in a new store, which Spark sees."""
    name = f"store{os.getpid()}x{next(_numbers)}"
    (root / "data").mkdir()
    conf = spark._jsc.hadoopConfiguration()
    conf.set(f"fs.viewfs.mounttable.{name}.link./data", f"file://{root}/data")
    ROOTS[f"viewfs://{name}"] = DiskObjects(root)
    return ObjectPath(f"viewfs://{name}", "data/some")
