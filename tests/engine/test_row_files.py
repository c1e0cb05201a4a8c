"""Files that are read again and again are read whole once, and never taken for others."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from transom.checkpoint import files as checkpoint_files
from transom.engine.spark import rowfiles
from transom.engine.spark.rowfiles import KeptFiles, Whole, files_in
from transom.errors import CheckpointCorruptError


def pieces(root: Path, *names: str) -> list[KeptFiles]:
    for name in names:
        (root / name).mkdir()
        pq.write_table(pa.table({"c0": [name]}), root / name / "part")
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


@pytest.mark.parametrize("damage", ["first byte of the footer", "longer", "shorter", "empty", "gone"])
def test_the_ends_of_later_ones_are_looked_at(tmp_path: Path, damage: str) -> None:
    whole, (one,) = Whole(), pieces(tmp_path, "one")
    whole.paths([one])
    path = tmp_path / "one" / "part"
    data = path.read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    if damage == "gone":
        path.unlink()
    else:
        flipped = data[:footer] + bytes([data[footer] ^ 1]) + data[footer + 1 :]
        path.write_bytes({"longer": data + b"1", "shorter": data[:-1], "empty": b""}.get(damage, flipped))
    expected = "is missing" if damage == "gone" else "is not the one that the log tells of"
    with pytest.raises(CheckpointCorruptError, match=f"one/part {expected}"):
        whole.paths([one])
