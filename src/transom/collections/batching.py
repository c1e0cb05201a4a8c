"""Questions that come while jobs run go together into the next one, as commits of a database share a write to its log.

A Spark job of three tiny tasks takes 40 to 100 ms however little it does. Under load, what is asked at once costs that
once; without load nobody waits for others. A question that fails does so alone: it is run again by itself.

What the questions of a job ask of one group is one task, or several if the cores of its holders can share it.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from transom.collections.workers import TASK_SECONDS, Workers
from transom.model.time import MICROS_PER_SECOND, SystemClock
from transom.placement.locality import ExecutorId
from transom.placement.replicas import Place, Task

Paths: TypeAlias = Sequence[Sequence[str]]
"""Files of some partitions, by dataset."""
Function: TypeAlias = Callable[[Paths], bytes]
"""Runs at the executor that has them."""

RUNNING = 2
"""Jobs at a time: while one computes, the driver prepares the next."""
MOST = 64
"""Questions in a job."""
LEAST_SECONDS = 0.02
"""A task is divided among the cores of its group's holders into tasks that are expected to be no shorter."""


@dataclass(frozen=True)
class GroupQuestion:
    """The part of a question that one group answers."""

    group: int
    bytes: int
    paths: Mapping[ExecutorId, Paths]
    """Where the data is, by holder: the home first, then replicas."""


@dataclass(eq=False)
class Question:
    """A function of the files of some groups."""

    parts: Sequence[GroupQuestion]
    function: Function
    most_wait: float
    """Seconds that a task waits for a holder of its data while others are idle."""
    due: float | None = None
    """Second at which its answer is wanted."""
    subject: Any = None
    """For who is told where the tasks run."""
    answers: Future[list[bytes | None] | None] = field(default_factory=Future)
    """By part; None for what failed beside others, or for all of it."""


@dataclass(frozen=True)
class Bundle:
    """A task: what some questions ask of a group."""

    group: int
    holders: tuple[ExecutorId, ...]
    pieces: tuple[tuple[int, int], ...]
    """Numbers of questions, and of their parts."""
    seconds: float


def bundles(
    questions: Sequence[Question], seconds: Callable[[int], float], cores: Mapping[ExecutorId, int]
) -> list[Bundle]:
    """Return the tasks of a job: one for each group and set of holders, more where cores can share long ones.

    Args:
        questions: Of the job.
        seconds: That a question to so many bytes is expected to take.
        cores: Of each executor.
    """
    together: dict[tuple[int, tuple[ExecutorId, ...]], list[tuple[int, int]]] = {}
    for number, question in enumerate(questions):
        for place, part in enumerate(question.parts):
            together.setdefault((part.group, tuple(part.paths)), []).append((number, place))
    found = []
    for (group, holders), pieces in together.items():
        costs = {(q, p): seconds(questions[q].parts[p].bytes) for q, p in pieces}
        most = sum(cores.get(holder, 0) for holder in holders)
        count = max(1, min(most, len(pieces), int(sum(costs.values()) / LEAST_SECONDS)))
        for first in range(count):
            share = tuple(pieces[first::count])
            found.append(Bundle(group, holders, share, sum(costs[piece] for piece in share)))
    return found


