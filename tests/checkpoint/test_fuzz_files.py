"""Any damage to any file of a checkpoint: it is what it was, or opening or reading it is a clear error."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checkpoint_helpers import reopen, table
from damage import inflict

from transom.checkpoint import Checkpoint
from transom.errors import CheckpointCorruptError, CheckpointError
from transom.sources.filesets.log import FileLog


def discover(checkpoint: Checkpoint, count: int) -> dict[str, Any]:
    """Find some more files; return what the log says of them."""
    log = FileLog(checkpoint.directory("sources", "left"))
    log.append([(f"/data/{log.next + i}", 7, 8) for i in range(count)])
    log.forget(log.next - 3)
    found = {"position": log.next, "crc": log.crc_at(log.next)}
    log.close()
    return found


@pytest.fixture(scope="module")
def album(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A checkpoint at different times; the last one is the newest."""
    root = tmp_path_factory.mktemp("album")
    path = root / "checkpoint"
    shots: list[Path] = []
    number = 0
    for life in range(3):
        with reopen(path) as checkpoint:
            for step in range(3):
                for _ in range(2):
                    number += 1
                    written = checkpoint.write_tables(f"cut-{number % 4}", {"t": table(number, life)})
                    files = discover(checkpoint, 2)
                    checkpoint.append({"n": number, "tables": written, "files": files}, sync=number % 3 > 0)
                if step == (1, 2, 0)[life]:
                    checkpoint.write_snapshot({"upto": number}, {"open": table(number, number)})
            shots.append(root / f"shot-{life}")
        shutil.copytree(path, shots[-1])
    return shots


def content(path: Path) -> Any:
    """Return all that results depend on, as the engine reads it."""
    with reopen(path) as checkpoint:
        snapshot = checkpoint.snapshot
        held = snapshot and (snapshot.state, {name: t.to_pylist() for name, t in snapshot.tables.items()})
        newest = {record["tables"]["name"]: record["tables"] for record in checkpoint.records}
        tables = {name: checkpoint.read_tables(name, written)["t"].to_pylist() for name, written in newest.items()}
        log = FileLog(checkpoint.directory("sources", "left"))
        for record in checkpoint.records:
            position, crc = record["files"]["position"], record["files"]["crc"]
            if position > log.next or log.crc_at(position) not in (None, crc):
                raise CheckpointCorruptError("The source has other rows than the log tells of.")
        files = [(entry.position, entry.path, entry.size, entry.mtime) for entry in log.between(0, log.next)]
        log.close()
        return checkpoint.identity, held, checkpoint.records, tables, files


def outcomes(album: list[Path], root: Path, seeds: range) -> Iterator[tuple[str, str]]:
    expected = content(Path(shutil.copytree(album[-1], root / "whole")))
    assert expected[2]
    for seed in seeds:
        path = Path(shutil.copytree(album[-1], root / str(seed)))
        what = inflict(random.Random(seed), path, album[:-1])
        try:
            found = content(path)
        except CheckpointError:
            yield what, "refused"
        else:
            assert found == expected, f"seed {seed}: {what}"
            yield what, "same"
        shutil.rmtree(path)


def test_damage_is_found_or_changes_nothing(album: list[Path], tmp_path: Path) -> None:
    found = Counter(outcome for _, outcome in outcomes(album, tmp_path, range(200)))
    assert found["refused"] > 60


@pytest.mark.slow
def test_damage_is_found_or_changes_nothing_at_length(album: list[Path], tmp_path: Path) -> None:
    found = Counter(outcome for _, outcome in outcomes(album, tmp_path, range(1_000, 6_000)))
    assert found["refused"] > 1_500
