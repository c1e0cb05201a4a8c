"""A real file system that fills up: a clear error, nothing is lost, and it goes on when there is space."""

from __future__ import annotations

import subprocess

import pytest
from checkpoint_helpers import reopen, segments, table

from transom.checkpoint import describe
from transom.errors import CheckpointFullError


@pytest.fixture
def disk(small_disk):
    return small_disk("512k")


def fill(disk, leave=0):
    """Fill the disk with ballast, except for some bytes; return the ballast."""
    ballast = disk / "ballast"
    with open(ballast, "wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)) == 4096:
                pass
        except OSError:
            pass
        file.truncate(max(0, file.tell() - leave))
    return ballast


def test_the_log_fills_the_disk(disk):
    path = disk / "checkpoint"
    checkpoint = reopen(path)
    done = 0

    def append_until_full():
        nonlocal done
        while True:
            checkpoint.append({"n": done, "text": "x" * 1000}, sync=True)
            done += 1

    with pytest.raises(CheckpointFullError, match=r"disk is full: could not append to .* Free some space"):
        append_until_full()
    assert done > 100
    with pytest.raises(CheckpointFullError):
        checkpoint.append({"n": done, "text": "x" * 5000}, sync=True)
    assert describe(path)["records"] == done
    assert describe(path)["torn_bytes"] == 0
    checkpoint.close()

    with pytest.raises(CheckpointFullError):  # nor can it be opened: a writer has to write
        reopen(path)
    subprocess.run(["mount", "-o", "remount,size=4m", str(disk)], check=True)
    with reopen(path) as checkpoint:
        assert [record["n"] for record in checkpoint.records] == list(range(done))
        checkpoint.write_snapshot({"done": done}, {})
        assert checkpoint.log_bytes < 1000


def test_going_on_after_space_was_freed(disk):
    path = disk / "checkpoint"
    with reopen(path) as checkpoint:
        checkpoint.append({"n": 1}, sync=True)
        checkpoint.write_tables("a", {"t": table(1)})
        checkpoint.write_snapshot({"n": 1}, {"s": table(1)})
        checkpoint.write_tables("a", {"t": table(2)})
        ballast = fill(disk, leave=8192)
        big = {"t": table(*range(5000))}
        for write in (
            lambda: checkpoint.write_tables("a", big),
            lambda: checkpoint.write_tables("b", big),
            lambda: checkpoint.write_snapshot({"n": 2}, big),
            lambda: checkpoint.append({"text": "x" * 20_000}, sync=True),
        ):
            with pytest.raises(CheckpointFullError, match="All that was committed is safe"):
                write()
            assert not list(path.rglob("*.tmp"))
        assert checkpoint.read_tables("a") == {"t": table(2)}
        ballast.unlink()
        checkpoint.append({"n": 2}, sync=True)
        checkpoint.write_tables("b", big)
    with reopen(path) as checkpoint:
        assert checkpoint.snapshot is not None
        assert (checkpoint.snapshot.state, checkpoint.records) == ({"n": 1}, [{"n": 2}])
        assert checkpoint.read_tables("a") == {"t": table(2)}
        assert checkpoint.read_tables("b") == big
        assert len(segments(path)) > 1


def test_a_full_disk_at_the_first_opening(disk):
    path = disk / "checkpoint"
    ballast = fill(disk)
    with pytest.raises(CheckpointFullError):
        reopen(path)
    ballast.unlink()
    with reopen(path) as checkpoint:
        assert checkpoint.is_new
        checkpoint.append({"n": 1}, sync=True)
