"""Files of a checkpoint that were damaged after they were written: each is found when it is opened, and named."""

from __future__ import annotations

import shutil

import pytest
from checkpoint_helpers import files, reopen, segments, table

from transom.errors import CheckpointCorruptError


@pytest.fixture
def path(tmp_path):
    """A checkpoint with two lives, a snapshot between them, and records after each."""
    path = tmp_path / "checkpoint"
    with reopen(path) as checkpoint:
        checkpoint.append({"n": 1}, sync=True)
        checkpoint.write_snapshot({"upto": 1}, {"x": table(1)})
        shutil.copytree(path, tmp_path / "older")
        checkpoint.append({"n": 2}, sync=True)
        checkpoint.write_snapshot({"upto": 2}, {"x": table(2)})
        checkpoint.append({"n": 3}, sync=True)
    with reopen(path) as checkpoint:
        checkpoint.append({"n": 4}, sync=True)
        checkpoint.append({"n": 5}, sync=True)
    return path


def test_undamaged(path):
    with reopen(path) as checkpoint:
        assert [record["n"] for record in checkpoint.records] == [3, 4, 5]


@pytest.mark.parametrize("synced", [True, False])
def test_an_end_that_was_durable_is_missed(path, synced):
    with reopen(path) as checkpoint:
        checkpoint.append({"n": 6}, sync=synced)
        last = segments(path)[-1]
        data = last.read_bytes()
        copy = shutil.copytree(path, path.with_name("copy"))
    last = copy / "log" / last.name
    last.write_bytes(data[: data.rfind(b"\n", 0, -1) + 1])
    if synced:
        with pytest.raises(CheckpointCorruptError, match="The end of the log in"):
            reopen(copy)
    else:
        with reopen(copy) as checkpoint:
            assert [record["n"] for record in checkpoint.records] == [3, 4, 5]


def test_a_writer_whose_log_is_gone_is_missed(path):
    segments(path)[-1].unlink()
    with pytest.raises(CheckpointCorruptError, match=r"e000002-000001\.log is missing"):
        reopen(path)


def test_a_last_segment_that_is_gone_is_missed(tmp_path, monkeypatch):
    path = tmp_path / "checkpoint"
    with reopen(path) as checkpoint:
        checkpoint.append({"n": 1}, sync=True)
        checkpoint._log.go_on()
        checkpoint.append({"n": 2}, sync=True)
    segments(path)[-1].unlink()
    with pytest.raises(CheckpointCorruptError, match="The end of the log in"):
        reopen(path)


@pytest.mark.parametrize("damage", ["flip", "remove"])
def test_without_its_head_a_log_is_read_as_far_as_it_goes(path, damage):
    (head,) = (path / "log").glob("*.head")
    if damage == "flip":
        head.write_bytes(head.read_bytes().replace(b"number", b"NUMBER"))
    else:
        head.unlink()
    with reopen(path) as checkpoint:
        assert [record["n"] for record in checkpoint.records] == [3, 4, 5]
    assert [head.name for head in (path / "log").glob("*.head")] == ["e000003.head"]


def test_an_older_snapshot_under_the_name_of_a_newer_one_is_refused(path):
    (older,) = files(path.with_name("older"), "snapshots")
    (newer,) = files(path, "snapshots")
    assert older != newer
    shutil.copy(path.with_name("older") / "snapshots" / older, path / "snapshots" / newer)
    with pytest.raises(CheckpointCorruptError, match="another snapshot than its name says"):
        reopen(path)


def test_a_snapshot_of_another_checkpoint_is_refused(path, tmp_path):
    other = tmp_path / "other"
    with reopen(other) as checkpoint:
        checkpoint.write_snapshot({"upto": 7}, {})
        checkpoint.write_snapshot({"upto": 8}, {})
    (name,) = files(path, "snapshots")
    shutil.copy(other / "snapshots" / name, path / "snapshots" / name)
    with pytest.raises(CheckpointCorruptError, match="not the one that the log tells of"):
        reopen(path)


def test_a_log_of_another_checkpoint_is_refused(path, tmp_path):
    other = tmp_path / "other"
    with reopen(other) as checkpoint:
        checkpoint.append({"n": 9}, sync=True)
    with reopen(other) as checkpoint:
        checkpoint.append({"n": 9}, sync=True)
        checkpoint.append({"n": 9}, sync=True)
    shutil.copy(segments(other)[-1], segments(path)[-1])
    with pytest.raises(CheckpointCorruptError):
        reopen(path)
