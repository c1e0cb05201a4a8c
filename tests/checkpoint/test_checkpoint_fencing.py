"""One writer at a time: the lock on one machine, the epoch between machines."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from checkpoint_helpers import files, reopen, segments, table

from transom.errors import (
    CheckpointCorruptError,
    CheckpointError,
    CheckpointFencedError,
    CheckpointInUseError,
)

HOLDER = """
import sys
from transom.checkpoint import Checkpoint
from transom.model.time import SystemClock
checkpoint = Checkpoint.open(sys.argv[1], SystemClock())
checkpoint.append({"by": "child"}, sync=True)
checkpoint.append({"by": "child", "last": True}, sync=False)
print("open", flush=True)
sys.stdin.read()
"""

OPENER = """
import sys
from transom.checkpoint import Checkpoint
from transom.errors import CheckpointInUseError
from transom.model.time import SystemClock
try:
    Checkpoint.open(sys.argv[1], SystemClock())
except CheckpointInUseError as error:
    print(error)
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "checkpoint"


def test_a_second_opener_in_this_process_is_refused(path):
    with reopen(path) as checkpoint:
        with pytest.raises(CheckpointInUseError, match=f"by process {os.getpid()} on host .* since 2023-11"):
            reopen(path)
        checkpoint.append({"n": 1}, sync=True)  # and did no harm
    with reopen(path) as checkpoint:
        assert checkpoint.epoch == 2


def test_a_second_opener_in_another_process_is_refused(path):
    with reopen(path) as checkpoint:
        run = subprocess.run(
            [sys.executable, "-c", OPENER, str(path)], capture_output=True, text=True, check=True, timeout=600
        )
        assert f"in use by process {os.getpid()} on host" in run.stdout
        assert "Stop that application first" in run.stdout
        checkpoint.append({"n": 1}, sync=True)


def test_a_killed_process_frees_the_lock_at_once(path):
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        with pytest.raises(CheckpointInUseError, match=f"process {child.pid}"):
            reopen(path)
        child.kill()
        child.wait()
    with reopen(path) as checkpoint:
        assert checkpoint.records == [{"by": "child"}, {"by": "child", "last": True}]


@pytest.mark.parametrize(
    "write",
    [
        lambda c: c.append({"late": 1}, sync=True),
        lambda c: c.write_tables("late", {"t": table(1)}),
        lambda c: c.write_snapshot({"late": 1}, {}),
        lambda c: c.check_writer(),
    ],
)
def test_a_replaced_writer_is_fenced(path, write):
    old = reopen(path)
    old.append({"n": 1}, sync=True)
    with reopen(path, lock=False) as new:
        assert new.records == [{"n": 1}]
        new.append({"n": 2}, sync=True)
        with pytest.raises(CheckpointFencedError, match="its writer epoch is 2, ours is 1"):
            write(old)
        with pytest.raises(CheckpointFencedError):
            old.append({"late": 2}, sync=False)
        with pytest.raises(CheckpointFencedError):
            old.check_writer()
        old.close()
        new.append({"n": 3}, sync=True)
    for _ in range(2):
        with reopen(path) as checkpoint:
            assert checkpoint.records == [{"n": 1}, {"n": 2}, {"n": 3}]
            assert checkpoint.snapshot is None


@pytest.mark.parametrize(
    "step",
    [lambda c: c.write_tables("cut", {"t": table(2)}), lambda c: c.write_snapshot({}, {})],
    ids=["tables", "snapshot"],
)
def test_a_writer_that_is_replaced_while_it_writes_is_fenced(path, monkeypatch, step):
    """And removes nothing: the new writer may rely on all that it found."""
    old = reopen(path)
    old.append({"n": 1}, sync=True)
    old.write_tables("cut", {"t": table(1)})
    replace, others = os.replace, []

    def call(source, target):
        if not others and str(target).endswith((".tables", ".snapshot")):
            others.append(None)
            others.append(reopen(path, lock=False))
            Path(source).touch()  # the new writer tidied it away; here the old one is quicker
        replace(source, target)

    monkeypatch.setattr(os, "replace", call)
    with pytest.raises(CheckpointFencedError):
        step(old)
    others[1].append({"n": 2}, sync=True)
    assert others[1].read_tables("cut") == {"t": table(1)}
    others[1].close()
    with reopen(path, lock=False) as checkpoint:
        assert (checkpoint.snapshot, checkpoint.records) == (None, [{"n": 1}, {"n": 2}])
        assert checkpoint.read_tables("cut") == {"t": table(1)}


