"""Where tasks run when executors are busy, and groups that get and lose replicas."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.errors import DefinitionError
from transom.placement.replicas import Busy, Place, Replicas, Task, placed

EXECUTORS = st.sampled_from("abcd")
CORES = dict.fromkeys("abcd", 1)


def test_a_core_takes_tasks_in_order_and_overdue_ones_are_not_trusted() -> None:
    busy = Busy({"a": 1, "b": 2, "c": 1})
    for ticket, (executor, seconds) in enumerate([("a", 2.0), ("a", 3.0), ("b", 4.0)]):
        busy = busy.submitted(ticket, executor, seconds, now=0.0)
    assert busy.waits(0.0) == {"a": 5.0, "b": 0.0, "c": 0.0}
    assert busy.waits(1.0) == {"a": 4.0, "b": 0.0, "c": 0.0}
    # The first should have ended at 2, but has not: the second waits for it.
    assert busy.waits(10.0)["a"] == pytest.approx(0.2 + 3.0)
    assert busy.ended([0, 99], now=10.0).waits(11.0)["a"] == pytest.approx(2.0)
    assert busy.ended([0, 1], now=1.0).waits(1.0)["a"] == 0
    assert busy.with_executors({"b": 1}).waits(1.0) == {"b": 3.0}


TASKS = st.lists(
    st.builds(Task, st.integers(0, 9), st.floats(0.1, 5), st.floats(0, 2)), max_size=10, unique_by=lambda t: t.group
)
HOLDERS = st.dictionaries(st.integers(0, 9), st.lists(EXECUTORS, unique=True))
WAITS = st.dictionaries(EXECUTORS, st.floats(0, 5), min_size=1)


@given(TASKS, HOLDERS, WAITS, st.floats(0, 10))
def test_every_task_runs_once_and_is_local_where_it_says_so(tasks, holders, waits, bound) -> None:
    places = placed(tasks, holders, waits, CORES, bound)
    assert sorted(p.task.group for p in places) == sorted(t.group for t in tasks)
    for place in places:
        assert place.executor in waits
        assert place.local == (place.executor in holders.get(place.task.group, ()))


@given(TASKS, HOLDERS, WAITS)
def test_who_may_wait_for_ever_stays_with_the_data(tasks, holders, waits) -> None:
    for place in placed(tasks, holders, waits, CORES, most_wait=1e9):
        assert place.local or not set(holders.get(place.task.group, ())) & set(waits)


@given(TASKS, HOLDERS, WAITS, st.floats(0, 10))
def test_leaving_the_data_ends_sooner_than_waiting_for_it(tasks, holders, waits, bound) -> None:
    free = dict(waits)
    for place in placed(tasks, holders, waits, CORES, bound):
        homes = [e for e in holders.get(place.task.group, ()) if e in free]
        if not place.local and homes:
            local = min(free[e] for e in homes)
            assert local > bound
            assert free[place.executor] + place.task.remote_seconds < local
        free[place.executor] += place.task.seconds + (0 if place.local else place.task.remote_seconds)


def test_of_idle_executors_the_one_with_the_fewest_groups_takes_it() -> None:
    holders = {0: ["a"], 1: ["b"], 2: ["b"], 3: ["c"]}
    waits = {"a": 9.0, "b": 0.0, "c": 0.0, "d": 1.0}
    assert placed([Task(0, 1, 1)], holders, waits, CORES, 3.0) == [Place(Task(0, 1, 1), "c", False)]


def test_slack_bounds_the_wait() -> None:
    task, waits = Task(0, 1, 0.2), {"a": 2.0, "b": 0.0}
    assert placed([task], {0: ["a"]}, waits, CORES, 3.0)[0].local
    assert not placed([task], {0: ["a"]}, waits, CORES, 3.0, slack=1.0)[0].local


def test_two_cores_take_two_tasks_at_once() -> None:
    places = placed([Task(0, 1, 9), Task(1, 1, 9)], {0: ["a"], 1: ["a"]}, {"a": 0.0, "b": 0.0}, {"a": 2, "b": 1}, 0.0)
    assert [p.executor for p in places] == ["a", "a"]


def ran(replicas, group, executor, local, times, now):
    for _ in range(times):
        replicas = replicas.ran([Place(Task(group, 1, 1), executor, local)], now)
    return replicas


def test_hot_groups_get_a_replica_where_they_ran_and_lose_it_when_cold() -> None:
    replicas = ran(ran(Replicas(), 7, "b", False, 2, now=0.0), 7, "c", False, 1, now=0.0)
    replicas, new, gone = replicas.adapted(0.0, "abc")
    assert (new, gone) == ({(7, "b")}, set())
    assert replicas.holders([None] * 7 + ["a"])[7] == ["a", "b"]
    assert replicas.adapted(60.0, "abc")[1:] == (set(), set())
    assert replicas.adapted(200.0, "abc")[1:] == (set(), {(7, "b")})
    kept = ran(replicas, 7, "b", True, 1, now=150.0)
    assert kept.adapted(200.0, "abc")[1:] == (set(), set())
    assert kept.adapted(150.0, "ac")[2] == {(7, "b")}


def test_a_want_now_and_then_makes_no_replica() -> None:
    replicas = Replicas()
    for minute in range(100):
        replicas, new, _ = ran(replicas, 1, "b", False, 1, 60.0 * minute).adapted(60.0 * minute, "ab")
        assert not new


@given(st.lists(st.tuples(st.integers(0, 3), EXECUTORS, st.booleans(), st.floats(0, 30)), max_size=60))
def test_what_is_made_was_not_there_and_what_goes_was(events) -> None:
    replicas, now = Replicas(), 0.0
    for group, executor, local, later in events:
        now += later
        replicas = replicas.ran([Place(Task(group, 1, 1), executor, local)], now)
        before = replicas.extra
        replicas, new, gone = replicas.adapted(now, "abcd")
        assert not new & before
        assert gone <= before
        assert replicas.extra == (before - gone) | new
        assert len(new) <= 1


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Busy({}),
        lambda: Busy({"a": 0}),
        lambda: Busy({"a": 1}).submitted(0, "a", 1, 0).submitted(0, "a", 1, 0),
        lambda: placed([], {}, {}, {}, 1),
        lambda: Replicas(hot=1, cold=2),
    ],
)
def test_what_makes_no_sense_is_refused(wrong) -> None:
    with pytest.raises(DefinitionError):
        wrong()
