"""Tries of a cut whose process was killed: its JVM may go on for a moment, and then writes where nobody looks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql.readwriter import DataFrameWriter

from transom.engine.spark import deadletters
from transom.engine.spark.columns import TIME
from transom.engine.spark.rowfiles import checked
from transom.engine.streams.joining import JoinInput
from transom.engine.streams.taps import RowFiles
from transom.model.time import MIN_TIME
from transom.sinks.directories import FileSink

CUT: Any = SimpleNamespace(number=3, watermark=0, rows=1)
LATE = {"q": MIN_TIME}


class Outliving:
    """The writes of a first try, whose files come when the second try has written its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._given: list[tuple[Path, bytes]] = []
        for name in ("parquet", "save"):
            monkeypatch.setattr(DataFrameWriter, name, self._both(getattr(DataFrameWriter, name)))

    def _both(self, write: Callable[..., None]) -> Callable[..., None]:
        def written(writer: Any, path: str) -> None:
            write(writer, path)
            (file,) = Path(path).glob("*.parquet")
            for first, content in self._given:
                first.mkdir(parents=True, exist_ok=True)
                (first / "part-late.parquet").write_bytes(content)
            self._given.append((Path(path), file.read_bytes()))

        return written


def kept_for_joins(rows: Any, root: Path) -> Callable[[], list[Path]]:
    side = JoinInput(None, "left", "s", "q")  # type: ignore[arg-type]
    side.directory = root

    def attempt() -> list[Path]:
        kept = side.store(rows, CUT, LATE)
        assert kept is not None
        assert kept.files is not None
        return [path for path in checked(side.piece(3), kept.files) if isinstance(path, Path)]

    return attempt


def rows_as_files(rows: Any, root: Path) -> Callable[[], list[Path]]:
    tap = RowFiles(FileSink(root, "parquet"))
    tap.open("q")

    def attempt() -> list[Path]:
        assert tap.store(rows, CUT, LATE) is not None
        return sorted(tap.piece(3).rglob("*.parquet"))

    return attempt


def letters(rows: Any, root: Path) -> Callable[[], list[Path]]:
    def attempt() -> list[Path]:
        deadletters._write(rows.coalesce(1), root / "cut=3")
        return sorted((root / "cut=3").glob("*.parquet"))

    return attempt


@pytest.mark.parametrize("make", [kept_for_joins, rows_as_files, letters])
def test_what_a_killed_process_still_writes_does_not_count(
    make: Callable[[Any, Path], Callable[[], list[Path]]], spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = make(spark.sql(f"SELECT 1 AS a, 5L AS {TIME}"), tmp_path / "out")
    (tmp_path / "out").mkdir(exist_ok=True)
    Outliving(monkeypatch)
    for _ in range(2):
        files = attempt()
        assert sum(pq.read_metadata(file).num_rows for file in files) == 1
