"""Looking into a checkpoint without opening it: nothing is locked, fenced or changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transom.checkpoint.files import checkpoint_at
from transom.checkpoint.history import History, read_history
from transom.checkpoint.identity import read_identity
from transom.checkpoint.lock import holder_of
from transom.checkpoint.names import IDENTITY_FILE, LOCK_FILE, SNAPSHOTS, TABLES
from transom.checkpoint.opening import read_format
from transom.errors import CheckpointCorruptError, CheckpointError
from transom.storage.places import Place

_ATTEMPTS = 5


def describe(path: str | Path | Place, last: int = 10) -> dict[str, Any]:
    """Return what a checkpoint holds, also while an application writes to it.

    Args:
        path: The checkpoint's directory; a path or URI.
        last: How many of the last records to return.

    Returns:
        format: the oldest of anything that counts; id: who it is, None before it is opened the first time; epoch:
        number of the last opening; writer: its pid, host and since (microseconds), as far as known; snapshot: None,
        or its file, state and rows by table; records: their number after the snapshot; last_records; tables: names
        of the files after the snapshot; bytes: of log, tables and snapshot; torn_bytes: an incomplete record at the
        end, which the next opening drops.

    Raises:
        CheckpointError: There is no checkpoint, or it has an unknown format.
        CheckpointCorruptError: It is damaged.
    """
    root = checkpoint_at(path)
    if read_format(root) is None:
        raise CheckpointError(
            f"There is no checkpoint in {root}.", "Give the directory that the application was started with."
        )
    history = _read(root)
    snapshot = None
    if history.snapshot is not None:
        snapshot = {
            "file": history.snapshot_file,
            "state": history.snapshot.state,
            "rows": {name: table.num_rows for name, table in history.snapshot.tables.items()},
        }
    return {
        "format": history.format,
        "id": read_identity(root / IDENTITY_FILE).id if (root / IDENTITY_FILE).exists() else None,
        "epoch": history.epoch,
        "writer": holder_of(root / LOCK_FILE),
        "snapshot": snapshot,
        "records": len(history.records),
        "last_records": list(history.records[max(0, len(history.records) - last) :]),
        "tables": sorted(history.tables.values()),
        "bytes": {
            "log": history.log_bytes,
            "tables": sum(_size(root / TABLES / name) for name in history.tables.values()),
            "snapshot": _size(root / SNAPSHOTS / history.snapshot_file) if history.snapshot_file else 0,
        },
        "torn_bytes": history.torn,
    }


def _read(root: Place) -> History:
    """Read it; again when the writer's next snapshot removed files under our eyes."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return read_history(root)
        except CheckpointCorruptError:
            continue
    return read_history(root)


def _size(path: Place) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
