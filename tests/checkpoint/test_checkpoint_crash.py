"""A crash between any two calls of the file system leaves the old state or the new one."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
from checkpoint_helpers import reopen, segments, table

from transom.checkpoint import Checkpoint, describe
from transom.checkpoint.files import write_atomically
from transom.errors import CheckpointCorruptError, CheckpointError, CheckpointFullError


def contents(checkpoint: Checkpoint, names: tuple[str, ...]) -> object:
    """Everything that a checkpoint holds, comparable."""
    snapshot = checkpoint.snapshot
    tables: dict[str, object] = {}
    for name in names:
        if any(file.name.startswith(f"{name}.") for file in (checkpoint.path / "partials").iterdir()):
            tables[name] = {key: value.to_pylist() for key, value in checkpoint.read_tables(name).items()}
    return (
        snapshot and (snapshot.state, {key: value.to_pylist() for key, value in snapshot.tables.items()}),
        checkpoint.records,
        tables,
    )


class Photographer:
    """Copies a directory before each call that changes the file system."""

    def __init__(self, path: Path, album: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.album = path, album
        self.active = False
        self.calls: list[str] = []
        for owner, name in ((os, "fsync"), (os, "replace"), (os, "write"), (Path, "unlink")):
            monkeypatch.setattr(owner, name, self._wrapped(name, getattr(owner, name)))

    def _wrapped(self, name, function):
        def call(*args, **kwargs):
            if self.active:
                self.photograph(name)
            return function(*args, **kwargs)

        return call

    def photograph(self, name="end"):
        self.active = False
        shutil.copytree(self.path, self.album / f"{len(self.calls):04d}")
        self.calls.append(name)
        self.active = True

    def states(self):
        self.active = False
        for photo in sorted(self.album.iterdir()):
            with reopen(photo) as checkpoint:
                first = contents(checkpoint, ("a", "b"))
            with reopen(photo) as checkpoint:
                assert contents(checkpoint, ("a", "b")) == first
            assert not list(photo.rglob("*.tmp"))
            yield first


@pytest.mark.parametrize(
    "step",
    [
        lambda c: c.write_snapshot({"n": 2}, {"t": table(3)}),
        lambda c: c.write_tables("a", {"t": table(4)}),
        lambda c: c.write_tables("a", {"t": table(4)}, sync=False),
        lambda c: c.append({"n": 3}, sync=True),
    ],
    ids=["snapshot", "tables", "tables-unsynced", "append"],
)
def test_each_step_is_atomic(step, tmp_path, monkeypatch):
    path = tmp_path / "checkpoint"
    (tmp_path / "album").mkdir()
    with reopen(path) as checkpoint:
        checkpoint.append({"n": 0}, sync=True)
        checkpoint.write_snapshot({"n": 1}, {"t": table(1)})
        checkpoint.append({"n": 1}, sync=True)
        checkpoint.write_tables("a", {"t": table(1)})
    with reopen(path) as checkpoint:
        checkpoint.append({"n": 2}, sync=False)
        checkpoint.write_tables("b", {"t": table(2)})
        photographer = Photographer(path, tmp_path / "album", monkeypatch)
        photographer.photograph()
        step(checkpoint)
        photographer.photograph()
        states = list(photographer.states())
    assert len(states) > 2
    old, new = states[0], states[-1]
    assert old != new
    switch = states.index(new)
    assert all(state == old for state in states[:switch])
    assert all(state == new for state in states[switch:])


def test_opening_changes_nothing_that_counts(tmp_path, monkeypatch):
    path = tmp_path / "checkpoint"
    (tmp_path / "album").mkdir()
    photographer = Photographer(path, tmp_path / "album", monkeypatch)
    path.mkdir()
    photographer.photograph()
    for n in range(3):
        with reopen(path) as checkpoint:
            photographer.active = False
            checkpoint.append({"n": n}, sync=True)
            checkpoint.write_tables("a", {"t": table(n)})
            if n == 1:
                checkpoint.write_snapshot({"n": 1}, {})
            photographer.photograph()
    seen = []
    for snapshot, records, _ in photographer.states():
        state = (snapshot and snapshot[0]["n"], [record["n"] for record in records])
        if state not in seen:
            seen.append(state)
    assert seen == [(None, []), (None, [0]), (1, []), (1, [2])]


def record_fsync(monkeypatch):
    """Return a list that will hold the path of each synced file."""
    synced = []
    fsync = os.fsync

    def call(handle):
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", call)
    return synced


def test_an_atomic_file_is_durable_before_it_has_its_name(tmp_path, monkeypatch):
    calls = record_fsync(monkeypatch)
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: (calls.append("replace"), replace(a, b)))
    assert write_atomically(tmp_path / "x", [b"ab", memoryview(b"c")]) == 3
    assert calls == [str(tmp_path / ".x.tmp"), "replace", str(tmp_path)]


def fail(monkeypatch, name, code):
    def call(*_args, **_kwargs):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, name, call)


def test_a_log_that_cannot_be_synced_is_not_written_again(tmp_path, monkeypatch):
    """After a failed fsync nobody knows what is on disk, and a second fsync would not tell."""
    path = tmp_path / "checkpoint"
    checkpoint = reopen(path)
    checkpoint.append({"n": 1}, sync=True)
    with monkeypatch.context() as patch:
        fail(patch, "fsync", errno.EIO)
        with pytest.raises(CheckpointError, match=r"Could not sync .* Check that the disk works"):
            checkpoint.append({"n": 2}, sync=True)
    for again in (lambda: checkpoint.append({"n": 3}, sync=True), lambda: checkpoint.write_snapshot({}, {})):
        with pytest.raises(CheckpointError, match="Could not sync"):
            again()
    checkpoint.close()
    with reopen(path) as checkpoint:
        assert checkpoint.records[0] == {"n": 1}
        assert {"n": 3} not in checkpoint.records


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("written", [0, 1, 9, 20])
def test_a_line_that_was_written_in_part_is_taken_back(tmp_path, monkeypatch, code, written):
    path = tmp_path / "checkpoint"
    write = os.write
    with reopen(path) as checkpoint:
        checkpoint.append({"n": 1}, sync=False)
        with monkeypatch.context() as patch:
            left = [written]

            def call(handle, data):
                if not left[0]:
                    raise OSError(code, os.strerror(code))
                count = write(handle, bytes(data)[: left[0]])
                left[0] -= count
                return count

            patch.setattr(os, "write", call)
            with pytest.raises(CheckpointFullError, match=r"The disk is full.* Free some space"):
                checkpoint.append({"n": 2, "x": "x" * 100}, sync=True)
        checkpoint.append({"n": 3}, sync=True)
    assert describe(path)["torn_bytes"] == 0
    with reopen(path) as checkpoint:
        assert checkpoint.records == [{"n": 1}, {"n": 3}]


@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_files_that_could_not_be_written_leave_nothing(tmp_path, monkeypatch, name):
    path = tmp_path / "checkpoint"
    with reopen(path) as checkpoint:
        checkpoint.write_tables("a", {"t": table(1)})
        with monkeypatch.context() as patch:
            fail(patch, name, errno.ENOSPC)
            with pytest.raises(CheckpointFullError):
                checkpoint.write_tables("a", {"t": table(2)})
            with pytest.raises(CheckpointFullError):
                checkpoint.write_snapshot({}, {})
        assert not list(path.rglob("*.tmp"))
        assert checkpoint.read_tables("a") == {"t": table(1)}
        checkpoint.append({"n": 1}, sync=True)
    with reopen(path) as checkpoint:
        assert checkpoint.read_tables("a") == {"t": table(1)}
        assert checkpoint.records == [{"n": 1}]


def test_a_snapshot_whose_name_may_not_be_durable_ends_the_writing(tmp_path, monkeypatch):
    path = tmp_path / "checkpoint"
    checkpoint = reopen(path)
    checkpoint.append({"n": 1}, sync=True)
    fsync = os.fsync

    def call(handle):
        if os.readlink(f"/proc/self/fd/{handle}").endswith("/snapshots"):
            raise OSError(errno.EIO, "broken")
        fsync(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", call)
        with pytest.raises(CheckpointError, match="broken"):
            checkpoint.write_snapshot({"n": 1}, {})
    with pytest.raises(CheckpointError, match="broken"):
        checkpoint.append({"n": 2}, sync=True)
    checkpoint.close()
    with reopen(path) as checkpoint:
        assert checkpoint.snapshot is not None
        assert (checkpoint.snapshot.state, checkpoint.records) == ({"n": 1}, [])


def test_a_segment_that_was_ended_is_complete(tmp_path, monkeypatch):
    """A snapshot that fails leaves the log in two segments; only the last of them can be torn."""
    path = tmp_path / "checkpoint"
    with reopen(path) as checkpoint:
        checkpoint.append({"n": 1}, sync=False)
        synced = []
        fsync = os.fsync
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), fsync(fd)))
            fail(patch, "replace", errno.ENOSPC)
            with pytest.raises(CheckpointFullError):
                checkpoint.write_snapshot({}, {})
        first = segments(path)[0]
        assert synced[0] == str(first)
        replace = os.replace

        def call(old, new):
            if str(new).endswith(".snapshot"):
                raise OSError(errno.ENOSPC, "full")
            replace(old, new)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", call)
            with pytest.raises(CheckpointFullError):
                checkpoint.write_snapshot({}, {})
        checkpoint.append({"n": 2}, sync=True)
    assert len(segments(path)) == 2
    data = first.read_bytes()
    first.write_bytes(data[:-1])
    with pytest.raises(CheckpointCorruptError, match=r"Line 2 of .*e000001-000001"):
        reopen(path)
    first.write_bytes(data)
    with reopen(path) as checkpoint:
        assert checkpoint.records == [{"n": 1}, {"n": 2}]


def test_what_an_opening_reads_is_durable_before_it_counts(tmp_path, monkeypatch):
    """A killed writer's last records may be in memory only; the next writer relies on them."""
    path = tmp_path / "checkpoint"
    reopen(path).append({"n": 1}, sync=False)
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), fsync(fd)))
    with reopen(path, lock=False) as checkpoint:
        assert checkpoint.records == [{"n": 1}]
    older, newer = segments(path)
    assert synced.index(str(older)) < synced.index(str(newer.with_name(f".{newer.name}.tmp")))