def test_what_a_replaced_writer_appends_is_ignored_for_ever(path):
    old = reopen(path)
    old.append({"n": 1}, sync=True)
    old.write_tables("cut", {"t": table(1)})
    with reopen(path, lock=False) as new:
        old.append({"late": 1}, sync=False)  # not checked, and never counts
        shutil.copytree(path, path.parent / "copy")
        new.append({"n": 2}, sync=True)
    old.append({"late": 2}, sync=False)
    for root in (path, path.parent / "copy"):
        for _ in range(3):
            with reopen(root, lock=root != path) as checkpoint:
                assert {"late": 1} not in checkpoint.records
                assert {"late": 2} not in checkpoint.records
                assert checkpoint.records[0] == {"n": 1}


def test_what_a_replaced_writer_renames_late_is_ignored(path):
    """The old writer stops between its check and its rename, and goes on after the new one has opened."""
    with reopen(path) as old:
        old.write_tables("cut", {"t": table(1)})
    with reopen(path) as new:
        new.write_tables("other", {"t": table(2)})
    (path / "partials" / "cut.e000001-000099.tables").write_bytes(b"late")
    (path / "partials" / "late.e000001-000098.tables").write_bytes(b"late")
    (path / "snapshots" / "e000001-000099.snapshot").write_bytes(b"late")
    (path / "log" / "e000001-000099.log").write_bytes(b"late")
    with reopen(path) as checkpoint:
        assert checkpoint.snapshot is None
        assert checkpoint.read_tables("cut") == {"t": table(1)}
        assert checkpoint.read_tables("other") == {"t": table(2)}
    assert len(files(path, "partials")) == 2
    assert files(path, "snapshots") == []


def test_a_new_writer_goes_on_from_what_the_old_one_committed_before_the_claim(path):
    old = reopen(path)
    old.write_snapshot({"n": 0}, {"t": table(1)})
    old.append({"n": 1}, sync=False)
    with reopen(path, lock=False) as second:
        assert second.records == [{"n": 1}]
        with reopen(path, lock=False) as third:
            assert third.epoch == 3
            assert third.records == [{"n": 1}]
            assert third.snapshot is not None
            for fenced in (old, second):  # also when the claim after theirs was removed
                with pytest.raises(CheckpointFencedError, match="is 3"):
                    fenced.check_writer()
            assert files(path, "epochs") == ["e000003"]


def test_an_epoch_is_claimed_once(path):
    with reopen(path):
        pass
    (path / "epochs" / "e000002").touch()  # another opener claimed it, and was killed
    with reopen(path) as checkpoint:
        assert checkpoint.epoch == 3
    shutil.rmtree(path / "epochs")
    with reopen(path) as checkpoint:
        assert checkpoint.epoch == 4


def test_a_removed_checkpoint_is_noticed(path):
    checkpoint = reopen(path)
    shutil.rmtree(path)
    with pytest.raises(CheckpointError, match="was removed while it was in use"):
        checkpoint.append({"n": 1}, sync=True)


def test_the_newest_claim_wins_when_two_open_at_once(path, monkeypatch):
    from transom.checkpoint import store

    with reopen(path) as checkpoint:
        checkpoint.append({"n": 1}, sync=True)
    winners = []

    def overtaken(root):
        taken = original(root)
        monkeypatch.setattr(store, "take_over", original)
        winners.append(reopen(path, lock=False))
        return taken

    original = store.take_over
    monkeypatch.setattr(store, "take_over", overtaken)
    with pytest.raises(CheckpointFencedError):
        reopen(path)
    winners[0].append({"n": 2}, sync=True)
    winners[0].close()
    with reopen(path) as checkpoint:
        assert checkpoint.records == [{"n": 1}, {"n": 2}]
    assert len(segments(path)) == 3


def test_files_that_a_newer_writer_removed_while_we_read_are_no_damage(path, monkeypatch):
    from transom.checkpoint import opening

    with reopen(path) as checkpoint:
        checkpoint.append({"n": 1}, sync=True)
    original, newer = opening.read_history, []

    def overtaken(root):
        monkeypatch.setattr(opening, "read_history", original)
        newer.append(reopen(path, lock=False))
        newer[0].write_snapshot({}, {})
        raise CheckpointCorruptError("missing")

    monkeypatch.setattr(opening, "read_history", overtaken)
    with pytest.raises(CheckpointFencedError):
        reopen(path)
    newer[0].check_writer()
    newer[0].close()
