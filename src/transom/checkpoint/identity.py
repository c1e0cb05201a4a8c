"""The identity of a checkpoint, wherever its directory goes: its results are marked with it."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from transom.checkpoint.files import required, write_once
from transom.checkpoint.names import IDENTITY_FILE
from transom.errors import CheckpointCorruptError
from transom.model.lines import CORRUPT_REMEDY, START, decode, encode
from transom.storage.places import Place

_SINCE = 2
"""The first format with this file."""


@dataclass(frozen=True)
class Identity:
    """The id that distinguishes a checkpoint from all others, for ever; a copy of it has the same."""

    id: str
    """Random text."""
    adopts: bool
    """Whether it was made before results were marked with it."""


def identify(root: Place, found_format: int | None) -> Identity:
    """Return the identity of a checkpoint, and give it one if it has none; of several that try at once, one does.

    Args:
        root: The checkpoint.
        found_format: Its format; None if it is new.

    Raises:
        CheckpointCorruptError: The file is damaged, or missing although the format has one.
        CheckpointError: It cannot be read or written; also as CheckpointFullError.
    """
    path = root / IDENTITY_FILE
    if not path.exists() and (found_format is None or found_format < _SINCE):
        line, _ = encode({"id": secrets.token_hex(8), "adopts": found_format is not None}, START)
        write_once(path, line)
    return read_identity(path)


def read_identity(path: Place) -> Identity:
    """Return what is in a file that `identify` made.

    Raises:
        CheckpointCorruptError: It is damaged or missing.
    """
    with required(path):
        found = decode(path.read_bytes())
    if found is None:
        raise CheckpointCorruptError(f"The file {path} is damaged.", CORRUPT_REMEDY)
    return Identity(**found.value)
