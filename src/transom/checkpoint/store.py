"""The checkpoint: a log of decisions, tables of partials, and snapshots that bound both.

    checkpoint.json      {"format": 2}
    identity.json        who it is; its results are marked with that
    lock                 who has it, on this machine
    epochs/e000003       an empty file per claim to be the writer
    log/e000003-000002.log
    partials/NAME.e000003-000007.tables
    snapshots/e000003-000002.snapshot
    control/...          requests to the application that has it open, and answers
    sources/..., ...     directories that others keep in it

A snapshot comes into force by one rename. Before it, the log goes on in a new segment, which the snapshot
names; after it, all that is older is removed. So each moment leaves the old state or the new one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from transom.checkpoint.container import write_container
from transom.checkpoint.files import Written, checkpoint_at
from transom.checkpoint.history import History, Snapshot
from transom.checkpoint.identity import Identity
from transom.checkpoint.lock import Epoch, MachineLock, Presence, take_lock
from transom.checkpoint.log import FORMAT, Record
from transom.checkpoint.names import (
    LOCK_FILE,
    LOG,
    RESERVED,
    SNAPSHOTS,
    TABLES,
    Stamp,
    quoted,
    snapshot_name,
)
from transom.checkpoint.opening import prepare, raise_format, read_format, remove_files, remove_obsolete, take_over
from transom.checkpoint.segments import LogWriter
from transom.checkpoint.tables import TableFiles
from transom.errors import CheckpointError, CheckpointFencedError
from transom.model.time import Clock
from transom.storage.durable import make_directory, names_in
from transom.storage.journals import clear_directory
from transom.storage.places import Place
from transom.storage.translated import translated

OBJECT_COST = 64 << 10
"""Bytes that are read from a store in the time that asking for an object takes."""


class Checkpoint:
    """An open checkpoint; made by `open`. Methods may be called from any thread and run one at a time.

    After an error that leaves open what is on disk, and after CheckpointFencedError, every further write
    raises the same error. After a disk was full, it can be written again as soon as there is space, except
    when the system told so only at `fsync`; then it has to be opened again.
    """

    path: Place
    identity: Identity
    epoch: int
    """Number of this opening; greater than those of all earlier ones."""
    is_new: bool
    """Whether nothing had been committed in it."""
    snapshot: Snapshot | None
    """The last complete snapshot, as found when opened; let go (None) by `write_snapshot` to free memory."""
    found_format: int
    """The oldest format of anything that counted when it was opened; the next snapshot leaves none but ours."""
    records: list[Record]
    """The records after it that the opening found, in order; let go (empty) by `write_snapshot`."""

    def __init__(
        self, path: Place, identity: Identity, lock: MachineLock | Presence | None, epoch: Epoch, history: History
    ) -> None:
        self.path = path
        self.identity = identity
        self.epoch = epoch.number
        self.is_new = history.snapshot is None and not history.records
        self.found_format = history.format
        self.snapshot = history.snapshot
        self.records = list(history.records)
        self._lock = lock
        self._writer = epoch
        self._mutex = threading.RLock()
        self._unusable: CheckpointError | None = None
        self._tables = TableFiles(path / TABLES, epoch.number, history.tables)
        self._log = LogWriter(path / LOG, epoch.number, history.opening(), history.last, history.log_bytes)

    @classmethod
    def open(cls, path: str | Path | Place, clock: Clock, *, lock: bool = True) -> Checkpoint:
        """Open a checkpoint for writing, or create it; whoever had it open before is fenced.

        Args:
            path: A directory, created when missing; a path or URI.
            clock: For the time in messages to others.
            lock: False leaves out the lock on this machine, as if the other writer were on another one.

        Raises:
            CheckpointInUseError: Another running application on this machine has it open.
            CheckpointCorruptError: A file of it is damaged or missing.
            CheckpointFullError: The disk is full.
            CheckpointError: It is no checkpoint, or of an unknown format, or not accessible.
        """
        root = checkpoint_at(path)
        read_format(root)
        with translated(root, "create"):
            make_directory(root)
        held = take_lock(root / LOCK_FILE, clock.now()) if lock else None
        try:
            read_format(root)  # again: it may have been created meanwhile
            identity = prepare(root)
            epoch, history = take_over(root)
            raise_format(root)
            checkpoint = cls(root, identity, held, epoch, history)
            checkpoint._check_opening(history)
            return checkpoint
        except BaseException:
            if held:
                held.release()
            raise

    def _check_opening(self, history: History) -> None:
        """Finish opening: from here on this writer's files count, unless it is fenced already."""
        try:
            self._writer.check()
            remove_obsolete(self.path, history, self.epoch)
            self._writer.remove_older_claims()
        except BaseException:
            self._log.close()
            raise

    def append(self, record: Mapping[str, object], sync: bool) -> None:
        """Append a record to the log.

        Args:
            record: What JSON holds.
            sync: Whether it and all records before it are on disk, and count, when this returns. Without, a
                crash may lose it, but only together with all that come after it.

        Raises:
            CheckpointFencedError: A newer application took over.
            CheckpointFullError: The disk is full; the record was not appended.
            CheckpointError: It is not known to be durable.
            TypeError: JSON cannot hold a value of it.
        """
        with self._writing():
            self._log.segment.append(record)
            if sync:
                self._log.sync()
                self._check()

    def _check(self) -> None:
        """Return when this writer may commit; in a store of objects the log itself keeps out who may not."""
        if isinstance(self.path, Path):
            self._writer.check()

    def write_tables(self, name: str, tables: Mapping[str, pa.Table], sync: bool = True) -> dict[str, Any]:
        """Write tables into one file, atomically; replaces those written under the name before.

        Args:
            name: Any text.
            tables: The tables by name.
            sync: Whether they are on disk, and count, when this returns. Without, they survive the end of the
                process, but perhaps not that of the machine.

        Returns:
            {"name", "bytes", "crc"}: identifies the content; a record may hold it for `read_tables`.

        Raises:
            CheckpointFencedError: A newer application took over.
            CheckpointFullError: The disk is full; what was there under the name is still there.
        """
        with self._writing():
            self._check()
            path = self._tables.write(name, tables, sync=sync)
            self._check()
            written = self._tables.replace(name, path)
        return {"name": name, "bytes": written.bytes, "crc": written.crc}

    def read_tables(self, name: str, written: Mapping[str, Any] | None = None) -> dict[str, pa.Table]:
        """Return the tables that were written under a name since the last snapshot.

        Args:
            name: As given to `write_tables`.
            written: What `write_tables` returned; when given, the content must be that.

        Raises:
            CheckpointCorruptError: They are missing, damaged or others.
        """
        expected = Written(int(written["bytes"]), int(written["crc"])) if written else None
        with self._mutex:
            return self._tables.read(name, expected)

    def write_snapshot(self, state: Mapping[str, object], tables: Mapping[str, pa.Table]) -> None:
        """Replace snapshot, log and tables by a new snapshot, atomically and durably.

        Args:
            state: What JSON holds.
            tables: The tables by name.

        Raises:
            CheckpointFencedError: A newer application took over.
            CheckpointFullError: The disk is full; all is as before.
            TypeError: JSON cannot hold a value of the state.
        """
        with self._writing():
            self._writer.check()
            after = self._log.go_on()
            stamp = Stamp(self.epoch, self._log.number)
            meta = {
                "format": FORMAT,
                "stamp": [stamp.epoch, stamp.number],
                "log_after": list(after),
                "state": dict(state),
                "first_segment": stamp.number,
                "tables_after": self._tables.count,
            }
            path = self.path / SNAPSHOTS / snapshot_name(stamp)
            try:
                write_container(path, meta, tables)
            except CheckpointError as error:
                if path.exists():  # in force, but perhaps not after a power failure
                    self._unusable = error
                raise
            self._writer.check()
            self._forget_older(stamp)

    def _forget_older(self, snapshot: Stamp) -> None:
        """Remove what the snapshot replaces; files of newer writers are not ours."""
        self.snapshot, self.records = None, []
        self._tables.remove_all()
        remove_files(self.path / SNAPSHOTS, lambda _, stamp: stamp < snapshot)
        self._log.remove_older()

    @property
    def log_bytes(self) -> int:
        """Return the bytes of the log since the last snapshot."""
        return self._log.bytes

    @property
    def total_bytes(self) -> int:
        """Return what log and tables since the last snapshot cost to read, in bytes; in a store, each object some."""
        cost = 0 if isinstance(self.path, Path) else OBJECT_COST * (self._log.pieces + self._tables.count)
        return self.log_bytes + self._tables.bytes + cost

    def directory(self, *parts: str) -> Place:
        """Return a durable directory inside the checkpoint for others to keep files in; created when missing.

        Args:
            parts: Its path, e.g. "sources" and the name of a stream; any text.

        Raises:
            ValueError: It belongs to the checkpoint itself.
        """
        if not parts or not all(parts) or parts[0] in RESERVED:
            raise ValueError(f"{'/'.join(parts)!r} is not a directory for others in a checkpoint")
        path = self._place(parts)
        with translated(path, "create"):
            make_directory(path)
        return path

    def names_in(self, *parts: str) -> list[str]:
        """Return the names in a directory for others, in no order; none if there is no such directory.

        Raises:
            CheckpointError: The file system does not let us read it.
        """
        with translated(self._place(parts), "read"), suppress(FileNotFoundError):
            return names_in(self._place(parts))
        return []

    def others_in(self, directory: str, names: Iterable[str]) -> set[str]:
        """Return what is in one of the directories for others beside those with some names."""
        return set(self.names_in(directory)) - {self._place([directory, name]).name for name in names}

    def keep_only(self, directory: str, names: Iterable[str]) -> None:
        """Remove the directories for others in one of them, but for those with some names.

        Raises:
            CheckpointFencedError: A newer application took over; nothing is removed.
        """
        left = self.others_in(directory, names)
        if left:
            self.check_writer()
        for name in left:
            clear_directory(self.path / quoted(directory) / name)

    def clear(self, *parts: str) -> None:
        """Remove a directory for others with all that is in it; nothing happens when there is none.

        Raises:
            CheckpointFencedError: A newer application took over; nothing is removed.
        """
        if self.names_in(*parts):
            self.check_writer()
            clear_directory(self._place(parts))

    def _place(self, parts: Sequence[str]) -> Place:
        return self.path.joinpath(*(quoted(part, also="." if not part.startswith(".") else "") for part in parts))

    def check_writer(self) -> None:
        """Return when no newer application has opened the checkpoint.

        Raises:
            CheckpointFencedError: One has.
        """
        with self._writing():
            self._writer.check()

    def check_unlocked(self) -> None:
        """Return when no newer application has opened the checkpoint; asks only where no lock keeps others out.

        Raises:
            CheckpointFencedError: One has.
        """
        if not isinstance(self.path, Path):
            self.check_writer()

    def close(self) -> None:
        """Make the log durable as far as possible, and let others in. Nothing happens the second time."""
        with self._mutex:
            try:
                if self._unusable is None and not self._log.segment.broken:
                    self._log.sync()
            finally:
                self._log.close()
                if self._lock:
                    self._lock.release()
                self._unusable = CheckpointError(
                    f"The checkpoint {self.path} is closed.", "Open it again to write to it."
                )

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Hold the mutex, refuse when unusable, and remember errors that make it so."""
        with self._mutex:
            if self._unusable is not None:
                raise type(self._unusable)(self._unusable.message, self._unusable.remedy) from self._unusable
            try:
                yield
            except CheckpointFencedError as error:
                self._unusable = error
                raise
            except CheckpointError as error:
                if self._log.segment.broken:
                    self._unusable = error
                try:
                    self._writer.check()
                except CheckpointError as reason:  # e.g. the newer writer cleaned a temporary file away
                    self._unusable = reason
                    raise
                raise