class SharedJobs:
    """Runs questions at executors, several in one job when several are asked at once; for any number of threads.

    Args:
        workers: The executors.
        groups: Gives the groups that each executor holds.
        told: Is told where the tasks of a job run, each with the subjects of its questions.
    """

    def __init__(
        self,
        workers: Workers,
        groups: Callable[[], Mapping[ExecutorId, set[int]]],
        told: Callable[[Sequence[tuple[Place, list[Any]]], float], None],
    ) -> None:
        self._workers, self._groups, self._told = workers, groups, told
        self._lock = threading.Lock()
        self._waiting: list[Question] = []
        self._threads = ThreadPoolExecutor(RUNNING, thread_name_prefix="transom-questions")
        self.jobs = 0
        """Jobs so far."""
        self.questions = 0
        """Questions so far."""

    def run(self, question: Question) -> list[bytes]:
        """Return what the question's function gives for each of its parts.

        Jobs run on threads of their own, so that an interrupt of who asks takes nothing from the others; on that of who
        asks where no thread can start.
        """
        with self._lock:
            self.questions += 1
            self._waiting.append(question)
        try:
            self._threads.submit(self._next)
        except RuntimeError:  # no thread can start, as there are too many or the interpreter ends
            while self._waits(question):
                self._next()
        answers = question.answers.result()
        if answers is None or None in answers:
            answers = self._job([question])[0]
        return [answer for answer in answers if answer is not None]

    def _waits(self, question: Question) -> bool:
        with self._lock:
            return question in self._waiting

    def _next(self) -> None:
        """Answer in one job what waits: the question that came first and the most urgent ones."""
        with self._lock:
            first, others = self._waiting[:1], self._waiting[1:]
            together = first + sorted(others, key=lambda each: (each.due is None, each.due or 0.0))[: MOST - 1]
            self._waiting = [each for each in others if each not in together]
        if not together:  # another thread took what this one was called for
            return
        try:
            answers: Sequence[list[bytes | None] | None] = self._job(together)
        except BaseException as error:
            if len(together) == 1:
                together[0].answers.set_exception(error)
                return
            answers = [None] * len(together)  # each is asked again alone, and raises what that fails with
        for question, found in zip(together, answers, strict=True):
            question.answers.set_result(found)

    def _job(self, questions: Sequence[Question]) -> list[list[bytes | None]]:
        """Return the answers of questions by part; None for what failed beside others.

        What a question fails with is raised if it is the only one.
        """
        tasks = bundles(questions, self._workers.seconds, self._workers.cores)
        with self._lock:
            self.jobs += 1
        subjects = [[questions[number].subject for number, _ in each.pieces] for each in tasks]
        with self._workers.booked([self._task(each, questions) for each in tasks], self._groups()) as places:
            self._told(list(zip(places, subjects, strict=True)), self._workers.now())
            work = [
                [(number, _paths(questions[number].parts[part], place)) for number, part in each.pieces]
                for each, place in zip(tasks, places, strict=True)
            ]
            begun = self._workers.now()
            found = self._workers.run(places, _all_of([each.function for each in questions], work))
        answers: list[list[bytes | None]] = [[None] * len(each.parts) for each in questions]
        longest, size, count = 0.0, 0.0, 0
        for each, answer in zip(tasks, found, strict=True):
            given, seconds = pickle.loads(answer)
            for (number, part), one in zip(each.pieces, given, strict=True):
                answers[number][part] = one
            if seconds >= longest:
                longest, count = seconds, len(each.pieces)
                size = sum(questions[number].parts[part].bytes for number, part in each.pieces) / count
        if count:
            self._workers.learned(size, longest / count, self._workers.now() - begun - longest)
        return answers

    def _task(self, bundle: Bundle, questions: Sequence[Question]) -> Task:
        bound = float("inf")
        for number, _ in bundle.pieces:
            bound = min(bound, questions[number].most_wait)
            if (due := questions[number].due) is not None:
                bound = min(bound, self._workers.slack(due, bundle.seconds))
        return Task(bundle.group, bundle.seconds + TASK_SECONDS, bundle.holders, max(0.0, bound))


def _paths(part: GroupQuestion, place: Place) -> Paths:
    return next(iter(part.paths.values())) if place.source is None else part.paths[place.source]


def _all_of(functions: Sequence[Function], work: Sequence[Sequence[tuple[int, Paths]]]) -> Callable[[int], bytes]:
    """Return a function of a task's number with the answers of all its questions, and the seconds that they took."""
    alone = len(functions) == 1

    def run(task: int) -> bytes:
        clock = SystemClock()
        begun = clock.monotonic()
        answers: list[bytes | None] = []
        for number, paths in work[task]:
            try:
                answers.append(functions[number](paths))
            except Exception:  # asked again alone; the others have their answers
                if alone:
                    raise
                answers.append(None)
        return pickle.dumps((answers, (clock.monotonic() - begun) / MICROS_PER_SECOND))

    return run
