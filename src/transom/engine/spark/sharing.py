"""Questions that come while jobs run go together into the next one, as commits of a database share a write to its log.

A Spark job of three tiny tasks takes 40 to 100 ms however little it does. Under load, what is asked at once costs that
once; without load nobody waits for others. A question that fails does so alone: it is run again by itself.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from transom.engine.spark.placed import Tasks

Function: TypeAlias = Callable[[int], bytes]
"""From the number of a task; runs at its executor."""

RUNNING = 2
"""Jobs at a time: while one computes, the driver prepares the next."""
MOST = 64
"""Questions in a job."""


@dataclass(eq=False)
class _Question:
    tasks: Tasks
    function: Function
    answers: list[bytes | None] | None = None
    failed: bool = False

    @property
    def done(self) -> bool:
        return self.failed or self.answers is not None


class SharedJobs:
    """Runs functions at executors, several in one job when several are asked for at once; for any number of threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[_Question] = []
        self._running = 0
        self.jobs = 0
        """Jobs so far."""
        self.questions = 0
        """Questions so far."""

    def run(self, tasks: Tasks, function: Function) -> list[bytes]:
        """Return what the function gives for each task; see `Tasks.run`."""
        mine = _Question(tasks, function)
        with self._changed:
            self.questions += 1
            self._waiting.append(mine)
            while not mine.done and (self._running >= RUNNING or mine not in self._waiting):
                self._changed.wait()
            together = [] if mine.done else self._take(mine)
        if together:
            self._answer(together)
        if mine.answers is None or None in mine.answers:
            return tasks.run(function)
        return [answer for answer in mine.answers if answer is not None]

    def _take(self, mine: _Question) -> list[_Question]:
        others = [each for each in self._waiting if each is not mine and each.tasks is mine.tasks]
        together = [mine, *others[: MOST - 1]]
        self._waiting = [each for each in self._waiting if each not in together]
        self._running += 1
        self.jobs += 1
        return together

    def _answer(self, together: Sequence[_Question]) -> None:
        try:
            found = together[0].tasks.run(_all_of([each.function for each in together]))
            answers = [pickle.loads(each) for each in found]
            for place, question in enumerate(together):
                question.answers = [answer[place] for answer in answers]
        finally:
            with self._changed:
                for question in together:
                    question.failed = question.answers is None
                self._running -= 1
                self._changed.notify_all()


def _all_of(functions: Sequence[Function]) -> Function:
    """Return a function with the answers of all; None for one that fails beside others."""

    def run(task: int) -> bytes:
        if len(functions) == 1:
            return pickle.dumps([functions[0](task)])
        answers: list[bytes | None] = []
        for function in functions:
            try:
                answers.append(function(task))
            except Exception:
                answers.append(None)
        return pickle.dumps(answers)

    return run
