"""The text of the log: segments of lines that go on from one another, each with a header as its first line.

Segments of format 1 have a checksum in each line, and nothing that tells one line from the next.
"""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass
from typing import Any, TypeAlias

from transom.errors import CheckpointCorruptError
from transom.model import lines
from transom.model.lines import CORRUPT_REMEDY, START, Link, damaged, read_lines

Record: TypeAlias = "dict[str, Any]"

FORMAT = 3
"""Number of the file format; raised when an older Transom could misread a checkpoint."""
OLDEST = 1
"""The format of segments and snapshots that do not tell theirs."""
_OLD_START = re.compile(rb"[0-9a-f]{8} \{")


@dataclass(frozen=True)
class Segment:
    """A segment as it was read."""

    header: Record
    records: tuple[Record, ...]
    length: int
    """Bytes up to the end of the last good record."""
    torn: int
    """Bytes after it that were dropped."""
    links: tuple[Link, ...] = ()
    """Those of header and records; none in format 1."""

    @property
    def format(self) -> int:
        """The format of its records."""
        found: int = self.header.get("format", OLDEST)
        return found

    @property
    def last(self) -> Link:
        """The link that the next segment goes on from."""
        return self.links[-1] if self.links else START


def parse(data: bytes, path: object, after: Link | None, *, may_be_torn: bool) -> Segment:
    """Read a segment.

    Args:
        data: The bytes that count.
        path: Where they are from, for the message.
        after: What its header goes on from; None for anything.
        may_be_torn: Whether a damaged end may be dropped: only in the last segment, where appending may have
            been interrupted.

    Raises:
        CheckpointCorruptError: A record is damaged, and it is not the end, or the records are not those that were
            written, in that order; names file and line.
    """
    if _decode_old(data[: data.find(b"\n") + 1]) is not None:
        return _parse_old(data, path, may_be_torn=may_be_torn)
    found = read_lines(data, path, after, may_be_torn=may_be_torn)
    if not found.values:
        raise damaged(path, 1)
    return Segment(found.values[0], found.values[1:], found.length, found.torn, found.links)


def _parse_old(data: bytes, path: object, *, may_be_torn: bool) -> Segment:
    found: list[Record] = []
    position = 0
    while position < len(data):
        end = data.find(b"\n", position) + 1 or len(data)
        record = _decode_old(data[position:end])
        if record is None:
            break
        found.append(record)
        position = end
    if position < len(data) and (not may_be_torn or _good_record_after(data, position)):
        raise damaged(path, len(found) + 1)
    if found[0].get("format", OLDEST) != OLDEST:
        raise CheckpointCorruptError(f"Line 1 of {path} is of another format.", CORRUPT_REMEDY)
    return Segment(found[0], tuple(found[1:]), position, len(data) - position)


def _decode_old(line: bytes) -> Record | None:
    body = line[9:-1]
    if line[-1:] != b"\n" or line[:9] != b"%08x " % zlib.crc32(body):
        return None
    try:
        record = json.loads(body)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _good_record_after(data: bytes, position: int) -> bool:
    for match in _OLD_START.finditer(data, position + 1):
        end = data.find(b"\n", match.start()) + 1
        if end and (_decode_old(data[match.start() : end]) or lines.decode(data[match.start() : end])) is not None:
            return True
    return False
