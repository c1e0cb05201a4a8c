"""Errors of the file system, or of a store, in our words: for all that is kept in a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transom.errors import CheckpointError, CheckpointFencedError, CheckpointFullError
from transom.storage.durable import is_full
from transom.storage.journals import TakenOver
from transom.storage.places import Place


@contextmanager
def translated(path: Place, action: str) -> Iterator[None]:
    """Turn an OSError of the body into an error of the checkpoint.

    Args:
        path: The file that the body works on.
        action: What it does, as in "could not `write` the file".

    Raises:
        CheckpointFencedError: A newer application goes on with the file.
        CheckpointFullError: The disk or the quota is full.
        CheckpointError: Any other error of the file system or the store.
    """
    try:
        yield
    except TakenOver as error:
        raise CheckpointFencedError(
            f"Another application took over the checkpoint: it goes on with {path}. Nothing that we commit from now on "
            "counts.",
            "Let the other application go on; stop this one, or give it another checkpoint.",
        ) from error
    except OSError as error:
        if is_full(error):
            raise CheckpointFullError(
                f"The disk is full: could not {action} {path} ({error.strerror}). All that was committed is safe.",
                "Free some space on that disk, or raise the quota, and start the application again.",
            ) from error
        raise CheckpointError(
            f"Could not {action} {path}: {error.strerror or error}.",
            "Check that the disk works and that this user may write there, then start the application again."
            if isinstance(path, Path)
            else "Check that the store answers and that this user may write there, then start the application again.",
        ) from error
