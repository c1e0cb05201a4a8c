"""What a checkpoint holds: found by reading its files, without changing any.

Only what the newest writer has read or written counts. Its first segment lists what it found when it opened
the checkpoint: a snapshot, the older segments up to a length, and files of tables. What an older writer adds
after that is not in the list and is ignored for ever; that is the fence. A snapshot by the newest writer
replaces the list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from transom.checkpoint.container import read_container
from transom.checkpoint.files import translated
from transom.checkpoint.log import CORRUPT_REMEDY, FORMAT, OLDEST, Record, Segment, parse
from transom.checkpoint.names import LOG, SNAPSHOTS, TABLES, Stamp, key_of, segment_name, stamped
from transom.errors import CheckpointCorruptError


@dataclass(frozen=True)
class Snapshot:
    """The application's state at one moment; the log goes on from there."""

    state: dict[str, Any]
    """What JSON holds."""
    tables: Mapping[str, pa.Table]
    format: int = FORMAT


@dataclass(frozen=True)
class History:
    """What a checkpoint holds."""

    epoch: int
    """The newest writer that has opened it; 0 when nobody has."""
    snapshot_file: str | None
    snapshot: Snapshot | None
    segments: tuple[tuple[str, int], ...]
    """The segments after the snapshot, oldest first, each with the bytes of it that count."""
    open_segments: tuple[str, ...]
    """Those of them that the newest writer wrote, so that their content may not be on disk yet."""
    records: tuple[Record, ...]
    """The records in the segments, in order."""
    tables: Mapping[str, str]
    """The file for each key of tables that were written after the snapshot."""
    torn: int
    """Bytes at the end of the last segment that are no complete record."""
    format: int = FORMAT
    """The oldest format of anything that counts."""

    @property
    def log_bytes(self) -> int:
        """Return the bytes of the log that count."""
        return sum(length for _, length in self.segments)

    def opening(self) -> Record:
        """Return what the header of the next writer's first segment says."""
        return {
            "snapshot": self.snapshot_file,
            "segments": [list(segment) for segment in self.segments],
            "tables": sorted(self.tables.values()),
        }


NOTHING = History(0, None, None, (), (), (), {}, 0)


@dataclass(frozen=True)
class _Base:
    """Where the newest writer's own files go on from."""

    snapshot_file: str | None
    segments: Sequence[tuple[str, int]]
    tables: frozenset[str]
    first_segment: int
    tables_after: int


def read_history(root: Path) -> History:
    """Read a checkpoint.

    Raises:
        CheckpointCorruptError: A file that counts is missing or damaged; names it, and the line in a log.
        CheckpointError: The file system does not let us read it.
    """
    with translated(root, "read"):
        snapshots = stamped(root / SNAPSHOTS)
        logs = stamped(root / LOG)
        tables = stamped(root / TABLES)
    epoch = max((stamp.epoch for stamp in (*logs.values(), *snapshots.values())), default=0)
    if epoch == 0:
        return NOTHING
    own = [name for name, stamp in snapshots.items() if stamp.epoch == epoch]
    base = _after_snapshot(root, own[-1]) if own else _after_opening(root, epoch)
    snapshot = _read_snapshot(root, base.snapshot_file) if base.snapshot_file else None

    formats = [snapshot.format] if snapshot else []
    records: list[Record] = []
    segments: list[tuple[str, int]] = []
    for name, length in base.segments:
        segment = _read_segment(root, name, length)
        records += segment.records
        formats.append(segment.format)
        segments.append((name, length))
    last = max((stamp.number for stamp in logs.values() if stamp.epoch == epoch), default=0)
    names = [segment_name(Stamp(epoch, n)) for n in range(base.first_segment, max(last, base.first_segment) + 1)]
    torn = 0
    for name in names:
        segment = _read_segment(root, name, None, may_be_torn=name == names[-1])
        records += segment.records
        segments.append((name, segment.length))
        formats.append(segment.format)
        torn = segment.torn
    after = Stamp(epoch, base.tables_after)
    return History(
        epoch,
        base.snapshot_file,
        snapshot,
        tuple(segments),
        tuple(names),
        tuple(records),
        {
            key_of(name): name
            for name, stamp in tables.items()
            if name in base.tables or (stamp.epoch == epoch and stamp > after)
        },
        torn,
        min(formats, default=FORMAT),
    )


def _after_snapshot(root: Path, name: str) -> _Base:
    meta = read_container(root / SNAPSHOTS / name).meta
    return _Base(name, (), frozenset(), meta["first_segment"], meta["tables_after"])


def _after_opening(root: Path, epoch: int) -> _Base:
    name = segment_name(Stamp(epoch, 1))
    header = _read_segment(root, name, None, may_be_torn=True).header
    opening = header["opening"]
    segments = [(str(name), int(length)) for name, length in opening["segments"]]
    return _Base(opening["snapshot"], segments, frozenset(opening["tables"]), 1, 0)


def _read_snapshot(root: Path, name: str) -> Snapshot:
    content = read_container(root / SNAPSHOTS / name)
    return Snapshot(content.meta["state"], content.tables, content.meta.get("format", OLDEST))


def _read_segment(root: Path, name: str, length: int | None, *, may_be_torn: bool = False) -> Segment:
    path = root / LOG / name
    with translated(path, "read"):
        try:
            data = path.read_bytes()
        except FileNotFoundError as error:
            raise CheckpointCorruptError(f"The log {path} is missing.", CORRUPT_REMEDY) from error
    if length is not None and len(data) < length:
        raise CheckpointCorruptError(
            f"The log {path} has {len(data)} bytes, but had {length} when it was last read.", CORRUPT_REMEDY
        )
    segment = parse(data[:length], path, may_be_torn=may_be_torn)
    header = segment.header
    if segment_name(Stamp(header.get("epoch", 0), header.get("number", 0))) != name:
        raise CheckpointCorruptError(f"Line 1 of {path} belongs to another file.", CORRUPT_REMEDY)
    return segment
