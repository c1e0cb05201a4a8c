"""What each policy runs first; that nobody waits without end; what a run frees; joins, chains, pipelines."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transom.errors import DefinitionError
from transom.scheduling.policies import (
    POLICIES,
    Columns,
    Policy,
    StreamView,
    bounded,
    eliminated,
    fair,
    first_come_first_served,
    freeing,
    highest_rate,
    klink,
    least_slack,
    policy_named,
    rank_of,
    round_robin,
    streambox,
    windows_due,
)

S = 1_000_000
A = StreamView("a", expected=9 * S, waiting_since=5 * S, ran_at=1 * S, slack=3.0, rate=2.0, deadline=9 * S, freed=10)
B = StreamView("b", expected=8 * S, waiting_since=4 * S, ran_at=2 * S, slack=1.0, rate=1.0, deadline=8 * S, freed=99)
C = StreamView(
    "c", expected=7 * S, waiting_since=6 * S, ran_at=0 * S, slack=-2.0, rate=3.0, deadline=11 * S, freed=10, held=True
)


@pytest.mark.parametrize(
    ("policy", "order"),
    [
        (first_come_first_served, "bac"),
        (round_robin, "cab"),
        (highest_rate, "cab"),
        (streambox, "cba"),
        (least_slack, "cba"),
        (klink, "cba"),
        (Policy("freeing", freeing), "bca"),
    ],
    ids=lambda value: value.name if isinstance(value, Policy) else value,
)
def test_the_order_of_each_policy(policy, order):
    for views in itertools.permutations((A, B, C)):
        assert "".join(policy(views, 10 * S)) == order


def test_only_fair_runs_all_at_once_and_names_are_found():
    assert [policy.name for policy in POLICIES.values() if policy.at_once] == [fair.name]
    assert policy_named("streambox")([A, B], 10 * S) == ["b", "a"]
    with pytest.raises(DefinitionError, match="nosuch"):
        policy_named("nosuch")
    assert klink([], 0) == []


def early(ahead: float, work: float, run: float = 0.5, fixed: float = 0.1, trigger: float = 0.0) -> bool:
    """Tell whether Klink runs a stream whose watermark comes in `ahead` seconds and whose work is `work` by then."""
    now = 100 * S
    times = {"cost": run, "run": run, "fixed": fixed, "total": work, "slack": ahead, "trigger": trigger}
    view = StreamView("a", 0, expected=now + ahead * S, **{name: time * S for name, time in times.items()})
    return klink([view], now) == ["a"]


def test_klink_runs_ahead_of_a_watermark_only_when_it_pays():
    assert early(ahead=-1, work=0.5)
    assert early(ahead=0.6, work=0.5)
    assert not early(ahead=1.1, work=0.5), "most rows are yet to come"
    assert not early(ahead=0.2, work=0.5), "the watermark would wait for the run to end"


@pytest.mark.parametrize(("ahead", "runs"), [(1.6, False), (1.3, True), (0.8, True), (0.7, False)])
def test_a_run_ahead_of_a_watermark_leaves_room_for_the_trigger(ahead: float, runs: bool) -> None:
    """As long a time as without one, but no rows of the watermark wait for the trigger."""
    assert early(ahead, work=0.5, trigger=0.75) == runs
    assert early(ahead - 0.5, work=0.5) == runs


def test_klink_puts_early_runs_that_are_mostly_fixed_cost_last():
    now = 100 * S
    small = StreamView("small", 0, run=0.15 * S, fixed=0.1 * S, total=0.5 * S, expected=now + S / 2, slack=0.0)
    large = StreamView("large", 0, run=0.3 * S, fixed=0.1 * S, total=0.5 * S, expected=now + S / 2, slack=1.0)
    assert klink([small, large], now) == ["large", "small"]


def due(name: str, since: float, limit: float, windows: float = 1, **more: float) -> StreamView:
    """A stream whose watermark came `since` seconds before 100 s and whose run takes half a second."""
    now = 100 * S
    times = {"cost": 0.5 * S, "run": 0.5 * S, "total": 0.5 * S, "fixed": 0.1 * S, "cycle": 1.0 * S, "period": 3.0 * S}
    return StreamView(name, 0, expected=now - since * S, limit=limit * S, due=windows, **(times | more))


def test_a_limit_is_no_time_to_spare():
    assert klink([due("patient", 0.2, 10), due("urgent", 0.1, 9)], 100 * S) == ["patient", "urgent"]


def test_what_can_still_keep_its_limit_goes_before_what_cannot():
    kept, missed, long_missed = due("kept", 0.1, 1.0), due("missed", 0.25, 0.7), due("old", 0.6, 0.7)
    assert klink([missed, kept, long_missed], 100 * S) == ["old", "kept", "missed"], "by 0.3 s, not for ever"
    assert klink([due("a", 3.1, 1.0, 2), kept], 100 * S) == ["a", "kept"], "its newest window can keep it"


def test_limits_weigh_more_when_some_must_be_missed() -> None:
    def order(load: float) -> list[str]:
        return klink([due("kept", 0.1, 1.0, load=load), due("old", 0.6, 0.7, load=load)], 100 * S)

    assert (order(0.9), order(1.1)) == (["old", "kept"], ["kept", "old"])


def test_equal_streams_have_an_order_of_their_own():
    first, last = due("a", 0.1, 1.0, rank=-1.0), due("b", 0.1, 1.0, rank=1.0)
    assert klink([first, last], 100 * S) == ["b", "a"]
    ranks = [rank_of(f"stream {number}") for number in range(400)]
    assert -1 <= min(ranks) < -0.9 < 0.9 < max(ranks) <= 1
    assert abs(np.mean(ranks)) < 0.1


def test_work_that_needs_several_runs_starts_sooner():
    now = 100 * S
    one = StreamView("one", 0, cost=S, run=S, fixed=0.1 * S, total=1.5 * S, expected=now + S)
    two = one._replace(name="two", cost=1.5 * S)
    assert klink([one, two], now) == ["two", "one"]


@pytest.mark.parametrize(("expected", "count"), [(101, 0), (100, 1), (98, 1), (97, 2), (91, 4)])
def test_windows_that_are_due_are_counted_by_their_period(expected, count):
    assert windows_due(expected * S, 3 * S, 100 * S) == count
    assert windows_due(expected * S, 0, 100 * S) == min(count, 1)


def test_many_decisions_at_once_are_those_of_each():
    random = np.random.default_rng(3)
    columns = Columns(
        **{name: random.uniform(0, 5 * S, (4, 6)) for name in Columns.__annotations__ if name != "held"},
        held=random.uniform(0, 1, (4, 6)) < 0.5,
    )
    for policy in map(bounded, POLICIES.values()):
        together = np.broadcast_to(policy.priority(columns, 40.0 * S), (4, 6))
        for row in range(4):
            alone = Columns(**{name: getattr(columns, name)[row] for name in Columns.__annotations__})
            assert policy.priority(alone, 40.0 * S) == pytest.approx(together[row])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_stream_waits_longer_than_the_bound(data):
    """Whatever the policy says; one that hides a stream by an infinite priority included."""
    count, slots = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 3))
    longest, job = data.draw(st.integers(1, 20)), data.draw(st.integers(1, 6))
    random = np.random.default_rng(data.draw(st.integers(0, 1_000)))

    def hostile(streams: Columns, now: float) -> np.ndarray:
        names = np.arange(len(streams.ran_at), dtype=float)
        return np.where(random.uniform(0, 1, len(names)) < 0.2, np.inf, names)

    policy = bounded(Policy("hostile", hostile), longest * S)
    ran_at, busy_until, worst = [0] * count, [0] * count, 0
    for now in range(400):
        free = slots - sum(until > now for until in busy_until)
        idle = [place for place in range(count) if busy_until[place] <= now]
        views = [StreamView(str(place), waiting_since=0, ran_at=ran_at[place] * S) for place in idle]
        for name in policy(views, now * S)[:free]:
            place = int(name)
            worst = max(worst, now - ran_at[place])
            ran_at[place], busy_until[place] = now, now + int(random.integers(1, job + 1))
    worst = max(worst, *(399 - start for start in ran_at))
    assert worst <= 1 + longest + math.ceil(count / slots) * job


def test_the_bound_must_be_positive():
    with pytest.raises(DefinitionError, match="longest wait"):
        bounded(klink, 0)


def test_a_run_eliminates_what_operators_drop_not_what_they_process():
    one = np.ones(1)
    assert eliminated(100 * one, 0.25 * one, one, 1e9) == 75
    assert eliminated(np.array([100.0, 40.0]), np.array([1.0, 0.5]), np.ones(2), 1e9) == 70
    assert eliminated(np.array([100.0, 40.0]), np.array([2.0, 1.0]), np.ones(2), 1e9) == 0, "growing frees nothing"
    assert eliminated(np.array([100.0, 40.0]), np.array([1.0, 0.5]), np.ones(2), 50.0) == pytest.approx(20 + 2.5)


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 1), st.floats(0.01, 2)), min_size=1, max_size=5))
def test_what_is_eliminated_grows_with_the_time_and_is_no_more_than_is_queued(operators):
    queued, kept, cost = map(np.array, zip(*operators, strict=True))
    freed = [eliminated(queued, kept, cost, budget) for budget in (0.0, 1.0, 10.0, 1e9)]
    assert all(a <= b + 1e-9 for a, b in itertools.pairwise(freed))
    assert 0 <= freed[-1] <= queued.sum() + 1e-9
