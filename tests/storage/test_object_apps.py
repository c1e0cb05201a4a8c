"""Applications whose input, checkpoint and results are in a store of objects: killed at any operation, and by faults.

Spark sees the same store (as viewfs). What it makes of the queries and gives for each cut is asked once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.faults.faults_app import dead_letters, make_app, results, write_input
from tests.storage.disk_objects import ROOTS, DiskObjects, disk_place
from tests.storage.memory_objects import Faults
from tests.without_jobs import ask_once

import transom as tm
from transom.cli.deadletters import read_dead_letters
from transom.errors import CheckpointFencedError, SinkError, TransomError
from transom.model.time import ManualClock
from transom.storage.places import ObjectPath

NOON = 1_700_000_000_000_000
QUIET = Faults()


@pytest.fixture(scope="module", autouse=True)
def spark_is_asked_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        ask_once(patch)
        yield


def new_store(spark: Any, root: Path) -> tuple[DiskObjects, ObjectPath, Path]:
    root.mkdir(exist_ok=True)
    folder = disk_place(root, spark)
    where = root / "data" / "some"
    write_input(where / "in")
    return ROOTS[str(folder.parent.parent)], folder, where


def outcome(where: Path) -> tuple[dict[str, list[str]], list[str]]:
    return results(where), dead_letters(where)


@pytest.fixture(scope="module")
def whole(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, int]:
    """What an uninterrupted run in a store gives, and how many operations it takes; the same as on local disks."""
    store, folder, where = new_store(spark, tmp_path_factory.mktemp("store"))
    make_app(spark, folder).run(once=True, close_all=True)
    found, operations = outcome(where), store.operations
    assert set(found[0]) == {"fares", "ranks", "total"}
    assert len(found[1]) == 3
    local = tmp_path_factory.mktemp("local")
    write_input(local / "in")
    make_app(spark, local).run(once=True, close_all=True)
    assert outcome(local) == found
    return found, operations


def test_nothing_is_on_this_machine(spark: Any, tmp_path: Path, whole: tuple[Any, int]) -> None:
    _, folder, where = new_store(spark, tmp_path)
    app = make_app(spark, folder)
    assert str(app.checkpoint) == f"{folder}/checkpoint"
    app.run(once=True, close_all=True)
    assert outcome(where) == whole[0]
    (letters,) = read_dead_letters(folder / "checkpoint", 10)
    assert sum(letters.counts.values()) == 3
    make_app(spark, folder).run(once=True, close_all=True)
    assert outcome(where) == whole[0]


def test_killed_ever_later(spark: Any, tmp_path: Path, whole: tuple[Any, int]) -> None:
    store, folder, where = new_store(spark, tmp_path)
    number = 10
    while store.killed(number, lambda: make_app(spark, folder).run(once=True, close_all=True)):
        number += 17
        assert number < 2000
    assert number > 100
    assert outcome(where) == whole[0]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_a_store_that_fails(spark: Any, tmp_path: Path, seed: int, whole: tuple[Any, int]) -> None:
    store, folder, where = new_store(spark, tmp_path)
    for attempt in range(60):
        store.fail(Faults(100 * seed + attempt, refused=0.01, lost=0.03))
        with suppress(TransomError, OSError):
            make_app(spark, folder).run(once=True, close_all=True)
            break
    else:
        raise AssertionError
    store.fail(QUIET)
    make_app(spark, folder).run(once=True, close_all=True)
    assert outcome(where) == whole[0]


def test_a_join_keeps_its_rows_in_the_store(spark: Any, tmp_path: Path) -> None:
    folder = disk_place(tmp_path, spark)
    sink = tm.sinks.memory()

    def run(close_all: bool) -> None:
        app = tm.App(spark, str(folder / "checkpoint"), clock=ManualClock(NOON), trigger=0)
        sides = []
        for name in ("left", "right"):
            at = f"{name}_at"
            source = tm.sources.files(f"{folder}/{name}/*.json", f"k bigint, {name} string, {at} bigint")
            time = f"timestamp_micros({at})"
            sides.append(app.stream(source, event_time=time, watermark=tm.watermark("0 seconds"), name=name))
        joined = app.join(*sides, on="k", window="10 seconds")
        joined.window("10 seconds").agg(n=tm.count()).to(sink, "pairs")
        app.run(once=True, close_all=close_all)

    def put(name: str, key: int, text: str, at: int) -> None:
        line = json.dumps({"k": key, name: text, f"{name}_at": NOON + at * 1_000_000})
        (folder / name / f"{key}{text}.json").put(line.encode() + b"\n")

    for key, text, at in ((1, "a", 0), (2, "b", 1)):
        put("left", key, text, at)
    run(close_all=False)
    kept = [entry.name for entry in folder.walk() if entry.name.endswith(".parquet") and "/left/" in entry.name]
    assert kept
    for key, text, at in ((1, "x", 2), (3, "y", 3)):
        put("right", key, text, at)
    run(close_all=True)
    assert [row["n"] for row in sink.rows("pairs")] == [1]


@pytest.mark.parametrize("number", [60, *(pytest.param(number, marks=pytest.mark.slow) for number in (40, 140))])
def test_another_application_takes_over(spark: Any, tmp_path: Path, number: int, whole: tuple[Any, int]) -> None:
    """Before an operation of the first, the second runs to its end; the first finds that out, or was done."""
    store, folder, where = new_store(spark, tmp_path)

    def other(operation: int) -> None:
        if operation >= number:
            store.before = None
            make_app(spark, folder).run(once=True, close_all=True)

    store.before = other
    with suppress(CheckpointFencedError, SinkError):
        make_app(spark, folder).run(once=True, close_all=True)
    assert store.before is None
    assert outcome(where) == whole[0]
    make_app(spark, folder).run(once=True, close_all=True)
    assert outcome(where) == whole[0]
