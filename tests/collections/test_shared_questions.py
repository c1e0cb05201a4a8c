"""Questions that share jobs, and how a job's tasks are made of them; without Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest

from transom.collections import batching as sharing
from transom.collections.batching import Bundle, GroupQuestion, Question, SharedJobs, bundles
from transom.collections.view import Terms
from transom.placement.replicas import Place, Task


class SlowWorkers:
    """Executors whose first job waits until it is let go."""

    cores: Mapping[str, int] = {"a": 1, "b": 1}

    def __init__(self) -> None:
        self.go, self.begun = threading.Event(), threading.Semaphore(0)
        self.tasks: list[Sequence[Task]] = []
        self.busy = 0

    def now(self) -> float:
        return 10.0

    def seconds(self, size: int) -> float:
        return size / 1_000

    def slack(self, due: float, seconds: float) -> float:
        return due - self.now() - seconds

    def learned(self, size: float, seconds: float, overhead: float) -> None:
        assert size > 0

    @contextmanager
    def booked(self, tasks: Sequence[Task], groups: Mapping[str, set[int]]) -> Iterator[Sequence[Place]]:
        self.tasks.append(tasks)
        self.busy += 1
        try:
            yield [Place(task, task.holders[-1], task.holders[-1]) for task in tasks]
        finally:
            self.busy -= 1

    def run(self, places: Sequence[Place], function: Callable[[int], bytes]) -> list[bytes]:
        self.begun.release()
        assert self.go.wait(600)
        return [function(number) for number in range(len(places))]


def part(group: int, size: int = 1, holders: str = "a") -> GroupQuestion:
    return GroupQuestion(group, size, {holder: [[f"{group}@{holder}"]] for holder in holders})


def failing(paths: Any) -> bytes:
    raise ValueError(f"{paths[0][0]}")


def shared(workers: Any, told: Callable[..., None] = lambda *_: None) -> SharedJobs:
    return SharedJobs(workers, dict, told)


def test_questions_during_jobs_share_the_next_and_a_failing_one_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "RUNNING", 1)
    workers = SlowWorkers()
    jobs = shared(workers)
    answers: dict[int, Any] = {}

    def ask(number: int) -> None:
        def give(paths: Any) -> bytes:
            return f"{number} {paths[0][0]}".encode()

        question = Question([part(0), part(number, holders="ab")], failing if number == 3 else give, 0.1)
        try:
            answers[number] = jobs.run(question)
        except ValueError as error:
            answers[number] = str(error)

    first = threading.Thread(target=ask, args=(9,))
    first.start()
    assert workers.begun.acquire(timeout=600)
    others = [threading.Thread(target=ask, args=(number,)) for number in range(1, 6)]
    for other in others:
        other.start()
    while jobs.questions < 6:
        first.join(0.01)
    workers.go.set()
    for thread in (first, *others):
        thread.join(600)
    good = {number: [f"{number} 0@a".encode(), f"{number} {number}@b".encode()] for number in (1, 2, 4, 5, 9)}
    assert answers == {**good, 3: "0@a"}
    assert jobs.jobs == 3, "the failing one was run again by itself"
    assert [len(tasks) for tasks in workers.tasks] == [2, 6, 2]


def test_an_interrupt_of_who_asks_takes_no_place_from_those_who_ask_later() -> None:
    class Interrupted(Future[Any]):
        def result(self, timeout: float | None = None) -> Any:
            raise KeyboardInterrupt

    workers = SlowWorkers()
    jobs = shared(workers)
    for _ in range(2 * sharing.RUNNING):
        with pytest.raises(KeyboardInterrupt):
            jobs.run(Question([part(0)], lambda _: b"", 0.1, answers=Interrupted()))
    workers.go.set()
    assert jobs.run(Question([part(0)], lambda _: b"found", 0.1)) == [b"found"]


def test_whatever_ends_a_job_its_tasks_count_as_busy_no_more_and_others_are_answered() -> None:
    def told(places: Any, now: float) -> None:
        if len(workers.tasks) <= sharing.RUNNING:
            raise SystemExit

    workers = SlowWorkers()
    workers.go.set()
    jobs = shared(workers, told)
    for _ in range(sharing.RUNNING):
        with pytest.raises(SystemExit):
            jobs.run(Question([part(0)], lambda _: b"", 0.1))
    assert jobs.run(Question([part(0)], lambda _: b"found", 0.1)) == [b"found"]
    assert workers.busy == 0


def test_a_task_waits_as_long_as_its_most_urgent_question_allows() -> None:
    workers = SlowWorkers()
    workers.go.set()
    seen: list[Any] = []
    jobs = shared(workers, lambda places, now: seen.append((places, now)))
    jobs.run(Question([part(0, 100), part(1, 200)], lambda _: b"", 1.0, due=10.5, subject="s"))
    assert [task.most_wait for task in workers.tasks[0]] == [pytest.approx(0.4), pytest.approx(0.3)]
    jobs.run(Question([part(0, 100)], lambda _: b"", 1.0, due=10.05))
    assert workers.tasks[1][0].most_wait == 0
    places, now = seen[0]
    assert (now, [subjects for _, subjects in places]) == (10.0, [["s"], ["s"]])


def test_long_tasks_are_divided_among_the_cores_of_their_group_s_holders() -> None:
    def questions(holders: str, sizes: Sequence[int]) -> list[Question]:
        return [Question([part(0, size, holders)], failing, 0.1) for size in sizes]

    def seconds(size: int) -> float:
        return size * sharing.LEAST_SECONDS

    cores = {"a": 1, "b": 1}
    assert bundles(questions("a", [5, 5]), seconds, cores) == [Bundle(0, ("a",), ((0, 0), (1, 0)), seconds(10))]
    for holders, more in (("ab", cores), ("a", {"a": 2})):
        divided = bundles(questions(holders, [5, 5, 5]), seconds, more)
        assert [each.pieces for each in divided] == [((0, 0), (2, 0)), ((1, 0),)]
    assert len(bundles(questions("ab", [0, 1]), seconds, cores)) == 1, "not worth another task"
    mixed = bundles([*questions("a", [1]), *questions("ab", [1])], seconds, cores)
    assert [each.holders for each in mixed] == [("a",), ("a", "b")], "not every question finds its data at both"


def test_a_join_reads_the_partitions_of_the_side_that_it_cannot_do_without() -> None:
    def read(how: str, left: set[int] | None, right: set[int] | None) -> set[int] | None:
        sides = [Terms(0.1, partitions=None if side is None else frozenset(side)) for side in (left, right)]
        found = sides[0].joined(sides[1], how).partitions
        return None if found is None else set(found)

    one, other, both = {1, 2}, {2, 3}, {1, 2, 3}
    for how, expected in {"inner": {2}, "left_semi": {2}, "left": one, "left_anti": one}.items():
        assert read(how, one, other) == expected
        assert read(how, None, other) == (other if how in ("inner", "left_semi") else None)
        assert read(how, one, None) == one
    assert read("right", one, other) == other
    assert (read("full", one, other), read("full", one, None)) == (both, None)
    limits = Terms(0.1, within=2.0).joined(Terms(0.2, within=1.0), "inner")
    assert (limits.wait, limits.within) == (0.1, 1.0)
