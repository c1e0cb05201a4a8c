"""Checkpoints in stores of objects: the log shuts out who was overtaken, and what was committed is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa
import pytest
from tests.storage.memory_objects import Faults, MemoryObjects, memory_place

from transom.checkpoint import Checkpoint, describe
from transom.checkpoint.control import Inbox, ask
from transom.checkpoint.lock import is_held
from transom.engine.changes.remote import CHECK_EVERY, Remote
from transom.errors import CheckpointCorruptError, CheckpointError, CheckpointFencedError, ControlError
from transom.model.time import ManualClock
from transom.sources.filesets.log import FileLog
from transom.storage.places import ObjectPath

NOON = 1_700_000_000_000_000


def reopen(folder: ObjectPath) -> Checkpoint:
    return Checkpoint.open(folder, ManualClock(NOON))


def table(*values: int) -> pa.Table:
    return pa.table({"value": pa.array(values, pa.int64())})


def test_what_was_committed_comes_back(folder: ObjectPath) -> None:
    with reopen(folder) as checkpoint:
        assert checkpoint.is_new
        identity = checkpoint.identity
        checkpoint.append({"n": 1}, sync=False)
        receipt = checkpoint.write_tables("a b/c", {"x": table(1, 2)})
        checkpoint.append({"n": 2, "tables": receipt}, sync=True)
    with reopen(folder) as checkpoint:
        assert (checkpoint.epoch, checkpoint.identity, checkpoint.is_new) == (2, identity, False)
        assert [record["n"] for record in checkpoint.records] == [1, 2]
        assert checkpoint.read_tables("a b/c", receipt)["x"].equals(table(1, 2))
        checkpoint.write_snapshot({"upto": 2}, {"s": table(7)})
        checkpoint.append({"n": 3}, sync=True)
        checkpoint.write_snapshot({"upto": 3}, {"s": table(8)})
        checkpoint.append({"n": 4}, sync=True)
        checkpoint.append({"n": 5}, sync=False)
        (checkpoint.directory("sources", "stream 1") / "state.json").put(b"{}")
    with reopen(folder) as checkpoint:
        assert checkpoint.snapshot is not None
        assert checkpoint.snapshot.state == {"upto": 3}
        assert checkpoint.snapshot.tables["s"].equals(table(8))
        assert [record["n"] for record in checkpoint.records] == [4, 5]
        found = describe(folder if folder.scheme == "memory" else str(folder))
        assert (found["epoch"], found["records"], found["torn_bytes"]) == (3, 2, 0)
    assert [entry.name for entry in (folder / "snapshots").entries()] == ["e000002-000003.snapshot"]
    assert not is_held(folder / "lock")


def test_whoever_opens_it_takes_it_over(folder: ObjectPath) -> None:
    first = reopen(folder)
    first.append({"n": 1}, sync=True)
    second = reopen(folder)
    with pytest.raises(CheckpointFencedError, match="took over the checkpoint"):
        first.append({"n": 2}, sync=True)
    with pytest.raises(CheckpointFencedError):
        first.write_snapshot({}, {})
    first.close()
    second.append({"n": 3}, sync=True)
    assert is_held(folder / "lock")
    second.close()
    with reopen(folder) as third:
        assert [record["n"] for record in third.records] == [1, 3]


def test_a_commit_is_one_request() -> None:
    store, folder = memory_place()
    with reopen(folder) as checkpoint:
        store.operations.clear()
        for n in range(5):
            checkpoint.append({"n": n}, sync=False)
        checkpoint.append({"n": 6}, sync=True)
        assert [what for what, _ in store.operations] == ["put_new"]
        store.operations.clear()
        checkpoint.write_tables("a", {"x": table(1)})
        assert [what for what, _ in store.operations] == ["put"]


def test_many_commits_are_due_for_a_snapshot_as_many_bytes_are() -> None:
    with reopen(memory_place()[1]) as checkpoint:
        for n in range(100):
            checkpoint.append({"n": n}, sync=True)
        assert checkpoint.log_bytes < 20_000
        assert checkpoint.total_bytes > 100 * (60 << 10)
        checkpoint.write_snapshot({}, {})
        assert checkpoint.total_bytes < 1 << 20


def test_a_damaged_or_missing_piece_is_an_error() -> None:
    store, folder = memory_place()
    with reopen(folder) as checkpoint:
        for n in range(3):
            checkpoint.append({"n": n}, sync=True)
    key = "some/folder/log/e000001-000001.log/000000000003"
    content = store.content[key]
    store.content[key] = (content[0].replace(b'"n":1', b'"n":2'), content[1])
    with pytest.raises(CheckpointCorruptError):
        reopen(folder)
    store.remove(key)
    with pytest.raises(CheckpointCorruptError):
        reopen(folder)


def _overtaken(act: Callable[[Checkpoint], list[int]], step: int, snapshot: bool) -> tuple[bool, list[int], list[int]]:
    """Let another application open the checkpoint, and perhaps replace the log, before an operation of what one does.

    Returns:
        Whether there are so many operations; what the first called committed; what the second has read.
    """
    store, folder = memory_place()
    first, read = reopen(folder), []
    begun = store.now

    def other(now: int) -> None:
        if now == begun + step:
            store.before = None
            second = reopen(folder)
            read.extend(_numbers(second))
            second.append({"n": 1000}, sync=True)
            if snapshot:
                second.write_snapshot({"numbers": [*read, 1000]}, {})
            second.close()

    store.before = other
    committed = act(first)
    done = store.before is None
    store.before = None
    with reopen(folder) as last:
        if done:
            assert _numbers(last) == [*read, 1000]
    return done, committed, read


def _numbers(checkpoint: Checkpoint) -> list[int]:
    before = list(checkpoint.snapshot.state["numbers"]) if checkpoint.snapshot else []
    return before + [record["n"] for record in checkpoint.records]


def _commits_and_snapshots(checkpoint: Checkpoint) -> list[int]:
    committed: list[int] = []
    with suppress(CheckpointFencedError):
        for n in range(6):
            checkpoint.write_tables("a", {"x": table(n)})
            checkpoint.append({"n": n}, sync=True)
            committed.append(n)
            if n % 3 == 2:
                checkpoint.write_snapshot({"numbers": committed}, {})
    return committed


@pytest.mark.parametrize("snapshot", [False, True])
def test_overtaken_at_any_moment(snapshot: bool) -> None:
    """What the first called committed, the second has read, and the first commits nothing afterwards."""
    for step in range(1, 200):
        done, committed, read = _overtaken(_commits_and_snapshots, step, snapshot)
        if not done:
            break
        assert read == committed
    assert 25 < step < 199


@pytest.mark.parametrize("seed", range(40))
def test_what_was_called_committed_is_there_whatever_the_store_does(seed: int) -> None:
    """Puts fail, or happen without an answer; applications crash and take over."""
    store, folder = memory_place()
    committed: list[int] = []
    n = 0
    for opening in range(8):
        store.faults = Faults(seed, refused=0.03, lost=0.1)
        checkpoint: Checkpoint | None = None
        with suppress(CheckpointError):
            checkpoint = reopen(folder)
            found = _numbers(checkpoint)
            assert found[: len(committed)] == committed
            assert len(found) <= len(committed) + 1
            committed = found
            for _ in range(opening + 1):
                n += 1
                checkpoint.append({"n": n}, sync=True)
                committed.append(n)
                if n % 4 == 0:
                    checkpoint.write_snapshot({"numbers": committed}, {"x": table(n)})
    store.faults = Faults()
    with reopen(folder) as checkpoint:
        assert _numbers(checkpoint)[: len(committed)] == committed


def _entries(log: FileLog) -> list[tuple[int, str]]:
    return [(entry.position, entry.path) for entry in log.between(0, 1 << 40)]


def test_the_log_of_files_in_a_store(folder: ObjectPath) -> None:
    log = FileLog(folder)
    log.append([(f"s3://b/{n}", n, n) for n in range(3)])
    log.append([("s3://b/x/3", 3, 3)])
    crc = log.crc_at(4)
    newer = FileLog(folder)
    assert _entries(newer) == [(0, "s3://b/0"), (1, "s3://b/1"), (2, "s3://b/2"), (3, "s3://b/x/3")]
    assert (newer.crc_at(4), list(newer.directories)) == (crc, ["s3://b", "s3://b/x"])
    with pytest.raises(OSError, match="another application"):
        log.append([("s3://b/late", 1, 1)])
    assert newer.forget(2, lambda paths: paths) == 2
    newer.append([("s3://b/4", 4, 4)])
    newer.close()
    assert _entries(FileLog(folder)) == [(2, "s3://b/2"), (3, "s3://b/x/3"), (4, "s3://b/4")]


def test_the_log_of_files_does_not_fall_into_ever_more_pieces() -> None:
    store, folder = memory_place()
    log = FileLog(folder)
    for n in range(450):
        log.append([(f"s3://b/{n}", n, n)])
    assert len((folder / "files.jsonl").entries()) < 210
    assert [place for place, _ in _entries(FileLog(folder))] == list(range(450))
    assert store.now < 2000


def test_requests_to_an_application(folder: ObjectPath) -> None:
    clock = ManualClock(NOON)
    with pytest.raises(CheckpointError, match="no checkpoint"):
        ask(folder, {}, clock, 0)
    with reopen(folder) as checkpoint:
        inbox = Inbox(checkpoint.path, clock)
        (folder / "control" / "1.request.json").put(json.dumps({"operation": "pause", "until": NOON + 1}).encode())
        (asked,) = inbox.take()
        assert asked.request["operation"] == "pause"
        inbox.answer(asked, {"done": True})
        assert json.loads((folder / "control" / "1.answer.json").read_bytes()) == {"done": True}
        assert inbox.take() == []
    with pytest.raises(ControlError, match="No application runs"):
        ask(folder, {}, clock, 0)


def test_nothing_of_the_environment_is_in_a_checkpoint(s3: str, s3_place: Callable[[], ObjectPath]) -> None:
    folder = s3_place()
    with reopen(folder) as checkpoint:
        checkpoint.append({"n": 1}, sync=True)
        checkpoint.write_snapshot({}, {})
    assert not any(b"a-secret" in (folder / entry.name).read_bytes() for entry in folder.walk())
    with pytest.raises(CheckpointError, match="credentials") as error:
        Checkpoint.open("s3://key:a-secret@transom/x", ManualClock(NOON))
    assert "a-secret" not in str(error.value)


def test_a_store_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    store, folder = memory_place(Faults(refused=1.0))
    with pytest.raises(CheckpointError, match="503 Slow Down") as error:
        reopen(folder)
    assert "store answers" in error.value.remedy
    assert isinstance(store, MemoryObjects)


def test_an_application_that_waits_for_data_finds_out_that_it_was_overtaken(folder: ObjectPath) -> None:
    clock = ManualClock(NOON)
    with reopen(folder) as first:
        remote = Remote(Inbox(first.path, clock), clock, lambda _: (), first.check_unlocked)
        remote.look()
        second = reopen(folder)
        clock.advance(CHECK_EVERY)
        with pytest.raises(CheckpointFencedError):
            remote.look()
        second.close()
