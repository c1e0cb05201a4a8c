from __future__ import annotations

import fcntl
import os
from json import dumps
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from transom.errors import SinkError
from transom.sinks import switching as module
from transom.sinks.base import WindowResults
from transom.sinks.compaction import compact
from transom.sinks.directories import FileSink, csv, json, parquet
from transom.sinks.owner import Claim, Owner
from transom.sinks.switching import JOURNAL


def write(sink: FileSink, cuts: range, **columns: pa.DataType) -> None:
    sink.claim(Claim(Owner("c1", "q", "/checkpoint")))
    for cut in cuts:
        table = pa.table({"n": pa.array([10 * cut, 10 * cut + 1], pa.int64())})
        for name, kind in columns.items():
            table = table.append_column(name, pa.nulls(2, kind))
        sink.write(WindowResults("q", cut, table))


def rows(directory: Path) -> list[int]:
    """What a reader of all visible files sees, in the order of the file names."""
    found: list[int] = []
    for name in sorted(os.listdir(directory)):
        if name.endswith(".parquet") and not name.startswith("."):
            found += pq.read_table(directory / name)["n"].to_pylist()
        elif name.endswith(".json") and not name.startswith("."):
            found += [int(line[5:-1]) for line in (directory / name).read_text().splitlines()]
        elif name.endswith(".csv") and not name.startswith("."):
            lines = (directory / name).read_text().splitlines()
            assert lines.pop(0) == "n"
            found += map(int, lines)
    return found


def visible(directory: Path) -> list[str]:
    return sorted(name for name in os.listdir(directory) if not name.startswith((".", "_")))


EXPECTED = [value for cut in range(10) for value in (10 * cut, 10 * cut + 1)]


@pytest.mark.parametrize("make", [parquet, json, csv])
def test_it_merges_all_but_the_newest_and_keeps_rows_and_order(make: type, tmp_path: Path) -> None:
    sink = make(tmp_path)  # type: ignore[call-arg]
    write(sink, range(10))
    done = compact(tmp_path)
    assert (done.files_before, done.files_after) == (10, 2)
    kind = visible(tmp_path)[0].rsplit(".")[1]
    assert visible(tmp_path) == [f"part-000000000000-000000000008.{kind}", f"part-000000000009.{kind}"]
    assert rows(tmp_path) == EXPECTED
    assert compact(tmp_path).files_after == 2
    sink.recover("q", 9)
    assert rows(tmp_path) == EXPECTED[:-2]


def test_a_second_time_it_merges_merged_files_too(tmp_path: Path) -> None:
    sink = parquet(tmp_path)
    write(sink, range(4))
    compact(tmp_path)
    write(sink, range(4, 10))
    compact(tmp_path)
    assert visible(tmp_path) == ["part-000000000000-000000000008.parquet", "part-000000000009.parquet"]
    assert rows(tmp_path) == EXPECTED


def test_before_cut_and_target_size_limit_it(tmp_path: Path) -> None:
    write(parquet(tmp_path), range(10))
    size = (tmp_path / "part-000000000000.parquet").stat().st_size
    compact(tmp_path, before_cut=7, target_bytes=3 * size + 10)
    assert visible(tmp_path)[:4] == [
        "part-000000000000-000000000002.parquet",
        "part-000000000003-000000000005.parquet",
        "part-000000000006.parquet",
        "part-000000000007.parquet",
    ]
    assert rows(tmp_path) == EXPECTED


def test_files_of_other_columns_stay_apart(tmp_path: Path) -> None:
    sink = parquet(tmp_path)
    write(sink, range(3))
    write(sink, range(3, 6), extra=pa.int32())
    write(sink, range(6, 10))
    compact(tmp_path)
    assert len(visible(tmp_path)) == 4
    assert rows(tmp_path) == EXPECTED


class Crash(Exception):
    pass


@pytest.mark.parametrize("step", range(1, 16))
@pytest.mark.parametrize("by", ["recover", "compact"])
def test_a_crash_at_any_step_is_repaired(step: int, by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = parquet(tmp_path)
    write(sink, range(10))
    calls = 0

    def crashing(call: object) -> object:
        def wrapper(*args: object, **kwargs: object) -> object:
            nonlocal calls
            calls += 1
            if calls == step:
                raise Crash
            return call(*args, **kwargs)  # type: ignore[operator]

        return wrapper

    with monkeypatch.context() as patch:
        patch.setattr(module.os, "replace", crashing(os.replace))
        patch.setattr(module.os, "fsync", crashing(os.fsync))
        patch.setattr(Path, "unlink", crashing(Path.unlink))
        try:
            compact(tmp_path)
        except Crash:
            pass
        else:
            assert calls < step
    if by == "recover":
        sink.recover("q", 10)
    else:
        compact(tmp_path)
    assert rows(tmp_path) == EXPECTED
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".") and name != ".compact.lock"]


def test_a_journal_without_its_files_is_dropped(tmp_path: Path) -> None:
    sink = parquet(tmp_path)
    write(sink, range(10))
    output = "part-000000000000-000000000001.parquet"
    inputs = ["part-000000000000.parquet", "part-000000000001.parquet"]
    journal = dumps({"temporary": ".compact-x.tmp", "output": output, "inputs": inputs})
    (tmp_path / JOURNAL).write_text(journal)
    sink.recover("q", 10)
    assert rows(tmp_path) == EXPECTED


def test_recover_leaves_a_running_compaction_alone(tmp_path: Path) -> None:
    sink = parquet(tmp_path)
    write(sink, range(10))
    temporary = tmp_path / ".compact-part-000000000000-000000000008.parquet.tmp"
    temporary.write_text("growing")
    with open(tmp_path / ".compact.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        sink.recover("q", 10)
        assert temporary.exists()
        with pytest.raises(SinkError, match="another compaction"):
            compact(tmp_path)
    sink.recover("q", 10)
    assert not temporary.exists()


def test_it_needs_a_directory(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="no directory"):
        compact(tmp_path / "missing")
    parquet(tmp_path).claim(Claim(Owner("c1", "q", "/checkpoint")))
    assert compact(tmp_path).files_after == 0
