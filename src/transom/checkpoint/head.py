"""The length of the log when it was last made durable: a few bytes beside it, one file per writer.

The log alone cannot tell an end that is missing from one that was never written. The head is written after the log was
made durable and is not made durable itself, so that it costs next to nothing and never tells of more than the log holds
by right. It may tell of less; one that is damaged or missing tells nothing.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from transom.errors import CheckpointCorruptError
from transom.model.lines import CORRUPT_REMEDY, START, Link, decode, encode
from transom.storage.places import Place

_WIDTH = 80
"""Bytes of a head, filled up with spaces; it is written in place, in one piece."""


class HeadWriter:
    """Notes how far the log has come.

    In a store of objects there is none: a log is whole pieces there, of which none ends early.

    Args:
        path: The head; created with the first note.
    """

    def __init__(self, path: Place) -> None:
        self._path = path
        self._handle = -1

    def note(self, link: Link) -> None:
        """Note the last line that is durable; nothing happens where that is not possible."""
        if not isinstance(self._path, Path):
            return
        line, _ = encode({"number": link.number, "crc": link.crc}, START)
        with suppress(OSError):
            if self._handle < 0:
                self._handle = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o644)
            os.pwrite(self._handle, line.ljust(_WIDTH), 0)

    def close(self) -> None:
        """Close the file."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def read_head(path: Place) -> Link | None:
    """Return what was noted; None where that is not known."""
    try:
        found = decode(path.read_bytes().rstrip(b" "))
    except OSError:
        return None
    return None if found is None else Link(found.value["number"], found.value["crc"])


def require_head(head: Link | None, links: list[Link], log: Place) -> None:
    """Return when the log has what the head tells of.

    Args:
        head: What was noted.
        links: Of all lines that were read of the same writer, in order.
        log: Where they are, for the message.

    Raises:
        CheckpointCorruptError: The end of the log is missing, or it is another log.
    """
    if head is None or head.number < links[0].number:
        return
    if head.number > links[-1].number:
        raise CheckpointCorruptError(
            f"The end of the log in {log} is missing or damaged: of {head.number} lines there are {links[-1].number}.",
            CORRUPT_REMEDY,
        )
    if links[head.number - links[0].number].crc != head.crc:
        raise CheckpointCorruptError(f"The log in {log} is another one than was written.", CORRUPT_REMEDY)
