"""What the application does, and says, when key groups should move and executors are lost: no Spark."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from transom.engine.cluster.merges import ExecutorLoss, Standing
from transom.engine.control.tiers import BALANCE_EVERY, Tiers
from transom.engine.streams.cuts import JobOptions
from transom.placement.balance import Move
from transom.placement.migration import Strategy
from transom.settings import Settings

MOVE = Move(2, "1", "3", 5.0)


class Executors:
    """Says what it is told to, and keeps what it is asked."""

    def __init__(self) -> None:
        self.standing = Standing({"1": 3, "2": 3})
        self.moves: list[Move] = []
        self.asked: list[bool] = []
        self.migrated: list[tuple[Any, ...]] = []

    def due_moves(self, merges: list[Any], balance: bool) -> list[Move]:
        assert merges == ["merge"]
        self.asked.append(balance)
        return self.moves

    def migrate(self, *arguments: Any) -> None:
        self.migrated.append(arguments)


def stream(executors: Executors, parts: int = 1) -> Any:
    store = SimpleNamespace(parts=[None] * parts, in_files=lambda: "merge")
    return SimpleNamespace(
        name="trips",
        session=SimpleNamespace(_jsparkSession=None),
        state=SimpleNamespace(stores=[SimpleNamespace(store=store)], executors=executors, cut=7),
        max_event_time=lambda: 99,
        options=JobOptions(),
    )


def tiers(one: Any, notes: list[str], **settings: Any) -> Tiers:
    return Tiers({one.name: one}, replace(Settings(), tier="cluster", **settings), notes.append)


def test_moves_are_instant_from_the_next_cut_on_and_told() -> None:
    executors, notes = Executors(), []
    executors.moves = [MOVE]
    one = stream(executors)
    tiers(one, notes).balance(one)
    assert executors.migrated == [([MOVE], Strategy.INSTANT, 8, 100, ["merge"])]
    assert notes == ["Key groups of trips move: 2 from 1 to 3."]


def test_loads_are_evened_out_now_and_then_and_nothing_is_asked_without_files() -> None:
    executors, notes = Executors(), []
    one = stream(executors)
    all_tiers = tiers(one, notes)
    for _ in range(2 * BALANCE_EVERY):
        all_tiers.balance(one)
    assert [number for number, balance in enumerate(executors.asked, 1) if balance] == [
        BALANCE_EVERY,
        2 * BALANCE_EVERY,
    ]
    nothing = stream(Executors(), parts=0)
    tiers(nothing, notes).balance(nothing)
    assert (nothing.state.executors.asked, notes) == ([], [])


@pytest.mark.parametrize(
    ("took", "words"), [(900_000, "in 0.9 s, within the bound of 1 second"), (2_000_000, "beyond")]
)
def test_a_loss_is_told_once_with_what_it_cost(took: int, words: str) -> None:
    executors, notes = Executors(), []
    one = stream(executors)
    all_tiers = tiers(one, notes, recovery_bound=1_000_000)
    executors.standing = Standing(recovered=ExecutorLoss(("2",)))
    all_tiers.balance(one)
    assert notes == [], "it is not known yet what it costs"
    executors.standing = Standing(recovered=ExecutorLoss(("2",), took, 12_000))
    all_tiers.balance(one)
    all_tiers.balance(one)
    (note,) = notes
    assert "Executor 2 is gone; trips read 12,000 rows" in note
    assert words in note


def test_it_says_once_that_a_loss_would_take_longer_than_the_bound() -> None:
    executors, notes = Executors(), []
    one = stream(executors)
    all_tiers = tiers(one, notes, recovery_bound=1_000_000)
    for recovery in (5, 3_000_000, 4_000_000, 900_000, 3_000_000):
        executors.standing = Standing(recovery=recovery)
        all_tiers.balance(one)
    assert len(notes) == 2, "again when it was within the bound in between"
    assert "windows of trips may be 3 s late, beyond the bound of 1 second: give more executors" in notes[0]
