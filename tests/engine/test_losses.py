"""The cost of losing executors, from merges that read again: no Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from transom.engine.cluster.losses import Losses


def merge(store: str, *rows: int) -> Any:
    slices = [SimpleNamespace(group=group, rows=count) for group, count in enumerate(rows)]
    return SimpleNamespace(store=store, parts=[SimpleNamespace(files=SimpleNamespace(slices=slices))])


def done(read: int, reading: int) -> Any:
    return [SimpleNamespace(read=read, reading=reading)]


def test_the_first_merge_of_each_store_after_a_loss_counts() -> None:
    losses, a, b = Losses(), merge("a", 100, 300), merge("b", 50, 50)
    assert losses.estimate == 0
    losses.held([a, b], lambda group: f"e{group}")
    losses.merged([(a, done(400, 800)), (b, done(100, 200))], 900)
    assert losses.estimate == 350 * 1000 // 500, "the executor with most rows, at the measured speed"
    assert losses.last is None
    losses.lost({"e1"})
    losses.merged([(a, done(300, 600))], 700)
    losses.merged([(a, done(5, 5))], 10)
    losses.merged([(b, done(50, 90))], 100)
    losses.merged([(b, done(7, 7))], 10)
    assert losses.last is not None
    assert (losses.last.lost, losses.last.took, losses.last.rows) == (("e1",), 800, 350)
