"""Lines of JSON in a file that is only ever appended to: each is numbered, has a checksum, and names that of the last.

    CHECKSUM CHECKSUM-OF-THE-LINE-BEFORE NUMBER JSON

So a line that was changed, is missing, or is there twice or in another place is found, and the checksum of one line
stands for all lines up to it. A damaged end is what a crash leaves behind; damage before a good line is an error.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from transom.errors import CheckpointCorruptError

Value: TypeAlias = "dict[str, Any]"

CORRUPT_REMEDY = (
    "The disk or a program changed it after it was written. Restore the checkpoint from a copy; "
    "or start with a new checkpoint, which reads the sources again."
)
_LINE = re.compile(rb"([0-9a-f]{8}) ([0-9a-f]{8}) (\d+) (\{.*\})\n", re.DOTALL)
_START = re.compile(rb"[0-9a-f]{8} [0-9a-f]{8} \d+ \{")


class Link(NamedTuple):
    """A line as the next one knows it; stands for all lines up to it."""

    number: int
    crc: int


START = Link(0, 0)
"""The link before the first line."""


def encode(value: Mapping[str, object], after: Link) -> tuple[bytes, Link]:
    """Return a value's line, with the line break, and its link.

    Args:
        value: What JSON holds.
        after: The line before.

    Raises:
        TypeError: JSON cannot hold something in it.
    """
    number = after.number + 1
    body = b"%08x %d %b" % (after.crc, number, json.dumps(value, separators=(",", ":")).encode("ascii"))
    crc = zlib.crc32(body)
    return b"%08x %b\n" % (crc, body), Link(number, crc)


@dataclass(frozen=True)
class Line:
    """A good line."""

    value: Value
    link: Link
    before: int
    """Checksum of the line before it."""


def decode(line: bytes) -> Line | None:
    """Return what a line (with its line break) holds; None when it is damaged."""
    match = _LINE.fullmatch(line)
    if match is None or int(match[1], 16) != zlib.crc32(line[9:-1]):
        return None
    try:
        value = json.loads(match[4])
    except ValueError:
        return None
    return Line(value, Link(int(match[3]), int(match[1], 16)), int(match[2], 16)) if isinstance(value, dict) else None


@dataclass(frozen=True)
class Lines:
    """The lines that were read of a file."""

    values: tuple[Value, ...]
    links: tuple[Link, ...]
    """Those of the values."""
    length: int
    """Bytes up to the end of the last good line."""
    torn: int
    """Bytes after it that were dropped."""


def read_lines(data: bytes, path: object, after: Link | None, *, may_be_torn: bool, first: int = 1) -> Lines:
    """Read lines.

    Args:
        data: The bytes that count.
        path: Where they are from, for the message.
        after: What the first line goes on from; None for anything.
        may_be_torn: Whether a damaged end may be dropped: only where appending may have been interrupted.
        first: Number of the first line in the file, for the message.

    Raises:
        CheckpointCorruptError: A line is damaged, missing, or there twice; names file and line.
    """
    values: list[Value] = []
    links: list[Link] = []
    position = 0
    while position < len(data):
        end = data.find(b"\n", position) + 1 or len(data)
        line = decode(data[position:end])
        if line is None:
            break
        if after is not None:
            _require_next(line, after, path, first + len(values))
        after = line.link
        values.append(line.value)
        links.append(after)
        position = end
    if position < len(data) and (not may_be_torn or _good_line_after(data, position)):
        raise damaged(path, first + len(values))
    return Lines(tuple(values), tuple(links), position, len(data) - position)


def damaged(path: object, line: int) -> CheckpointCorruptError:
    """Return the error that says that a line, counted from 1, is damaged."""
    return CheckpointCorruptError(f"Line {line} of {path} is damaged.", CORRUPT_REMEDY)


def _require_next(line: Line, after: Link, path: object, place: int) -> None:
    if line.link.number == after.number + 1 and line.before == after.crc:
        return
    if line.link.number > after.number + 1:
        missing = line.link.number - after.number - 1
        problem = f"does not go on from the one before it: {'a line is' if missing == 1 else f'{missing} are'} missing"
    elif line.link.number <= after.number:
        problem = "was there before: lines are doubled or in another order"
    else:
        problem = "goes on from another line than the one before it"
    raise CheckpointCorruptError(f"Line {place} of {path} {problem}.", CORRUPT_REMEDY)


def _good_line_after(data: bytes, position: int) -> bool:
    """Tell whether a good line starts anywhere after a damaged one, also where its line break was damaged."""
    for match in _START.finditer(data, position + 1):
        end = data.find(b"\n", match.start()) + 1
        if end and decode(data[match.start() : end]) is not None:
            return True
    return False
