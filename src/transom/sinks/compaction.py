"""Merging many small result files into few large ones, beside a running application."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from transom.errors import SinkError
from transom.model.signatures import checked
from transom.sinks.csv_lines import header_of
from transom.sinks.owner import MARK, owner_of
from transom.sinks.parts import (
    ResultFile,
    compaction_lock,
    directory_of,
    list_parts,
)
from transom.sinks.switching import finish_switch, switch
from transom.storage.durable import reading
from transom.storage.places import Place

TARGET_BYTES = 128 << 20


@dataclass(frozen=True)
class Compaction:
    """The outcome of `compact`."""

    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int


@checked
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
        path: The directory; a path, or a URI as the sink was given.
        before_cut: Only files of cuts before this one are merged; None leaves that to `keep_newest`.
        target_bytes: Size of merged files; files of at least half of it are left as they are.
        keep_newest: Number of newest files that are never touched, since the application may write them
            again.

    Raises:
        SinkError: There is no such directory, it is not marked as one query's, another compaction is running in it, or
            files in it cannot be read or written.
    """
    directory = directory_of(path, "compact")
    try:
        return _compacted(directory, before_cut, target_bytes, keep_newest)
    except (OSError, pa.ArrowException) as error:
        raise SinkError(
            f"compact: files in {directory} cannot be merged: {type(error).__name__}: {error}.",
            "Repair that and run it again: it finishes what it began. Nothing is lost.",
        ) from error


def _compacted(directory: Place, before_cut: int | None, target_bytes: int, keep_newest: int) -> Compaction:
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
        merge = partial(_concatenate, directory)
        finish_switch(directory, merge)
        parts = list_parts(directory)
        before = len(parts), _bytes(directory, parts)
        for extension in ("parquet", "json", "csv"):
            some = [part for part in parts if part.extension == extension]
            old = some[: len(some) - max(keep_newest, 1)]
            if before_cut is not None:
                old = [part for part in old if part.last < before_cut]
            for group in _groups(directory, old, target_bytes):
                switch(directory, group, merge)
        parts = list_parts(directory)
        return Compaction(before[0], len(parts), before[1], _bytes(directory, parts))


def _groups(directory: Place, parts: Sequence[ResultFile], target: int) -> list[list[ResultFile]]:
    """Return runs of neighbouring files to merge: of one schema, together of about `target` bytes."""
    groups: list[list[ResultFile]] = []
    size, schema = 0, None
    for part in parts:
        file = directory / part.name
        bytes_ = file.stat().st_size
        if bytes_ * 2 >= target:
            size, schema = target, None
            groups.append([])
            continue
        columns = _columns(file)
        if not groups or columns != schema or size + bytes_ > target:
            groups.append([])
            size, schema = 0, columns
        groups[-1].append(part)
        size += bytes_
    return [group for group in groups if len(group) > 1]


def _columns(file: Place) -> pa.Schema | bytes | None:
    """Return what files must have in common to be merged."""
    if file.suffix == ".csv":
        with reading(file) as rows:
            return header_of(rows)
    return pq.read_schema(_arrow(file)).remove_metadata() if file.suffix == ".parquet" else None


def _concatenate(directory: Place, parts: Sequence[ResultFile], output: IO[bytes]) -> None:
    if parts[0].extension in ("json", "csv"):
        for part in parts:
            with reading(directory / part.name) as file:
                if part.extension == "csv" and part != parts[0]:
                    header_of(file)  # the first one has it
                shutil.copyfileobj(file, output, 1 << 20)
        return
    with pq.ParquetWriter(output, pq.read_schema(_arrow(directory / parts[0].name)), compression="zstd") as writer:
        waiting: list[pa.Table] = []
        for part in parts:
            waiting.append(pq.read_table(_arrow(directory / part.name), partitioning=None))
            if sum(table.num_rows for table in waiting) >= 1 << 20:
                writer.write_table(pa.concat_tables(waiting))
                waiting.clear()
        if waiting:
            writer.write_table(pa.concat_tables(waiting))


def _arrow(file: Place) -> Path | IO[bytes]:
    """Return a file as Arrow reads it."""
    return file if isinstance(file, Path) else reading(file)


def _bytes(directory: Place, parts: Sequence[ResultFile]) -> int:
    return sum((directory / part.name).stat().st_size for part in parts)
