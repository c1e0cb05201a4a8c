"""Opening a checkpoint: check the format, take over from the last writer, tidy up."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from transom.checkpoint.files import write_atomically
from transom.checkpoint.history import History, heads, read_history
from transom.checkpoint.identity import Identity, identify
from transom.checkpoint.lock import Epoch
from transom.checkpoint.log import FORMAT
from transom.checkpoint.names import (
    EPOCHS,
    FORMAT_FILE,
    IDENTITY_FILE,
    LOCK_FILE,
    LOG,
    SNAPSHOTS,
    TABLES,
    Stamp,
    stamped,
)
from transom.errors import CheckpointCorruptError, CheckpointError
from transom.model.lines import CORRUPT_REMEDY
from transom.storage.durable import make_directory, names_in, remove_temporaries, sync_directory, sync_file
from transom.storage.journals import remove_journals, seal_journal
from transom.storage.places import Place
from transom.storage.translated import translated

_log = logging.getLogger(__name__)

READABLE = range(1, FORMAT + 1)
"""Formats that this Transom goes on with; what it writes has the newest."""
LOG_SUFFIX = ".log"
_HARMLESS = frozenset({LOCK_FILE, IDENTITY_FILE, "lost+found"})


def read_format(root: Place) -> int | None:
    """Return the format of a checkpoint; None when the directory is empty or does not exist.

    Raises:
        CheckpointError: It is something else, or in a format that we do not know.
        CheckpointCorruptError: The file that tells the format is damaged.
    """
    path = root / FORMAT_FILE
    with translated(root, "read"):
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            others = sorted(name for name in (names_in(root) if root.exists() else ()) if not name.startswith("."))
            if set(others) <= _HARMLESS:
                return None
            raise CheckpointError(
                f"The directory {root} is not empty and no checkpoint: it holds {others[0]!r}, but no {FORMAT_FILE}.",
                "Give a new or empty directory for the checkpoint.",
            ) from None
        except NotADirectoryError:
            raise CheckpointError(f"The checkpoint {root} is a file.", "Give a directory for the checkpoint.") from None
    try:
        found = json.loads(text)["format"]
    except (ValueError, KeyError, TypeError):
        raise CheckpointCorruptError(f"The file {path} is damaged.", CORRUPT_REMEDY) from None
    if type(found) is not int or found not in READABLE:
        raise CheckpointError(
            f"The checkpoint {root} has format {found!r}; this Transom reads formats up to {FORMAT}.",
            "Use the version of Transom that wrote it or a later one, or start with a new checkpoint.",
        )
    return found


def raise_format(root: Place) -> None:
    """Note that from here on files of our format come in, so that an older Transom leaves the checkpoint alone.

    Each segment and snapshot tells its own format, so that a crash right after this leaves a checkpoint that is read.

    Raises:
        CheckpointError: It cannot be written; also as CheckpointFullError.
    """
    if read_format(root) != FORMAT:
        write_atomically(root / FORMAT_FILE, [_format_text()])


def _format_text() -> bytes:
    return json.dumps({"format": FORMAT}).encode()


def prepare(root: Place) -> Identity:
    """Create what a checkpoint consists of, where it is missing, and return who it is; the lock is held.

    Raises:
        CheckpointCorruptError: The file that tells who it is is damaged.
        CheckpointError: It cannot be created; also as CheckpointFullError.
    """
    identity = identify(root, read_format(root))
    with translated(root, "create"):
        if not (root / FORMAT_FILE).exists():
            write_atomically(root / FORMAT_FILE, [_format_text()])
        for name in (EPOCHS, LOG, TABLES, SNAPSHOTS):
            make_directory(root / name)
        for directory in (root, root / LOG, root / TABLES, root / SNAPSHOTS):
            remove_temporaries(directory)
    return identity


def take_over(root: Place) -> tuple[Epoch, History]:
    """Claim the next epoch, then read what counts and make it durable.

    The order matters: what an older writer called committed before the claim is on disk and is read; after
    the claim, that writer learns that it is fenced before it calls anything committed. In a store of objects it learns
    that from its log, which is sealed between the two.

    Raises:
        CheckpointFencedError: Another application opened the checkpoint meanwhile.
        CheckpointCorruptError: A file that counts is damaged or missing.
        CheckpointError: The file system does not let us; also as CheckpointFullError.
    """
    with translated(root, "read"):
        above = [stamp.epoch for name in (LOG, SNAPSHOTS, TABLES) for stamp in stamped(root / name).values()]
        above += heads(root / LOG).values()
    epoch = Epoch(root / EPOCHS, above)
    segments = stamped(root / LOG)
    for name, stamp in segments.items():
        if stamp.epoch == max(each.epoch for each in segments.values()):
            with translated(root / LOG / name, "write"):
                seal_journal(root / LOG / name)
    try:
        history = read_history(root)
    except CheckpointError:
        epoch.check()  # somebody who opened after us may have removed what we look for
        raise
    if history.torn:
        _log.warning(
            "Dropped %d bytes at the end of %s: an append was interrupted before it was complete.",
            history.torn,
            root / LOG / history.segments[-1].name,
        )
    for name in history.open_segments:
        with translated(root / LOG / name, "sync"):
            sync_file(root / LOG / name)
    with translated(root, "sync"):
        for name in (LOG, TABLES, SNAPSHOTS):
            sync_directory(root / name)
    return epoch, history


def remove_obsolete(root: Place, history: History, epoch: int) -> None:
    """Remove what writers before `epoch` left and the history, with which it opened, does not hold."""
    segments = {part.name for part in history.segments}
    tables = set(history.tables.values())
    remove_files(root / LOG, lambda name, stamp: stamp.epoch < epoch and name not in segments)
    remove_files(root / TABLES, lambda name, stamp: stamp.epoch < epoch and name not in tables)
    for name, writer in heads(root / LOG).items():
        if writer < epoch:
            with suppress(OSError):
                (root / LOG / name).unlink()
    remove_files(root / SNAPSHOTS, lambda name, stamp: stamp.epoch < epoch and name != history.snapshot_file)


def remove_files(directory: Place, condition: Callable[[str, Stamp], bool]) -> None:
    """Remove the stamped files for which the condition holds; what cannot be removed is left for later."""
    try:
        chosen = [name for name, stamp in stamped(directory).items() if condition(name, stamp)]
        if not isinstance(directory, Path):
            remove_journals(directory, {name for name in chosen if name.endswith(LOG_SUFFIX)})
            directory.remove([name for name in chosen if not name.endswith(LOG_SUFFIX)])
            return
        for name in chosen:
            with suppress(FileNotFoundError):
                (directory / name).unlink()
    except OSError as error:
        _log.warning("Could not remove old files from %s: %s.", directory, error)
