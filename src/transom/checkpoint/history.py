"""The content of a checkpoint, found by reading its files without changing any.

Only what the newest writer has read or written counts. Its first segment lists what it found when it opened
the checkpoint: a snapshot, the older segments up to a length, and files of tables. What an older writer adds
after that is not in the list and is ignored for ever; that is the fence. A snapshot by the newest writer
replaces the list.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import pyarrow as pa

from transom.checkpoint.container import Container, read_container
from transom.checkpoint.files import Written
from transom.checkpoint.head import read_head, require_head
from transom.checkpoint.log import FORMAT, OLDEST, Record, Segment, parse
from transom.checkpoint.names import (
    LOG,
    SNAPSHOTS,
    TABLES,
    Stamp,
    head_epoch,
    head_name,
    key_of,
    segment_name,
    snapshot_name,
    stamped,
)
from transom.errors import CheckpointCorruptError
from transom.model.lines import CORRUPT_REMEDY, START, Link
from transom.storage.durable import names_in
from transom.storage.journals import read_journal
from transom.storage.places import Place
from transom.storage.translated import translated


@dataclass(frozen=True)
class Snapshot:
    """The application's state at one moment; the log goes on from there."""

    state: dict[str, Any]
    """What JSON holds."""
    tables: Mapping[str, pa.Table]
    format: int = FORMAT


@dataclass(frozen=True)
class SegmentPart:
    """As much of a segment as counts."""

    name: str
    bytes: int
    crc: int | None
    """Checksum of these bytes; None if nobody has noted it."""


@dataclass(frozen=True)
class History:
    """The content of a checkpoint."""

    epoch: int
    """The newest writer that has opened it; 0 when nobody has."""
    snapshot_file: str | None
    snapshot: Snapshot | None
    segments: tuple[SegmentPart, ...]
    """The segments after the snapshot, oldest first."""
    open_segments: tuple[str, ...]
    """Those of them that the newest writer wrote, so that their content may not be on disk yet."""
    records: tuple[Record, ...]
    """The records in the segments, in order."""
    tables: Mapping[str, str]
    """The file for each key of tables that were written after the snapshot."""
    torn: int
    """Bytes at the end of the last segment that are no complete record."""
    last: Link = START
    """The last line of the log."""
    snapshot_written: Written | None = None
    """Identifies the content of the snapshot's file."""
    format: int = FORMAT
    """The oldest format of anything that counts."""

    @property
    def log_bytes(self) -> int:
        """Return the bytes of the log that count."""
        return sum(part.bytes for part in self.segments)

    def opening(self) -> Record:
        """Return what the header of the next writer's first segment says."""
        return {
            "snapshot": [self.snapshot_file, *astuple(self.snapshot_written)] if self.snapshot_written else None,
            "segments": [list(astuple(part)) for part in self.segments],
            "tables": sorted(self.tables.values()),
        }


NOTHING = History(0, None, None, (), (), (), {}, 0)


@dataclass(frozen=True)
class _Base:
    """The state that the newest writer's own files go on from."""

    snapshot: tuple[str, Container] | None
    parts: Sequence[SegmentPart]
    tables: frozenset[str]
    first_segment: int
    tables_after: int


def heads(directory: Place) -> dict[str, int]:
    """Return the heads in the directory of the log, each with its writer."""
    found = {name: head_epoch(name) for name in names_in(directory)} if directory.is_dir() else {}
    return {name: epoch for name, epoch in found.items() if epoch is not None}


def read_history(root: Place) -> History:
    """Read a checkpoint.

    Raises:
        CheckpointCorruptError: A file that counts is missing or damaged; names it, and the line in a log.
        CheckpointError: The file system does not let us read it.
    """
    with translated(root, "read"):
        writers = heads(root / LOG)
        snapshots = stamped(root / SNAPSHOTS)
        logs = stamped(root / LOG)
        tables = stamped(root / TABLES)
    epoch = max((*writers.values(), *(stamp.epoch for stamp in (*logs.values(), *snapshots.values()))), default=0)
    if epoch == 0:
        return NOTHING
    head = read_head(root / LOG / head_name(epoch))
    own = [name for name, stamp in snapshots.items() if stamp.epoch == epoch]
    base = _after_snapshot(root, own[-1]) if own else _after_opening(root, epoch)
    last = max((stamp.number for stamp in logs.values() if stamp.epoch == epoch), default=0)
    names = [segment_name(Stamp(epoch, n)) for n in range(base.first_segment, max(last, base.first_segment) + 1)]

    found = _read_segments(root, base, names)
    links = [link for _, segment in found[len(base.parts) :] for link in segment.links]
    if links:
        require_head(head, links, root / LOG)
    newest = Stamp(epoch, base.tables_after)
    file, content = base.snapshot or (None, None)
    snapshot = _snapshot(content) if content else None
    return History(
        epoch,
        file,
        snapshot,
        tuple(part for part, _ in found),
        tuple(names),
        tuple(record for _, segment in found for record in segment.records),
        {
            key_of(name): name
            for name, stamp in tables.items()
            if name in base.tables or (stamp.epoch == epoch and stamp > newest)
        },
        found[-1][1].torn,
        found[-1][1].last,
        content.written if content else None,
        min([segment.format for _, segment in found] + ([snapshot.format] if snapshot else [])),
    )


