"""What becomes of a merge on the executors that fails: tried again by store, then the driver if it is small."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from transom.engine.cluster import merging
from transom.engine.cluster.merging import PATIENCE, SparkGroupExecutors
from transom.engine.placed.placed import NoExecutorError
from transom.errors import CheckpointCorruptError, QueryFailedError
from transom.model.time import ManualClock

SMALL, LARGE = SimpleNamespace(nbytes=10), SimpleNamespace(nbytes=1_000)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def executors(tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Executors whose tries fail with the errors of a list, then give their number of merges."""
    session: Any = None
    made: Any = SparkGroupExecutors(session, tmp_path, clock, groups=2, driver_bytes=100)
    made.errors, made.tries = [], []

    def on_spark(merges: Sequence[Any]) -> list[Any]:
        made.tries.append(len(merges))
        if made.errors:
            raise made.errors.pop(0)
        return [["executors"] for _ in merges]

    monkeypatch.setattr(made, "_on_spark", on_spark)
    monkeypatch.setattr(merging.Here, "run", lambda _, merges: [["driver"] for _ in merges])
    return made


def test_what_passes_is_tried_again_store_by_store(executors: Any) -> None:
    executors.errors = [ValueError("one task")]
    assert executors.run([SMALL, LARGE]) == [["executors"], ["executors"]]
    assert executors.tries == [2, 1, 1]


def test_the_driver_merges_only_what_is_small(executors: Any) -> None:
    executors.errors = [ValueError("no memory")] * 3
    small, large = executors.run([SMALL, LARGE])
    assert small == ["driver"]
    assert isinstance(large, QueryFailedError)
    assert "1,000 bytes of partials" in str(large)
    assert "ValueError: no memory" in str(large)
    assert "driver_bytes" in large.remedy


def test_what_is_too_large_for_the_driver_waits_for_executors(executors: Any, clock: ManualClock) -> None:
    executors.errors = [NoExecutorError("Spark has no executor.")] * 6
    assert executors.run([LARGE]) == [["executors"]]
    assert 0 < clock.monotonic() < PATIENCE
    executors.errors = [NoExecutorError("Spark has no executor.")] * 1_000
    (found,) = executors.run([LARGE])
    assert isinstance(found, QueryFailedError)
    assert clock.monotonic() < 2 * PATIENCE
    assert executors.run([SMALL]) == [["driver"]], "at once: a window is due"


def test_what_the_driver_cannot_do_either_ends_the_run(executors: Any) -> None:
    executors.errors = [CheckpointCorruptError("A file is damaged.")]
    with pytest.raises(CheckpointCorruptError):
        executors.run([SMALL])
    assert executors.tries == [1]
