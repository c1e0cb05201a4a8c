"""Merging many small result files into few large ones, beside a running application."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from transom.errors import SinkError
from transom.sinks.csv_lines import header_of
from transom.sinks.owner import MARK, owner_of
from transom.sinks.parts import (
    ResultFile,
    compaction_lock,
    list_parts,
    local_directory,
)
from transom.storage.durable import replacing, sync_directory, writing

JOURNAL = ".compact.json"
TARGET_BYTES = 128 << 20


@dataclass(frozen=True)
class Compaction:
    """The outcome of `compact`."""

    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int


def compact(
    path: str | os.PathLike[str],
    before_cut: int | None = None,
    target_bytes: int = TARGET_BYTES,
    keep_newest: int = 1,
) -> Compaction:
    """Merge the result files of old cuts in a directory of `parquet`, `json` or `csv`.

    It may run while an application writes newer files. Merged files keep the order of the cuts. Files with
    other columns or types than their neighbours are merged among themselves only. A reader that lists the
    directory in the milliseconds of a switch may see rows of both the old and the new files, or find a listed
    file gone. After a crash in a switch, rows are there twice until `compact` or the application runs again;
    both finish it first.

    Args:
        path: The directory.
        before_cut: Only files of cuts before this one are merged; None leaves that to `keep_newest`.
        target_bytes: Size of merged files; files of at least half of it are left as they are.
        keep_newest: Number of newest files that are never touched, since the application may write them
            again.

    Raises:
        SinkError: There is no such directory, it is not marked as one query's, or another compaction is running in it.
    """
    directory = local_directory(path, "compact")
    if not directory.is_dir():
        raise SinkError(f"compact: {directory} is no directory.", "Give the directory of a query's results.")
    if owner_of(directory) is None:
        raise SinkError(
            f"compact: {directory} does not say whose results it holds: it has no file {MARK}.",
            "Give the directory of one query's results. One of an older version is marked when its application starts.",
        )
    with compaction_lock(directory) as held:
        if not held:
            raise SinkError(f"compact: another compaction is running in {directory}.", "Wait for it to end.")
        finish_compaction(directory)
        parts = list_parts(directory)
        before = len(parts), _bytes(directory, parts)
        for extension in ("parquet", "json", "csv"):
            some = [part for part in parts if part.extension == extension]
            old = some[: len(some) - max(keep_newest, 1)]
            if before_cut is not None:
                old = [part for part in old if part.last < before_cut]
            for group in _groups(directory, old, target_bytes):
                _merge(directory, group)
        parts = list_parts(directory)
        return Compaction(before[0], len(parts), before[1], _bytes(directory, parts))


def finish_compaction(directory: Path) -> None:
    """Finish the switch that a crash interrupted, and remove the temporary files of compactions.

    To be called by the holder of the lock.
    """
    journal = directory / JOURNAL
    if journal.exists():
        plan = json.loads(journal.read_bytes())
        if (directory / plan["temporary"]).exists() or (directory / plan["output"]).exists():
            _switch(directory, plan["temporary"], plan["output"], plan["inputs"])
        journal.unlink(missing_ok=True)
    for name in os.listdir(directory):
        if name.startswith((".compact-", f".{JOURNAL}")) and name.endswith(".tmp"):
            (directory / name).unlink(missing_ok=True)


def _groups(directory: Path, parts: Sequence[ResultFile], target: int) -> list[list[ResultFile]]:
    """Return runs of neighbouring files to merge: of one schema, together of about `target` bytes."""
    groups: list[list[ResultFile]] = []
    size, schema = 0, None
    for part in parts:
        file = directory / part.name
        bytes_, columns = file.stat().st_size, _columns(file)
        if bytes_ * 2 >= target:
            size, schema = target, None
            groups.append([])
            continue
        if not groups or columns != schema or size + bytes_ > target:
            groups.append([])
            size, schema = 0, columns
        groups[-1].append(part)
        size += bytes_
    return [group for group in groups if len(group) > 1]


def _columns(file: Path) -> pa.Schema | bytes | None:
    """Return what files must have in common to be merged."""
    if file.suffix == ".csv":
        with open(file, "rb") as rows:
            return header_of(rows)
    return pq.read_schema(file).remove_metadata() if file.suffix == ".parquet" else None


def _merge(directory: Path, parts: Sequence[ResultFile]) -> None:
    output = ResultFile(parts[0].first, parts[-1].last, parts[0].extension).name
    temporary = f".compact-{output}.tmp"
    with writing(directory / temporary) as file:
        _concatenate(directory, parts, file)
    inputs = [part.name for part in parts]
    plan = {"temporary": temporary, "output": output, "inputs": inputs}
    with replacing(directory / JOURNAL, unique=True) as file:
        file.write(json.dumps(plan).encode())
    _switch(directory, temporary, output, inputs)
    (directory / JOURNAL).unlink()


def _concatenate(directory: Path, parts: Sequence[ResultFile], output: IO[bytes]) -> None:
    if parts[0].extension in ("json", "csv"):
        for part in parts:
            with open(directory / part.name, "rb") as file:
                if part.extension == "csv" and part != parts[0]:
                    header_of(file)  # the first one has it
                shutil.copyfileobj(file, output, 1 << 20)
        return
    with pq.ParquetWriter(output, pq.read_schema(directory / parts[0].name), compression="zstd") as writer:
        waiting: list[pa.Table] = []
        for part in parts:
            waiting.append(pq.read_table(directory / part.name, partitioning=None))
            if sum(table.num_rows for table in waiting) >= 1 << 20:
                writer.write_table(pa.concat_tables(waiting))
                waiting.clear()
        if waiting:
            writer.write_table(pa.concat_tables(waiting))


def _switch(directory: Path, temporary: str, output: str, inputs: Sequence[str]) -> None:
    """Put the merged file in place and remove what it replaces; may be repeated after a crash inside it."""
    if (directory / temporary).exists():
        os.replace(directory / temporary, directory / output)
    sync_directory(directory)
    for name in inputs:
        (directory / name).unlink(missing_ok=True)
    sync_directory(directory)


def _bytes(directory: Path, parts: Sequence[ResultFile]) -> int:
    return sum((directory / part.name).stat().st_size for part in parts)
