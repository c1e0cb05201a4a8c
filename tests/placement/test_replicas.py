"""Where tasks run when executors are busy, and groups that get and lose replicas."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.errors import DefinitionError
from transom.placement.replicas import Busy, Place, Replicas, Task, placed

EXECUTORS = st.sampled_from("abcd")
APART = {each: each for each in "abcd"}
TOGETHER = dict.fromkeys("abcd", "host")
PAIRS = {"a": "x", "b": "x", "c": "y", "d": "y"}


def task(group: int, seconds: float = 1.0, holders: str = "a", most_wait: float = 0.0) -> Task:
    return Task(group, seconds, tuple(holders), most_wait)


def busy(*tasks: tuple[str, float], **cores: int) -> Busy:
    places = {n: Place(task(0, seconds), executor, None) for n, (executor, seconds) in enumerate(tasks)}
    return Busy(cores).submitted(places, now=0.0)


def test_a_core_takes_tasks_in_order_and_overdue_ones_are_not_trusted() -> None:
    model = busy(("a", 2.0), ("a", 3.0), ("b", 4.0), a=1, b=2, c=1)
    assert model.waits(0.0) == {"a": 5.0, "b": 0.0, "c": 0.0}
    assert model.free(1.0)["b"] == [0.0, 3.0]
    assert model.waits(1.0) == {"a": 4.0, "b": 0.0, "c": 0.0}
    # The first should have ended at 2, but has not: the second waits for it.
    assert model.waits(10.0)["a"] == pytest.approx(0.2 + 3.0)
    assert model.ended([0, 99], now=10.0).waits(11.0)["a"] == pytest.approx(2.0)
    assert model.ended([0, 1], now=1.0).waits(1.0)["a"] == 0
    assert model.with_executors({"b": 1}).waits(1.0) == {"b": 3.0}


TASKS = st.lists(
    st.builds(
        Task,
        st.integers(0, 9),
        st.floats(0.1, 5),
        st.lists(EXECUTORS, unique=True, min_size=1).map(tuple),
        st.floats(0, 10),
    ),
    max_size=10,
)
FREE = st.dictionaries(EXECUTORS, st.lists(st.floats(0, 5), min_size=1, max_size=3), min_size=1)
SITES = st.sampled_from([APART, TOGETHER, PAIRS])


@given(TASKS, FREE, SITES)
def test_every_task_runs_where_it_can_read_its_data(tasks, free, sites) -> None:
    places = placed(tasks, free, {}, sites)
    assert [place.task for place in places] == tasks
    for place in places:
        living = set(place.task.holders) & free.keys()
        assert place.executor in free
        assert (place.source is None) == (not living)
        if living:
            assert place.source in living
            assert sites[place.source] == sites[place.executor]
        if place.wish is not None:
            assert place.executor in living
            assert sites[place.wish] not in {sites[executor] for executor in living}


@given(TASKS, FREE, SITES)
def test_a_task_leaves_its_data_only_to_begin_sooner_and_after_its_bound(tasks, free, sites) -> None:
    cores = {executor: sorted(ends) for executor, ends in free.items()}
    found = placed(tasks, free, {}, sites)
    for number in sorted(range(len(tasks)), key=lambda number: (-tasks[number].seconds, number)):
        place = found[number]
        homes = [cores[executor][0] for executor in place.task.holders if executor in cores]
        if homes and (place.executor not in place.task.holders or place.wish is not None):
            other = place.wish or place.executor
            assert min(homes) > place.task.most_wait
            assert cores[other][0] < min(homes)
        ends = cores[place.executor]
        cores[place.executor] = sorted([ends[0] + place.task.seconds, *ends[1:]])


def test_of_idle_executors_the_one_with_the_fewest_groups_takes_it() -> None:
    free, groups = {"a": [9.0], "b": [0.0], "c": [0.0], "d": [1.0]}, {"a": {0}, "b": {1, 2}, "c": {3}}
    one = task(0)
    assert placed([one], free, groups, TOGETHER) == [Place(one, "c", "a")]
    assert placed([one], free, groups, APART) == [Place(one, "a", "a", wish="c")]
    assert placed([one], free, groups, PAIRS) == [Place(one, "b", "a")]
    assert placed([task(0, most_wait=9.0)], free, groups, TOGETHER)[0].executor == "a"


def test_tasks_of_one_group_are_shared_by_its_holders() -> None:
    places = placed([task(0, 1.0, "ab"), task(0, 1.0, "ab"), task(0, 1.0, "ab")], {"a": [0.0], "b": [0.5]}, {}, APART)
    assert [place.executor for place in places] == ["a", "b", "a"]


def test_two_cores_take_two_tasks_at_once() -> None:
    places = placed([task(0), task(1)], {"a": [0.0, 0.0], "b": [0.0]}, {}, TOGETHER)
    assert [place.executor for place in places] == ["a", "a"]


def test_data_that_is_gone_is_asked_for_where_it_begins_first() -> None:
    assert placed([task(0, holders="z")], {"a": [1.0], "b": [0.5]}, {}, APART) == [
        Place(task(0, holders="z"), "b", None)
    ]


def ran(replicas, group, executor, times, now, wish=None):
    for _ in range(times):
        replicas = replicas.ran([Place(task(group), executor, "a", wish)], now)
    return replicas


def test_hot_groups_get_a_replica_where_it_was_wished_for_and_lose_it_when_cold() -> None:
    replicas = ran(ran(Replicas(), 7, "a", 2, 0.0, "b"), 7, "a", 1, 0.0, "c").adapted(0.0, "abc")
    assert replicas.extra == {(7, "b")}
    assert replicas.adapted(60.0, "abc").extra == {(7, "b")}
    assert replicas.adapted(200.0, "abc").extra == set()
    kept = ran(replicas, 7, "b", 1, now=150.0)
    assert kept.adapted(200.0, "abc").extra == {(7, "b")}
    assert kept.adapted(150.0, "ac").extra == set()
    assert kept.without({7}) == Replicas(at=150.0)


def test_a_want_now_and_then_makes_no_replica_and_home_needs_none() -> None:
    replicas = Replicas()
    for minute in range(100):
        replicas = ran(replicas, 1, "a", 1, 60.0 * minute, "b").adapted(60.0 * minute, "ab")
        assert not replicas.extra
    assert ran(Replicas(), 1, "a", 100, 0.0).adapted(0.0, "ab").extra == set()


@given(st.lists(st.tuples(st.integers(0, 3), EXECUTORS, st.booleans(), st.floats(0, 30)), max_size=60))
def test_replicas_are_only_where_somebody_wished_for_them(events) -> None:
    replicas, now = Replicas(), 0.0
    wished = set()
    for group, executor, wishes, later in events:
        now += later
        replicas = ran(replicas, group, "a" if wishes else executor, 1, now, executor if wishes else None)
        if wishes:
            wished.add((group, executor))
        before = replicas.extra
        replicas = replicas.adapted(now, "abcd")
        assert replicas.extra <= wished
        assert len(replicas.extra - before) <= 1
        assert all(replicas.wants[copy] >= replicas.cold for copy in replicas.extra)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Busy({}),
        lambda: Busy({"a": 0}),
        lambda: busy(("a", 1.0), a=1).submitted({0: Place(task(0), "a", None)}, 0),
        lambda: placed([], {}, {}, {}),
        lambda: Replicas(hot=1, cold=2),
    ],
)
def test_what_makes_no_sense_is_refused(wrong) -> None:
    with pytest.raises(DefinitionError):
        wrong()
