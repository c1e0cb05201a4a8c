"""Tries of a cut whose process was killed: its JVM may go on for a moment, and then writes where nobody looks."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql.readwriter import DataFrameWriter
from tests.storage.disk_objects import disk_place
from tests.storage.memory_objects import memory_place

import transom as tm
from transom.cli.deadletters import read_dead_letters
from transom.engine.spark import deadletters
from transom.engine.spark.columns import TIME
from transom.engine.spark.rowfiles import checked
from transom.engine.streams.joininput import JoinInput
from transom.engine.streams.taps import RowFiles
from transom.errors import CheckpointFencedError
from transom.model.time import MIN_TIME, ManualClock
from transom.sinks.directories import FileSink

CUT: Any = SimpleNamespace(number=3, watermark=0, rows=1)
LATE = {"q": MIN_TIME}


class Outliving:
    """The writes of a first try, whose files come when the second try has written its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        self._root = root
        self._given: list[tuple[Path, bytes]] = []
        for name in ("parquet", "save"):
            monkeypatch.setattr(DataFrameWriter, name, self._both(getattr(DataFrameWriter, name)))

    def _both(self, write: Callable[..., None]) -> Callable[..., None]:
        def written(writer: Any, path: str) -> None:
            write(writer, path)
            path = re.sub("^viewfs://[^/]*", str(self._root), path)
            (file,) = Path(path).glob("*.parquet")
            for first, content in self._given:
                first.mkdir(parents=True, exist_ok=True)
                (first / "part-late.parquet").write_bytes(content)
            self._given.append((Path(path), file.read_bytes()))

        return written


def kept_for_joins(rows: Any, root: Path) -> Callable[[], list[Path]]:
    side = JoinInput(None, 0, "left", "s", "q")  # type: ignore[arg-type]
    side.directory = root

    def attempt() -> list[Path]:
        kept = side.store(rows, CUT, LATE)
        assert kept is not None
        assert kept.files is not None
        return [path for path in checked(side.piece(3), kept.files) if isinstance(path, Path)]

    return attempt


def rows_as_files(rows: Any, root: Path) -> Callable[[], list[Path]]:
    return named(rows, RowFiles(FileSink(root, "parquet")), root)


def rows_in_a_store(rows: Any, root: Path) -> Callable[[], list[Path]]:
    root.mkdir()
    place = disk_place(root, rows.sparkSession)
    return named(rows, RowFiles(FileSink(place, "parquet")), root / place.key)


def named(rows: Any, tap: RowFiles, root: Path) -> Callable[[], list[Path]]:
    tap.open("q")

    def attempt() -> list[Path]:
        kept = tap.store(rows, CUT, LATE)
        assert kept is not None
        assert kept.files is not None
        return [root / name for name in kept.files]

    return attempt


def letters(rows: Any, root: Path) -> Callable[[], list[Path]]:
    def attempt() -> list[Path]:
        deadletters._write(rows.coalesce(1), root / "cut=3", lambda: None)
        return sorted((root / "cut=3").glob("*.parquet"))

    return attempt


def letters_in_a_store(rows: Any, root: Path) -> Callable[[], list[Path]]:
    root.mkdir()
    folder = disk_place(root, rows.sparkSession)

    def attempt() -> list[Path]:
        deadletters._write(rows.coalesce(1), folder / "cut=3", lambda: None)
        return sorted((root / "data" / "some" / "cut=3").glob("*.parquet"))

    return attempt


@pytest.mark.parametrize("make", [kept_for_joins, rows_as_files, rows_in_a_store, letters, letters_in_a_store])
def test_what_a_killed_process_still_writes_does_not_count(
    make: Callable[[Any, Path], Callable[[], list[Path]]], spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = make(spark.sql(f"SELECT 1 AS a, 5L AS {TIME}"), tmp_path / "out")
    (tmp_path / "out").mkdir(exist_ok=True)
    Outliving(monkeypatch, tmp_path / "out")
    for _ in range(2):
        files = attempt()
        assert sum(pq.read_metadata(file).num_rows for file in files) == 1


class Killed(BaseException):
    pass


def test_letters_of_a_cut_that_is_another_after_a_kill_are_there_once(spark: Any, tmp_path: Path) -> None:
    """What begins a cut is not durable in a store before the cut is: the next run may cut the rows otherwise."""
    folder = disk_place(tmp_path, spark)

    def run(rows_per_cut: int, step: str) -> None:
        def kill(name: str) -> None:
            if name == step:
                raise Killed

        source = tm.sources.memory("at long")
        source.add([(None if at == 15 else at,) for at in range(20)])
        app = tm.App(spark, str(folder), clock=ManualClock(0), max_rows_per_cut=rows_per_cut)
        stream = app.stream(source, event_time="timestamp_seconds(at)", watermark=tm.watermark(0, max_ahead=None))
        stream.window("1 hour").agg(n=tm.count()).to(tm.sinks.memory(), "counts")
        app._on_step = kill
        app.run(once=True)

    with pytest.raises(Killed):
        run(20, "job done")
    run(10, "never")
    (found,) = read_dead_letters(folder, 10)
    assert found.counts == {"null event time": 1}


def test_whoever_was_overtaken_removes_no_letters(tmp_path: Path) -> None:
    def check() -> None:
        raise CheckpointFencedError("It was.", "Stop.")

    for directory in (tmp_path, memory_place()[1]):
        for name in ("cut=3", "cut=4", ".cut=3.0a1b2c3d.tmp", "other"):
            if isinstance(directory, Path):
                (directory / name).mkdir()
                (directory / name / "part.parquet").write_bytes(b"x")
            else:
                (directory / name / "part.parquet").put(b"x")
        with pytest.raises(CheckpointFencedError):
            deadletters.Letters(directory, check).remove_uncommitted(3)
        assert len(list(directory.iterdir())) == 4
        deadletters.Letters(directory).remove_uncommitted(3)
        assert sorted(path.name for path in directory.iterdir()) == ["cut=3", "other"]
        deadletters.Letters(directory, check).remove_uncommitted(3)
