"""What the tests of the checkpoint share."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from transom.checkpoint import Checkpoint
from transom.model.time import ManualClock

NOON = 1_700_000_000_000_000


def reopen(path: Path, *, lock: bool = True) -> Checkpoint:
    return Checkpoint.open(path, ManualClock(NOON), lock=lock)


def table(*values: int) -> pa.Table:
    return pa.table({"key": [f"k{v}" for v in values], "value": pa.array(values, pa.int64())})


def segments(path: Path) -> list[Path]:
    return sorted((path / "log").glob("*.log"))


def files(path: Path, kind: str) -> list[str]:
    return sorted(p.name for p in (path / kind).iterdir())
