"""Partitions as their readers see them: Arrow files that are mapped into memory, and stay so in a Python worker."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

MOST_KEPT = 2_048
"""Files that a Python worker keeps open; those read least recently are closed."""
_KEPT: OrderedDict[str, pa.Table] = OrderedDict()


class PartitionGoneError(FileNotFoundError):
    """The file of a partition is gone, with its executor or because it was moved: it can be made again."""


def open_table(path: str) -> pa.Table:
    """Return a partition without copying it; for tasks.

    Raises:
        PartitionGoneError: It was removed.
    """
    try:
        with pa.memory_map(path) as source:
            return pa.ipc.open_file(source).read_all()
    except FileNotFoundError:
        raise PartitionGoneError(path) from None


def open_bytes(path: str) -> BinaryIO:
    """Return the file of a partition, open for reading; for tasks.

    Raises:
        PartitionGoneError: It was removed.
    """
    try:
        return open(path, "rb")
    except FileNotFoundError:
        raise PartitionGoneError(path) from None


def kept_table(path: str) -> pa.Table:
    """Return the same, opened once in each worker: questions come again and again to many small files.

    Raises:
        PartitionGoneError: It was removed.
    """
    if not os.path.exists(path):
        for gone in [each for each in _KEPT if not os.path.exists(each)]:
            del _KEPT[gone]
    elif (table := _KEPT.get(path)) is not None:
        _KEPT.move_to_end(path)
        return table
    _KEPT[path] = open_table(path)
    if len(_KEPT) > MOST_KEPT:
        _KEPT.popitem(last=False)
    return _KEPT[path]


def delete(path: str) -> None:
    """Remove a file, if it is still there, and forget it here; a worker that keeps it notices when it lacks one."""
    Path(path).unlink(missing_ok=True)
    _KEPT.pop(path, None)


def tables_of(paths: Sequence[Sequence[str]]) -> list[pa.Table]:
    """Return one table for each dataset, of some partitions of it; without copying."""
    return [pa.concat_tables([kept_table(path) for path in each]) for each in paths]
