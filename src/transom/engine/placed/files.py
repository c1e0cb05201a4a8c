"""Files of datasets at an executor: Arrow IPC files in the directories that Spark has there, written by tasks."""

from __future__ import annotations

import os
import re
import socket
import tempfile
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from transom.engine.placed.mapped import open_table
from transom.placement.locality import ExecutorId

_DIRECTORIES = ("SPARK_EXECUTOR_DIRS", "LOCAL_DIRS", "SPARK_LOCAL_DIRS")
"""Where a cluster manager says that an executor may keep files, which it removes afterwards."""


@dataclass(frozen=True)
class PlacedFile:
    """One partition of a dataset."""

    path: str
    rows: int
    bytes: int
    executor: ExecutorId
    """Where it is."""
    process: str
    """The process that it is near to; see `here`."""

    def seen(self) -> PlacedFile:
        """Return it as seen from this Python worker: those for Arrow and for RDDs may have parents of their own."""
        return replace(self, process=here())


def here() -> str:
    """Return a name of the executor's process that this Python worker belongs to, the same for all of its workers."""
    return f"{socket.gethostname()}:{os.getppid()}"


def keep(table: pa.Table, application: str, stem: str) -> PlacedFile:
    """Write a table at this executor, under a name that nobody else has; for tasks.

    Args:
        table: A partition.
        application: Id of the Spark application.
        stem: Begins the file's name.
    """
    return _write(packed(table), _scratch(f"transom-{application}"), f"{stem}-{uuid.uuid4().hex[:8]}")


def packed(table: pa.Table) -> bytes:
    """Return a table as the bytes of an Arrow IPC file with one batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return bytes(sink.getvalue().to_pybytes())


class Writer:
    """Writes files of one dataset into the directory of the executor that it is used at.

    Args:
        application: Id of the Spark application.
        name: Of the dataset; begins the names of the files.
    """

    def __init__(self, application: str, name: str) -> None:
        self._directory = f"transom-{application}"
        self._stem = f"{name}-{uuid.uuid4().hex[:8]}"

    def write(self, payload: bytes, name: str) -> PlacedFile:
        """Write a file; who asks for it knows which executor this is."""
        return _write(payload, _scratch(self._directory), f"{self._stem}-{name}")


def _scratch(directory: str) -> Path:
    """Return this executor's directory for files."""
    given = next((os.environ[name] for name in _DIRECTORIES if os.environ.get(name)), tempfile.gettempdir())
    place = Path(given.split(os.pathsep)[0].split(",")[0]) / directory
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    return place


def file_name(text: str) -> str:
    """Return a text as the name of a file: other characters than letters, digits, dots and dashes are underscores."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", text)


def _write(payload: bytes, directory: Path, stem: str) -> PlacedFile:
    path = directory / f"{file_name(stem)}.arrow"
    path.write_bytes(payload)
    table = open_table(str(path))
    return PlacedFile(str(path), table.num_rows, len(payload), "", here())
