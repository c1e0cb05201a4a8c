"""Files that are read again and again are read whole once, and never taken for others."""

from __future__ import annotations

from pathlib import Path

import pytest

from transom.checkpoint import files as checkpoint_files
from transom.engine.spark import rowfiles
from transom.engine.spark.rowfiles import Files, Whole, files_in
from transom.errors import CheckpointCorruptError


def pieces(root: Path, *names: str) -> list[tuple[Path, Files]]:
    for name in names:
        (root / name).mkdir()
        (root / name / "part").write_bytes(name.encode())
    return [(root / name, files_in(root / name)) for name in names]


def test_files_are_read_whole_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    whole, (one, other, third) = Whole(), pieces(tmp_path, "one", "other", "third")

    def sum_of(path: Path) -> checkpoint_files.Written:
        read.append(path.parent.name)
        return checkpoint_files.sum_of_file(path)

    monkeypatch.setattr(rowfiles, "sum_of_file", sum_of)
    assert whole.paths([one, other]) == [tmp_path / "one" / "part", tmp_path / "other" / "part"]
    assert whole.paths([one, other, third])[-1] == tmp_path / "third" / "part"
    assert whole.paths([other, third]) == whole.paths([other, third])
    assert read == ["one", "other", "third"]
    whole.paths([one])
    assert read[-1] == "one"  # it was not among them, and is forgotten


def test_later_ones_are_looked_at(tmp_path: Path) -> None:
    whole, (one, other) = Whole(), pieces(tmp_path, "one", "other")
    whole.paths([one, other])
    (tmp_path / "one" / "part").write_bytes(b"longer")
    with pytest.raises(CheckpointCorruptError, match="one/part is not the one that the log tells of"):
        whole.paths([one])
    (tmp_path / "other" / "part").unlink()
    with pytest.raises(CheckpointCorruptError, match="other/part is missing"):
        whole.paths([other])