def _read_segments(root: Place, base: _Base, names: Sequence[str]) -> list[tuple[SegmentPart, Segment]]:
    """Return the segments of earlier writers that count, and the newest writer's own; each goes on from the last."""
    after = _before_first(base)
    found: list[tuple[SegmentPart, Segment]] = []
    for part in base.parts:
        found.append(_read_segment(root, part.name, part, after))
        after = found[-1][1].last
    for name in names:
        found.append(_read_segment(root, name, None, after, may_be_torn=name == names[-1]))
        after = found[-1][1].last
    return found


def _after_snapshot(root: Place, name: str) -> _Base:
    content = _read_snapshot(root, name)
    return _Base((name, content), (), frozenset(), content.meta["first_segment"], content.meta["tables_after"])


def _after_opening(root: Place, epoch: int) -> _Base:
    name = segment_name(Stamp(epoch, 1))
    _, segment = _read_segment(root, name, None, None, may_be_torn=True)
    opening = segment.header["opening"]
    parts = [SegmentPart(*part, *[None] * (3 - len(part))) for part in opening["segments"]]
    snapshot = None
    if isinstance(opening["snapshot"], str):  # format 1
        snapshot = opening["snapshot"], _read_snapshot(root, opening["snapshot"])
    elif opening["snapshot"]:
        file, *written = opening["snapshot"]
        snapshot = file, _read_snapshot(root, file)
        if snapshot[1].written != Written(*written):
            raise CheckpointCorruptError(
                f"The file {root / SNAPSHOTS / file} is not the one that the log tells of.", CORRUPT_REMEDY
            )
    return _Base(snapshot, parts, frozenset(opening["tables"]), 1, 0)


def _read_snapshot(root: Place, name: str) -> Container:
    path = root / SNAPSHOTS / name
    content = read_container(path)
    if content.meta.get("format", OLDEST) > OLDEST and snapshot_name(Stamp(*content.meta["stamp"])) != name:
        raise CheckpointCorruptError(f"The file {path} is another snapshot than its name says.", CORRUPT_REMEDY)
    return content


def _snapshot(content: Container) -> Snapshot:
    return Snapshot(content.meta["state"], content.tables, content.meta.get("format", OLDEST))


def _before_first(base: _Base) -> Link | None:
    """Return the line that the first line of the log goes on from; None if nobody has noted it."""
    if base.snapshot is None:
        return START
    noted = base.snapshot[1].meta.get("log_after")
    return None if noted is None else Link(*noted)


def _read_segment(
    root: Place, name: str, part: SegmentPart | None, after: Link | None, *, may_be_torn: bool = False
) -> tuple[SegmentPart, Segment]:
    """Return a segment and how much of it counts.

    Args:
        root: The checkpoint.
        name: The segment.
        part: What counts of it, if that is known.
        after: What it goes on from; None for anything.
        may_be_torn: Whether its end may be damaged.
    """
    path = root / LOG / name
    with translated(path, "read"):
        try:
            data = read_journal(path)
        except FileNotFoundError as error:
            raise CheckpointCorruptError(f"The log {path} is missing.", CORRUPT_REMEDY) from error
    if part is not None and len(data) < part.bytes:
        raise CheckpointCorruptError(
            f"The log {path} has {len(data)} bytes, but had {part.bytes} when it was last read.", CORRUPT_REMEDY
        )
    data = data if part is None else data[: part.bytes]
    segment = parse(data, path, after, may_be_torn=may_be_torn)
    header = segment.header
    if segment_name(Stamp(header.get("epoch", 0), header.get("number", 0))) != name:
        raise CheckpointCorruptError(f"Line 1 of {path} belongs to another file.", CORRUPT_REMEDY)
    crc = zlib.crc32(data[: segment.length])
    if part is not None and part.crc not in (None, crc):
        raise CheckpointCorruptError(f"The log {path} is not what it was when it was last read.", CORRUPT_REMEDY)
    return SegmentPart(name, segment.length, crc), segment
