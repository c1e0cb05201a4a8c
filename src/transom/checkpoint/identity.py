"""Who a checkpoint is, wherever its directory goes: what its results are marked with."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from pathlib import Path

from transom.checkpoint.files import translated, write_once
from transom.checkpoint.names import FORMAT_FILE, IDENTITY_FILE
from transom.errors import CheckpointCorruptError
from transom.model.lines import CORRUPT_REMEDY


@dataclass(frozen=True)
class Identity:
    """What tells one checkpoint from all others, for ever; a copy of it has the same."""

    id: str
    """Random text."""
    adopts: bool
    """Whether it was made before results were marked with it."""


def identify(root: Path) -> Identity:
    """Return the identity of a checkpoint, and give it one if it has none; of several that try at once, one does.

    Args:
        root: The checkpoint; FORMAT_FILE is there unless it is new.

    Raises:
        CheckpointCorruptError: The file is damaged.
        CheckpointError: It cannot be read or written; also as CheckpointFullError.
    """
    path = root / IDENTITY_FILE
    if not path.exists():
        value = {"id": secrets.token_hex(8), "adopts": (root / FORMAT_FILE).exists()}
        write_once(path, json.dumps(value).encode())
    return read_identity(path)


def read_identity(path: Path) -> Identity:
    """Return what is in a file that `identify` made.

    Raises:
        CheckpointCorruptError: It is damaged or missing.
    """
    try:
        with translated(path, "read"):
            value = json.loads(path.read_bytes())
        return Identity(str(value["id"]), bool(value["adopts"]))
    except (ValueError, KeyError, TypeError):
        raise CheckpointCorruptError(f"The file {path} is damaged.", CORRUPT_REMEDY) from None
