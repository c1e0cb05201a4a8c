"""The right to write: a lock against a second application on this machine, an epoch against one elsewhere.

In a store of objects there is no lock: whoever opens a checkpoint takes it over, and the log shuts out the one before.

The lock goes away with its process, however that ends. Where it does not reach (another machine on a shared
file system), the epoch fences: each opening claims the next number by creating a file that must not exist,
and the writer of an epoch may go on only while the next number is not claimed. On NFS, mount with
`lookupcache=positive`, so that a claim is seen at once.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import secrets
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from transom.checkpoint.names import claim_name, claimed_epoch
from transom.errors import CheckpointError, CheckpointFencedError, CheckpointInUseError
from transom.model.time import Micros, format_time
from transom.storage.durable import names_in, sync_directory
from transom.storage.places import ObjectPath, Place
from transom.storage.translated import translated

_log = logging.getLogger(__name__)
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


class MachineLock:
    """An exclusive lock on a file, held until `release` or the end of the process.

    Args:
        path: The lock file; created, never removed.
        now: The time, for the message to others.

    Raises:
        CheckpointInUseError: Another holder is alive.
    """

    def __init__(self, path: Path, now: Micros) -> None:
        with translated(path, "open"):
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            raise _in_use(path) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                self.release()
                with translated(path, "lock"):
                    raise
            _log.warning("No locks on the file system of %s; only the writer epoch protects the checkpoint.", path)
        with suppress(OSError):  # for messages only; a full disk is reported by the first write that matters
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, _holder(now), 0)

    def release(self) -> None:
        """Let others in."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


class Presence:
    """A note in a store of objects that an application has a checkpoint open; keeps nobody out.

    Args:
        path: The note; removed by `release`, but not by a crash.
        now: The time, for the message to others.
    """

    def __init__(self, path: ObjectPath, now: Micros) -> None:
        self._path = path
        self._text = _holder(now, secrets.token_hex(4))
        with translated(path, "write"):
            path.put(self._text)

    def release(self) -> None:
        """Remove the note, unless another application has written its own."""
        with suppress(OSError):
            if self._path.read_bytes() == self._text:
                self._path.unlink()


def take_lock(path: Place, now: Micros) -> MachineLock | Presence:
    """Return the lock of a checkpoint, or what stands for it in a store of objects.

    Raises:
        CheckpointInUseError: Another holder is alive, on this machine.
    """
    return MachineLock(path, now) if isinstance(path, Path) else Presence(path, now)


def _holder(now: Micros, token: str | None = None) -> bytes:
    told = {"pid": os.getpid(), "host": socket.gethostname(), "since": now}
    return json.dumps(told if token is None else {**told, "token": token}).encode()


def is_held(path: Place) -> bool:
    """Tell whether somebody holds the lock, as far as the file system or the store tells.

    An application that starts in the very moment of the question takes the one who asks for a holder. In a store, one
    that was killed is taken for one that runs.

    Raises:
        CheckpointError: The file system or the store does not let us look.
    """
    if not isinstance(path, Path):
        with translated(path, "read"):
            return path.exists()
    with translated(path, "read"):
        try:
            handle = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def holder_of(path: Place) -> dict[str, Any]:
    """Return pid, host and since (microseconds) of the last holder of a lock; empty when not known."""
    with suppress(OSError, ValueError):
        value = json.loads(path.read_bytes())
        if isinstance(value, dict):
            return value
    return {}


def _in_use(path: Path) -> CheckpointInUseError:
    holder = holder_of(path)
    pid, host = holder.get("pid", "unknown"), holder.get("host", "unknown")
    since = f" since {format_time(holder['since'])}" if isinstance(holder.get("since"), int) else ""
    return CheckpointInUseError(
        f"The checkpoint {path.parent} is in use by process {pid} on host {host}{since}.",
        "Stop that application first, or give this one another checkpoint.",
    )


class Epoch:
    """The right to write, until somebody claims the next number.

    Args:
        directory: Holds one file per claim; exists.
        above: The claimed number is greater than all of these, and than all earlier claims.
    """

    def __init__(self, directory: Place, above: Iterable[int]) -> None:
        self._directory = directory
        self._local = isinstance(directory, Path)
        self.number = max([0, *above, *_claims(directory)]) + 1
        while not self._claim():
            self.number += 1
        self._own = directory / claim_name(self.number)
        self._next = directory / claim_name(self.number + 1)

    def _claim(self) -> bool:
        path = self._directory / claim_name(self.number)
        if not isinstance(path, Path):
            with translated(path, "create"):
                return path.put_new(secrets.token_hex(8).encode())
        with translated(path, "create"):
            try:
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
            except FileExistsError:
                return False
            sync_directory(self._directory)
        return True

    def check(self) -> None:
        """Return when nobody has claimed a later epoch; costs two `stat` calls.

        The later claim is looked for first: claims are removed in ascending order, so when it was removed
        before this look, our own is gone too. In a store of objects claims are never removed.

        Raises:
            CheckpointFencedError: Somebody has.
            CheckpointError: The checkpoint was removed.
        """
        with translated(self._directory, "read"):
            if not _exists(self._next) and _exists(self._own):
                return
        newer = max([0, *_claims(self._directory)])
        if newer <= self.number:
            raise CheckpointError(
                f"The checkpoint {self._directory.parent} was removed while it was in use.",
                "Start the application again, with a new checkpoint.",
            )
        raise CheckpointFencedError(
            f"Another application took over the checkpoint {self._directory.parent}: "
            f"its writer epoch is {newer}, ours is {self.number}. Nothing that we commit from now on counts.",
            "Let the other application go on; stop this one, or give it another checkpoint.",
        )

    def remove_older_claims(self) -> None:
        """Remove the claims before ours, in ascending order.

        Not in a store of objects: where a listing lags, a number would be claimed twice.
        """
        if not self._local:
            return
        for number in sorted(_claims(self._directory)):
            if number < self.number:
                with suppress(OSError):
                    (self._directory / claim_name(number)).unlink()


def _exists(path: Place) -> bool:
    try:
        path.stat()
    except FileNotFoundError:
        return False
    return True


def _claims(directory: Place) -> list[int]:
    if not directory.is_dir():
        return []
    return [epoch for name in names_in(directory) if (epoch := claimed_epoch(name)) is not None]
