"""Names of the files in a checkpoint; each says which writer made it and when in that writer's life.

A name that does not parse is no file of ours and is left alone.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from transom.storage.durable import names_in
from transom.storage.places import Place

FORMAT_FILE = "checkpoint.json"
IDENTITY_FILE = "identity.json"
LOCK_FILE = "lock"
EPOCHS = "epochs"
LOG = "log"
TABLES = "partials"
SNAPSHOTS = "snapshots"
CONTROL = "control"
RESERVED = frozenset({FORMAT_FILE, IDENTITY_FILE, LOCK_FILE, EPOCHS, LOG, TABLES, SNAPSHOTS, CONTROL})
"""What `Checkpoint.directory` may not return."""

_LONGEST_KEY = 160
_STAMP = re.compile(r"(?:(?P<key>[^.]+)\.)?e(?P<epoch>\d{6,})-(?P<number>\d{6,})\.(?P<kind>log|snapshot|tables)")
_CLAIM = re.compile(r"e(\d{6,})")
_HEAD = re.compile(r"e(\d{6,})\.head")


@dataclass(frozen=True, order=True)
class Stamp:
    """The writer of a file and the file's number among that writer's; later files are greater."""

    epoch: int
    number: int

    def __str__(self) -> str:
        return f"e{self.epoch:06d}-{self.number:06d}"


def segment_name(stamp: Stamp) -> str:
    """Return the file name of a log segment."""
    return f"{stamp}.log"


def snapshot_name(stamp: Stamp) -> str:
    """Return the file name of a snapshot."""
    return f"{stamp}.snapshot"


def tables_name(key: str, stamp: Stamp) -> str:
    """Return the file name of tables with this `table_key`."""
    return f"{key}.{stamp}.tables"


def claim_name(epoch: int) -> str:
    """Return the name of the empty file whose creation makes a process the writer."""
    return f"e{epoch:06d}"


def claimed_epoch(file_name: str) -> int | None:
    """Return the epoch of a claim; None for other names."""
    match = _CLAIM.fullmatch(file_name)
    return int(match[1]) if match else None


def head_name(epoch: int) -> str:
    """Return the name of the file that tells how far a writer's log had come."""
    return f"e{epoch:06d}.head"


def head_epoch(file_name: str) -> int | None:
    """Return the writer of a head; None for other names."""
    match = _HEAD.fullmatch(file_name)
    return int(match[1]) if match else None


def stamp_of(file_name: str) -> Stamp | None:
    """Return the stamp of a segment, snapshot or file of tables; None for other names."""
    match = _STAMP.fullmatch(file_name)
    return Stamp(int(match["epoch"]), int(match["number"])) if match else None


def stamped(directory: Place) -> dict[str, Stamp]:
    """Return the stamped files of a directory, oldest first."""
    found = {name: stamp_of(name) for name in names_in(directory)} if directory.is_dir() else {}
    return dict(sorted(((name, s) for name, s in found.items() if s is not None), key=lambda item: (item[1], item[0])))


def key_of(tables_file: str) -> str:
    """Return the `table_key` in the name of a file of tables."""
    return tables_file.split(".", 1)[0]


def quoted(text: str, also: str = "") -> str:
    """Return text as part of a file name: other than ASCII letters, digits, - _ and `also` become %XX.

    Different texts give different names, except that a long text ends in its hash.
    """
    safe = "-_" + also
    name = "".join(
        chr(byte) if chr(byte) in safe or (byte < 128 and chr(byte).isalnum()) else f"%{byte:02X}"
        for byte in text.encode("utf-8", "surrogatepass")
    )
    if len(name) > _LONGEST_KEY:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return f"{name[: _LONGEST_KEY - 33]}~{digest}"
    return name
