"""Sinks of files in stores of objects: what the tests of local ones ask for, and crashes at each operation."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
import pytest
from tests.storage.memory_objects import Faults, memory_place

from transom.errors import SinkError
from transom.sinks import csv, json, parquet
from transom.sinks.base import WindowResults
from transom.sinks.compaction import compact
from transom.sinks.directories import FileSink
from transom.sinks.owner import Claim, Owner
from transom.sinks.parts import list_parts
from transom.sinks.switching import JOURNAL
from transom.storage.durable import reading
from transom.storage.places import ObjectPath

READ = {"parquet": pq.read_table, "json": pyarrow.json.read_json, "csv": pyarrow.csv.read_csv}
OWNER = Owner("c1", "q", "s3://bucket/checkpoint")


def write(sink: FileSink, cuts: range) -> None:
    sink.open("q")
    sink.claim(Claim(OWNER))
    for cut in cuts:
        sink.write(WindowResults("q", cut, pa.table({"n": pa.array([10 * cut, 10 * cut + 1], pa.int64())})))


def rows(folder: ObjectPath) -> list[int]:
    found = []
    for part in list_parts(folder):
        found += READ[part.extension](reading(folder / part.name))["n"].to_pylist()
    return found


def expected(cuts: range) -> list[int]:
    return [value for cut in cuts for value in (10 * cut, 10 * cut + 1)]


def hidden(folder: ObjectPath) -> list[str]:
    return [entry.name for entry in folder.entries() if entry.name.startswith(".")]


@pytest.mark.parametrize("make", [parquet, json, csv])
def test_one_object_per_cut_replaced_recovered_and_merged(make: Callable[..., FileSink], folder: ObjectPath) -> None:
    sink = make(str(folder))
    assert sink.describe() == f"{make.__name__} files in {folder}"
    write(sink, range(8))
    write(sink, range(6, 8))
    assert rows(folder) == expected(range(8))
    sink = make(str(folder))
    sink.open("q")
    sink.recover("q", 6)
    assert rows(folder) == expected(range(6))
    done = compact(str(folder))
    assert (done.files_before, done.files_after) == (6, 2)
    assert rows(folder) == expected(range(6))
    assert not hidden(folder)
    sink.write(WindowResults("q", 3, pa.table({"n": [0]})))  # it is in the merged one
    assert rows(folder) == expected(range(6))
    with pytest.raises(SinkError, match="holds results up to cut 4"):
        make(str(folder)).recover("q", 3)


def test_a_folder_belongs_to_one_query_of_one_checkpoint(folder: ObjectPath) -> None:
    sink = parquet(str(folder))
    write(sink, range(1))
    sink.claim(Claim(OWNER))
    with pytest.raises(SinkError, match="belongs to the query 'q'"):
        sink.claim(Claim(Owner("c1", "other", "/c1")))
    with pytest.raises(SinkError, match="belongs to the query 'q' of the checkpoint s3://bucket/checkpoint"):
        sink.claim(Claim(Owner("c2", "q", "/c2")))
    with pytest.raises(SinkError, match="is no directory"):
        compact(str(folder / "nothing"))


@pytest.mark.parametrize("by", ["recover", "compact"])
def test_a_crash_at_any_operation_is_repaired(by: str) -> None:
    def crash(now: int) -> None:
        if now == crash_at:
            raise KeyboardInterrupt

    for step in range(1, 200):
        store, folder = memory_place()
        sink = parquet(folder)
        write(sink, range(6))
        crash_at, store.before = store.now + step, crash
        try:
            compact(folder, keep_newest=1)
        except KeyboardInterrupt:
            store.before = None
        else:
            break
        if by == "recover":
            sink.recover("q", 6)
            assert rows(folder) == expected(range(6))
        compact(folder)
        assert rows(folder) == expected(range(6))
        assert not hidden(folder)
        assert len(list_parts(folder)) == 2
    assert 25 < step < 199


def _interrupted(step: int, more: int) -> tuple[bool, ObjectPath]:
    """Compact, and let another one do so before an operation; tell whether there were so many."""
    store, folder = memory_place()
    sink = parquet(folder)
    write(sink, range(6))
    begun = store.now

    def other(now: int) -> None:
        if now == begun + step:
            store.before = None
            write(sink, range(6, 6 + more))
            compact(folder, keep_newest=1)

    store.before = other
    with suppress(FileNotFoundError, SinkError):  # what it was about to merge has been merged
        compact(folder, keep_newest=2)
    return store.before is None, folder


@pytest.mark.parametrize("more", [0, 4])
def test_another_compaction_at_any_moment(more: int) -> None:
    """It may be the one of an application on another machine, that carries out what it takes for interrupted."""
    for step in range(1, 200):
        interrupted, folder = _interrupted(step, more)
        if not interrupted:
            break
        compact(folder)
        assert rows(folder) == expected(range(6 + more))
        assert not hidden(folder)
    assert 25 < step < 199


@pytest.mark.parametrize("seed", range(15))
def test_results_are_there_once_whatever_puts_do(seed: int) -> None:
    store, folder = memory_place(Faults(seed, refused=0.1, lost=0.2))
    sink = parquet(folder)

    def until_done(act: Callable[[], object]) -> object:
        for _ in range(200):
            with suppress(OSError, SinkError):
                return act()
        raise AssertionError

    until_done(lambda: sink.claim(Claim(OWNER)))
    for cut in range(12):
        table = pa.table({"n": [10 * cut, 10 * cut + 1]})
        until_done(lambda cut=cut, table=table: sink.write(WindowResults("q", cut, table)))
        if cut % 5 == 4:
            until_done(lambda cut=cut: sink.recover("q", cut))
            until_done(lambda: compact(folder))
            until_done(lambda cut=cut, table=table: sink.write(WindowResults("q", cut, table)))
    store.faults = Faults()
    compact(folder)
    assert rows(folder) == expected(range(12))
    assert not hidden(folder)


def test_what_the_log_names_is_no_secret(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SinkError) as refused:
        parquet("s3://key:hush-hush@transom/out")
    assert "hush" not in str(refused.value)
    sink = parquet("s3://there-is-no-such-bucket/out")
    with pytest.raises(OSError, match="bucket does not exist") as error:
        sink.write(WindowResults("q", 0, pa.table({"n": [1]})))
    assert "secret" not in str(error.value)


def test_a_journal_of_nobody_is_carried_out() -> None:
    _, folder = memory_place()
    write(parquet(folder), range(3))
    (folder / JOURNAL).put(
        b'{"output": "part-000000000000-000000000001.parquet", "by": "x", '
        b'"inputs": ["part-000000000000.parquet", "part-000000000001.parquet"]}'
    )
    compact(folder)
    assert rows(folder) == expected(range(3))
    assert not hidden(folder)
