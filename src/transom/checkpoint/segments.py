"""Writing the log: each writer has its own segments and appends to the last of them.

A segment's first line says which writer it belongs to and, in a writer's first segment, how much of the older
files counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from transom.checkpoint.head import HeadWriter
from transom.checkpoint.log import FORMAT
from transom.checkpoint.names import Stamp, head_name, segment_name
from transom.checkpoint.opening import remove_files
from transom.model.lines import Link, encode
from transom.storage.journals import open_journal
from transom.storage.places import Place
from transom.storage.translated import translated


class LogWriter:
    """The segments of one writer.

    Args:
        directory: Holds the segments; exists.
        epoch: The writer.
        opening: What the writer found; goes into the first header.
        after: The last line of what it found.
        older_bytes: Bytes of the log that count already.

    Raises:
        CheckpointError: The first segment cannot be created; also as CheckpointFullError.
    """

    def __init__(
        self, directory: Place, epoch: int, opening: Mapping[str, object], after: Link, older_bytes: int
    ) -> None:
        self._directory = directory
        self._epoch = epoch
        self._older_bytes = older_bytes
        self.number = 1
        """Number of the segment that is appended to."""
        self.segment = self._create(1, after, {"opening": opening})
        self._head = HeadWriter(directory / head_name(epoch))
        self._head.note(self.segment.last)

    def _create(self, number: int, after: Link, more: Mapping[str, object]) -> SegmentWriter:
        path = self._directory / segment_name(Stamp(self._epoch, number))
        return SegmentWriter(path, after, {"format": FORMAT, "epoch": self._epoch, "number": number, **more})

    def sync(self) -> None:
        """Make all records durable.

        Raises:
            CheckpointError: It is not known what is durable, and the segment is broken.
        """
        if self.segment.sync():
            self._head.note(self.segment.last)

    def close(self) -> None:
        """Close the files, without making them durable."""
        self.segment.close()
        self._head.close()

    @property
    def bytes(self) -> int:
        """Return the bytes of the log that count."""
        return self._older_bytes + self.segment.length

    @property
    def pieces(self) -> int:
        """Return the objects of the segment in a store; 1 for a file."""
        return self.segment.pieces

    def go_on(self) -> Link:
        """Make the segment durable and go on in a new one; return what that goes on from.

        Raises:
            CheckpointError: The old one goes on; also as CheckpointFullError.
        """
        self.sync()
        after = self.segment.last
        new = self._create(self.number + 1, after, {})
        self.number += 1
        self._older_bytes += self.segment.length
        self.segment.close()
        self.segment = new
        self._head.note(new.last)
        return after

    def remove_older(self) -> None:
        """Remove all segments before the current one, but for those of newer writers."""
        first = Stamp(self._epoch, self.number)
        self._older_bytes = 0
        remove_files(self._directory, lambda _, stamp: stamp < first)


class SegmentWriter:
    """Appends to one new segment; the file stays open.

    Args:
        path: The segment; created, durable, with its header.
        after: The line before the header.
        header: What its first line says.

    Raises:
        CheckpointError: It cannot be created; also as CheckpointFullError.
    """

    def __init__(self, path: Place, after: Link, header: Mapping[str, object]) -> None:
        self.path = path
        line, self.last = encode(header, after)
        """The last complete line."""
        self.length = len(line)
        """Bytes of complete records."""
        self.synced = self.length
        """Bytes that are known to be on disk."""
        self.broken = False
        """Whether the end of the file is unknown, so that nothing may be appended any more."""
        with translated(path, "write"):
            self._journal = open_journal(path, line)

    def append(self, record: Mapping[str, object]) -> None:
        """Write a record; when the disk is full, take back the part that was written.

        Raises:
            TypeError: JSON cannot hold a value of it.
            CheckpointError: It was not written; also as CheckpointFullError.
        """
        line, link = encode(record, self.last)
        with translated(self.path, "append to"):
            try:
                self._journal.append(line)
            except BaseException:
                self.broken = True
                with suppress(OSError):
                    self._journal.cut_off(self.length)
                    self.broken = False
                raise
        self.length += len(line)
        self.last = link

    def sync(self) -> bool:
        """Make all lines durable; return whether any were not.

        Raises:
            CheckpointError: It is not known what is durable, and the segment is broken.
        """
        if self.synced == self.length:
            return False
        self.broken = True
        with translated(self.path, "sync"):
            self._journal.sync()
        self.broken = False
        self.synced = self.length
        return True

    @property
    def pieces(self) -> int:
        """Return the objects that it consists of."""
        return self._journal.pieces

    def close(self) -> None:
        """Close the file, without making it durable."""
        self._journal.close()
        self.broken = True
