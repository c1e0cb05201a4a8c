"""Late rows of a query, kept in a store of objects until their stream has read them: each once, killed at any time."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.storage.disk_objects import ROOTS, disk_place
from tests.without_jobs import compile_once

import transom as tm
from transom.errors import TransomError
from transom.model.time import ManualClock
from transom.sinks.parts import list_parts
from transom.storage.durable import reading
from transom.storage.places import ObjectPath

ROWS = [(n, n) for n in range(20)] + [(100, 3), (101, 4)] + [(n, n) for n in range(20, 38)] + [(102, 5), (103, 21)]
LATE = [100, 101, 102, 103]


def run(spark: Any, folder: ObjectPath) -> None:
    source = tm.sources.memory("n int, at long")
    source.add(ROWS)
    app = tm.App(spark, str(folder / "checkpoint"), clock=ManualClock(0), max_rows_per_cut=10)
    stream = app.stream(source, event_time="timestamp_seconds(at)", watermark=tm.watermark(0, max_ahead=None))
    query = stream.window("10 seconds").agg(n=tm.count())
    late = query.late_rows(watermark="1 hour")
    late.window("1 hour").agg(n=tm.count()).to(tm.sinks.json(str(folder / "counts")), "counts")
    late.rows().to(tm.sinks.parquet(str(folder / "rows")), "rows")
    app.run(once=True, close_all=True)


def check(folder: ObjectPath) -> None:
    every = [entry.name for entry in (folder / "rows").walk() if entry.name.endswith(".parquet")]
    names = [name for name in every if not name.startswith(".")]  # nobody reads what has no name yet, and may be left
    assert sorted(n for name in names for n in rows_in(folder / "rows" / name)) == LATE
    lines = [line for part in list_parts(folder / "counts") for line in reading(folder / "counts" / part.name)]
    assert len(lines) == 1
    assert b'"n":4' in lines[0].replace(b" ", b"")
    assert not list((folder / "checkpoint" / "sources" / "query1.late").walk())


def rows_in(place: ObjectPath) -> list[int]:
    with reading(place) as file:
        found: list[int] = pq.ParquetFile(file).read(["n"]).column("n").to_pylist()
    return found


@pytest.mark.slow
def test_killed_ever_later(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_once(monkeypatch)
    folder = disk_place(tmp_path, spark)
    store, number = ROOTS[str(folder.parent.parent)], 60
    while store.killed(number, lambda: run(spark, folder)):
        number += 11
        assert number < 1000
    check(folder)


def test_another_application_takes_over(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one runs to its end before the first removes or commits something."""
    compile_once(monkeypatch)
    folder = disk_place(tmp_path, spark)
    store = ROOTS[str(folder.parent.parent)]

    def other(operation: int) -> None:
        if operation >= 100:
            store.before = None
            run(spark, folder)

    store.before = other
    with suppress(TransomError):
        run(spark, folder)
    assert store.before is None
    check(folder)
