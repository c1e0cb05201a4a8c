"""Python workers start while queries are planned, where they are needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pytest

import transom as tm
from transom.engine.execution import splits, workers
from transom.sources.base import Source

SOURCES: dict[str, tuple[Callable[[Path], Source], bool]] = {
    "memory": (lambda place: tm.sources.memory("a string"), False),
    "comments": (lambda place: tm.sources.files(f"{place}/*.csv", schema="a string", options={"comment": "#"}), False),
    "lines": (lambda place: tm.sources.files(f"{place}/*.json", schema="a string"), True),
}


@pytest.mark.parametrize("name", SOURCES)
def test_workers_start_once_if_they_may_read(
    interpreted: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """They import what tasks need, which gives nothing; that it fails nobody hears: the first cut tells."""
    ran: list[tuple[Any, int]] = []

    def run(session: Any, function: Any, tasks: int) -> list[bytes]:
        ran.append((function, tasks))
        raise ModuleNotFoundError("No module named 'transom'")

    monkeypatch.setattr(workers, "_waking", WeakKeyDictionary())
    monkeypatch.setattr(workers, "run_in_workers", run)
    make, starts = SOURCES[name]
    for _ in range(2):
        workers.wake_workers(interpreted, [make(tmp_path)])
    for thread in list(workers._waking.values()):
        thread.join()
    assert ran == [(splits.awake, interpreted.sparkContext.defaultParallelism)] * starts


def test_what_workers_do_as_they_start_gives_nothing(interpreted: Any) -> None:
    assert workers.run_in_workers(interpreted, splits.awake, 2) == []
