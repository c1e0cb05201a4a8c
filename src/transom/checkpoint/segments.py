"""Writing the log: each writer has its own segments and appends to the last of them.

A segment's first line says which writer it belongs to and, in a writer's first segment, how much of the older
files counts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from transom.checkpoint.files import translated, write_atomically
from transom.checkpoint.log import FORMAT, encode
from transom.checkpoint.names import Stamp, segment_name
from transom.checkpoint.opening import remove_files


class LogWriter:
    """The segments of one writer.

    Args:
        directory: Holds the segments; exists.
        epoch: The writer.
        opening: What the writer found; goes into the first header.
        older_bytes: Bytes of the log that count already.

    Raises:
        CheckpointError: The first segment cannot be created; also as CheckpointFullError.
    """

    def __init__(self, directory: Path, epoch: int, opening: Mapping[str, object], older_bytes: int) -> None:
        self._directory = directory
        self._epoch = epoch
        self._older_bytes = older_bytes
        self.number = 1
        """Number of the segment that is appended to."""
        self.segment = self._create(1, {"opening": opening})

    def _create(self, number: int, more: Mapping[str, object]) -> SegmentWriter:
        path = self._directory / segment_name(Stamp(self._epoch, number))
        return SegmentWriter(path, {"format": FORMAT, "epoch": self._epoch, "number": number, **more})

    @property
    def bytes(self) -> int:
        """Return the bytes of the log that count."""
        return self._older_bytes + self.segment.length

    def go_on(self) -> None:
        """Make the segment durable and go on in a new one.

        Raises:
            CheckpointError: The old one goes on; also as CheckpointFullError.
        """
        self.segment.sync()
        new = self._create(self.number + 1, {})
        self.number += 1
        self._older_bytes += self.segment.length
        self.segment.close()
        self.segment = new

    def remove_older(self) -> None:
        """Remove all segments before the current one, but for those of newer writers."""
        first = Stamp(self._epoch, self.number)
        self._older_bytes = 0
        remove_files(self._directory, lambda _, stamp: stamp < first)


class SegmentWriter:
    """Appends to one new segment; the file stays open.

    Args:
        path: The segment; created, durable, with its header.
        header: What its first line says.

    Raises:
        CheckpointError: It cannot be created; also as CheckpointFullError.
    """

    def __init__(self, path: Path, header: Mapping[str, object]) -> None:
        self.path = path
        self.length = write_atomically(path, [encode(header)])
        """Bytes of complete records."""
        self.synced = self.length
        """Bytes that are known to be on disk."""
        self.broken = False
        """Whether the end of the file is unknown, so that nothing may be appended any more."""
        with translated(path, "open"):
            self._handle = os.open(path, os.O_WRONLY | os.O_APPEND)

    def append(self, line: bytes) -> None:
        """Write a line; when the disk is full, take back the part that was written.

        Raises:
            CheckpointError: It was not written; also as CheckpointFullError.
        """
        with translated(self.path, "append to"):
            try:
                rest = memoryview(line)
                while rest:
                    rest = rest[os.write(self._handle, rest) :]
            except BaseException:
                self.broken = True
                with suppress(OSError):
                    os.ftruncate(self._handle, self.length)
                    self.broken = False
                raise
        self.length += len(line)

    def sync(self) -> None:
        """Make all lines durable.

        Raises:
            CheckpointError: It is not known what is durable, and the segment is broken.
        """
        if self.synced == self.length:
            return
        self.broken = True
        with translated(self.path, "sync"):
            os.fsync(self._handle)
        self.broken = False
        self.synced = self.length

    def close(self) -> None:
        """Close the file, without making it durable."""
        with suppress(OSError):
            os.close(self._handle)
        self._handle = -1
        self.broken = True
