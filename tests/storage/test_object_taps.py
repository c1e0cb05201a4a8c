"""Rows as files in a store of objects, where nothing is renamed: each once, at whatever operation a run is killed.

Spark sees the same store (as viewfs); what it gives and writes for a cut is asked once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.storage.disk_objects import ROOTS, DiskObjects, disk_place
from tests.storage.memory_objects import Faults
from tests.without_jobs import ask_once

import transom as tm
from transom.engine.streams import taps
from transom.errors import CheckpointFencedError, SinkError, TransomError
from transom.model.time import ManualClock
from transom.storage.places import ObjectPath

ROWS, PER_CUT = 30, 10


@pytest.fixture(scope="module", autouse=True)
def spark_is_asked_once() -> Iterator[None]:
    contents: dict[str, dict[str, bytes]] = {}
    write = taps.write_files

    def written_once(*args: Any) -> bool:
        *_, directory = args
        there = ROOTS[directory._root].root / directory.key
        cut = directory.name.split(".")[1]
        if cut not in contents:
            write(*args)
            found = [path for path in there.rglob("*.parquet") if not path.name.startswith(".")]
            contents[cut] = {str(path.relative_to(there)): path.read_bytes() for path in found}
        for name, content in contents[cut].items():
            (there / name).parent.mkdir(parents=True, exist_ok=True)
            (there / name).write_bytes(content)
        return True

    with pytest.MonkeyPatch.context() as patch:
        ask_once(patch)
        patch.setattr(taps, "write_files", written_once)
        yield


def new_store(spark: Any, root: Path) -> tuple[DiskObjects, ObjectPath]:
    folder = disk_place(root, spark)
    return ROOTS[str(folder.parent.parent)], folder


def application(spark: Any, folder: ObjectPath) -> tm.App:
    source = tm.sources.memory("zone string, n int, at long")
    source.add([("a:b"[n % 3], n, n) for n in range(ROWS)])
    app = tm.App(spark, str(folder / "checkpoint"), clock=ManualClock(0), max_rows_per_cut=PER_CUT)
    stream = app.stream(source, event_time="timestamp_seconds(at)", watermark=tm.watermark(0, max_ahead=None))
    stream.rows().to(tm.sinks.parquet(str(folder / "out")), "kept", partition_by="zone")
    return app


def seen(folder: ObjectPath, whole: bool = True) -> list[int]:
    """Return what a reader finds, who passes over names that begin with a dot; of a run that ended, all else."""
    root = ROOTS[str(folder.parent.parent)].root / folder.key / "out"
    files = [path for path in root.rglob("*") if path.is_file() and path.suffix != ".crc"]
    hidden = [path for path in files if any(part.startswith(".") for part in path.relative_to(root).parts)]
    assert not (whole and hidden)
    visible = [path for path in files if path not in hidden and path.suffix == ".parquet"]
    return sorted(n for path in visible for n in pq.ParquetFile(path).read(["n"]).column("n").to_pylist())


@pytest.mark.slow
def test_killed_ever_later(spark: Any, tmp_path: Path) -> None:
    store, folder = new_store(spark, tmp_path)
    number = 20
    while store.killed(number, lambda: application(spark, folder).run(once=True)):
        found = seen(folder, whole=False)
        assert len(set(found)) == len(found)
        number += 7
        assert number < 1000
    assert number > 40
    assert seen(folder) == list(range(ROWS))
    folders = {entry.name.partition("/")[0] for entry in (folder / "out").walk()}
    assert folders == {"_transom", "zone=a", "zone=b", "zone=%3A"}


@pytest.mark.parametrize("seed", range(2))
def test_a_store_that_fails(spark: Any, tmp_path: Path, seed: int) -> None:
    store, folder = new_store(spark, tmp_path)
    for attempt in range(60):
        store.fail(Faults(100 * seed + attempt, refused=0.01, lost=0.03))
        with suppress(TransomError, OSError):
            application(spark, folder).run(once=True)
            break
    else:
        raise AssertionError
    store.fail(Faults())
    application(spark, folder).run(once=True)
    assert seen(folder) == list(range(ROWS))


@pytest.mark.parametrize("step", ["job done", "committed"])
def test_another_application_takes_over(spark: Any, tmp_path: Path, step: str) -> None:
    """The other one comes when the rows of the second cut are written, or also committed, and runs to its end."""
    _, folder = new_store(spark, tmp_path)
    steps: list[str] = []

    def overtaken(name: str) -> None:
        steps.append(name)
        if name == step and steps.count(step) == 2:
            application(spark, folder).run(once=True)

    first = application(spark, folder)
    first._on_step = overtaken
    with pytest.raises((CheckpointFencedError, SinkError)):
        first.run(once=True)
    assert seen(folder, whole=False) == list(range(ROWS))
    application(spark, folder).run(once=True)
    assert seen(folder) == list(range(ROWS))
