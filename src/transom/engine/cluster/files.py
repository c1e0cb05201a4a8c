"""Partials as durable files, cut into key groups: written where they were computed, read where they are merged.

A file is Arrow IPC streams one after the other, one per key group. What tells of it, with checksums, is in the log of
the checkpoint or in its snapshot, so that a file counts from the record on that names it, and an executor that lost
everything reads again exactly what was committed.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transom.checkpoint.files import write_atomically
from transom.engine.partials.contents import Contents
from transom.engine.partials.tables import LENGTH, PANE, TAG
from transom.errors import CheckpointCorruptError, CheckpointError
from transom.model.lines import CORRUPT_REMEDY
from transom.model.time import Micros
from transom.storage.durable import read_part
from transom.storage.places import Place
from transom.storage.translated import translated
from transom.windows.aggregates.base import Slots
from transom.windows.reusable import Span


@dataclass(frozen=True)
class Slice:
    """The rows of one key group in one file."""

    file: str
    """Name within the directory of the stream's files."""
    group: int
    offset: int
    length: int
    """Bytes."""
    crc: int
    rows: int

    def read(self, directory: Place) -> pa.Table:
        """Return the rows.

        Raises:
            CheckpointCorruptError: The file is missing or damaged.
            CheckpointError: The file system does not let us read it.
        """
        path = directory / self.file
        try:
            with translated(path, "read"):
                data = read_part(path, self.offset, self.length)
        except CheckpointError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise CheckpointCorruptError(
                    f"The file {path} is missing.",
                    "The checkpoint of an application whose partials are on the executors must be in a directory that "
                    "the driver and all executors see under the same path.",
                ) from error
            raise
        if len(data) != self.length or zlib.crc32(data) != self.crc:
            raise CheckpointCorruptError(f"The file {path} is damaged.", CORRUPT_REMEDY)
        return pa.ipc.open_stream(pa.py_buffer(data)).read_all()


@dataclass(frozen=True)
class PartialFiles:
    """The partials of one component and cut, or of one store, in files."""

    contents: Contents
    cut: int
    """The cut that brought them; of merged ones the last."""
    slices: tuple[Slice, ...]
    panes: tuple[tuple[Micros, ...], ...]
    """Starts of the panes that hold rows, ascending, for each of the conditions."""
    windows: tuple[tuple[Span, ...], ...]
    """The same for the windows that hold rows, if they are windows (`Contents.direct`) instead of panes."""

    def panes_of(self, condition: str) -> tuple[Micros, ...]:
        """Return the starts of the panes that hold rows of a condition, given by its text."""
        return self.panes[self.contents.conditions.index(condition)]

    def windows_of(self, condition: str) -> tuple[Span, ...]:
        """Return the windows that hold rows of a condition, given by its text."""
        return self.windows[self.contents.conditions.index(condition)]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(part.rows for part in self.slices)

    @property
    def nbytes(self) -> int:
        """Bytes of the files."""
        return sum(part.length for part in self.slices)

    @property
    def names(self) -> set[str]:
        """Names of the files."""
        return {part.file for part in self.slices}

    def to_json(self) -> dict[str, Any]:
        """Return what the log keeps."""
        contents = self.contents
        return {
            "note": {
                "branch": contents.origin.branch,
                "keys": contents.origin.keys,
                "only": contents.origin.only,
                "conditions": contents.conditions,
                "for": sorted(contents.made_for),
                "primitives": contents.primitives,
                "absent": [],
            },
            "direct": contents.direct,
            "cut": self.cut,
            "slices": [[s.file, s.group, s.offset, s.length, s.crc, s.rows] for s in self.slices],
            "panes": self.panes,
            "windows": self.windows,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> PartialFiles:
        """Return what `to_json` wrote."""
        return cls(
            Contents.of(value["note"], value["direct"]),
            value["cut"],
            tuple(Slice(*part) for part in value["slices"]),
            tuple(tuple(starts) for starts in value["panes"]),
            tuple(tuple((start, end) for start, end in spans) for spans in value["windows"]),
        )


def write_slices(directory: Place, name: str, table: pa.Table, groups: Slots) -> list[Slice]:
    """Write a table as one durable file; the rows of each key group are together.

    Args:
        directory: Exists.
        name: Of the file; no other file has it.
        table: The rows.
        groups: Key group of each row.

    Raises:
        CheckpointError: It was not written; also as CheckpointFullError.
    """
    order = np.argsort(groups, kind="stable")
    sorted_groups = groups[order]
    present, firsts = np.unique(sorted_groups, return_index=True)
    table = table.take(pa.array(order)) if len(present) > 1 else table
    slices: list[Slice] = []

    def pieces() -> Iterator[memoryview]:
        offset = 0
        for group, begin, end in zip(present, firsts, [*firsts[1:], len(groups)], strict=True):
            rows = int(end - begin)
            data = _stream(table.slice(int(begin), rows))
            slices.append(Slice(name, int(group), offset, len(data), zlib.crc32(data), rows))
            offset += len(data)
            yield data

    write_atomically(directory / name, pieces())
    return slices


def _stream(table: pa.Table) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())


