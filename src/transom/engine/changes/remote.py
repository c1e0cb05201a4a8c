"""Requests that come from the command line while an application runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from transom.checkpoint.control import Asked, Inbox
from transom.engine.changes.requests import Change
from transom.errors import DefinitionError, TransomError
from transom.model.time import MICROS_PER_SECOND, Clock, Micros

LOOK_EVERY: Micros = MICROS_PER_SECOND // 2
CHECK_EVERY: Micros = 2 * MICROS_PER_SECOND


class Remote:
    """Passes on what commands ask for, and answers when it is done. Used on the loop's thread.

    Args:
        inbox: Where requests are.
        clock: The time.
        act: Does what a request says; raises what is wrong with it.
        check: Returns while no other application has taken over; asked now and then, since one that waits for data
            commits nothing by which it would find out.
        tell: By operation, what is told without a change.
    """

    def __init__(
        self,
        inbox: Inbox,
        clock: Clock,
        act: Callable[[Mapping[str, Any]], Sequence[Change]],
        check: Callable[[], None] = lambda: None,
        tell: Mapping[str, Callable[[], Mapping[str, Any]]] = MappingProxyType({}),
    ) -> None:
        self._tell = tell
        self._check = check
        self._next_check: Micros = 0
        self._inbox = inbox
        self._clock = clock
        self._act = act
        self._next: Micros = 0

    def look(self) -> None:
        """Look for requests, but not more often than twice a second.

        Raises:
            CheckpointFencedError: Another application has taken over the checkpoint.
        """
        now = self._clock.monotonic()
        if now < self._next:
            return
        self._next = now + LOOK_EVERY
        if now >= self._next_check:
            self._next_check = now + CHECK_EVERY
            self._check()
        for asked in self._inbox.take():
            try:
                told = self._tell.get(asked.request.get("operation", ""))
                if told is not None:
                    self._inbox.answer(asked, told())
                    continue
                changes = self._act(asked.request)
            except TransomError as error:
                self._inbox.answer(asked, {"error": _error(error)})
                continue
            except Exception as error:  # a request that makes no sense harms nobody
                text = f"The application cannot do this: {type(error).__name__}: {error}."
                self._inbox.answer(asked, {"error": _error(DefinitionError(text, "Look at its log."))})
                continue
            self._answer_when_done(asked, changes)

    def _answer_when_done(self, asked: Asked, changes: Sequence[Change]) -> None:
        def answer() -> None:
            if not answered and all(change.done for change in changes):
                answered.append(True)
                self._inbox.answer(asked, {"changes": [_outcome(change) for change in changes]})

        answered: list[bool] = []
        answer()
        for change in changes:
            change.when_done(answer)


def _outcome(change: Change) -> dict[str, Any]:
    outcome: dict[str, Any] = {"query": change.query, "operation": change.operation}
    try:
        return {**outcome, "complete_from": change.complete_from(), "error": None}
    except TransomError as error:
        return {**outcome, "complete_from": None, "error": _error(error)}


def _error(error: TransomError) -> dict[str, str]:
    return {"message": error.message, "remedy": error.remedy}
