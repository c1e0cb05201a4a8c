"""The text of the log: JSON lines, each with a checksum, in segments with a header.

A damaged end is what a crash leaves behind and is dropped; damage before a good record is an error.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from transom.errors import CheckpointCorruptError

Record: TypeAlias = "dict[str, Any]"

FORMAT = 2
"""Number of the file format; raised when an older Transom could misread a checkpoint."""
OLDEST = 1
"""The format of segments and snapshots that do not tell theirs."""

_START = re.compile(rb"[0-9a-f]{8} \{")

CORRUPT_REMEDY = (
    "The disk or a program changed it after it was written. Restore the checkpoint from a copy; "
    "or start with a new checkpoint, which reads the sources again."
)


def encode(record: Mapping[str, object]) -> bytes:
    """Return a record's line: CRC-32 of the JSON in hex, space, JSON, newline.

    Raises:
        TypeError: JSON cannot hold a value of it.
    """
    body = json.dumps(dict(record), separators=(",", ":")).encode("ascii")
    return b"%08x %b\n" % (zlib.crc32(body), body)


def decode(line: bytes) -> Record | None:
    """Return the record of a line (with its newline); None when the line is damaged."""
    body = line[9:-1]
    if line[-1:] != b"\n" or line[:9] != b"%08x " % zlib.crc32(body):
        return None
    try:
        record = json.loads(body)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


@dataclass(frozen=True)
class Segment:
    """A segment as it was read."""

    header: Record
    records: tuple[Record, ...]
    length: int
    """Bytes up to the end of the last good record."""
    torn: int
    """Bytes after it that were dropped."""

    @property
    def format(self) -> int:
        """The format of its records."""
        found: int = self.header.get("format", OLDEST)
        return found


def parse(data: bytes, path: Path, *, may_be_torn: bool) -> Segment:
    """Read a segment.

    Args:
        data: The bytes that count.
        path: Where they are from, for the message.
        may_be_torn: Whether a damaged end may be dropped: only in the last segment, where appending may have
            been interrupted.

    Raises:
        CheckpointCorruptError: A record is damaged, and it is not the end; names file and line.
    """
    found: list[Record] = []
    position = 0
    while position < len(data):
        end = data.find(b"\n", position) + 1 or len(data)
        record = decode(data[position:end])
        if record is None:
            break
        found.append(record)
        position = end
    if position < len(data) and (not may_be_torn or not found or _good_record_after(data, position)):
        raise CheckpointCorruptError(f"Line {len(found) + 1} of {path} is damaged.", CORRUPT_REMEDY)
    if not found:
        raise CheckpointCorruptError(f"The file {path} is empty.", CORRUPT_REMEDY)
    return Segment(found[0], tuple(found[1:]), position, len(data) - position)


def _good_record_after(data: bytes, position: int) -> bool:
    """Tell whether a good record starts anywhere after a damaged one, also where its newline was damaged."""
    for match in _START.finditer(data, position + 1):
        end = data.find(b"\n", match.start()) + 1
        if end and decode(data[match.start() : end]) is not None:
            return True
    return False