def write_partials(
    directory: Place, name: str, table: pa.Table, groups: Slots, contents: Contents, cut: int
) -> PartialFiles:
    """Write a table as one durable file; return what tells of it.

    Args:
        directory: Exists.
        name: Of the file; no other file has it.
        table: Partials of one condition.
        groups: Key group of each row.
        contents: What the table holds.
        cut: The cut that brought the last of them.

    Raises:
        CheckpointError: It was not written; also as CheckpointFullError.
    """
    slices = write_slices(directory, name, table, groups)
    counted = table.append_column("rows", pa.array(np.ones(table.num_rows, np.int64)))
    return files_of(contents, cut, slices, summary_of(counted, "rows"))


def summary_of(
    table: pa.Table, counts: str, times: tuple[str, str] | None = None, moments: Sequence[Micros] = ()
) -> pa.Table:
    """Return how many rows of the stream are in each pane, tag and window of a table of partials.

    Args:
        table: Partials: PANE, perhaps TAG and LENGTH.
        counts: Column with the number of rows of the stream in each partial.
        times: Columns with the first and the last event time of each partial, if those are wanted, too: the first and
            the last of all partials that lie between the same moments.
        moments: The moments, ascending: partials on different sides of one, or on both, stay separate.
    """
    groups = [name for name in (PANE, TAG, LENGTH) if name in table.column_names]
    if times is None:
        return table.group_by(groups).aggregate([(counts, "sum")]).rename_columns([*groups, counts])
    sides = [f"_side{i}" for i in range(len(times))]
    for side, name in zip(sides, times, strict=True):
        after = np.searchsorted(np.array(moments, np.int64), table.column(name).to_numpy(), side="right")
        table = table.append_column(side, pa.array(after))
    grouped = table.group_by([*groups, *sides]).aggregate([(counts, "sum"), (times[0], "min"), (times[1], "max")])
    return grouped.rename_columns([*groups, *sides, counts, *times]).drop_columns(sides)


def to_bytes(table: pa.Table) -> bytes:
    """Return a table as an Arrow IPC stream."""
    return bytes(_stream(table))


def from_bytes(data: bytes) -> pa.Table:
    """Return what `to_bytes` made."""
    return pa.ipc.open_stream(io.BytesIO(data)).read_all()


def files_of(contents: Contents, cut: int, slices: Sequence[Slice], summary: pa.Table) -> PartialFiles:
    """Return the partials that are in some slices.

    Args:
        contents: What they hold.
        cut: The cut that brought them.
        slices: The slices.
        summary: What `summary_of` returned for their rows; in several parts, if there were several tables.
    """
    panes: list[tuple[Micros, ...]] = []
    windows: list[tuple[Span, ...]] = []
    for tag in range(len(contents.conditions)):
        mine = summary.filter(pc.equal(summary.column(TAG), tag)) if TAG in summary.column_names else summary
        starts = mine.column(PANE).to_numpy()
        if contents.direct:
            ends = starts + mine.column(LENGTH).to_numpy()
            windows.append(tuple(sorted(set(zip(starts.tolist(), ends.tolist(), strict=True)))))
            panes.append(())
        else:
            panes.append(tuple(np.unique(starts).tolist()))
            windows.append(())
    return PartialFiles(contents, cut, tuple(slices), tuple(panes), tuple(windows))
