"""Whose micro-batch runs next, from what queries tell: tables and properties, no Spark."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.model.time import Micros
from transom.model.window import tumbling
from transom.scheduling.policies import POLICIES, bounded, policy_named
from transom.scheduling.turns import Batch, Turn, next_turns

SECOND = 1_000_000
NOON = 1_700_000_100 * SECOND
KLINK = policy_named("klink")


def told(turn: Turn, seconds: int, *, every: Micros = SECOND // 2, delay: Micros = SECOND, lag: Micros = 0) -> Micros:
    """Let micro-batches end every so often; return when the last one began. Rows are `lag` old when they are read."""
    started, watermark = NOON, None
    newest = NOON - lag
    for started in range(NOON, NOON + seconds * SECOND, every):
        newest = started - lag
        turn.progressed(Batch(started, 100, newest, watermark))
        watermark = newest - delay
    return started


def test_the_watermarks_delay_is_seen_and_a_window_that_is_read_is_known_to_be_due() -> None:
    turn = Turn("q", tumbling("10 seconds"), SECOND)
    last = told(turn, 32)  # the last batch reads up to 31.5 s: the watermark is 30.5 s, that in force was 30 s
    turn.waits(last + SECOND // 4)
    assert turn.expected(last + SECOND) > last + SECOND
    known = Turn("q", tumbling("10 seconds"), SECOND)
    last = told(known, 31)  # reads up to 30.5 s: 29.5 s
    known.progressed(Batch(last + SECOND // 2, 100, last + SECOND // 2, last - SECOND))
    known.waits(last + SECOND)
    assert known.expected(last + SECOND) == last + SECOND // 2


def test_the_lag_of_windows_is_learned() -> None:
    turn = Turn("q", tumbling("5 seconds"), SECOND)
    last = told(turn, 63, lag=SECOND // 2)
    turn.waits(last)
    end = NOON + 65 * SECOND
    assert abs(turn.expected(last) - (end + 3 * SECOND // 2)) < SECOND // 2


def test_nothing_is_held_back_without_a_past_or_without_a_window() -> None:
    first, plain = Turn("a", tumbling("1 hour"), SECOND), Turn("b", None, SECOND)
    for turn in (first, plain):
        turn.waits(NOON)
    assert next_turns({"a": first, "b": plain}, 0, 2, KLINK, NOON + 1) == ["b", "a"]


def test_a_micro_batch_far_from_its_watermark_is_held_back_and_one_that_is_due_is_not() -> None:
    far, due = Turn("far", tumbling("1 minute"), SECOND), Turn("due", tumbling("10 seconds"), SECOND)
    last = told(far, 70)
    told(due, 70)
    for turn in (far, due):
        turn.waits(last + 1)
    due.progressed(Batch(last + 1, 100, NOON + 71 * SECOND, NOON + 69 * SECOND))
    due.waits(last + 2)
    assert next_turns({"far": far, "due": due}, 0, 2, KLINK, last + 3) == ["due"]
    assert next_turns({"far": far}, 0, 2, KLINK, last + 31 * SECOND) == ["far"], "the bound on waiting"


@pytest.mark.parametrize("name", POLICIES)
def test_no_more_run_than_there_are_slots(name: str) -> None:
    turns = {str(i): Turn(str(i), None, SECOND) for i in range(5)}
    for i, turn in enumerate(turns.values()):
        turn.waits(NOON + i)
    policy = policy_named(name)
    many = len(turns) if policy.at_once else 2
    assert len(next_turns(turns, 0, 2, policy, NOON + SECOND)) == many
    assert policy.at_once or next_turns(turns, 2, 2, policy, NOON + SECOND) == []


@given(st.sampled_from(sorted(POLICIES)), st.lists(st.integers(1, 20), min_size=2, max_size=6), st.integers(1, 3))
def test_nobody_waits_longer_than_the_bound(name: str, lengths: list[int], slots: int) -> None:
    """Batches that take a second each come one after the other; windows differ."""
    longest, policy = 5 * SECOND, bounded(POLICIES[name], 5 * SECOND)
    turns = {str(i): Turn(str(i), tumbling(f"{length} seconds"), SECOND) for i, length in enumerate(lengths)}
    waits = dict.fromkeys(turns, NOON)
    for turn in turns.values():
        turn.waits(NOON)
    worst = 0
    for now in range(NOON, NOON + 60 * SECOND, SECOND):
        for one in next_turns(turns, 0, slots, policy, now):
            worst = max(worst, now - waits[one])
            turns[one].ran(now, SECOND)
            turns[one].progressed(Batch(now, 10, now, now - SECOND))
            turns[one].waits(now + SECOND)
            waits[one] = now + SECOND
    assert worst <= longest + (len(turns) // slots + 2) * SECOND
